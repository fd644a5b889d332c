"""Whether a neighbour has the same broker, so that each message would come twice.

Each node subscribes at its broker to one topic for each link, and publishes to the neighbour's. A node that
hears its own topic has the neighbour's broker, or one that passes on what the neighbour's gets: a cluster, or
bridges. The topics come from the random token of the link's handshake, so links need no message for it. Each
end subscribes before it publishes: whichever comes later is heard by the other, however long after the link.

The topics begin with ``$``, so subscribers of everything do not get them, and neither nodes nor bridges of
everything carry them elsewhere. If the broker delivers nothing there, nothing is found: the node publishes
to itself first, and says so. What was found holds until one of the two brokers' connections is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ildm.api import Unreachable
from ildm.core.backoff import Backoff
from ildm.core.broker.broker_query import BrokerQuery
from ildm.core.broker.own_ids import SAME
from ildm.mqtt import (
    ConnAck,
    Disconnect,
    PacketType,
    PingReq,
    Property,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.broker.injection import Injector

PREFIX = "$ildm/probe/same/"
ATTEMPTS = 3
"""Connections in a row on which the node does not hear itself; then it waits for the broker to come anew."""
ECHO = 2.0
"""Seconds in which a broker delivers what the node publishes to itself."""
BATCH = 100
"""Topics of one SUBSCRIBE."""
CHECKED_AFTER = 10.0
"""Seconds after which a neighbour that is not heard has another broker: it is told no more on later links."""
MOST_NODES = 1000
"""Nodes of which it is remembered whether they have the same broker."""
SHOWN = 300.0
"""Seconds for which a neighbour is shown after its link was last refused."""
MOST_DIGITS = 9
NOT_HEARD = (
    "it cannot be found out whether a neighbour has the same broker: the broker delivers nothing on "
    f"{PREFIX}# to the node's account, whose rules have to allow it"
)


def topic_of(token: str, node: str) -> str:
    """Where a node listens for the neighbour of a link; who knows one end's does not know the other's."""
    return PREFIX + sha256(f"{token}\0{node}".encode()).hexdigest()[:32]


def number_in(text: str) -> int:
    """A node's number as a neighbour has said it; 0, which no node has, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else 0


class _Link:
    """What is known of a connected link."""

    __slots__ = ("boot", "number", "token", "told_at", "topic")

    def __init__(self, token: str, topic: str, boot: int, number: int) -> None:
        self.token = token
        self.topic = topic
        self.boot = boot
        self.number = number
        self.told_at: float | None = None
        """When this node has published to the neighbour's topic."""


