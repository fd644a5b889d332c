"""What this node has taken upon itself, and since when that is durable."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.calendar import Calendar
from ildm.core.spool import NEVER, Identity, Record, Waiting
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.classes import HIGHEST_PRIORITY
from ildm.core.transfer.identity import Identities, Origin, Stretches, made
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import DeferredAck, Share
from ildm.core.transfer.spooled_queue import SpooledQueue, summed

if TYPE_CHECKING:
    from ildm.config import SpoolConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.spool import Consumer, Spool, Stored
    from ildm.core.transfer.receipt import Holdable, Receipt
    from ildm.mqtt import MqttError

FREED_SOON = {"process": 0.02, "power": 0.5}
"""Seconds by mode after which it is written that messages have been freed, if nothing else is: what was freed
and is not known to be comes again after a restart."""
_SNAPSHOT = struct.Struct("<BI")
"""Version, and bytes of the first of its two parts."""
_VERSION = 1


class SpooledSender(ABC):
    """A sender of what the spool keeps, as custody knows it."""

    __slots__ = ()

    @property
    @abstractmethod
    def spooled(self) -> SpooledQueue:
        """What waits there."""

    @abstractmethod
    def send(
        self,
        batch: Batch,
        source: Holdable | None = None,
        receipt: Receipt | None = None,
        priority: int = 0,
    ) -> int:
        """Send a batch; answers how many messages need not wait. With a ``receipt`` the packet identifiers in
        it are those it is to be told when they are disposed of; else they do not count.
        """


Destination = tuple[SpooledSender, int, int]
"""Who is to send a message, the QoS, and the priority."""


class SpoolReport(NamedTuple):
    """The content of a spool, for people."""

    messages: int
    bytes: int
    """On disk, with what is not needed any more."""
    oldest: float | None
    """Unix time."""
    failure: str | None
    full: bool
    consumers: dict[str, Waiting]


class Custody:
    """What a node does with its spool; there is none without one, or without an algorithm."""

    def __init__(
        self,
        driver: Driver,
        spool: Spool,
        counters: Counters,
        config: SpoolConfig,
        node_id: str,
        calendar: Calendar | None = None,
    ) -> None:
        self.driver = driver
        self.calendar = calendar or Calendar(driver)
        spool.keep_time(driver.now, self.calendar.lead)
        self.spool = spool
        self.counters = counters
        self.config = config
        self.node_id = node_id
        self.begun_anew = False
        """Earlier lives of the node have left nothing, so what they have had is not known."""
        self._next_number = spool.epoch << 32 | 1
        self._next_reroute = spool.epoch << 32 | 1
        self._come = Identities(config.identities)
        self._sent_anew = Identities(config.identities)
        self._restore()
        self._queues: dict[str, SpooledQueue] = {}
        self._adopters: dict[str, SpooledQueue] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._telling = False
        self._held: set[Holdable] = set()
        self._deferred: dict[int, list[DeferredAck]] = {}
        self._to_be_written = False
        self._failing_since: float | None = None
        self._full_since: float | None = None
        self._freed_soon = FREED_SOON.get(config.mode, 0.0)
        spool.snapshot = self._snapshot
        spool.on_durable = self._grown
        spool.on_room = self._room_soon

    # what is durable ----------------------------------------------------------------------------

    @property
    def lacks(self) -> bool:
        """Something that was to outlive the node's earlier life was not found again."""
        torn = self.counters["spool_torn"] > self.counters["spool_cut_short"]
        return bool((torn and self.config.mode == "process") or self.counters["spool_damaged"])

    @property
    def last(self) -> int:
        """LSN of what was appended last: who must wait for it waits for this one."""
        return self.spool.last

    @property
    def durable(self) -> int:
        """All up to this LSN is durable."""
        return self.spool.durable

    @property
    def patience(self) -> float:
        """Seconds for which QoS 2 is to wait yet for a disk that fails."""
        now = self.driver.now()
        if self._failing_since is None:
            self._failing_since = now
        return max(0.0, self._failing_since + self.config.failure_wait - now)

    def covers(self, lsn: int) -> bool:
        """Whether all up to ``lsn`` is durable; what has to be written for it is."""
        spool = self.spool
        if lsn <= spool.durable:
            return True
        spool.commit()
        return lsn <= spool.durable

    def when(self, lsn: int, callback: Callable[[], None]) -> None:
        """Call back once all up to ``lsn`` is durable: in the order of asking, never within this call.

        What has to be written for it is, in one go for all who ask in the same turn of the event loop.
        """
        self._waiting.append((lsn, callback))
        self._tell_soon()

    def flush(self) -> None:
        """Begin to make durable what was appended."""
        spool = self.spool
        if spool.last > spool.durable:
            spool.commit()

    def _grown(self) -> None:
        if self.spool.failure is None:
            self._failing_since = None
        # not at once: this may be amid what has made it durable
        if self._waiting and self._waiting[0][0] <= self.spool.durable:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._telling:
            self._telling = True
            self.driver.call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        self.flush()
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.spool.durable:
            waiting.popleft()[1]()

    def monotonic(self, date: float) -> float:
        """The same moment in the driver's time."""
        return self.driver.now() + date - self.calendar.date()

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self._come.check()
        self._sent_anew.check()

    # taking -------------------------------------------------------------------------------------

    def number(self, count: int) -> Identity:
        """The first of so many identities for messages that begin here."""
        number = self._next_number
        self._next_number += count
        return made(Identity, (self.node_id, number))

    def reroute_number(self, count: int) -> Identity:
        """The same for messages that this node reroutes."""
        number = self._next_reroute
        self._next_reroute += count
        return Identity(self.node_id, number)

    def judge(self, origin: Origin, count: int) -> list[tuple[int, int, bool]]:
        """Messages have come from a neighbour: stretches of them, by the place of the first and their number,
        that are to go on, and whether they are new here. The rest has come before."""
        identity, reroute_id = origin
        if identity is None:
            return [(0, count, True)]
        fresh: Stretches = []
        if identity.origin != self.node_id:
            fresh = self._come.come(identity.origin, identity.number, count)
            self.counters["link_identities_forgotten"] = self._come.forgotten
        if reroute_id is None:
            if len(fresh) == 1 and fresh[0][1] == count:
                return [(0, count, True)]
            taken = [(first, number, True) for first, number in fresh]
        else:
            anew: Stretches = []
            if reroute_id.origin != self.node_id:
                anew = self._sent_anew.come(reroute_id.origin, reroute_id.number, count)
            self.counters["link_again"] += sum(number for _, number in anew)
            taken = _united(fresh, anew)
        repeated = count - sum(number for _, number in fresh)
        if repeated:
            self.counters["link_repeated"] += repeated
        return taken

    def come(self, identity: Identity) -> bool:
        """The algorithm injects a message; False: it has come before."""
        fresh = bool(self._come.come(identity.origin, identity.number, 1))
        self.counters["link_identities_forgotten"] = self._come.forgotten
        return fresh

    def has_come(self, identity: Identity) -> bool | None:
        """Whether a message has come; None: that is not known any more."""
        return self._come.has(identity.origin, identity.number)

    def skipped(self, origin: str, stretches: Stretches) -> None:
        """A neighbour has let messages go: stretches of numbers that do not come from it."""
        if origin == self.node_id:
            return
        for first, count in stretches:
            self._come.come(origin, first, count)
        self.counters["link_identities_forgotten"] = self._come.forgotten

    def take(
        self,
        batch: Batch,
        destinations: Iterable[Destination],
        turn: int,
        identity: Identity | None = None,
        reroute_id: Identity | None = None,
    ) -> int:
        """Take a batch of QoS 1 or 2 upon this node, and send it; answers the LSN of the record.

        Without an ``identity`` the messages begin here.
        """
        count = batch.count
        if identity is None:
            identity = self.number(count)
        batch = batch.numbered(1)
        expires = NEVER
        if batch.since is not None:
            moment = batch.expires_at if batch.size else batch.since
            if moment is not None:
                expires = self.calendar.date() + moment - self.driver.now()
        record = made(Record, (batch.frames, count, identity, turn, expires, reroute_id, not batch.size))
        lsn, held = self._append(record, destinations)
        for sender, qos, priority in held:
            queue = sender.spooled
            share = Share(self, queue.consumer, lsn, identity, reroute_id)
            sender.send(queue.made(batch.at_qos(qos)), None, share, priority)
        return lsn

    def _append(self, record: Record, destinations: Iterable[Destination]) -> tuple[int, list[Destination]]:
        """Write a record; answers its LSN, and for whom it is in memory."""
        size = len(record.frames)
        held: list[Destination] = []
        ranked: list[tuple[SpooledQueue, Entry]] = []
        deliveries = []
        for destination in destinations:
            sender, qos, priority = destination
            queue = sender.spooled
            takes = queue.takes(size, priority)
            if takes:
                held.append(destination)
            else:
                queue.passed_over(priority)
                if priority > HIGHEST_PRIORITY and record.again is None:
                    batch = Batch(
                        record.frames, record.messages, 0 if record.mixed else size // record.messages
                    )
                    ranked.append((queue, Entry(batch, None, priority)))
            deliveries.append(queue.delivery(qos, priority, takes))
        lsn = self.spool.append(record, deliveries)
        for queue, entry in ranked:
            queue.is_on_disk(entry, lsn)
        return lsn, held

    # having freed -------------------------------------------------------------------------------

    def freed(self, consumer: Consumer, lsn: int, count: int, rerouted: bool) -> None:
        """A consumer no longer has so many messages of a record; ``rerouted``: a newer one may have them."""
        if not self._to_be_written:
            self._to_be_written = True
            self.driver.call_later(self._freed_soon, self._write)
        if self._deferred and lsn in self._deferred:
            for deferred in self._deferred[lsn]:
                deferred.rerouted |= rerouted
            self._answer(consumer, lsn, count)

    def retired(self, consumer: Consumer) -> None:
        """All that was for a consumer was thrown away."""
        for lsn in list(self._deferred):
            self._answer(consumer, lsn, None)

    def _answer(self, consumer: Consumer, lsn: int, count: int | None) -> None:
        """Give the answers that have waited for a consumer alone to have done with a record."""
        waiting = self._deferred.pop(lsn)
        left = [deferred for deferred in waiting if not deferred.freed(consumer, count)]
        if left:
            self._deferred[lsn] = left
        for deferred in waiting:
            if deferred not in left:
                deferred.settle()

    def _write(self) -> None:
        self._to_be_written = False
        self.spool.commit()

    def unreadable(self, consumer: Consumer, stored: Stored, error: MqttError) -> None:
        """A record whose checksum is right is no message."""
        self.counters["spool_unreadable"] += stored.record.messages
        self.driver.log(
            "error",
            "a record of the spool is no message",
            consumer=consumer.name,
            lsn=stored.lsn,
            error=str(error),
        )

    # without room -------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        full = self.spool.full
        if not full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = self.driver.now()
        return full

    @property
    def full_for(self) -> float:
        """Seconds since somebody has found it full first, who was held or has asked; 0: it is not."""
        now = self.driver.now()
        return now - self._full_since if self.full and self._full_since is not None else 0.0

    def hold(self, source: Holdable) -> None:
        """Let a source wait until there is room."""
        if source not in self._held:
            self._held.add(source)
            self.counters["spool_held"] += 1
            source.hold(self)

    def no_longer_held(self, source: Holdable) -> None:
        """A source has gone."""
        self._held.discard(source)

    def defer(self, lsn: int, deferred: DeferredAck) -> None:
        """Answer a neighbour when there is room, or when what it has sent has been freed."""
        self._deferred.setdefault(lsn, []).append(deferred)

    def _room_soon(self) -> None:
        self.driver.call_soon(self._room)  # not amid what has made it

    def _room(self) -> None:
        if self.full:
            return
        held, self._held = self._held, set()
        for source in held:
            source.release(self)
        answers, self._deferred = self._deferred, {}
        for each in answers.values():
            for deferred in each:
                deferred.passed()

    # senders --------------------------------------------------------------------------------------

    def queue(self, name: str) -> SpooledQueue:
        """What waits for one session: the same object through all lives of its link."""
        queue = self._queues.get(name)
        if queue is None:
            consumer = self.spool.consumer(name)
            queue = self._queues[name] = SpooledQueue(self, consumer, self.config.page_bytes)
        adopter = self._adopters.pop(name, None)
        if adopter is not None:
            adopter.release(queue.consumer)
        return queue

    def adopt(self, name: str, adopter: SpooledQueue) -> None:
        """A session is no more: another one sends what is left for it."""
        adopter.adopt(self.queue(name))
        self._adopters[name] = adopter

    def drop(self, consumers: Collection[str]) -> Waiting:
        """Throw away what these have, with what waits in memory; answers what that was. Of what is under way
        at this moment nobody knows whether it arrives."""
        return summed(self.queue(name).retire() for name in consumers)

    def left_over(self, prefix: str, count: int) -> list[tuple[str, int]]:
        """Consumers ``PREFIX/INDEX`` that earlier lives have left, of an index from ``count`` on; with it."""
        found = []
        for name in self.spool.consumers():
            begin, _, index = name.rpartition("/")
            if begin == prefix and int(index) >= count:
                found.append((name, int(index)))
        return found

    def report(self) -> SpoolReport:
        """Figures for people."""
        spool = self.spool
        consumers = {name: spool.consumer(name).waiting for name in spool.consumers()}
        oldest = [waiting.oldest for waiting in consumers.values() if waiting.oldest is not None]
        messages = sum(waiting.messages for waiting in consumers.values())
        return SpoolReport(
            messages, spool.disk_bytes, min(oldest, default=None), spool.failure, spool.full, consumers
        )

    # what outlives the process --------------------------------------------------------------------

    def _snapshot(self) -> bytes:
        come = self._come.snapshot()
        return _SNAPSHOT.pack(_VERSION, len(come)) + come + self._sent_anew.snapshot()

    def _restore(self) -> None:
        saved = self.spool.restored
        if saved:
            version, size = _SNAPSHOT.unpack_from(saved)
            if version != _VERSION:
                self.driver.log("warning", "which messages have come before is not known", version=version)
            else:
                begin = _SNAPSHOT.size
                self._come.restore(saved[begin : begin + size])
                self._sent_anew.restore(saved[begin + size :])
        for identity, count in self.spool.identities():
            if identity.origin != self.node_id:
                self._come.come(identity.origin, identity.number, count)


def _united(fresh: Stretches, anew: Stretches) -> list[tuple[int, int, bool]]:
    """Stretches of what is in one of both, each wholly new or not."""
    new = {place for first, count in fresh for place in range(first, first + count)}
    places = new.union(place for first, count in anew for place in range(first, first + count))
    found: list[tuple[int, int, bool]] = []
    for place in sorted(places):
        if found and found[-1][0] + found[-1][1] == place and found[-1][2] == (place in new):
            first, count, is_new = found[-1]
            found[-1] = first, count + 1, is_new
        else:
            found.append((place, 1, place in new))
    return found
