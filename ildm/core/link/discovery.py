"""Neighbours that DNS names (``link.discover``): asked again and again, dialed as those of the configuration.

DNS proves nothing: a neighbour found so proves who it is in the handshake, as any other. An answer without a
neighbour proves nothing either: what waits for the neighbour stays for ``link.expiry``.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ildm.api import Timer
    from ildm.config import Address, LookupConfig
    from ildm.core.link.dialer import Dialer, Neighbor
    from ildm.core.link.hello import Refusal
    from ildm.core.link.parts import LinkParts

MOST = 64
"""Addresses found at a time."""
LEAVE_AFTER = 600.0
"""Seconds without an address in any answer until it is not dialed any more."""
JITTER = 0.2
"""Of the time between two questions, so that nodes started together do not ask together."""


class FoundState(Enum):
    """Of an address found."""

    FOUND = auto()
    """It is dialed."""
    LINKED = auto()
    LEAVING = auto()
    """Its link stays while it is up, and is not dialed again."""
    OWN = auto()
    """This node itself listens there."""
    REMOVED = auto()
    """An administrator does not want it."""
    ENDED = auto()
    """Nothing is known of it any more."""


class FoundEvent(Enum):
    """What moves an address from one state to another."""

    NAMED = "DNS names it"
    GONE = "DNS has not named it for LEAVE_AFTER"
    LINKED = "its connection has become a link's"
    LOST = "its connection has ended, or has not come about"
    OWN = "this node has answered there"
    REMOVED = "an administrator has removed it"


_S = FoundState
_TABLE = """
state   NAMED   GONE    LINKED  LOST  OWN   REMOVED
FOUND   FOUND   ENDED   LINKED  FOUND OWN   REMOVED
LINKED  LINKED  LEAVING LINKED  FOUND OWN   REMOVED
LEAVING LINKED  LEAVING LINKED  ENDED ENDED ENDED
OWN     OWN     ENDED   OWN     OWN   OWN   REMOVED
REMOVED REMOVED ENDED   REMOVED REMOVED REMOVED REMOVED
ENDED   FOUND   ENDED   ENDED   ENDED ENDED ENDED
"""
DIALED = frozenset({_S.FOUND, _S.LINKED, _S.LEAVING})
"""States with an entry among the neighbours."""


def _transitions() -> dict[tuple[FoundState, FoundEvent], FoundState]:
    header, *rows = (line.split() for line in _TABLE.strip().splitlines())
    return {
        (FoundState[state], FoundEvent[event]): FoundState[name]
        for state, *names in rows
        for event, name in zip(header[1:], names, strict=True)
    }


TRANSITIONS = _transitions()


class Found:
    """An address that DNS has named."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.state = FoundState.ENDED
        self.neighbor: Neighbor | None = None
        self.absent_since: float | None = None
        """Monotonic time of the first answer that does not name it; None: an answer names it."""


class Lookup:
    """One question and its last answer."""

    def __init__(self) -> None:
        self.timer: Timer | None = None
        self.asked = False
        """An answer is awaited."""
        self.answer: frozenset[Address] = frozenset()
        self.problem: str | None = None
        """Why the last question has no answer."""


