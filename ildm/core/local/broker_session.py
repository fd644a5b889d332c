"""The session with the local broker that is paired with a local client's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ildm.api import Role, Source, Unreachable
from ildm.core.local.ack_gate import PASSED, Answer, GateScanner
from ildm.core.local.aliases import TopicAliases
from ildm.core.session import BaseSession
from ildm.core.transfer.ack_runs import PUBACK
from ildm.mqtt import (
    CANNOT_SERVE,
    ConnAck,
    Framer,
    MqttError,
    OverLimit,
    PacketTooLarge,
    PacketType,
    PubAck,
    PublishView,
    PubRec,
    SubAck,
    UnsubAck,
    connack_code,
    decode,
    frame_length,
    members,
)

if TYPE_CHECKING:
    from ildm.core.driver import Transport
    from ildm.core.local.client_session import ClientSession
    from ildm.core.local.parts import ClientParts

_PLAIN: Final = b"\x20\x02\0\0"
_ACCEPTED: Final = ConnAck()
"""What nearly every CONNACK before MQTT 5 is, and says."""
_CLIENT: Final = Source.CLIENT
_BROKER: Final = Source.BROKER
"""See :mod:`ildm.mqtt.members`."""


class BrokerSession(BaseSession):
    """Relays what the broker sends as it comes, but for what a gate has to look at (see :mod:`.ack_gate`)."""

    __slots__ = (
        "_accepted",
        "_acks",
        "_admitted",
        "_aliases",
        "_asked_at",
        "_connack",
        "_connect",
        "_framer",
        "_held",
        "_left",
        "_passed",
        "_publishing",
        "_tried",
        "_wire",
        "address",
        "paired",
        "parts",
    )
    role = Role.BROKER

    def __init__(self, parts: ClientParts, client: ClientSession, connect: bytes) -> None:
        super().__init__(parts.driver)
        self.parts = parts
        self.paired = client
        self._wire = client.wire
        self._acks = client.acks
        self._publishing = client.publishing
        self.client_id = client.client_id
        self.version = client.version
        self._passed = 0
        self._connect = connect
        self._asked_at = parts.driver.precise()
        self._accepted = self._admitted = False
        self._connack: bytes | None = None  # until what it tells is durable
        self._held = b""
        self._left = False
        """The client has disconnected; the broker is to close, and what it still sends is thrown away."""
        self._framer: Framer | None = None
        self._aliases: TopicAliases | None = None
        self._tried = 0
        self.address = parts.brokers.current
        """Where the broker was dialed."""

    # connection -------------------------------------------------------------------------------

    def dial(self) -> None:
        self._tried += 1
        self.address = self.parts.brokers.current
        self.driver.dial(self.address, self, self.parts.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.parts.limits.write_buffer)
        if not self.paired.is_open:  # the client has gone, or was sent away, meanwhile
            self.abort()
            return
        self.parts.reach.found(None)
        now = self.driver.precise()
        self.parts.timings.connect.observe(now - self._asked_at)
        self._asked_at = now
        connect, self._connect = self._connect, b""
        self.write(connect)
        self.parts.session_established(self)
        self.parts.arrived(_CLIENT, self.paired, members.CONNECT, connect)
        self.paired.broker_connected()
        self.parts.deliver()

    def _peer_of(self, transport: Transport) -> str:
        return self.parts.brokers.places.get(self.address) or super()._peer_of(transport)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        parts = self.parts
        parts.reach.missed(self.address, reason)
        if self.paired.transport is None:
            return
        if parts.brokers.current != self.address and self._tried < len(parts.brokers.addresses):
            self.dial()
        else:
            self.paired.broker_unavailable()

    def data_received(self, data: bytes) -> None:
        if self._left:
            return
        wire = self._wire
        scanner = wire.scanner
        try:
            if scanner is not None:
                if wire.watching:
                    if wire.beside is None:
                        self._watch(scanner, data)
                    else:
                        self._watch_and_send(scanner, data)
                    return
                client = self.paired.transport
                if client is not None:
                    client.write(data)
                size = len(data)
                if scanner.between_frames and 2 <= size < 130 and data[1] == size - 2:
                    first = data[0]
                    if not scanner.wanted[first]:
                        # one whole frame nobody wants, as a busy subscriber gets most of them
                        if first & 0xF0 == 0x30:
                            scanner.publishes += 1
                        return
                self._scan(scanner, data)
            elif self._accepted:
                self._relay_filtered(data)
            elif self._connack is not None:
                self._held += data
            else:
                self._held += data
                self._await_connack()
                self.parts.deliver()
        except MqttError as error:
            # the broker has sent what cannot be MQTT: nothing after it can be understood
            self.parts.reach.broke_protocol(self, error)
            self.close()
            self.paired.close()

    def connection_lost(self, exc: Exception | None) -> None:
        was_open = self.transport is not None
        super().connection_lost(exc)
        if self._admitted:
            self.parts.brokers.ended(self.address)
        if was_open:
            self.parts.session_closed(self, exc)
        self._wire.end_lingering()
        self.paired.broker_lost()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.paired.pause("broker")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.paired.resume("broker")

    # CONNACK ----------------------------------------------------------------------------------

    def _await_connack(self) -> None:
        while not self._accepted:
            length = frame_length(self._held)
            if length is not None and length > self.parts.limits.packet_size:
                raise PacketTooLarge(f"packet of {length} bytes before CONNACK", clause="MQTT-3.2.0-1")
            if length is None or len(self._held) < length:
                return
            frame, self._held = self._held[:length], self._held[length:]
            if frame[0] >> 4 == members.CONNACK:
                self.parts.timings.connack.observe(self.driver.precise() - self._asked_at)
            if frame[0] >> 4 == members.CONNACK and connack_code(frame) == 0:
                if not self._admit(frame):
                    return
                continue
            if frame[0] >> 4 == members.CONNACK and connack_code(frame) in CANNOT_SERVE:
                self.parts.brokers.failed(self.address)
            self.paired.write(frame)
            if frame[0] >> 4 == members.CONNACK:
                self.parts.admission.refused_with(connack_code(frame), self.paired.origin)
            if frame[0] >> 4 in (members.AUTH, members.CONNACK):
                self.parts.arrived(_BROKER, self, PacketType(frame[0] >> 4), frame)
        rest, self._held = self._held, b""
        if rest:
            self.data_received(rest)

    def _admit(self, frame: bytes) -> bool:
        """The broker has accepted the client: whether it may be told now."""
        self._admitted = True
        self.parts.brokers.reached(self.address)
        frame = self._wire.answers.connack(frame)
        plain = frame == _PLAIN and self.version is not members.V5
        packet = _ACCEPTED if plain else decode(frame, self.version)
        assert isinstance(packet, ConnAck)
        self.parts.arrived(_BROKER, self, members.CONNACK, frame)
        self._connack = frame
        if self.paired.admitted(packet) or self.parts.waits.when_saved(self._go_on):
            self._accept()
            return True
        self.pause("connack")
        return False

    def _accept(self) -> None:
        assert self._connack is not None
        self.paired.write(self._connack)
        self._connack = None
        self._accepted = True
        if self.parts.filters_broker:
            self._framer = Framer(1 << 28)
            self._aliases = self._client_aliases()
        else:
            limit = self.parts.limits.packet_size
            self._wire.scanner = GateScanner(self.parts.broker_wanted, limit, self.version)
        self.paired.accepted()

    def _go_on(self) -> None:
        """What the CONNACK tells is durable: it goes on, and what the broker has sent since."""
        if self.is_open and self.paired.is_open:
            self._accept()
            self.resume("connack")
            rest, self._held = self._held, b""
            if rest:
                self.data_received(rest)
            self.parts.deliver()

    def _client_aliases(self) -> TopicAliases | None:
        connect = self.paired.connect
        if connect is None or self.version is not members.V5:
            return None
        return TopicAliases(int(connect.properties.get(members.TOPIC_ALIAS_MAXIMUM, 0)))

    # relaying towards the client --------------------------------------------------------------

    def _scan(self, scanner: GateScanner, data: bytes) -> None:
        """Look for frames that mean something in data that was relayed already."""
        frames = scanner.feed(data)
        if frames:
            for frame in frames:
                self._arrived(frame, deferrable=False)
            self.parts.deliver()

    def _watch_and_send(self, scanner: GateScanner, data: bytes) -> None:
        """Relay what passes the gate, and between two packets what is to be sent beside it."""
        wire = self._wire
        while wire.beside and data:
            begun = scanner.begun
            if begun:
                self._watch(scanner, data[:begun])
                data = data[begun:]
            if not scanner.begun:
                wire.send_beside()
        if data:
            self._watch(scanner, data)
        else:
            self._watched()

    def _watch(self, scanner: GateScanner, data: bytes) -> None:
        publishing, acks = self._publishing, self._acks
        if len(data) == 4 and data[:2] == b"\x40\x02" and scanner.between_frames and not scanner.wanted[0x40]:
            # the one PUBACK that a client awaits who sends message by message
            handed = publishing.taken(((data[2] << 8) | data[3],), 1)
            if handed is not None:
                publishing.transfer(handed)
            if acks.passes(data, 1):
                self.paired.write(data)
            self._watched()
            return
        pieces = scanner.split(data)
        out = self._wire.relaying = []
        for first, piece, ids in pieces:
            if ids:
                handed = publishing.taken(ids, 1 if first == PUBACK else 2)
                if handed is not None:
                    publishing.transfer(handed)
                passes = acks.passes(piece, len(ids))
            elif first:
                passing = self._arrived(piece, deferrable=first < PASSED)
                if passing is not None and first < PASSED:
                    out.append(passing)
                continue
            else:
                passes = True
            if passes:
                out.append(piece)
        self._wire.relaying = None
        if out:
            self.paired.write(out[0] if len(out) == 1 else b"".join(out))
        self._watched()
        self.parts.deliver()

    def _watched(self) -> None:
        """What had to be looked at has come: whether there is more of it."""
        wire, publishing = self._wire, self._publishing
        deferred = wire.scanner is not None and wire.scanner.deferred
        wire.watching = bool(
            self._acks.waits or deferred or wire.beside or wire.pings or publishing.expects_answers
        )
        if wire.lingers and not publishing.is_owed:
            wire.end_lingering()

    def _relay_filtered(self, data: bytes) -> None:
        assert self._framer is not None
        out: list[bytes] = []
        for frame in self._framer.feed(data):
            if frame[0] >> 4 == members.PUBLISH:
                if self._aliases is not None:
                    try:
                        frame = self._aliases.spelled_out(frame)  # noqa: PLW2901 - the frame from here on
                    except OverLimit:
                        self._drop(frame)  # no filter can look at it
                        continue
                passed = self.parts.dispatch.chain.message(_BROKER, self, frame)
                if not isinstance(passed, bytes):
                    self._drop(frame)
                    continue
                self._passed += 1
                frame = passed  # noqa: PLW2901
            passing = self._arrived(frame, deferrable=True)
            if passing is not None:
                out.append(passing)
        self.paired.write(b"".join(out))
        self._watched()
        self.parts.deliver()

    def _drop(self, frame: bytes) -> None:
        """Acknowledge, in the client's place, a message that a filter has dropped."""
        self.parts.counters["filtered"] += 1
        packet = PublishView(frame, self.version)
        if packet.packet_id is None:
            return
        if packet.qos == 1:
            self._wire.to_broker(PubAck(packet_id=packet.packet_id).encode(self.version))
        elif self.version is members.V5:
            self._wire.to_broker(PubRec(packet_id=packet.packet_id, reason_code=0x83).encode(self.version))
        else:
            # the broker's PUBREL then reaches the client, whose PUBCOMP for an unknown identifier is due
            self._wire.to_broker(PubRec(packet_id=packet.packet_id).encode(self.version))

    @property
    def between_relayed(self) -> bool:
        """The client has been accepted, and what is relayed to the broker has come to the end of a packet."""
        return self._accepted and not self._wire.amid_packet

    @property
    def between_answers(self) -> bool:
        """The same for what is relayed to the client."""
        scanner = self._wire.scanner
        return self._accepted and (scanner is None or scanner.between_frames)

    @property
    def messages_out(self) -> int:
        """PUBLISH messages relayed to the client."""
        scanner = self._wire.scanner
        return self._passed + (0 if scanner is None else scanner.publishes)

    def _arrived(self, frame: bytes, deferrable: bool) -> bytes | None:
        """A packet the node looks at has come: what passes to the client now, if anything does.

        Without ``deferrable`` the client has it already.
        """
        type = frame[0] >> 4
        passes = True
        if type == members.SUBACK:
            frame, passes = self._subscribed(frame, deferrable)
        elif type == members.UNSUBACK:
            passes = self._unsubscribed(frame, deferrable)
        elif type in (members.PUBACK, members.PUBREC) and self._wire.watching:
            acknowledgement = decode(frame, self.version)
            assert isinstance(acknowledgement, PubAck | PubRec)
            self._publishing.answered_one(acknowledgement)
            passes = not deferrable or self._acks.passes(frame, 1)
        elif type == members.PUBCOMP and deferrable:
            # with it the client has the identifier for another message
            passes = self._acks.is_durable(frame)
        elif type == members.PINGRESP and self._wire.pings and deferrable:
            self._wire.pings -= 1
            return None
        packet_type = members.PACKET_TYPES[type]
        if packet_type is not None:  # 0 is reserved (2.1.2); the client is to judge it
            self.parts.arrived(_BROKER, self, packet_type, frame)
        return frame if passes else None

    def _subscribed(self, frame: bytes, deferrable: bool) -> tuple[bytes, bool]:
        """The SUBACK that the client gets, and whether it gets it now."""
        suback = decode(frame, self.version)
        assert isinstance(suback, SubAck)
        granted, rejections = self._publishing.subscribed(suback)
        if not deferrable:
            return frame, True
        if rejections is not None:
            codes = rejections.merged(suback.reason_codes)
            frame = self._wire.answers.suback(suback.packet_id, codes, rejections.text, suback.properties)
        answer, record = Answer(frame, True), self._publishing.record
        if granted and record is not None:
            answer.ready = self.parts.waits.when_advertised(
                lambda: self._acks.gate.ready(answer), record.saved, list(granted)
            )
        return frame, self._acks.in_order(answer)

    def _unsubscribed(self, frame: bytes, deferrable: bool) -> bool:
        """Whether the client gets an UNSUBACK now."""
        unsuback = decode(frame, self.version)
        assert isinstance(unsuback, UnsubAck)
        self._publishing.unsubscribed(unsuback)
        if not deferrable:
            return True
        answer, record = Answer(frame, True), self._publishing.record
        if record is not None and record.saved:
            answer.ready = self.parts.waits.when_saved(lambda: self._acks.gate.ready(answer))
        return self._acks.in_order(answer)

    def leave(self) -> None:
        """The client's DISCONNECT is on its way: nothing more will come, and the broker is to close.

        If this end closed at once, what the broker is just sending could be reset: it takes the client for
        gone then, without having read the DISCONNECT, and sends its will.
        """
        self._left = True
        if self._pauses and self.transport is not None and not self.transport.is_closing():
            self._pauses.clear()
            self.transport.resume_reading()
        self.end_writing()
