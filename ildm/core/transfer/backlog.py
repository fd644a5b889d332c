"""What waits in a lane: messages one by one and runs of them, bounded in number and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ildm.mqtt import EncodeError, Publish, encoded_size

OVERHEAD = 200
"""Bytes a message kept one by one is taken to need besides its frame."""
PROPERTY_OVERHEAD = 150
"""The same for each of its properties."""


class Entry:
    """What waits in the queue of a lane: a run of MQTT 5 frames without properties, or one message.

    The packet identifiers in a run of QoS 1 mean nothing yet.
    """

    __slots__ = ("count", "expires_at", "frames", "message", "qos", "size")

    def __init__(
        self, frames: bytes, count: int, message: Publish | None, qos: int, expires_at: float | None
    ):
        self.frames = frames
        self.count = count
        self.message = message
        self.qos = qos
        self.expires_at = expires_at
        self.size = len(frames) if message is None else kept_size(message)


class RunEntry(Entry):
    """A run of QoS 1 that waits; it may leave in parts, as the window opens."""

    __slots__ = ("_taken",)

    def __init__(self, frames: bytes, count: int):
        super().__init__(frames, count, None, 1, None)
        self._taken = 0

    @property
    def frame_size(self) -> int:
        return self.size // self.count

    def first(self, count: int) -> bytes:
        """The first ``count`` messages that still wait."""
        return self.frames[self._taken : self._taken + count * self.frame_size]

    def remove(self, count: int) -> int:
        """Forget the first ``count`` messages, but not all; answers their size."""
        size = count * self.frame_size
        self._taken += size
        self.size -= size
        self.count -= count
        return size


def kept_size(message: Publish) -> int:
    """Bytes a message takes in memory, near enough: its frame, and what Python adds."""
    try:
        size = encoded_size(message)
    except EncodeError:
        size = len(message.payload) + 4 * len(message.topic)  # it is dropped when its turn comes
    for value in message.properties.values():
        size += PROPERTY_OVERHEAD * (len(value) if isinstance(value, list) else 1)
    return size + OVERHEAD


class Backlog:
    """A queue of entries that knows how many messages and bytes it holds."""

    __slots__ = ("_entries", "bytes", "messages")

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.messages = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def oldest(self) -> Entry:
        return self._entries[0]

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.messages += entry.count
        self.bytes += entry.size

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Put entries before all others, in their order."""
        for entry in reversed(list(entries)):
            self._entries.appendleft(entry)
            self.messages += entry.count
            self.bytes += entry.size

    def remove(self, count: int) -> None:
        """The first messages of the oldest entry, perhaps all of them, no longer wait."""
        entry = self._entries[0]
        if count < entry.count:
            assert isinstance(entry, RunEntry)
            self.bytes -= entry.remove(count)
            self.messages -= count
        else:
            self._entries.popleft()
            self.messages -= entry.count
            self.bytes -= entry.size

    def trim(self, messages: int, size: int) -> Iterator[tuple[Entry, int]]:
        """Remove what is too much, the oldest first; answers from which entry how many messages.

        The newest stays, however large: it would otherwise take the whole queue with it and be lost too.
        """
        while self.messages > messages or self.bytes > size:
            oldest, alone = self._entries[0], len(self._entries) == 1
            count = oldest.count
            if isinstance(oldest, RunEntry):
                over = max(self.messages - messages, -(-(self.bytes - size) // oldest.frame_size))
                count = min(over, count - alone)
            elif alone:
                return
            if not count:
                return
            self.remove(count)
            yield oldest, count

    def clear(self) -> None:
        self._entries.clear()
        self.messages = self.bytes = 0
