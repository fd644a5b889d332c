"""Data of the algorithm to any node, over links made on demand (topology ``any``).

What is to be sent to a node without a link waits here, bounded, while its address is dialed; it goes out,
in order, as soon as a link with that node has joined the cooperation, whichever side has made it. A node
that could not be reached is dialed again only after a pause (:mod:`ildm.core.link.pauses`). A link on demand
that carries nothing for a while is closed politely: one side says BYE and sends nothing more, the other
sends what it has, then ends the connection, so that nothing is lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ildm.api import Peer, SendResult, Unreachable
from ildm.config import parse_address
from ildm.core.backoff import Backoff
from ildm.core.link.control import BYE, DATA, send_control
from ildm.core.link.dialer import Dialer, Neighbor
from ildm.core.link.pauses import Pauses
from ildm.core.transfer.batch import Batch
from ildm.mqtt import ReasonCode, encode_varint

if TYPE_CHECKING:
    from ildm.core.link.hello import Refusal
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts

CHECKS = 4
"""How often within the idle time links are looked at."""
DRAIN_CHECK = 0.02
FRAME_COST = 128
"""Bytes that each frame takes in memory while it waits, besides its own."""


class Waiting:
    """Data for a node to which there is no link that carries it yet."""

    __slots__ = (
        "backoff",
        "bytes",
        "cost",
        "deadline",
        "failed",
        "frames",
        "neighbor",
        "paused",
        "peer",
        "refused",
        "timer",
        "tried",
    )

    def __init__(self, peer: Peer, deadline: float, backoff: Backoff) -> None:
        self.peer = peer
        self.deadline = deadline
        self.backoff = backoff
        self.frames: list[tuple[bytes, int]] = []
        self.refused: set[int] = set()
        """Sessions for which something found no room here."""
        self.bytes = 0
        self.cost = 0
        """Bytes of memory."""
        self.paused = False
        """The node could not be reached shortly before."""
        self.failed = False
        """A dial has failed while it waited."""
        self.neighbor: Neighbor | None = None
        """The dial under way."""
        self.timer: Any = None
        """Of the next dial."""
        self.tried = 0
        """So many frames were there when the last dial began."""


class OnDemand:
    """Makes, uses and closes links on demand, for topology ``any``."""

    def __init__(self, parts: LinkParts, links: Mapping[str, NeighborLink], dialer: Dialer) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = parts.config
        self.links = links
        self.dialer = dialer
        self.waiting: dict[str, Waiting] = {}
        self.waiting_bytes = 0
        """Of memory, for all nodes."""
        config = parts.config
        self.pauses = Pauses(
            parts.driver.random, config.reconnect_min, min(config.reconnect_max, config.connect_timeout)
        )
        self._timer: Any = None
        sessions = self.config.sessions
        self._most_messages = max(1, self.config.queue_messages // sessions)
        self._most_bytes = max(1, self.config.queue_bytes // sessions)

    def start(self) -> None:
        self._timer = self.driver.call_later(self.config.idle / CHECKS, self._close_idle)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self.waiting.values():
            self._cancel_timer(waiting)
            if waiting.neighbor is not None:
                waiting.neighbor.gone = True
                self.dialer.give_up(waiting.neighbor)
            self.parts.counters["algorithm_dropped_unreachable"] += len(waiting.frames)
        self.waiting.clear()
        self.waiting_bytes = 0

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        for waiting in self.waiting.values():
            size = sum(len(frame) for frame, _ in waiting.frames)
            cost = size + FRAME_COST * len(waiting.frames)
            found = f"{size} bytes that take {cost}"
            assert (waiting.bytes, waiting.cost) == (size, cost), f"{found} wait for a node, counted wrong"
        total = sum(waiting.cost for waiting in self.waiting.values())
        assert total == self.waiting_bytes, f"{total} bytes wait for nodes and count {self.waiting_bytes}"

    @property
    def idle(self) -> bool:
        """Nothing waits for a link that may come soon."""
        return all(waiting.paused or waiting.failed for waiting in self.waiting.values())

    # sending ----------------------------------------------------------------------------------

    def send(self, to: Peer, data: bytes, turn: int) -> SendResult:
        """See :meth:`ildm.api.NodeApi.send`."""
        counters = self.parts.counters
        frame = b"".join((b"\x30", encode_varint(len(DATA) + len(data)), DATA, data))
        own = to.node_id == self.parts.node_id
        if own or len(frame) > self.config.packet_size:
            counters["algorithm_dropped_not_sendable"] += 1
            return SendResult.SELF if own else SendResult.TOO_LARGE
        link = self.links.get(to.node_id)
        if link is None or not link.in_cooperation or link.closing or to.node_id in self.waiting:
            accepted = self._wait(to, frame, turn, link)
        else:
            accepted = self._put(link, frame, turn)
        counters["algorithm_out" if accepted else "algorithm_dropped_full"] += 1
        return SendResult.OK if accepted else SendResult.FULL

    def _put(self, link: NeighborLink, frame: bytes, turn: int) -> bool:
        if not link.offer_data(frame, turn):
            return False
        link.used_at = self.driver.now()
        return True

    def _wait(self, to: Peer, frame: bytes, turn: int, link: NeighborLink | None) -> bool:
        waiting = self.waiting.get(to.node_id)
        cost = len(frame) + FRAME_COST
        full = self.waiting_bytes + cost > self.config.waiting_bytes and bool(self.waiting)
        if waiting is None:
            now = self.driver.now()
            if full or (link is None and not (self.pauses.has_room(to.node_id, now) and self.make_room())):
                return False
            waiting = self._begin(to, 0.0 if link is not None else self.pauses.left(to.node_id, now))
            self._add(waiting, frame, turn)
            if link is None and not waiting.paused:
                self._dial(waiting)
            return True
        if (
            full
            or len(waiting.frames) >= self._most_messages
            or waiting.bytes + len(frame) > self._most_bytes
        ):
            waiting.refused.add(turn % self.config.sessions)
            return False
        if waiting.neighbor is None:
            waiting.peer = to  # it may have moved
        self._add(waiting, frame, turn)
        return True

    def _add(self, waiting: Waiting, frame: bytes, turn: int) -> None:
        waiting.frames.append((frame, turn))
        waiting.bytes += len(frame)
        waiting.cost += len(frame) + FRAME_COST
        self.waiting_bytes += len(frame) + FRAME_COST

    def _begin(self, to: Peer, pause: float) -> Waiting:
        config = self.config
        waiting = self.waiting[to.node_id] = Waiting(
            to,
            self.driver.now() + pause + config.connect_timeout,
            Backoff(self.driver.random, config.reconnect_min, config.reconnect_max),
        )
        if pause:
            waiting.paused = True
            waiting.timer = self.driver.call_later(pause, self._dial, waiting)
        return waiting

    def joined(self, link: NeighborLink) -> None:
        """A link carries data now: what has waited for it goes out."""
        link.used_at = self.driver.now()
        self.pauses.reached(link.node_id)
        waiting = self.waiting.pop(link.node_id, None)
        if waiting is not None:
            self.waiting_bytes -= waiting.cost
            self._cancel_timer(waiting)
            for frame, turn in waiting.frames:
                link.senders[turn % len(link.senders)].send(Batch(frame, 1, len(frame)))
            for session in waiting.refused:
                link.refused(session)

    # making links -----------------------------------------------------------------------------

    def is_dialing(self, node_id: str | None, token: str) -> bool:
        """Whether the dial with this token is one of those made on demand."""
        waiting = self.waiting.get(node_id or "")
        return waiting is not None and waiting.neighbor is not None and waiting.neighbor.token == token

    def make_room(self) -> bool:
        """Whether there may be one more link on demand; the one longest unused is closed for it."""
        present = [link for link in self.links.values() if link.on_demand]
        wanted = len(present) + len(self.waiting)
        if wanted < self.config.max_links:
            return True
        unused = [link for link in present if link.in_cooperation and not link.closing and link.idle]
        # those that are closing are still there: they may be as many again, not more
        if not unused or wanted >= 2 * self.config.max_links:
            return False
        self._close(min(unused, key=lambda link: link.used_at))
        return True

    def _dial(self, waiting: Waiting) -> None:
        waiting.timer = None
        waiting.paused = False
        peer = waiting.peer
        if peer.node_id in self.links:
            return  # it is about to carry data; if it does not, its loss is told
        self._begun(waiting)
        self.driver.call_soon(self._begun, waiting)  # with all that is sent in one go
        try:
            address = parse_address(peer.address)
        except ValueError as error:
            waiting.timer = self.driver.call_later(0, self._fail, waiting, str(error), Unreachable.NO_ADDRESS)
            return
        self.parts.counters["on_demand_dials"] += 1
        waiting.neighbor = Neighbor(self.parts, address, saved=False, expected=peer.node_id)
        self.dialer.dial(waiting.neighbor)

    @staticmethod
    def _begun(waiting: Waiting) -> None:
        waiting.tried = len(waiting.frames)

    def dial_failed(self, neighbor: Neighbor, refusal: Refusal | None, reason: str, why: Unreachable) -> None:
        """A connection dialed on demand has not become, or does not stay, the link's."""
        waiting = self.waiting.get(neighbor.node_id or "")
        if waiting is None or waiting.neighbor is not neighbor:
            return
        waiting.neighbor = None
        if waiting.peer.node_id in self.links:
            return  # the connection of the other side is the link
        duplicate = refusal is not None and refusal.kind == "duplicate"
        if duplicate and refusal is not None and refusal.node not in ("", neighbor.expected):
            self._fail(waiting, f"{refusal.node} answers at this address", Unreachable.OTHER_NODE)
        elif duplicate and self.driver.now() < waiting.deadline:
            # the other side has a link whose end it has not noticed, or one that is about to come up here
            waiting.timer = self.driver.call_later(waiting.backoff.next(), self._dial, waiting)
        else:
            self._fail(waiting, reason, why if refusal is None else refusal.why)

    def link_broke(self, link: NeighborLink) -> None:
        """A link has gone without a good-bye."""
        now = self.driver.now()
        self.pauses.link_lost(link.node_id, now - link.joined_at, now)

    def link_lost(self, link: NeighborLink) -> None:
        """A link has gone; what was to be sent after its end, or instead of it, needs another."""
        waiting = self.waiting.get(link.node_id)
        if waiting is None or waiting.neighbor is not None or waiting.timer is not None:
            return
        now = self.driver.now()
        if link.closing:
            waiting.deadline = now + self.config.connect_timeout
        if now < waiting.deadline:
            self._dial(waiting)
        else:
            self._fail(waiting, link.reason or "the link was lost", Unreachable.LOST)

    def _fail(self, waiting: Waiting, reason: str, why: Unreachable) -> None:
        """The node cannot be reached: what has waited is dropped, but for what came after the last dial had
        begun, when the node may have been back already: that waits for the next one."""
        peer = waiting.peer
        waiting.timer = None
        del self.waiting[peer.node_id]
        self.waiting_bytes -= waiting.cost
        self.parts.counters["on_demand_unreachable"] += 1
        self.parts.counters["algorithm_dropped_unreachable"] += waiting.tried
        now = self.driver.now()
        if self.pauses.failed(peer.node_id, reason, now):
            self.driver.log(
                "warning", "node unreachable", node=peer.node_id, address=peer.address, reason=reason
            )
        if waiting.tried < len(waiting.frames):
            later = self._begin(peer, max(self.config.reconnect_min, self.pauses.left(peer.node_id, now)))
            later.failed, later.refused = True, waiting.refused
            for frame, turn in waiting.frames[waiting.tried :]:
                self._add(later, frame, turn)
        self.parts.dispatch.call("on_unreachable", peer.node_id, why)

    def _cancel_timer(self, waiting: Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None

    # closing links ----------------------------------------------------------------------------

    def _close_idle(self) -> None:
        self._timer = self.driver.call_later(self.config.idle / CHECKS, self._close_idle)
        unused_since = self.driver.now() - self.config.idle
        for link in list(self.links.values()):
            if (
                link.on_demand
                and link.in_cooperation
                and not link.closing
                and link.used_at <= unused_since
                and link.idle
            ):
                self._close(link)

    def _close(self, link: NeighborLink) -> None:
        self.parts.counters["on_demand_closed"] += 1
        link.closing = True
        link.reason = "unused"
        send_control(link, BYE, b"")

    def control_message(self, link: NeighborLink, topic: str) -> bool:
        """A message of the neighbour about the link; False if it means nothing here."""
        if topic != BYE:
            return False
        self.bye(link)
        return True

    def bye(self, link: NeighborLink) -> None:
        """The neighbour sends nothing more: the link ends when everything of this side is out."""
        link.closing = True
        if self.links.get(link.node_id) is not link:
            return
        if link.queued:
            self.driver.call_later(DRAIN_CHECK, self.bye, link)
            return
        link.reason = "unused"
        for session in list(link.open_sessions):
            session.disconnect(ReasonCode.SUCCESS, "unused")
