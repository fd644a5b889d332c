"""What was kept and is not any more: numbers and topics.

A site that was away asks for these messages, too. It hears that they are gone, and counts each as lost.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.messages import MessageError

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["KIND", "MOST", "Gone", "read"]

MOST = 100_000
"""Messages whose numbers are remembered; some 32 bytes each, in memory and on disk."""
PAGE = 256
"""Of them, in one record on disk."""
PAGE_BYTES = 1 << 20
"""A record is written sooner, and again later, if the messages that it takes the place of are larger."""
KIND = b"Z"
"""Begins a record, where a message has its kind."""
_HEADED = Struct(">II")
_ONE = Struct(">Qd")


class _Page:
    """Some that follow each other."""

    __slots__ = ("ats", "numbers", "on_disk", "replaces", "size", "topics")

    def __init__(self) -> None:
        self.numbers = array("Q")
        """Ascending."""
        self.ats = array("d")
        self.topics: list[str] = []
        self.on_disk: int | None = None
        self.replaces: list[int] = []
        """Records of messages that are freed when the page is written."""
        self.size = 0
        """Bytes of those."""

    def add(self, number: int, at: float, topic: str) -> None:
        self.numbers.append(number)
        self.ats.append(at)
        self.topics.append(topic)

    def encode(self, shift: float) -> bytes:
        """``shift``: from the clock of the node to Unix time."""
        of: dict[str, list[int]] = {}
        for index, topic in enumerate(self.topics):
            of.setdefault(topic, []).append(index)
        parts = [KIND]
        for topic, indices in of.items():
            text = topic.encode()
            parts += (_HEADED.pack(len(text), len(indices)), text)
            parts += (_ONE.pack(self.numbers[index], self.ats[index] + shift) for index in indices)
        return b"".join(parts)


def read(data: bytes) -> list[tuple[int, float, str]]:
    """Numbers, Unix times and topics of a record. Raises: MessageError: it is none."""
    found = []
    at = len(KIND)
    while at + _HEADED.size <= len(data):
        size, count = _HEADED.unpack_from(data, at)
        start = at + _HEADED.size
        at = start + size + count * _ONE.size
        if at > len(data):
            break
        try:
            topic = data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise MessageError(f"a topic that is no text: {error}") from error
        found += [(number, wall, topic) for number, wall in _ONE.iter_unpack(data[start + size : at])]
    if at != len(data):
        raise MessageError("cut off")
    return found


class Gone:
    """Of one shelf of what is kept, the newest ``MOST``; older ones are forgotten, and counted.

    Args:
        head: begins each record on disk.
    """

    def __init__(self, api: NodeApi, head: bytes, count: Callable[[str, int], None]) -> None:
        self._api = api
        self._head = head
        self._count = count
        self._pages: list[_Page] = []
        self._found: _Page | None = None
        """In which one was found last: others that are looked for are mostly there, too."""
        self._size = 0
        self.topics: dict[str, int] = {}
        """Messages by topic."""
        self._names: dict[str, str] = {}
        """Of those, each topic as the one text that all share."""

    def __len__(self) -> int:
        return self._size

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(len(page.numbers) for page in self._pages)
        assert size == self._size, f"{size} messages count {self._size}"
        topics = Counter(topic for page in self._pages for topic in page.topics)
        assert topics == self.topics, f"messages on topics of {dict(topics)} count {self.topics}"
        assert self._names.keys() == self.topics.keys(), "topics and their texts differ"

    def add(self, number: int, at: float, topic: str, on_disk: int | None, size: int) -> None:
        """A message is not kept any more. Its record on disk, of ``size`` bytes, is freed later."""
        page = self._pages[-1] if self._pages else None
        if page is None or len(page.numbers) >= PAGE or number <= page.numbers[-1]:
            self.write()
            page = _Page()
            self._pages.append(page)
        page.add(number, at, self._names.setdefault(topic, topic))
        self.topics[topic] = self.topics.get(topic, 0) + 1
        self._size += 1
        if on_disk is not None:
            page.replaces.append(on_disk)
            page.size += size
            if page.size >= PAGE_BYTES:
                self._put(page)
        while self._size > MOST:
            self._forget()

    def restore(self, found: Iterable[tuple[int, float, str]], records: Iterable[int]) -> None:
        """Take up numbers, times and topics of an earlier incarnation, in any order. ``records``: those that
        had them."""
        for number, at, topic in sorted(found):
            self.add(number, at, topic, None, 0)
        for page in self._pages:
            self._put(page)
        for on_disk in records:
            self._api.unkeep(on_disk)

    def since(self, at: float) -> Iterator[tuple[int, float, str]]:
        """Numbers, times and topics of messages not older than a time."""
        for page in self._pages:
            if max(page.ats) >= at:
                for one in zip(page.numbers, page.ats, page.topics, strict=True):
                    if one[1] >= at:
                        yield one

    def find(self, number: int) -> tuple[float, str] | None:
        """When a message was published, and on which topic; None: it is not known."""
        page = self._found
        if page is None or not page.numbers[0] <= number <= page.numbers[-1]:
            page = next((page for page in self._pages if page.numbers[0] <= number <= page.numbers[-1]), None)
            if page is None:
                return None
            self._found = page
        index = bisect_left(page.numbers, number)
        return (page.ats[index], page.topics[index]) if page.numbers[index] == number else None

    def write(self) -> None:
        """Write what is not yet."""
        if self._pages and self._pages[-1].replaces:
            self._put(self._pages[-1])

    def _put(self, page: _Page) -> None:
        before = page.on_disk
        page.on_disk = self._api.keep(self._head + page.encode(self._api.wall() - self._api.now()))
        if before is not None:
            page.replaces.append(before)
        for on_disk in page.replaces:
            self._api.unkeep(on_disk)
        page.replaces = []
        page.size = 0

    def _forget(self) -> None:
        page = self._pages.pop(0)
        self._found = None
        for on_disk in (*page.replaces, *(() if page.on_disk is None else (page.on_disk,))):
            self._api.unkeep(on_disk)
        self._size -= len(page.numbers)
        self._count("kept_forgotten", len(page.numbers))
        for topic in page.topics:
            self.topics[topic] -= 1
            if not self.topics[topic]:
                del self.topics[topic], self._names[topic]
