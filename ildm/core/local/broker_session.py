"""The session with the local broker that is paired with a local client's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ildm.api import Role, Source, Unreachable
from ildm.core.local.aliases import TopicAliases
from ildm.core.local.barrier import Barrier
from ildm.core.local.gate import PACKET_IDS, PASSED, Answer, Gate, GateScanner
from ildm.core.local.requests import granted_filters
from ildm.core.session import BaseSession
from ildm.mqtt import (
    CANNOT_SERVE,
    ConnAck,
    Framer,
    MqttError,
    OverLimit,
    PacketTooLarge,
    PacketType,
    PingReq,
    PubAck,
    PublishView,
    PubRec,
    SubAck,
    Subscription,
    UnsubAck,
    connack_code,
    decode,
    frame_length,
    members,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import Timer
    from ildm.core.driver import Transport
    from ildm.core.local.client_session import ClientSession
    from ildm.core.local.parts import ClientParts

ANSWERS = 10.0
"""Seconds that a broker, which may be standing still, has to answer what a client had sent that is gone."""
_PLAIN: Final = b"\x20\x02\0\0"
_ACCEPTED: Final = ConnAck()
"""What nearly every CONNACK before MQTT 5 is, and says."""
_CLIENT: Final = Source.CLIENT
_BROKER: Final = Source.BROKER
"""See :mod:`ildm.mqtt.members`."""


class BrokerSession(BaseSession):
    """Relays what the broker sends as it comes, but for what a gate has to look at (see :mod:`.gate`)."""

    __slots__ = (
        "_accepted",
        "_admitted",
        "_aliases",
        "_asked_at",
        "_barrier",
        "_beside",
        "_connack",
        "_connect",
        "_framer",
        "_gate",
        "_held",
        "_interjected",
        "_left",
        "_lingering",
        "_passed",
        "_pings",
        "_relaying",
        "_scanner",
        "_tried",
        "address",
        "paired",
        "parts",
        "watching",
    )
    role = Role.BROKER

    def __init__(self, parts: ClientParts, client: ClientSession, connect: bytes) -> None:
        super().__init__(parts.driver)
        self.parts = parts
        self.paired = client
        self.client_id = client.client_id
        self.version = client.version
        self._passed = 0
        self._connect = connect
        self._asked_at = parts.driver.now()
        self._accepted = self._admitted = False
        self._connack: bytes | None = None  # until what it tells is durable
        self._interjected: list[bytes] = []
        self._beside: bytearray | None = None
        self._relaying: list[bytes] | None = None
        """What of a chunk passes, up to the acknowledgement that is looked at just now."""
        self._pings = 0
        self._held = b""
        self._scanner: GateScanner | None = None
        self.watching = False
        """An acknowledgement may come that means something, or waits: chunks do not go on as they come."""
        self._gate: Gate | None = None
        self._barrier = None if parts.custody is None else Barrier(parts.custody, self.to_client)
        self._lingering: tuple[Timer, Callable[[], None]] | None = None
        self._left = False
        """The client has disconnected; the broker is to close, and what it still sends is thrown away."""
        self._framer: Framer | None = None
        self._aliases: TopicAliases | None = None
        self._tried = 0
        self.address = parts.broker_address
        """Where the broker was dialed."""

    # connection -------------------------------------------------------------------------------

    def dial(self) -> None:
        self._tried += 1
        self.address = self.parts.broker_address
        self.driver.dial(self.address, self, self.parts.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.parts.limits.write_buffer)
        if not self.paired.is_open:  # the client has gone, or was sent away, meanwhile
            self.abort()
            return
        self.parts.events.broker_reachable(None)
        now = self.driver.now()
        self.parts.timings.connect.observe(now - self._asked_at)
        self._asked_at = now
        connect, self._connect = self._connect, b""
        self.write(connect)
        self.parts.dispatch.session_established(self)
        self.parts.dispatch.arrived(_CLIENT, self.paired, members.CONNECT, connect)
        self.paired.broker_connected()
        self.parts.dispatch.deliver()

    def _peer_of(self, transport: Transport) -> str:
        return self.parts.brokers.places.get(self.address) or super()._peer_of(transport)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        parts = self.parts
        parts.events.broker_missed(self.address, reason)
        if self.paired.transport is None:
            return
        if parts.broker_address != self.address and self._tried < len(parts.brokers.addresses):
            self.dial()
        else:
            self.paired.broker_unavailable()

    def data_received(self, data: bytes) -> None:
        if self._left:
            return
        scanner = self._scanner
        try:
            if scanner is not None:
                if self.watching:
                    if self._beside is None:
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
                self.parts.dispatch.deliver()
        except MqttError as error:
            # the broker has sent what cannot be MQTT: nothing after it can be understood
            self.parts.events.broker_failed(self, error)
            self.close()
            self.paired.close()

    def connection_lost(self, exc: Exception | None) -> None:
        was_open = self.transport is not None
        super().connection_lost(exc)
        if self._admitted:
            self.parts.brokers.ended(self.address)
        if was_open:
            self.parts.dispatch.session_closed(self, exc)
        self._end_lingering()
        self.paired.broker_lost()
        self.paired.unpair()

    def unpaired(self) -> None:
        """Both connections have ended: there is nobody left whose acknowledgements would wait."""
        self._barrier = None

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
                self.parts.timings.connack.observe(self.driver.now() - self._asked_at)
            if frame[0] >> 4 == members.CONNACK and connack_code(frame) == 0:
                if not self._admit(frame):
                    return
                continue
            if frame[0] >> 4 == members.CONNACK and connack_code(frame) in CANNOT_SERVE:
                self.parts.brokers.failed(self.address)
            self.paired.write(frame)
            if frame[0] >> 4 == members.CONNACK:
                self.paired.refused_with(connack_code(frame))
            if frame[0] >> 4 in (members.AUTH, members.CONNACK):
                self.parts.dispatch.arrived(_BROKER, self, PacketType(frame[0] >> 4), frame)
        rest, self._held = self._held, b""
        if rest:
            self.data_received(rest)

    def _admit(self, frame: bytes) -> bool:
        """The broker has accepted the client: whether it may be told now."""
        self._admitted = True
        self.parts.brokers.reached(self.address)
        frame = self.paired.connack(frame)
        plain = frame == _PLAIN and self.version is not members.V5
        packet = _ACCEPTED if plain else decode(frame, self.version)
        assert isinstance(packet, ConnAck)
        self.parts.dispatch.arrived(_BROKER, self, members.CONNACK, frame)
        self._connack = frame
        if self.paired.admitted(packet) or self.parts.events.when_saved(self._go_on):
            self._accept()
            return True
        self.pause("connack")
        return False

    def _accept(self) -> None:
        assert self._connack is not None
        self.paired.write(self._connack)
        self._connack = None
        self._accepted = True
        if self.parts.dispatch.chain.filters(_BROKER):
            self._framer = Framer(1 << 28)
            self._aliases = self._client_aliases()
        else:
            limit = self.parts.limits.packet_size
            self._scanner = GateScanner(self.parts.broker_wanted, limit, self.version)
        self.paired.accepted()

    def _go_on(self) -> None:
        """What the CONNACK tells is durable: it goes on, and what the broker has sent since."""
        if self.is_open and self.paired.is_open:
            self._accept()
            self.resume("connack")
            rest, self._held = self._held, b""
            if rest:
                self.data_received(rest)
            self.parts.dispatch.deliver()

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
                self._arrived(frame, withhold=False)
            self.parts.dispatch.deliver()

    def to_client(self, packet: bytes) -> None:
        """Send the client a packet beside the broker's stream, after one of the broker's it has in part.

        A client that makes the node answer and does not read is not read either.
        """
        client = self.paired
        if self._relaying is not None:
            # what is there ends with a packet, which the client may have in part
            self._relaying.append(packet)
            return
        if self._beside or (self._scanner is not None and self._scanner.begun):
            if self._beside is None:
                self._beside = bytearray()
            self._beside += packet
            self.watching = True
            if len(self._beside) > self.parts.limits.write_buffer:
                client.pause("answers")
            return
        client.write(packet)
        if not client.writable:
            client.pause("answers")

    def _send_beside(self) -> None:
        beside, self._beside = self._beside, None
        if beside:
            self.paired.write(bytes(beside))
        if self.paired.writable:
            self.paired.resume("answers")

    def _watch_and_send(self, scanner: GateScanner, data: bytes) -> None:
        """Relay what passes the gate, and between two packets what is to be sent beside it."""
        while self._beside and data:
            begun = scanner.begun
            if begun:
                self._watch(scanner, data[:begun])
                data = data[begun:]
            if not scanner.begun:
                self._send_beside()
        if data:
            self._watch(scanner, data)
        else:
            self._watched()

    def _watch(self, scanner: GateScanner, data: bytes) -> None:
        if len(data) == 4 and data[:2] == b"\x40\x02" and scanner.between_frames and not scanner.wanted[0x40]:
            # the one PUBACK that a client awaits who sends message by message
            self.paired.answered(((data[2] << 8) | data[3],))
            if self._passes(data, 1):
                self.paired.write(data)
            self._watched()
            return
        pieces = scanner.split(data)
        out = self._relaying = []
        for first, piece, ids in pieces:
            if ids:
                self.paired.answered(ids)
                passes = self._passes(piece, len(ids))
            elif first:
                passing = self._arrived(piece, withhold=first < PASSED)
                if passing is not None and first < PASSED:
                    out.append(passing)
                continue
            else:
                passes = True
            if passes:
                out.append(piece)
        self._relaying = None
        if out:
            self.paired.write(out[0] if len(out) == 1 else b"".join(out))
        self._watched()
        self.parts.dispatch.deliver()

    def _passes(self, data: bytes, count: int) -> bool:
        """``count`` PUBACK or PUBREC have come: whether they pass to the client now. If not, they wait."""
        open = self._gate is None or self._gate.acknowledgement(data, count)
        return open and (self._barrier is None or self._is_durable(data))

    def _is_durable(self, data: bytes) -> bool:
        """Whether what acknowledgements are for is durable. If not, they go to the client when it is."""
        barrier = self._barrier
        if barrier is None or barrier.passes(self.paired.barrier):
            return True
        barrier.wait(self.paired.barrier, data)
        if len(barrier) > PACKET_IDS:
            self.paired.too_much_withheld()
        return False

    def _acknowledge(self, data: bytes) -> None:
        """The gate has opened."""
        if self._is_durable(data):
            self.to_client(data)

    def _watched(self) -> None:
        """What had to be looked at has come: whether there is more of it."""
        waiting = self._gate is not None and not self._gate.idle
        if self._barrier is not None and not self._barrier.passes(self.paired.barrier):
            waiting = True
        withheld = self._scanner is not None and self._scanner.withheld
        self.watching = bool(
            waiting or withheld or self._beside or self._pings or self.paired.expects_answers
        )
        if self._lingering is not None and not self.paired.is_owed:
            self._end_lingering()

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
            passing = self._arrived(frame, withhold=True)
            if passing is not None:
                out.append(passing)
        self.paired.write(b"".join(out))
        self._watched()
        self.parts.dispatch.deliver()

    def _drop(self, frame: bytes) -> None:
        """Acknowledge, in the client's place, a message that a filter has dropped."""
        self.parts.counters["filtered"] += 1
        packet = PublishView(frame, self.version)
        if packet.packet_id is None:
            return
        if packet.qos == 1:
            self.interject(PubAck(packet_id=packet.packet_id).encode(self.version))
        elif self.version is members.V5:
            self.interject(PubRec(packet_id=packet.packet_id, reason_code=0x83).encode(self.version))
        else:
            # the broker's PUBREL then reaches the client, whose PUBCOMP for an unknown identifier is due
            self.interject(PubRec(packet_id=packet.packet_id).encode(self.version))

    def interject(self, packet: bytes) -> None:
        """Send the broker a packet of the node's own, after the client's that is being relayed, if any."""
        if self.paired.ended:
            return  # nothing more can be sent
        if self.paired.mid_packet:
            self._interjected.append(packet)
        else:
            self.write(packet)

    def ping(self) -> None:
        """Send a PINGREQ of the node's own, whose answer the client does not get."""
        if not self.paired.ended:
            self._pings += 1
            self.watching = True
            self.interject(PingReq().encode(self.version))

    def between_packets(self) -> bytes:
        """What was kept until a packet of the client's is whole."""
        kept, self._interjected = self._interjected, []
        return b"".join(kept)

    @property
    def between_relayed(self) -> bool:
        """The client has been accepted, and what is relayed to the broker has come to the end of a packet."""
        return self._accepted and not self.paired.mid_packet

    @property
    def between_answers(self) -> bool:
        """The same for what is relayed to the client."""
        return self._accepted and (self._scanner is None or self._scanner.between_frames)

    @property
    def messages_out(self) -> int:
        """PUBLISH messages relayed to the client."""
        return self._passed + (0 if self._scanner is None else self._scanner.publishes)

    def _arrived(self, frame: bytes, withhold: bool) -> bytes | None:
        """A packet the node looks at has come: what passes to the client now, if anything does.

        Without ``withhold`` the client has it already.
        """
        type = frame[0] >> 4
        passes = True
        if type == members.SUBACK:
            suback = decode(frame, self.version)
            assert isinstance(suback, SubAck)
            rejections = self.paired.pending.rejections(suback.packet_id)
            request = self.paired.pending.take(suback.packet_id)
            if rejections is not None and withhold:
                codes = rejections.merged(suback.reason_codes)
                frame = self.paired.suback(suback.packet_id, codes, rejections.text, suback.properties)
            answer = Answer(frame, True)
            if request and self.paired.record is not None:
                subscriptions = [s for s in request if isinstance(s, Subscription)]
                granted = granted_filters(subscriptions, suback.reason_codes)
                record = self.paired.record
                self.parts.clients.subscribed(record, granted)
                if granted and withhold:
                    answer.ready = self.parts.events.when_told(
                        lambda: self.gate.ready(answer), record.saved, list(granted)
                    )
            passes = not withhold or self._in_order(answer)
        elif type == members.UNSUBACK:
            unsuback = decode(frame, self.version)
            assert isinstance(unsuback, UnsubAck)
            request = self.paired.pending.take(unsuback.packet_id)
            if request and self.paired.record is not None:
                codes = unsuback.reason_codes or [0] * len(request)
                gone = [
                    f for f, code in zip(request, codes, strict=False) if code < 0x80 and isinstance(f, str)
                ]
                self.parts.clients.unsubscribed(self.paired.record, gone)
            answer = Answer(frame, True)
            if withhold and self.paired.record is not None and self.paired.record.saved:
                answer.ready = self.parts.events.when_saved(lambda: self.gate.ready(answer))
            passes = not withhold or self._in_order(answer)
        elif type in (members.PUBACK, members.PUBREC) and self.watching:
            acknowledgement = decode(frame, self.version)
            assert isinstance(acknowledgement, PubAck | PubRec)
            self.paired.answered_one(acknowledgement)
            passes = not withhold or self._passes(frame, 1)
        elif type == members.PUBCOMP and self._barrier is not None and withhold:
            # with it the client has the identifier for another message
            passes = self._is_durable(frame)
        elif type == members.PINGRESP and self._pings and withhold:
            self._pings -= 1
            return None
        packet_type = members.PACKET_TYPES[type]
        if packet_type is not None:  # 0 is reserved (2.1.2); the client is to judge it
            self.parts.dispatch.arrived(_BROKER, self, packet_type, frame)
        return frame if passes else None

    # the gate ---------------------------------------------------------------------------------

    @property
    def gate(self) -> Gate:
        """What makes acknowledgements wait."""
        if self._gate is None:
            self._gate = Gate(self.to_client, self._acknowledge, self.paired.too_much_withheld)
        return self._gate

    def answer_suback(self, frame: bytes) -> None:
        """Answer a SUBSCRIBE in the broker's place, after the answers that wait."""
        if self._in_order(Answer(frame, True)):
            self.to_client(frame)

    def _in_order(self, answer: Answer) -> bool:
        return (answer.ready and self._gate is None) or self.gate.answer(answer)

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

    def linger(self, finished: Callable[[], None]) -> None:
        """The client sends nothing more: take the broker's answers to what it had sent, then say so."""
        self.resume("client")
        if self._lingering is not None:
            self._lingering[0].cancel()
        self._lingering = self.driver.call_later(ANSWERS, self._end_lingering), finished

    def _end_lingering(self) -> None:
        if self._lingering is not None:
            (timer, finished), self._lingering = self._lingering, None
            timer.cancel()
            finished()
