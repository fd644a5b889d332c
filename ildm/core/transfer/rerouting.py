"""What waited for a neighbour whose link has left the tree, on its way over the link that now leads there.

The tree has changed: a neighbour that was reached directly is reached through others. What its link had not
got rid of goes, once the tree has come to rest, over the link which is the first on the new path, as soon as
the algorithm wants the message to go there.

Where that link has joined since, nobody behind it can have had the message. Where it was part of the tree all
the time, nodes on the new path have had it already, and get it again: QoS 1 and 2 then come more than once,
and QoS 0, which must not, is dropped and counted. The order between what is sent again and what is sent
meanwhile is not kept. Priorities are kept.

An algorithm that decides on each message has done so: it is not asked again, as it may have counted or kept
the message. Only ``route``, where it has that, too, says from when on the new path is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ildm.core.transfer.queue import Backlog, Entry
from ildm.mqtt import PublishView, Version

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink
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
    ) -> None:
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

    def take(self, node: str, since: float, lanes: dict[int, list[Entry]]) -> None:
        """The link to a node has left; ``since`` is when it stopped to carry messages."""
        now = self.driver.now()
        stranded = self._stranded.setdefault(node, Stranded(since, now + self.expiry))
        stranded.until = now + self.expiry
        for index, entries in lanes.items():
            waiting = stranded.lanes.setdefault(index, Backlog())
            for entry in entries:
                waiting.append(entry)
            for entry, count in waiting.trim(self.messages // len(lanes), self.size // len(lanes)):
                self._drop(entry, count, "overflow")
        if self._timer is None and self.queued_messages:
            self._timer = self.driver.call_later(self.pause, self._attempt)

    def give_up(self) -> int:
        """The node stops; answers how many messages are lost by that, each counted."""
        lost = self.queued_messages
        for node in list(self._stranded):
            self._end(node, "shutdown")
        return lost

    def _attempt(self) -> None:
        self._timer = None
        for node, stranded in list(self._stranded.items()):
            link = self.hop(node)
            if link is not None:
                for index, waiting in stranded.lanes.items():
                    self._send(link, stranded, index, waiting)
            if self.driver.now() >= stranded.until:
                self._end(node, "no_path")
            elif not any(stranded.lanes.values()):
                del self._stranded[node]
        if self._stranded:
            self._timer = self.driver.call_later(self.pause, self._attempt)

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

    def _wanted(self, entry: Entry, link: NeighborLink) -> int | None:
        """The QoS at which a message is wanted behind a link, if it is."""
        if not self.router.dispatch.asks_for_topics:
            return entry.qos
        if entry.message is not None:
            route = self.router.route(entry.message.topic.encode(), entry.message.retain)
        else:
            route = self.router.route(PublishView(entry.frames, Version.V5).topic_bytes, False)
        return next((qos for target, qos, _ in route if target is link), None)

    def _end(self, node: str, reason: str) -> None:
        stranded = self._stranded.pop(node)
        for waiting in stranded.lanes.values():
            for entry in waiting.take_all():
                self._drop(entry, entry.count, reason)

    def _drop(self, entry: Entry, count: int, reason: str) -> None:
        self.counters[f"link_dropped_{reason}_qos{entry.qos}"] += count
