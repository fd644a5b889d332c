"""What a member has told the owner of its clients, until the owner has it on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.core.guests.wire import do_frame
from ildm.core.transfer.custody import Custody

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.transfer.receipt import Holdable

MOST_BYTES = 8 << 20
"""Not taken by an owner; beyond it clients wait for acknowledgements."""
AT_ONCE = 1 << 20
"""Bytes of records after which a frame is sent, within a turn of the event loop."""


class Outbox(Custody):
    """To the sessions of clients it is what the spool is at an owner: their acknowledgements wait for it.

    An LSN is the number of a record here, and durable is what the owner has taken. It goes on through any
    number of owners: :meth:`resume` sends the next one what the former has not got.
    """

    def __init__(self, driver: Driver, counters: Counters, limit: int = MOST_BYTES) -> None:
        # not that of a custody: there is no spool
        self.driver = driver
        self.counters = counters
        self.limit = limit
        self.bytes = 0
        """Not taken yet."""
        self._last = self._taken = 0
        self._records: list[bytes] = []
        self._record_bytes = 0
        self._frames: deque[tuple[int, bytes, int]] = deque()
        """Number of the last record, the frame, and the bytes of its records."""
        self._send: Callable[[bytes], None] | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._telling = self._flushing = False
        self._held: set[Holdable] = set()

    @property
    def connected(self) -> bool:
        """There is an owner that takes what comes."""
        return self._send is not None

    def append(self, record: bytes) -> int:
        """Tell the owner something, soon; answers its number."""
        self._last += 1
        self._records.append(record)
        self._record_bytes += len(record)
        self.bytes += len(record)
        if self._record_bytes >= AT_ONCE:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            self.driver.call_soon(self._flush_now)
        return self._last

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        """Send what there is."""
        records = self._records
        if not records:
            return
        size, self._record_bytes = self._record_bytes, 0
        self._records = []
        frame = do_frame(self._last, records, len(records))
        self._frames.append((self._last, frame, size))
        send = self._send
        if send is not None:
            send(frame)

    # owners -------------------------------------------------------------------------------------

    def resume(self, taken: int, send: Callable[[bytes], None]) -> None:
        """An owner has come that has all up to a record: it gets the rest."""
        self.flush()
        self.taken(taken)
        self._send = send
        for _, frame, _ in self._frames:
            send(frame)

    def lost(self) -> None:
        """There is no owner."""
        self._send = None

    def taken(self, number: int) -> None:
        """An owner has all up to this record on disk."""
        frames = self._frames
        self._taken = max(self._taken, number)
        while frames and frames[0][0] <= self._taken:
            self.bytes -= frames.popleft()[2]
        if self._waiting:
            self._tell_soon()
        if self._held and self.bytes <= self.limit // 2:
            held, self._held = self._held, set()
            for source in held:
                source.release(self)

    # as a custody -------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self._last

    @property
    def durable(self) -> int:
        return self._taken

    @property
    def full(self) -> bool:
        return self.bytes > self.limit

    @property
    def full_for(self) -> float:
        return 0.0

    def covers(self, lsn: int) -> bool:
        return lsn <= self._taken

    def when(self, lsn: int, callback: Callable[[], None]) -> None:
        self._waiting.append((lsn, callback))
        if lsn <= self._taken:
            self._tell_soon()

    def _tell(self) -> None:
        self._telling = False
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._taken:
            waiting.popleft()[1]()

    def hold(self, source: Holdable) -> None:
        if source not in self._held:
            self._held.add(source)
            self.counters["pair_clients_held"] += 1
            source.hold(self)
