"""What a sender writes: frames as the far end can take them, joined per loop iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.core.frames import frames_to_v311, frames_topic
from ildm.core.transfer.batch import Batch, with_answer, without_retain
from ildm.core.transfer.disk_gate import DiskGate, Gated
from ildm.core.transfer.message_ids import SentIds
from ildm.core.transfer.pacer import Pacer
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import Share
from ildm.core.transfer.window import Inflight
from ildm.mqtt import Version

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.budget import Budget
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.receipt import Receipt
    from ildm.core.transfer.rules import LinkRules
    from ildm.core.transfer.watch import SenderWatch


JOINED = 64 << 10
"""Bytes that do not wait for more to be joined with them."""


class Wire(Gated):
    """The connection beneath a sender and what its far end allows; ``name`` begins the names of counters.

    Args:
        tells_ids: tells the far end, a neighbour, who messages are.
        has_room: called when the connection takes messages again.
        still_valid: see :meth:`Gated.still_valid`.
    """

    __slots__ = (
        "_flowing",
        "_flushing",
        "_gate",
        "_has_room",
        "_joined",
        "_joining",
        "_out",
        "_sent_ids",
        "_still_valid",
        "_stores",
        "counters",
        "delay",
        "driver",
        "dropped",
        "max_packet_size",
        "max_qos",
        "name",
        "pacer",
        "retain_available",
        "rules",
        "sent",
        "sent_counter",
        "store",
        "transport",
        "unread",
        "version",
        "watch",
        "writable",
    )

    def __init__(
        self,
        driver: Driver,
        counters: Counters,
        name: str,
        custody: Custody | None,
        tells_ids: bool,
        has_room: Callable[[], None],
        still_valid: Callable[[bytes], bytes],
    ) -> None:
        self.driver = driver
        self.counters = counters
        self.name = name
        self._gate: DiskGate | None = None
        if custody is not None:
            self._gate = DiskGate(driver, custody, counters, name, tells_ids, self)
        self._sent_ids: SentIds | None = SentIds() if tells_ids else None
        self._has_room = has_room
        self._still_valid = still_valid
        self.version = Version.V5
        self.transport: Transport | None = None
        self.writable = True
        """The connection takes messages."""
        self._flowing = True
        """The same without regard to the gate."""
        self.unread = 0
        """Bytes written although the far end reads no more: packets that do not wait."""
        self.max_packet_size = 1 << 28
        self.max_qos = 2
        self.retain_available = True
        self.rules: LinkRules | None = None
        """What may cross to the neighbour, and under which name; None: all, as it is."""
        self.store: Callable[[bool], None] | None = None
        """Has a compressed connection leave what is written as it is from now on, or compress it again."""
        self._stores = False
        self.pacer: Pacer | None = None
        """Keeps what is written within a budget; None: the connection takes as much as it can."""
        self.watch: SenderWatch | None = None
        """Told of what is written, by the names of this site; None: nobody looks."""
        self.sent = 0
        self.sent_counter: str | None = None
        """Name of a counter of what is sent for the first time."""
        self.dropped = 0
        self.delay = 0.0
        """Seconds for which what is to be written waits to be joined with more."""
        self._out: list[bytes] = []
        self._flushing = False
        self._joined = 0
        """Bytes that wait so."""
        self._joining: Timer | None = None

    @property
    def idle(self) -> bool:
        """All is written."""
        return not (self._out or self._gate)

    @property
    def stalled(self) -> bool:
        """No message goes past what the gate keeps back."""
        return self._gate is not None and self._gate.stalled

    # the connection ---------------------------------------------------------------------------

    def attach(
        self,
        transport: Transport,
        version: Version,
        max_packet_size: int,
        max_qos: int,
        retain_available: bool,
    ) -> None:
        """Use a new connection; the arguments are what its far end allows."""
        self.transport = transport
        self.store = None
        self._stores = False
        self.version = version
        self.max_packet_size = max_packet_size
        self.max_qos = max_qos
        self.retain_available = retain_available
        self.writable = self._flowing = True
        self.unread = 0
        self._forget()
        if self._sent_ids is not None:
            self._sent_ids.clear()

    def detach(self) -> None:
        """The connection is gone."""
        self.transport = None
        self.store = None
        self._forget()

    def _forget(self) -> None:
        """What was not written is sent again on the next connection, or asked for again by the far end."""
        self._out = []
        if self.pacer is not None:
            self.pacer.forget()
        if self._gate is not None:
            self._gate.forget()

    def set_flowing(self, flowing: bool) -> None:
        """The connection takes more, or no more."""
        self._flowing = flowing
        paced = self.pacer is not None and self.pacer.paced
        self.writable = flowing and not self.stalled and not paced
        self.unread = 0
        if self.writable:
            self._has_room()

    def stall(self) -> None:
        self.writable = False

    def go_on(self) -> None:
        self.set_flowing(self._flowing)

    def still_valid(self, packet: bytes) -> bytes:
        return self._still_valid(packet)

    def limit(self, budget: Budget | None) -> None:
        """Another budget holds from now on, or none; who has the connection binds the pacer to it."""
        former, self.pacer = self.pacer, None
        if budget is not None:
            self.pacer = Pacer(self.driver, self.counters, self, budget)
        self._flushing = False  # a flush more does no harm
        if former is not None:
            former.end()
            self.driver.call_soon(self.go_on)

    # writing ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write a packet that is no PUBLISH, in order with the rest; lost when there is no connection."""
        if self.transport is None:
            return
        if not self.writable:
            self._count_unread(len(data))
        self._out.append(data)
        if not self._flushing:
            self._flush_soon(len(data))

    def _count_unread(self, size: int) -> None:
        self.unread += size
        if self.pacer is not None:
            self.pacer.overdrawn(self.unread)

    def write_durable(self, data: bytes) -> None:
        """Write an acknowledgement once all is durable that this node has custody of by now."""
        if self._gate is None:
            self.write(data)
        elif self.transport is not None:
            self._gate.answer(data)
            if not self.writable:
                self._count_unread(len(data))
            if not self._flushing:
                self._flush_soon(len(data))

    def _tell_ids(self, receipt: Receipt | None, place: int, count: int) -> None:
        """Tell a neighbour who the next messages are; ``place``: of the first of them in its record."""
        assert self._sent_ids is not None
        identity, reroute_id = (
            (receipt.identity, receipt.reroute_id) if isinstance(receipt, Share) else (None, None)
        )
        needed = self._sent_ids.needed(identity, reroute_id, place, count)
        if needed:
            self._out.append(needed)

    def count_sent(self, count: int) -> None:
        self.sent += count
        if self.sent_counter is not None:
            self.counters[self.sent_counter] += count

    def pieces(self, batch: Batch) -> list[Batch]:
        """The parts of a batch that can be written at once: all of it, if nothing has to be looked at."""
        if batch.size:
            return [batch]
        as_is = self.rules is None and self.watch is None and self.version is Version.V5
        as_is = as_is and not (batch.since is not None and batch.has_aged(self.driver.now()))
        fits = len(batch.frames) <= self.max_packet_size or batch.largest <= self.max_packet_size
        return [batch] if as_is and fits else batch.runs()

    def _passing(self, piece: Batch) -> Batch | None:
        """A piece as it may pass, with the names of the neighbour; None: it was dropped, and counted."""
        count, size = piece.count, piece.size
        if not size:
            return piece
        passing: Batch | None = piece
        if count == 1:
            passing = self._current(piece)
            if passing is None:
                return None
        assert passing is not None
        if self.rules is not None:
            ruled = self.rules.outgoing.run(frames_topic(passing.frames), passing.frames, passing.size)
            if ruled is None:
                self.drop(count, "rules")
                return None
            verdict, frames, size = ruled
            if not verdict.compress:
                self._store()
            passing = Batch(frames, count, size)
        if passing.size > self.max_packet_size:  # asked here, as what waited may be older than the connection
            self.drop(count, "too_large")
            return None
        if self.version is not Version.V5:
            frames = frames_to_v311(passing.frames, passing.size)
            before, passing = passing.size, Batch(frames, count, len(frames) // count)
            if count == 1 and before - passing.size > 2:  # a length of no properties is one byte
                self.counters[f"{self.name}_properties_dropped"] += 1
        return passing

    def _current(self, piece: Batch) -> Batch | None:
        """A single message as it is now; None: it was dropped, and counted."""
        passing = piece
        if piece.since is not None:
            left = piece.left_at(self.driver.now())
            if left is None:
                self.drop(1, "expired")
                return None
            passing = left
        if piece.ordered is not None:
            frame = piece.ordered.outgoing(passing.frames)
            if not frame:
                self.drop(1, "outdated")
                return None
            passing = passing.changed(frame, passing.size)
        if not self.retain_available and passing.retain:
            self.counters[f"{self.name}_retain_dropped"] += 1
            passing = passing.changed(without_retain(passing.frames), passing.size)
        if self.rules is not None:
            passing = with_answer(passing, self.rules.answer_wire)
        return passing

    def write_again(self, entry: Entry, packet_id: int, dup: bool = True) -> Inflight | None:
        """Write a message, or a batch that :meth:`pieces` does not divide, that was under way before; answers
        what is under way now, None: it was dropped for good."""
        batch = entry.batch
        if not self.write_batch(batch, packet_id, entry.receipt, dup):
            return None
        return Inflight(batch, packet_id, entry.receipt, entry.priority)

    def write_qos_0(self, batch: Batch) -> None:
        """Write a batch of QoS 0, but for what is too large or may not pass."""
        for piece in self.pieces(batch):
            passing = self._passing(piece)
            if passing is None:
                continue
            if self.watch is not None:
                self.watch.wrote_run(piece.frames, piece.size, 0)
            self.count_sent(piece.count)
            self._out.append(passing.frames)
            if not self._flushing:
                self._flush_soon(len(passing.frames))

    def write_batch(self, piece: Batch, first_id: int, receipt: Receipt | None, dup: bool = False) -> bool:
        """Write one of the :meth:`pieces`, of QoS 1 or 2, with consecutive identifiers; False when it was
        dropped."""
        passing = self._passing(piece)
        if passing is None:
            piece.settle(receipt, 0, piece.count)
            return False
        if self._sent_ids is not None:
            self._tell_ids(receipt, piece.first_id - 1, piece.count)
        if self.watch is not None:
            self.watch.wrote_run(piece.frames, piece.size, first_id)
        data = passing.at_qos(self.max_qos).with_ids(first_id, dup)
        if not self.writable:  # it was under way before
            self._count_unread(len(data))
        self._out.append(data)
        if not self._flushing:
            self._flush_soon(len(data))
        return True

    def _store(self) -> None:
        """What is written next is not to be compressed, nor is the rest until all is written."""
        if self.store is not None and not self._stores:
            self._stores = True
            self.store(True)

    def drop(self, count: int, reason: str) -> None:
        if count:
            self.dropped += count
            self.counters[f"{self.name}_dropped_{reason}"] += count

    def guard(self) -> None:
        """What was written last is of QoS 2: see :meth:`DiskGate.guard`."""
        if self._gate is not None:
            self._gate.guard(len(self._out) - 1)

    def after_what_is_kept(self) -> None:
        """What is written from here on may be seen once all is durable that the node has taken by now."""
        if self._gate is not None:
            self._gate.after_what_is_kept()

    def _flush_soon(self, size: int) -> None:
        """Write what there is at the end of this turn of the event loop, or after :attr:`delay`; ``size`` is
        that of what has just come to it."""
        pacer = self.pacer
        full = pacer is not None and pacer.add(size)
        if self.delay and not full:
            self._joined += size
            if self._joined < JOINED:
                if self._joining is None:
                    self._joining = self.driver.call_later(self.delay, self.flush)
                return
        if pacer is None:
            self._flushing = True
        elif pacer.asked:  # each write is counted
            return
        else:
            pacer.asked = True
        self.driver.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        if self.pacer is not None:
            self.pacer.begin_flush()
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        self._joined = 0
        out = self._out
        if self._gate is not None:
            out, self._out = self._gate.let_through(out)
            self.put(out)
        elif out and self.transport is not None:
            self._out = []
            self.put(out)
        if self.pacer is not None:
            self.pacer.flushed(bool(self._out) or (self._gate is not None and self._gate.withholds))
        if self._stores and self.store is not None and self.idle:
            self._stores = False
            self.store(False)

    def put(self, packets: list[bytes]) -> None:
        if packets and self.transport is not None:
            data = packets[0] if len(packets) == 1 else b"".join(packets)
            if self.pacer is None:
                self.transport.write(data)
            else:
                self.pacer.write(self.transport, data)
