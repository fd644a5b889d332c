"""The order of one publisher's messages where they come on different ways (MQTT-4.6.0).

A message names the one before it in its *stream*: the messages of one origin, topic and turn. Where that has
not come yet although others of the stream have, the message waits for it, a moment only. Nothing waits for
what it cannot expect. The first message of a stream that is seen here names none, and neither does the first
after a restart of its origin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ildm_algorithms.exchange.incarnation import NUMBERS

if TYPE_CHECKING:
    from ildm.api import NodeApi, Timer
    from ildm_algorithms.exchange.receipts import Receipts

__all__ = ["OVERHEAD", "StreamId", "StreamNumbers", "Streams"]

OVERHEAD = 1_000
"""Bytes a message that waits is taken to need besides its frame."""
RECENT = 1 << NUMBERS
"""Numbers of one incarnation of an origin differ by less."""


class StreamId(NamedTuple):
    """What is kept in order."""

    origin: str
    topic: str
    turn: int


class StreamNumbers:
    """The newest number of each stream; the stream least recently used makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def get(self, stream: tuple[str, str, int]) -> int | None:
        return self._numbers.get(stream)

    def put(self, stream: tuple[str, str, int], number: int) -> None:
        numbers = self._numbers
        if stream in numbers:
            numbers.move_to_end(stream)
        elif len(numbers) >= self._most:
            numbers.popitem(last=False)
        numbers[stream] = number


class _Held:
    __slots__ = ("deliver", "number", "size", "stream", "timer")

    def __init__(self, stream: StreamId, number: int, size: int, deliver: Callable[[], object]) -> None:
        self.stream = stream
        self.number = number
        self.size = size
        self.deliver = deliver
        self.timer: Timer | None = None


class Streams:
    """Lets messages through in order, or after ``wait`` seconds.

    Args:
        receipts: what has come, the message that is handed in included.
        wait: 0: nothing ever waits.
        max_bytes: of messages that wait; what comes beyond does not.
        streams: remembered at most.
    """

    def __init__(
        self,
        api: NodeApi,
        receipts: Receipts,
        wait: float,
        max_bytes: int,
        streams: int,
        count: Callable[[str], None],
    ) -> None:
        self._api = api
        self._receipts = receipts
        self._wait = wait
        self._max_bytes = max_bytes
        self._count = count
        self._last = StreamNumbers(streams)
        self._held: dict[tuple[str, int], _Held] = {}
        """By origin and number of the message waited for."""
        self._waiting: set[tuple[str, int]] = set()
        """Origins and numbers of the messages that wait."""
        self.bytes = 0

    def take(
        self, stream: StreamId, number: int, behind: int, size: int, deliver: Callable[[], object]
    ) -> None:
        """A message has come that stands ``behind`` numbers after the one before it in its stream (0: there
        is none). ``deliver`` is called at once, or when its turn has come."""
        last = self._last.get(stream)
        if behind and last == number - behind:  # nearly always
            self._deliver(stream, number, deliver)
            return
        before = stream.origin, number - behind
        if last is None or not behind or self._passed(before) or not self._wait:
            if last is not None and 0 < last - number < RECENT:
                self._count("order_late")
            self._deliver(stream, number, deliver)
        elif before in self._held or self.bytes + size + OVERHEAD > self._max_bytes:
            self._count("order_full")
            self._deliver(stream, number, deliver)
        else:
            self._count("order_held")
            held = self._held[before] = _Held(stream, number, size + OVERHEAD, deliver)
            self._waiting.add((stream.origin, number))
            self.bytes += held.size
            held.timer = self._api.call_later(self._wait, self._over, before)

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(held.size for held in self._held.values())
        assert size == self.bytes, f"messages of {size} bytes wait for others and count {self.bytes}"
        waiting = {(held.stream.origin, held.number) for held in self._held.values()}
        assert waiting == self._waiting, f"{waiting} wait for others, noted as {self._waiting}"

    def _passed(self, message: tuple[str, int]) -> bool:
        return message in self._receipts and message not in self._waiting

    def _over(self, before: tuple[str, int]) -> None:
        """What the message has waited for has not come in time."""
        self._count("order_given_up")
        self._release(before)

    def _deliver(self, stream: StreamId, number: int, deliver: Callable[[], object]) -> None:
        deliver()
        self._last.put(stream, number)
        if self._held:
            self._release((stream.origin, number))

    def _release(self, before: tuple[str, int]) -> None:
        """Let through what has waited for a message, and what waits for that."""
        while (held := self._held.pop(before, None)) is not None:
            if held.timer is not None:
                held.timer.cancel()
            self.bytes -= held.size
            before = held.stream.origin, held.number
            self._waiting.discard(before)
            held.deliver()
            self._last.put(held.stream, held.number)