class SameBroker:
    """Of one node."""

    def __init__(self, injector: Injector) -> None:
        self.injector = injector
        self.parts = injector.parts
        self.driver = injector.parts.driver
        self.number = 0
        """Changes with each connection to the broker: what a neighbour has found holds for one number."""
        self.found: Callable[[str, int], None] = lambda node, number: None
        """Called with a neighbour that has the same broker, and that one's number."""
        self.unheard: str | None = None
        """Why nothing would be found, for people; None: it would, as far as is known."""
        self.session: HearingSession | None = None
        self._links: dict[str, _Link] = {}
        self._topics: dict[str, str] = {}
        """Topic -> the neighbour that would publish to it."""
        self._same: dict[str, tuple[int, int, float]] = {}
        """Neighbours with the same broker: boot, number, and when their link was last refused."""
        self._checked: dict[str, tuple[int, int]] = {}
        """Neighbours with another one: boot, number."""
        config = self.parts.config.broker
        self._backoff = Backoff(self.driver.random, config.reconnect_min, config.reconnect_max)
        self._attempts = 0
        self._is_new = False
        """The broker has come, and :attr:`number` stands for it, but the session has not been accepted."""
        self._timer: Timer | None = None
        self._told = False
        self._stopped = False

    # the broker -------------------------------------------------------------------------------

    def broker_came(self) -> None:
        """The node's own session was accepted."""
        self._anew()
        self._is_new = True
        self._attempts = 0
        self._cancel_timer()
        self._dial()

    def broker_moved(self) -> None:
        """The broker is looked for at another address."""
        self.unheard = None
        self._cancel_timer()
        session, self.session = self.session, None
        if session is not None:
            session.abort()

    def stop(self) -> None:
        self._stopped = True
        self._cancel_timer()
        session, self.session = self.session, None
        if session is not None:
            session.end()

    def _anew(self) -> None:
        """Perhaps it is another broker: nothing that was found holds any longer."""
        self.number += 1
        self._same.clear()
        self._checked.clear()

    def _dial(self) -> None:
        """Connect, as soon as there are a link and a broker; without a link nobody is to be heard."""
        self._timer = None
        wanted = bool(self._links) and not self._stopped and self._attempts < ATTEMPTS
        if self.session is None and wanted and self.injector.connected:
            self.session = HearingSession(self)
            timeout = self.parts.config.broker.connect_timeout
            self.driver.dial(self.parts.brokers.current, self.session, timeout)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # its session ------------------------------------------------------------------------------

    def accepted(self, session: HearingSession) -> None:
        """The broker has taken the session: it is to listen for all links."""
        if not self._is_new:
            self._anew()
        self._is_new = False
        for link in self._links.values():
            link.told_at = None
            session.listen(link.topic)

    def ended(self, session: HearingSession) -> None:
        if session is not self.session:
            return  # of an address that was left meanwhile
        self.session = None
        if session.echoed and session.lived >= self._backoff.maximum:
            self._backoff.reset()
        self._attempts = 0 if session.echoed else self._attempts + 1
        if self._attempts >= ATTEMPTS:
            self.not_heard()
        elif not self._stopped:
            self._timer = self.driver.call_later(self._backoff.next(), self._dial)

    def hears(self) -> None:
        """The broker has delivered what the node has published to itself."""
        self.unheard = None

    def not_heard(self) -> None:
        self.unheard = NOT_HEARD
        self._say()

    def _say(self) -> None:
        """To whom it matters, once."""
        if self.unheard is not None and self._links and not self._told:
            self._told = True
            self.driver.log("info", "a neighbour before the same broker is not noticed", reason=self.unheard)

    def answered(self, session: HearingSession, topic: str) -> None:
        """The broker has answered the subscription: if it was granted, a neighbour that comes later is heard.

        If not, this node may still be heard by the neighbour.
        """
        node = self._topics.get(topic)
        if node is None:
            return
        link = self._links[node]
        if self._checked.get(node) != (link.boot, link.number):
            session.publish(topic_of(link.token, node), str(self.number).encode())
        link.told_at = self.driver.now()

    def heard(self, topic: str, payload: bytes) -> None:
        node = self._topics.get(topic)
        if node is not None:
            self.found(node, number_in(payload.decode("utf-8", "replace")))

    # links ------------------------------------------------------------------------------------

    def linked(self, node: str, token: str, boot: int, number: int) -> None:
        """There is a link with a neighbour, which has said its boot and number."""
        self.unlinked(node)
        topic = topic_of(token, self.parts.node_id)
        self._links[node] = _Link(token, topic, boot, number)
        self._topics[topic] = node
        if self.session is not None:
            self.session.listen(topic)
        elif self._timer is None:
            self._dial()
        self._say()

    def unlinked(self, node: str) -> None:
        """The link is not connected any longer."""
        link = self._links.pop(node, None)
        if link is None:
            return
        del self._topics[link.topic]
        if self.session is not None:
            self.session.leave(link.topic)
        if link.told_at is not None and self.driver.now() - link.told_at >= CHECKED_AFTER:
            self._checked[node] = link.boot, link.number
            if len(self._checked) > MOST_NODES:
                del self._checked[next(iter(self._checked))]

    def remember(self, node: str, boot: int, number: int) -> None:
        """A neighbour has the same broker."""
        self._same.pop(node, None)
        self._same[node] = boot, number, self.driver.now()
        if len(self._same) > MOST_NODES:
            del self._same[next(iter(self._same))]

    def refuses(self, node: str, boot: int, number: int) -> bool:
        """Whether a neighbour that wants a link is known to have the same broker still."""
        known = self._same.get(node)
        if known is None or known[:2] != (boot, number):
            return False
        self.remember(node, boot, number)
        return True

    def refused_by(self, node: str) -> None:
        """A neighbour has refused a link, as it has found out that it has the same broker."""
        boot, number, _ = self._same.get(node, (0, 0, 0.0))
        self.remember(node, boot, number)

    @property
    def shared_with(self) -> list[str]:
        """Neighbours whose link was refused of late, as they have the same broker."""
        since = self.driver.now() - SHOWN
        return sorted(node for node, (_, _, at) in self._same.items() if at >= since)


