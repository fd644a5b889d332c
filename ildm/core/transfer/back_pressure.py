"""What happens when more waits for a sender than its bounds allow: it is dropped, or its sources are held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ildm.core.transfer.queue import Entry, Queue
from ildm.core.transfer.receipt import Holdable

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.transfer.wire import Wire

HARD_LIMIT = 2
"""With overflow ``block`` a queue may grow to this many times its bound, and by the credit of the neighbours
it makes wait: sources stop with a delay. One that does not is ended."""


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of one sender."""

    messages: int = 10_000
    bytes: int = 8 << 20
    inflight: int = 1000
    inflight_bytes: int = 8 << 20
    overflow: Literal["drop", "block"] = "drop"
    delay: float = 0.0
    """Seconds, see :attr:`Wire.delay`."""


def limits_of(config: LinkConfig, senders: int, delay: float = 0.0) -> QueueLimits:
    """Of one of so many senders that share the bounds of a link."""
    return QueueLimits(
        messages=max(1, config.queue_messages // senders),
        bytes=max(1, config.queue_bytes // senders),
        inflight=config.inflight,
        inflight_bytes=config.inflight_bytes,
        overflow=config.overflow,
        delay=delay,
    )


class BackPressure:
    """Of one queue; sources that are held know it as the reason."""

    __slots__ = ("_held", "_limits", "_queue", "_wire", "lost")

    def __init__(self, limits: QueueLimits, queue: Queue, wire: Wire) -> None:
        self._limits = limits
        self._queue = queue
        self._wire = wire
        self._held: set[Holdable] = set()
        self.lost: Callable[[str], None] | None = None
        """Told of the topic of each retained message that was dropped."""

    def over(self, factor: float) -> bool:
        """There is more than this part of the bounds, apart from what is unacknowledged."""
        return self._queue.over(self._limits.messages * factor, self._limits.bytes * factor)

    def ease(self) -> None:
        """Something has left the queue: sources may go on if there is room."""
        if self._held and not self.over(0.5):
            held, self._held = self._held, set()
            for source in held:
                source.release(self)

    def no_longer_held(self, source: Holdable) -> None:
        """A source has gone."""
        self._held.discard(source)

    def make_room(self, entry: Entry, source: Holdable | None) -> None:
        """There is more than the bounds allow, since an entry was appended."""
        if self._limits.overflow == "drop":
            self.trim()
            return
        self._trim(self._limits.messages, self._limits.bytes, lowest=True)
        if entry.qos and source is not None and self.over(1):
            self._held.add(source)
            source.hold(self)
        if self.over(HARD_LIMIT):
            self._overrun(entry, source)

    def trim(self) -> None:
        """Drop what is above the bounds."""
        self._trim(self._limits.messages, self._limits.bytes)

    def _overrun(self, entry: Entry, source: Holdable | None) -> None:
        """More has come than sources send that wait when they are made to."""
        messages, size = HARD_LIMIT * self._limits.messages, HARD_LIMIT * self._limits.bytes
        for held in self._held:  # what they may have sent by now
            more_messages, more_bytes = held.credit
            messages += more_messages
            size += more_bytes
        if source is None or not entry.qos:
            self._trim(messages, size)
        elif count := self._queue.cut(messages, size):
            # the newest is not acknowledged yet, and will not be
            self._wire.drop(count, f"overflow_qos{entry.qos}")
            source.overran()

    def _trim(self, messages: int, size: int, lowest: bool = False) -> None:
        for oldest, count in self._queue.trim(messages, size, lowest):
            whole = oldest.whole
            if whole.retain:  # a single one
                whole.settle(oldest.receipt, 0, 1)
                self.tell_lost(whole.topic)
            self._wire.drop(count, f"overflow_qos{oldest.qos}")

    def tell_lost(self, topic: str) -> None:
        """A retained message was dropped."""
        if self.lost is not None:
            self.lost(topic)
