"""The chain of filters: what becomes of a message, of what a client subscribes to, of a client.

It knows filters and packets, no sessions and no clock of its own, so the simulator uses the same. Each filter
is asked about what the one before has let pass. A decision may be deferred: the answer then is
:class:`Awaited`, and the chain goes on from there when the decision is given, or has not come in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ildm.api import Deferred, Filter, Reject, Session, Source, Timer
from ildm.core.plugin.account import FAILURES
from ildm.core.plugin.filter_hooks import CLIENT, MESSAGES, SUBSCRIPTION, Hook
from ildm.mqtt import (
    Connect,
    PacketType,
    ReasonCode,
    Subscribe,
    Subscription,
)
from ildm.mqtt.wire import put_string

T = TypeVar("T")
Owner = TypeVar("Owner", bound="Named")


class Named(Protocol):
    """What failures are counted for: the plugin as the node knows it."""

    @property
    def name(self) -> str: ...


class Clock(Protocol):
    """The part of a driver which the chain uses."""

    def now(self) -> float: ...
    def call_soon(self, callback: Callable[..., None], *args: object) -> object: ...
    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer: ...


class Rejected(NamedTuple):
    """What a filter does not let pass, and why. The reason is possible in the answer due (MQTT 5, 2.4)."""

    reason: ReasonCode
    text: str
    plugin: str
    """Name of the plugin that has decided so."""


class _Pause(NamedTuple):
    """A filter has deferred its decision about a value."""

    place: int
    value: Any
    deferred: Deferred[Any]


class Awaited(Generic[T]):
    """A decision that is still to come."""

    __slots__ = ("_expected", "_then", "ended")

    def __init__(self) -> None:
        self.ended = False
        """It was told, or nobody wants to know any more."""
        self._then: Callable[[T], None] | None = None
        self._expected: tuple[Awaited[Any], ...] = ()

    def then(self, callback: Callable[[T], None]) -> None:
        """Be told the answer, once, never within this call nor within a call of a plugin."""
        self._then = callback

    def cancel(self) -> None:
        """Nobody is interested any more: a decision that comes is ignored."""
        self.ended = True
        self._then = None
        for each in self._expected:
            each.cancel()
        self._expected = ()

    def tell(self, answer: T) -> None:
        """The decision has come."""
        then, self._then = self._then, None
        self.ended = True
        if then is not None:
            then(answer)


class _Chain(Awaited["T | Rejected"]):
    """One value on its way through the filters, as far as it has come."""

    __slots__ = (
        "_ask",
        "_decided",
        "_deferred",
        "_filters",
        "_given",
        "_hook",
        "_index",
        "_packet",
        "_session",
        "_timer",
        "_value",
    )

    def __init__(
        self, ask: FilterChain[Any], hook: Hook[T], filters: _Filters[Any], session: Session, packet: Any
    ) -> None:
        super().__init__()
        self._ask = ask
        self._hook = hook
        self._filters = filters
        self._session = session
        self._packet = packet
        self._timer: Timer | None = None
        self._index = 0
        self._value: Any = None
        self._given = 0
        self._deferred: Deferred[Any] | None = None
        self._decided: Callable[[Any], None] = _nothing

    def wait(self, pause: _Pause) -> None:
        self._index, self._value = pause.place, pause.value
        self._given += 1
        number = self._given
        self._timer = self._ask.clock.call_later(self._ask.timeout, self._expired)

        def decided(decision: object) -> None:
            # within some call of a plugin, of which the node must not be a part
            if number == self._given and not self.ended:
                self._stop_waiting()
                self._ask.clock.call_soon(self._go_on, decision)

        self._deferred, self._decided = pause.deferred, decided
        pause.deferred.when_decided(decided)

    def cancel(self) -> None:
        super().cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deferred is not None:  # the plugin may keep it for long
            self._deferred.forget(self._decided)
            self._deferred, self._decided = None, _nothing

    def _expired(self) -> None:
        self._stop_waiting()
        self._given += 1  # what is decided from now on comes too late
        owner, plugin = self._filters[self._index]
        error = TimeoutError(f"no decision within {self._ask.timeout:g} s")
        self._ask.failed(owner, self._hook.name, error)
        self._resume(_on_error(owner, plugin, self._value))

    def _go_on(self, decision: object) -> None:
        if not self.ended:
            owner, plugin = self._filters[self._index]
            self._resume(self._ask.judged(self._hook, owner, plugin, self._session, self._value, decision))

    def _resume(self, value: Any) -> None:
        ask = self._ask
        result: Any = (
            value
            if isinstance(value, Rejected)
            else ask.decide(self._hook, self._filters, self._index + 1, self._session, value, self._packet)
        )
        if isinstance(result, _Pause):
            self.wait(result)
        else:
            self.tell(result)


class _All(Awaited["list[Subscription | Rejected]"]):
    """Several answers, of which at least one is awaited."""

    __slots__ = ("_answers", "_left")

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self._answers = list(answers)
        awaited = [(place, each) for place, each in enumerate(answers) if isinstance(each, Awaited)]
        self._left = len(awaited)
        self._expected = tuple(each for _, each in awaited)
        for place, each in awaited:
            each.then(partial(self._one, place))

    def _one(self, place: int, answer: object) -> None:
        self._answers[place] = answer
        self._left -= 1
        if not self._left:
            self._expected = ()
            self.tell(self._answers)


_Filters: TypeAlias = "list[tuple[Owner, Filter]]"


class FilterChain(Generic[Owner]):
    """All filters of a node, in the order they are asked.

    ``timeout`` is how long a decision may be awaited, in seconds. ``failed`` is told of each question a
    plugin fails to answer, by raising, with nonsense, or too late: whose, in which hook, and why;
    ``returned`` of each call that has ended, with the time it began.
    """

    def __init__(
        self,
        clock: Clock,
        failed: Callable[[Owner, str, BaseException], None],
        returned: Callable[[Owner, str, float], None],
        timeout: float,
    ) -> None:
        self.clock = clock
        self.failed = failed
        self.returned = returned
        self.timeout = timeout
        self._messages: dict[Source, _Filters[Owner]] = {source: [] for source in Source}
        self._subscriptions: _Filters[Owner] = []
        self._clients: _Filters[Owner] = []

    def add(self, owner: Owner, plugin: Filter) -> None:
        """Ask this one, too, after those added before, for what it overrides."""
        kind = type(plugin)
        if kind.filter is not Filter.filter:
            for source, packet_type in plugin.wants:
                if packet_type is PacketType.PUBLISH:
                    self._messages[source].append((owner, plugin))
        if kind.admit_subscription is not Filter.admit_subscription:
            self._subscriptions.append((owner, plugin))
        if kind.admit_client is not Filter.admit_client:
            self._clients.append((owner, plugin))

    def filters(self, source: Source) -> bool:
        """Whether some filter decides about the messages of a source."""
        return bool(self._messages[source])

    @property
    def admits_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    @property
    def admits_clients(self) -> bool:
        return bool(self._clients)

    def message(
        self, source: Source, session: Session, frame: bytes
    ) -> bytes | Rejected | Awaited[bytes | Rejected]:
        """Ask about a PUBLISH without a topic alias; what passes is ``frame`` itself if nothing changes.

        Only about what a client sends a decision is awaited.
        """
        return self._begin(
            MESSAGES[source], self._messages[source], session, frame, None, source is Source.CLIENT
        )

    def subscriptions(
        self, session: Session, packet: Subscribe
    ) -> list[Subscription | Rejected] | Awaited[list[Subscription | Rejected]]:
        """Ask about each entry of a SUBSCRIBE; those that pass as they are stay the same objects."""
        shown = deepcopy(packet)
        answers = [
            self._begin(SUBSCRIPTION, self._subscriptions, session, entry, shown)
            for entry in packet.subscriptions
        ]
        if any(isinstance(answer, Awaited) for answer in answers):
            return _All(answers)
        return answers  # type: ignore[return-value] # as has just been looked at

    def client(self, session: Session, packet: Connect) -> Connect | Rejected | Awaited[Connect | Rejected]:
        """Ask about a CONNECT; what passes is ``packet`` itself if nothing changes."""
        return self._begin(CLIENT, self._clients, session, packet, None)

    # the chain --------------------------------------------------------------------------------

    def _begin(
        self,
        hook: Hook[T],
        filters: _Filters[Owner],
        session: Session,
        value: T,
        packet: Any,
        may_wait: bool = True,
    ) -> T | Rejected | Awaited[T | Rejected]:
        result = self.decide(hook, filters, 0, session, value, packet, may_wait)
        if not isinstance(result, _Pause):
            return result
        awaited: _Chain[T] = _Chain(self, hook, filters, session, packet)
        awaited.wait(result)
        return awaited

    def decide(
        self,
        hook: Hook[T],
        filters: _Filters[Owner],
        start: int,
        session: Session,
        value: T,
        packet: Any,
        may_wait: bool = True,
    ) -> T | Rejected | _Pause:
        """Ask the filters from ``start`` on, until one rejects or defers."""
        for index in range(start, len(filters)):
            owner, plugin = filters[index]
            began = self.clock.now()
            try:
                answer = hook.call(plugin, session, value, packet)
                if isinstance(answer, Deferred) and may_wait:
                    decided: list[Any] = []
                    if not answer.decided:
                        return _Pause(index, value, answer)
                    answer.when_decided(decided.append)
                    answer = decided[0]
            except FAILURES as error:
                self.failed(owner, hook.name, error)
                result: T | Rejected = _on_error(owner, plugin, value)
            else:
                if answer is value:
                    result = value
                else:
                    result = self.judged(hook, owner, plugin, session, value, answer)
            finally:
                self.returned(owner, hook.name, began)
            if isinstance(result, Rejected):
                return result
            value = result
        return value

    def judged(
        self, hook: Hook[T], owner: Owner, plugin: Filter, session: Session, value: T, answer: object
    ) -> T | Rejected:
        """What a decision means."""
        if answer is value:
            return value
        if answer is None and hook.rejected_by_none:
            answer = Reject()
        try:
            if isinstance(answer, Reject):
                return self._rejected(hook, owner, answer)
            return hook.accept(session, value, answer)
        except FAILURES as error:
            self.failed(owner, hook.name, error)
            return _on_error(owner, plugin, value)

    def _rejected(self, hook: Hook[Any], owner: Owner, answer: Reject) -> Rejected:
        reason, text = answer
        if reason is None:
            reason = hook.default
        elif not isinstance(reason, int) or reason not in hook.possible:
            shown = f"0x{reason:02X}" if isinstance(reason, int) else repr(reason)
            error = ValueError(f"the answer to what is rejected cannot have reason {shown}")
            self.failed(owner, hook.name, error)
            reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        try:
            put_string(text, "reason string")
        except Exception as error:
            self.failed(owner, hook.name, error)
            text = ""
        return Rejected(ReasonCode(reason), text, owner.name)


def _nothing(decision: object) -> None:
    """Whom no decision is told."""


def _on_error(owner: Named, plugin: Filter, value: T) -> T | Rejected:
    if plugin.on_error == "reject":
        return Rejected(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "", owner.name)
    return value