class HearingSession(BrokerQuery):
    """A connection to the broker that stays; it is the only own session that subscribes and stays."""

    __slots__ = (
        "_asked",
        "_echo",
        "_keep_alive",
        "_last_heard",
        "_made_at",
        "_packet_id",
        "_subscribed",
        "_waiting",
        "accepted",
        "echoed",
        "same",
    )

    def __init__(self, same: SameBroker) -> None:
        injector = same.injector
        assert injector.version is not None
        super().__init__(injector, injector.ids.of(SAME), injector.version, 1 << 20)
        self.same = same
        self.accepted = False
        self.echoed = False
        """The broker has delivered to the node's account on this connection."""
        self._echo = PREFIX + self.driver.token(16).hex()
        """Known to nobody else: who reads it at the broker learns nothing about links."""
        self._waiting: dict[str, None] = {self._echo: None}
        self._asked: list[str] = []
        """Topics of the SUBSCRIBE that is not answered yet."""
        self._subscribed: set[str] = set()
        self._packet_id = 0
        self._keep_alive = injector.parts.config.broker.keep_alive
        self._last_heard = 0.0
        self._made_at = 0.0

    @property
    def lived(self) -> float:
        return self.driver.now() - self._made_at

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._made_at = self.driver.now()
        if self.same.session is not self:
            self.abort()
            return
        self._greet(self._keep_alive)
        self._set_timer(self.injector.parts.config.broker.connect_timeout, self.abort)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self._made_at = self.driver.now()
        self.same.ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.same.ended(self)

    def end(self) -> None:
        """Close the connection."""
        self._set_timer(None)
        if self.is_open:
            self.write(Disconnect().encode(self.version))
        self.close()

    def listen(self, topic: str) -> None:
        """Subscribe to a topic; :meth:`SameBroker.answered` is told when that is done."""
        self._waiting[topic] = None
        self._subscribe()

    def leave(self, topic: str) -> None:
        """Give a subscription up."""
        self._waiting.pop(topic, None)
        if topic in self._subscribed:
            self._subscribed.remove(topic)
            packet = Unsubscribe(packet_id=self._next_id(), topic_filters=[topic])
            self.write(packet.encode(self.version))

    def publish(self, topic: str, payload: bytes) -> None:
        self.write(Publish(topic=topic, payload=payload).encode(self.version))

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65535 + 1
        return self._packet_id

    def _subscribe(self) -> None:
        if not (self.accepted and self.is_open and self._waiting) or self._asked:
            return
        self._asked = list(self._waiting)[:BATCH]
        for topic in self._asked:
            del self._waiting[topic]
        self._subscribed.update(self._asked)
        wanted = [Subscription(topic_filter=topic, qos=0) for topic in self._asked]
        self.write(Subscribe(packet_id=self._next_id(), subscriptions=wanted).encode(self.version))

    def _packet(self, frame: bytes) -> None:
        self._last_heard = self.driver.now()
        kind = frame[0] >> 4
        if kind == PacketType.CONNACK:
            code = connack_code(frame)
            if code:
                self.injector.ids.refused(self.client_id, code)
                self.abort()
                return
            packet = decode(frame, self.version)
            assert isinstance(packet, ConnAck)
            told = int(packet.properties.get(Property.SERVER_KEEP_ALIVE, self._keep_alive))
            self._keep_alive = max(1, told)
            self._wait_to_ping()
            self.same.accepted(self)
            self.accepted = True
            self._subscribe()
        elif kind == PacketType.SUBACK:
            answer = decode(frame, self.version)
            assert isinstance(answer, SubAck)
            self._granted(answer)
        elif kind == PacketType.PUBLISH:
            message = decode(frame, self.version)
            assert isinstance(message, Publish)
            if message.topic == self._echo:
                self.echoed = True
                self.same.hears()
            else:
                self.same.heard(message.topic, message.payload)

    def _granted(self, packet: SubAck) -> None:
        asked, self._asked = self._asked, []
        for topic, code in zip(asked, packet.reason_codes, strict=False):
            if topic != self._echo:
                self.same.answered(self, topic)
            elif code >= 0x80:
                self.same.not_heard()
            else:
                self.publish(topic, b"")
                self.driver.call_later(ECHO, self._no_echo)
        self._subscribe()

    def _no_echo(self) -> None:
        if self.is_open and not self.echoed:
            self.same.not_heard()

    def _wait_to_ping(self) -> None:
        self._set_timer(0.7 * self._keep_alive, self._ping)

    def _ping(self) -> None:
        if self.driver.now() - self._last_heard > 2 * self._keep_alive:
            self.abort()
            return
        self.write(PingReq().encode(self.version))
        self._wait_to_ping()
