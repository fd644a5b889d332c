"""One TCP connection of a link: handshake, then transferred messages and control messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ildm.api import Role, SessionStatus, Source, Unreachable
from ildm.core.frames import without_dup
from ildm.core.link.admitting import Admitting
from ildm.core.link.budgets import FEATURE, window_bytes
from ildm.core.link.certificates import Certificates, not_certified
from ildm.core.link.compression import CompressedTransport
from ildm.core.link.control import CONTROL
from ildm.core.link.features import NONE
from ildm.core.link.handshake import Accepted, AcceptorHandshake, DialerHandshake, Handshake, Phase
from ildm.core.link.hello import NONCE, Hello, Refusal
from ildm.core.link.judging import SAME_BROKER
from ildm.core.link.reading import FILTERS, Reader
from ildm.core.link.topology import TopologyError
from ildm.core.link.versions import PROTOCOLS
from ildm.core.session import CLOSE_TIMEOUT
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.identity import UNKNOWN
from ildm.mqtt import (
    Disconnect,
    IldmError,
    LocalError,
    MqttError,
    Packet,
    PacketType,
    PingReq,
    PingResp,
    Properties,
    Property,
    ProtocolViolation,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    SubAck,
    UnsubAck,
    Version,
    decode,
)
from ildm.text import reason as in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ildm.core.link.cooperation import Cooperation
    from ildm.core.link.dialer import Neighbor
    from ildm.core.link.handshake import Terms
    from ildm.core.link.judging import HelloJudge
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.sender import Sender

BLAMES = frozenset(
    (
        ReasonCode.MALFORMED_PACKET,
        ReasonCode.PROTOCOL_ERROR,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
    )
)
"""Reasons of DISCONNECT that may lie in a message."""
UNANSWERED = 4
"""PINGREQ that a neighbour may answer before a SUBSCRIBE or UNSUBSCRIBE that it got before them."""
BOTH_PART = 1.0
"""Seconds until a session ends that both ends have refused: neither reads the other's reason."""


class Owner(Protocol):
    """What sessions ask and tell; it has all links."""

    @property
    def parts(self) -> LinkParts: ...

    @property
    def cooperation(self) -> Cooperation: ...

    @property
    def terms(self) -> Terms: ...

    @property
    def judge(self) -> HelloJudge: ...

    @property
    def links(self) -> Mapping[str, NeighborLink]: ...

    def session_accepted(self, session: LinkSession) -> bool: ...

    def session_established(self, session: LinkSession, hello: Hello) -> None: ...

    def session_closed(self, session: LinkSession, unexpected: Exception | None) -> None: ...

    def session_failed(self, session: LinkSession, error: IldmError) -> None: ...

    def session_lost(self, session: LinkSession, reason: str, why: Unreachable = ...) -> None: ...

    def node_failed(self, session: LinkSession, error: LocalError) -> None: ...

    def refused_peer(self, session: LinkSession, refusal: Refusal) -> None: ...

    def same_broker_told(self, session: LinkSession, link: NeighborLink, number: str) -> None: ...


