"""A broker for worlds in virtual time that keeps sessions and delivers at QoS 0 to 2, and may crash.

What makes do differently is said by a :class:`Make`. Like a real one it is a process: the world can kill it,
or let it stand still.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from ildm.config import Address
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    MqttError,
    PingReq,
    PingResp,
    Properties,
    Property,
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
    topic_matches,
)
from ildm.testing.virtual.makes import Make
from ildm.testing.virtual.process import Process
from ildm.testing.virtual.world import World

WINDOW = 20
"""Messages of QoS 1 and 2 under way to a client that names no receive maximum."""
KEPT = (
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
    Property.MESSAGE_EXPIRY_INTERVAL,
)
"""Properties of a message that its subscribers get, too."""


class OnItsWay:
    """A message of QoS 1 or 2 that a session has not acknowledged."""

    __slots__ = ("message", "recorded")

    def __init__(self, message: Publish) -> None:
        self.message = message
        self.recorded = False
        """PUBREC has come."""


class Session:
    """What the broker keeps of a client."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.lasts = False
        """It outlives its connection."""
        self.filters: dict[str, Subscription] = {}
        self.connection: BrokerConnection | None = None
        self.waiting: deque[Publish] = deque()
        self.under_way: dict[int, OnItsWay] = {}
        self.unreleased: dict[int, Publish | None] = {}
        """What came at QoS 2 and was not released; None where it was delivered already."""
        self._ids = itertools.cycle(range(1, 65536))

    def matches(self, topic: str) -> Subscription | None:
        """The subscription of the highest QoS that wants a topic."""
        found = [one for each, one in self.filters.items() if each == topic or topic_matches(each, topic)]
        return max(found, key=lambda one: one.qos, default=None)

    def push(self, message: Publish, qos: int, retain: bool) -> None:
        """A message for this client."""
        qos = min(qos, message.qos)
        if qos == 0 and self.connection is None:
            return
        properties = {name: message.properties[name] for name in KEPT if name in message.properties}
        copy = Publish(
            topic=message.topic, payload=message.payload, qos=qos, retain=retain, properties=properties
        )
        if qos == 0:
            assert self.connection is not None
            self.connection.put(copy)
        else:
            self.waiting.append(copy)
            self.advance()

    def advance(self) -> None:
        """Send what waits, as far as the window goes."""
        connection = self.connection
        if connection is None:
            return
        while self.waiting and len(self.under_way) < connection.window:
            message = self.waiting.popleft()
            message.packet_id = next(each for each in self._ids if each not in self.under_way)
            self.under_way[message.packet_id] = OnItsWay(message)
            connection.put(message)

    def resume(self) -> None:
        """A connection is there: what was under way goes again (MQTT-4.4.0-1), then what waits."""
        connection = self.connection
        assert connection is not None
        for packet_id, one in self.under_way.items():
            if one.recorded:
                connection.put(PubRel(packet_id=packet_id))
            else:
                one.message.dup = True
                connection.put(one.message)
        self.advance()


class SessionBroker:
    """See the module. It listens from the start on, and again after :meth:`start`."""

    def __init__(self, world: World, address: Address, make: Make) -> None:
        self.world = world
        self.address = address
        self.make = make
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, Publish] = {}
        self.lost: Callable[[Publish], None] = lambda message: None
        """Told of each message that was acknowledged and is gone with a crash."""
        self.dirty: dict[BrokerConnection, None] = {}
        self._wanted: dict[str, list[tuple[Session, Subscription]]] = {}
        self.process: Process
        self.start()

    def start(self) -> None:
        """Begin to listen."""
        self.process = Process(self.world, f"broker {self.address}")
        self.world.listen(self.address, lambda: BrokerConnection(self), self.process)

    def kill(self) -> None:
        """kill -9: of what it has, the make says what is left."""
        self.world.kill(self.process)
        make = self.make
        self.dirty.clear()
        for session in list(self.sessions.values()):
            session.connection = None
            if not (session.lasts and make.keeps_messages):
                del self.sessions[session.client_id]
            if make.keeps_unreleased:
                continue
            for message in session.unreleased.values():
                if message is not None:
                    self.lost(message)
            session.unreleased.clear()
        if not make.keeps_retained:
            self.retained.clear()
        self._wanted.clear()

    def changed(self) -> None:
        """Somebody's subscriptions have."""
        self._wanted.clear()

    def take(self, message: Publish, publisher: Session) -> bool:
        """A message takes effect; whether it is for a session that lasts, at QoS 1 or 2."""
        if message.retain:
            if message.payload:
                self._retain(message)
            else:
                self.retained.pop(message.topic, None)
        wanted = self._wanted.get(message.topic)
        if wanted is None:
            found = ((session, session.matches(message.topic)) for session in self.sessions.values())
            wanted = self._wanted[message.topic] = [
                (session, one) for session, one in found if one is not None
            ]
        for session, one in wanted:
            if not (one.no_local and session is publisher):
                session.push(message, one.qos, one.retain_as_published and message.retain)
        return any(session.lasts and one.qos for session, one in wanted)

    def _retain(self, message: Publish) -> None:
        self.retained.pop(message.topic, None)
        self.retained[message.topic] = message
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        if expiry is not None:
            self.world.call_at(self.world.time + expiry, self._expire, message)

    def _expire(self, message: Publish) -> None:
        if self.retained.get(message.topic) is message:
            del self.retained[message.topic]

    def flush(self) -> None:
        """Write what was put, to each at once."""
        while self.dirty:
            self.dirty.popitem()[0].flush()


