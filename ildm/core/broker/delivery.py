"""When the local broker delivers a message of QoS 2: as soon as it has it, or once it is released.

MQTT leaves both open (4.3.3, the methods of figure 4.3 in 3.1.1). It matters where a broker has forgotten a
session: what it has answered with PUBREC is then delivered, or lost. So the node tries it, once in an
incarnation, with a message to itself on a topic of its own. Behind the message goes one of QoS 0: what is
delivered at once comes before that one, for the order of a topic is kept (MQTT-4.6.0-5). The topic begins
with ``$``, so that no subscriber of everything gets it. ActiveMQ and amqtt deliver nothing on such a topic;
there nothing is found out, as subscribers of everything would see an ordinary one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ildm.api import Unreachable
from ildm.core.broker.broker_query import BrokerQuery
from ildm.core.broker.own_ids import PROBE
from ildm.core.tables import BROKERS
from ildm.mqtt import (
    ConnAck,
    Disconnect,
    PacketType,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.broker.injection import Injector

ATTEMPTS = 3
"""Connections to the broker, one after each of the node's own sessions, that may bring no answer."""
PATIENCE = 10.0
"""Seconds for all of it."""
ECHO = 2.0
"""Seconds after which a topic is given up on which nothing comes."""
SETTLE = 0.5
"""Seconds which a message has still to come that the other one has overtaken."""
_MESSAGE, _BEFORE, _AFTER = b"released later", b"before the release", b"after the release"


class Delivers(Enum):
    """When a broker delivers messages of QoS 2."""

    AT_PUBLISH = "publish"
    AT_RELEASE = "release"


_PACKETS = {Delivers.AT_PUBLISH: "PUBLISH", Delivers.AT_RELEASE: "PUBREL"}


class Delivery:
    """What is known of that, and what it means for a message that was under way in a forgotten session."""

    def __init__(self, injector: Injector) -> None:
        self.injector = injector
        self.parts = injector.parts
        self._known: dict[str, Delivers] = {}
        self._attempts = 0
        self._found = False
        self._probe: DeliveryProbe | None = None

    def restore(self) -> None:
        """Take up what an earlier incarnation has found out about this broker."""
        for key, (delivers,) in list(self.parts.store.load(BROKERS)):
            try:
                known = Delivers(delivers)
            except ValueError:
                self.parts.store.set_aside(BROKERS, key, f"delivers {delivers!r}")
                continue
            if key[0] in [str(address) for address in self.parts.brokers.addresses]:
                self._known[str(key[0])] = known
            else:
                self.parts.store.put(BROKERS, key, None)

    @property
    def known(self) -> Delivers | None:
        """Of the broker in use: found out in this incarnation, or an earlier one."""
        return self._known.get(str(self.parts.brokers.current))

    def broker_moved(self) -> None:
        """The broker is looked for at another address."""
        self._found = False
        self._attempts = 0
        if self._probe is not None:
            self._probe.abort()
            self._probe = None

    def broker_came(self) -> None:
        """The node's own session was accepted."""
        if self._found or self._probe is not None or self._attempts >= ATTEMPTS:
            return
        self._attempts += 1
        self._probe = DeliveryProbe(self, ["$ildm/probe"])
        config = self.parts.config.broker
        self.parts.driver.dial(self.parts.brokers.current, self._probe, config.connect_timeout)

    def ended(self, probe: DeliveryProbe, found: Delivers | None) -> None:
        """A probe has ended; None: without an answer."""
        if probe is not self._probe:
            return  # of an address that was left meanwhile
        address = str(probe.address)
        self._probe = None
        if probe.renamed:
            self.broker_came()
        if found is not None:
            self._found = True
            if found is not self._known.get(address):
                self._known[address] = found
                self.parts.store.put(BROKERS, (address,), (found.value,))
                self.parts.driver.log("info", "found out when the broker delivers QoS 2", at=_PACKETS[found])

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.abort()
        self._attempts = ATTEMPTS

    def sends_anew(self, released: bool, at: str | None = None) -> bool:
        """Whether a message is sent anew that was under way in a session which the broker has forgotten.

        ``released``: the broker had answered it with PUBREC. ``at``: the address where that was; by default
        the one in use.
        """
        known = self.known if at is None else self._known.get(at)
        if known is Delivers.AT_RELEASE:
            return True
        if released and known is Delivers.AT_PUBLISH:
            return False
        again = self.parts.config.spool.uncertain == "resend"
        self.parts.counters["injection_uncertain_resent" if again else "injection_uncertain_dropped"] += 1
        return again


