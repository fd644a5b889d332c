"""A broker for worlds in virtual time, and for tests of real sockets: MQTT 3.1 to 5, QoS 0 to 2, sessions.

Its :class:`Make` says what makes do differently. Its attributes say what else a broker may do to a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

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
from ildm.testing.virtual.makes import PLAIN, Make
from ildm.testing.virtual.session import WINDOW, Session


class Broker:
    """See the module. Each of its connections is made by :meth:`connection`; it needs no world."""

    def __init__(self, make: Make = PLAIN) -> None:
        self.make = make
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, Publish] = {}
        self.connections: list[Connection] = []
        self.published: list[tuple[str, Publish]] = []
        """Client id and message, as it has come; sent again (QoS 2) not another time."""
        self.probes: list[tuple[str, str]] = []
        """Client id and topic of what nodes try out their brokers with; in no other list."""
        self.connects: list[Connect] = []
        """Also those of connections that have ended."""
        self.refuse_with: int | None = None
        """Return or reason code for every CONNECT."""
        self.takes_id: Callable[[str], bool] = lambda client_id: True
        """Whether it takes a client identifier; others it refuses as not valid."""
        self.connack: Properties = {Property.TOPIC_ALIAS_MAXIMUM: 10}
        """What it tells clients of MQTT 5 in CONNACK."""
        self.accepts = True
        """False: a connection is closed as soon as it is there."""
        self.answer_delay = 0.0
        """Seconds until an answer goes out."""
        self.pause = 0.0
        """Seconds between the two parts in which it deals with what it has read; 0: with all at once."""
        self.chance = Random(0)
        """Where the first part ends."""
        self.takes: Callable[[Connection, Any], bool] = lambda connection, packet: True
        """Whether a packet of a client is dealt with at all."""
        self.gives: Callable[[Connection, Any], bool] = lambda connection, packet: True
        """Whether a packet for a client goes out."""
        self.hangs_up_on: Callable[[Any], bool] = lambda packet: False
        """Whether a packet makes it close the connection without a word, as MQTT 3.1.1 demands."""
        self.denies: Callable[[str], bool] = lambda topic_filter: False
        """Whether it refuses a subscription."""
        self.hang_ups = 0
        self.dirty: dict[Connection, None] = {}
        self._wanted: dict[str, list[tuple[Session, Subscription]]] = {}
        self._reads = True

    def connection(self) -> Connection:
        return Connection(self)

    def of(self, client_id: str) -> Connection:
        """The newest connection of a client."""
        return next(one for one in reversed(self.connections) if one.client_id == client_id)

    def topics(self, client_prefix: str = "ildm-") -> list[str]:
        """Topics published by clients whose id begins so; by default what nodes have injected."""
        return [packet.topic for client_id, packet in self.published if client_id.startswith(client_prefix)]

    def record(self, client_id: str, packet: Publish) -> None:
        """A message was published."""
        if packet.topic.startswith("$ildm/probe/"):
            self.probes.append((client_id, packet.topic))
        else:
            self.published.append((client_id, packet))

    def take(self, message: Publish, publisher: Connection) -> bool:
        """A message takes effect; whether it is for a session that lasts, at QoS 1 or 2."""
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
                expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
                if expiry is not None:
                    publisher.call_later(expiry, self._expire, message)
        wanted = self._wanted.get(message.topic)
        if wanted is None:
            found = ((session, session.matches(message.topic)) for session in self.sessions.values())
            wanted = self._wanted[message.topic] = [
                (session, one) for session, one in found if one is not None
            ]
        for session, one in wanted:
            if not (one.no_local and session is publisher.session):
                session.push(message, one.qos, one.retain_as_published and message.retain)
        return any(session.lasts and one.qos for session, one in wanted)

    def _expire(self, message: Publish) -> None:
        """The message expiry interval of a retained message is over (MQTT-3.3.2-5)."""
        if self.retained.get(message.topic) is message:
            del self.retained[message.topic]

    def retained_for(self, topic_filter: str) -> list[Publish]:
        if "+" in topic_filter or "#" in topic_filter:
            return [each for topic, each in self.retained.items() if topic_matches(topic_filter, topic)]
        return [self.retained[topic_filter]] if topic_filter in self.retained else []

    def changed(self) -> None:
        """Somebody's subscriptions have."""
        self._wanted.clear()

    def flush(self) -> None:
        """Write what was put, to each at once."""
        while self.dirty:
            self.dirty.popitem()[0].flush()

    def crash(self, keeps: bool = True) -> None:
        """End and be there again at once; ``keeps`` False: sessions and retained messages are lost."""
        for connection in self.connections:
            connection.transport.abort()
        self.end(self.make if keeps else Make("forgetful"))

    def end(self, make: Make) -> list[Publish]:
        """Forget what a make does not keep; answers the messages of QoS 2 of which it had said PUBREC."""
        lost: list[Publish] = []
        self.connections.clear()
        self.dirty.clear()
        self._wanted.clear()
        for session in list(self.sessions.values()):
            session.connection = None
            if not (session.lasts and make.keeps_messages):
                del self.sessions[session.client_id]
            if not make.keeps_unreleased:
                lost += session.unreleased.values() if make.delivers_at_release else ()
                session.unreleased.clear()
        if not make.keeps_retained:
            self.retained.clear()
        return lost

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


