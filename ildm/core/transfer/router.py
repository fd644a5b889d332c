"""The ways of messages: from clients and neighbours, over links and into the local broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ildm.core.transfer.batch import Batch, may_join, single
from ildm.core.transfer.gathering import Gathering
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.inbound import NeighborReceipt
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.routes import Routes
from ildm.core.transfer.share import DeferredAck
from ildm.core.transfer.stamps import stamped
from ildm.core.transfer.watch import LOCAL
from ildm.mqtt import (
    EncodeError,
    Property,
    Publish,
    highest_qos,
)

if TYPE_CHECKING:
    from ildm.api import Stamp
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.spool import Identity
    from ildm.core.transfer.custody import Custody, Destination
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.ports import LocalBroker, Neighbor, Targets
    from ildm.core.transfer.receipt import Holdable
    from ildm.core.transfer.rules import LinkRules
    from ildm.core.transfer.watch import Recorder


class Router:
    """Sends messages where the algorithm wants them, in turn over the sessions of a link."""

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
        self.local_interest: Mapping[str, int] = MappingProxyType({})
        """Filters of local clients, each with its QoS."""
        self.retained = retained
        self.injector = injector
        self.has_overlay = has_overlay
        """The algorithm spreads the messages of local clients itself."""
        self.driver = driver
        self.dispatch = dispatch
        self.counters = counters
        self.routes = Routes(dispatch, counters, cache_size)
        self.recorder: Recorder | None = None
        """Told of what comes; None: nobody looks."""
        self.by_message = round_robin == "message"
        self._turn = -1
        self.gathering = Gathering(self)
        """What of one chunk goes the same way, from a client or a neighbour, until the chunk has ended."""

    @property
    def active(self) -> bool:
        """Whether an algorithm routes messages at all."""
        return self.dispatch.algorithm is not None

    def next_publisher(self) -> int:
        """The turn of a publisher, or of a message, in the round-robin."""
        self._turn = (self._turn + 1) & 0xFFFF
        return self._turn

    def forward(
        self,
        route: Targets,
        batch: Batch,
        index: int,
        source: Holdable | None,
        turn: int | None = None,
        origin: Origin = UNKNOWN,
        here: bool = False,
        receipt: NeighborReceipt | None = None,
    ) -> None:
        """Transfer a batch over links and, with ``here``, into the local broker.

        ``source`` is made to wait when there is no room; a neighbour, whose ``receipt`` it is, gets no
        answer. ``turn``: in the round-robin, where the algorithm was told it.
        """
        count = batch.count
        if turn is None:
            turn = index
            if self.by_message:
                turn = self.next_publisher()
                hands = max((len(link.senders) for link, _, _ in route), default=1)
                if hands > 1 and count > 1:
                    step = -(-count // hands)
                    for first in range(0, count, step):
                        part = batch.part(first, min(step, count - first))
                        self.forward(route, part, index, source, turn, origin.at(first), here, receipt)
                        turn = self.next_publisher()
                    return
        custody = self.custody if batch.qos else None
        destinations: list[Destination] = []
        if here:
            destinations.append(self.injector.destination(index, batch.qos, count))
        if route:
            self.counters["transferred_out"] += count * len(route)
        for link, qos, priority in route:
            senders = link.senders
            sender = senders[turn % len(senders)]
            at_most = _most_qos(link, batch, qos)
            if custody is not None and at_most and link.kept:
                destinations.append((sender, at_most, priority))
            elif custody is None or at_most or origin.reroute_id is None or batch.retain:
                sender.send(batch.at_qos(at_most), source, None, priority)  # else it may have gone there
        if custody is None:
            return
        if destinations:
            lsn = custody.take(batch, destinations, turn, origin.identity, origin.reroute_id)
            if receipt is not None:
                consumers = [sender.spooled.consumer for sender, _, _ in destinations]
                custody.defer(lsn, DeferredAck(receipt, consumers, batch))
        elif receipt is not None:
            receipt.settle(batch, 0, count)
        if source is not None and custody.full:
            custody.hold(source)

    def run_arrived(
        self,
        source: Neighbor,
        topic: bytes,
        frames: bytes,
        size: int,
        index: int,
        inbound: Inbound | None,
        origin: Origin = UNKNOWN,
        expires: bool = False,
    ) -> None:
        """Take like frames from a neighbour: into the local broker, and onward; they may wait for others of
        the same chunk until :meth:`Gathering.send`. ``inbound`` is that of QoS 1 and 2, ``origin`` what the
        neighbour has said of who they are. ``expires``: it is one message, with an expiry interval.

        Raises:
            MqttError: no topic name, or more than the neighbour's credit; nothing is taken then.
        """
        count = len(frames) // size
        since = self.driver.now() if expires else None
        route = self.routes.cache_of(source).get(topic)
        if origin.reroute_id is not None and self.custody is not None and self.dispatch.reroutes:
            route = self.routes.reroute(topic, False, source)
        elif route is None:
            route = self.routes.find(topic, source)
        self.gathering.add(route, frames, size, count, index, None, source, inbound, origin, since)

    def arrived(
        self,
        source: Neighbor,
        batch: Batch,
        index: int,
        inbound: Inbound | None,
        origin: Origin,
        route: Targets | None,
        message: Publish | None = None,
    ) -> None:
        """Take a batch from a neighbour: into the local broker, and onward.

        Without a ``route`` it is a single ``message``, which :meth:`Inbound.take` has taken and about which
        the algorithm is asked. Raises: as :meth:`run_arrived`.
        """
        if message is not None:
            self.gathering.send()
            if self.recorder is not None:
                self.recorder.message("received", source.node_id, message)
        if inbound is not None and self.custody is not None:
            self.take(self.custody, source, batch, index, inbound, origin, route, message)
            return
        receipt = None
        if inbound is not None:
            receipt = inbound.receipt
            if message is None:
                inbound.take(batch)
        if message is None:
            source.transferred_in += batch.count
            self.counters["transferred_in"] += batch.count
        here, turn = batch, None
        if message is not None and message.retain and not message.topic.startswith("$"):
            merged = self.retained.merge(message)
            if merged.onward is None:  # stale
                if receipt is not None:
                    receipt.settle(batch, 0, 1)
                return
            if merged.stamped:
                here = single(merged.here, batch.qos, self.expiry(merged.here))
                if receipt is not None:
                    receipt.changed(batch, here)
        self.injector.send(here, index, receipt)
        if message is not None:
            route, turn = self._ask_each(message, source, index)
        if route:
            self.forward(route, batch, index, receipt, turn)

    def take(
        self,
        custody: Custody,
        source: Neighbor,
        batch: Batch,
        index: int,
        inbound: Inbound,
        origin: Origin,
        route: Targets | None,
        message: Publish | None = None,
    ) -> None:
        """Take a batch of QoS 1 or 2 upon this node, and answer it once that is durable. Else as
        :meth:`arrived`."""
        receipt, turn, count = inbound.receipt, None, batch.count
        answer, deferred = None, custody.full
        if message is None:
            if deferred or origin.identity is None:
                inbound.take(batch)
            else:
                answer = inbound.take_and_pass(batch)
            source.transferred_in += count
            self.counters["transferred_in"] += count
        found = custody.judge(origin, count)
        if origin.reroute_id is not None and found:
            new = sum(number for _, number, here in found if here)
            if self._may_be_unnamed(source, batch):
                self.counters["link_again_withheld"] += new
                found = [(first, number, False) for first, number, _ in found]
            elif custody.begun_anew and batch.qos == 2:
                self.counters["link_again_unsure"] += new
        if message is not None and found:
            # what is remembered may be of this very message, whose record is not there as the node has died
            is_new = origin.identity is not None
            merges = found[0][2] and message.retain and not message.topic.startswith("$")
            if merges and self.retained.merge(message, is_new).onward is None:  # stale
                found = []
            else:
                route, turn = self._ask_each(message, source, index, origin)
        done = 0
        for first, number, here in found:
            if deferred and first > done:
                receipt.passed(batch.part(done, first - done))
            done = first + number
            self.forward(
                route or (),
                batch.part(first, number),
                index,
                None,
                turn,
                origin.at(first),
                here,
                receipt if deferred else None,
            )
        if answer is not None:
            inbound.answer_durable(answer)
        elif not deferred:
            receipt.passed(batch)
        elif done < count:
            receipt.passed(batch.part(done, count - done))

    def _may_be_unnamed(self, source: Neighbor, batch: Batch) -> bool:
        """Whether messages new by their identities may have come before, at QoS 0 and so without one: as this
        node has told neighbours what its clients want, and that is no more."""
        if batch.retain or not source.announced:
            return False
        return highest_qos(self.local_interest, batch.topic) == 0

    def joins(self, message: Publish) -> bool:
        """Whether a message of a local client may be part of a batch."""
        return may_join(message) and not (self.has_overlay or self.dispatch.asks_each)

    def publish(
        self, message: Publish, index: int, holder: Holdable | None, stamp: Stamp | None = None
    ) -> None:
        """Transfer one message of a local client to where the algorithm wants it.

        It may wait for others of the same chunk until :meth:`Gathering.send`, if there is a ``holder``.
        ``stamp`` is that of a retained message which came some time ago.
        """
        joins = holder is not None and self.joins(message)
        if not joins:
            self.gathering.send()
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
            route, turn = self._ask_each(message, None, index)
            batch = self.encoded(message, "link", len(route)) if route else None
            if batch is None:
                return
            if joins:
                self.gathering.add(route, batch.frames, batch.size, 1, index, holder, since=batch.since)
            else:
                self.forward(route, batch, index, holder, turn)
        elif not message.topic.startswith("$"):
            self.counters["published"] += 1
            turn = self.next_publisher() if self.by_message else index
            self.dispatch.call("on_publish", message, turn)
            if holder is not None and message.qos and self.custody is not None and self.custody.full:
                self.custody.hold(holder)

    def encoded(self, message: Publish, way: Literal["link", "injection"], times: int = 1) -> Batch | None:
        """A message as a batch; None: it is too large for a frame of MQTT 5, and counted."""
        try:
            return single(message, message.qos, self.expiry(message))
        except EncodeError:
            self.counters[f"{way}_dropped_not_encodable"] += times
            return None

    def _ask_each(
        self, message: Publish, source: Neighbor | None, index: int, origin: Origin = UNKNOWN
    ) -> tuple[Targets, int | None]:
        """Where a message goes to, and its turn in the round-robin if the algorithm was told it."""
        if origin.reroute_id is not None and self.dispatch.reroutes:
            return self.routes.reroute_message(message, source), None
        if not self.dispatch.asks_each:
            return self.routes.route(message.topic.encode(), message.retain, source), None
        turn = self.next_publisher() if self.by_message else index
        return self.routes.route_message(message, source, turn), turn

    def expiry(self, message: Publish) -> float | None:
        """When nobody wants the message any longer, in monotonic time."""
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        return None if expiry is None else self.driver.now() + expiry

    def inject(self, batch: Batch, identity: Identity | None = None) -> bool:
        """Inject a message of the algorithm's, a stamped retained one after a look at what is known on its
        topic; False: one of this identity has come before."""
        custody = self.custody
        message = batch.message if batch.retain else None
        if identity is not None and custody is not None:
            if message is not None and self.retained.is_old_repetition(message):
                # nobody is given it: what it repeats has not come with it
                self.counters["retained_old_news"] += 1
                return True
            if not custody.come(identity):
                return False
        if self.site_rules is not None:
            way = self.site_rules.incoming.decide(batch.topic.encode())
            if way is None:
                self.counters["site_rules_denied"] += 1
                return True
            batch = batch.at_qos(way.qos)
        here = batch
        if message is not None and not message.topic.startswith("$"):
            merged = self.retained.merge_injected(message)
            if merged is None:
                self.counters["retained_old_news"] += 1
                return True
            here = single(merged, batch.qos, self.expiry(merged))
        self.counters["transferred_in"] += 1
        if custody is not None and batch.qos:
            batch.since = here.since
            custody.take(batch, [self.injector.destination(0, batch.qos, 1)], 0, identity)
        else:
            self.injector.send(here, 0, None)
        return True


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
