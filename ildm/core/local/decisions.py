"""A local client whose packets pass through filters: what they reject is answered, what they defer waits.

While a decision is awaited nothing of the client is read beyond the chunk the packet came in, whose rest is
kept: what it sends stays in order, and its buffers are TCP's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.api import Source
from ildm.core.local.publishing import Publisher
from ildm.core.local.requests import Rejections
from ildm.core.plugin.filtering import Awaited, Rejected
from ildm.mqtt import (
    ConnAck,
    ConnectReturnCode,
    MqttError,
    PubAck,
    Publish,
    PubRec,
    ReasonCode,
    SubAck,
    Subscribe,
    Subscription,
    decode,
    decode_varint,
    encode_varint,
    members,
)
from ildm.mqtt.constants import MAX_REMAINING_LENGTH
from ildm.mqtt.properties import property_at, property_section

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.local.parts import ClientParts
    from ildm.mqtt import Connect
    from ildm.mqtt.properties import Properties

FAILURE = 0x80
"""Return code of SUBACK for a subscription that is not made (3.1.1, 3.9.3)."""
ANY_SIZE = 0xFFFFFFFF
"""Bytes of a packet for a client that has set no maximum."""
LARGEST_PACKET = MAX_REMAINING_LENGTH + 5
"""Bytes of the largest that there is (2.1.4)."""

_NEAREST = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ConnectReturnCode.IDENTIFIER_REJECTED,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.UNSPECIFIED_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_UNAVAILABLE: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.QUOTA_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.USE_ANOTHER_SERVER: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_MOVED: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.CONNECTION_RATE_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
}


def return_code(reason: ReasonCode) -> ConnectReturnCode:
    """The return code of CONNACK before MQTT 5 (3.1.1, 3.2.2.3) that is nearest to a reason.

    What says that it may be otherwise later is "server unavailable", what does not, "not authorized".
    """
    return _NEAREST.get(reason, ConnectReturnCode.NOT_AUTHORIZED)


def with_packet_size(frame: bytes, limit: int) -> bytes:
    """A CONNACK of MQTT 5 that tells a maximum packet size of ``limit`` at most (3.2.2.3.6).

    All else in it is the same bytes.

    Raises:
        MalformedPacket: its properties cannot be read.
    """
    length = decode_varint(frame, 1)
    if length is None or limit >= LARGEST_PACKET:
        return frame
    body = length[1]
    begin = body + 2
    told = limit.to_bytes(4, "big")
    at = property_at(frame, begin, members.MAXIMUM_PACKET_SIZE)
    if at:
        return frame if frame[at : at + 4] <= told else frame[:at] + told + frame[at + 4 :]
    start, end = property_section(frame, begin)
    properties = frame[start:end] + bytes((members.MAXIMUM_PACKET_SIZE,)) + told
    rest = frame[body:begin] + encode_varint(len(properties)) + properties + frame[end:]
    return frame[:1] + encode_varint(len(rest)) + rest


class FilteredClient(Publisher):
    """The part of a client's session that asks the filters and carries out what they decide."""

    __slots__ = (
        "_after_rest",
        "_awaited",
        "_changed",
        "_fetching",
        "_goodbye",
        "_hold_left",
        "_last_call",
        "_no_room",
        "_packet_room",
        "_pinged",
        "_pinging",
        "_rest",
        "_told_filtered",
        "_wants_reasons",
    )

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        self._awaited: Awaited[Any] | None = None
        self._goodbye: Awaited[None] | None = None
        """It is awaited that the broker answers what the client has sent before its DISCONNECT."""
        self._fetching: Awaited[None] | None = None
        """It is awaited that the broker gets the retained messages a SUBSCRIBE asks for."""
        self._hold_left = 0.0
        """Seconds for which SUBSCRIBEs that follow each other may still wait for that."""
        self._rest = b""  # of a chunk of many packets: its turn comes when others have had theirs
        self._after_rest: Callable[[], None] | None = None
        self._changed: tuple[Connect, Connect] | None = None
        """Its CONNECT of MQTT 5 as it has sent it and as the broker got it, until CONNACK."""
        self._last_call: Timer | None = None
        self._no_room = False
        """What has been put off waits until the client is released."""
        self._pinging: Timer | None = None
        self._packet_room = ANY_SIZE
        """The largest packet that it takes."""
        self._wants_reasons = False
        self._pinged = 0.0
        self._told_filtered: set[str] | None = None
        """What kinds of its packets the log has named as rejected."""

    @abstractmethod
    def _go_on(self) -> None:
        """A decision has been carried out: what waited behind the packet has its turn."""

    @property
    @abstractmethod
    def keep_alive(self) -> int:
        """Seconds, as the broker counts them; 0: it does not."""

    def takes_reasons(self, connect: Connect) -> None:
        """Note what the client allows in acknowledgements, as it has sent it (MQTT-3.1.2-29)."""
        properties = connect.properties
        if connect.version is members.V5:
            self._wants_reasons = bool(properties.get(members.REQUEST_PROBLEM_INFORMATION, 1))
            self._packet_room = int(properties.get(members.MAXIMUM_PACKET_SIZE, ANY_SIZE))

    # CONNECT ----------------------------------------------------------------------------------

    def connect_changed(self, sent: Connect, passed: Connect) -> None:
        """The broker gets another CONNECT than the client has sent."""
        if sent.version is members.V5:
            self._changed = sent, passed

    def connack(self, frame: bytes) -> bytes:
        """The broker's CONNACK, with what the client must know of the node and the broker does not say."""
        changed, self._changed = self._changed, None
        if changed is not None:
            frame = self._told_otherwise(frame, *changed)
        if self.version is not members.V5:
            return frame
        amended = with_packet_size(frame, self.parts.limits.packet_size)
        return amended if len(amended) <= self._packet_room else frame

    def _told_otherwise(self, frame: bytes, sent: Connect, passed: Connect) -> bytes:
        """With what a server tells that does not do as the client has asked.

        MQTT-3.1.2-21, MQTT-3.2.2-16 and 3.2.2.3.2; the broker does not know that it does otherwise.
        """
        packet = decode(frame, self.version)
        assert isinstance(packet, ConnAck)
        told: Properties = {}
        if not sent.client_id and passed.client_id:
            told[members.ASSIGNED_CLIENT_IDENTIFIER] = passed.client_id
        if sent.keep_alive != passed.keep_alive:
            told[members.SERVER_KEEP_ALIVE] = passed.keep_alive
        expiry = members.SESSION_EXPIRY_INTERVAL
        if sent.properties.get(expiry, 0) != passed.properties.get(expiry, 0):
            told[expiry] = passed.properties.get(expiry, 0)
        packet.properties = {**told, **packet.properties}
        amended = packet.encode(self.version)
        return amended if told and len(amended) <= self._packet_room else frame

    # decisions that wait ----------------------------------------------------------------------

    def _when_decided(self, answer: object, carry_out: Callable[[Any], bytes | None]) -> bytes | None:
        """Carry a decision out, now or when it has come; answers what is to be relayed now."""
        if not isinstance(answer, Awaited):
            return carry_out(answer)
        self._awaited = answer
        self._kept_back()
        answer.then(partial(self._decided, carry_out))
        return None

    def _decided(self, carry_out: Callable[[Any], bytes | None], answer: object) -> None:
        self._awaited = None
        try:
            passed = carry_out(answer)
        except MqttError as error:
            self._rest = b""
            self.fail(error)
            passed = None
        if passed and self.paired is not None:
            self.paired.write(passed)
        self.parts.dispatch.deliver()
        if self._awaited is None:
            self._go_on()

    def _no_more_to_come(self) -> None:
        """The client has gone: what it has sent still counts, if that is decided in time."""
        if self.paired is None or not self.paired.is_open:
            self._stop_waiting()
        elif self._awaited is not None or self._rest:
            limit = self.parts.limits.decision_timeout
            self._last_call = self.driver.call_later(limit, self._too_late)

    def broker_lost(self) -> None:
        """The connection with the broker has ended: nothing can be passed on any more."""
        waited = self._awaited is not None
        self._stop_waiting()
        self.close()
        if waited and self.transport is None:
            self._go_on()

    def _too_late(self) -> None:
        self._last_call = None
        if self._awaited is None:
            self._no_more_to_come()  # it is being dealt with
        else:
            self._stop_waiting()
            self._go_on()

    def _stop_waiting(self) -> None:
        """The session ends, and with it what is undecided."""
        if self._last_call is not None:
            self._last_call.cancel()
            self._last_call = None
        if self._awaited is not None:
            self._awaited.cancel()
            self.parts.counters["undecided"] += self._awaited not in (self._goodbye, self._fetching)
            self._awaited = None
            self._rest = b""

    def _after(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is put off: the end of a client comes after what it has sent."""
        if self._rest or self._awaited is not None:
            self._after_rest = callback
        else:
            callback()

    def _when_answered(self, carry_out: Callable[[Any], bytes]) -> bytes | None:
        """Carry out when the broker has answered what it has got, or has had its time.

        After a DISCONNECT it answers nothing more, and what it has taken by then would stay at its site.
        """
        assert self.paired is not None
        goodbye = self._goodbye = Awaited()
        self.paired.linger(lambda: goodbye.tell(None))
        return self._when_decided(goodbye, carry_out)

    def say_goodbye(self) -> None:
        """A DISCONNECT that waits goes to the broker now: something is to follow it."""
        if self._goodbye is not None:
            self._goodbye.tell(None)

    def _kept_back(self) -> None:
        """The broker does not hear of what the client sends; it must not take it for gone (MQTT-3.1.2-22).

        With a third of the keep alive between two PINGREQ it always hears within one and a half times.
        """
        now = self.driver.now()
        if self.paired is not None and self.keep_alive and now - self._pinged >= self.keep_alive / 3:
            self._pinged = now
            self.paired.ping()

    # without room -----------------------------------------------------------------------------

    def _wait_for_room(self) -> None:
        """Nothing more of the client is read until it is released; the broker is not to miss it meanwhile."""
        if not self._no_room:
            self._no_room = True
            self.parts.counters["clients_unread"] += 1
            self._ping_in_time()
        self.pause("room")

    def _ping_in_time(self) -> None:
        if self.keep_alive:
            self._pinging = self.driver.call_later(self.keep_alive / 3, self._ping_meanwhile)

    def _ping_meanwhile(self) -> None:
        if self.paired is not None and self.paired.is_open:
            self.paired.ping()
            self._ping_in_time()

    def _room_again(self) -> bool:
        """There is room, or the client has gone; whether something has waited for it."""
        waited, self._no_room = self._no_room, False
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None
        return waited

    # what is rejected -------------------------------------------------------------------------

    def _filtered(self, frame: bytes, answer: bytes | Rejected) -> bytes | None:
        """The filters have decided about a PUBLISH; answers what is to be relayed."""
        if isinstance(answer, Rejected):
            self._drop(frame, answer)
            return None
        if self.dropped_qos2 and frame[0] & 6 == 4:
            packet = decode(frame, self.version)
            assert isinstance(packet, Publish)
            self.dropped_qos2.discard(packet.packet_id or 0)  # its PUBREL is for the broker
        return self._passed(answer)

    @abstractmethod
    def _passed(self, frame: bytes) -> bytes | None:
        """A PUBLISH goes to the broker, unless it is refused; answers what is to be relayed."""

    def _drop(self, frame: bytes, rejected: Rejected) -> None:
        """Answer a message that a filter has dropped as the broker would have."""
        self.parts.counters["filtered"] += 1
        self._kept_back()
        packet = decode(frame, self.version)
        assert isinstance(packet, Publish)
        self._log_rejected("message", rejected, topic=packet.topic[:200])
        if packet.packet_id is None:
            return
        self._answered_at_once(len(frame))
        v5 = self.version is members.V5
        code = int(rejected.reason) if v5 else 0
        acknowledgement = PubAck if packet.qos == 1 else PubRec
        self._answer(
            self.with_reason(acknowledgement(packet_id=packet.packet_id, reason_code=code), rejected.text)
        )
        if packet.qos == 2 and code < 0x80:  # a failure ends the handshake (MQTT-4.3.3-4)
            if self.dropped_qos2 is None:
                self.dropped_qos2 = set()
            self.dropped_qos2.add(packet.packet_id)

    # SUBSCRIBE --------------------------------------------------------------------------------

    def _subscribe(self, frame: bytes) -> bytes | None:
        """Ask about each entry; answers what is to be relayed."""
        packet = decode(frame, self.version, self.parts.packet_limits)
        assert isinstance(packet, Subscribe)
        chain = self.parts.dispatch.chain
        if not chain.admits_subscriptions:
            return self._fetched(frame, packet.packet_id, packet.subscriptions)
        answers = chain.subscriptions(self, packet)
        return self._when_decided(answers, lambda answers: self._admitted(frame, packet, answers))

    def _admitted(
        self, frame: bytes, packet: Subscribe, answers: Sequence[Subscription | Rejected]
    ) -> bytes | None:
        """The broker gets what is admitted, in the client's own bytes if that is all of it as it was."""
        entries = [answer for answer in answers if not isinstance(answer, Rejected)]
        rejections = None
        if len(entries) < len(answers):
            rejections = self._rejections(packet.subscriptions, answers)
            if not entries:
                assert self.paired is not None
                self._kept_back()
                codes = rejections.merged(())
                self.paired.answer_suback(self.suback(packet.packet_id, codes, rejections.text, {}))
                return None
        elif all(entry is answer for entry, answer in zip(packet.subscriptions, entries, strict=True)):
            return self._fetched(frame, packet.packet_id, entries)
        admitted = Subscribe(packet_id=packet.packet_id, subscriptions=entries, properties=packet.properties)
        return self._fetched(admitted.encode(self.version), packet.packet_id, entries, rejections)

    def _fetched(
        self,
        frame: bytes,
        packet_id: int,
        entries: list[Subscription],
        rejections: Rejections | None = None,
    ) -> bytes | None:
        """The broker gets the SUBSCRIBE behind the retained messages that an overlay fetches for it.

        A client that sends many without waiting for SUBACK waits for all of them no longer than for one.
        """
        now = self.driver.now()
        if not len(self.pending):
            self._hold_left = self.parts.config.link.subscribe_wait

        def passes(answer: object) -> bytes:
            self._hold_left -= self.driver.now() - now
            return self._request(frame, packet_id, entries, rejections)

        names = [entry.topic_filter for entry in entries]
        self._fetching = self.parts.events.before_subscribe(names, self._hold_left)
        return passes(None) if self._fetching is None else self._when_decided(self._fetching, passes)

    def _request(
        self,
        frame: bytes,
        packet_id: int,
        entries: list[Subscription],
        rejections: Rejections | None = None,
    ) -> bytes:
        self.pending.add(packet_id, entries, len(frame), rejections)
        self._watch()
        self.parts.dispatch.arrived(Source.CLIENT, self, members.SUBSCRIBE, frame)
        return frame

    def _rejections(
        self, entries: Sequence[Subscription], answers: Sequence[Subscription | Rejected]
    ) -> Rejections:
        codes: list[int | None] = []
        found: list[tuple[Subscription, Rejected]] = []
        for entry, answer in zip(entries, answers, strict=True):
            if not isinstance(answer, Rejected):
                codes.append(None)
                continue
            found.append((entry, answer))
            if self.version is members.V5:
                codes.append(int(answer.reason))
            else:
                # MQTT 3.1 has no code for it: "it must therefore make a positive acknowledgement" (3.8)
                codes.append(entry.qos if self.version is members.V31 else FAILURE)
        self.parts.counters["subscriptions_rejected"] += len(found)
        entry, first = found[0]
        self._log_rejected("subscription", first, filter=entry.topic_filter[:200], entries=len(found))
        return Rejections(codes, next((answer.text for _, answer in found if answer.text), ""))

    # answers ----------------------------------------------------------------------------------

    def suback(self, packet_id: int, codes: list[int], text: str, properties: Properties) -> bytes:
        """A SUBACK with these codes; the rest as far as the client has room for it (MQTT-3.9.2-1, -2)."""
        packet = SubAck(packet_id=packet_id, reason_codes=codes, properties=dict(properties))
        encoded = self.with_reason(packet, "" if members.REASON_STRING in properties else text)
        if len(encoded) > self._packet_room:
            packet.properties.clear()
            encoded = packet.encode(self.version)
        return encoded

    def with_reason(self, packet: ConnAck | PubAck | PubRec | SubAck, text: str) -> bytes:
        """The packet with a reason string, if the client takes it there and has room for it.

        MQTT-3.1.2-29, MQTT-3.2.2-19, MQTT-3.4.2-2, MQTT-3.5.2-2, MQTT-3.9.2-1.
        """
        if text and (self._wants_reasons or (self.version is members.V5 and isinstance(packet, ConnAck))):
            packet.properties[members.REASON_STRING] = text
            encoded = packet.encode(self.version)
            if len(encoded) <= self._packet_room:
                return encoded
            del packet.properties[members.REASON_STRING]
        return packet.encode(self.version)

    def _log_rejected(self, kind: str, rejected: Rejected, **about: object) -> None:
        """One line for the first of a kind on each connection: there may be thousands a second."""
        if self._told_filtered is None:
            self._told_filtered = set()
        if kind in self._told_filtered:
            return
        self._told_filtered.add(kind)
        self.driver.log(
            "info",
            f"{kind} rejected",
            plugin=rejected.plugin,
            reason=f"0x{rejected.reason:02X}",
            text=rejected.text,
            client_id=self.client_id,
            peer=self.peer,
            **about,
        )
