"""Keeping what neighbours remember of retained messages alike, whatever was lost between them.

=========== ================================= ===================================================
message     says                              answer
=========== ================================= ===================================================
``synced``  digest of all values, on joining  ``buckets``, if the receiver's is another
``digest``  the same, now and then            the same
``buckets`` digests by hash of the topic      repetition of the topics in those that differ
=========== ================================= ===================================================

Both sides ask, so each repeats what the other may lack. A repetition goes no faster than the neighbour
takes it, one at a time. When it changes nothing (a filter drops what is repeated, or the other side has no
room), the next ones of the same are made ever more seldom. What a full queue has thrown away is sent again
when the queue is empty.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ildm.api.retained_view import BUCKETS as NUMBER
from ildm.core.link.control import BUCKETS, DIGEST, send_control
from ildm.core.link.state import LinkState

if TYPE_CHECKING:
    from ildm.api.retained_view import RetainedView
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink
    from ildm.core.transfer.retained import RetainedStore

BATCH = 100
PACE = 0.01
"""Seconds between two batches; ten times as long while the neighbour does not keep up."""
PAUSE = 1.0
"""Seconds at least between two answers to digests, and between two repetitions."""
DIRTY = 10_000
"""Topics noted one by one as lost in a queue; of more the digests have to tell."""


class Exchange:
    """How far one link is with it."""

    __slots__ = (
        "answered_at",
        "asked",
        "difference",
        "dirty",
        "ended_at",
        "overflown",
        "timer",
        "topics",
        "vain",
        "view",
    )

    def __init__(self) -> None:
        self.topics: deque[str] = deque()
        """Still to be repeated."""
        self.dirty: dict[str, None] = {}
        self.overflown = False
        self.asked: bytes | None = None
        """The digests of the neighbour, to be answered when the repetition under way is done."""
        self.difference: tuple[bytes, bytes] | None = None
        """Both sides' digests at the beginning of the last repetition."""
        self.vain = 0
        """How often they were the same again."""
        self.answered_at = self.ended_at = -PAUSE
        self.view: RetainedView | None = None
        """What may cross the link; None: everything."""
        self.timer: Any = None


class RetainedSync:
    """Compares with the neighbours of a node."""

    def __init__(self, driver: Driver, retained: RetainedStore, counters: Counters, interval: float) -> None:
        self.driver = driver
        self.retained = retained
        self.counters = counters
        self.interval = interval
        self._exchanges: dict[NeighborLink, Exchange] = {}

    def joined(self, link: NeighborLink) -> None:
        """A link carries messages (again); its digest has just been told."""
        if link not in self._exchanges:
            self._exchanges[link] = Exchange()
            self._tell_later(link)
        self.scope_changed(link)  # it is told anew on each connection, or not at all
        self._go_on(link)

    def left(self, link: NeighborLink) -> None:
        exchange = self._exchanges.pop(link, None)
        if exchange is not None and exchange.timer is not None:
            exchange.timer.cancel()
        if exchange is not None and exchange.view is not None:
            self.retained.unwatch(exchange.view)

    def scope_changed(self, link: NeighborLink) -> None:
        """What may cross a link is not what it was."""
        exchange = self._exchanges.get(link)
        if exchange is None:
            return
        if exchange.view is not None:
            self.retained.unwatch(exchange.view)
        restricted = link.rules is not None or link.scope is not None
        exchange.view = self.retained.watch(link.wire_name) if restricted else None

    def compare(self, link: NeighborLink) -> None:
        """Let the neighbour find out at once whether it remembers something else."""
        if link in self._exchanges:
            send_control(link, DIGEST, self.view(link).digest)

    def view(self, link: NeighborLink) -> RetainedView:
        """What is remembered that may cross a link, as it is now."""
        exchange = self._exchanges.get(link)
        return self.retained.view(None if exchange is None else exchange.view)

    def _tell_later(self, link: NeighborLink) -> None:
        pause = self.interval * (0.5 + self.driver.random.random())
        self.driver.call_later(pause, self._tell, link, self._exchanges[link])

    def _tell(self, link: NeighborLink, exchange: Exchange) -> None:
        if self._exchanges.get(link) is exchange:
            if link.state is LinkState.ACTIVE:
                send_control(link, DIGEST, self.view(link).digest)
            self._tell_later(link)

    # from the neighbour -----------------------------------------------------------------------

    def digest_came(self, link: NeighborLink, digest: bytes) -> None:
        """The neighbour tells what it remembers."""
        exchange = self._exchanges.get(link)
        if exchange is None or digest == self.view(link).digest:
            return
        now = self.driver.now()
        if now - exchange.answered_at >= PAUSE:
            exchange.answered_at = now
            send_control(link, BUCKETS, self.view(link).buckets())

    def buckets_came(self, link: NeighborLink, buckets: bytes) -> None:
        """The neighbour remembers something else than was told it; repeat where that may be."""
        exchange = self._exchanges.get(link)
        if exchange is None or len(buckets) != 8 * NUMBER:
            self.counters["link_unknown_control"] += 1
            return
        exchange.asked = buckets
        self._go_on(link)

    def lost(self, link: NeighborLink, topic: str) -> None:
        """A retained message for a neighbour was thrown away for want of room."""
        exchange = self._exchanges.get(link)
        if exchange is None:
            return
        exchange.dirty[topic] = None
        if len(exchange.dirty) > DIRTY:
            exchange.dirty.clear()
            exchange.overflown = True
        self._go_on(link)

    # repeating --------------------------------------------------------------------------------

    def _go_on(self, link: NeighborLink, pause: float = PACE) -> None:
        exchange = self._exchanges[link]
        if exchange.timer is None and (
            exchange.topics or exchange.dirty or exchange.overflown or exchange.asked is not None
        ):
            exchange.timer = self.driver.call_later(pause, self._step, link, exchange)

    def _step(self, link: NeighborLink, exchange: Exchange) -> None:
        exchange.timer = None
        if link.state is not LinkState.ACTIVE:
            return  # goes on when the link has joined again
        pause = 10 * PACE
        if link.senders[0].queued_messages == 0:
            pause = PACE
            exchange.topics.extend(exchange.dirty)
            exchange.dirty.clear()
            if not exchange.topics:
                pause = self._begin(link, exchange)
            for _ in range(min(BATCH, len(exchange.topics))):
                topic = exchange.topics.popleft()
                found = self.retained.repetition(topic)
                if found is not None and (exchange.view is None or link.most_qos(topic) is not None):
                    message, expires_at = found
                    link.repeat(message, expires_at)
                    self.counters["retained_repeated"] += 1
                    exchange.ended_at = self.driver.now()
        self._go_on(link, pause)

    def _begin(self, link: NeighborLink, exchange: Exchange) -> float:
        """Nothing is being repeated: look for what should be. Answers how long to wait with it."""
        if exchange.overflown:
            exchange.overflown = False
            send_control(link, DIGEST, self.view(link).digest)  # the answer says where to look
        if exchange.asked is None:
            return PACE
        wait = exchange.ended_at + PAUSE - self.driver.now()
        if wait > 0:
            return wait
        buckets, exchange.asked = exchange.asked, None
        view = self.view(link)
        difference = view.buckets(), buckets
        if difference == exchange.difference:
            exchange.vain += 1
            if exchange.vain & (exchange.vain - 1):  # the first, second, fourth, eighth, ... time
                return PACE
        else:
            exchange.difference, exchange.vain = difference, 0
        exchange.topics.extend(view.topics_that_differ(buckets))
        return PACE
