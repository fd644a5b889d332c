"""The session with a local client: CONNECT, what becomes of it, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ildm.api import Role, Source, Stamp
from ildm.core.local.acknowledgements import ANY_NUMBER, Acknowledgements
from ildm.core.local.aliases import TopicAliases
from ildm.core.local.answers import Answers, return_code
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.client_state import (
    AWAITING_CONNACK,
    AWAITING_CONNECT,
    AWAITING_NEIGHBORS,
    ENDED,
    NEXT,
    RELAYING,
)
from ildm.core.local.publishing import Publishing
from ildm.core.local.relay import ClientRelay
from ildm.core.local.wire import ClientWire
from ildm.core.plugin.filtering import Rejected
from ildm.core.session import BaseSession
from ildm.mqtt import (
    ConnAck,
    Connect,
    ConnectReturnCode,
    Disconnect,
    MqttError,
    OverLimit,
    PacketTooLarge,
    PacketType,
    ProtocolViolation,
    ReasonCode,
    UnsupportedVersion,
    Version,
    check_first_byte,
    decode,
    frame_length,
    members,
)

if TYPE_CHECKING:
    from typing import Any

    from ildm.core.local.parts import ClientParts
    from ildm.core.local.rules import ClientRules
    from ildm.core.session import Origin

CONNECT = PacketType.CONNECT << 4
"""First byte, without flags."""
MAX_CONNECT = 1 << 20
"""Bytes of a CONNECT: more than its fields can take, but for an odd number of user properties."""
_CLIENT: Final = Source.CLIENT
"""See :mod:`ildm.mqtt.members`."""


class ClientSession(BaseSession):
    """A local client; its paired session is a :class:`BrokerSession` opened for it alone."""

    __slots__ = (
        "_asked",
        "_connect_timer",
        "_held",
        "_is_gone",
        "acks",
        "connect",
        "origin",
        "paired",
        "parts",
        "publishing",
        "relay",
        "state",
        "taken_over_at",
        "wire",
    )
    role = Role.CLIENT

    def __init__(self, parts: ClientParts, origin: Origin | None = None) -> None:
        super().__init__(parts.driver)
        self.parts = parts
        self.origin = origin
        self.wire = ClientWire(parts, self, self)
        self.acks = Acknowledgements(parts, self.wire)
        self.publishing = Publishing(parts, self.wire, self.acks)
        self.relay = ClientRelay(parts, self.wire, self.acks, self.publishing)
        self.paired: BrokerSession | None = None
        self.state = AWAITING_CONNECT
        self.connect: Connect | None = None
        self.taken_over_at: Stamp | None = None
        self._asked: int | None = None
        """What the loop guard is told when the broker has answered."""
        self._connect_timer: Any = None
        self._held = bytearray()  # received before the broker has accepted the client
        self._is_gone = False

    def _step(self, event: str) -> None:
        self.state = NEXT[self.state].get(event, self.state)
        self.relay.open = self.state is RELAYING

    # connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.origin is not None:
            peer = self.origin.begin(transport)
            if peer is None:
                self._step("ends")
                self.abort()
                return
            self.peer = peer
        limits = self.parts.limits
        transport.set_write_buffer_limits(high=limits.write_buffer)
        if not self.parts.events.client_accepted(self):
            self._step("ends")
            self.abort()
            return
        self._connect_timer = self.driver.call_later(limits.connect_timeout, self._timed_out)

    def _peer_of(self, transport: Any) -> str:
        return "" if self.origin is not None else super()._peer_of(transport)  # the origin says it

    def data_received(self, data: bytes) -> None:
        if self.state is RELAYING:
            self.relay.receive(data)
            return
        try:
            if self.state is AWAITING_CONNECT:
                self._held += data
                self._await_connect()
            elif self.state is not ENDED:
                self._held += data
                self._hold()
                self.parts.deliver()
        except MqttError as error:
            self.fail(error)

    def eof_received(self) -> bool | None:
        """The client sends nothing more. What it has sent goes to the broker first, also what is held.

        The broker is told in the same way, answers what there is to be answered, and closes.
        """
        if self.state in (AWAITING_CONNECT, ENDED):
            return None
        if self.state is AWAITING_NEIGHBORS and not self._held:
            return None  # it has given up: its next connection must not be behind this one
        if self.transport is None or not self.transport.can_write_eof():
            return None  # TLS: the connection ends both ways at once
        if not self.wire.ended:
            self.wire.ended = True
            if self.state is RELAYING:
                self.relay.after(self._pass_end)
        return True

    def _pass_end(self) -> None:
        """Tell the broker, which may answer nothing more from then on."""
        assert self.paired is not None
        if self.publishing.is_owed:
            self.wire.linger(self.paired.end_writing)
        else:
            self.paired.end_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.origin is not None:
            self.origin.end()
        self.relay.client_gone()
        self.relay.after(lambda: self._lost(exc))

    def _lost(self, exc: Exception | None) -> None:
        self.relay.stop_waiting()
        self._cancel_connect_timer()
        self._answered()
        self.wire.forget_partial()
        self._held = bytearray()
        if self.publishing.is_owed and self.wire.has_broker:
            # what it has sent is with the broker: it crosses before the client is taken for gone
            self.wire.linger(lambda: self._gone(exc))
            return
        self._gone(exc)

    def _gone(self, exc: Exception | None) -> None:
        self._end_paired()
        self.publishing.client_gone()
        self.acks.client_gone()
        self.parts.start_gate.let_go(self)
        self.parts.events.client_gone(self, exc)
        self._step("ends")
        self._is_gone = True
        self._unpair()

    def broker_lost(self) -> None:
        """The connection with the broker has ended: nothing can be passed on any more."""
        waited = self.relay.awaits_decision
        self.relay.stop_waiting()
        self.close()
        if waited and self.transport is None:
            self.go_on()
        self._unpair()

    def _unpair(self) -> None:
        """Let go of the paired session if both have ended: the collector, who finds them else, takes longer
        than what they do at their end."""
        if self._is_gone and (self.paired is None or self.paired.transport is None):
            self.wire.cut()
            self.acks.cut()
            self.paired = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.paired is not None:
            self.paired.pause("client")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.resume("answers")
        if self.paired is not None:
            self.paired.resume("client")

    # CONNECT ----------------------------------------------------------------------------------

    def _await_connect(self) -> None:
        held = self._held
        if held[0] >> 4 != members.CONNECT:
            raise ProtocolViolation("the first packet is not CONNECT", clause="MQTT-3.1.0-1")
        length = frame_length(held)
        if length is not None and length > min(MAX_CONNECT, self.parts.limits.packet_size):
            limit = min(MAX_CONNECT, self.parts.limits.packet_size)
            raise PacketTooLarge(f"CONNECT of {length} bytes, the limit is {limit}", clause="MQTT-4.13.2")
        if length is None or len(held) < length:
            return
        frame, self._held = bytes(held[:length]), held[length:]
        # MQTT 3.1 does not use the flags of CONNECT (3.1)
        plain = frame if frame[0] == CONNECT else b"\x10" + frame[1:]
        packet = decode(plain, members.V311, self.parts.packet_limits)
        assert isinstance(packet, Connect)
        if plain is not frame and packet.version is not members.V31:
            check_first_byte(frame[0], packet.version)
        self.version = self.wire.version = packet.version
        if packet.version is members.V5:
            self.wire.answers = Answers(self.parts.limits, packet)
        if self in self.parts.admission.being_told:
            self._refuse(ReasonCode.QUOTA_EXCEEDED, ConnectReturnCode.SERVER_UNAVAILABLE)
            return
        if self.origin is not None and self.origin.is_blocked():
            # it has come before its address was blocked, with many others perhaps: no more of them is tried
            self._cancel_connect_timer()
            self._step("ends")
            self.abort()
            return
        self.client_id = packet.client_id
        if not self.parts.admits_clients or self.parts.is_reserved(packet.client_id):
            self._dial(frame, packet)
            return
        self._step("asked")
        answer = self.parts.dispatch.chain.client(self, packet)
        self.relay.decisions.when_decided(answer, lambda answer: self._decided(frame, packet, answer))
        self._hold()

    def _decided(self, frame: bytes, packet: Connect, answer: Connect | Rejected) -> None:
        if isinstance(answer, Rejected):
            self.parts.counters["clients_rejected"] += 1
            self.relay.decisions.log_rejected("client", answer)
            self._refuse(answer.reason, return_code(answer.reason), answer.text)
        else:
            if answer is not packet:
                self.wire.answers.connect_changed(packet, answer)
                frame = answer.encode()
            self._dial(frame, answer)

    def _dial(self, frame: bytes, packet: Connect) -> None:
        """Connect to the broker for a client whose CONNECT it is to get."""
        self._cancel_connect_timer()
        self.connect = packet
        self.client_id = packet.client_id
        gate = self.parts.start_gate
        if gate.closed and not self.parts.is_reserved(packet.client_id):
            self._step("waits")
            gate.hold(self, lambda: self._dial_broker(frame, packet))
            self._hold()
            return
        self._dial_broker(frame, packet)

    def _dial_broker(self, frame: bytes, packet: Connect) -> None:
        if not self.is_open:  # it was ended while it has waited
            return
        if self.parts.bans.bars(self):
            self.parts.counters["clients_banned"] += 1
            self._refuse(ReasonCode.BANNED, ConnectReturnCode.NOT_AUTHORIZED)
            return
        guard = self.parts.loop_guard
        if packet.client_id in self.parts.injector.client_ids:
            guard.suspect()  # somebody has taken the node's identifier, or it is the node itself that calls
            # the id is that of the node's own session, which it would take over
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, ConnectReturnCode.IDENTIFIER_REJECTED)
            return
        if guard.is_own(packet.client_id) or guard.reach.loop is not None:
            self.broker_unavailable()
            return
        known = self.parts.clients.records.get(packet.client_id)
        if known is not None and known.session is not None:
            known.session.say_goodbye()  # before the broker takes its session from it, and sends its will
        self._asked = guard.asked(frame)
        self.relay.actions = self.parts.actions[packet.version]
        self._step("dials")
        self.paired = self.wire.broker = BrokerSession(self.parts, self, frame)
        self._hold()
        self.paired.dial()

    def _refuse(self, reason: ReasonCode, code: ConnectReturnCode, text: str = "") -> None:
        """Answer a CONNECT in the client's version (5: 3.2.2.2; 3.1.1: 3.2.2.3), and close."""
        self._cancel_connect_timer()
        answer = int(reason if self.version is members.V5 else code)
        self.write(self.wire.answers.with_reason(ConnAck(session_present=False, reason_code=answer), text))
        self.parts.admission.refused_with(answer, self.origin)
        self._step("ends")
        self.close()

    def _timed_out(self) -> None:
        """CONNECT, or the broker's answer to it, has not come."""
        self._connect_timer = None
        if self.state is AWAITING_CONNACK:
            self.parts.counters["connack_timeouts"] += 1
            self.broker_unavailable()
            if self.paired is not None:
                self.parts.brokers.failed(self.paired.address)
                self.paired.abort()
            return
        self.relay.stop_waiting()
        self.parts.counters["connect_timeouts"] += 1
        self._step("ends")
        self.abort()

    def _cancel_connect_timer(self) -> None:
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None

    def _hold(self) -> None:
        """Keep what a client sends before it is accepted (MQTT-3.1.4-6), except enhanced authentication."""
        while self.state is AWAITING_CONNACK and self.version is members.V5 and self._held[:1] == b"\xf0":
            length = frame_length(self._held)
            if length is None or len(self._held) < length:
                break
            assert self.paired is not None
            frame, self._held = bytes(self._held[:length]), self._held[length:]
            self.paired.write(frame)
            self._await_connack()
            self.parts.arrived(_CLIENT, self, members.AUTH, frame)
        if self._held and len(self._held) >= self.parts.limits.write_buffer:
            self.pause("connack")

    def broker_connected(self) -> None:
        """The paired session is established, CONNECT was passed on."""
        self._step("connected")
        self._await_connack()
        self._hold()

    def _await_connack(self) -> None:
        self._cancel_connect_timer()
        limit = self.parts.config.broker.connack_timeout
        self._connect_timer = self.driver.call_later(limit, self._timed_out)

    def broker_unavailable(self) -> None:
        """The broker cannot be reached, or does not answer."""
        self.parts.counters["broker_unavailable"] += 1
        self._refuse(ReasonCode.SERVER_UNAVAILABLE, ConnectReturnCode.SERVER_UNAVAILABLE)

    def admitted(self, connack: ConnAck) -> bool:
        """The broker's CONNACK accepts the client; whether it can be relayed before anything is saved."""
        assert self.connect is not None
        self._cancel_connect_timer()
        self._answered()
        told = connack.properties
        self.wire.keep_alive = int(told.get(members.SERVER_KEEP_ALIVE, self.connect.keep_alive))
        if self.version is members.V5:
            self.publishing.aliases = TopicAliases(int(told.get(members.TOPIC_ALIAS_MAXIMUM, 0)))
            self.acks.receive_maximum = int(told.get(members.RECEIVE_MAXIMUM, ANY_NUMBER))
        self.publishing.record = self.parts.events.client_connected(self, self.connect, connack)
        return self.connect.will is None

    def accepted(self) -> None:
        """The broker's CONNACK was relayed."""
        self._step("accepted")
        self.publishing.accepted()
        held, self._held = bytes(self._held), bytearray()
        self.resume("connack")
        if held:
            self.data_received(held)
        if self.wire.ended and self.state is RELAYING:
            self.relay.after(self._pass_end)

    def _answered(self) -> None:
        if self._asked is not None:
            self.parts.loop_guard.answered(self._asked)
            self._asked = None

    # what others ask about it -------------------------------------------------------------------

    @property
    def between_relayed(self) -> bool:
        """The client has been accepted, and has got whole packets so far."""
        return self.paired is not None and self.paired.between_answers

    def taken_over(self) -> None:
        self.taken_over_at = self.parts.retained.next_stamp()

    def follow(self, rules: ClientRules | None) -> None:
        self.publishing.rules = rules

    def may_send(self, topic: str) -> bool:
        return self.publishing.may_send(topic)

    def publisher_index(self) -> int:
        return self.publishing.publisher_index()

    def unnamed(self, started: int) -> str:
        return f"\0{started}.{self.id}"

    def say_goodbye(self) -> None:
        self.relay.say_goodbye()

    # ending -----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """What waited behind a packet has its turn."""
        if self.relay.moving_off:
            self.move_off()
        else:
            self.relay.next_turn()

    def fail(self, error: MqttError) -> None:
        """The client has broken the protocol: close its connection, in MQTT 5 with the reason (MQTT-4.13)."""
        self.wire.forget_partial()
        self.relay.stop_waiting()
        self.parts.events.client_failed(self, error)
        refusal = _refusal(error) if self.connect is None and self.state is not RELAYING else None
        if refusal is not None:
            self.write(refusal)
        self._end(error.reason)

    def kick(self) -> None:
        """End the connection, in MQTT 5 with 0x98; its will is sent as after a broken one (MQTT-3.1.2-8)."""
        if self.state is ENDED:
            return
        self.parts.counters["clients_kicked"] += 1
        self.say_goodbye()
        self.wire.forget_partial()
        self.relay.stop_waiting()
        self._end(ReasonCode.ADMINISTRATIVE_ACTION)

    def move_off(self) -> None:
        """End the connection in an orderly way, without its will (drain). A client that has ended its side
        without DISCONNECT has left its will: the broker was told, or will be."""
        relaying = self.state is RELAYING
        if self.wire.amid_packet or (relaying and self.relay.awaits_decision):
            # a DISCONNECT now would become part of the packet, or be sent before one that has come before it
            self.relay.moving_off = True
            return
        self.relay.stop_waiting()
        if relaying and not self.wire.ended:
            self.relay.clean = True
            if not self.relay.said_goodbye:
                self.wire.to_broker(Disconnect().encode(self.version))
        self._end(ReasonCode.SERVER_SHUTTING_DOWN)

    def _end(self, reason: int) -> None:
        """Close both connections; a client of MQTT 5 that is served is told the reason."""
        if self.state is RELAYING and self.version is members.V5:
            self.write(Disconnect(reason_code=int(reason)).encode(members.V5))
        self._step("ends")
        self._held = bytearray()
        self.close()
        if not self.publishing.is_owed:  # else when what was sent is answered
            self._end_paired()

    def _end_paired(self) -> None:
        if self.paired is None:
            return
        if self.relay.clean:
            self.paired.leave()
        else:
            self.paired.close()


def _refusal(error: MqttError) -> bytes | None:
    """The CONNACK for a CONNECT that cannot be accepted; None for one that is answered by closing."""
    version = Version.V311  # CONNACK of 3.1 is the same
    if isinstance(error, UnsupportedVersion):
        code = int(ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)
    elif error.reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID:  # MQTT-3.1.3-8 (3.1.1)
        code = int(ConnectReturnCode.IDENTIFIER_REJECTED)
    elif isinstance(error, OverLimit):  # too many properties, which only MQTT 5 has
        version, code = members.V5, int(error.reason)
    else:
        return None
    return ConnAck(session_present=False, reason_code=code).encode(version)