class Discovery:
    """Asks DNS, and has the dialer dial what it names."""

    def __init__(self, parts: LinkParts, dialer: Dialer) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = parts.config
        self.dialer = dialer
        self.found: dict[Address, Found] = {}
        self._lookups: dict[LookupConfig, Lookup] = {}
        self.answered: Callable[[LookupConfig, Sequence[Address]], None] = lambda *_: None
        """Told of each answer, when what it names is dialed."""
        self._started = False
        self._full = False

    @property
    def active(self) -> bool:
        """Whether there are neighbours that nobody has named."""
        return bool(self._lookups or self.found)

    def start(self) -> None:
        self._started = True
        self.follow()

    def stop(self) -> None:
        self._started = False
        for lookup in self._lookups.values():
            _cancel(lookup)

    def follow(self) -> None:
        """Ask what the configuration of now says. What only former questions have found leaves."""
        if not self._started:
            return
        wanted = self.config.discover
        left = [question for question in self._lookups if question not in wanted]
        for question in left:
            _cancel(self._lookups.pop(question))
        for question in wanted:
            if question not in self._lookups:
                self._lookups[question] = Lookup()
                self._ask(question)
        if left:
            named = self._named()
            for each in list(self.found.values()):
                if each.address not in named:
                    self._step(each, FoundEvent.GONE)

    # questions and answers ----------------------------------------------------------------------

    def _ask(self, question: LookupConfig) -> None:
        lookup = self._lookups[question]
        pause = self.config.discover_interval * (1 + JITTER * (2 * self.driver.random.random() - 1))
        lookup.timer = self.driver.call_later(pause, self._ask, question)
        if lookup.asked:  # a resolver that hangs is not asked more
            self._failed(question, lookup, "no answer until the next question was due")
            return
        lookup.asked = True
        self.driver.resolve(question, partial(self._answered, question, lookup))

    def _answered(
        self, question: LookupConfig, lookup: Lookup, answer: list[Address] | BaseException
    ) -> None:
        lookup.asked = False
        if not self._started or self._lookups.get(question) is not lookup:
            return
        if isinstance(answer, IldmError):
            self._failed(question, lookup, str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            self.parts.counters["discover_answered"] += 1
            if lookup.problem is not None:
                lookup.problem = None
                self.driver.log("info", "discovery works again", question=str(question))
            scheme = "mqtt" if self.config.tls is None else "mqtts"
            # the order is that of the answer, which says who comes in where there is no room for all
            named = [address._replace(scheme=scheme) for address in dict.fromkeys(answer)]
            lookup.answer = frozenset(named)
            self._look(named, question)
            self.answered(question, named)

    def _failed(self, question: LookupConfig, lookup: Lookup, problem: str) -> None:
        """Without an answer nothing is known: all stays as it is."""
        self.parts.counters["discover_failed"] += 1
        if lookup.problem != problem:
            lookup.problem = problem
            self.driver.log("warning", "discovery failed", question=str(question), reason=problem)

    def _named(self) -> set[Address]:
        return {address for lookup in self._lookups.values() for address in lookup.answer}

    def _look(self, named: list[Address], question: LookupConfig) -> None:
        """What an answer means for the addresses that are known, and for those that are not."""
        now, all_named = self.driver.now(), self._named()
        for each in list(self.found.values()):
            if each.address in all_named:
                each.absent_since = None
                self._step(each, FoundEvent.NAMED)
            elif each.absent_since is None:
                each.absent_since = now
            elif now - each.absent_since >= LEAVE_AFTER:
                self._step(each, FoundEvent.GONE)
        refused = 0
        for address in named:
            if address in self.found or address in self.dialer.neighbors:
                continue
            if self._has_room():
                self.driver.log("info", "neighbour found", address=str(address), question=str(question))
                self._step(Found(address), FoundEvent.NAMED)
            else:
                refused += 1
        if refused:
            self.parts.counters["discover_refused"] += refused
            if not self._full:
                text = f"more than {MOST}, or than link.max_neighbors has room for"
                self.driver.log("warning", "addresses found and not dialed", addresses=refused, reason=text)
        self._full = bool(refused)

    def _has_room(self) -> bool:
        """Whether one more address may be dialed. One that DNS does not name now, and has no link, gives way:
        else wrong answers would keep right ones out."""
        while len(self.found) >= MOST or len(self.dialer.neighbors) >= self.config.max_neighbors:
            up = (FoundState.LINKED, FoundState.LEAVING)
            unnamed = [
                (each.absent_since, str(each.address), each)
                for each in self.found.values()
                if each.absent_since is not None and each.state not in up
            ]
            if not unnamed:
                return False
            self._step(min(unnamed)[2], FoundEvent.GONE)
        return True

    # what becomes of an address -------------------------------------------------------------------

    def _step(self, found: Found, event: FoundEvent) -> None:
        before, found.state = found.state, TRANSITIONS[found.state, event]
        neighbor = found.neighbor
        if found.state is FoundState.ENDED:
            del self.found[found.address]
            self.driver.log("info", "found neighbour not dialed any more", address=str(found.address))
        elif before is FoundState.ENDED:
            self.found[found.address] = found
        if found.state in DIALED and neighbor is None:
            found.neighbor = neighbor = self.dialer.add(found.address, saved=False)
            neighbor.found = True
            self.dialer.dial(neighbor)
        elif found.state not in DIALED and neighbor is not None:
            found.neighbor = None
            if not neighbor.gone:
                self.dialer.remove(neighbor)

    def _of(self, neighbor: Neighbor) -> Found | None:
        found = self.found.get(neighbor.address)
        return found if found is not None and found.neighbor is neighbor else None

    def linked(self, neighbor: Neighbor) -> None:
        """The connection of a neighbour has become a link's."""
        found = self._of(neighbor)
        if found is not None:
            self._step(found, FoundEvent.LINKED)

    def lost(self, neighbor: Neighbor, refusal: Refusal | None) -> bool:
        """The connection of a neighbour has ended, or has not come about; whether it is dialed again."""
        found = self._of(neighbor)
        if found is not None:
            own = refusal is not None and is_own(self.parts.node_id, refusal)
            self._step(found, FoundEvent.OWN if own else FoundEvent.LOST)
        return not neighbor.gone

    def named_here(self, address: Address) -> Neighbor | None:
        """An administrator names an address from now on: its neighbour, if DNS has named it before."""
        found = self.found.pop(address, None)
        if found is None or found.neighbor is None:
            return None
        found.neighbor.found = False
        return found.neighbor

    def removed(self, neighbor: Neighbor) -> None:
        """An administrator has removed it."""
        found = self._of(neighbor)
        if found is not None:
            self._step(found, FoundEvent.REMOVED)


def is_own(node_id: str, refusal: Refusal) -> bool:
    """Whether it is this node itself that has refused, and no other with its id."""
    return refusal.kind == "own-id" and refusal.node == node_id


def _cancel(lookup: Lookup) -> None:
    if lookup.timer is not None:
        lookup.timer.cancel()
