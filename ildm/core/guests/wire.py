"""What members of a site say to each other: frames of a length, a kind and a body.

A frame is the length of what follows in four bytes, a byte of kind, and a body. Numbers are big-endian, texts
in JSON hold bytes as the characters U+0000 to U+00FF. A :data:`DO` carries records of what has happened to
the clients of a member, in order. Records are numbered from 1 on through the life of the member's process.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from ildm.mqtt import LocalError


class MemberError(LocalError):
    """What another member of the site has sent makes no sense."""


VERSION = 1
"""Of all that follows. Both ends have to have the same."""

HELLO, WELCOME, ANEW, DO, TAKEN, TOLD, ASK = range(1, 8)
"""Kinds of frames. A member says HELLO, who it is; the owner WELCOME, up to which record it has what that one
has sent. The member tells of its clients ANEW, as far as these records go, then it goes on with DO. The owner
says TAKEN, up to which record all is durable, and TOLD, for which SUBSCRIBED other sites know the filters.
The member is to ASK for those that an earlier owner has got."""

CONNECTED, SUBSCRIBED, UNSUBSCRIBED, LEAVES, DISCONNECTED, RELEASED, BATCH, MESSAGE = range(1, 9)
"""Kinds of records. All but BATCH begin with the number of the client's session."""

FRAME = struct.Struct(">IB")
RECORD = struct.Struct(">BI")
NUMBER = struct.Struct(">Q")
DO_HEAD = struct.Struct(">QI")
"""Number of the last record, and how many there are."""
BATCH_HEAD = struct.Struct(">HIId")
"""Turn of the publisher, messages, bytes of each (0: they differ), and the Unix time since which they age; 0:
they do not."""
MESSAGE_HEAD = struct.Struct(">QHBd")
"""Session (0: of none), turn, whether its identifier is in use until PUBREL, and the Unix time it came."""
RELEASED_BODY = struct.Struct(">QH")
SLACK = 4 << 20
"""Bytes of a frame beyond those of the largest packet."""


def frame(kind: int, body: bytes) -> bytes:
    return FRAME.pack(1 + len(body), kind) + body


def record(kind: int, body: bytes) -> bytes:
    return RECORD.pack(kind, len(body)) + body


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(body: bytes) -> Any:
    """Raises: MemberError: it is none."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise MemberError(f"a member of the site has sent no JSON: {error}") from None


def of_client(number: int, value: Any) -> bytes:
    """Body of a record about one client."""
    return NUMBER.pack(number) + to_json(value)


def text(data: bytes) -> str:
    return data.decode("latin-1")


def raw(data: str) -> bytes:
    return data.encode("latin-1")


class Frames:
    """Cuts what comes into frames.

    Args:
        largest: bytes of a frame.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and body of each frame that is whole. Raises: MemberError: one is too large."""
        held = self._held
        held += data
        pos = 0
        try:
            while len(held) - pos >= FRAME.size:
                size, kind = FRAME.unpack_from(held, pos)
                if not 1 <= size <= self._largest:
                    raise MemberError(f"a member of the site has sent a frame of {size} bytes")
                end = pos + 4 + size
                if len(held) < end:
                    return
                body = bytes(held[pos + FRAME.size : end])
                pos = end
                yield kind, body
        finally:
            del held[:pos]


def do_frame(last: int, records: Iterable[bytes], count: int) -> bytes:
    return frame(DO, DO_HEAD.pack(last, count) + b"".join(records))


def records_of(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, kind and body of each record of a DO. Raises: MemberError: it is cut."""
    try:
        last, count = DO_HEAD.unpack_from(body)
        pos = DO_HEAD.size
        for number in range(last - count + 1, last + 1):
            kind, size = RECORD.unpack_from(body, pos)
            pos += RECORD.size
            if pos + size > len(body):
                raise MemberError("a member of the site has sent a record that is cut")
            yield number, kind, body[pos : pos + size]
            pos += size
    except struct.error as error:
        raise MemberError(f"a member of the site has sent a record that is cut: {error}") from None
