"""A right MQTT client without sockets and clocks, which says all it does and sees: the source of a history.

It keeps what was not acknowledged, and sends it again with DUP where its session is still there; where it
is gone, QoS 1 goes anew and QoS 2 is given up, as nobody can know whether it was delivered (MQTT 5, 4.4).
Of QoS 2 it takes each packet identifier once until PUBREL. Messages go out in the order of their first
sending.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    Packet,
    PingReq,
    PingResp,
    Property,
    ProtocolViolation,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    decode,
)

RECORDED = {"packet": "PUBREC"}
FAILURE = 0x80
"""The lowest of the reason codes that refuse."""
SESSION_EXPIRY = 86_400
"""Seconds that a session of MQTT 5 is kept: more than a clock is set forward."""


class Teller(Protocol):
    """Takes one event of a client; the keywords are columns of the history, or ``payload``."""

    def __call__(self, op: str, phase: str, **columns: Any) -> None: ...


@dataclass(slots=True)
class Sent:
    """A message of QoS 1 or 2 that the server has not taken over."""

    message: Publish
    seq: int
    sent: bool = False
    """At least once, so that its fate is unknown while there is no answer."""
    released: bool = False
    """PUBREC has come: only PUBREL is left."""


class MqttClient:
    """One client and its session, over any number of connections.

    ``tell`` gets the events. ``inflight`` messages of QoS 1 and 2 are under way at most, the others wait
    here. ``sends_present``: whether the server says in CONNACK that it has the session; ActiveMQ does not.
    ``keeps_sessions``: whether it keeps sessions when it is killed; from one that does not the client takes a
    session for lost that may have been made by a CONNECT whose answer it has not got.
    """

    def __init__(
        self,
        client_id: str,
        tell: Teller,
        *,
        version: Version = Version.V311,
        clean: bool = True,
        will: Will | None = None,
        keep_alive: int = 0,
        inflight: int = 20,
        sends_present: bool = True,
        keeps_sessions: bool = True,
    ) -> None:
        self.client_id = client_id
        self.version = version
        self.clean = clean
        self.will = will
        self.keep_alive = keep_alive
        self.inflight = inflight
        self.sends_present = sends_present
        self.keeps_sessions = keeps_sessions
        self.connected = False
        """CONNACK has come, and the connection stands."""
        self.life = 0
        """Of the session: counts up where the server has none that it could go on with."""
        self.filters: dict[str, int] = {}
        """What is wanted, with its QoS."""
        self._tell = tell
        self._send: Callable[[bytes], None] | None = None
        self._framer = Framer()
        self._granted: set[str] = set()
        self._again = False
        """It was connected before."""
        self._unanswered = 0
        """CONNECTs sent since the last CONNACK that has accepted one, but for those refused."""
        self._unacknowledged: dict[int, Sent] = {}
        self._taken: set[int] = set()
        """Packet identifiers of QoS 2 messages that were delivered and not released."""
        self._asked: dict[int, tuple[str, list[str]]] = {}
        """SUBSCRIBE and UNSUBSCRIBE without an answer: operation and filters."""
        self._ids = itertools.cycle(range(1, 65536))

    @property
    def session(self) -> str:
        """Name of the session; another one after the server has lost it."""
        return f"{self.client_id}/{self.life}"

    @property
    def unacknowledged(self) -> int:
        """Messages of QoS 1 and 2 that are not done, those included that wait to be sent."""
        return len(self._unacknowledged)

    @property
    def waiting(self) -> bool:
        """Whether filters are wanted that no SUBACK has granted in this session."""
        return not self._granted.issuperset(self.filters)

    # connection -------------------------------------------------------------------------------

    def opened(self, send: Callable[[bytes], None]) -> None:
        """A connection is there, and ``send`` takes what is to go over it."""
        self._send = send
        self._unanswered += 1
        self._framer = Framer()
        expiry = {Property.SESSION_EXPIRY_INTERVAL: SESSION_EXPIRY}
        self._put(
            Connect(
                client_id=self.client_id,
                version=self.version,
                clean_start=self.clean,
                keep_alive=self.keep_alive,
                will=self.will,
                properties=expiry if self.version is Version.V5 and not self.clean else {},
            )
        )
        self._told_will("info")  # from here on it may be due, whatever comes back

    def received(self, data: bytes) -> None:
        """Bytes have come.

        Raises:
            MqttError: they are against the standard.
        """
        for frame in self._framer.feed(data):
            if self._send is None:  # the server has refused or ended it by a packet before
                return
            self._packet(decode(frame, self.version))

    def lost(self) -> None:
        """The connection has ended, without DISCONNECT."""
        if self.connected:
            self._ended("ok")
        self._send = None

    def disconnect(self) -> None:
        """Send DISCONNECT; the connection is to be closed behind it."""
        if self.connected:
            self._put(Disconnect())
            self._ended("fail")
        self._send = None

    def ping(self) -> None:
        """Send PINGREQ."""
        if self.connected:
            self._put(PingReq())

    def _ended(self, will: str) -> None:
        self.connected = False
        self._asked.clear()
        self._tell("connect", "info", session=self.session)
        self._told_will(will)

    # wishes -----------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Want a filter from now on; asked for when there is a connection."""
        self.filters[topic_filter] = qos
        self._granted.discard(topic_filter)
        if self.connected:
            self._subscribe([topic_filter])

    def unsubscribe(self, topic_filter: str) -> None:
        """Want a filter no more. Without a connection it is forgotten here alone, and nothing is told."""
        self.filters.pop(topic_filter, None)
        self._granted.discard(topic_filter)
        if self.connected:
            packet_id = self._free_id()
            self._asked[packet_id] = "unsubscribe", [topic_filter]
            self._tell("unsubscribe", "invoke", session=self.session, topic=topic_filter)
            self._put(Unsubscribe(packet_id=packet_id, topic_filters=[topic_filter]))

    def publish(self, topic: str, payload: bytes, seq: int, qos: int, *, retain: bool = False) -> bool:
        """Publish; False where it is of QoS 0 and there is no connection, so that it was not."""
        message = Publish(topic=topic, payload=payload, qos=qos, retain=retain)
        if qos == 0:
            if self.connected:
                self._told_publish("invoke", message, seq)
                self._put(message)
            return self.connected
        message.packet_id = self._free_id()
        self._unacknowledged[message.packet_id] = Sent(message, seq)
        self._advance()
        return True

    def give_up(self) -> None:
        """Nothing more is sent: what was not acknowledged is of unknown fate."""
        for sent in self._unacknowledged.values():
            if sent.sent:
                self._told_publish("info", sent.message, sent.seq)
        self._unacknowledged.clear()

    # packets ----------------------------------------------------------------------------------

    def _packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self._deliver(packet)
            case PubAck():
                # RabbitMQ completes a QoS 2 publication with PUBACK
                self._acknowledged(packet.packet_id, packet.reason_code)
            case PubRec():
                self._recorded(packet)
            case PubComp():
                self._acknowledged(packet.packet_id, packet.reason_code)
            case PubRel():
                self._taken.discard(packet.packet_id)
                self._put(PubComp(packet_id=packet.packet_id))
            case ConnAck():
                self._connack(packet)
            case SubAck():
                self._answered(packet.packet_id, packet.reason_codes)
            case UnsubAck():
                self._answered(packet.packet_id, packet.reason_codes)
            case Disconnect():
                self.lost()
            case PingResp():
                pass
            case _:
                raise ProtocolViolation(f"{type(packet).__name__} from a server", clause="MQTT-3.1.4")

    def _connack(self, packet: ConnAck) -> None:
        if packet.reason_code:
            self._tell("connect", "fail", detail={"reason": packet.reason_code})
            self._send = None
            self._unanswered -= 1
            return
        present = packet.session_present or (not self.sends_present and not self.clean and self.life > 0)
        if self._unanswered > 1 and not self.keeps_sessions:
            present = False
        self._unanswered = 0
        if not present:
            self.life += 1
            self._granted.clear()
            self._taken.clear()
        self.connected = True
        asked = "clean" if self.clean else "resume" if self._again else "new"
        self._again = True
        self._tell("connect", "ok", session=self.session, value=asked)
        self._told_will("invoke")
        if wanted := [each for each in self.filters if each not in self._granted]:
            self._subscribe(wanted)
        self._resume(present)

    def _resume(self, present: bool) -> None:
        for packet_id, sent in list(self._unacknowledged.items()):
            if not sent.sent:
                continue
            if present and sent.released:
                self._put(PubRel(packet_id=packet_id))
            elif present or sent.message.qos == 1:
                sent.message.dup = present
                self._told_publish("info", sent.message, sent.seq)
                self._put(sent.message)
            else:
                del self._unacknowledged[packet_id]
                self._told_publish("info", sent.message, sent.seq)
        self._advance()

    def _advance(self) -> None:
        if not self.connected:
            return
        for sent in itertools.islice(self._unacknowledged.values(), self.inflight):
            if not sent.sent:
                sent.sent = True
                self._told_publish("invoke", sent.message, sent.seq)
                self._put(sent.message)

    def _recorded(self, packet: PubRec) -> None:
        sent = self._unacknowledged.get(packet.packet_id)
        if packet.reason_code >= FAILURE:
            self._acknowledged(packet.packet_id, packet.reason_code)
            return
        if sent is not None:
            if not sent.released:
                self._told_publish("info", sent.message, sent.seq, RECORDED)
            sent.released = True
        self._put(PubRel(packet_id=packet.packet_id))

    def _acknowledged(self, packet_id: int, reason_code: int) -> None:
        sent = self._unacknowledged.pop(packet_id, None)
        if sent is None:  # an answer to what was sent twice
            return
        self._told_publish("fail" if reason_code >= FAILURE else "ok", sent.message, sent.seq)
        self._advance()

    def _subscribe(self, filters: list[str]) -> None:
        packet_id = self._free_id()
        self._asked[packet_id] = "subscribe", filters
        for each in filters:
            self._tell("subscribe", "invoke", session=self.session, topic=each, qos=self.filters[each])
        wanted = [Subscription(topic_filter=each, qos=self.filters[each]) for each in filters]
        self._put(Subscribe(packet_id=packet_id, subscriptions=wanted))

    def _answered(self, packet_id: int, codes: list[int]) -> None:
        op, filters = self._asked.pop(packet_id, ("", []))
        for place, each in enumerate(filters):
            code = codes[place] if codes else 0  # UNSUBACK of 3.x has none
            if op == "subscribe" and code < FAILURE and each in self.filters:
                self._granted.add(each)
            phase = "fail" if code >= FAILURE else "ok"
            self._tell(op, phase, session=self.session, topic=each, qos=code if op == "subscribe" else 0)

    def _deliver(self, message: Publish) -> None:
        packet_id = message.packet_id
        known = message.qos == 2 and packet_id in self._taken
        if not (known and message.dup):
            self._tell(
                "receive",
                "info" if known else "ok",
                session=self.session,
                topic=message.topic,
                qos=message.qos,
                retain=message.retain,
                dup=message.dup,
                payload=message.payload,
            )
        if packet_id is None:
            return
        if message.qos == 1:
            self._put(PubAck(packet_id=packet_id))
        else:
            self._taken.add(packet_id)
            self._put(PubRec(packet_id=packet_id))

    def _told_publish(
        self, phase: str, message: Publish, seq: int, detail: dict[str, str] | None = None
    ) -> None:
        self._tell(
            "publish",
            phase,
            session=self.session,
            topic=message.topic,
            qos=message.qos,
            retain=message.retain,
            dup=message.dup and detail is None,
            seq=seq,
            payload=message.payload,
            detail=detail,
        )

    def _told_will(self, phase: str) -> None:
        will = self.will
        if will is not None:
            self._tell(
                "will",
                phase,
                session=self.session,
                topic=will.topic,
                qos=will.qos,
                retain=will.retain,
                payload=will.payload,
            )

    def _free_id(self) -> int:
        return next(
            each for each in self._ids if each not in self._unacknowledged and each not in self._asked
        )

    def _put(self, packet: Packet) -> None:
        assert self._send is not None
        self._send(packet.encode(self.version))
