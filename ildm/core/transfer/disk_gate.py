"""What is written and tells of what the disk may not have yet: it is not to be seen before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from ildm.core.frames import DUP, PUBLISH_QOS_2, RETAIN
from ildm.mqtt import frame_bounds

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.transfer.custody import Custody


class Gated(ABC):
    """What writes through a gate."""

    @abstractmethod
    def put(self, packets: list[bytes]) -> None:
        """Write packets now."""

    @abstractmethod
    def flush(self) -> None:
        """Ask the gate again."""

    @abstractmethod
    def stall(self) -> None:
        """No message may go past what is kept back."""

    @abstractmethod
    def go_on(self) -> None:
        """Nothing is kept back any more."""

    @abstractmethod
    def still_valid(self, packet: bytes) -> bytes:
        """What was kept back as it is to be sent now: a retained message does not replace a newer one."""


class DiskGate:
    """Of one wire; places are those in what the wire has not written.

    While the disk fails, what is of QoS 2 is kept back for ``spool.failure_wait`` at most.
    """

    __slots__ = (
        "_answers",
        "_awaiting",
        "_barrier",
        "_counters",
        "_custody",
        "_driver",
        "_in_order",
        "_kept_back",
        "_marks",
        "_name",
        "_patience",
        "_sealed",
        "_sealed_marks",
        "_sealed_until",
        "_wire",
        "stalled",
    )

    def __init__(
        self, driver: Driver, custody: Custody, counters: Counters, name: str, in_order: bool, wire: Gated
    ) -> None:
        """``in_order``: on a link, where nothing goes past a message, as message ids are told in order."""
        self._driver = driver
        self._custody = custody
        self._counters = counters
        self._name = name
        self._in_order = in_order
        self._wire = wire
        self._answers: deque[tuple[int, bytes]] = deque()
        """What is to be said once all up to an LSN is durable."""
        self._barrier = 0
        """All up to here is to be durable before what is not written may be seen."""
        self._marks: list[int] = []
        """Places of what is of QoS 2 and not to be seen before a later life would know of it."""
        self._kept_back: list[bytes] = []
        """Of these, as the disk fails."""
        self.stalled = False
        """No message goes past what is kept back."""
        self._patience: Timer | None = None
        self._sealed: list[bytes] = []
        self._sealed_marks: list[int] = []
        self._sealed_until = 0
        """What goes before the rest, and waits for less to be durable: else it would wait on and on."""
        self._awaiting = False

    def __bool__(self) -> bool:
        """Whether something waits here."""
        return bool(self._answers or self._sealed or self._kept_back)

    @property
    def withholds(self) -> bool:
        """Whether messages wait here."""
        return bool(self._sealed or self._kept_back)

    def answer(self, data: bytes) -> None:
        """Take an answer that may be given once all is durable that this node has custody of by now."""
        self._answers.append((self._custody.last, data))

    def guard(self, place: int) -> None:
        """What stands there is of QoS 2, and comes twice if it is seen and no later life knows of it."""
        self._barrier = self._custody.last
        self._marks.append(place)

    def after_what_is_kept(self) -> None:
        """What is written from here on may be seen once all is durable that the node has taken by now."""
        self._barrier = self._custody.last

    def forget(self) -> None:
        """The connection is another one, or gone."""
        self._answers.clear()
        self._marks, self._sealed, self._kept_back = [], [], []
        self._barrier = 0
        self._end_patience()

    def let_through(self, out: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Make durable what has to be; answers what may be seen now, and what is to wait in the wire."""
        custody = self._custody
        custody.flush()
        durable, answers = custody.spool.durable, self._answers
        while answers and answers[0][0] <= durable:
            out.append(answers.popleft()[1])
        if custody.spool.failure is not None and self._barrier > durable:
            out, waits = self._while_failing(out)
            if waits:
                return out, []
            durable = self._barrier
        elif self._kept_back:
            out = self._release(out)
        if self._sealed and self._sealed_until <= durable:
            sealed, self._sealed = self._sealed, []
            self._wire.put(sealed)
        seen = self._barrier <= durable
        if not seen and not self._sealed:
            self._sealed, self._sealed_marks, self._marks = out, self._marks, []
            self._sealed_until = self._barrier
            out = []
        if (answers or not seen) and not self._awaiting:
            self._awaiting = True
            custody.when(answers[0][0] if seen else self._sealed_until, self._durable)
        if not seen:
            return [], out
        if self._marks:
            self._marks = []
        return out, []

    def _durable(self) -> None:
        self._awaiting = False
        self._wire.flush()

    # while the disk fails -------------------------------------------------------------------------

    def _while_failing(self, out: list[bytes]) -> tuple[list[bytes], bool]:
        """Keep back what is guarded, for a bounded time: answers the rest, which may be seen, and True.

        False: all is to go, and what was guarded is counted.
        """
        if self._sealed:
            marks = [*self._sealed_marks, *(len(self._sealed) + place for place in self._marks)]
            out, self._marks, self._sealed = [*self._sealed, *out], marks, []
        patience = self._custody.patience
        if patience > 0 and self._marks:
            if self._in_order:
                self._kept_back += out
                out = []
                self.stalled = True
                self._wire.stall()
            else:
                marked = set(self._marks)
                self._kept_back += [out[place] for place in self._marks]
                out = [data for place, data in enumerate(out) if place not in marked]
            self._marks = []
        if patience > 0 and self._kept_back:
            if self._patience is None:
                self._patience = self._driver.call_later(patience, self._patience_over)
            if not self._awaiting:
                self._awaiting = True
                self._custody.when(self._barrier, self._durable)
            return out, True
        out = self._release(out)
        if self._marks:
            sent = sum(_messages_of_qos_2(out[place]) for place in self._marks)
            self._counters[f"{self._name}_unguarded"] += sent
        return out, False

    def _patience_over(self) -> None:
        self._patience = None
        self._wire.flush()

    def _release(self, out: list[bytes]) -> list[bytes]:
        """What was kept back goes before the rest."""
        before, self._kept_back = [self._wire.still_valid(packet) for packet in self._kept_back], []
        self._marks = [*range(len(before)), *(len(before) + place for place in self._marks)]
        self._end_patience()
        return [*before, *out]

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self.stalled:
            self.stalled = False
            self._driver.call_soon(self._wire.go_on)  # not amid what is written


def _messages_of_qos_2(packets: bytes) -> int:
    count = pos = 0
    while pos < len(packets):
        count += packets[pos] & ~(DUP | RETAIN) == PUBLISH_QOS_2
        pos = frame_bounds(packets, pos)[1]
    return count
