"""The bytes of a segment: its header, and one entry after the other. No disk, no clock.

::

    segment := header header entry* zeros         two equal headers, so that one may be damaged
    header  := "S2" number u48  key[8] first lsn u64  epoch u32  crc u32
             | "ILDMSPL1"  key[8] first lsn u64  epoch u32  crc u32         of earlier versions, still read
    entry   := length u32  crc u32  0xB5  kind u8  body          numbers are little-endian

``length`` counts from 0xB5 on, and so does the CRC-32. It is seeded with the *salt* of the segment, made of
the spool's secret key and the segment's number: so bytes of a client's payload are never taken for an entry,
not even when what is around them is damaged, nor are those of another segment. README.md beside has every
body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple
from zlib import crc32

from ildm.core.spool import Delivery

MAGIC = b"S2"
_MAGIC_1 = b"ILDMSPL1"
MARK = 0xB5
_HEADER = struct.Struct("<8s8sQI")
_HEADER_SIZE = _HEADER.size + 4
HEADERS = 2 * _HEADER_SIZE
"""Offset of the first entry."""
PREFIX = struct.Struct("<II")
_pack_prefix = PREFIX.pack
PREFIX_SIZE = PREFIX.size
SMALLEST = 2
"""Length of an entry without a body."""
HIGHEST = 1 << 62
"""No LSN is above: what says so is damaged."""
MOST_SEGMENTS = 1 << 47
"""No segment has this number or a higher one."""
MOST = 1 << 20
"""Messages in a record, at most."""
MIXED = 1 << 31
"""Beside the number of messages in a record: their frames are not all of one length and topic."""


class Kind(IntEnum):
    NAME = 1
    """What a number stands for: a consumer, or a node messages come from."""
    RECORD = 2
    FREE = 3
    """What a consumer has done with."""
    NOTE = 4
    JOURNAL = 5
    JOURNALED = 6
    CHECKPOINT = 7
    """Stands at the start of a segment: which segments there are, and which consumers have something."""
    CONSUMER = 8
    """What a consumer has not done with, as of the checkpoint before."""
    SNAPSHOT = 9
    """What the owner remembers of the records up to an LSN."""
    GONE = 10
    """Segments that are removed."""


KINDS = frozenset(int(kind) for kind in Kind)


class DamageError(ValueError):
    """Bytes that no entry has."""


# segments -------------------------------------------------------------------------------------------


class Header(NamedTuple):
    key: bytes
    first: int
    """LSN of the first that was to be written to it."""
    epoch: int
    number: int = 0
    """Of the segment, whatever the name of its file; 0: earlier versions did not write it."""


def encode_header(header: Header) -> bytes:
    begin = MAGIC + header.number.to_bytes(6, "little") if header.number else _MAGIC_1
    once = _HEADER.pack(begin, header.key, header.first, header.epoch)
    return (once + crc32(once).to_bytes(4, "little")) * 2


def decode_header(data: bytes) -> Header | None:
    """The header, from whichever of its two copies is whole."""
    for start in (0, _HEADER_SIZE):
        once = data[start : start + _HEADER.size]
        check = data[start + _HEADER.size : start + _HEADER_SIZE]
        if once.startswith((MAGIC, _MAGIC_1)) and crc32(once).to_bytes(4, "little") == check:
            begin, key, first, epoch = _HEADER.unpack(once)
            number = 0 if begin == _MAGIC_1 else int.from_bytes(begin[len(MAGIC) :], "little")
            if 0 < first <= HIGHEST and number < MOST_SEGMENTS:
                return Header(key, first, epoch, number)
    return None


def salt_of(key: bytes, number: int) -> int:
    """The seed of the CRCs of a segment."""
    return crc32(key + number.to_bytes(8, "little"))


def encode(salt: int, body: bytes, frames: bytes = b"") -> bytes:
    """What stands before an entry, given in one or two pieces from its mark on."""
    check = crc32(body, salt)
    return _pack_prefix(len(body) + len(frames), crc32(frames, check) if frames else check)


# records --------------------------------------------------------------------------------------------

_RECORD = struct.Struct("<BBQddqQQIIIH")
_TARGET = struct.Struct("<IBi")
_pack_record = _RECORD.pack
_TARGET_SIZE = _TARGET.size
_RECORD_HEAD = _RECORD.size
_unpack_share = struct.Struct("<2xQd40xIH").unpack_from
_KIND_RECORD = int(Kind.RECORD)
BEGINS_RECORD = bytes((MARK, _KIND_RECORD))
RECORD_SIZE = 8 + _RECORD.size + _TARGET.size
"""Bytes an entry needs besides the frames, for one consumer."""


class RecordHead(NamedTuple):
    """A record but for its frames; origins and consumers by their numbers, 0 for none."""

    lsn: int
    written: float
    """Unix time."""
    expires: float
    turn: int
    number: int
    again_number: int
    origin: int
    again: int
    messages: int
    mixed: bool
    """The frames are not all of one length and topic."""


def share_of(size: int, messages: int, left: int) -> int:
    """Bytes that ``left`` of the messages of a record count for; all together they are ``size``."""
    return size * left // messages


def encode_targets(deliveries: Iterable[tuple[int, Delivery]]) -> bytes:
    return b"".join(_TARGET.pack(consumer, way.qos, way.priority) for consumer, way in deliveries)


def encode_record(
    lsn: int,
    written: float,
    expires: float,
    turn: int,
    number: int,
    again_number: int,
    origin: int,
    again: int,
    messages: int,
    mixed: bool,
    targets: bytes,
) -> bytes:
    """The body of a RECORD without the frames, which follow it."""
    return (
        _pack_record(
            MARK,
            _KIND_RECORD,
            lsn,
            written,
            expires,
            turn,
            number,
            again_number,
            origin,
            again,
            messages | MIXED if mixed else messages,
            len(targets) // _TARGET_SIZE,
        )
        + targets
    )


def decode_record(entry: bytes) -> tuple[RecordHead, bytes, int]:
    """The head, the targets still encoded, and where the frames begin in the entry."""
    try:
        _, _, *head, messages, count = _RECORD.unpack_from(entry)
    except struct.error as error:
        raise DamageError(str(error)) from error
    begin = _RECORD.size + count * _TARGET.size
    read = RecordHead._make((*head, messages & ~MIXED, bool(messages & MIXED)))
    if read.lsn > HIGHEST or not _possible(len(entry) - begin, messages):
        raise DamageError("a record that contradicts itself")
    return read, entry[_RECORD.size : begin], begin


def decode_share(entry: bytes) -> tuple[int, int, int, bytes, float]:
    """What is to be known of a record to find who waits for it: its LSN, how many messages, the bytes of all,
    the targets still encoded, and when it was written."""
    try:
        lsn, written, messages, count = _unpack_share(entry)
    except struct.error as error:
        raise DamageError(str(error)) from error
    begin = _RECORD_HEAD + count * _TARGET_SIZE
    size = len(entry) - begin
    if lsn > HIGHEST or not _possible(size, messages):
        raise DamageError("a record that contradicts itself")
    return lsn, messages & ~MIXED, size, entry[_RECORD_HEAD:begin], written


def _possible(size: int, messages: int) -> bool:
    """Whether so many messages, as they are written in a record, have so many bytes."""
    count = messages & ~MIXED
    return 0 < count <= MOST and size >= 0 and (messages != count or not size % count)


def guess_head(data: bytes, at: int) -> tuple[int, int, bytes] | None:
    """LSN, messages and targets of what may be the head of a record, in bytes no checksum vouches for."""
    try:
        lsn, _, messages, count = _unpack_share(data, at)
    except struct.error:
        return None
    messages &= ~MIXED
    targets = data[at + _RECORD_HEAD : at + _RECORD_HEAD + count * _TARGET_SIZE]
    plausible = 0 < messages <= MOST and count > 0 and len(targets) == count * _TARGET_SIZE
    return (lsn, messages, targets) if plausible else None


def decode_targets(targets: bytes) -> list[tuple[int, int, int]]:
    """Number of the consumer, QoS, priority, of each."""
    return list(_TARGET.iter_unpack(targets))


# the rest: numbers and bytes in order ---------------------------------------------------------------

_U64 = struct.Struct("<Q")
_NAME = struct.Struct("<I")
_FREE = struct.Struct("<IQI")
_RANGE = struct.Struct("<QII")
_NOTE_1 = struct.Struct("<QIQIq")
_NOTE = struct.Struct("<QIQIqI")
_CHECKPOINT = struct.Struct("<QIII")
_SEGMENT = struct.Struct("<QQQ")
_CONSUMER = struct.Struct("<IQIII")
_PAIR = struct.Struct("<QQ")
_KEPT = struct.Struct("<QI")
_MARKED = struct.Struct("<QIq")


def _entry(kind: Kind, *parts: bytes) -> bytes:
    return bytes((MARK, kind)) + b"".join(parts)


def encode_name(number: int, name: str) -> bytes:
    return _entry(Kind.NAME, _NAME.pack(number), name.encode())


def decode_name(entry: bytes) -> tuple[int, str]:
    body = Body(entry)
    (number,) = body.take(_NAME)
    try:
        return number, body.rest().decode()
    except UnicodeError as error:
        raise DamageError(str(error)) from error


class Range(NamedTuple):
    """Consecutive messages of a record."""

    lsn: int
    first: int
    size: int


class Free(NamedTuple):
    consumer: int
    floor: int
    """All records before this LSN are done with; 0 if that was not worth finding out."""
    ranges: Sequence[Range]


def encode_free(free: Free) -> bytes:
    consumer, floor, ranges = free
    return _entry(
        Kind.FREE, _FREE.pack(consumer, floor, len(ranges)), *[_RANGE.pack(*each) for each in ranges]
    )


def decode_free(entry: bytes) -> Free:
    body = Body(entry)
    consumer, floor, count = body.take(_FREE)
    ranges = [Range(*each) for each in body.many(_RANGE, count)]
    if floor > HIGHEST or any(each.first + each.size > MOST for each in ranges):
        raise DamageError("places no record has")
    return Free(consumer, floor, ranges)


class Note(NamedTuple):
    lsn: int
    """Of the note itself."""
    consumer: int
    of: int
    """LSN of the record."""
    place: int
    """Of the first message."""
    value: int
    """Beside the first; those of the others count up from it."""
    messages: int = 1


def encode_note(note: Note) -> bytes:
    return _entry(Kind.NOTE, _NOTE.pack(*note))


def decode_note(entry: bytes) -> Note:
    body = Body(entry)
    if len(entry) == SMALLEST + _NOTE_1.size:  # of earlier versions
        note = Note(*body.take(_NOTE_1))
    else:
        note = Note(*body.take(_NOTE))
    if max(note.lsn, note.of) > HIGHEST:
        raise DamageError("an LSN beyond all")
    if note.place + note.messages > MOST:
        raise DamageError("places no record has")
    return note


def encode_journal(lsn: int) -> bytes:
    """Without the bytes, which follow it."""
    return _entry(Kind.JOURNAL, _U64.pack(lsn))


def encode_journaled(lsn: int) -> bytes:
    return _entry(Kind.JOURNALED, _U64.pack(lsn))


def encode_snapshot(lsn: int, covered: int) -> bytes:
    """Its own LSN, and up to where it knows the records. Without the bytes, which follow it."""
    return _entry(Kind.SNAPSHOT, _U64.pack(lsn), _U64.pack(covered))


def decode_snapshot(entry: bytes) -> tuple[int, int, bytes]:
    """Its LSN, up to where it knows the records, and the bytes."""
    body = Body(entry)
    (lsn,), (covered,) = body.take(_U64), body.take(_U64)
    if not covered <= lsn <= HIGHEST:
        raise DamageError("an LSN beyond all")
    return lsn, covered, body.rest()


def decode_lsn(entry: bytes) -> tuple[int, bytes]:
    """Of a JOURNAL or JOURNALED: the LSN, and the bytes."""
    body = Body(entry)
    (lsn,) = body.take(_U64)
    if lsn > HIGHEST:
        raise DamageError("an LSN beyond all")
    return lsn, body.rest()


class Span(NamedTuple):
    """A segment, by its number, and the LSNs in it."""

    number: int
    first: int
    last: int


class Checkpoint(NamedTuple):
    lsn: int
    """Of the newest before it."""
    next_number: int
    """No consumer and no origin has this number or a higher one yet."""
    consumers: Sequence[int]
    """Those that have something; an CONSUMER follows for each."""
    segments: Sequence[Span]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    lsn, next_number, consumers, segments = checkpoint
    return _entry(
        Kind.CHECKPOINT,
        _CHECKPOINT.pack(lsn, next_number, len(consumers), len(segments)),
        *(_NAME.pack(each) for each in consumers),
        *(_SEGMENT.pack(*span) for span in segments),
    )


def decode_checkpoint(entry: bytes) -> Checkpoint:
    body = Body(entry)
    lsn, next_number, consumers, segments = body.take(_CHECKPOINT)
    if lsn > HIGHEST:
        raise DamageError("an LSN beyond all")
    return Checkpoint(
        lsn,
        next_number,
        [number for (number,) in body.many(_NAME, consumers)],
        [Span(*each) for each in body.many(_SEGMENT, segments)],
    )


class Kept(NamedTuple):
    """A consumer at a checkpoint.

    It has not done with the records from ``cursor`` on, but for those in ``passed`` (first and last LSN), and
    with what of the records in ``kept`` is not among the places freed (one bit each, from the lowest).
    """

    consumer: int
    cursor: int
    passed: Sequence[tuple[int, int]]
    kept: dict[int, int]
    notes: dict[tuple[int, int], int]
    """LSN of the record and place: value."""


def encode_kept(kept: Kept) -> bytes:
    parts = [_CONSUMER.pack(kept.consumer, kept.cursor, len(kept.passed), len(kept.kept), len(kept.notes))]
    parts += [_PAIR.pack(*pair) for pair in kept.passed]
    for lsn, freed in kept.kept.items():
        size = (freed.bit_length() + 7) // 8
        parts += [_KEPT.pack(lsn, size), freed.to_bytes(size, "little")]
    parts += [_MARKED.pack(lsn, place, value) for (lsn, place), value in kept.notes.items()]
    return _entry(Kind.CONSUMER, *parts)


def decode_kept(entry: bytes) -> Kept:
    body = Body(entry)
    consumer, cursor, passed, kept, notes = body.take(_CONSUMER)
    if cursor > HIGHEST:
        raise DamageError("an LSN beyond all")
    read = Kept(consumer, cursor, [(first, last) for first, last in body.many(_PAIR, passed)], {}, {})
    for _ in range(kept):
        lsn, size = body.take(_KEPT)
        read.kept[lsn] = int.from_bytes(body.raw(size), "little")
    for lsn, place, value in body.many(_MARKED, notes):
        read.notes[lsn, place] = value
    return read


def encode_gone(numbers: Sequence[int]) -> bytes:
    return _entry(Kind.GONE, *(_U64.pack(number) for number in numbers))


def decode_gone(entry: bytes) -> list[int]:
    body = Body(entry)
    return [number for (number,) in body.many(_U64, (len(entry) - SMALLEST) // _U64.size)]


class Body:
    """Takes an entry apart, after its mark and kind.

    Raises:
        DamageError: it is too short.
    """

    def __init__(self, entry: bytes) -> None:
        self._entry = entry
        self._at = SMALLEST

    def raw(self, size: int) -> bytes:
        begin = self._at
        self._at += size
        if self._at > len(self._entry):
            raise DamageError("an entry that is too short")
        return self._entry[begin : self._at]

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.raw(form.size))

    def many(self, form: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        return list(form.iter_unpack(self.raw(form.size * count)))

    def rest(self) -> bytes:
        return self._entry[self._at :]
