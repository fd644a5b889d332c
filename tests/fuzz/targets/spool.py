"""The spool's directory: whatever is in it, a spool opens, gives back what it was given, and works on.

Setup, the first byte: what the rest is.

0, 1  entries of segments, each with its length in two bytes before it; they get the right CRC, and a kind of
      255 begins the next segment
2     the bytes of a segment
else  a spool that was used (from 128 on: one used less), and changes of its files: each of six bytes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import Any, NamedTuple

from ildm.core.spool import Delivery, Identity, Record, Stored
from ildm.mqtt import Framer, Publish, Version
from ildm.state.spool import FileSpool
from ildm.state.spool.records import MARK, Header, encode, encode_header, salt_of
from ildm.state.spool.segments import name_of
from ildm.testing.virtual.disk import SimDisk, SimFile
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_bytes

KEY = b"fuzz-key"
WALL = 1_700_000_000.0
CONSUMERS = ("link/b/0", "injection/0", "plugin/x")
MOST_LSN = 1 << 61
"""A spool that has got so far will not be there when it has no numbers left."""
ORIGIN = 2
"""What the name of the origin of all records has for a number."""
MOST_READ = 5000
"""Readings until a consumer has to have nothing more."""


class Settings(NamedTuple):
    """Segments so small that there are several."""

    mode: str = "process"
    bytes: int = 1 << 20
    segment_bytes: int = 2048
    age: float = 1e9
    delay: float = 0.0
    full: str = "hold"


class Spool(Target):
    """See the module."""

    name = "spool"

    def __init__(self) -> None:
        self._images = used(60, 2048), used(12, 512)
        self._image, self._given, self._left = self._images[0]

    @staticmethod
    def mutate(data: bytes, random: Random, others: Any) -> bytes:
        if data[:1] < b"\2":
            return mutate_entries(data, random, others)
        changed = mutate_bytes(data, random, others)
        if changed[:1] > b"\2" and random.randrange(4):
            changed = bytes((changed[0] | 0x80,)) + changed[1:]
        return changed

    def take(self, data: bytes) -> Iterable[Hashable]:
        what, rest = data[:1] or b"\0", data[1:]
        if what < b"\2":
            disk = written(rest)
        elif what == b"\2":
            disk = SimDisk()
            put(disk, name_of(1), rest)
        else:
            self._image, self._given, self._left = self._images[what >= b"\x80"]
            disk = copied(self._image)
            only_flips = changed(disk, rest)
        spool, events = opened(disk, 512 if what >= b"\x80" else 2048)
        found = {name: everything(spool, name) for name in {*spool.consumers(), *CONSUMERS}}
        if what > b"\2":
            for name in CONSUMERS:
                self._check(name, found[name], only_flips, spool.counters.total())
        list(spool.replay())
        list(spool.identities())
        if spool.last < MOST_LSN:
            works_on(spool, disk)
        return {(name, count.bit_length()) for name, count in spool.counters.items()} | {
            (event, what) for event in events
        }

    def _check(self, name: str, found: list[Stored], only_flips: bool, damages: int) -> None:
        """Nothing is made up, and nothing is missing of which no word is said."""
        messages: set[tuple[int, int]] = set()
        for stored in found:
            given = self._given[stored.lsn]
            first, count = stored.first, stored.record.messages
            frames = list(Framer().feed(given.frames))[first : first + count]
            assert stored.record.frames == b"".join(frames), "other bytes than it was given"
            assert stored.record.mixed is given.mixed, "of one length, or not, as it was not given"
            assert stored.record.turn == given.turn
            assert named(stored.record.identity, given.identity, damages), "of another origin, or number"
            for place in range(stored.first, stored.first + stored.record.messages):
                assert (stored.lsn, place) not in messages, "a message comes twice"
                messages.add((stored.lsn, place))
        if only_flips and not damages:
            assert messages == self._left[name], "messages are missing, and nothing says so"


def named(found: Identity | None, given: Identity | None, damages: int) -> bool:
    """Whether an identity is as given. Damage that is told may have taken the name of its origin, but not put
    another in its place.
    """
    if found is None or given is None or found.number != given.number:
        return found == given
    return found.origin == given.origin or (bool(damages) and found.origin == f"?{ORIGIN}")


class Counted(dict[str, int]):
    """Counters."""

    def __missing__(self, name: str) -> int:
        return 0

    def total(self) -> int:
        """Of what is said of damage."""
        return sum(count for name, count in self.items() if name in DAMAGES)


DAMAGES = ("spool_damaged", "spool_torn", "spool_unreadable", "spool_resumed")


def opened(disk: SimDisk, segment_bytes: int = 2048) -> tuple[FileSpool, list[str]]:
    """A spool on a disk, and the log of it."""
    events: list[str] = []

    def log(level: str, event: str, **fields: object) -> None:
        events.append(event)

    def never(delay: float, callback: Callable[[], None]) -> None:
        pass

    counters: Any = Counted()
    settings = Settings(segment_bytes=segment_bytes)
    spool = FileSpool(
        disk, settings, wall=lambda: WALL, call_later=never, log=log, expiry=1e9, counters=counters
    )
    return spool, events


def record(number: int, messages: int = 1) -> Record:
    """A record of its own; of several messages every other one is mixed."""
    mixed = messages > 1 and number % 8 < 4
    packets = (
        Publish(
            topic=f"t/{(number + place * mixed) % 5}",
            payload=b"%04d" % number * (5 + place * mixed),
            qos=1,
            packet_id=place,
        )
        for place in range(1, messages + 1)
    )
    frames = b"".join(packet.encode(Version.V5) for packet in packets)
    identity = Identity("a", (7 << 32) + 10 * number)
    return Record(frames, messages, identity, number % 3, mixed=mixed)


def used(
    records: int, segment_bytes: int
) -> tuple[SimDisk, dict[int, Record], dict[str, set[tuple[int, int]]]]:
    """A disk with a spool, what it was given by LSN, and what it has left for each consumer."""
    disk = SimDisk()
    spool, _ = opened(disk, segment_bytes)
    spool.snapshot = lambda: b"a snapshot"
    given: dict[int, Record] = {}
    left: dict[str, set[tuple[int, int]]] = {name: set() for name in CONSUMERS}
    for number in range(records):
        one = record(number, 1 + number % 4)
        targets = CONSUMERS[: 1 + number % 3]
        lsn = spool.append(one, [Delivery(name, 1, held=True) for name in targets])
        given[lsn] = one
        for name in targets:
            left[name] |= {(lsn, place) for place in range(one.messages)}
        if number % 2:
            spool.consumer("link/b/0").free(lsn, 0, 1)
            left["link/b/0"].discard((lsn, 0))
        if number % 5 == 1:
            spool.consumer("injection/0").note(lsn, 0, 500 + number)
        if number % 7 == 0:
            spool.journal(b"row %d" % number)
        if number % 4 == 0:
            spool.commit()
    spool.journaled(records // 3)
    spool.commit()
    return disk, given, left


def everything(spool: FileSpool, name: str) -> list[Stored]:
    """What a consumer has beyond what is in hand, to its end."""
    consumer = spool.consumer(name)
    found: list[Stored] = []
    for _ in range(MOST_READ):
        some = consumer.read(4096)
        if not some:
            assert consumer.beyond_messages == 0, "there is something that is never read"
            return found
        found += some
    raise AssertionError("a consumer that has no end")


def works_on(spool: FileSpool, disk: SimDisk) -> None:
    """What is given to it now is there in its next life, all else is done with."""
    assert not spool.failure, spool.failure
    for name in spool.consumers():
        spool.consumer(name).retire()
    new = record(999, 3)
    lsn = spool.append(new, [Delivery("link/b/0", 1, held=True)])
    entry = spool.journal(b"newest")
    spool.commit()
    assert spool.durable >= entry
    epoch = spool.epoch
    spool.close()
    again, _ = opened(disk)
    assert again.epoch > epoch
    assert again.last >= entry
    (stored,) = [one for one in everything(again, "link/b/0") if one.lsn == lsn]
    assert (stored.record.frames, stored.record.identity) == (new.frames, new.identity)
    assert (entry, b"newest") in list(again.replay())


# files ----------------------------------------------------------------------------------------------


def put(disk: SimDisk, name: str, content: bytes) -> None:
    file = disk.files[name] = SimFile(disk, 0)
    file.content = bytearray(content)
    file.synced = content


def copied(disk: SimDisk) -> SimDisk:
    other = SimDisk()
    for name, file in disk.files.items():
        put(other, name, bytes(file.content))
    return other


def written(entries: bytes) -> SimDisk:
    """Segments of these entries, each with its CRC."""
    disk = SimDisk()
    number = 1
    content = bytearray(encode_header(Header(KEY, 1, 1)))
    for entry in split(entries):
        if entry[:1] == b"\xff":
            put(disk, name_of(number), bytes(content))
            number += 1
            first = int.from_bytes(entry[1:9], "little")
            content = bytearray(encode_header(Header(KEY, min(first, 1 << 62), number)))
            continue
        body = bytes((MARK,)) + entry
        content += encode(salt_of(KEY, number), body) + body
    put(disk, name_of(number), bytes(content))
    return disk


def changed(disk: SimDisk, changes: bytes) -> bool:
    """Change files as damage may; whether nothing but single bytes was."""
    only_flips = True
    for at in range(0, len(changes) - 5, 6):
        how, which = changes[at], changes[at + 1]
        place, value = int.from_bytes(changes[at + 2 : at + 4]), int.from_bytes(changes[at + 4 : at + 6])
        names = sorted(disk.files)
        if not names:
            return False
        name = names[which % len(names)]
        content = bytearray(disk.files[name].content)
        place %= len(content) + 1
        match how % 8:
            case 0 | 1 | 2 | 3 if place < len(content):
                content[place] ^= value & 0xFF or 1
                put(disk, name, bytes(content))
                continue
            case 4:
                del content[place:]
            case 5:
                content[place : place + value % 600] = bytes(value % 600)
            case 6:
                other = disk.files[names[value % len(names)]].content
                content[place : place + 64] = other[place : place + 64]
            case _:
                if value % 3:
                    put(disk, name_of(value % 40), bytes(content))
                del disk.files[name]
                only_flips = False
                continue
        put(disk, name, bytes(content))
        only_flips = False
    return only_flips


def split(entries: bytes) -> list[bytes]:
    """Entries, of which each has its length before it."""
    found: list[bytes] = []
    at = 0
    while at + 2 <= len(entries):
        size = int.from_bytes(entries[at : at + 2])
        found.append(entries[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def join(entries: Iterable[bytes]) -> bytes:
    """The inverse of :func:`split`."""
    return b"".join(len(entry).to_bytes(2) + entry for entry in entries)


def mutate_entries(data: bytes, random: Random, others: Any) -> bytes:
    """Entries changed, moved, repeated, or taken from elsewhere."""
    entries = split(data[1:])
    for _ in range(1 << random.randrange(3)):
        at = random.randrange(len(entries)) if entries else 0
        match random.randrange(6):
            case 0 | 1 if entries:
                entries[at] = mutate_bytes(entries[at], random)
            case 2 if entries:
                entries[at:at] = entries[at : at + random.randrange(1, 4)]
            case 3 if entries:
                del entries[at]
            case 4 if entries:
                other = random.randrange(len(entries))
                entries[at], entries[other] = entries[other], entries[at]
            case _:
                theirs = random.choice(others) if others else b""
                if theirs[:1] < b"\2":
                    chosen = split(theirs[1:])
                    start = random.randrange(len(chosen) + 1)
                    entries[at:at] = chosen[start : start + random.randrange(1, 4)]
    return data[:1] + join(entries)