class BrokerConnection:
    """One connection; has the methods of an ``asyncio.Protocol``."""

    def __init__(self, broker: SessionBroker) -> None:
        self.broker = broker
        self.transport: Any = None
        self.version = Version.V311
        self.session: Session | None = None
        self.will: Will | None = None
        self.window = WINDOW
        self._framer = Framer()
        self._out: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                self._packet(decode(frame, self.version))
        except MqttError:
            self.transport.abort()
        self.broker.flush()

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self.broker.flush()

    def _gone(self) -> None:
        """It has ended, or another one has come in its place."""
        broker, session = self.broker, self.session
        broker.dirty.pop(self, None)
        if session is None or session.connection is not self:
            return
        session.connection = None
        if not session.lasts:
            del broker.sessions[session.client_id]
            broker.changed()
        will, self.will = self.will, None
        if will is not None:
            message = Publish(
                topic=will.topic, payload=will.payload, qos=min(will.qos, 2), retain=will.retain
            )
            broker.take(message, session)

    def put(self, packet: Any) -> None:
        """Send with what else is sent in this turn."""
        self._out.append(packet.encode(self.version))
        self.broker.dirty[self] = None

    def flush(self) -> None:
        data, self._out = b"".join(self._out), []
        self.transport.write(data)

    # packets ----------------------------------------------------------------------------------

    def _packet(self, packet: Any) -> None:
        session = self.session
        if session is None:
            if isinstance(packet, Connect):
                self._connect(packet)
            else:
                self.transport.abort()
            return
        if session.connection is not self:  # another connection has its place
            return
        match packet:
            case Publish():
                self._publish(packet, session)
            case PubAck():
                session.under_way.pop(packet.packet_id, None)
                session.advance()
            case PubRec():
                one = session.under_way.get(packet.packet_id)
                if one is not None:
                    one.recorded = True
                self.put(PubRel(packet_id=packet.packet_id))
            case PubComp():
                session.under_way.pop(packet.packet_id, None)
                session.advance()
            case PubRel():
                message = session.unreleased.pop(packet.packet_id, None)
                self.put(PubComp(packet_id=packet.packet_id))
                if message is not None:
                    self.broker.take(message, session)
            case Subscribe():
                self._subscribe(packet, session)
            case Unsubscribe():
                for topic_filter in packet.topic_filters:
                    session.filters.pop(topic_filter, None)
                self.broker.changed()
                codes = [0] * len(packet.topic_filters) if self.version is Version.V5 else []
                self.put(UnsubAck(packet_id=packet.packet_id, reason_codes=codes))
            case PingReq():
                self.put(PingResp())
            case Disconnect():
                if packet.reason_code != 4:  # MQTT 5, 3.14.2.1: with will message
                    self.will = None
                expiry = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL)
                if expiry is not None:
                    session.lasts = expiry > 0
                self._gone()
                self.transport.close()

    def _connect(self, packet: Connect) -> None:
        broker, make = self.broker, self.broker.make
        five = packet.version is Version.V5
        if five and not make.speaks_5:
            self.transport.write(b"\x20\x02\x00\x01")
            self.transport.close()
            return
        self.version = packet.version
        old = broker.sessions.get(packet.client_id)
        if old is not None and old.connection is not None:  # MQTT-3.1.4-3
            connection = old.connection
            connection._gone()
            connection.transport.close()
        found = broker.sessions.get(packet.client_id)
        if packet.clean_start or found is None:
            session = broker.sessions[packet.client_id] = Session(packet.client_id)
            broker.changed()
            found = None
        else:
            session = found
        expiry = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL, 0)
        session.lasts = expiry > 0 if five else not packet.clean_start
        session.connection = self
        self.session = session
        self.will = packet.will
        self.window = packet.properties.get(Property.RECEIVE_MAXIMUM, WINDOW)
        properties: Properties = {} if make.largest_qos == 2 or not five else {Property.MAXIMUM_QOS: 1}
        present = found is not None and make.says_present
        self.put(ConnAck(session_present=present, reason_code=0, properties=properties))
        session.resume()

    def _publish(self, packet: Publish, session: Session) -> None:
        broker, make, packet_id = self.broker, self.broker.make, packet.packet_id
        if packet_id is None:
            broker.take(packet, session)
        elif packet.qos == 1 or make.largest_qos == 1:
            packet.qos = 1
            if broker.take(packet, session) and make.writing:
                broker.world.call_at(broker.world.time + make.writing, self._written, packet_id)
            else:
                self.put(PubAck(packet_id=packet_id))
        else:
            self.put(PubRec(packet_id=packet_id))
            if packet_id in session.unreleased and make.once:
                return
            if make.delivers_at_release:
                session.unreleased[packet_id] = packet
            else:
                session.unreleased[packet_id] = None
                broker.take(packet, session)

    def _written(self, packet_id: int) -> None:
        if self.session is not None and self.session.connection is self:
            self.put(PubAck(packet_id=packet_id))
            self.broker.flush()

    def _subscribe(self, packet: Subscribe, session: Session) -> None:
        largest = self.broker.make.largest_qos
        asked = []
        for one in packet.subscriptions:
            one.qos = min(one.qos, largest)
            known = one.topic_filter in session.filters
            session.filters[one.topic_filter] = one
            if one.retain_handling == 0 or (one.retain_handling == 1 and not known):
                asked.append(one)
        self.broker.changed()
        self.put(SubAck(packet_id=packet.packet_id, reason_codes=[one.qos for one in packet.subscriptions]))
        for one in asked:
            for message in list(self.broker.retained.values()):
                if topic_matches(one.topic_filter, message.topic):
                    session.push(message, one.qos, retain=True)
