"""What waited for a neighbour whose link has left the tree, on its way over the link that now leads there.

The tree has changed: a neighbour that was reached directly is reached through others. What its link had not
got rid of goes, once the tree has come to rest, over the link which is the first on the new path, as soon as
the algorithm wants the message to go there.

Where that link has joined since, nobody behind it can have had the message. Where it was part of the tree all
the time, nodes on the new path have had it already, and get it again: QoS 1 and 2 then come more than once,
and QoS 0, which must not, is dropped and counted. The order between what is sent again and what is sent
meanwhile is not kept. Priorities are kept.

What the spool keeps stays in the outlets of the sessions it was for, and goes from there page by page: as new
records for the new link, with the same identities, marked as sent *again*. Nodes on the new path that have
had such a message pass it on once more, but do not give it to their brokers twice. If the old link comes back
first, it goes on with what is left.

An algorithm that decides on each message has done so: it is not asked again, as it may have counted or kept
the message. Only ``route``, where it has that, too, says from when on the new path is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ildm.core.transfer.deposit import Deposit, first_place
from ildm.core.transfer.identity import Origin
from ildm.core.transfer.queue import Backlog, Entry
from ildm.mqtt import PublishView, Version

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.declared import Left
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.router import Router

REST = 4
"""So many settling times after a link has left, and then again and again, a new path is looked for."""


@dataclass(slots=True)
class Stranded:
    """What one neighbour has not got."""

    since: float
    """When messages began to wait; a link that has joined later has carried none of them."""
    until: float
    lanes: dict[int, Backlog] = field(default_factory=dict)
    """By the index of the lane they were in, which keeps the order of each publisher's."""
    kept: list[str] = field(default_factory=list)
    """Outlets of the spool, by the index of the lane."""


