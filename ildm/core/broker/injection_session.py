"""One of the node's own sessions with the local broker, by which transferred messages come to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Role, SessionStatus, Unreachable
from ildm.core.backoff import Backoff
from ildm.core.broker.own_ids import NOT_VALID
from ildm.core.broker.refusals import own_session_refused
from ildm.core.broker.takeover_contention import TakeoverContention
from ildm.core.session import BaseSession
from ildm.core.transfer.ack_runs import ACKNOWLEDGEMENTS, PUBACK, PUBREC, acknowledged_ids
from ildm.core.transfer.sender import Sender
from ildm.mqtt import (
    CANNOT_SERVE,
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
    PubRec,
    ReasonCode,
    Version,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.broker.injection import Injector

SESSION_EXPIRY = 3600
FOR_YEARS = 0xFFFFFFFE
"""Seconds; one more would be a session that does not expire (MQTT 5, 3.1.2.11.2)."""
AGAIN = "connecting anew"
AT_ONCE = 128
"""Connections in a row that follow at once on a hang-up after messages were sent, while none is acknowledged:
twice for each of 64 messages. A broker that hangs up on all of them sees growing pauses from then on."""
BRIEF = 0.1
"""Times ``broker.reconnect_min``: so soon is at once. Two nodes with the same client identifier so leave each
other the time for an acknowledgement."""
CLEANINGS = 3
"""Times that a session is begun clean until one is used that the broker says it has nevertheless."""
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
        "_at_once",
        "_backoff",
        "_cleaned",
        "_cleanings",
        "_connected_at",
        "_cut",
        "_framer",
        "_guiltless",
        "_last_heard",
        "_on_trial",
        "_refusal",
        "_renamed",
        "_sent_before",
        "_stopped",
        "_taken_over",
        "_timer",
        "address",
        "contention",
        "injector",
        "sender",
    )
    role = Role.INJECTION

    def __init__(self, injector: Injector, sender: Sender, *, goes_on: bool) -> None:
        """``goes_on``: with the session of this name that the broker may have."""
        super().__init__(injector.parts.driver)
        self.injector = injector
        self.sender = sender
        sender.resumption.answer_timeout.ask = self._ask
        self.client_id = injector.ids.of(sender.index)
        broker = injector.parts.config.broker
        self._backoff = Backoff(self.driver.random, broker.reconnect_min, broker.reconnect_max)
        self.contention = TakeoverContention(
            self.client_id, injector.parts.node_id, self.driver.random, broker.reconnect_max
        )
        self._framer = Framer(1 << 20)
        self._cut = b""  # the beginning of an acknowledgement
        self._timer: Any = None
        self._last_heard = 0.0
        self._refusal: str | None = None
        self._absent = False  # nobody listened at the last attempt
        self._guiltless = False  # the broker has said that it is not for a message that it hangs up
        self._taken_over = False  # it has said that somebody else came with the same client identifier
        self._connected_at = 0.0
        self._sent_before = 0  # of what the sender has sent, on earlier connections
        self._on_trial = False  # it is seen whether the broker ends a session that sends nothing
        self._stopped = False
        self._at_once = 0  # connections in a row that followed so on a hang-up
        self._cleaned = goes_on
        self._renamed = False  # the next connection is to have another client identifier
        self._cleanings = 0  # in a row
        self.address = injector.parts.brokers.current

    def dial(self) -> None:
        self._timer = None
        parts = self.injector.parts
        self.driver.dial(self.address, self, parts.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._absent = self._guiltless = self._taken_over = False
        self._connected_at = self.driver.now()
        if self._stopped:
            self.abort()
            return
        parts = self.injector.parts
        transport.set_write_buffer_limits(high=parts.config.limits.write_buffer)
        self._framer = Framer(1 << 20)
        self._cut = b""
        self._refusal = None
        assert self.injector.version is not None
        self.version = self.injector.version
        if self._renamed:
            self._renamed = False
            self.client_id = self.contention.client_id = self.injector.ids.of(self.sender.index)
            self._cleaned = False  # what the broker has of that name is not what is under way
        # a session that survives lets the QoS 2 handshake go on after a reconnection
        persistent = parts.config.link.qos == 2
        properties: Properties = {}
        if self.version is Version.V5 and persistent:
            kept = SESSION_EXPIRY if parts.custody is None else int(parts.config.link.expiry)
            properties[Property.SESSION_EXPIRY_INTERVAL] = min(max(SESSION_EXPIRY, kept), FOR_YEARS)
        connect = Connect(
            client_id=self.client_id,
            version=self.version,
            clean_start=not (persistent and self._cleaned),
            keep_alive=parts.config.broker.keep_alive,
            username=parts.config.broker.username,
            password=self.injector.password,
            properties=properties,
        )
        self.write(connect.encode(self.version))
        self._timer = self.driver.call_later(parts.config.broker.connect_timeout, self._no_connack)

    def _no_connack(self) -> None:
        self._refusal = "no answer to CONNECT"
        self.injector.parts.brokers.failed(self.address)
        self.abort()

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self.injector.parts.reach.missed(self.address, reason)
        self._absent = True
        self.injector.broker_absent()
        self.contention.explained()
        self._again(self._backoff.next())

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
            self.injector.parts.reach.broke_protocol(self, error)
            self._refusal = str(error)
            self.close()

    def _acknowledged(self, data: bytes) -> bytes:
        """Take the acknowledgements which the data begins with; answers the rest."""
        sender, pos = self.sender, 0
        while pos < len(data) and data[pos] in ACKNOWLEDGEMENTS:
            first = data[pos]
            ids, end = acknowledged_ids(data, pos, self.version, first)
            if not ids:
                break
            if first == PUBACK:
                self._progressed()
                sender.acknowledged(ids)
            elif first == PUBREC:
                sender.received(ids)
            else:
                self._progressed()
                sender.completed(ids)
            pos = end
        if pos:
            data = data[pos:]
        if (
            len(data) < 4 and data[:1] and data[0] in ACKNOWLEDGEMENTS
        ):  # cut off: with what follows it is a run
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
        sender = self.sender
        match packet:
            case PubAck():
                self._progressed()
                sender.on_puback(packet.packet_id, packet.reason_code)
                self._note_refusal(packet.reason_code)
            case PubRec():
                sender.on_pubrec(packet.packet_id, packet.reason_code)
                self._note_refusal(packet.reason_code)
            case PubComp():
                self._progressed()
                sender.completed((packet.packet_id,))
            case Disconnect():
                self._guiltless = packet.reason_code in GUILTLESS
                self._taken_over = packet.reason_code == ReasonCode.SESSION_TAKEN_OVER
                self._refusal = f"the broker disconnected with reason 0x{packet.reason_code:02X}"
            case PingResp():
                sender.end_unanswered()
            case _:
                pass  # nothing else is due, as the session subscribes to nothing

    def _progressed(self) -> None:
        """The broker takes messages."""
        self._backoff.reset()
        self._at_once = 0

    def _note_refusal(self, reason_code: int) -> None:
        if reason_code >= 0x80:
            self.injector.refused(reason_code)

    def _connack(self, packet: Any) -> None:
        assert isinstance(packet, ConnAck)
        parts = self.injector.parts
        if packet.reason_code != 0:
            code = packet.reason_code
            self._renamed = code in NOT_VALID
            again = self.injector.ids.refused(self.client_id, code)
            self._refusal = AGAIN if again else own_session_refused(code)
            self.close()
            if packet.reason_code in CANNOT_SERVE:
                parts.brokers.failed(self.address)
            return
        self._cancel_timer()
        if not self._cleaned:
            self._cleaned = True
            if self.version is not Version.V5 and parts.config.link.qos == 2:
                # in MQTT 3 a session that begins clean ends with its connection
                self._cleanings += 1
                self._connect_anew()
                return
        elif packet.session_present and 0 < self._cleanings < CLEANINGS:
            # Moquette, when busy, takes up the one that began clean, and forgets it with this connection
            self._cleaned = False
            self._connect_anew()
            return
        self._cleanings = 0
        if self.contention.suspected:
            self._on_trial = True
            seconds = min(self.contention.trial, 0.7 * self._keep_alive_of(packet))
            self._timer = self.driver.call_later(seconds, self._trial_stood, packet)
            return
        self._take_up(packet)

    def _keep_alive_of(self, accepted: ConnAck) -> int:
        own = self.injector.parts.config.broker.keep_alive
        return max(1, int(accepted.properties.get(Property.SERVER_KEEP_ALIVE, own)))

    def _trial_stood(self, packet: ConnAck) -> None:
        self._timer = None
        self._on_trial = False
        self.contention.stood_trial()
        self._take_up(packet)

    def _take_up(self, packet: ConnAck) -> None:
        """The broker has accepted the session: it sends what waits."""
        parts, said = self.injector.parts, packet.properties
        self._sent_before = self.sender.sent
        self.sender.attach(
            self.transport,  # type: ignore[arg-type]  # there is one: the CONNACK came over it
            version=self.version,
            window=int(said.get(Property.RECEIVE_MAXIMUM, 65535)),
            max_packet_size=min(
                int(said.get(Property.MAXIMUM_PACKET_SIZE, 1 << 28)), parts.config.broker.packet_size
            ),
            max_qos=int(said.get(Property.MAXIMUM_QOS, 2)),
            retain_available=bool(said.get(Property.RETAIN_AVAILABLE, 1)),
        )
        self.sender.wire.set_flowing(self.writable)
        keep_alive = self._keep_alive_of(packet)
        self._timer = self.driver.call_later(keep_alive * 0.7, self._ping, keep_alive)
        parts.reach.found(None)
        parts.brokers.reached(self.address)
        parts.dispatch.session_established(self)
        self.sender.resume(packet.session_present)
        self.injector.last_address.accepted(self.sender, self.client_id)
        if self.sender.index == 0:
            self.injector.broker_came()

    def _connect_anew(self) -> None:
        self._refusal = AGAIN
        self.write(Disconnect().encode(self.version))
        self.close()

    def _ping(self, keep_alive: float) -> None:
        if self.driver.now() - self._last_heard > 2 * keep_alive:
            self._refusal = "no sign of life from the broker"
            self.abort()
            return
        self._ask()
        self._timer = self.driver.call_later(keep_alive * 0.7, self._ping, keep_alive)

    def _ask(self) -> None:
        self.sender.wire.write(PingReq().encode(self.version))

    def connection_lost(self, exc: Exception | None) -> None:
        expected = self.status is SessionStatus.TERMINATING
        accepted = self.sender.wire.transport is not None and self.sender.wire.transport is self.transport
        on_trial, self._on_trial = self._on_trial, False
        super().connection_lost(exc)
        self._cancel_timer()
        if accepted:
            self.sender.detach()
            self.injector.parts.brokers.ended(self.address)
        elif not on_trial:
            self.contention.explained()
        now = self.driver.now()
        lived = now - self._connected_at
        unasked = (accepted or on_trial) and not expected
        accused = self.sender.isolation.accuses
        why_else = not self._taken_over and (self._refusal is not None or accused)
        sent = accepted and self.sender.sent != self._sent_before
        taken = unasked and not why_else and self.contention.has_taken(now, lived, self._taken_over, sent)
        if unasked and sent and not (why_else or taken):
            self.injector.parts.counters["broker_hang_ups"] += 1
            self.injector.hung_up = True
        # a client that is only inferred may be none: a message at fault would be in the way for ever
        judged = unasked and accepted and not (self._taken_over or self._guiltless)
        if judged and self.sender.isolation.hung_up():
            self.contention.explained()
        if lived >= self._backoff.maximum:
            self._progressed()
        if accepted:
            unexpected = None if expected else exc or ConnectionError("closed")
            self.injector.parts.dispatch.session_closed(self, unexpected)
        if self._stopped:
            return
        if self._refusal == AGAIN:
            self.dial()
            return
        if taken:
            self.injector.parts.counters["broker_sessions_taken"] += 1
            self._refusal = self.contention.reason(now)
        reason = self._refusal or (str(exc) if exc else "the broker closed the node's own session")
        self.injector.parts.reach.found(reason)
        if taken:
            self._again(self.contention.pause())
        elif judged and (sent or accused) and self._at_once < AT_ONCE:
            self._at_once += 1
            self._backoff.reset()
            self._again(BRIEF * self._backoff.next())
            self._backoff.reset()
        else:
            self._again(self._backoff.next())

    def _again(self, pause: float) -> None:
        if not self._stopped and self._timer is None:
            self._timer = self.driver.call_later(pause, self.dial)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.sender.wire.set_flowing(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.sender.wire.set_flowing(True)

    def leave(self) -> None:
        """The broker is looked for elsewhere, by another session."""
        self._stopped = True
        self._cancel_timer()
        self.abort()

    def stop(self, under_way: bool) -> None:
        """End the session for good, leaving nothing behind at the broker, unless the next life of the node
        goes on with what is ``under_way``."""
        self._stopped = True
        self._cancel_timer()
        if self.transport is not None and self.sender.wire.transport is not None:
            self.sender.suspend()
            ends = self.version is Version.V5 and self.injector.parts.config.link.qos == 2 and not under_way
            properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: 0} if ends else {}
            self.write(Disconnect(properties=properties).encode(self.version))
        self.close()
