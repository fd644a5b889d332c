"""Publishing transferred messages into the local broker through the node's own sessions (thesis 5.4.1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.api import Injections, Role, SessionStatus, Unreachable
from ildm.core.backoff import Backoff
from ildm.core.local.broker_session import connack_code
from ildm.core.session import BaseSession
from ildm.core.transfer.audit import Auditor
from ildm.core.transfer.delivery import Delivery
from ildm.core.transfer.lane import Lane, QueueLimits, total
from ildm.core.transfer.qos1 import acknowledged_ids
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.retained_order import RetainedOrder
from ildm.core.transfer.version_probe import VersionProbe
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    MqttError,
    PacketType,
    PingReq,
    PingResp,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    ReasonCode,
    Version,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.node import Node
    from ildm.core.transfer.custody import Way
    from ildm.core.transfer.receipt import Receipt

SESSION_EXPIRY = 3600
FOR_YEARS = 0xFFFFFFFE
"""Seconds; one more would be a session that does not expire (MQTT 5, 3.1.2.11.2)."""
AGAIN = "connecting anew"
GUILTLESS = frozenset(
    (
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.KEEP_ALIVE_TIMEOUT,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.ADMINISTRATIVE_ACTION,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.MAXIMUM_CONNECT_TIME,
    )
)
"""Reasons of DISCONNECT that lie in no message."""


class InjectionSession(BaseSession):
    """One connection to the broker; opens itself again when it ends."""

    __slots__ = (
        "_absent",
        "_backoff",
        "_cleaned",
        "_connected_at",
        "_cut",
        "_framer",
        "_guiltless",
        "_last_heard",
        "_refusal",
        "_stopped",
        "_timer",
        "injector",
        "lane",
    )
    role = Role.INJECTION

    def __init__(self, injector: Injector, lane: Lane) -> None:
        super().__init__(injector.node.driver)
        self.injector = injector
        self.lane = lane
        lane.silence.ask = self._ask
        self.client_id = injector.client_id(lane.index)
        broker = injector.node.config.broker
        self._backoff = Backoff(self.driver.random, broker.reconnect_min, broker.reconnect_max)
        self._framer = Framer(1 << 20)
        self._cut = b""  # the beginning of an acknowledgement
        self._timer: Any = None
        self._last_heard = 0.0
        self._refusal: str | None = None
        self._absent = False  # nobody listened at the last attempt
        self._guiltless = False  # the broker has said that it is not for a message that it hangs up
        self._connected_at = 0.0
        self._stopped = False
        # nothing of an earlier life of the node is left at the broker, or the spool knows of it
        self._cleaned = injector.node.custody is not None

    def dial(self) -> None:
        self._timer = None
        node = self.injector.node
        self.driver.dial(node.broker_address, self, node.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._absent = self._guiltless = False
        self._connected_at = self.driver.now()
        if self._stopped:
            self.abort()
            return
        node = self.injector.node
        transport.set_write_buffer_limits(high=node.config.limits.write_buffer)
        self._framer = Framer(1 << 20)
        self._cut = b""
        self._refusal = None
        assert self.injector.version is not None
        self.version = self.injector.version
        # a session that survives lets the QoS 2 handshake go on after a reconnection
        persistent = node.config.link.qos == 2
        properties: Properties = {}
        if self.version is Version.V5 and persistent:
            kept = SESSION_EXPIRY if node.custody is None else int(node.config.spool.age)
            properties[Property.SESSION_EXPIRY_INTERVAL] = min(max(SESSION_EXPIRY, kept), FOR_YEARS)
        connect = Connect(
            client_id=self.client_id,
            version=self.version,
            clean_start=not (persistent and self._cleaned),
            keep_alive=node.config.broker.keep_alive,
            username=node.config.broker.username,
            password=self.injector.password,
            properties=properties,
        )
        self.write(connect.encode(self.version))
        self._timer = self.driver.call_later(node.config.broker.connect_timeout, self._no_connack)

    def _no_connack(self) -> None:
        self._refusal = "no answer to CONNECT"
        self.abort()

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self.injector.node.broker_reachable(reason)
        self._absent = True
        self._again()

    def broker_is_there(self) -> None:
        """Somebody else has reached the broker: no longer wait for what ended with its absence."""
        if self._absent and self._timer is not None:
            self._cancel_timer()
            self.dial()

    def data_received(self, data: bytes) -> None:
        self._last_heard = self.driver.now()
        if self._cut:
            data, self._cut = self._cut + data, b""
        try:
            if not self._framer.pending:
                data = self._acknowledged(data)
            for frame in self._framer.feed(data):
                self._packet(frame)
        except MqttError as error:
            self.injector.node.broker_failed(self, error)
            self._refusal = str(error)
            self.close()

    def _acknowledged(self, data: bytes) -> bytes:
        """Take the PUBACKs which the data begins with; answers the rest."""
        ids, end = acknowledged_ids(data, 0, self.version)
        if ids:
            self._backoff.reset()
            self.lane.acknowledged(ids)
            data = data[end:]
        if len(data) < 4 and data[:1] == b"\x40":  # cut off: with what follows it is a run again
            data, self._cut = b"", data
        return data

    def _packet(self, frame: bytes) -> None:
        if frame[0] >> 4 == PacketType.CONNACK:
            # a broker of 3.1.1 refuses a CONNECT of version 5 in its own format, Moquette in a mixed one
            code = connack_code(frame)
            accepted = code == 0 or code >= 0x80
            self._connack(decode(frame, self.version) if accepted else ConnAck(reason_code=code))
            return
        packet = decode(frame, self.version)
        lane = self.lane
        match packet:
            case PubAck():
                self._backoff.reset()
                lane.on_puback(packet.packet_id, packet.reason_code)
                self._note_refusal(packet.reason_code)
            case PubRec():
                lane.on_pubrec(packet.packet_id, packet.reason_code)
                self._note_refusal(packet.reason_code)
            case PubComp():
                self._backoff.reset()
                lane.on_pubcomp(packet.packet_id)
            case Disconnect():
                self._guiltless = packet.reason_code in GUILTLESS
                self._refusal = f"the broker disconnected with reason 0x{packet.reason_code:02X}"
            case PingResp():
                lane.end_silence()
            case _:
                pass  # nothing else is due, as the session subscribes to nothing

    def _note_refusal(self, reason_code: int) -> None:
        if reason_code >= 0x80:
            self.injector.refused(reason_code)

    def _connack(self, packet: Any) -> None:
        assert isinstance(packet, ConnAck)
        node = self.injector.node
        if packet.reason_code != 0:
            self._refusal = f"the broker refused the node's own session with code 0x{packet.reason_code:02X}"
            self.close()
            return
        self._cancel_timer()
        if not self._cleaned:
            self._cleaned = True
            if self.version is not Version.V5 and node.config.link.qos == 2:
                # in MQTT 3 a session that begins clean ends with its connection
                self._refusal = AGAIN
                self.write(Disconnect().encode(self.version))
                self.close()
                return
        said = packet.properties
        self.lane.attach(
            self.transport,  # type: ignore[arg-type]  # there is one: the CONNACK came over it
            version=self.version,
            window=int(said.get(Property.RECEIVE_MAXIMUM, 65535)),
            max_packet_size=min(
                int(said.get(Property.MAXIMUM_PACKET_SIZE, 1 << 28)), node.config.broker.packet_size
            ),
            max_qos=int(said.get(Property.MAXIMUM_QOS, 2)),
            retain_available=bool(said.get(Property.RETAIN_AVAILABLE, 1)),
        )
        self.lane.writable = self.writable
        keep_alive = int(said.get(Property.SERVER_KEEP_ALIVE, node.config.broker.keep_alive))
        self._timer = self.driver.call_later(max(1, keep_alive) * 0.7, self._ping, max(1, keep_alive))
        node.broker_reachable(None)
        node.session_established(self)
        self.lane.resume(packet.session_present)
        if self.lane.index == 0:
            self.injector.broker_came()

    def _ping(self, keep_alive: float) -> None:
        if self.driver.now() - self._last_heard > 2 * keep_alive:
            self._refusal = "no sign of life from the broker"
            self.abort()
            return
        self._ask()
        self._timer = self.driver.call_later(keep_alive * 0.7, self._ping, keep_alive)

    def _ask(self) -> None:
        self.lane.write(PingReq().encode(self.version))

    def connection_lost(self, exc: Exception | None) -> None:
        expected = self.status is SessionStatus.TERMINATING
        accepted = self.lane.transport is not None
        super().connection_lost(exc)
        self._cancel_timer()
        self.lane.detach()
        if accepted and not (expected or self._guiltless):
            self.lane.blame()
        if self.driver.now() - self._connected_at >= self._backoff.maximum:
            self._backoff.reset()
        if accepted:
            self.injector.node.session_closed(self, None if expected else exc or ConnectionError("closed"))
        if self._stopped:
            return
        if self._refusal == AGAIN:
            self.dial()
            return
        reason = self._refusal or (str(exc) if exc else "the broker closed the node's own session")
        self.injector.node.broker_reachable(reason)
        self._again()

    def _again(self) -> None:
        if not self._stopped and self._timer is None:
            self._timer = self.driver.call_later(self._backoff.next(), self.dial)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.lane.set_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.lane.set_writable(True)

    def stop(self, under_way: bool) -> None:
        """End the session for good, leaving nothing behind at the broker, unless the next life of the node
        goes on with what is ``under_way``."""
        self._stopped = True
        self._cancel_timer()
        if self.transport is not None and self.lane.transport is not None:
            self.lane.suspend()
            ends = self.version is Version.V5 and self.injector.node.config.link.qos == 2 and not under_way
            properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: 0} if ends else {}
            self.write(Disconnect(properties=properties).encode(self.version))
        self.close()


class Injector:
    """The node's own sessions with the local broker: as many as a link has."""

    def __init__(self, node: Node) -> None:
        self.node = node
        config = node.config
        count = config.link.sessions
        limits = QueueLimits(
            messages=max(1, config.link.queue_messages // count),
            bytes=max(1, config.link.queue_bytes // count),
            inflight=config.link.inflight,
            inflight_bytes=config.link.inflight_bytes,
            overflow=config.link.overflow,
        )
        self.custody = custody = node.custody
        self.lanes = [
            Lane(
                node.driver,
                limits,
                node.counters,
                "injection",
                i,
                None if custody is None else custody.queue(f"injection/{i}"),
                custody,
            )
            for i in range(count)
        ]
        self.sessions: list[InjectionSession] = []
        versions = {"auto": None, "3.1.1": Version.V311, "5": Version.V5}
        self.version: Version | None = versions[config.broker.protocol]
        """MQTT version spoken with the broker; None until one was accepted."""
        self.last_refusal: str | None = None
        cooperates = node.algorithm_name is not None  # the router gets to know the algorithm later
        self.probe_id = f"ildm-{node.node_id}-probe"
        """Client identifier for what is tried out with the broker."""
        own = [*(self.client_id(i) for i in range(count)), f"ildm-{node.node_id}-audit", self.probe_id]
        self.client_ids = frozenset(own if cooperates else ())
        self._probe: VersionProbe | None = None
        self.order = RetainedOrder(node.retained, self.lanes)
        self.auditor = Auditor(self)
        self.delivery = Delivery(self)
        self._under_way: set[int] = set()
        for lane in self.lanes:
            lane.lost = self._lost
            lane.sent_counter = "injected"
            if custody is not None:
                lane.spooled.make = partial(self._entry, lane)
                lane.forgotten = self.delivery.sends_anew
        if custody is not None:
            for name, index in custody.left_over("injection", count):
                custody.adopt(name, self.lanes[index % count].spooled)
        self._given = self.queued_messages
        """Messages up to now, with what earlier lives have left."""

    def client_id(self, index: int) -> str:
        return f"ildm-{self.node.node_id}-{index}"

    @property
    def password(self) -> bytes | None:
        password = self.node.broker_password
        return None if password is None else password.encode()

    def start(self) -> None:
        self.delivery.restore()
        if self.version is not None:
            self.found_version(self.version)
        else:
            self._probe = VersionProbe(self)
            self._probe.dial()

    def found_version(self, version: Version) -> None:
        """The broker's MQTT version is known: open the sessions."""
        self.version = version
        self._probe = None
        self.sessions = [InjectionSession(self, lane) for lane in self.lanes]
        for session in self.sessions:
            session.dial()

    def broker_came(self) -> None:
        """The first session was accepted."""
        self.auditor.broker_came()
        if self.node.custody is not None and self.node.config.link.qos == 2:
            self.delivery.broker_came()

    def broker_is_there(self) -> None:
        """A local client has reached the broker."""
        if self._probe is not None:
            self._probe.broker_is_there()
        for session in self.sessions:
            session.broker_is_there()

    def _lost(self, message: Publish) -> None:
        if message.retain:
            self.node.retained.contention.contest(message.topic)

    def inject_newest(self, topic: str) -> bool:
        """Inject what the broker should have on a topic; False: nothing is known of it."""
        found = self.node.retained.wanted(topic)
        if found is None:
            return False
        message, expires_at = found
        self.publish(message, 0, expires_at, None)
        return True

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()
        self.auditor.stop()
        self.delivery.stop()
        for session in self.sessions:
            session.stop(session.lane.index in self._under_way)

    @property
    def idle(self) -> bool:
        """Nothing is to be done here before the node may stop; without the broker, what neighbours still have
        does not count."""
        return all(lane.at_rest for lane in self.lanes)

    def give_up(self) -> int:
        """The node stops; answers how many messages are lost by that, each counted."""
        if self.node.custody is not None:
            self._under_way = {lane.index for lane in self.lanes if lane.inflight}
        return sum(lane.give_up() for lane in self.lanes)

    @property
    def injections(self) -> Injections:
        """See :attr:`ildm.api.NodeApi.injections`."""
        return Injections(self._given, self._given - self.queued_messages - total(self.lanes, "inflight"))

    @property
    def queued_messages(self) -> int:
        return total(self.lanes, "queued_messages")

    @property
    def connected(self) -> bool:
        return any(lane.open for lane in self.lanes)

    def refused(self, reason_code: int) -> None:
        """The broker has denied an injected message (MQTT 5, 3.4.2.1): one log line, then counted."""
        text = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if text != self.last_refusal:
            self.last_refusal = text
            self.node.driver.log("warning", "the broker refuses transferred messages", reason=text)

    def send_frames(self, frames: bytes, size: int, index: int, receipt: Receipt | None) -> None:
        """Inject a run of MQTT 5 frames of QoS 0 or 1 without properties, ``size`` bytes each.

        ``receipt`` is told when they are disposed of.
        """
        lane = self.lanes[index % len(self.lanes)]
        self._given += len(frames) // size
        lane.send_frames(frames, size, None, receipt)
        if receipt is not None and receipt.pressed:
            self._ease(lane, receipt)

    def publish(
        self, message: Publish, index: int, expires_at: float | None, receipt: Receipt | None
    ) -> None:
        """Inject one message; ``receipt`` is told when it is disposed of."""
        lane = self.lanes[index % len(self.lanes)]
        self._given += 1
        if message.retain:
            lane.send_entry(self.order.entry(lane, message, expires_at, receipt))
        else:
            lane.send(message, message.qos, expires_at, None, receipt)
        if receipt is not None and receipt.pressed:
            self._ease(lane, receipt)

    def way(self, index: int, qos: int, messages: int) -> Way:
        """How so many messages that this node has custody of get into the broker."""
        self._given += messages
        return self.lanes[index % len(self.lanes)], qos, 0

    def _entry(
        self,
        lane: Lane,
        message: Publish,
        qos: int,
        expires_at: float | None,
        receipt: Receipt,
        priority: int,
    ) -> Entry:
        """What waits in a lane for a message of the spool; a retained one has its stamp."""
        if not message.retain:
            return Entry(b"", 1, message, qos, expires_at, receipt, priority)
        return self.order.stamped_entry(lane, message, expires_at, receipt)

    def _ease(self, lane: Lane, receipt: Receipt) -> None:
        """Give credit back to a neighbour; the broker has not kept pace with it."""
        if lane.limits.overflow == "drop":
            lane.own(lambda: receipt.eased)
