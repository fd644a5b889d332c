"""One TCP connection of a link: handshake, then transferred messages and control messages."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from ildm.api import Role, SessionStatus, Source
from ildm.core.frames import PUBLISH, PUBLISH_QOS_1, Tail, publish_run
from ildm.core.link.handshake import METHOD, NONCE, Hello, Refusal, connect_packet, proof, proof_holds
from ildm.core.link.link import CONTROL
from ildm.core.link.topology import TopologyError
from ildm.core.session import CLOSE_TIMEOUT, BaseSession
from ildm.core.transfer.qos1 import PUBACK, acknowledged_ids
from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    PacketTooLarge,
    PacketType,
    PingReq,
    PingResp,
    Property,
    ProtocolViolation,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
    decode_varint,
)

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.manager import LinkManager, Neighbor
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.lane import Lane

HELLO_LIMIT = 16384
"""Bytes of a packet in the handshake, from somebody who has not proven anything yet."""


class Phase(Enum):
    """Phases of the handshake; a dialer waits for AUTH or CONNACK, an acceptor for CONNECT and AUTH."""

    DIALING = "dialing"
    AWAITING_CONNECT = "awaiting CONNECT"
    AWAITING_AUTH = "awaiting AUTH"
    AWAITING_CONNACK = "awaiting CONNACK"
    ESTABLISHED = "established"
    ENDED = "ended"


class LinkSession(BaseSession):
    """A session with a neighbour node. ``neighbor`` is set when this node has dialed."""

    __slots__ = (
        "_far_window",
        "_nonces",
        "_tail",
        "_timer",
        "inbound",
        "index",
        "lane",
        "last_heard",
        "link",
        "manager",
        "neighbor",
        "peer_hello",
        "phase",
        "refusal",
    )
    role = Role.LINK

    def __init__(self, manager: LinkManager, neighbor: Neighbor | None, index: int) -> None:
        super().__init__(manager.driver)
        self.manager = manager
        self.neighbor = neighbor
        self.index = index
        self.version = Version.V5
        self.phase = Phase.DIALING if neighbor is not None else Phase.AWAITING_CONNECT
        self.link: NeighborLink | None = None
        self.lane: Lane | None = None
        self.inbound: Inbound | None = None
        self.peer_hello: Hello | None = None
        self.refusal: Refusal | None = None
        self.last_heard = 0.0
        self._nonces = b""
        self._far_window = (65535, 1 << 28)
        self._tail = Tail()
        self._timer: Any = None

    # connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.manager.write_buffer)
        self.last_heard = self.driver.now()
        self._timer = self.driver.call_later(self.manager.config.connect_timeout, self._handshake_timed_out)
        if self.neighbor is None:
            if not self.manager.session_accepted(self):
                self.abort()
            return
        given_up = self.index == 0 and self.neighbor.session is not self
        if self.neighbor.gone or given_up:  # removed while the connection was made
            self.abort()
            return
        self._nonces = self.driver.token(NONCE)
        self.phase = Phase.AWAITING_AUTH if self.manager.secret else Phase.AWAITING_CONNACK
        config = self.manager.config
        hello = self.manager.hello(self.neighbor.node_id, self.index, self.neighbor.token)
        connect = connect_packet(
            hello,
            nonce=self._nonces,
            secret=self.manager.secret is not None,
            keep_alive=config.keep_alive,
            inflight=config.inflight,
            packet_size=config.packet_size,
        )
        self.write(connect.encode(Version.V5))

    def dial_failed(self, reason: str) -> None:
        super().dial_failed(reason)
        self.phase = Phase.ENDED
        self.manager.session_lost(self, reason)

    def connection_lost(self, exc: Exception | None) -> None:
        expected = self.status is SessionStatus.TERMINATING
        if self.lane is not None and self.lane.transport is self.transport:  # no newer session has it
            self.lane.detach()
        super().connection_lost(exc)
        self._cancel_timer()
        was = self.phase
        self.phase = Phase.ENDED
        self._tail.clear()
        if was is Phase.ESTABLISHED:
            self.manager.node.session_closed(
                self, None if expected else exc or ConnectionError("closed by the peer")
            )
        reason = (
            str(exc)
            if exc
            else "connection closed"
            if was is Phase.ESTABLISHED
            else "closed in the handshake"
        )
        self.manager.session_lost(self, self.refusal.text if self.refusal else reason)

    def _handshake_timed_out(self) -> None:
        self._timer = None
        self.refusal = Refusal("timeout", "no answer in the handshake", ReasonCode.UNSPECIFIED_ERROR)
        self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.lane is not None:
            self.lane.set_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.lane is not None:
            self.lane.set_writable(True)

    def disconnect(self, reason: ReasonCode, text: str) -> None:
        """End the session and tell the neighbour why."""
        if self.transport is not None and self.phase is Phase.ESTABLISHED:
            if self.lane is not None:
                self.lane.suspend()
            packet = Disconnect(reason_code=int(reason), properties={Property.REASON_STRING: text})
            self.write(packet.encode(Version.V5))
        self.close()

    def part(self, reason: ReasonCode, text: str) -> None:
        """Tell the neighbour why, and let it end the session.

        A connection that is closed here while messages come in would be reset, and the reset may destroy the
        reason before the neighbour has read it.
        """
        if self.transport is None or self.phase is not Phase.ESTABLISHED:
            self.close()
            return
        packet = Disconnect(reason_code=int(reason), properties={Property.REASON_STRING: text})
        self.write(packet.encode(Version.V5))
        self.status = SessionStatus.TERMINATING
        if self.paused:
            self.transport.resume_reading()  # what comes is thrown away
        self._cut_off = self.driver.call_later(CLOSE_TIMEOUT, self.transport.abort)

    # receiving --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self.last_heard = self.driver.now()
        try:
            self._receive(data)
        except (MqttError, TopologyError) as error:
            self.manager.session_failed(self, error)
            reason = error.reason if isinstance(error, MqttError) else ReasonCode.PROTOCOL_ERROR
            self.refusal = Refusal("malformed", str(error), reason)
            self.disconnect(reason, str(error))

    def _receive(self, data: bytes) -> None:
        if self._tail.missing:
            joined = self._tail.join(data)
            if joined is None:
                return
            data = joined
        end_of_data = len(data)
        limit = self.manager.config.packet_size
        missing = 0
        pos = 0
        while pos < end_of_data and self.is_open:  # what follows the end of the session is not for it
            header_end = pos + 2
            if header_end <= end_of_data and data[pos + 1] < 128:
                end = header_end + data[pos + 1]
            else:
                length = decode_varint(data, pos + 1) if header_end <= end_of_data else None
                if length is None:
                    missing = 1
                    break
                header_end = length[1]
                end = header_end + length[0]
            if end - pos > HELLO_LIMIT and (end - pos > limit or self.phase is not Phase.ESTABLISHED):
                raise PacketTooLarge(f"packet of {end - pos} bytes on a link", clause="MQTT-3.1.2-24")
            if end > end_of_data:
                missing = end - end_of_data
                break
            if data[pos] | 2 == PUBLISH_QOS_1 and self.phase is Phase.ESTABLISHED:
                pos = self._publish(data, pos, header_end, end)
            elif data[pos] == PUBACK and self.phase is Phase.ESTABLISHED:
                pos = self._acknowledged(data, pos, end)
            else:
                self._packet(data[pos:end])
                pos = end
        if pos < end_of_data and self.is_open:
            self._tail.keep(data[pos:], missing)
        self.manager.node.dispatch.deliver()

    def _publish(self, data: bytes, pos: int, header_end: int, end: int) -> int:
        """PUBLISH with QoS 0 or 1 and neither DUP nor RETAIN; returns where the next frame begins."""
        node = self.manager.node
        link = self.link
        assert link is not None
        run = None if node.link_messages_looked_at else publish_run(data, pos, header_end, end, True)
        if run is None or run[2][:1] == b"$":
            self._packet(data[pos:end])
            return end
        run_end, size, topic, _ = run
        count = (run_end - pos) // size
        frames = data[pos:run_end]
        route = None
        taken = self.manager.cooperation.may_transfer(link)
        if taken:
            route = node.router.cache_of(link).get(topic)
            if route is None:
                route = node.router.find(topic, link)
        if data[pos] != PUBLISH:
            assert self.inbound is not None
            assert self.lane is not None
            self.lane.write(self.inbound.publish_run(frames, size))
        if not taken:
            node.counters["link_blocked_messages"] += count
            return run_end
        link.transferred_in += count
        node.counters["transferred_in"] += count
        node.injector.send_frames(frames, size, self.index, self)
        if route:
            node.router.forward_frames(route, frames, size, self.index, self)
        return run_end

    def _acknowledged(self, data: bytes, pos: int, end: int) -> int:
        """PUBACK; returns where the next frame begins."""
        if not self.manager.node.link_messages_looked_at:
            ids, run_end = acknowledged_ids(data, pos, Version.V5)
            if ids:
                assert self.lane is not None
                self.lane.acknowledged(ids)
                return run_end
        self._packet(data[pos:end])
        return end

    def _packet(self, frame: bytes) -> None:
        if self.phase is Phase.ESTABLISHED:
            self._established(decode(frame, Version.V5), frame)
        elif self.phase is Phase.AWAITING_CONNECT:
            packet = decode(frame, Version.V5)
            if not isinstance(packet, Connect):
                raise ProtocolViolation("the first packet is not CONNECT", clause="MQTT-3.1.0-1")
            self._connect(packet)
        elif self.phase is not Phase.ENDED:
            self._answer(decode(frame, Version.V5))

    # handshake, acceptor ----------------------------------------------------------------------

    def _connect(self, packet: Connect) -> None:
        hello = Hello.parse(packet.properties)
        self.peer_hello = hello
        self.client_id = packet.client_id
        self.index = hello.index
        self._far_window = _window(packet.properties)
        secret = self.manager.secret
        if secret is None:
            self._accept()
            return
        nonce = packet.properties.get(Property.AUTHENTICATION_DATA)
        if packet.properties.get(Property.AUTHENTICATION_METHOD) != METHOD or not isinstance(nonce, bytes):
            self._refuse(Refusal("secret", "a link secret is required", ReasonCode.BAD_AUTHENTICATION_METHOD))
            return
        if len(nonce) != NONCE:
            raise ProtocolViolation("nonce of a wrong size", clause="MQTT-4.12.0-1")
        own = self.driver.token(NONCE)
        self._nonces = nonce + own
        self.phase = Phase.AWAITING_AUTH
        me = self.manager.node.node_id
        properties = {
            Property.AUTHENTICATION_METHOD: METHOD,
            Property.AUTHENTICATION_DATA: own,
            Property.USER_PROPERTY: [("node", me)],
        }
        auth = Auth(reason_code=int(ReasonCode.CONTINUE_AUTHENTICATION), properties=properties)
        self.write(auth.encode(Version.V5))

    def _accept(self) -> None:
        assert self.peer_hello is not None
        outcome = self.manager.judge(self, self.peer_hello)
        if isinstance(outcome, Refusal):
            self._refuse(outcome)
            return
        config = self.manager.config
        properties = {
            Property.RECEIVE_MAXIMUM: config.inflight,
            Property.MAXIMUM_PACKET_SIZE: config.packet_size,
            Property.USER_PROPERTY: outcome.properties(),
        }
        secret = self.manager.secret
        if secret is not None:
            far, me = self.peer_hello.node, self.manager.node.node_id
            properties[Property.AUTHENTICATION_METHOD] = METHOD
            properties[Property.AUTHENTICATION_DATA] = proof(secret, "acceptor", self._nonces, far, me)
        self.write(ConnAck(session_present=False, reason_code=0, properties=properties).encode(Version.V5))
        self._establish(replace(self.peer_hello, age=outcome.age))

    def _refuse(self, refusal: Refusal) -> None:
        self.manager.refused_peer(self, refusal)
        self.refusal = refusal
        self.write(refusal.connack())
        self.phase = Phase.ENDED
        self.close()

    # handshake, dialer (and the acceptor's second AUTH) -----------------------------------------

    def _answer(self, packet: Packet) -> None:
        if isinstance(packet, Auth) and self.phase is Phase.AWAITING_AUTH:
            if self.neighbor is None:
                self._check_dialer(packet)
            else:
                self._answer_challenge(packet)
        elif isinstance(packet, ConnAck) and self.neighbor is not None:
            self._connack(packet)
        else:
            raise ProtocolViolation(f"{type(packet).__name__} in the handshake", clause="MQTT-4.12.0-1")

    def _check_dialer(self, packet: Auth) -> None:
        secret, hello = self.manager.secret, self.peer_hello
        assert secret is not None
        assert hello is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        expected = proof(secret, "dialer", self._nonces, hello.node, self.manager.node.node_id)
        if not isinstance(given, bytes) or not proof_holds(given, expected):
            self._refuse(Refusal("secret", "wrong link secret", ReasonCode.NOT_AUTHORIZED))
            return
        self._accept()

    def _answer_challenge(self, packet: Auth) -> None:
        secret = self.manager.secret
        assert secret is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        said = dict(packet.properties.get(Property.USER_PROPERTY, ()))
        me, far = self.manager.node.node_id, said.get("node", "")
        if not isinstance(given, bytes) or len(given) != NONCE:
            raise ProtocolViolation("AUTH without a nonce", clause="MQTT-4.12.0-1")
        self._nonces += given
        self.client_id = far
        self.phase = Phase.AWAITING_CONNACK
        properties = {
            Property.AUTHENTICATION_METHOD: METHOD,
            Property.AUTHENTICATION_DATA: proof(secret, "dialer", self._nonces, me, far),
        }
        auth = Auth(reason_code=int(ReasonCode.CONTINUE_AUTHENTICATION), properties=properties)
        self.write(auth.encode(Version.V5))

    def _connack(self, packet: ConnAck) -> None:
        if packet.reason_code != 0:
            self.refusal = Refusal.parse(packet)
            self.phase = Phase.ENDED
            self.close()
            return
        hello = Hello.parse(packet.properties)
        if not self._proves_secret(packet, hello):
            self._give_up("secret", "the neighbour did not prove the link secret")
            return
        refusal = self.manager.judge_answer(self, hello)
        if refusal is not None:
            self._give_up(refusal.kind, refusal.text)
            return
        self._far_window = _window(packet.properties)
        self.client_id = f"{hello.node}/{self.index}"
        self._establish(hello)

    def _proves_secret(self, packet: ConnAck, hello: Hello) -> bool:
        secret = self.manager.secret
        if secret is None:
            return True
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        expected = proof(secret, "acceptor", self._nonces, self.manager.node.node_id, hello.node)
        return (
            self.phase is Phase.AWAITING_CONNACK
            and hello.node == self.client_id
            and isinstance(given, bytes)
            and proof_holds(given, expected)
        )

    def _give_up(self, kind: str, text: str) -> None:
        self.refusal = Refusal(kind, text, ReasonCode.NOT_AUTHORIZED)
        self.phase = Phase.ENDED
        self.close()

    def _establish(self, hello: Hello) -> None:
        self._cancel_timer()
        self.manager.handshake_done(self)
        self.phase = Phase.ESTABLISHED
        self.peer_hello = hello
        self.manager.node.session_established(self)
        self.manager.session_established(self, hello)

    def bind(self, link: NeighborLink) -> None:
        """Become session ``index`` of a link."""
        self.link = link
        self.lane = link.lanes[self.index]
        self.inbound = link.inbounds[self.index]
        assert self.transport is not None
        window, packet_size = self._far_window
        self.lane.attach(self.transport, window=window, max_packet_size=packet_size)
        self.lane.writable = self.writable

    def unbind(self) -> None:
        """No longer be part of a link: another session has taken the place, or the link has gone."""
        self.link = self.lane = self.inbound = None

    # established ------------------------------------------------------------------------------

    def _established(self, packet: Packet, frame: bytes) -> None:
        link, lane, inbound = self.link, self.lane, self.inbound
        assert link is not None
        assert lane is not None
        assert inbound is not None
        match packet:
            case Publish():
                if packet.topic.startswith(CONTROL):
                    self.manager.cooperation.control_message(link, packet.topic, packet.payload)
                    return
                new = True
                if packet.qos and packet.packet_id is not None:
                    new, answer = inbound.publish(packet.packet_id, packet.qos, packet.dup)
                    lane.write(answer)
                if new:
                    self.manager.cooperation.message_arrived(self, link, packet, frame)
            case PubAck():
                lane.on_puback(packet.packet_id, packet.reason_code)
            case PubRec():
                lane.on_pubrec(packet.packet_id, packet.reason_code)
            case PubRel():
                lane.write(inbound.pubrel(packet.packet_id))
            case PubComp():
                lane.on_pubcomp(packet.packet_id)
            case Subscribe():
                changes, answer = link.subscribed(packet)
                lane.write(answer)
                self.manager.cooperation.interest_changed(link, changes)
            case Unsubscribe():
                changes, answer = link.unsubscribed(packet)
                lane.write(answer)
                self.manager.cooperation.interest_changed(link, changes)
            case SubAck() | UnsubAck():
                lane.release_packet_id(packet.packet_id)
                refused = sum(code >= 0x80 for code in packet.reason_codes)
                if refused:
                    self.manager.node.counters["inter_subscribes_refused"] += refused
            case PingReq():
                lane.write(PingResp().encode(Version.V5))
            case PingResp():
                pass
            case Disconnect():
                text = packet.properties.get(Property.REASON_STRING, f"reason 0x{packet.reason_code:02X}")
                removed = packet.reason_code == ReasonCode.ADMINISTRATIVE_ACTION
                kind = "removed" if removed else "disconnected"
                self.refusal = Refusal(kind, str(text), ReasonCode.UNSPECIFIED_ERROR)
                self.close()
            case _:
                raise ProtocolViolation(f"{type(packet).__name__} on a link", clause="MQTT-4.13")
        type_ = PacketType(frame[0] >> 4)
        if type_ is not PacketType.PUBLISH:
            self.manager.node.dispatch.arrived(Source.LINK, self, type_, frame)

    def ping(self) -> None:
        if self.lane is not None:
            self.lane.write(PingReq().encode(Version.V5))


def _window(properties: Any) -> tuple[int, int]:
    return (
        int(properties.get(Property.RECEIVE_MAXIMUM, 65535)),
        int(properties.get(Property.MAXIMUM_PACKET_SIZE, 1 << 28)),
    )