class DeliveryProbe(BrokerQuery):
    """One connection that publishes to itself, on one topic after the other until something comes.

    Args:
        prefixes: what the topics begin with.
    """

    __slots__ = (
        "_before",
        "_echoed",
        "_message_id",
        "_prefixes",
        "_topic",
        "address",
        "delivery",
        "found",
        "renamed",
    )

    def __init__(self, delivery: Delivery, prefixes: list[str]) -> None:
        injector = delivery.injector
        assert injector.version is not None
        super().__init__(injector, injector.ids.of(PROBE), injector.version, 1 << 20)
        self.delivery = delivery
        self.address = injector.parts.brokers.current
        self.found: Delivers | None = None
        self._prefixes = prefixes
        self._topic = ""
        self._message_id = 0
        self.renamed = False
        """The broker has refused its client identifier, and there is another one."""
        self._echoed = False
        """The message behind it has been delivered."""
        self._before = True
        """It has not been released."""

    # connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._greet(self.delivery.parts.config.broker.keep_alive)
        self._set_timer(PATIENCE, self._end, None)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self.delivery.ended(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.delivery.ended(self, self.found)

    # what is tried ----------------------------------------------------------------------------

    def _packet(self, frame: bytes) -> None:
        if frame[0] >> 4 == PacketType.CONNACK:
            code = connack_code(frame)
            if code:
                self.renamed = self.injector.ids.refused(self.client_id, code)
                self.abort()
                return
        match decode(frame, self.version):
            case ConnAck() as connack:
                if int(connack.properties.get(Property.MAXIMUM_QOS, 2)) < 2:
                    self._end(None)
                else:
                    self._try_next()
            case SubAck() as suback:
                if suback.reason_codes[0] >= 0x80:
                    self._try_next()
                else:
                    self._send(self._publication(_MESSAGE, 2))
            case PubRec() | PubAck() as answer if answer.packet_id == self._message_id:
                if answer.reason_code >= 0x80:
                    self._try_next()
                elif isinstance(answer, PubAck):
                    self._end(Delivers.AT_PUBLISH)  # it makes QoS 1 of it
                else:
                    self._send(self._publication(_BEFORE))
                    self.driver.call_later(ECHO, self._no_echo, self._topic)
            case PubComp() as pubcomp if pubcomp.packet_id == self._message_id:
                self._send(self._publication(_AFTER))
            case Publish() as message if message.topic == self._topic:
                self._delivered(message.payload)

    def _try_next(self) -> None:
        if not self._prefixes:
            self._end(None)
            return
        token = self.driver.token(8).hex()
        self._topic = f"{self._prefixes.pop(0)}/{self.delivery.parts.node_id}/{token}"
        self._message_id += 2
        self._echoed = False
        wanted = [Subscription(topic_filter=self._topic, qos=0)]
        self._send(Subscribe(packet_id=self._message_id - 1, subscriptions=wanted))

    def _no_echo(self, topic: str) -> None:
        if self.is_open and topic == self._topic and not self._echoed:
            self._send(PubRel(packet_id=self._message_id))
            self._try_next()

    def _delivered(self, payload: bytes) -> None:
        if payload == _MESSAGE:
            self._end(Delivers.AT_PUBLISH if self._before else Delivers.AT_RELEASE)
        elif payload == _BEFORE:
            self._echoed = True
            self.driver.call_later(SETTLE, self._release)
        elif payload == _AFTER:
            self.driver.call_later(SETTLE, self._end, None)

    def _release(self) -> None:
        if self.is_open:
            self._before = False
            self._send(PubRel(packet_id=self._message_id))

    def _publication(self, payload: bytes, qos: int = 0) -> Publish:
        return Publish(
            topic=self._topic, payload=payload, qos=qos, packet_id=self._message_id if qos else None
        )

    def _send(self, packet: Any) -> None:
        self.write(packet.encode(self.version))

    def _end(self, found: Delivers | None) -> None:
        if self.is_open:
            self.found = self.found or found
            self._send(Disconnect())
            self.close()