class Rerouting:
    """See the module.

    Args:
        hop: the link that leads to a node now, or None while there is none that carries messages.
        messages, size: bounds for each neighbour, in number and bytes.
        pause: seconds between attempts.
        expiry: seconds after which what has found no path is dropped.
    """

    def __init__(
        self,
        driver: Driver,
        counters: Counters,
        router: Router,
        hop: Callable[[str], NeighborLink | None],
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
        self.messages = messages
        self.size = size
        self.pause = pause
        self.expiry = expiry
        self._stranded: dict[str, Stranded] = {}
        self._timer: object | None = None

    @property
    def queued_messages(self) -> int:
        return sum(lane.messages for s in self._stranded.values() for lane in s.lanes.values())

    def take(self, node: str, since: float, lanes: dict[int, list[Entry]], kept: Sequence[str] = ()) -> None:
        """The link to a node has left; ``since`` is when it stopped to carry messages, ``kept`` are the
        outlets of its sessions."""
        now = self.driver.now()
        stranded = self._stranded.setdefault(node, Stranded(since, now + self.expiry))
        stranded.until = now + self.expiry
        for index, entries in lanes.items():
            waiting = stranded.lanes.setdefault(index, Backlog())
            for entry in entries:
                waiting.append(entry)
            for entry, count in waiting.trim(self.messages // len(lanes), self.size // len(lanes)):
                self._drop(entry, count, "overflow")
        stranded.kept = list(kept)
        if self._timer is None and (self.queued_messages or stranded.kept):
            self._timer = self.driver.call_later(self.pause, self._attempt)

    def take_over(self, links: Collection[str]) -> None:
        """At the start: what earlier lives have kept for nodes that there is no link with."""
        if self.custody is None:
            return
        outlets: dict[str, list[str]] = {}
        for name in self.custody.spool.outlets():
            kind, _, rest = name.partition("/")
            node = rest.rpartition("/")[0]
            if kind == "link" and node not in links:
                outlets.setdefault(node, []).append(name)
        for node, kept in outlets.items():
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
        for node, stranded in list(self._stranded.items()):
            link = self.hop(node)
            if link is not None and link.node_id == node and link.kept:
                stranded.kept = []  # its own link has come back
            elif link is not None:
                for index, name in enumerate(stranded.kept):
                    more |= self._send_kept(link, index, name)
            if link is not None:
                for index, waiting in stranded.lanes.items():
                    self._send(link, stranded, index, waiting)
            if self.driver.now() >= stranded.until:
                self._end(node, "no_path")
            elif not any(stranded.lanes.values()) and not self._has_kept(stranded):
                del self._stranded[node]
        if self._stranded:
            self._timer = self.driver.call_later(0 if more else self.pause, self._attempt)

    def _has_kept(self, stranded: Stranded) -> bool:
        return self.custody is not None and any(map(self.custody.queue, stranded.kept))

    def _send(self, link: NeighborLink, stranded: Stranded, index: int, waiting: Backlog) -> None:
        """Send what the algorithm wants to go over this link; what it does not want yet waits on."""
        new = link.joined_at > stranded.since
        for entry in waiting.take_all():
            if not entry.qos and not new:
                self._drop(entry, entry.count, "other_path")
                continue
            qos = self._wanted(entry, link)
            if qos is None:
                waiting.append(entry)
                continue
            self.counters["link_rerouted"] += entry.count
            if entry.message is not None:
                wanted = entry.qos if entry.message.retain else min(entry.qos, qos)
                link.send(entry.message, wanted, index, entry.expires_at, None, entry.priority)
            else:
                frames = entry.waiting_frames
                size = len(frames) // entry.count
                self.router.forward_frames(((link, qos, entry.priority),), frames, size, index, None)

    def _send_kept(self, link: NeighborLink, index: int, name: str) -> bool:
        """Let a page of what an outlet has go over this link; whether there is more that may go at once."""
        assert self.custody is not None
        custody = self.custody
        queue, size = custody.queue(name), 0
        unwanted: list[Entry] = []
        lane = link.lanes[index % len(link.lanes)]
        while size < custody.config.page_bytes and queue and not custody.full:
            entry, deposit = queue.first, queue.first.receipt
            assert isinstance(deposit, Deposit)
            size += entry.size
            queue.remove(entry.count)
            qos = self._wanted(entry, link)
            if qos is None or not link.kept:
                unwanted.append(entry)
                continue
            again = Origin(custody.number_again(entry.count), None)
            if entry.message is not None:
                origin = Origin(deposit.identity, None).at(entry.packet_id - 1)
                wanted = entry.qos if entry.message.retain else min(entry.qos, qos)
                wanted = max(1, min(wanted, link.config.qos))
                way = lane, wanted, entry.priority
                custody.take(entry.message, [way], index, entry.expires_at, origin.identity, again.identity)
            else:
                frames = entry.waiting_frames
                one = len(frames) // entry.count
                origin = Origin(deposit.identity, None).at(first_place(frames))
                way = lane, 1, entry.priority
                custody.take_run(frames, one, [way], index, origin.identity, again.identity)
            self.counters["link_rerouted"] += entry.count
            entry.settle()
        queue.put_back(unwanted)
        return size >= custody.config.page_bytes and not unwanted

    def _wanted(self, entry: Entry, link: NeighborLink) -> int | None:
        """The QoS at which a message is wanted behind a link, if it is."""
        if not self.router.dispatch.asks_for_topics:
            return entry.qos
        if entry.message is not None:
            route = self.router.route(entry.message.topic.encode(), entry.message.retain)
        else:
            route = self.router.route(PublishView(entry.frames, Version.V5).topic_bytes, False)
        return next((qos for target, qos, _ in route if target is link), None)

    def _end(self, node: str, reason: Left) -> None:
        stranded = self._stranded.pop(node)
        if reason != "shutdown":
            for name in stranded.kept:
                self._drop_kept(node, name, reason)
        for waiting in stranded.lanes.values():
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
