"""Receiver: what an origin has offered, and this node lacks, is fetched until nothing is missing.

======== ===================================================================
CURRENT  nothing of the origin is known to be missing; it has no cursor
UNSURE   the origin was asked what it has
BEHIND   it has offered messages that are missing; none of them is requested
FETCHING some of them are requested
======== ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from heapq import nsmallest
from typing import TYPE_CHECKING, Protocol

from ildm_algorithms.exchange.messages import Message

if TYPE_CHECKING:
    from ildm.api import NodeApi, Timer
    from ildm_algorithms.exchange.receipts import Receipts

__all__ = ["FETCH", "PATIENCE", "TRANSITIONS", "Catchup", "Event", "Receiver", "State"]

FETCH = 100
"""Messages requested at once from one origin."""
PATIENCE = 3.0
"""Seconds without an answer until the same is said again; grows with each attempt."""

State = Enum("State", ["CURRENT", "UNSURE", "BEHIND", "FETCHING"])
Event = Enum("Event", ["ASKED", "OFFERED", "REQUESTED", "FILLED", "SILENT"])

_S, _E = State, Event
TRANSITIONS = {
    (_S.CURRENT, _E.ASKED): _S.UNSURE,
    (_S.CURRENT, _E.OFFERED): _S.BEHIND,
    (_S.UNSURE, _E.ASKED): _S.UNSURE,
    (_S.UNSURE, _E.OFFERED): _S.BEHIND,
    (_S.UNSURE, _E.FILLED): _S.CURRENT,
    (_S.UNSURE, _E.SILENT): _S.CURRENT,
    (_S.BEHIND, _E.OFFERED): _S.BEHIND,
    (_S.BEHIND, _E.REQUESTED): _S.FETCHING,
    (_S.BEHIND, _E.FILLED): _S.CURRENT,
    (_S.FETCHING, _E.OFFERED): _S.FETCHING,
    (_S.FETCHING, _E.REQUESTED): _S.FETCHING,
    (_S.FETCHING, _E.FILLED): _S.CURRENT,
    (_S.FETCHING, _E.SILENT): _S.CURRENT,
}
"""Whatever is not in it cannot happen. FILLED: nothing that was offered is missing any more; SILENT: the
origin has not answered, time and again."""


class Catchup(Protocol):
    """What an algorithm does for its :class:`Receiver`. Origins are node ids."""

    def came_before(self, origin: str, number: int) -> bool:
        """Whether an earlier incarnation of this node has received a message."""

    def want(self, origin: str, numbers: list[int]) -> None:
        """Request messages; their numbers ascend."""

    def take(self, origin: str, topic: str, age: int, message: Message) -> bool:
        """Deliver a message that was requested, ``age`` in ms; False: it is too old for any subscription."""

    def lost(self, origin: str, lacking: dict[int, str], gone: bool) -> None:
        """Topics by number of messages that never come. ``gone``: the origin has answered that; else it has
        not answered, and :meth:`ended` is next."""

    def ended(self, origin: str, filled: bool) -> None:
        """The origin has no cursor any more. ``filled``: all it has offered has come, or is lost."""


class _Cursor:
    __slots__ = ("ask", "attempts", "lacking", "state", "timer")

    def __init__(self) -> None:
        self.state = State.CURRENT
        self.lacking: dict[int, str] = {}
        """Topics by number."""
        self.attempts = 0
        self.timer: Timer | None = None
        self.ask: Callable[[], None] = lambda: None


class Receiver:
    """The cursors of all origins. Together they lack ``most`` messages at most, and one of them no more than
    it leaves to others.

    Args:
        attempts: how often the same is said to an origin that does not answer.
    """

    def __init__(
        self,
        api: NodeApi,
        catchup: Catchup,
        receipts: Receipts,
        most: int,
        attempts: int,
        count: Callable[..., None],
    ) -> None:
        self._api = api
        self._catchup = catchup
        self._receipts = receipts
        self._most = most
        self._attempts = attempts
        self._count = count
        self._cursors: dict[str, _Cursor] = {}

    def __len__(self) -> int:
        """Origins that are not CURRENT."""
        return len(self._cursors)

    def state(self, origin: str) -> State:
        cursor = self._cursors.get(origin)
        return State.CURRENT if cursor is None else cursor.state

    def all_in(self, state: State) -> list[str]:
        """Origins in a state other than CURRENT."""
        return [origin for origin, cursor in self._cursors.items() if cursor.state is state]

    def _step(self, origin: str, event: Event) -> _Cursor:
        cursor = self._cursors.get(origin) or _Cursor()
        cursor.state = TRANSITIONS[cursor.state, event]
        self._cursors[origin] = cursor
        if cursor.state in {State.CURRENT, State.BEHIND}:  # nothing is to be answered
            cursor.attempts = 0
            if cursor.timer is not None:
                cursor.timer.cancel()
        if cursor.state is State.CURRENT:
            del self._cursors[origin]
        return cursor

    def ask(self, origin: str, ask: Callable[[], None]) -> None:
        """Ask an origin what it has, again and again until it answers."""
        cursor = self._step(origin, Event.ASKED)
        cursor.ask, cursor.attempts = ask, 0
        self._say(origin, cursor)

    def offered(self, origin: str, messages: Iterable[tuple[int, str]]) -> list[str]:
        """Numbers and topics of messages that an origin has. Answers the topics of those that are missing and
        have no room."""
        cursor = self._cursors.get(origin)
        lacking = cursor.lacking if cursor is not None else {}
        left = self._most - sum(len(each.lacking) for each in self._cursors.values())
        fresh: dict[int, str] = {}
        refused = []
        for number, topic in messages:
            if number in lacking or number in fresh or (origin, number) in self._receipts:
                continue
            if self._catchup.came_before(origin, number):
                continue
            if 0 < left >= len(lacking) + len(fresh):
                fresh[number] = topic
                left -= 1
            else:
                refused.append(topic)
        if fresh:
            self._step(origin, Event.OFFERED).lacking.update(fresh)
        return refused

    def fetch(self, origin: str) -> None:
        """Request what is missing, the oldest first; or end, if nothing is."""
        cursor = self._cursors[origin]
        # what has come meanwhile on another way is not lacking any more
        for number in [number for number in cursor.lacking if (origin, number) in self._receipts]:
            del cursor.lacking[number]
        if cursor.lacking:
            self._step(origin, Event.REQUESTED)
            self._say(origin, cursor)
        else:
            self._step(origin, Event.FILLED)
            self._catchup.ended(origin, True)

    def _say(self, origin: str, cursor: _Cursor) -> None:
        if cursor.timer is not None:
            cursor.timer.cancel()
        if cursor.state is State.UNSURE:
            cursor.ask()
        else:
            self._count("wants")
            self._catchup.want(origin, nsmallest(FETCH, cursor.lacking))
        wait = PATIENCE * (1 + cursor.attempts)
        cursor.timer = self._api.call_later(wait, self._impatient, origin, cursor)

    def _impatient(self, origin: str, cursor: _Cursor) -> None:
        cursor.attempts += 1
        if cursor.attempts >= self._attempts:
            self._step(origin, Event.SILENT)
            if cursor.lacking:
                self._catchup.lost(origin, cursor.lacking, False)
            self._catchup.ended(origin, False)
        elif cursor.state is State.UNSURE:
            self._say(origin, cursor)
        else:
            self.fetch(origin)

    def arrived(
        self, origin: str, messages: Iterable[tuple[int, bytes]], gone: Iterable[int], last: bool
    ) -> None:
        """Ages in ms and messages that were requested, and numbers of those that are gone. ``last``: of the
        answer to one request.

        Raises:
            MessageError: one is no message.
        """
        cursor = self._cursors.get(origin)
        lacking = cursor.lacking if cursor is not None else {}
        before = len(lacking)
        for age, data in messages:
            message = Message.decode(data)
            topic = lacking.pop(message.number, None)
            if topic is None:
                self._count("late_unwanted")
            elif self._catchup.take(origin, topic, age, message):
                self._count("fetched")
        lost = {number: lacking.pop(number) for number in gone if number in lacking}
        for number in lost:
            self._receipts.add(origin, number)  # so that it counts once
        if lost:
            self._catchup.lost(origin, lost, True)
        # an answer that brings nothing is a double, or no answer: what is missing is requested in its time
        if cursor is not None and len(lacking) < before:
            cursor.attempts = 0
            if last:
                self.fetch(origin)
