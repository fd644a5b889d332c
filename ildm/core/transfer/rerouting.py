"""What waited for a neighbour whose link has left the tree, on its way over the links that now lead there.

The tree has changed: a neighbour that was reached directly is reached through others, and nodes that were
behind it may be behind any other neighbour.

The messages of the spool are *rerouted*: as new records for all links which the algorithm answers
(:meth:`ildm.api.TreeAlgorithm.reroute`), with the same identities, and with a reroute id. Nodes that have
had such a message pass it on, but do not give it to their brokers twice. Who holds it, and until when:

============================= ===========================================================================
messages in the consumers of  are rerouted
============================= ===========================================================================
a link no more in the tree    when it leaves the cooperation: it stays there, and messages are kept for
                              it, until its neighbour is reached on another path and the tree has been at
                              rest for a while; so no interest is forgotten before it is known anew
a link in the tree; of the    as soon as the tree is at rest; until then nothing of it is sent. What was
nodes behind it some are      under way goes on, too: nobody knows whether the neighbour has it, or had it
behind another by now         while it still gave it to those nodes, so it is rerouted even if that
                              acknowledges it meanwhile, and stays in the spool for that
a link whose neighbour is     the same, for the nodes behind it that are reached otherwise. The neighbour
gone                          gets the rerouted messages when it is back
an earlier life, of no link   when there is a path to the node
============================= ===========================================================================

It ends, as each time takes the messages there are then, and none while the tree stays as it is. What comes
more than once is passed over by its identity. What crosses at QoS 0 has none behind that link: it is not
rerouted over it, nor given to a broker whose clients want no more. The order between what is sent again and
what is sent meanwhile is not kept. Priorities are kept.

Without a spool what waited goes, once the tree has come to rest, over the link which is the first on the new
path, as soon as the algorithm wants the message to go there. Where that link has joined since, nobody behind
it can have had the message. Where it was part of the tree all the time, nodes on the new path have had it
already, and get it again: QoS 1 and 2 then come more than once, and QoS 0, which must not, is dropped and
counted. For QoS 0 this holds with a spool, too.

An algorithm that decides on each message has done so: ``route_message`` is not asked again, as it may have
counted or kept the message. Only ``route``, ``reroute`` or ``reroute_message``, where it has one, says where
the message goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ildm.core.frames import frames_topic
from ildm.core.transfer.classes import priority_of, rank_at
from ildm.core.transfer.identity import Origin
from ildm.core.transfer.ports import Neighbor
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.share import Share

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.declared import Left
    from ildm.core.driver import Driver
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.ports import Targets
    from ildm.core.transfer.router import Router
    from ildm.core.transfer.spooled_queue import SpooledQueue

REST = 4
"""So many settling times after a link has left, and then again and again, a new path is looked for; and so
many without a change the tree is taken to be at rest."""
PATIENCE = 20
"""So many times that pause messages in a link's consumers wait for the tree to come to rest, or for room."""

IN_MEMORY = 3
"""So many pages of a consumer are in memory at most; messages newer than the rerouted ones are among them."""


@dataclass(slots=True)
class Stranded:
    """What one neighbour has not got."""

    since: float
    """When messages began to wait; a link that has joined later has carried none of them."""
    until: float
    senders: dict[int, Backlog] = field(default_factory=dict)
    """By the index of the sender they were in, which keeps the order of each publisher's."""
    kept: list[str] = field(default_factory=list)
    """Consumers of the spool, by the index of the sender."""


@dataclass(slots=True)
class PendingReroute:
    """What a link has to send may have to go another way, too."""

    since: float
    under_way: list[tuple[Entry, Share, int]]
    """Messages under way when it began, and the index of their sender, until they are rerouted."""
    mark: int | None = None
    """Up to this LSN, of all that waited when the tree was at rest; None: it is not yet."""


OneLink = TypeVar("OneLink", bound=Neighbor)


