"""The wire format of messages: a byte that stands for the type, and the fields in order, big endian.

A part that occurs often can be framed as a whole (:func:`framed`), so that a known one is recognised by its
bytes and decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import groupby
from struct import Struct, error
from typing import Any, NamedTuple

from ildm.mqtt import IldmError

__all__ = [
    "FLAG",
    "KEY",
    "PAYLOAD",
    "TEXT",
    "U8",
    "U16",
    "U32",
    "U64",
    "Codec",
    "Field",
    "Format",
    "OverlayError",
    "framed",
    "many",
    "needed",
    "record",
]


class OverlayError(IldmError):
    """Data from another node that is no message of the overlay, or a use that its state forbids."""


LONGEST_TEXT = 320
"""Bytes of a node's id or address at most; it is kept in many places. (A host has a name of up to 253.)"""
REMEMBERED = 1_024
"""Bytes of a framed part at most that is remembered."""

Put = Callable[[Any], bytes]
Get = Callable[[bytes, int], tuple[Any, int]]
"""From the position where it begins to the value and the position behind it."""
Field = tuple[Put, Get]
_make: Callable[[type[tuple[Any, ...]], list[Any]], Any] = tuple.__new__
"""A named tuple of values that are as many as it has fields; half the time of a call by position."""
_NUMBERS: dict[Put, str] = {}
"""How the fields that are numbers are packed."""


