"""A link: everything this node shares with one neighbour, across the lives of its TCP connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ildm.api import Peer
from ildm.core.link.control import SYNCED
from ildm.core.link.state import LinkState, Stateful
from ildm.core.plugin.arguments import check_filters
from ildm.core.transfer.inbound import Holdable, Inbound
from ildm.core.transfer.lane import Lane, QueueLimits, total
from ildm.mqtt import (
    MalformedPacket,
    Publish,
    ReasonCode,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
)

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.hello import Hello
    from ildm.core.link.session import LinkSession

FILTERS_PER_PACKET = 1000


class NeighborLink(Stateful):
    """See :class:`ildm.api.Link`; its states are those of :mod:`ildm.core.link.state`."""

    def __init__(self, driver: Driver, config: LinkConfig, counters: Counters, node_id: str, sessions: int):
        super().__init__()
        self.driver = driver
        self.config = config
        self.counters = counters
        self.node_id = node_id
        self.boot = 0
        self.age = 0
        self.peer = Peer(node_id, "")
        """The neighbour and the address it has told."""
        self.dialed = False
        """This node has made the connection."""
        self.introducer = False
        """This node's configuration or administrator has named the neighbour."""
        self.on_demand = False
        """Made for the algorithm's data, by either side; nobody's configuration asks for it."""
        self.closing = False
        """One side has said BYE."""
        self.used_at = 0.0
        """When the algorithm has last sent or got data."""
        self.address: str | None = None
        self.since = driver.wall()
        self.reason: str | None = None
        self.token = ""
        self.control: LinkSession | None = None
        self.open_sessions: list[LinkSession] = []
        self.ready_sent = 0
        self.ready_heard = 0
        """Number of the last word on readiness, this node's and the neighbour's."""
        self.muted = False  # what is announced will be sent by synchronize()
        self.interest: dict[str, int] = {}
        self.announced: dict[str, int] = {}
        self._stale: set[str] | None = None
        self.transferred_in = 0
        self.limits = QueueLimits(
            messages=max(1, config.queue_messages // sessions),
            bytes=max(1, config.queue_bytes // sessions),
            inflight=config.inflight,
            inflight_bytes=config.inflight_bytes,
            overflow=config.overflow,
        )
        self.lanes: list[Lane] = []
        self.inbounds: list[Inbound] = []
        self.set_sessions(sessions)

    def set_sessions(self, count: int) -> None:
        """The number of sessions agreed with the neighbour; lanes with something to send are kept."""
        while len(self.lanes) < count:
            lane = Lane(self.driver, self.limits, self.counters, "link", len(self.lanes))
            self.lanes.append(lane)
            self.inbounds.append(Inbound(self.config.inflight, self.config.inflight_bytes, lane.write))
        if len(self.lanes) > count:
            for lane in self.lanes[count:]:
                lane.clear("session_removed")
            for inbound in self.inbounds[count:]:
                inbound.reset()
            del self.lanes[count:], self.inbounds[count:]

    @property
    def sessions(self) -> Sequence[LinkSession]:
        return tuple(self.open_sessions)

    def connect(self, session: LinkSession, hello: Hello) -> None:
        """Use a new control session, made on the terms of the neighbour's ``hello``."""
        self.set_sessions(hello.sessions)
        self.boot, self.age, self.token = hello.boot, hello.age, hello.token
        self.dialed = session.neighbor is not None
        self.address = session.peer if session.neighbor is None else str(session.neighbor.address)
        self.peer = Peer(hello.node, hello.address)
        self.since, self.reason = self.driver.wall(), None
        self.ready_heard = 0
        self.control = session
        self.open_sessions = [session]
        session.bind(self)

    def disconnect(self, reason: str) -> None:
        """Let go of all sessions; what is routed to the link meanwhile waits."""
        self.control = None
        self.hold_down()
        self.since, self.reason = self.driver.wall(), reason
        sessions, self.open_sessions = self.open_sessions, []
        for session in sessions:
            session.unbind()
            session.abort()
        for lane in self.lanes:
            lane.detach()

    # inter-subscribing (thesis 5.3.2) -----------------------------------------------------------

    def inter_subscribe(self, filters: Mapping[str, int]) -> None:
        changed = {f: qos for f, qos in filters.items() if self.announced.get(f) != qos}
        check_filters(changed)
        self.announced.update(changed)
        if self._speaking:
            self._send_filters(changed)

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        gone = [f for f in filters if self.announced.pop(f, None) is not None]
        if self._speaking:
            lane = self.lanes[0]
            for start in range(0, len(gone), FILTERS_PER_PACKET):
                packet = Unsubscribe(
                    packet_id=lane.new_packet_id(), topic_filters=gone[start : start + FILTERS_PER_PACKET]
                )
                lane.write(packet.encode(Version.V5))
                self.counters["inter_unsubscribes"] += len(packet.topic_filters)

    @property
    def _speaking(self) -> bool:
        return self.state is LinkState.ACTIVE and not self.muted

    def _send_filters(self, filters: Mapping[str, int]) -> None:
        lane = self.lanes[0]
        items = list(filters.items())
        for start in range(0, len(items), FILTERS_PER_PACKET):
            part = items[start : start + FILTERS_PER_PACKET]
            packet = Subscribe(
                packet_id=lane.new_packet_id(),
                subscriptions=[Subscription(topic_filter=f, qos=qos) for f, qos in part],
            )
            lane.write(packet.encode(Version.V5))
            self.counters["inter_subscribes"] += len(part)

    def synchronize(self, retained: bytes) -> None:
        """Repeat everything announced; the neighbour drops what is not repeated.

        ``retained`` is the digest of the retained messages this node remembers.
        """
        self._send_filters(self.announced)
        self.lanes[0].write(Publish(topic=SYNCED, payload=retained).encode(Version.V5))

    def begin_synchronization(self) -> None:
        """The neighbour is about to repeat its interest."""
        self._stale = set(self.interest)

    def end_synchronization(self) -> dict[str, int | None]:
        """The neighbour has repeated its interest; answers what is no longer in it."""
        stale, self._stale = self._stale or set(), None
        for topic_filter in stale:
            self.interest.pop(topic_filter, None)
        return dict.fromkeys(stale)

    def subscribed(self, packet: Subscribe) -> tuple[dict[str, int | None], bytes]:
        """The neighbour inter-subscribes; answers the changes and the SUBACK."""
        changes: dict[str, int | None] = {}
        codes: list[int] = []
        for wanted in packet.subscriptions:
            topic_filter = wanted.topic_filter
            if topic_filter.startswith("$"):
                raise MalformedPacket(
                    f"inter-subscription to {topic_filter!r}: $-topics do not cross", clause="MQTT-4.7.2-1"
                )
            if topic_filter not in self.interest and len(self.interest) >= self.config.max_filters:
                self.counters["interest_over_limit"] += 1
                codes.append(int(ReasonCode.QUOTA_EXCEEDED))
                continue
            codes.append(wanted.qos)
            if self._stale is not None:
                self._stale.discard(topic_filter)
            if self.interest.get(topic_filter) != wanted.qos:
                self.interest[topic_filter] = wanted.qos
                changes[topic_filter] = wanted.qos
        return changes, SubAck(packet_id=packet.packet_id, reason_codes=codes).encode(Version.V5)

    def unsubscribed(self, packet: Unsubscribe) -> tuple[dict[str, int | None], bytes]:
        """The neighbour withdraws filters; answers the changes and the UNSUBACK."""
        changes: dict[str, int | None] = {}
        codes: list[int] = []
        for topic_filter in packet.topic_filters:
            known = self.interest.pop(topic_filter, None) is not None
            codes.append(int(ReasonCode.SUCCESS if known else ReasonCode.NO_SUBSCRIPTION_EXISTED))
            if known:
                changes[topic_filter] = None
        return changes, UnsubAck(packet_id=packet.packet_id, reason_codes=codes).encode(Version.V5)

    # messages ---------------------------------------------------------------------------------

    def send(
        self, message: Publish, qos: int, index: int, expires_at: float | None, source: Holdable | None
    ) -> None:
        """Transfer one message on the session whose turn ``index`` is."""
        lane = self.lanes[index % len(self.lanes)]
        lane.send(message, min(message.qos, qos, self.config.qos), expires_at, source)

    def give_up(self) -> int:
        """The node stops: what it still had for the neighbour is counted; answers how much that is."""
        return sum(lane.give_up() for lane in self.lanes)

    def hold_down(self) -> None:
        """Stop transferring; what is routed to the link meanwhile waits."""
        for lane in self.lanes:
            lane.suspend()

    def forget(self, reason: str) -> None:
        """Leave the cooperation: neither side's interest nor anything queued holds any longer."""
        for lane in self.lanes:
            lane.suspend()
            lane.clear(reason)
        for inbound in self.inbounds:  # the neighbour takes back what it has no answer to
            inbound.reset()
        self.interest.clear()
        self.announced.clear()
        self._stale = None

    # figures ----------------------------------------------------------------------------------

    @property
    def transferred_out(self) -> int:
        return total(self.lanes, "sent")

    @property
    def queued_messages(self) -> int:
        return total(self.lanes, "queued_messages")

    @property
    def queued_bytes(self) -> int:
        return total(self.lanes, "queued_bytes")

    @property
    def dropped(self) -> int:
        return total(self.lanes, "dropped")

    @property
    def idle(self) -> bool:
        return all(lane.idle for lane in self.lanes)