class LinkSession(Reader):
    """A session with a neighbour node. ``neighbor`` is set when this node has dialed."""

    __slots__ = (
        "_agreed",
        "_certificates",
        "_spent",
        "_timer",
        "handshake",
        "last_heard",
        "manager",
        "neighbor",
        "refusal",
    )
    role = Role.LINK

    def __init__(self, manager: Owner, neighbor: Neighbor | None, index: int) -> None:
        super().__init__(manager.parts, manager.cooperation, index)
        self.manager = manager
        self.neighbor = neighbor
        self.version = Version.V5
        self.handshake: Handshake | None = None
        """None before there is a connection."""
        self.refusal: Refusal | None = None
        self.last_heard = 0.0
        self._agreed: Accepted | None = None
        self._certificates: Certificates | None = None
        self._spent = 0
        """Bytes of the handshake that were written."""
        self._timer: Any = None

    @property
    def phase(self) -> Phase:
        return Phase.DIALING if self.handshake is None else self.handshake.phase

    @property
    def far(self) -> str:
        """The node that the other end has said it is; empty: it has said nothing."""
        return "" if self.handshake is None else self.handshake.far

    @property
    def features(self) -> frozenset[str]:
        """Those that both ends have named in the handshake; none before its end."""
        return NONE if self._agreed is None else self._agreed.features

    @property
    def protocol(self) -> int:
        """The one that both ends have, as far as this end knows by now."""
        return PROTOCOLS.low if self.handshake is None else self.handshake.protocol

    # connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._coded = None
        self._spent = 0
        transport.set_write_buffer_limits(high=self.parts.limits.write_buffer)
        self.last_heard = self.driver.now()
        self._timer = self.driver.call_later(self.parts.config.connect_timeout, self._handshake_timed_out)
        nonce = self.driver.token(NONCE)
        self._certificates = Certificates.of(transport)
        binding = b""
        if self._certificates is not None:
            binding = self._certificates.binding(dialed=self.neighbor is not None)
        if self.neighbor is None:
            self.handshake = AcceptorHandshake(self.manager.terms, nonce, self._judge, binding)
            if not self.manager.session_accepted(self):
                self.abort()
            return
        given_up = self.index == 0 and self.neighbor.session is not self
        if self.neighbor.gone or given_up:  # removed while the connection was made
            self.abort()
            return
        far = self.neighbor.node_id
        hello = self._named(self.manager.judge.hello(far, self.index, self.neighbor.token))
        expected = self.neighbor.expected or self.parts.config.node_at(self.neighbor.address)
        self.handshake = handshake = DialerHandshake(
            self.manager.terms.dialing(former=self.neighbor.former_secret),
            hello,
            nonce,
            lambda answer: self._judge_acceptor(answer, expected, goes_on=far if not hello.fresh else None),
            binding,
        )
        self._greet(handshake.start())

    def _greet(self, data: bytes) -> None:
        self._spent += len(data)
        self.write(data)

    def _judge(self, hello: Hello) -> Hello | Refusal:
        self.index = hello.index
        answer = self._not_certified(hello) or self.manager.judge.dialer(hello)
        return self._named(answer) if isinstance(answer, Hello) else answer

    def _named(self, hello: Hello) -> Hello:
        """Without the codecs that this connection is not to have."""
        off = self.parts.compression.unnamed(self.encrypted)
        return replace(hello, features=hello.features - off) if hello.features & off else hello

    def _judge_acceptor(self, answer: Hello, expected: str | None, goes_on: str | None) -> Refusal | None:
        """``goes_on``: the node that was told that the link with it does."""
        refusal = self._not_certified(answer) or self.manager.judge.acceptor(answer, expected)
        begins = self.manager.judge.begins(self.manager.links.get(answer.node))
        if refusal is None and self.index == 0 and begins and answer.node == goes_on:
            # it would keep what is forgotten here
            text = "the link has left the cooperation while it was dialed"
            refusal = Refusal("outdated", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        return refusal

    def _not_certified(self, hello: Hello) -> Refusal | None:
        return not_certified(self.parts.config, self._certificates, hello.node)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason, why)
        self.manager.session_lost(self, reason, why)

    def connection_lost(self, exc: Exception | None) -> None:
        coded = self._coded
        while self.is_open and (self.has_slices or (coded is not None and coded.waits)):
            self.data_received(b"")  # what has come before is not lost
        expected = self.status is SessionStatus.TERMINATING
        if (
            self.sender is not None and self.sender.wire.transport is self.transport
        ):  # no newer session has it
            self.sender.detach()
        super().connection_lost(exc)
        self._cancel_timer()
        self._tail.clear()
        self._give_up_waiting()
        self.resume(FILTERS)
        if coded is not None:
            coded.end()
            self._coded = None
        was = self.phase
        if was is Phase.ESTABLISHED:
            self.manager.session_closed(
                self, None if expected else exc or ConnectionError("closed by the peer")
            )
        closed = "connection closed" if was is Phase.ESTABLISHED else "closed in the handshake"
        why = in_words(exc) if exc else closed
        self.manager.session_lost(self, self.refusal.text if self.refusal else why)

    def _handshake_timed_out(self) -> None:
        self._timer = None
        if self.refusal is None:
            self.give_up("timeout", "no answer in the handshake")
        else:
            self.abort()  # it was refused, and does not go: that is why there is no link, still

    def give_up(self, kind: str, text: str) -> None:
        """End the session at once: the neighbour would not hear of it."""
        self.refusal = Refusal(kind, text, ReasonCode.UNSPECIFIED_ERROR)
        self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.sender is not None:
            self.sender.wire.set_flowing(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.sender is not None:
            self.sender.wire.set_flowing(True)

    def check_unread(self) -> None:
        """End the session when the neighbour lets answers to it pile up without reading them."""
        sender, config = self.sender, self.parts.config
        # the window that is repeated on a new connection waits for nobody
        if sender is not None and sender.wire.unread > config.control_bytes + config.inflight_bytes:
            self.parts.counters["link_sessions_unread"] += 1
            self.give_up("timeout", "it does not read")

    def disconnect(self, reason: ReasonCode, text: str) -> None:
        """End the session and tell the neighbour why."""
        if self.transport is not None and self.phase is Phase.ESTABLISHED:
            if self.sender is not None:
                self.sender.suspend()
            packet = Disconnect(reason_code=int(reason), properties={Property.REASON_STRING: text})
            self.write(packet.encode(Version.V5))
        self.close()

    def part(
        self,
        reason: ReasonCode,
        text: str,
        said: list[tuple[str, str]] | None = None,
        patience: float = CLOSE_TIMEOUT,
    ) -> None:
        """Tell the neighbour why, and let it end the session.

        A connection that is closed here while messages come in would be reset, and the reset may destroy the
        reason before the neighbour has read it.
        """
        if self.transport is None or self.phase is not Phase.ESTABLISHED:
            self.close()
            return
        properties: Properties = {Property.REASON_STRING: text}
        if said:
            properties[Property.USER_PROPERTY] = said
        self.write(Disconnect(reason_code=int(reason), properties=properties).encode(Version.V5))
        self.status = SessionStatus.TERMINATING
        if self.paused:
            self.transport.resume_reading()  # what comes is thrown away
        self._cut_off = self.driver.call_later(patience, self.transport.abort)

    def refuse(self, refusal: Refusal, number: int) -> None:
        """End a session of a link for what was found out since the handshake.

        ``number``: this node's, see :mod:`ildm.core.broker.same_broker`.
        """
        self.refusal = refusal
        said = [("refusal", refusal.kind), ("broker", str(number))]
        self.part(refusal.reason, refusal.text, said, BOTH_PART)  # the neighbour may be doing the same

    # receiving --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        coded = self._coded
        if not self.is_open:
            if coded is not None:
                coded.drop()
            return
        self.last_heard = self.driver.now()
        try:
            try:
                if coded is not None and (data or not self.has_slices):
                    data = coded.plain(data)
                self.receive(data)
            finally:
                self.parts.router.gathering.send()
            self.parts.dispatch.deliver()
            if not self.writable:
                self.check_unread()
        except (MqttError, TopologyError) as error:
            self.manager.session_failed(self, error)
            reason = error.reason if isinstance(error, MqttError) else ReasonCode.PROTOCOL_ERROR
            self.refusal = Refusal("malformed", str(error), reason)
            self.disconnect(reason, str(error))
        except LocalError as error:
            self.manager.node_failed(self, error)
            self.give_up("internal", str(error))

    def take_packet(self, frame: bytes) -> None:
        if self.link is not None and frame[0] >> 4 == PacketType.CONNECT:  # whatever version it is of
            raise ProtocolViolation("CONNECT on a link", clause="MQTT-3.1.0-2")
        packet = decode(frame, Version.V5)
        if self.link is not None:
            self._established(packet, frame)
            return
        handshake = self.handshake
        assert handshake is not None
        self._greet(handshake.receive(packet, frame))
        outcome = handshake.outcome
        if isinstance(outcome, Refusal):
            self.refusal = outcome
            if self.neighbor is None:
                self.manager.refused_peer(self, outcome)
            self.close()
        elif outcome is not None:
            self._cancel_timer()
            self._agreed = outcome
            self.client_id = f"{outcome.hello.node}/{self.index}"
            self._compress(outcome.features)
            self.manager.session_established(self, outcome.hello)

    def _compress(self, features: frozenset[str]) -> None:
        """What follows the handshake is compressed, both ways, if both ends want that."""
        compression = self.parts.compression
        codec = compression.codec(features)
        if codec is None:
            return
        assert self.transport is not None
        self.transport = self._coded = CompressedTransport(
            self.transport,
            codec,
            compression.contexts,
            self.driver,
            self.parts.counters,
            self._pays,
            lambda: self.data_received(b""),
            not self.paused,
        )

    def _pays(self) -> bool:
        """Whether bytes are dearer than processor time on this link."""
        link = self.link
        if link is None:
            return False
        return link.budget is not None or self.parts.compression.pays(link.round_trip.value)

    @property
    def encrypted(self) -> bool:
        return self._certificates is not None

    @property
    def coded(self) -> CompressedTransport | None:
        """None: what crosses is not compressed."""
        return self._coded

    def bind(self, link: NeighborLink) -> None:
        """Become session ``index`` of a link."""
        self.link = link
        self.sender = link.senders[self.index]
        self.inbound = link.inbounds[self.index]
        self.inbound.connected()
        self._held_back = self.cooperation.start_gate.hold_back(self, self.inbound, self._go_on)
        assert self.transport is not None
        assert self._agreed is not None
        self.sender.attach(
            self.transport,
            window=self._agreed.window,
            window_bytes=self._window_bytes(link),
            max_packet_size=self._agreed.packet_size,
        )
        if self._coded is not None:
            self.sender.wire.store = self._coded.store
            self._coded.totals = link.totals
        self.sender.wire.set_flowing(self.writable)
        self.follow_budget()

    def _window_bytes(self, link: NeighborLink) -> int:
        """What the neighbour lets be under way, by local names."""
        assert self._agreed is not None
        window_bytes = self._agreed.hello.inflight_bytes or link.config.inflight_bytes
        if link.rules is None:
            return window_bytes
        growth = link.rules.outgoing.growth + link.rules.incoming.answer_growth
        grown = min(self._agreed.window, link.config.inflight) * growth
        return max(1, window_bytes - grown)  # the neighbour counts wire names

    def follow_rules(self) -> None:
        """The link has other rules."""
        if self.link is not None and self.sender is not None:
            self.sender.bound(self._window_bytes(self.link), widens=False)

    def follow_budget(self) -> None:
        """The link has another budget, or none."""
        sender, transport = self.sender, self.transport
        if sender is None or transport is None:
            return
        pacer, high = sender.wire.pacer, self.parts.limits.write_buffer
        if pacer is not None:
            high = min(high, pacer.budget.burst)
            pacer.bind(self._hold, None if self._coded is None else self._coded.coded_bytes, self._spent)
            self._spent = 0
        transport.set_write_buffer_limits(high=high)
        self.follow_window()

    def follow_window(self) -> None:
        """What may be under way has changed with the budget, or the round-trip time."""
        link, sender = self.link, self.sender
        if link is None or sender is None:
            return
        size = self._window_bytes(link)
        if link.budget is not None:
            ratio = 1.0 if self._coded is None else self._coded.ratio()
            size = min(size, window_bytes(link, ratio))
        sender.bound(size, widens=True)

    def _hold(self, holds: bool) -> None:
        """Read no more while answers take more than the budget, or read again."""
        if holds:
            self.pause(FEATURE)
        else:
            self.resume(FEATURE)

    def unbind(self) -> None:
        """No longer be part of a link: another session has taken the place, or the link has gone."""
        self.link = self.sender = self.inbound = None
        self._give_up_waiting()

    # established ------------------------------------------------------------------------------

    def _established(self, packet: Packet, frame: bytes) -> None:
        link, sender, inbound = self.link, self.sender, self.inbound
        assert link is not None
        assert sender is not None
        assert inbound is not None
        match packet:
            case Publish():
                if packet.topic.startswith(CONTROL):
                    self.cooperation.control_message(link, packet.topic, packet.payload, self.index)
                else:
                    self._message(packet, frame, link, inbound)
                return
            case PubAck():
                sender.on_puback(packet.packet_id, packet.reason_code)
            case PubRec():
                sender.on_pubrec(packet.packet_id, packet.reason_code)
            case PubRel():
                sender.wire.write(inbound.released((packet.packet_id,)))
            case PubComp():
                sender.completed((packet.packet_id,))
            case SubAck() | UnsubAck():
                link.announcer.acknowledged(packet.packet_id, packet.reason_codes)
            case PingReq():
                sender.wire.write(PingResp().encode(Version.V5))
                self.driver.call_soon(sender.wire.flush)  # the neighbour measures
            case PingResp():
                if self.index == 0:
                    link.round_trip.answered(self.driver.precise())
                    self.cooperation.budgets.measured(link)
                    self.cooperation.membership.measured(link)
                    if link.announcer.ping_answered() > UNANSWERED:
                        self.give_up("timeout", "no acknowledgement of an inter-subscription")
                        return
            case Disconnect():
                self._disconnected(packet, link, sender)
            case _:
                raise ProtocolViolation(f"{type(packet).__name__} on a link", clause="MQTT-4.13")
        self.parts.dispatch.arrived(Source.LINK, self, PacketType(frame[0] >> 4), frame)

    def _message(self, packet: Publish, frame: bytes, link: NeighborLink, inbound: Inbound) -> None:
        """Take a transferred message, unless it has come before."""
        origin = inbound.received_ids.take(1) if packet.qos else UNKNOWN
        if not link.state.takes:  # neither taken nor acknowledged
            self.parts.counters["link_blocked_messages"] += 1
            return
        batch = Batch(without_dup(frame, len(frame)) if packet.dup else frame, 1, len(frame))
        waits = inbound if packet.qos else None
        if waits is not None and not waits.take(batch, packet.dup):
            return
        try:
            if link.rules is not None and not packet.topic.startswith("$"):
                edge = Admitting(self.parts, link, self.index, link.rules)
                found = edge.message(packet, batch, waits, origin)
                if found is None:
                    return
                packet, batch, waits, origin = found
            self.cooperation.message_arrived(self, link, packet, batch, waits, origin)
        except MqttError:
            if waits is not None:
                waits.give_back(batch)
            raise

    def _disconnected(self, packet: Disconnect, link: NeighborLink, sender: Sender) -> None:
        """The neighbour ends the session, and says why."""
        text = packet.properties.get(Property.REASON_STRING, f"reason 0x{packet.reason_code:02X}")
        removed = packet.reason_code == ReasonCode.ADMINISTRATIVE_ACTION
        kind = "removed" if removed else "disconnected"
        said = dict(packet.properties.get(Property.USER_PROPERTY, ()))
        if said.get("refusal") == SAME_BROKER:
            kind = SAME_BROKER
            self.manager.same_broker_told(self, link, said.get("broker", ""))
        self.refusal = Refusal(kind, str(text), ReasonCode.UNSPECIFIED_ERROR)
        if packet.reason_code in BLAMES:
            sender.isolation.hung_up()
        self.close()

    def ping(self) -> None:
        if self.sender is None or self.link is None:
            return
        wire = self.sender.wire
        if self.index == 0:
            unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
            idle = wire.idle and wire.writable and not (unsent or self.sender.queued_messages)
            self.link.round_trip.asked(self.driver.precise(), idle)
        wire.write(PingReq().encode(Version.V5))
        # A delay of this node is no part of the round trip. Not at once: the session may end by that.
        self.driver.call_soon(wire.flush)