def number(code: str) -> Field:
    struct = Struct(f">{code}")
    pack, unpack, size = struct.pack, struct.unpack_from, struct.size
    _NUMBERS[pack] = code

    def get(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return pack, get


def sized(code: str) -> Field:
    struct = Struct(f">{code}")
    pack, unpack, size = struct.pack, struct.unpack_from, struct.size

    def put(value: bytes) -> bytes:
        return pack(len(value)) + value

    def get(data: bytes, at: int) -> tuple[bytes, int]:
        start = at + size
        end = start + unpack(data, at)[0]
        if end > len(data):
            raise OverlayError("an overlay message ends within a field")
        return data[start:end], end

    return put, get


def many(put_one: Put, get_one: Get) -> Field:
    def put(values: tuple[Any, ...]) -> bytes:
        if not values:
            return b"\0\0"
        return _put_u16(len(values)) + b"".join(map(put_one, values))

    def get(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = _get_u16(data, at)
        if not count:
            return (), at
        values = []
        for _ in range(count):
            value, at = get_one(data, at)
            values.append(value)
        return tuple(values), at

    return put, get


def record(kind: Callable[..., Any], *fields: Field) -> Field:
    puts = tuple(put for put, _ in fields)
    gets = tuple(get for _, get in fields)

    def put(value: Any) -> bytes:
        return b"".join([put(part) for put, part in zip(puts, value, strict=True)])

    def get(data: bytes, at: int) -> tuple[Any, int]:
        parts = []
        for get_one in gets:
            part, at = get_one(data, at)
            parts.append(part)
        return kind(*parts), at

    return put, get


def framed(put_whole: Put, get_whole: Get) -> Field:
    """A part with its length before it, remembered by its bytes; empty stands for None."""

    @lru_cache(maxsize=65_536)
    def inside(data: bytes) -> Any:
        value, end = get_whole(data, 0)
        if end != len(data):
            raise OverlayError("a reference of an overlay message is longer than its fields")
        return value

    @lru_cache(maxsize=65_536)
    def frame(value: Any) -> bytes:
        return b"\0\0" if value is None else _put_key(put_whole(value))

    def get(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = _get_key(data, at)
        if len(raw) > REMEMBERED:
            return inside.__wrapped__(raw), at
        return (inside(raw) if raw else None), at

    return frame, get


def needed(put: Put, get: Get) -> Field:
    def get_one(data: bytes, at: int) -> tuple[Any, int]:
        value, at = get(data, at)
        if value is None:
            raise OverlayError("an overlay message lacks a reference")
        return value, at

    return put, get_one


def _put_text(value: str) -> bytes:
    return _put_key(value.encode())


def _get_text(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _get_key(data, at)
    if len(raw) > LONGEST_TEXT:
        raise OverlayError(f"a name of {len(raw)} bytes in an overlay message")
    return raw.decode(), at


U8 = number("B")
U16 = _put_u16, _get_u16 = number("H")
U32 = number("I")
U64 = number("Q")
FLAG = number("?")
KEY = _put_key, _get_key = sized("H")
PAYLOAD = sized("I")
TEXT = _put_text, _get_text
"""Of at most 65,535 bytes, as :data:`TEXT` is."""


class Format(NamedTuple):
    """How a message is written."""

    code: int
    """What stands for the type, 1 to 255. Those of the overlay itself are less than 64."""
    kind: type[tuple[Any, ...]]
    """A named tuple."""
    fields: tuple[Field, ...]


_Writing = tuple[int, Callable[..., bytes]]
"""So many numbers in a row are packed at once; 0: another field."""
_Reading = tuple[int, Callable[[bytes, int], tuple[Any, ...]]]
"""Numbers of so many bytes are unpacked at once; 0: another field."""


def _steps(fields: Iterable[Field]) -> tuple[list[_Writing], list[_Reading]]:
    """Numbers that stand in a row are taken together: each call costs as much as all of them."""
    writing: list[_Writing] = []
    reading: list[_Reading] = []
    for numbers, group in groupby(fields, lambda field: field[0] in _NUMBERS):
        if numbers:
            codes = "".join(_NUMBERS[put] for put, _ in group)
            struct = Struct(f">{codes}")
            writing.append((len(codes), struct.pack))
            reading.append((struct.size, struct.unpack_from))
        else:
            for put, get in group:
                writing.append((0, put))
                reading.append((0, get))
    return writing, reading


class Codec:
    """Writes and reads the messages of some formats."""

    def __init__(self, formats: Iterable[Format]) -> None:
        """Raises OverlayError where two have a code or a type in common."""
        self._writers: dict[type[tuple[Any, ...]], tuple[bytes, list[_Writing]]] = {}
        self._readers: dict[int, tuple[Any, list[_Reading]]] = {}
        for code, kind, fields in formats:
            if not 1 <= code <= 0xFF or code in self._readers or kind in self._writers:
                raise OverlayError(f"{kind.__name__} cannot have the code {code}")
            if len(kind._fields) != len(fields):  # type: ignore[attr-defined]  # of a named tuple
                raise OverlayError(f"{kind.__name__} has not as many fields as its format")
            writing, reading = _steps(fields)
            self._writers[kind] = bytes([code]), writing
            self._readers[code] = kind, reading

    def encode(self, message: tuple[Any, ...]) -> bytes:
        """Wire format of a message.

        Raises OverlayError where a field is too long for its length (a key over 65,535 bytes), and for a
        type without a format.
        """
        try:
            head, steps = self._writers[type(message)]
            parts = [head]
            at = 0
            for count, put in steps:
                if count:
                    parts.append(put(*message[at : at + count]))
                    at += count
                else:
                    parts.append(put(message[at]))
                    at += 1
            return b"".join(parts)
        except (KeyError, error) as cause:
            raise OverlayError(f"{type(message).__name__} does not fit its wire format: {cause}") from cause

    def decode(self, data: bytes) -> Any:
        """The message in ``data``. Raises OverlayError where there is not exactly one."""
        try:
            kind, steps = self._readers[data[0]]
            values: list[Any] = []
            at = 1
            for size, get in steps:
                if size:
                    values += get(data, at)
                    at += size
                else:
                    value, at = get(data, at)
                    values.append(value)
        except (KeyError, IndexError, error, UnicodeDecodeError) as cause:
            raise OverlayError(f"{len(data)} bytes that are no overlay message") from cause
        if at != len(data):
            raise OverlayError(f"{len(data) - at} bytes behind an overlay message")
        return _make(kind, values)
