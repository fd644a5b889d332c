"""A broker of a few lines for worlds in virtual time: enough of MQTT to stand behind a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    MqttError,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
    topic_matches,
)


def wants(filters: list[str], topic: str) -> bool:
    return topic in filters or any(topic_matches(f, topic) for f in filters if "+" in f or "#" in f)


class Broker:
    """Speaks QoS 0-2 towards publishers and delivers at QoS 0; keeps what was published, in order.

    What a real one may do to a node is switched on by its attributes.
    """

    def __init__(self, speaks_5: bool = True) -> None:
        self.speaks_5 = speaks_5
        self.published: list[tuple[str, Publish]] = []
        """Client id and message, as it has come; sent again (QoS 2) not another time."""
        self.tried: list[str] = []
        """Topics on which nodes have tried how it delivers; in no other list."""
        self.sought: list[tuple[str, str]] = []
        """The same, after the client id, of those by which nodes find each other (`same_broker.py`)."""
        self.retained: dict[str, Publish] = {}
        self.sessions: dict[str, Session] = {}
        """Sessions that outlive their connections."""
        self.connections: list[Connection] = []
        self.refuse_with: int | None = None
        """Return or reason code for every CONNECT."""
        self.takes_id: Callable[[str], bool] = lambda client_id: True
        """Whether it takes a client identifier; others it refuses as not valid."""
        self.accepts = True
        """False: a connection is closed as soon as it is there."""
        self.answer_delay = 0.0
        """Seconds until an answer goes out."""
        self.answers: Callable[[Any], bool] = lambda packet: True
        """Whether a packet is dealt with at all."""
        self.hangs_up_on: Callable[[Any], bool] = lambda packet: False
        """Whether a packet makes it close the connection without a word, as MQTT 3.1.1 demands."""
        self.denies: Callable[[str], bool] = lambda topic_filter: False
        """Whether it refuses a subscription."""
        self.receive_maximum: int | None = None
        """What it tells clients of MQTT 5 in CONNACK."""
        self.hang_ups = 0
        self.dropped = 0
        """Messages for a subscriber that did not read."""
        self._reads = True

    def record(self, client_id: str, packet: Publish) -> None:
        """A message was published."""
        if packet.topic.startswith("$ildm/probe/same/"):
            self.sought.append((client_id, packet.topic))
        elif packet.topic.startswith("$ildm/probe/"):
            self.tried.append(packet.topic)
        else:
            self.published.append((client_id, packet))

    def connection(self) -> Connection:
        return Connection(self)

    def topics(self, client_prefix: str = "ildm-") -> list[str]:
        """Topics published by clients whose id begins so; by default what nodes have injected."""
        return [packet.topic for client_id, packet in self.published if client_id.startswith(client_prefix)]

    def crash(self, keeps: bool = True) -> None:
        """End and be there again at once; ``keeps`` False: sessions and retained messages are lost."""
        for connection in list(self.connections):
            connection.transport.abort()
        if not keeps:
            self.sessions.clear()
            self.retained.clear()

    def expire(self, message: Publish) -> None:
        """The message expiry interval of a retained message is over (MQTT-3.3.2-5)."""
        if self.retained.get(message.topic) is message:
            del self.retained[message.topic]

    @property
    def reads(self) -> bool:
        """False: it takes connections and reads nothing."""
        return self._reads

    @reads.setter
    def reads(self, reads: bool) -> None:
        self._reads = reads
        for connection in self.connections:
            if reads:
                connection.transport.resume_reading()
            else:
                connection.transport.pause_reading()


class Session:
    """What outlives a connection: subscriptions, and QoS 2 messages that were not released."""

    def __init__(self) -> None:
        self.filters: list[str] = []
        self.unreleased: dict[int, Publish] = {}


class Connection:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transport: Any = None
        self.framer = Framer()
        self.version = Version.V311
        self.client_id = ""
        self.session = Session()
        self.received: list[Any] = []
        self.writable = True

    @property
    def filters(self) -> list[str]:
        return self.session.filters

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)
        if not self.broker.accepts:
            transport.abort()
        elif not self.broker.reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        try:
            self._received(data)
        except MqttError:
            self.transport.abort()

    def _received(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            packet = decode(frame, self.version)
            self.received.append(packet)
            if self.broker.hangs_up_on(packet):
                self.broker.hang_ups += 1
                self.transport.abort()
                return
            if self.broker.answers(packet):
                self._packet(packet)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    def send(self, packet: Any) -> None:
        data = packet.encode(self.version)
        if self.broker.answer_delay:
            world = self.transport.world
            world.call_at(world.time + self.broker.answer_delay, self.transport.write, data)
        else:
            self.transport.write(data)

    def _packet(self, packet: Any) -> None:
        match packet:
            case Connect():
                self._connect(packet)
            case Subscribe():
                denied = [self.broker.denies(s.topic_filter) for s in packet.subscriptions]
                asked = list(zip(packet.subscriptions, denied, strict=True))
                granted = [s.topic_filter for s, no in asked if not no]
                self.filters.extend(granted)
                codes = [0x80 if no else s.qos for s, no in asked]
                self.send(SubAck(packet_id=packet.packet_id, reason_codes=codes))
                for message in list(self.broker.retained.values()):
                    if wants(granted, message.topic):
                        self._deliver(message, retain=True)
            case Unsubscribe():
                gone = set(packet.topic_filters)
                self.filters[:] = [f for f in self.filters if f not in gone]
                codes = [0] * len(packet.topic_filters) if self.version is Version.V5 else []
                self.send(UnsubAck(packet_id=packet.packet_id, reason_codes=codes))
            case Publish():
                self._publish(packet)
            case PubRel():
                self.send(PubComp(packet_id=packet.packet_id))
                released = self.session.unreleased.pop(packet.packet_id, None)
                if released is not None:
                    self._take(released)
            case PingReq():
                self.send(PingResp())
            case Disconnect():
                self.transport.close()

    def _connect(self, packet: Connect) -> None:
        broker = self.broker
        self.version = packet.version
        self.client_id = packet.client_id
        if packet.version is Version.V5 and not broker.speaks_5:
            self.transport.write(b"\x20\x02\x00\x01")
            self.transport.close()
            return
        refuse = broker.refuse_with
        five = packet.version is Version.V5
        if not refuse and not broker.takes_id(packet.client_id):
            refuse = 0x85 if five else 2  # MQTT-3.1.3-8, MQTT-3.1.3-9 of 3.1.1
        if refuse:  # also with a code that is not of its version
            self.transport.write(bytes([0x20, 3, 0, refuse, 0] if five else [0x20, 2, 0, refuse]))
            self.transport.close()
            return
        for connection in list(broker.connections):
            if connection.client_id == packet.client_id and connection is not self:
                connection.transport.close()  # MQTT-3.1.4-3
        found = None if packet.clean_start else broker.sessions.get(packet.client_id)
        broker.sessions.pop(packet.client_id, None)
        lasts = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL) if five else not packet.clean_start
        self.session = found or Session()
        if lasts:
            broker.sessions[packet.client_id] = self.session
        properties: dict[Property, Any] = {Property.TOPIC_ALIAS_MAXIMUM: 10} if five else {}
        if five and broker.receive_maximum is not None:
            properties[Property.RECEIVE_MAXIMUM] = broker.receive_maximum
        self.send(ConnAck(session_present=found is not None, reason_code=0, properties=properties))

    def _publish(self, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id is not None:
            self.send(PubRec(packet_id=packet.packet_id))
            held = self.session.unreleased.get(packet.packet_id)
            if held is None or (held.topic, held.payload) != (packet.topic, packet.payload):
                self.session.unreleased[packet.packet_id] = packet  # as Mosquitto compares what comes again
                self.broker.record(self.client_id, packet)
            return
        if packet.qos == 1 and packet.packet_id is not None:
            self.send(PubAck(packet_id=packet.packet_id))
        self.broker.record(self.client_id, packet)
        self._take(packet)

    def _take(self, packet: Publish) -> None:
        """A message takes effect: at once, or when it is released (QoS 2)."""
        broker = self.broker
        if packet.retain:
            broker.retained.pop(packet.topic, None)
            if packet.payload:
                broker.retained[packet.topic] = packet
                expiry = packet.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
                if expiry is not None:
                    world = self.transport.world
                    world.call_at(world.time + expiry, broker.expire, packet)
        for connection in broker.connections:
            if wants(connection.filters, packet.topic):
                connection._deliver(packet)

    def _deliver(self, packet: Publish, retain: bool = False) -> None:
        if self.writable:
            self.send(Publish(topic=packet.topic, payload=packet.payload, retain=retain))
        else:
            self.broker.dropped += 1
