"""The hooks of OctopiA: between the node, its tables and the other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.api import (
    Filter,
    MessageTrace,
    OverlayAlgorithm,
    PluginError,
    Reject,
    Source,
    TracedTree,
)
from ildm.mqtt import IldmError, PacketType, Property, Publish, Unsubscribe, Version, decode
from ildm_algorithms.exchange.config import with_absence
from ildm_algorithms.exchange.log import Log
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.exchange.repeated import identity_of
from ildm_algorithms.octopia.config import OctopiaConfig
from ildm_algorithms.octopia.content.attributes import AttributeReader
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.delivery.carried import Carried
from ildm_algorithms.octopia.delivery.casting import Casting
from ildm_algorithms.octopia.delivery.clients import Clients
from ildm_algorithms.octopia.delivery.copies import LocalCopies
from ildm_algorithms.octopia.delivery.interest import Interest
from ildm_algorithms.octopia.delivery.local import LocalFilters
from ildm_algorithms.octopia.delivery.missed import Missing
from ildm_algorithms.octopia.delivery.offers import Offers
from ildm_algorithms.octopia.delivery.retained import RetainedSync
from ildm_algorithms.octopia.describe import Tracer, describe
from ildm_algorithms.octopia.grid.loads import Loads
from ildm_algorithms.octopia.grid.members import Hooks, Members, Tables
from ildm_algorithms.octopia.messages import (
    CODEC,
    Ack,
    Adverts,
    Again,
    Ask,
    Bye,
    Civs,
    Digests,
    Fetch,
    Forgot,
    Held,
    Hello,
    Late,
    Offer,
    OverlayError,
    Owed,
    Pub,
    Refused,
    Relay,
    Subs,
    Trace,
    Traced,
    Want,
)
from ildm_algorithms.octopia.tables.published import Published
from ildm_algorithms.octopia.tables.replicas import Replicas

if TYPE_CHECKING:
    from ildm.api import Link, NodeApi, OverlayView, Peer, Session, Unreachable
    from ildm.mqtt import Connect, Subscribe, Subscription
    from ildm_algorithms.octopia.grid.scot import View

__all__ = ["Octopia"]

SLACK = 60.0
"""Seconds for which a message may be on its way after its origin has forgotten it."""
BYE = 0.2
"""Seconds between looks at what is still to be acknowledged when the node stops."""
LOOKS = 20
"""Looks after which it does not wait any more."""


class Octopia(OverlayAlgorithm[OctopiaConfig], Filter[OctopiaConfig]):
    """Content-based publish/subscribe over a grid of clusters of brokers."""

    wants = frozenset({(Source.CLIENT, PacketType.UNSUBSCRIBE)})

    def __init__(self, api: NodeApi, config: OctopiaConfig) -> None:
        super().__init__(api, with_absence(config, api.expiry))
        config = self.config
        if api.node_id not in config.grid.members:
            raise PluginError(
                f"this node is {api.node_id!r}, and algorithm.members lists {', '.join(config.grid.members)}"
            )
        self.counters: Counter[str] = Counter()
        self.local = LocalFilters(config, self.count, api.log)
        self.reader = AttributeReader(config.attributes, self.count)
        self.copies = LocalCopies(api, self.local, self.reader.read, self.count)
        hooks = Hooks(
            tables=self._tables,
            hello=self._hello,
            restarted=self._restarted,
            view_changed=self._view_changed,
            lost=self._lost,
        )
        self.members = Members(api, config, hooks, self.count)
        self.loads = Loads(api, config, self.members)
        self.replicas = Replicas(api, config, self.members, self.count)
        self.casting = Casting(
            api, config, self.members, self.replicas, self.loads, self.reader.read, self._arrived, self.count
        )
        kept = config.absence_period + config.cast_deadline + SLACK
        self.seen = Receipts(api.now, kept, config.seen_bytes, self.count)
        self.log = Log(api, config.absence_period, config.kept_bytes, self.count)
        self.offers = Offers(api, config, self.members, self.log, self.reader.read, self.count)
        self.log.owed = self.offers.is_owed
        self.missing = Missing(api, config, self.members, self.seen, self._take_late, self.count)
        self.retained = RetainedSync(
            api, config, self.members, self.copies, self.log.is_unwritten, self.count
        )
        self.tracer = Tracer(api, self.members, self.replicas, self.loads)
        self.published = Published(api, config, self.replicas, self.count)
        self._leaving = False
        self.clients = Clients(config, self.local, self.count)
        self.interest = Interest(
            api, self.local, self.clients.holders, self.replicas, self.missing, self.retained
        )
        self._receivers = self._by_type()

    def _by_type(self) -> dict[type, Callable[[str, Any], None]]:
        """The receiver of each type of message from a node that is known."""
        return {
            Bye: self.members.on_bye,
            Pub: self.casting.on_pub,
            Ack: self.casting.on_ack,
            Subs: self.replicas.on_subs,
            Fetch: self.replicas.on_fetch,
            Adverts: self.replicas.sessions.on_adverts,
            Again: self.replicas.sessions.on_again,
            Civs: self.replicas.sessions.on_civs,
            Owed: self.missing.on_owed,
            Ask: self.offers.on_ask,
            Forgot: self.offers.on_ask,
            Offer: self.missing.on_offer,
            Want: self.offers.on_want,
            Late: self.missing.on_late,
            Digests: self.retained.on_digests,
            Held: self.retained.on_held,
            Trace: self.tracer.on_trace,
            Traced: self.tracer.on_traced,
        }

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by
        self.api.count(name, by)

    # hooks of the node ----------------------------------------------------------------------------------

    def on_ildm_start(self) -> None:
        """Say what is advertised; who the others are is learnt from neighbours."""
        self.members.start()
        self.missing.start()
        self.retained.start()
        self.published.start()
        self.log.restore()
        self.offers.start()

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Tell the nodes of the cluster what local clients want."""
        if source is None:
            self.interest.change(changes)

    def on_publish(self, message: Publish, turn: int) -> None:
        """Spread a local client's message, or its will."""
        if self.local.is_below_root(message.topic):
            self.count("published_below_root")  # nobody matches it against anything: it stays here
            return
        carried = self._carried(message, turn)
        self.seen.add(self.api.node_id, carried.number)
        if message.retain:
            self.retained.entered(message.topic)
        self.copies.published(carried)
        if message.qos and self.config.qos:
            expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
            payload = Message(carried.number, 0, carried.turn, carried.frame).encode()
            self.log.add(carried.number, message.topic, payload, expiry, subscribed=True)
            self.api.when_kept(partial(self._written, carried))
        else:
            self._spread(carried)

    def _written(self, carried: Carried) -> None:
        self.log.written(carried.number)
        self._spread(carried)

    def _spread(self, carried: Carried) -> None:
        clusters = self.published.clusters_of(carried)
        contacts, secondary = self.members.contacts, self.members.view.secondary.values()
        absent = frozenset().union(*(contacts[node_id].absent for node_id in secondary))
        self.casting.publish(carried, clusters, partial(self._done, carried, absent))

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self._take(sender, data, direct=True)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.members.on_unreachable(node_id, reason)

    def on_link_up(self, link: Link) -> None:
        self.loads.link_up(link)
        if link.introducer:
            self.members.introduced(link.peer)
        else:
            self.members.linked(link.node_id)

    def on_link_down(self, link: Link) -> None:
        self.loads.link_down(link)

    def on_ildm_remove(self, host: str, port: int) -> None:
        self.members.forget_introducer(f"{host}:{port}")

    def on_ildm_stop(self) -> None:
        """Wait for messages under way, then tell the others."""
        self._leaving = True
        self.missing.stop()
        self._leave(LOOKS)

    def _leave(self, looks: int) -> None:
        if self.casting.busy and looks:
            self.api.call_later(BYE, self._leave, looks - 1)
            return
        if self.casting.busy:
            self.count("left_unfinished")
        self.members.stop()
        self._leaving = False
        self.api.log("left the grid")

    def is_leaving(self) -> bool:
        return self._leaving

    def admit_client(self, session: Session, packet: Connect) -> Connect:
        self.clients.connecting(session, packet)
        return packet

    def on_session_closed(self, session: Session) -> None:
        self.clients.closed(session)

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        packet = decode(message, session.version)
        assert isinstance(packet, Unsubscribe)
        self.clients.unsubscribed(session, packet.topic_filters)

    def admit_subscription(
        self, session: Session, subscription: Subscription, packet: Subscribe
    ) -> Subscription | Reject:
        """Refuse an expression that cannot be understood, is not allowed, or is one too many."""
        return self.clients.refusal(session, subscription.topic_filter) or subscription

    def overlay(self) -> OverlayView:
        return describe(self)

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        if self.local.is_below_root(topic):  # as on_publish
            stays = [TracedTree(name=topic, tree=None)]
            done(MessageTrace(topic=topic, trees=stays, nodes=0, messages=0, depth=0, complete=True))
            return
        self.tracer.trace(topic, done)

    # advertisements -------------------------------------------------------------------------------------

    def advertise(self, content: ContentFilter) -> int:
        """Announce what this node's clients publish; answers a number to withdraw it by."""
        return self.published.advertise(content)

    def unadvertise(self, uid: int) -> bool:
        """Withdraw it. False: there is no such advertisement."""
        return self.replicas.sessions.unadvertise(uid)

    # messages -------------------------------------------------------------------------------------------

    def _carried(self, message: Publish, turn: int) -> Carried:
        qos = min(message.qos, self.config.qos)
        properties = dict(message.properties)
        properties.pop(Property.TOPIC_ALIAS, None)
        copy = replace(message, qos=qos, dup=False, packet_id=1 if qos else None, properties=properties)
        return Carried(
            self.members.number,
            self.casting.next_number(),
            turn & 0xFFFF,
            copy.encode(Version.V5),
            self.reader.read,
            self.api.now(),
            everywhere=message.retain,
            reliable=qos > 0 or message.retain,
            publish=copy,
        )

    def _done(self, carried: Carried, absent: frozenset[str], missed: frozenset[str]) -> None:
        """A message has reached all that it could; some nodes may have missed it. ``absent``: what they want
        was not known when it was published."""
        missed |= absent
        self.log.done(carried.number, missed)
        if missed and carried.publish.qos:
            self.count("incomplete")
            self.offers.owe(sorted(missed), carried.published)

    def _arrived(self, carried: Carried, sender: str) -> None:
        """A message has come from another node."""
        if not self.seen.add(self.members.order[carried.origin], carried.number):
            self.count("duplicates")
            return
        self._take_message(carried)

    def _take_late(self, origin: str, message: Message) -> None:
        """One that this node had missed."""
        if not self.seen.add(origin, message.number):
            self.count("duplicates")
            return
        number = self.members.contacts[origin].number
        carried = Carried(
            number, message.number, message.turn, message.frame, self.reader.read, self.api.now()
        )
        if carried.publish.retain and carried.publish in self.retained.fetched:
            self.count("late_fetched")
            return
        self._take_message(carried)

    def _take_message(self, carried: Carried) -> None:
        message = carried.publish
        if self.local.is_below_root(message.topic) or message.topic.startswith("$"):
            raise OverlayError("a message on a topic that does not cross")
        identity = self.members.order[carried.origin], carried.number
        if message.retain:
            identity = identity_of(message) or identity
        if message.qos and self.api.has_injected(*identity):
            self.count("duplicates")
            return
        self.copies.arrived(carried, identity)
        if message.retain:
            self.retained.entered(message.topic)

    # other nodes ----------------------------------------------------------------------------------------

    def _tables(self, node_id: str) -> Tables:
        return Tables(
            *self.replicas.sessions.to(node_id),
            *self.replicas.sessions.of(node_id),
            self.retained.digest,
            self.replicas.absent(),
            self.replicas.sets(node_id),
        )

    def _hello(self, node_id: str, hello: Hello, new: bool) -> None:
        self.replicas.hello(node_id, hello)
        self.retained.hello(node_id, hello.retained)
        if new:
            self.offers.back(node_id)

    def _restarted(self, node_id: str) -> None:
        self.replicas.restarted(node_id)
        self.casting.lost(node_id)

    def _view_changed(self, before: View) -> None:
        self.members.greet_region()  # before they hear that nobody wants what those did who have gone
        self.replicas.view_changed(before)
        self.casting.view_changed()

    def _lost(self, node_id: str) -> None:
        self.casting.lost(node_id)

    def _take(self, sender: Peer, data: bytes, direct: bool) -> None:
        """Take data of another node. Wrong data are dropped and counted, and do no harm here."""
        try:
            self._take_one(sender, CODEC.decode(data), direct)
        except IldmError as error:
            self.count("malformed")
            self.api.log("dropped what another node sent", node=sender.node_id, error=str(error))

    def _take_one(self, sender: Peer, message: object, direct: bool) -> None:
        if isinstance(message, Hello):
            self.members.on_hello(sender, message, direct)
        elif isinstance(message, Refused):
            self.members.on_refused(sender, message)
        elif not self.members.accepts(sender, direct):
            return
        elif isinstance(message, Relay) and direct:
            self.members.on_relay(message, partial(self._take, direct=False))
        elif type(message) in self._receivers:
            self._receivers[type(message)](sender.node_id, message)
        else:
            raise OverlayError(f"{type(message).__name__} is not expected here")
