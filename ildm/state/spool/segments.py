"""One segment of the log: what is in it, for whom, and how far it is safe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ildm.state.spool.records import HEADERS, PREFIX_SIZE, Header, encode, encode_header, salt_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.state.spool.disk import File

SUFFIX = ".spool"
DAMAGED = ".damaged"
NEW = ".new"
MOVED = ".moved"
"""Of a file on its way to the name that its header says."""
MISPLACED = ".misplaced"
"""Of a file that is not of this spool, or has what another one has."""
MARK = "mark"
"""What the newest segment has held."""
COPIED = 4096
"""Bytes up to which it is quicker to join two pieces than to take the checksum of each."""


def bit_of(priority: int) -> int:
    """For a priority of a delivery."""
    return 1 << (priority + 8 & 31)


def priority_at(place: int) -> int:
    """Whose bit is at this place."""
    return place - 8


def name_of(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """The number of the segment in a file of this name; None: it is not the name of one."""
    digits = name.removesuffix(SUFFIX)
    # isdecimal alone takes the digits of every script
    return (
        int(digits)
        if name != digits and len(digits) == 16 and digits.isascii() and digits.isdecimal()
        else None
    )


def is_own(name: str) -> bool:
    """Whether a file of this name may stand in the directory of a spool; ``lost+found`` is of the disk."""
    for suffix in (NEW, MOVED, DAMAGED, MISPLACED):
        name = name.removesuffix(suffix)
    return name in ("lost+found", MARK) or number_of(name) is not None


class Receiver(ABC):
    """A consumer, as segments know it."""

    name: str
    number: int

    @abstractmethod
    def needs(self) -> Callable[[int], bool]:
        """Whether it has not done with a record that is for it, by LSN; holds until something is done."""


class Segment:
    """A file of entries. New ones wait in ``tail`` until they are safe there.

    Attributes:
        first: LSN of the first that was to be written to it.
        last: highest LSN in it, 0 for none.
        newest: Unix time at which its newest record was written.
        live: what each consumer has not done with of it: messages, bytes, and of which priorities that is at
            most, one bit each (:func:`bit_of`). Without the consumer: nothing.
        taken: of how many bytes of messages ``live`` is what is left, counted for each consumer.
        record_bytes: how much of the file is records.
        journal: highest LSN of an entry of the journal in it.
        end: size in bytes, with what is not written yet.
        safe: so many bytes survive what the mode promises.
        tail: the bytes from ``safe`` on.
        generation: changes when what is at an offset does.
        names: consumers and origins whose names are in it.
    """

    __slots__ = (
        "damaged",
        "end",
        "file",
        "first",
        "generation",
        "gone",
        "journal",
        "last",
        "live",
        "name",
        "names",
        "newest",
        "number",
        "record_bytes",
        "rewritten",
        "safe",
        "salt",
        "tail",
        "taken",
    )

    def __init__(self, number: int, key: bytes, first: int) -> None:
        self.number = number
        self.name = name_of(number)
        self.salt = salt_of(key, number)
        self.first = first
        self.last = 0
        self.newest = 0.0
        self.live: dict[Receiver, list[int]] = {}
        self.taken = 0
        self.record_bytes = 0
        self.journal = 0
        self.file: File | None = None
        self.end = self.safe = 0
        self.tail: list[bytes] = []
        self.generation = 0
        self.names: set[int] = set()
        self.damaged = False
        """It has parts that cannot be read."""
        self.gone = False
        """It is to be removed."""
        self.rewritten = False
        """It is being written anew, without what is done with."""

    def begin(self, header: Header) -> None:
        self.tail.append(encode_header(header))
        self.end = HEADERS

    def put(self, body: bytes, frames: bytes = b"") -> None:
        """An entry at the end: its body from the mark on, in one or two pieces."""
        if frames and len(frames) > COPIED:
            self.tail += (encode(self.salt, body, frames), body, frames)
            self.end += PREFIX_SIZE + len(body) + len(frames)
        else:
            body += frames
            self.tail += (encode(self.salt, body), body)
            self.end += PREFIX_SIZE + len(body)

    def settled(self, pieces: int, size: int) -> None:
        """So much of the tail is safe."""
        del self.tail[:pieces]
        self.safe += size

    def takes(self, consumer: Receiver, messages: int, size: int, bit: int = 0) -> None:
        self.taken += size
        cell = self.live.get(consumer)
        if cell is None:
            self.live[consumer] = [messages, size, bit]
        else:
            cell[0] += messages
            cell[1] += size
            cell[2] |= bit

    def loses(self, consumer: Receiver, messages: int, size: int) -> bool:
        """A consumer has done with a part; whether that was the last for anybody."""
        cell = self.live[consumer]
        cell[0] -= messages
        cell[1] -= size
        if cell[0]:
            return False
        del self.live[consumer]
        return not self.live

    @property
    def live_bytes(self) -> int:
        """What several consumers wait for is counted for each."""
        return sum(size for _, size, _ in self.live.values())

    @property
    def needed(self) -> float:
        """The share of the file that is records somebody waits for, about."""
        if not self.taken:
            return 0.0
        return self.live_bytes / self.taken * self.record_bytes / max(1, self.end - HEADERS)