class Rerouting(Generic[OneLink]):
    """See the module.

    Args:
        hop: the link that leads to a node now, or None while there is none that carries messages.
        at_rest: whether the tree is, and what was behind a link is reached where it is now.
        settled: told of a link that may send again.
        messages, size: bounds for each neighbour, in number and bytes.
        pause: seconds between attempts.
        expiry: seconds after which what has found no path is dropped.
    """

    def __init__(
        self,
        driver: Driver,
        counters: Counters,
        router: Router,
        hop: Callable[[str], OneLink | None],
        at_rest: Callable[[OneLink], bool],
        settled: Callable[[OneLink], None],
        *,
        messages: int,
        size: int,
        pause: float,
        expiry: float,
        custody: Custody | None = None,
    ) -> None:
        self.custody = custody
        self.driver = driver
        self.counters = counters
        self.router = router
        self.hop = hop
        self.at_rest = at_rest
        self.settled = settled
        self.messages = messages
        self.size = size
        self.pause = pause
        self.expiry = expiry
        self._stranded: dict[str, Stranded] = {}
        self._pending: dict[OneLink, PendingReroute] = {}
        self._timer: object | None = None

    @property
    def queued_messages(self) -> int:
        return sum(sender.messages for s in self._stranded.values() for sender in s.senders.values())

    def take(
        self, node: str, since: float, senders: dict[int, list[Entry]], kept: Sequence[str] = ()
    ) -> None:
        """The link to a node has left; ``since`` is when it stopped to carry messages, ``kept`` are the
        consumers of its sessions."""
        if not kept and not any(senders.values()):
            return
        now = self.driver.now()
        stranded = self._stranded.setdefault(node, Stranded(since, now + self.expiry))
        stranded.until = now + self.expiry
        for index, entries in senders.items():
            waiting = stranded.senders.setdefault(index, Backlog())
            for entry in entries:
                waiting.append(entry)
            for entry, count in waiting.trim(self.messages // len(senders), self.size // len(senders)):
                self._drop(entry, count, "overflow")
        stranded.kept += [name for name in kept if name not in stranded.kept]
        self._attempt_in(self.pause)

    def suspend(self, link: OneLink) -> None:
        """Nodes that were behind a link are behind another: the messages that wait for it are rerouted."""
        if link not in self._pending:
            self.driver.log("info", "messages wait for a reroute", neighbor=link.node_id)
        link.hold_for_reroute()
        before = self._pending.get(link)
        under_way = [] if before is None else before.under_way
        known = {share for _, share, _ in under_way}
        for sender in link.senders:
            for entry in sender.under_way():
                share = entry.receipt
                if isinstance(share, Share) and share not in known:  # else it tells what is retained
                    share.hold()
                    under_way.append((entry, share, sender.index))
        self._pending[link] = PendingReroute(self.driver.now(), under_way)
        self._attempt_in(self.pause)

    def joined(self, link: OneLink) -> None:
        """A link is about to carry messages; what it has left before is in its consumers, perhaps."""
        stranded = self._stranded.get(link.node_id)
        if stranded is None or not link.kept:
            return
        own = {link.consumer(sender.index) for sender in link.senders}
        if not own.isdisjoint(stranded.kept):
            stranded.kept = [name for name in stranded.kept if name not in own]
            self.suspend(link)

    def left(self, link: OneLink) -> None:
        """A link is leaving the cooperation."""
        pending = self._pending.pop(link, None)
        if pending is not None:
            self._send_under_way(link, pending)

    def _attempt_in(self, pause: float) -> None:
        if self._timer is None and (self._stranded or self._pending):
            self._timer = self.driver.call_later(pause, self._attempt)

    def take_over(self, links: Collection[str]) -> None:
        """At the start: what earlier lives have kept for nodes that there is no link with."""
        if self.custody is None:
            return
        consumers: dict[str, list[str]] = {}
        for name in self.custody.spool.consumers():
            kind, _, rest = name.partition("/")
            node = rest.rpartition("/")[0]
            if kind == "link" and node not in links:
                consumers.setdefault(node, []).append(name)
        for node, kept in consumers.items():
            self.take(node, self.driver.now(), {}, kept)

    def give_up(self) -> int:
        """The node stops; answers how many messages are lost by that, each counted."""
        lost = self.queued_messages
        for node in list(self._stranded):
            self._end(node, "shutdown")
        return lost

    def _attempt(self) -> None:
        self._timer = None
        more = False
        for link, pending in list(self._pending.items()):
            more |= self._settle(link, pending)
        for node, stranded in list(self._stranded.items()):
            hop = self.hop(node)
            if hop is not None:
                for name in stranded.kept:
                    assert self.custody is not None
                    more |= self._send_page(self.custody.queue(name), int(name.rpartition("/")[2]), hop)
                for index, waiting in stranded.senders.items():
                    self._send(hop, stranded, index, waiting)
            if self.driver.now() >= stranded.until:
                self._end(node, "no_path")
            elif not any(stranded.senders.values()) and not self._has_kept(stranded):
                del self._stranded[node]
        self._attempt_in(0 if more else self.pause)

    def _settle(self, link: OneLink, pending: PendingReroute) -> bool:
        """Reroute a page of a link's messages, once the tree is at rest; whether there is more that may go at
        once."""
        assert self.custody is not None
        if not link.active and not self.at_rest(link):
            return False
        patient = self.driver.now() - max(pending.since, link.joined_at) < PATIENCE * self.pause
        if pending.mark is None:
            if patient and not self.at_rest(link):
                return False
            pending.mark = self.custody.last
            self._send_under_way(link, pending)
        more = False
        for sender in link.senders:
            more |= self._send_page(sender.spooled, sender.index, None, pending.mark)
        if more:
            return True
        if self.custody.full:
            if patient:
                return False
            self.counters["link_not_rerouted"] += link.queued
        del self._pending[link]
        self.driver.log("info", "messages are rerouted", neighbor=link.node_id)
        self.settled(link)
        return False

    def _send_under_way(self, link: Neighbor, pending: PendingReroute) -> None:
        """Reroute the messages under way. The neighbour gets those it has acknowledged as well: sites it
        could not reach then may be behind it again."""
        for entry, share, index in pending.under_way:
            for run in entry.runs():
                self._reroute(run, index, None, but=None if share.held else link)
        for _, share, _ in pending.under_way:
            share.free_held()
        pending.under_way.clear()

    def _has_kept(self, stranded: Stranded) -> bool:
        return self.custody is not None and any(map(self.custody.queue, stranded.kept))

    def _send(self, link: Neighbor, stranded: Stranded, index: int, waiting: Backlog) -> None:
        """Send what the algorithm wants to go over this link; what it does not want yet waits on."""
        new = link.joined_at > stranded.since
        for entry in (run for each in waiting.take_all() for run in each.runs()):
            if not entry.qos and not new:
                self._drop(entry, entry.count, "other_path")
                continue
            qos = self._wanted(entry, link)
            if qos is None:
                waiting.append(entry)
                continue
            self.counters["link_rerouted"] += entry.count
            rank = priority_of(entry.priority)  # it may be older than what waits there: it is not conflated
            self.router.forward(((link, qos, rank),), entry.batch, index, None)

    def _send_page(
        self, queue: SpooledQueue, index: int, hop: Neighbor | None, mark: float = math.inf
    ) -> bool:
        """Reroute a page of a consumer's messages, up to an LSN; whether more may go at once."""
        assert self.custody is not None
        page, size, left_bytes = self.custody.config.page_bytes, 0, 0
        left: list[Entry] = []
        queue.in_turn = True  # what is newer than the mark comes last
        while size < page and left_bytes < IN_MEMORY * page and queue:
            first = queue.first
            share = first.receipt
            queue.remove(first.count)
            for entry in first.runs():
                if not isinstance(share, Share):
                    left.append(entry)  # in memory anyway, and among them are others that have to go
                elif share.lsn <= mark and self._reroute(entry, index, hop):
                    size += entry.size
                    entry.settle()
                else:
                    left.append(entry)
                    left_bytes += entry.size
        queue.in_turn = False
        queue.put_back(left)
        return size >= page

    def _reroute(self, entry: Entry, index: int, hop: Neighbor | None, but: Neighbor | None = None) -> bool:
        """Reroute messages of the spool; False: nowhere at present. ``but``: a link that has it."""
        assert self.custody is not None
        custody, share = self.custody, entry.receipt
        assert isinstance(share, Share)
        targets = self._targets(entry, hop)
        destinations = [
            (link.senders[index % len(link.senders)], min(qos, link.config.qos), priority)
            for link, qos, priority in targets
            if min(qos, link.config.qos) and link.kept and link is not but
        ]
        if not destinations:
            return bool(targets)  # what crosses at QoS 0 only has done so, or never will
        if custody.full and not self._has_place(targets):
            return False
        reroute_id = custody.reroute_number(entry.count)
        share.rerouted = True
        batch = entry.batch
        origin = Origin(share.identity, None).at(batch.first_id - 1)
        custody.take(batch, destinations, index, origin.identity, reroute_id)
        self.counters["link_rerouted"] += entry.count
        return True

    def _has_place(self, targets: Targets) -> bool:
        """Whether a message may be rerouted although there is no room. It takes the place of what is here,
        and leaves again soon, where little waits. A spool full of nothing else would stay so for ever."""
        assert self.custody is not None
        most = self.custody.config.segment_bytes
        return self.custody.spool.failure is None and all(link.queued_bytes <= most for link, _, _ in targets)

    def _targets(self, entry: Entry, hop: Neighbor | None) -> Targets:
        """Where a message goes that has lost its way; ``hop``: where the node is that it was for."""
        if not self.router.dispatch.reroutes:
            return () if hop is None else ((hop, entry.qos, rank_at(hop.classes, entry)),)
        batch = entry.batch
        return tuple(
            (link, batch.qos if batch.retain else min(batch.qos, qos), priority)
            for link, qos, priority in self._run_targets(batch)
        )

    def _run_targets(self, run: Batch) -> Targets:
        """Where a run goes: if the algorithm decides on each message, where any of it does.

        Such a run was kept under an algorithm of earlier that has decided on topics.
        """
        if not self.router.dispatch.reroutes_each:
            return self.router.routes.reroute(frames_topic(run.frames), run.retain)
        found: dict[Neighbor, tuple[Neighbor, int, int]] = {}
        for place in range(run.count):
            for way in self.router.routes.reroute_message(run.part(place, 1).message):
                before = found.get(way[0])
                if before is None or before[1] < way[1]:
                    found[way[0]] = way
        return tuple(found.values())

    def _wanted(self, entry: Entry, link: Neighbor) -> int | None:
        """The QoS at which a message is wanted behind a link, if it is."""
        dispatch = self.router.dispatch
        if not (dispatch.asks_for_topics or dispatch.reroutes_each):
            return entry.qos
        run = entry.batch
        if dispatch.reroutes_each:
            route = self._run_targets(run)
        else:
            route = self.router.routes.route(frames_topic(run.frames), run.retain)
        return next((qos for target, qos, _ in route if target is link), None)

    def _end(self, node: str, reason: Left) -> None:
        stranded = self._stranded.pop(node)
        if reason != "shutdown":
            for name in stranded.kept:
                self._drop_kept(node, name, reason)
        for waiting in stranded.senders.values():
            for entry in waiting.take_all():
                self._drop(entry, entry.count, reason)

    def _drop_kept(self, node: str, name: str, reason: Left) -> None:
        assert self.custody is not None
        dropped = self.custody.drop([name])
        if dropped.messages:
            self.counters[f"link_dropped_{reason}_spooled"] += dropped.messages
            self.driver.log(
                "warning",
                "what was kept for a node is dropped",
                neighbor=node,
                reason=reason,
                messages=dropped.messages,
                bytes=dropped.bytes,
                since=dropped.oldest,
            )

    def _drop(self, entry: Entry, count: int, reason: Left) -> None:
        self.counters[f"link_dropped_{reason}_qos{entry.qos}"] += count
