"""Where transferred messages go: the algorithm's answers, cached, and the round-robin over sessions.

An algorithm that decides on each message (``route_message``) is asked each time, and nothing is cached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ildm.core.frames import PUBLISH, frames_to_qos_0
from ildm.core.transfer.batch import Batch, may_join, single
from ildm.core.transfer.gathering import Gathering
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.inbound import NeighborReceipt
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.share import DeferredAck
from ildm.core.transfer.stamps import stamped
from ildm.core.transfer.watch import LOCAL
from ildm.mqtt import (
    EncodeError,
    MalformedPacket,
    Property,
    Publish,
    PublishView,
    Version,
    validate_topic_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ildm.api import Stamp
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.spool import Consumer, Identity
    from ildm.core.transfer.custody import Custody, Destination
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.ports import LocalBroker, Neighbor, Targets
    from ildm.core.transfer.receipt import Holdable
    from ildm.core.transfer.rules import LinkRules
    from ildm.core.transfer.watch import Recorder

MAX_CACHED_TOPIC = 512
"""Bytes of a topic whose route is remembered; longer ones, up to 64 kB each, would fill the memory."""


class Router:
    """Asks the algorithm once for each topic and source, and sends along the answer."""

    def __init__(
        self,
        driver: Driver,
        dispatch: Dispatch,
        counters: Counters,
        cache_size: int,
        round_robin: Literal["publisher", "message"],
        retained: RetainedStore,
        injector: LocalBroker,
        has_overlay: bool = False,
        custody: Custody | None = None,
    ) -> None:
        self.custody = custody
        self.site_rules: LinkRules | None = None
        """What may leave and enter the site, in an overlay."""
        self.retained = retained
        self.injector = injector
        self.has_overlay = has_overlay
        """The algorithm spreads the messages of local clients itself."""
        self.driver = driver
        self.dispatch = dispatch
        self.counters = counters
        self.cache_size = cache_size
        self.recorder: Recorder | None = None
        """Told of what comes; None: nobody looks."""
        self.by_message = round_robin == "message"
        self.local: dict[bytes, Targets] = {}
        """Routes of messages from local clients, by the bytes of the topic."""
        self._caches: dict[Neighbor, dict[bytes, Targets]] = {}
        self._routes: dict[Targets, Targets] = {}
        """Those in the caches, equal ones as one object."""
        self._turn = -1
        self._gathering = Gathering(self)

    @property
    def active(self) -> bool:
        """Whether an algorithm routes messages at all."""
        return self.dispatch.algorithm is not None

    def cache_of(self, source: Neighbor) -> dict[bytes, Targets]:
        """The cache of routes for messages from a neighbour; emptied in place, so it may be kept."""
        cache = self._caches.get(source)
        if cache is None:
            cache = self._caches[source] = {}
        return cache

    def forget(self, source: Neighbor) -> None:
        """A neighbour is gone for good."""
        self._caches.pop(source, None)

    def invalidate(self) -> None:
        """What the algorithm would answer has changed."""
        self.local.clear()
        self._routes.clear()
        for cache in self._caches.values():
            cache.clear()

    def find(self, topic: bytes, source: Neighbor | None) -> Targets:
        """Ask the algorithm about a topic that is not in the cache, and remember the answer.

        Raises:
            MalformedPacket: the bytes are no topic name.
        """
        cache = self.local if source is None else self.cache_of(source)
        route = self._ask(decode_topic(topic), False, source)
        if len(topic) <= MAX_CACHED_TOPIC:
            if len(cache) >= self.cache_size:
                cache.clear()
                self.counters["route_cache_flushes"] += 1
            if len(self._routes) >= self.cache_size:
                self._routes.clear()
            cache[topic] = route = self._routes.setdefault(route, route)
        return route

    def route(self, topic: bytes, retain: bool, source: Neighbor | None = None) -> Targets:
        """Where a message goes to, by memory or by the algorithm. Raises: as :meth:`find`."""
        if retain:
            return self._ask(topic.decode(), True, source)
        cache = self.local if source is None else self.cache_of(source)
        route = cache.get(topic)
        return self.find(topic, source) if route is None else route

    def _ask(self, topic: str, retain: bool, source: Neighbor | None) -> Targets:
        if topic.startswith("$"):
            return ()  # what the standard reserves for the broker stays with it (4.7.2)
        return _ruled(self.dispatch.route(topic, retain, source), topic)

    def reroute(self, topic: bytes, retain: bool, source: Neighbor | None = None) -> Targets:
        """Where a message goes that has lost its way as the tree has changed. Raises: as :meth:`find`."""
        name = decode_topic(topic)
        return () if name.startswith("$") else _ruled(self.dispatch.reroute(name, retain, source), name)

    def reroute_message(self, message: Publish, source: Neighbor | None = None) -> Targets:
        """The same for a message that the algorithm may want to see. Raises: as :meth:`find`."""
        if not self.dispatch.reroutes_each:
            return self.reroute(message.topic.encode(), message.retain, source)
        if message.topic.startswith("$"):
            return ()
        return _ruled(self.dispatch.reroute_message(message.copy(), source), message.topic)

    def next_publisher(self) -> int:
        """The turn of a publisher, or of a message, in the round-robin."""
        self._turn = (self._turn + 1) & 0xFFFF
        return self._turn

    def gather(
        self,
        route: Targets,
        frames: bytes,
        size: int,
        count: int,
        index: int,
        source: Holdable | None,
    ) -> None:
        """Transfer ``count`` frames of a local client, as those of a :class:`Batch`.

        They have one topic and ``size`` bytes each, and may wait for others of the same chunk until
        :meth:`send_gathered`.
        """
        if self.recorder is not None:
            self.recorder.run("received", LOCAL, frames, size)
        elif not self.by_message:
            self._gathering.add(route, frames, size, count, index, source)
            return
        self._gathering.send()
        self.forward(route, Batch(frames, count, size), index, source)

    def send_gathered(self) -> None:
        """A chunk has ended, from a client or from a neighbour."""
        self._gathering.send()

    def forward(
        self,
        route: Targets,
        batch: Batch,
        index: int,
        source: Holdable | None,
    ) -> None:
        """Transfer a batch over links; ``source`` is made to wait when there is no room."""
        if self.custody is not None and batch.qos:
            self._spool_batch(self.custody, route, batch, index, source)
            return
        self.counters["transferred_out"] += batch.count * len(route)
        for link, qos, priority in route:
            part = batch.at_qos(_most_qos(link, batch, qos))
            senders = link.senders
            if self.by_message and len(senders) > 1 and part.count > 1:
                for piece in _dealt(part, len(senders)):
                    turn = self.next_publisher()
                    senders[turn % len(senders)].send_batch(piece, source, None, priority)
            else:
                turn = self.next_publisher() if self.by_message else index
                senders[turn % len(senders)].send_batch(part, source, None, priority)

    def _spool_batch(
        self,
        custody: Custody,
        route: Targets,
        batch: Batch,
        index: int,
        source: Holdable | None,
        origin: Origin = UNKNOWN,
        here: bool = False,
        receipt: NeighborReceipt | None = None,
    ) -> None:
        """Take a batch of QoS 1 or 2 upon this node: for links and, with ``here``, for the local broker.

        ``source`` is made to wait when there is no room; a neighbour, whose ``receipt`` it is, gets no
        answer.
        """
        count = batch.count
        if route:
            self.counters["transferred_out"] += count * len(route)
        if not self.by_message:
            self._spool_part(custody, route, batch, index, index, source, origin, here, receipt)
        else:
            step = -(-count // min(max((len(link.senders) for link, _, _ in route), default=1), count))
            for first in range(0, count, step):
                part = batch.part(first, min(step, count - first))
                turn = self.next_publisher()
                self._spool_part(custody, route, part, index, turn, source, origin.at(first), here, receipt)
        if source is not None and custody.full:
            custody.hold(source)

    def _spool_part(
        self,
        custody: Custody,
        route: Targets,
        batch: Batch,
        index: int,
        turn: int,
        source: Holdable | None,
        origin: Origin,
        here: bool,
        receipt: NeighborReceipt | None,
    ) -> None:
        """The same for messages that have one ``turn`` in the round-robin."""
        count = batch.count
        destinations = [self.injector.destination(index, batch.qos, count)] if here else []
        for link, qos, priority in route:
            senders = link.senders
            sender = senders[turn % len(senders)]
            at_most = _most_qos(link, batch, qos)
            if at_most and link.kept:
                destinations.append((sender, at_most, priority))
            else:
                sender.send_batch(batch.at_qos(at_most), source if at_most else None, None, priority)
        if destinations:
            lsn = custody.take_batch(batch, destinations, turn, origin.identity, origin.reroute_id)
            if receipt is not None:
                custody.defer(lsn, DeferredAck(receipt, _consumers(destinations), count, 0, batch))
        elif receipt is not None:
            receipt.settle_batch(batch, 0, count)

    def run_arrived(
        self,
        source: Neighbor,
        topic: bytes,
        frames: bytes,
        size: int,
        index: int,
        inbound: Inbound | None,
        origin: Origin = UNKNOWN,
    ) -> None:
        """Take like frames from a neighbour: into the local broker, and onward; they may wait for others of
        the same chunk until :meth:`send_gathered`. ``inbound`` is that of QoS 1 and 2, ``origin`` what the
        neighbour has said of who they are.

        Raises:
            MqttError: no topic name, or more than the neighbour's credit; nothing is taken then.
        """
        count = len(frames) // size
        route = self.cache_of(source).get(topic)
        if origin.reroute_id is not None and self.custody is not None and self.dispatch.reroutes:
            route = self.reroute(topic, False, source)
        elif route is None:
            route = self.find(topic, source)
        if self.recorder is not None:
            self.recorder.run("received", source.node_id, frames, size)
        elif not self.by_message:
            self._gathering.add(route, frames, size, count, index, None, source, inbound, origin)
            return
        self._gathering.send()
        self.arrived_batch(source, route, Batch(frames, count, size), index, inbound, origin)

    def arrived_batch(
        self,
        source: Neighbor,
        route: Targets,
        batch: Batch,
        index: int,
        inbound: Inbound | None,
        origin: Origin,
    ) -> None:
        """Take a batch from a neighbour. Raises: as :meth:`run_arrived`."""
        if inbound is not None and self.custody is not None:
            self._taken_batch(self.custody, source, route, batch, index, inbound, origin)
            return
        receipt = None
        if inbound is not None:
            inbound.take_batch(batch)
            receipt = inbound.receipt
        source.transferred_in += batch.count
        self.counters["transferred_in"] += batch.count
        self.injector.send_batch(batch, index, receipt)
        if route:
            self.forward(route, batch, index, receipt)

    def _taken_batch(
        self,
        custody: Custody,
        source: Neighbor,
        route: Targets,
        batch: Batch,
        index: int,
        inbound: Inbound,
        origin: Origin,
    ) -> None:
        """Take a batch of QoS 1 or 2 from a neighbour upon this node, and answer it once that is durable."""
        answer, deferred = None, custody.full
        if deferred or origin.identity is None:
            inbound.take_batch(batch)
        else:
            answer = inbound.pass_batch(batch)
        receipt = inbound.receipt
        count = batch.count
        source.transferred_in += count
        self.counters["transferred_in"] += count
        done = 0
        for first, number, here in custody.judge(origin, count):
            if deferred and first > done:
                receipt.passed_batch(batch.part(done, first - done))
            done = first + number
            self._spool_batch(
                custody,
                route,
                batch.part(first, number),
                index,
                None,
                origin.at(first),
                here,
                receipt if deferred else None,
            )
        if answer is not None:
            inbound.answer_durable(answer)
        elif not deferred:
            receipt.passed_batch(batch)
        elif done < count:
            receipt.passed_batch(batch.part(done, count - done))

    def arrived(
        self,
        message: Publish,
        source: Neighbor,
        index: int,
        receipt: NeighborReceipt | None,
        origin: Origin = UNKNOWN,
    ) -> None:
        """Take a message of any kind from a neighbour: into the local broker, and onward.

        ``receipt`` waits for its packet identifier to be disposed of; ``origin`` is what the neighbour has
        said of who it is.
        """
        self._gathering.send()
        packet_id = message.packet_id
        if self.recorder is not None:
            self.recorder.message("received", source.node_id, message)
        if self.custody is not None and receipt is not None and packet_id is not None:
            self._taken(self.custody, message, packet_id, source, index, receipt, origin)
            return
        here, onward = message, message
        if message.retain and not message.topic.startswith("$"):
            here, merged, _ = self.retained.merge(message)
            if merged is None:  # stale
                if receipt is not None and packet_id is not None:
                    receipt.settle(packet_id)
                return
            onward = merged
        if here.packet_id != packet_id:
            here = replace(here, packet_id=packet_id)
        self.injector.publish(here, index, self.expiry(here), receipt)
        self._forward(onward, source, index, receipt)

    def _taken(
        self,
        custody: Custody,
        message: Publish,
        packet_id: int,
        source: Neighbor,
        index: int,
        receipt: NeighborReceipt,
        origin: Origin,
    ) -> None:
        """Take a message of QoS 1 or 2 from a neighbour upon this node, and answer it once that is
        durable."""
        found = custody.judge(origin, 1)
        here = bool(found) and found[0][2]
        if here and message.retain and not message.topic.startswith("$"):
            # what is remembered may be of this very message, whose record is not there as the node has died
            merged = self.retained.merge(message, is_new=origin.identity is not None).onward
            if merged is None:  # stale
                found = []
            else:
                message = merged
        deferred = custody.full
        destinations: Sequence[Destination] = ()
        lsn = 0
        if found:
            injected = [self.injector.destination(index, message.qos, 1)] if here else []
            lsn, destinations = self._spool(custody, message, source, index, None, origin, injected)
        if deferred and destinations:
            custody.defer(lsn, DeferredAck(receipt, _consumers(destinations), 1, packet_id))
        else:
            receipt.passed(packet_id)

    def _spool(
        self,
        custody: Custody,
        message: Publish,
        source: Neighbor | None,
        index: int,
        holder: Holdable | None,
        origin: Origin = UNKNOWN,
        destinations: Sequence[Destination] = (),
    ) -> tuple[int, Sequence[Destination]]:
        """Take a message of QoS 1 or 2 upon this node: for links and for other ``destinations``.

        ``holder`` is made to wait when there is no room. Answers the LSN of the record, and who is to have
        it.
        """
        if origin.reroute_id is not None and self.dispatch.reroutes:
            route = self.reroute_message(message, source)
            turn = self.next_publisher() if self.by_message and route else index
        else:
            route, turn = self._ask_each(message, source, index)
        expires_at = self.expiry(message)
        destinations = list(destinations)
        for link, qos, priority in route:
            # a retained message keeps its QoS: the far broker serves it to later subscribers with it
            wanted = message.qos if message.retain else min(message.qos, qos)
            wanted = min(wanted, link.config.qos if link.rules is None else link.most_qos(message.topic) or 0)
            if wanted and link.kept:
                destinations.append((link.senders[turn % len(link.senders)], wanted, priority))
            else:
                link.send(message, wanted, turn, expires_at, holder, priority)
        self.counters["transferred_out"] += len(route)
        if not destinations:
            return 0, ()
        try:
            batch = single(message, message.qos, expires_at)
        except EncodeError:
            self.counters["link_dropped_not_encodable"] += 1
            return 0, ()
        lsn = custody.take_batch(batch, destinations, turn, *origin)
        if holder is not None and custody.full:
            custody.hold(holder)
        return lsn, destinations

    def publish(
        self, message: Publish, index: int, holder: Holdable | None, stamp: Stamp | None = None
    ) -> None:
        """Transfer one message of a local client to where the algorithm wants it.

        It may wait for others of the same chunk until :meth:`send_gathered`, if there is a ``holder``.
        ``stamp`` is that of a retained message which came some time ago.
        """
        if holder is not None and may_join(message) and not (self.has_overlay or self.dispatch.asks_each):
            self._gather_message(message, index, holder)
            return
        self._gathering.send()
        if self.recorder is not None:
            self.recorder.message("received", LOCAL, message)
        if self.site_rules is not None and self.has_overlay:
            way = self.site_rules.outgoing.decide(message.topic.encode())
            if way is None:
                self.counters["site_rules_kept"] += not message.topic.startswith("$")
                return
            if way.qos < message.qos:
                message = _at_most(message, way.qos)
        if message.retain and not message.topic.startswith("$"):
            message = stamped(message, self.retained.entered(message, stamp, ("client", index)))
        if not self.has_overlay:
            self._forward(message, None, index, holder)
        elif not message.topic.startswith("$"):
            self.counters["published"] += 1
            turn = self.next_publisher() if self.by_message else index
            self.dispatch.call("on_publish", message, turn)
            if holder is not None and message.qos and self.custody is not None and self.custody.full:
                self.custody.hold(holder)

    def _gather_message(self, message: Publish, index: int, holder: Holdable) -> None:
        route = self.route(message.topic.encode(), False)
        if not route:
            return
        if message.dup:
            message = replace(message, dup=False)  # that it was sent before is between client and broker
        try:
            frame = message.encode(Version.V5)
        except EncodeError:
            self.counters["link_dropped_not_encodable"] += len(route)
            return
        self.gather(route, frame, len(frame), 1, index, holder)

    def _forward(
        self, message: Publish, source: Neighbor | None, index: int, holder: Holdable | None
    ) -> None:
        if message.topic.startswith("$"):
            return
        if self.custody is not None and message.qos:
            self._spool(self.custody, message, source, index, holder)
            return
        route, turn = self._ask_each(message, source, index)
        expires_at = self.expiry(message)
        for link, qos, priority in route:
            # a retained message keeps its QoS: the far broker serves it to later subscribers with it
            wanted = message.qos if message.retain else min(message.qos, qos)
            link.send(message, wanted, turn, expires_at, holder, priority)
        self.counters["transferred_out"] += len(route)

    def _ask_each(self, message: Publish, source: Neighbor | None, index: int) -> tuple[Targets, int]:
        """Where a message goes to, and its turn in the round-robin."""
        if message.topic.startswith("$"):
            return (), index
        if self.dispatch.asks_each:
            turn = self.next_publisher() if self.by_message else index
            route = self.dispatch.route_message(message.copy(), source, turn)
            return _ruled(route, message.topic), turn
        route = self.route(message.topic.encode(), message.retain, source)
        return route, self.next_publisher() if self.by_message and route else index

    def expiry(self, message: Publish) -> float | None:
        """When nobody wants the message any longer, in monotonic time."""
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        return None if expiry is None else self.driver.now() + expiry

    def inject(self, message: Publish, identity: Identity | None = None) -> bool:
        """Publish a message of the algorithm into the local broker, a stamped retained one after a look at
        what is known on its topic; False: one of this identity has come before."""
        if identity is not None and self.custody is not None:
            if message.retain and self.retained.is_old_repetition(message):
                # nobody is given it: what it repeats has not come with it
                self.counters["retained_old_news"] += 1
                return True
            if not self.custody.come(identity):
                return False
        if self.site_rules is not None:
            way = self.site_rules.incoming.decide(message.topic.encode())
            if way is None:
                self.counters["site_rules_denied"] += 1
                return True
            if way.qos < message.qos:
                message = _at_most(message, way.qos)
        here = message
        if message.retain and not message.topic.startswith("$"):
            merged = self.retained.merge_injected(message)
            if merged is None:
                self.counters["retained_old_news"] += 1
                return True
            here = merged
        self.counters["transferred_in"] += 1
        if self.custody is not None and message.qos:
            try:
                batch = single(message, message.qos, self.expiry(here))
            except EncodeError:
                self.counters["injection_dropped_not_encodable"] += 1
                return True
            destinations = [self.injector.destination(0, message.qos, 1)]
            self.custody.take_batch(batch, destinations, 0, identity)
        else:
            self.injector.publish(here, 0, self.expiry(here), None)
        return True

    def inject_frame(self, frame: bytes, identity: Identity | None = None) -> bool:
        """The same for a frame of MQTT 5 of QoS 0 or 1 with neither DUP, RETAIN nor properties."""
        custody = self.custody
        if identity is not None and custody is not None and not custody.come(identity):
            return False
        if self.site_rules is not None:
            way = self.site_rules.incoming.decide(PublishView(frame, Version.V5).topic_bytes)
            if way is None:
                self.counters["site_rules_denied"] += 1
                return True
            if not way.qos and frame[0] != PUBLISH:
                frame, _ = frames_to_qos_0(frame, len(frame))
        self.counters["transferred_in"] += 1
        batch = Batch(frame, 1, len(frame))
        if custody is not None and batch.qos:
            custody.take_batch(batch, [self.injector.destination(0, 1, 1)], 0, identity)
        else:
            self.injector.send_batch(batch, 0, None)
        return True


def _dealt(batch: Batch, hands: int) -> list[Batch]:
    """The messages of like frames, dealt one by one."""
    size, hands = batch.size, min(hands, batch.count)
    messages = [batch.part(i, 1).frames for i in range(batch.count)]
    return [Batch(b"".join(hand), len(hand), size) for hand in (messages[i::hands] for i in range(hands))]


def _consumers(destinations: Iterable[Destination]) -> list[Consumer]:
    return [sender.spooled.consumer for sender, _, _ in destinations]


def _at_most(message: Publish, qos: int) -> Publish:
    """With a smaller QoS; one of 0 has no packet identifier and is no repetition (MQTT-2.2.1-2, 3.3.1-2)."""
    return replace(
        message, qos=qos, packet_id=message.packet_id if qos else None, dup=message.dup and qos > 0
    )


def _most_qos(link: Neighbor, batch: Batch, wanted: int) -> int:
    """The QoS with which a batch crosses a link, where it is wanted with so much."""
    if not batch.retain:
        return min(batch.qos, wanted, link.config.qos)
    # a retained message keeps its QoS: the far broker serves it to later subscribers with it
    most = link.config.qos if link.rules is None else link.most_qos(batch.topic) or 0
    return min(batch.qos, most)


def _ruled(route: Targets, topic: str) -> Targets:
    """What rules of the links, and what their neighbours have said of theirs, leave of a route; with ranks by
    the classes of the links."""
    if any(link.classes is not None for link, _, _ in route):
        name = topic.encode()
        route = tuple(
            (link, qos, priority if link.classes is None else link.classes.rank(name, priority))
            for link, qos, priority in route
        )
    if all(link.rules is None and link.scope is None for link, _, _ in route):
        return route
    most = [(link, link.most_qos(topic), qos, priority) for link, qos, priority in route]
    for link, at_most, _, _ in most:
        if at_most is None and link.rules is not None and link.rules.outgoing.find(topic.encode()) is None:
            link.rules.outgoing.decide(topic.encode())
    return tuple(
        (link, min(qos, at_most), priority) for link, at_most, qos, priority in most if at_most is not None
    )


def decode_topic(topic: bytes) -> str:
    """Bytes of a PUBLISH as a topic name.

    Raises:
        MalformedPacket: not UTF-8, U+0000, wildcard or empty (MQTT-1.5.4-1, -2, 3.3.2-2, 4.7.3-1).
    """
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("topic name is not UTF-8", clause="MQTT-1.5.4-1") from None
    if not name:
        raise MalformedPacket("topic name is empty", clause="MQTT-4.7.3-1")
    validate_topic_name(name)
    return name