class Connection:
    """One connection; has the methods of an ``asyncio.Protocol``."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transport: Any = None
        self.version = Version.V311
        self.client_id = ""
        self.session: Session | None = None
        self.will: Will | None = None
        self.window = WINDOW
        self.received: list[Any] = []
        self.framer = Framer()
        self.writable = True
        self._out: list[bytes] = []
        self._waiting: list[bytes] = []
        """Frames that it has read and deals with after a pause."""
        self._pausing = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)
        if not self.broker.accepts:
            transport.abort()
        elif not self.broker.reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        with self._refusing():
            frames = self.framer.feed(data)
            self._frames(self._first_part(frames) if self.broker.pause else frames)

    def _first_part(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        """What it deals with at once; the rest waits."""
        waiting = self._waiting
        waiting += frames
        if self._pausing or not waiting:
            return ()
        count = 1 + int(self.broker.chance.random() * len(waiting))
        self._waiting = waiting[count:]
        self._pausing = True
        self.call_later(self.broker.pause, self._go_on)
        return waiting[:count]

    def _go_on(self) -> None:
        self._pausing = False
        if self in self.broker.connections:
            waiting, self._waiting = self._waiting, []
            with self._refusing():
                self._frames(waiting)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """End the connection if it is broken; what came before that counts."""
        try:
            yield
        except MqttError as error:
            waiting, self._waiting = self._waiting, []
            with suppress(MqttError):
                self._frames([*waiting, *error.frames])
            self.flush()
            self.transport.abort()
        self.broker.flush()

    def _frames(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            if not self.transport.is_closing():
                self._received(decode(frame, self.version))

    def eof_received(self) -> None:
        self._go_on()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)
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
            broker.take(message, self)

    # writing ----------------------------------------------------------------------------------

    def put(self, packet: Any) -> None:
        """Send with what else is sent in this turn."""
        if isinstance(packet, Publish) and packet.properties and self.version is not Version.V5:
            packet = packet.copy()
            packet.properties = {}
        if self.broker.gives(self, packet):
            self._out.append(packet.encode(self.version))
            self.broker.dirty[self] = None

    def send(self, packet: Any) -> None:
        """Send at once, whatever the broker gives."""
        self._out.append(packet.encode(self.version))
        self.flush()

    def flush(self) -> None:
        data, self._out = b"".join(self._out), []
        if self.broker.answer_delay:
            self.call_later(self.broker.answer_delay, self.transport.write, data)
        else:
            self.transport.write(data)

    def call_later(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        world = self.transport.world
        world.call_at(world.time + seconds, callback, *args, owner=self.transport.owner)

    # packets ----------------------------------------------------------------------------------

    def _received(self, packet: Any) -> None:
        broker, session = self.broker, self.session
        self.received.append(packet)
        if broker.hangs_up_on(packet):
            broker.hang_ups += 1
            self.transport.abort()
        elif isinstance(packet, Connect) and session is None:
            self.client_id = packet.client_id
            broker.connects.append(packet)
            if broker.takes(self, packet):
                self._connect(packet)
        elif session is None:
            if len(self.received) == 1:  # else CONNECT was not dealt with
                self.transport.abort()
        elif session.connection is self and broker.takes(self, packet):  # else another one has its place
            self._packet(packet, session)

    def _packet(self, packet: Any, session: Session) -> None:
        match packet:
            case Publish():
                self._publish(packet, session)
            case PubAck() | PubComp():
                session.under_way.pop(packet.packet_id, None)
                session.advance()
            case PubRec():
                if packet.reason_code >= 0x80:
                    session.under_way.pop(packet.packet_id, None)
                    session.advance()
                    return
                one = session.under_way.get(packet.packet_id)
                if one is not None:
                    one.recorded = True
                self.put(PubRel(packet_id=packet.packet_id))
            case PubRel():
                message = session.unreleased.pop(packet.packet_id, None)
                self.put(PubComp(packet_id=packet.packet_id))
                if message is not None and self.broker.make.delivers_at_release:
                    self.broker.take(message, self)
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
                self.flush()
                self._gone()
                self.transport.close()

    def _connect(self, packet: Connect) -> None:
        broker, make = self.broker, self.broker.make
        five = packet.version is Version.V5
        refuse = broker.refuse_with
        if not refuse and not broker.takes_id(packet.client_id):
            refuse = 0x85 if five else 2  # MQTT-3.1.3-8, MQTT-3.1.3-9 of 3.1.1
        if five and not make.speaks_5:
            self._refuse(b"\x20\x02\x00\x01")
            return
        if refuse:  # also with a code that is not of its version
            self._refuse(bytes([0x20, 3, 0, refuse, 0] if five else [0x20, 2, 0, refuse]))
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
        properties = broker.connack.copy() if five else {}
        if five and make.largest_qos < 2:
            properties[Property.MAXIMUM_QOS] = make.largest_qos
        present = found is not None and make.says_present and self.version is not Version.V31
        self.put(ConnAck(session_present=present, reason_code=0, properties=properties))
        session.resume()

    def _refuse(self, connack: bytes) -> None:
        self.transport.write(connack)
        self.transport.close()

    def _publish(self, packet: Publish, session: Session) -> None:
        broker, make, packet_id = self.broker, self.broker.make, packet.packet_id
        if packet_id is None:
            self._take(packet)
        elif packet.qos == 1 or make.largest_qos == 1:
            packet.qos = 1
            if self._take(packet) and make.writing:
                self.call_later(make.writing, self._written, packet_id)
            else:
                self.put(PubAck(packet_id=packet_id))
        else:
            self.put(PubRec(packet_id=packet_id))
            held = session.unreleased.get(packet_id)
            if make.once and held and (held.topic, held.payload) == (packet.topic, packet.payload):
                return  # as Mosquitto compares what comes again
            session.unreleased[packet_id] = packet
            if make.delivers_at_release:
                broker.record(self.client_id, packet)
            else:
                self._take(packet)

    def _take(self, packet: Publish) -> bool:
        self.broker.record(self.client_id, packet)
        return self.broker.take(packet, self)

    def _written(self, packet_id: int) -> None:
        if self.session is not None and self.session.connection is self:
            self.put(PubAck(packet_id=packet_id))
            self.broker.flush()

    def _subscribe(self, packet: Subscribe, session: Session) -> None:
        broker = self.broker
        codes = []
        asked = []
        for one in packet.subscriptions:
            if broker.denies(one.topic_filter):
                codes.append(0x80)
                continue
            one.qos = min(one.qos, broker.make.largest_qos)
            codes.append(one.qos)
            known = one.topic_filter in session.filters
            session.filters[one.topic_filter] = one
            if one.retain_handling == 0 or (one.retain_handling == 1 and not known):
                asked.append(one)
        broker.changed()
        self.put(SubAck(packet_id=packet.packet_id, reason_codes=codes))
        for one in asked:
            for message in broker.retained_for(one.topic_filter):
                session.push(message, one.qos, retain=True)
