"""The session with a local client: CONNECT, then relaying towards the broker with a look at each frame."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ildm.api import Role, Source, Stamp
from ildm.core.frames import PUBLISH, head_topic, packet_ids, publish_run, run_to_v5
from ildm.core.local.actions import Action
from ildm.core.local.aliases import TopicAliases
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.decisions import return_code
from ildm.core.local.partial import SMALL, Partial
from ildm.core.local.publishing import ANY_NUMBER
from ildm.core.local.spool_room import RefusingClient
from ildm.core.local.unanswered import Unanswered
from ildm.core.plugin.filtering import Rejected
from ildm.core.transfer.lane import Lane
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
    Unsubscribe,
    UnsupportedVersion,
    Version,
    check_first_byte,
    decode,
    frame_bounds,
    frame_length,
    members,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ildm.core.local.parts import ClientParts
    from ildm.core.session import Origin

_RELAY, _RUN, _COUNT, _LOOK = (int(a) for a in (Action.RELAY, Action.RUN, Action.COUNT, Action.LOOK))

CONNECT = PacketType.CONNECT << 4
"""First byte, without flags."""
MAX_CONNECT = 1 << 20
"""Bytes of a CONNECT: more than its fields can take, but for an odd number of user properties."""
MAX_HELD = 1 << 20
"""Bytes of another packet, but PUBLISH, that the node must read before the broker gets it."""
NOT_AUTHENTICATED = frozenset(
    (
        ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
        ConnectReturnCode.NOT_AUTHORIZED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    )
)
"""CONNACKs that refuse a client for who it is (3.1.1: 3.2.2.3; 5: 3.2.2.2); no code means two things."""
AT_ONCE = 100
"""Packets, or runs of them, that are looked at in a row: 30,000 of the smallest may be read at once."""


class State(Enum):
    """Phases of a client connection."""

    AWAITING_CONNECT = "awaiting CONNECT"
    AWAITING_DECISION = "awaiting the filters' decision"
    AWAITING_NEIGHBORS = "awaiting the neighbours' interest"
    AWAITING_BROKER = "awaiting the broker's connection"
    AWAITING_CONNACK = "awaiting CONNACK"
    RELAYING = "relaying"
    ENDED = "ended"


_AWAITING_CONNECT: Final = State.AWAITING_CONNECT
_AWAITING_DECISION: Final = State.AWAITING_DECISION
_AWAITING_NEIGHBORS: Final = State.AWAITING_NEIGHBORS
_AWAITING_BROKER: Final = State.AWAITING_BROKER
_AWAITING_CONNACK: Final = State.AWAITING_CONNACK
_RELAYING: Final = State.RELAYING
_ENDED: Final = State.ENDED
_CLIENT: Final = Source.CLIENT
"""See :mod:`ildm.mqtt.members`."""


class ClientSession(RefusingClient):
    """A local client; its paired session is a :class:`BrokerSession` opened for it alone."""

    __slots__ = (
        "_actions",
        "_asked",
        "_connect_timer",
        "_held",
        "_keep_alive",
        "_moving_off",
        "_partial",
        "_said_goodbye",
        "connect",
        "disconnected",
        "ended",
        "messages_in",
        "origin",
        "state",
        "taken_over_at",
    )
    role = Role.CLIENT

    def __init__(self, parts: ClientParts, origin: Origin | None = None) -> None:
        super().__init__(parts)
        self.origin = origin
        self.state = _AWAITING_CONNECT
        self.connect: Connect | None = None
        self.disconnected = False
        """The client has sent a DISCONNECT that discards its will."""
        self.taken_over_at: Stamp | None = None
        """Of its will, where another connection has taken the session over: what that one sets is newer."""
        self._said_goodbye = False
        """It has sent a DISCONNECT: nothing that follows is of any effect (MQTT-3.14.4-2)."""
        self.messages_in = 0
        self._asked: int | None = None
        """What the loop guard is told when the broker has answered."""
        self._connect_timer: Any = None
        self._actions = b""
        self._keep_alive = 0
        self._held = bytearray()  # received before the broker has accepted the client
        self._partial = Partial(parts.partials)
        self.ended = False
        """The client has said that it will send nothing more."""
        self._moving_off = False  # as soon as the packet under way is whole

    # connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.origin is not None:
            peer = self.origin.begin(transport)
            if peer is None:
                self.state = _ENDED
                self.abort()
                return
            self.peer = peer
        limits = self.parts.limits
        transport.set_write_buffer_limits(high=limits.write_buffer)
        if not self.parts.events.client_accepted(self):
            self.state = _ENDED
            self.abort()
            return
        self._connect_timer = self.driver.call_later(limits.connect_timeout, self._connect_timed_out)

    def _peer_of(self, transport: Any) -> str:
        return "" if self.origin is not None else super()._peer_of(transport)  # the origin says it

    def data_received(self, data: bytes) -> None:
        if self._said_goodbye:
            return
        try:
            if self.state is _RELAYING:
                self._relay(data)
            elif self.state is _AWAITING_CONNECT:
                self._held += data
                self._await_connect()
            elif self.state is not _ENDED:
                self._held += data
                self._hold()
                self.parts.dispatch.deliver()
        except MqttError as error:
            self.fail(error)

    def eof_received(self) -> bool | None:
        """The client sends nothing more. What it has sent goes to the broker first, also what is held.

        The broker is told in the same way, answers what there is to be answered, and closes.
        """
        if self.state in (_AWAITING_CONNECT, _ENDED):
            return None
        if self.state is _AWAITING_NEIGHBORS and not self._held:
            return None  # it has given up: its next connection must not be behind this one
        if self.transport is None or not self.transport.can_write_eof():
            return None  # TLS: the connection ends both ways at once
        if not self.ended:
            self.ended = True
            if self.state is _RELAYING:
                self._after(self._pass_end)
        return True

    def _pass_end(self) -> None:
        """Tell the broker, which may answer nothing more from then on."""
        assert self.paired is not None
        if self.is_owed:
            self.paired.linger(self.paired.end_writing)
        else:
            self.paired.end_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.origin is not None:
            self.origin.end()
        self._no_more_to_come()
        self._released()
        self._after(lambda: self._lost(exc))

    def _lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._cancel_connect_timer()
        self._answered()
        self._partial.clear()
        self._held = bytearray()
        if self.is_owed and self.paired is not None and self.paired.is_open:
            # what it has sent is with the broker: it crosses before the client is taken for gone
            self.paired.linger(lambda: self._gone(exc))
            return
        self._gone(exc)

    def _gone(self, exc: Exception | None) -> None:
        self._end_paired()
        self.no_longer_in_order()
        if self.unanswered:
            # whether the broker has them is unknown; a client that wants them sent will send them again
            self.parts.counters["unanswered_by_broker"] += self.unanswered.messages
            self.unanswered = None
        if self._holds and self.paired is not None:
            for lane in self.paired.gate.reasons:
                if isinstance(lane, Lane):  # or it keeps all who have come and gone
                    lane.no_longer_held(self)
        if self.parts.custody is not None:
            self.parts.custody.no_longer_held(self)
        self.parts.start_gate.let_go(self)
        self.parts.events.client_gone(self, exc)
        self.state = _ENDED
        self.unpair()

    def unpair(self) -> None:
        """Let go of the paired session if both have ended: the collector, who finds them else, takes longer
        than what they do at their end."""
        if self.paired is not None and self.paired.transport is None and self not in self.parts.sessions:
            self.paired.unpaired()
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
        self.version = packet.version
        self.takes_reasons(packet)
        if self in self.parts.admission.being_told:
            self._refuse(ReasonCode.QUOTA_EXCEEDED, ConnectReturnCode.SERVER_UNAVAILABLE)
            return
        if self.origin is not None and self.origin.is_blocked():
            # it has come before its address was blocked, with many others perhaps: no more of them is tried
            self._cancel_connect_timer()
            self.state = _ENDED
            self.abort()
            return
        self.client_id = packet.client_id
        chain = self.parts.dispatch.chain
        if not chain.admits_clients or self._is_reserved(packet.client_id):
            self._dial(frame, packet)
            return
        self.state = _AWAITING_DECISION
        answer = chain.client(self, packet)
        self._when_decided(answer, lambda answer: self._client_decided(frame, packet, answer))
        self._hold()

    def _is_reserved(self, client_id: str) -> bool:
        """Whether it is the name of the node's own sessions, of which no filter is to know."""
        return client_id in self.parts.injector.client_ids or self.parts.loop_guard.is_own(client_id)

    def _client_decided(self, frame: bytes, packet: Connect, answer: Connect | Rejected) -> None:
        if isinstance(answer, Rejected):
            self.parts.counters["clients_rejected"] += 1
            self._log_rejected("client", answer)
            self._refuse(answer.reason, return_code(answer.reason), answer.text)
        else:
            if answer is not packet:
                self.connect_changed(packet, answer)
                frame = answer.encode()
            self._dial(frame, answer)

    def _dial(self, frame: bytes, packet: Connect) -> None:
        """Connect to the broker for a client whose CONNECT it is to get."""
        self._cancel_connect_timer()
        self.connect = packet
        self.client_id = packet.client_id
        gate = self.parts.start_gate
        if gate.closed and not self._is_reserved(packet.client_id):
            self.state = _AWAITING_NEIGHBORS
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
        if guard.is_own(packet.client_id) or guard.reason is not None:
            self.broker_unavailable()
            return
        known = self.parts.clients.records.get(packet.client_id)
        if known is not None and known.session is not None:
            known.session.say_goodbye()  # before the broker takes its session from it, and sends its will
        self._asked = guard.asked(frame)
        self._actions = self.parts.actions[packet.version]
        self.state = _AWAITING_BROKER
        self.paired = BrokerSession(self.parts, self, frame)
        self._hold()
        self.paired.dial()

    def _refuse(self, reason: ReasonCode, code: ConnectReturnCode, text: str = "") -> None:
        """Answer a CONNECT in the client's version (5: 3.2.2.2; 3.1.1: 3.2.2.3), and close."""
        self._cancel_connect_timer()
        answer = int(reason if self.version is members.V5 else code)
        self.write(self.with_reason(ConnAck(session_present=False, reason_code=answer), text))
        self.refused_with(answer)
        self.state = _ENDED
        self.close()

    def refused_with(self, code: int) -> None:
        """A CONNACK with this code has gone to the client."""
        if code in NOT_AUTHENTICATED:
            self.parts.admission.not_authenticated(self.origin)

    def _connect_timed_out(self) -> None:
        self._connect_timer = None
        self._stop_waiting()
        self.parts.counters["connect_timeouts"] += 1
        self.state = _ENDED
        self.abort()

    def _cancel_connect_timer(self) -> None:
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None

    def _hold(self) -> None:
        """Keep what a client sends before it is accepted (MQTT-3.1.4-6), except enhanced authentication."""
        while self.state is _AWAITING_CONNACK and self.version is members.V5 and self._held[:1] == b"\xf0":
            length = frame_length(self._held)
            if length is None or len(self._held) < length:
                break
            assert self.paired is not None
            frame, self._held = bytes(self._held[:length]), self._held[length:]
            self.paired.write(frame)
            self._await_connack()
            self.parts.dispatch.arrived(_CLIENT, self, members.AUTH, frame)
        if self._held and len(self._held) >= self.parts.limits.write_buffer:
            self.pause("connack")

    def broker_connected(self) -> None:
        """The paired session is established, CONNECT was passed on."""
        self.state = _AWAITING_CONNACK
        self._await_connack()
        self._hold()

    def _await_connack(self) -> None:
        self._cancel_connect_timer()
        limit = self.parts.config.broker.connack_timeout
        self._connect_timer = self.driver.call_later(limit, self._connack_timed_out)

    def _connack_timed_out(self) -> None:
        self._connect_timer = None
        self.parts.counters["connack_timeouts"] += 1
        self.broker_unavailable()
        if self.paired is not None:
            self.parts.brokers.failed(self.paired.address)
            self.paired.abort()

    def broker_unavailable(self) -> None:
        """The broker cannot be reached, or does not answer."""
        self.parts.counters["broker_unavailable"] += 1
        self._refuse(ReasonCode.SERVER_UNAVAILABLE, ConnectReturnCode.SERVER_UNAVAILABLE)

    def admitted(self, connack: ConnAck) -> bool:
        """The broker's CONNACK accepts the client; whether it can be relayed before anything is saved."""
        assert self.connect is not None
        self._cancel_connect_timer()
        self._answered()
        self._keep_alive = int(connack.properties.get(members.SERVER_KEEP_ALIVE, self.connect.keep_alive))
        if self.version is members.V5:
            told = connack.properties
            self._aliases = TopicAliases(int(told.get(members.TOPIC_ALIAS_MAXIMUM, 0)))
            self.receive_maximum = int(told.get(members.RECEIVE_MAXIMUM, ANY_NUMBER))
        self.record = self.parts.events.client_connected(self, self.connect, connack)
        return self.connect.will is None

    def accepted(self) -> None:
        """The broker's CONNACK was relayed."""
        self.state = _RELAYING
        if self.parts.transfers_acknowledged:
            self.unanswered = Unanswered()
        elif self.expects_answers:
            self._watch()
        held, self._held = bytes(self._held), bytearray()
        self.resume("connack")
        if held:
            self.data_received(held)
        if self.ended and self.state is _RELAYING:
            self._after(self._pass_end)

    def _answered(self) -> None:
        if self._asked is not None:
            self.parts.loop_guard.answered(self._asked)
            self._asked = None

    # relaying towards the broker --------------------------------------------------------------

    def _relay(self, data: bytes) -> None:
        broker = self.paired
        assert broker is not None
        partial = self._partial
        pos = start = 0  # data[start:pos]: not relayed yet
        if partial.missing:
            if partial.relayed:
                pos = partial.take(data)
                if partial.missing:
                    broker.write(data)
                    return
            else:
                joined = partial.join(data)
                if joined is None:
                    return
                data = joined
        parts = self.parts
        actions = self._actions
        v5 = self.version is members.V5
        if parts.refusal is not None and self.refuses:
            actions = parts.refusal.actions
        size_limit = parts.limits.packet_size
        local_routes = parts.router.local
        end_of_data = len(data)
        missing = room = 0
        left = AT_ONCE
        no_room = False
        try:
            if pos:
                start = self._streamed(data, pos)
                if self.state is not _RELAYING:
                    return
            while pos < end_of_data:
                header_end, end = frame_bounds(data, pos)
                if not end:
                    missing = 1
                    break
                if end - pos > size_limit:
                    raise PacketTooLarge(
                        f"packet of {end - pos} bytes, limits.packet_size is {size_limit}",
                        clause="MQTT-3.2.2-15",
                    )
                if end > end_of_data:
                    missing = end - end_of_data
                    if self._holds and self._must_wait(data[pos], end - pos):
                        no_room = True
                        break
                    if end - pos > SMALL and self._stream(data, pos, header_end, missing):
                        pos = end_of_data
                    break
                action = actions[data[pos]]
                if action == _RELAY:
                    pos = end
                    continue
                left -= 1
                if left < 0:
                    break
                if action == _RUN:
                    run_end, size = end, end - pos
                    held = self._holds and data[pos] != PUBLISH
                    if held:
                        room = self._room(size)
                        if not room:
                            no_room = True
                            break
                        self._sent_while_held(1, size)
                    try:
                        run = publish_run(data, pos, header_end, end, v5)
                        if run is None:
                            self.messages_in += 1
                            self._publish(data[pos:end])
                            pos = end
                            continue
                        run_end, size, topic, body = run
                        route = local_routes.get(topic)
                        if route is None:
                            route = parts.router.find(topic, None)
                    except MqttError as error:
                        parts.events.publish_unusable(self, error, (run_end - pos) // size)
                        self.messages_in += (run_end - pos) // size
                        pos = run_end
                        continue
                    count = (run_end - pos) // size
                    if held and count > 1:
                        if count > room:
                            count, run_end = room, pos + room * size
                            run = run_end, size, topic, body
                        self._sent_while_held(count - 1, size)
                    self.messages_in += count
                    if route and (self.rules is None or self._may_cross(topic, count)):
                        if v5:
                            frames, new_size = data[pos:run_end], size
                        else:
                            frames, new_size = run_to_v5(data, pos, header_end, run)
                        index, router = self.publisher_index(), parts.router
                        if data[pos] == PUBLISH:
                            router.gather(route, frames, new_size, count, index, self)
                        elif self.unanswered is None:
                            router.forward_frames(route, frames, new_size, index, self)
                        else:
                            offset = pos + body
                            if count == 1:
                                ids: Sequence[int] = ((data[offset] << 8) | data[offset + 1],)
                            else:
                                ids = packet_ids(data[offset:run_end:size], data[offset + 1 : run_end : size])
                            self.unanswered.add_run(topic, frames, new_size, ids)
                            broker.watching = True
                    pos = run_end
                elif action == _COUNT:
                    self.messages_in += 1
                    pos = end
                elif action == _LOOK:
                    if self._holds and self._must_wait(data[pos], end - pos):
                        no_room = True
                        break
                    frame = data[pos:end]
                    result = self._look(frame)
                    if self._said_goodbye:
                        data, end_of_data = data[:end], end
                    if result is not frame:
                        if pos > start:
                            broker.write(data[start:pos])
                        if result:
                            broker.write(result)
                        start = end
                        if self._awaited is not None:
                            pos = end
                            left = -1
                            break
                    pos = end
                else:
                    raise self._illegal(data[pos])
        finally:
            if pos > start:  # what came before a bad packet counts
                broker.write(data if pos == end_of_data and start == 0 else data[start:pos])
            parts.router.send_gathered()
        if no_room:
            self._rest = data[pos:]
            self._wait_for_room()
        elif left < 0:
            self._put_off(data[pos:])
        elif pos < end_of_data:
            partial.hold(data[pos:], missing, self.fail)
        if self.unanswered is not None and self.unanswered.messages and self._too_much_unanswered(1):
            self.pause("unanswered")
        parts.dispatch.deliver()

    # chunks of many packets -------------------------------------------------------------------

    def _put_off(self, rest: bytes) -> None:
        """Keep the rest of a chunk until a decision has come, or others have had their turn.

        A chunk may hold so many packets that they would wait for seconds.
        """
        self._rest = rest
        if self._awaited is not None:
            self.pause("decision")
        else:
            self.pause("turn")
            self.driver.in_turn(self._next_turn)

    @property
    def keep_alive(self) -> int:
        return self._keep_alive

    def _next_turn(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self.data_received(rest)
        if self._rest or self._awaited is not None:
            return
        self.resume("turn")
        self.resume("decision")
        self.resume("room")
        after, self._after_rest = self._after_rest, None
        if after is not None:
            after()

    def _must_wait(self, first: int, size: int) -> bool:
        """Whether there is no room for a packet that begins so, while acknowledgements are withheld."""
        return first & 0xF0 == PUBLISH and first & 6 != 0 and not self._room(size)

    def _released(self) -> None:
        if self._room_again():
            self.driver.call_soon(self._next_turn)  # not amid what has made room

    def _go_on(self) -> None:
        if self._moving_off:
            self.move_off()
        else:
            self._next_turn()

    # large packets ----------------------------------------------------------------------------

    @property
    def mid_packet(self) -> bool:
        """The broker has a part of a packet, whose rest is still to come from the client."""
        return self._partial.relayed

    @property
    def between_relayed(self) -> bool:
        """The client has been accepted, and has got whole packets so far."""
        return self.paired is not None and self.paired.between_answers

    def _stream(self, data: bytes, pos: int, header_end: int, missing: int) -> bool:
        """Whether the incomplete packet at ``pos`` can be relayed as it comes."""
        first = data[pos]
        action = self._actions[first]
        if action == Action.ILLEGAL:
            raise self._illegal(first)
        copy = False
        if action not in (_RELAY, _COUNT):
            if first >> 4 != members.PUBLISH:
                _check_held(first, len(data) - pos + missing)
                return False
            if self.parts.dispatch.chain.filters(_CLIENT) or self.refuses:
                return False
            copy = action != _RUN or self._crosses(data, header_end, first & 6 != 0)
        if first >> 4 == members.PUBLISH:
            self.messages_in += 1
            if self._holds and first & 6:
                self._sent_while_held(1, len(data) - pos + missing)
        self._partial.relay(data[pos:], missing, copy)
        return True

    def _crosses(self, data: bytes, header_end: int, identified: bool) -> bool:
        """Whether a message of which a part is there may be wanted elsewhere, or changes an alias."""
        topic = head_topic(data, header_end, identified, self.version is members.V5)
        if topic is None:
            return True
        route = self.parts.router.local.get(topic)
        if route is None:
            try:
                route = self.parts.router.find(topic, None)
            except MqttError as error:
                self.parts.events.publish_unusable(self, error, 1)
                return False
        return bool(route)

    def _streamed(self, data: bytes, end: int) -> int:
        """A packet that was relayed as it came ends at ``end``; answers how much of ``data`` is relayed."""
        broker = self.paired
        assert broker is not None
        frame = self._partial.whole()
        waiting = broker.between_packets()
        if waiting or self._moving_off:
            broker.write(data[:end] + waiting)
        if self._partial.given_up and self._aliases is not None:
            self._aliases.forget()
        if frame is not None and (not self.parts.router.active or self._publish(frame)):
            self.parts.dispatch.arrived(_CLIENT, self, members.PUBLISH, frame)
        if self._moving_off:
            self.move_off()
        return end if waiting or self._moving_off else 0

    def _look(self, frame: bytes) -> bytes | None:
        """Deal with a frame that means something to the node; returns what is to be relayed instead."""
        type = frame[0] >> 4
        if type == members.PUBLISH:
            self.messages_in += 1
            if self._holds and frame[0] & 6:
                self._sent_while_held(1, len(frame))
            chain = self.parts.dispatch.chain
            if chain.filters(_CLIENT):
                answer = chain.message(_CLIENT, self, self._spelled_out(frame))
                return self._when_decided(answer, lambda answer: self._filtered(frame, answer))
            return self._passed(frame)
        if type == members.PUBREL:
            return self._pubrel(frame)
        _check_held(frame[0], len(frame))
        if type == members.SUBSCRIBE:
            return self._subscribe(frame)
        if type == members.UNSUBSCRIBE:
            unsubscribe = decode(frame, self.version, self.parts.packet_limits)
            assert isinstance(unsubscribe, Unsubscribe)
            self.pending.add(unsubscribe.packet_id, unsubscribe.topic_filters, len(frame))
            self._watch()
        elif type == members.DISCONNECT:
            self._disconnect(frame)
            if self.is_owed:
                return self._when_answered(lambda _: self._arrived(frame))
        return self._arrived(frame)

    def _arrived(self, frame: bytes) -> bytes:
        packet_type = members.PACKET_TYPES[frame[0] >> 4]
        assert packet_type is not None  # 0 is illegal
        self.parts.dispatch.arrived(_CLIENT, self, packet_type, frame)
        return frame

    def _passed(self, frame: bytes) -> bytes | None:
        if self.refuses:
            passing = self._unless_refused(frame)
            if passing is None:
                return None
            frame = passing
        if not self.parts.router.active or self._publish(frame):
            self.parts.dispatch.arrived(_CLIENT, self, members.PUBLISH, frame)
        return frame

    def _illegal(self, first: int) -> MqttError:
        """Why a client may not send a packet with this first byte."""
        try:
            type = check_first_byte(first, self.version)
        except MqttError as error:
            return error
        clause = "MQTT-3.1.0-2" if type is members.CONNECT else "MQTT-4.13.1-1"
        return ProtocolViolation(f"{type.name} from a client", clause=clause)

    def _disconnect(self, frame: bytes) -> None:
        if len(frame) == 2:
            self._says_goodbye(True)
            return
        packet = decode(frame, self.version, self.parts.packet_limits)
        assert isinstance(packet, Disconnect)
        expiry = packet.properties.get(members.SESSION_EXPIRY_INTERVAL)
        if expiry and self.record is not None and self.record.expiry == 0:
            raise ProtocolViolation(
                "DISCONNECT sets a session expiry which CONNECT had as 0", clause="MQTT-3.14.2-2"
            )
        self._says_goodbye(packet.reason_code == 0, None if expiry is None else int(expiry))

    def _says_goodbye(self, clean: bool, expiry: int | None = None) -> None:
        """The client disconnects: what that means for its session is saved before the broker hears of it.

        ``clean``: its will is discarded (MQTT-3.14.4-3); ``expiry``: session expiry interval, if it sets one.
        """
        self.disconnected = clean
        self._said_goodbye = True
        if self.record is not None:
            self.parts.clients.leaves(self, self.record, clean, expiry)
        if self.parts.custody is not None:
            self.parts.custody.flush()

    # ending -----------------------------------------------------------------------------------

    def fail(self, error: MqttError) -> None:
        """The client has broken the protocol: close its connection, in MQTT 5 with the reason (MQTT-4.13)."""
        self._partial.clear()
        self._stop_waiting()
        self.parts.events.client_failed(self, error)
        if self.state is _RELAYING:
            if self.version is members.V5:
                self.write(Disconnect(reason_code=int(error.reason)).encode(members.V5))
        elif self.connect is None:
            refusal = _refusal(error)
            if refusal is not None:
                self.write(refusal)
        self.state = _ENDED
        self._held = bytearray()
        self._close_both()

    def kick(self) -> None:
        """End the connection, in MQTT 5 with 0x98; its will is sent as after a broken one (MQTT-3.1.2-8)."""
        if self.state is _ENDED:
            return
        self.parts.counters["clients_kicked"] += 1
        self.say_goodbye()
        self._partial.clear()
        self._stop_waiting()
        if self.state is _RELAYING and self.version is members.V5:
            self.write(Disconnect(reason_code=int(ReasonCode.ADMINISTRATIVE_ACTION)).encode(members.V5))
        self.state = _ENDED
        self._held = bytearray()
        self._close_both()

    def move_off(self) -> None:
        """End the connection in an orderly way, without its will (drain)."""
        if self.mid_packet or (self.state is _RELAYING and self._awaited is not None):
            # a DISCONNECT now would become part of the packet, or be sent before one that has come before it
            self._moving_off = True
            return
        self._stop_waiting()
        relaying = self.state is _RELAYING
        self.state = _ENDED
        if relaying:
            self.disconnected = True
            if self.paired is not None and not self._said_goodbye:
                self.paired.interject(Disconnect().encode(self.version))
            if self.version is members.V5:
                self.write(Disconnect(reason_code=int(ReasonCode.SERVER_SHUTTING_DOWN)).encode(members.V5))
        self._close_both()

    def _close_both(self) -> None:
        self.close()
        if not self.is_owed:  # else when what was sent is answered
            self._end_paired()

    def _end_paired(self) -> None:
        if self.paired is None:
            return
        if self.disconnected:
            self.paired.leave()
        else:
            self.paired.close()


def _check_held(first: int, size: int) -> None:
    if size > MAX_HELD:
        name = PacketType(first >> 4).name
        raise OverLimit(f"{name} of {size} bytes, {MAX_HELD} are possible", clause="MQTT-4.13.2")


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
