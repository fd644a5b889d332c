"""After a start, clients wait until neighbours that nothing is known of have told their interest.

Else the broker acknowledges messages that this node has no reason to transfer yet. A neighbour whose record
was restored needs no wait: messages queue for it from the first one on.

Messages of other neighbours wait likewise, without an acknowledgement: this node would pass them on to nobody
it has not met. The neighbour's window bounds them. It keeps them, and sends them again on a new connection.
Meanwhile this node wants everything, or else its neighbours would send it nothing for those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ildm.core.frames import PUBLISH, QOS
from ildm.core.link.state import LinkState
from ildm.core.transfer.message_ids import FROM_HEAD
from ildm.mqtt import PacketType, ProtocolViolation, ReasonCode

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import Address, LookupConfig
    from ildm.core.counters import Counters
    from ildm.core.link.dialer import Neighbor
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.transfer.inbound import Inbound

    Awaited: TypeAlias = Address | str | LookupConfig
    """An address that is dialed, the node id of a neighbour that dials, or a question to DNS."""

AT_ONCE = 100
"""Clients that go on in one iteration of the event loop: the broker's listen backlog is short."""
ELSEWHERE = (LinkState.BLOCKED, LinkState.BLOCKED_INVITED)
"""States of a link whose neighbour is reached on another path."""


class HeldBack:
    """Messages that have come over one session of a link while clients wait.

    Args:
        inbound: the session's; its credit bounds them.
    """

    __slots__ = ("_counters", "_inbound", "frames", "messages", "size")

    def __init__(self, inbound: Inbound, counters: Counters) -> None:
        self._inbound = inbound
        self._counters = counters
        self.frames: list[bytes] = []
        """As they came, with what tells their identities."""
        self.messages = 0
        self.size = 0

    def keeps(self, data: bytes, pos: int, header_end: int, end: int) -> bool:
        """Keep a frame, if it is a message of QoS 1 or 2, or tells who the next one is.

        Raises: ProtocolViolation, more than the credit (MQTT-3.3.4-9).
        """
        first = data[pos]
        if first >> 4 != PacketType.PUBLISH:
            return False
        if not first & QOS:
            if first != PUBLISH or not data.startswith(FROM_HEAD, header_end, end):
                return False
        else:
            self.messages += 1
            self._counters["link_held_at_start"] += 1
        self.size += end - pos
        inbound = self._inbound
        if self.messages > inbound.limit or (self.messages > 1 and self.size > 2 * inbound.byte_limit):
            raise ProtocolViolation(
                "more messages or bytes under way than granted",
                clause="MQTT-3.3.4-9",
                reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )
        self.frames.append(data[pos:end])
        return True


class StartGate:
    """Holds clients until the interest of all neighbours it waits for is known, or the time is over.

    Args:
        links: the manager's links by node id.
        neighbors: those of the configuration and the administrator.
    """

    def __init__(
        self, parts: LinkParts, links: Mapping[str, NeighborLink], neighbors: Mapping[Address, Neighbor]
    ) -> None:
        self.parts = parts
        self._links = links
        self._neighbors = neighbors
        self._unknown: dict[Awaited, None] = {}
        self._held: dict[Hashable, Callable[[], None]] = {}
        self._sessions: dict[Hashable, Callable[[], None]] = {}
        """Sessions of links whose messages wait."""
        self.want_all: Callable[[bool], None] = lambda _: None
        """Has this site want all topics, or no longer."""
        self._timer: Timer | None = None
        self._told = False

    @property
    def closed(self) -> bool:
        """A client has to wait, also behind those that are going on just now."""
        return bool(self._unknown or self._held)

    @property
    def waiting_for(self) -> list[str]:
        """The neighbours whose interest is not known, and questions to DNS without an answer."""
        return [str(awaited) for awaited in self._unknown]

    def close(self, unknown: Iterable[Awaited], seconds: float) -> None:
        """Wait for these neighbours; at the start of the node."""
        if seconds:
            self._unknown = dict.fromkeys(unknown)
        if self._unknown:
            self.want_all(True)
            self._timer = self.parts.driver.call_later(seconds, self._time_over, seconds)

    def stop(self) -> None:
        """The node stops, and ends its clients."""
        self._unknown.clear()
        self._held.clear()
        self._sessions.clear()
        self._cancel_timer()

    def hold(self, client: Hashable, go_on: Callable[[], None]) -> None:
        """``go_on`` is called once, later, unless the client lets go before."""
        if not self._told:
            self._told = True
            self.parts.driver.log(
                "info", "clients wait until neighbours have told their interest", neighbors=self.waiting_for
            )
        self._held[client] = go_on

    def hold_back(self, session: Hashable, inbound: Inbound, go_on: Callable[[], None]) -> HeldBack | None:
        """Where messages of a session wait until ``go_on`` is called; None: they need not."""
        if not self._unknown:
            return None
        self._sessions[session] = go_on
        return HeldBack(inbound, self.parts.counters)

    def let_go(self, waiting: Hashable) -> None:
        """A client or a session of a link has gone."""
        self._held.pop(waiting, None)
        self._sessions.pop(waiting, None)

    def look(self) -> None:
        """Something has changed about links or neighbours."""
        if self._unknown:
            self._look_at_all()

    def _look_at_all(self) -> None:
        for awaited in [awaited for awaited in self._unknown if self._is_known(awaited)]:
            del self._unknown[awaited]
        if not self._unknown:
            self._open()

    def give_up(self, awaited: Awaited) -> None:
        """This address never leads to a neighbour."""
        if self._unknown.pop(awaited, self) is None and not self._unknown:
            self._open()

    def found(self, question: LookupConfig, addresses: Iterable[Address]) -> None:
        """DNS has answered: from the first answer on, the neighbours that it names are awaited."""
        if question in self._unknown:
            self._unknown |= dict.fromkeys(addresses)
            del self._unknown[question]
            self._look_at_all()

    def _is_known(self, awaited: Awaited) -> bool:
        if isinstance(awaited, str):
            node_id: str | None = awaited
        elif isinstance(awaited, tuple):
            neighbor = self._neighbors.get(awaited)
            if neighbor is None:
                return True  # it was removed, or is this node itself
            node_id = neighbor.node_id
        else:
            return False
        link = self._links.get(node_id or "")
        if link is None:
            return False
        if link.state in ELSEWHERE:
            return True
        return link.state is LinkState.ACTIVE and not link.received_interest.synchronizing

    def _time_over(self, seconds: float) -> None:
        self.parts.counters["start_waits_expired"] += 1
        self.parts.driver.log(
            "warning",
            "clients are served before all neighbours have told their interest",
            neighbors=self.waiting_for,
            seconds=seconds,
        )
        self._unknown.clear()
        self._open()

    def _open(self) -> None:
        self._cancel_timer()
        self.want_all(False)
        sessions, self._sessions = self._sessions, {}
        for go_on in sessions.values():
            go_on()
        if self._told:
            self.parts.driver.log("info", "clients wait no longer for neighbours", clients=len(self._held))
        if self._held:
            self._let_on()

    def _let_on(self) -> None:
        for client in list(self._held)[:AT_ONCE]:
            go_on = self._held.pop(client, None)
            if go_on is not None:  # else one before has ended it
                go_on()
        if self._held:
            self._timer = self.parts.driver.call_later(0, self._let_on)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
