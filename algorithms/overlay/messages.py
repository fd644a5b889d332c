"""Messages of the overlay and their wire format.

A message is one byte of type and its fields in order, big endian. Keys and names carry a length of
two bytes, payloads of four. A :class:`Ref` is framed as a whole, so that a known one is recognised by
its bytes and decoded once: it is what most of the traffic consists of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple

from algorithms.overlay.keys import Ref
from ildm.api import Peer
from ildm.mqtt import IldmError

__all__ = [
    "NO_SEQ",
    "Cast",
    "CastAck",
    "CastBusy",
    "Invite",
    "LinkAnswer",
    "LinkClaim",
    "Lookup",
    "LookupReply",
    "Message",
    "OverlayError",
    "Ping",
    "Pong",
    "Seq",
    "SetL",
    "SetR",
    "SetRAck",
    "SetRNak",
    "Tell",
    "Walk",
    "WalkReply",
    "decode",
    "encode",
]


class OverlayError(IldmError):
    """Data from another node that is no message of the overlay, or a use that its state forbids."""


class Seq(NamedTuple):
    """Sequence number of a link between two neighbours in a list, ordered."""

    repair: int
    step: int

    @property
    def next(self) -> Seq:
        return Seq(self.repair, self.step + 1)

    @property
    def gnext(self) -> Seq:
        """The first number of the next repair: it outranks all that a lost neighbour may have given out."""
        return Seq(self.repair + 1, 0)


NO_SEQ = Seq(0, 0)


class Lookup(NamedTuple):
    """Find the last key that is not greater than ``key`` (``strict``: that is less) around the ring."""

    id: int
    origin: Peer
    key: bytes
    strict: bool
    hops: int
    at: bytes
    """The key for which the receiver was chosen; empty at the first."""
    gone: tuple[bytes, ...]
    """Keys that were not where they were looked for."""


class LookupReply(NamedTuple):
    """``alone``: the node that answers has no neighbour but itself."""

    id: int
    pred: Ref
    succ: Ref
    hops: int
    alone: bool


class Walk(NamedTuple):
    """Go left along the list of ``level`` - 1 from ``start`` to the first key in the list of ``level``.

    ``at``: the key of the receiver. ``pending``: a key of the class that is less than ``start`` is about
    to enter the list.
    """

    id: int
    origin: Peer
    level: int
    start: bytes
    at: bytes
    vector: int
    hops: int
    pending: bool


class WalkReply(NamedTuple):
    """``found`` None: the list of the level has no other key, unless the walk was ``broken`` off."""

    id: int
    found: Ref | None
    pending: bool
    broken: bool
    hops: int


class SetR(NamedTuple):
    """Asks ``to`` to take ``new`` as its right neighbour.

    Insertion and repair: ``new`` is the sender; ``skip`` names a right neighbour of the receiver to be
    passed over as dead (LEFTONLY). Deletion: ``gone`` is the sender, ``new`` its right neighbour.
    """

    id: int
    origin: Peer
    level: int
    to: bytes
    new: Ref
    seq: Seq
    skip: bytes
    gone: bytes
    joining: bool
    """The sender is new in the list of level 0 and wants the application's status."""


class SetRAck(NamedTuple):
    """``right``: the receiver of the SetR had this right neighbour before (None: none of use)."""

    id: int
    right: Ref | None
    rseq: Seq
    lefts: tuple[Ref, ...]
    status: bytes


class SetRNak(NamedTuple):
    """``hint``: a key that is nearer, or that knows more."""

    id: int
    present: bool
    """The key asked is in the list."""
    hint: Ref | None


class SetL(NamedTuple):
    """Tells ``to`` that ``new`` is its left neighbour now; with seq (0, 0) a mere hint at a nearer one."""

    level: int
    to: bytes
    new: Ref
    seq: Seq
    gone: bytes
    """The left neighbour that has gone, if so."""
    lefts: tuple[Ref, ...]


class LinkClaim(NamedTuple):
    """``left`` at the receiver is the left neighbour of ``key`` at the sender."""

    level: int
    left: bytes
    key: bytes
    seq: Seq
    check: int
    """CRC-32 of what the sender knows of the nodes farther left."""


class LinkAnswer(NamedTuple):
    """Answer to a claim that is wrong, or whose sender does not know the nodes farther left."""

    claim: int
    """Position of the claim in the ping."""
    present: bool
    right: bool
    """The claim is right."""
    lefts: tuple[Ref, ...]


class Ping(NamedTuple):
    id: int
    origin: Peer
    claims: tuple[LinkClaim, ...]


class Pong(NamedTuple):
    id: int
    answers: tuple[LinkAnswer, ...]


class Cast(NamedTuple):
    """A query on its way through the part [low, high) of its range."""

    number: int
    origin: Peer
    parent: Peer
    request: int
    """Number of this copy at the parent."""
    low: bytes
    high: bytes
    routing: int
    reliable: bool
    trace: bool
    deliver: bool
    control: bool
    """The payload is a message for the overlay itself."""
    depth: int
    at: bytes
    """The key for which the receiver was chosen."""
    strays: int
    """How often it was not there."""
    turn: int
    extra: tuple[bytes, ...]
    payload: bytes


class CastAck(NamedTuple):
    """The subtree of a copy has been served: what was reached in it."""

    request: int
    complete: bool
    nodes: int
    keys: int
    hops: int
    depth: int
    tree: bytes


class CastBusy(NamedTuple):
    """The copy has arrived, its subtree is being served; ``missed``: it cannot be served here."""

    request: int
    missed: bool


class Tell(NamedTuple):
    origin: Peer
    payload: bytes


class Invite(NamedTuple):
    """Become part of the graph of ``peer``."""

    peer: Peer


Message = (
    Lookup
    | LookupReply
    | Walk
    | WalkReply
    | SetR
    | SetRAck
    | SetRNak
    | SetL
    | Ping
    | Pong
    | Cast
    | CastAck
    | CastBusy
    | Tell
    | Invite
)

# fields -------------------------------------------------------------------------------------------

Put = Callable[[Any], bytes]
Get = Callable[[bytes, int], tuple[Any, int]]


def _number(code: str) -> tuple[Put, Get]:
    struct = Struct(f">{code}")
    pack, unpack, size = struct.pack, struct.unpack_from, struct.size

    def get(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return pack, get


def _bytes(code: str) -> tuple[Put, Get]:
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


def _many(put_one: Put, get_one: Get) -> tuple[Put, Get]:
    def put(values: tuple[Any, ...]) -> bytes:
        return _put_u16(len(values)) + b"".join(map(put_one, values))

    def get(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = _get_u16(data, at)
        values = []
        for _ in range(count):
            value, at = get_one(data, at)
            values.append(value)
        return tuple(values), at

    return put, get


def _record(kind: Callable[..., Any], *fields: tuple[Put, Get]) -> tuple[Put, Get]:
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


def _framed(put_whole: Put, get_whole: Get) -> tuple[Put, Get]:
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
        return (inside(raw) if raw else None), at

    return frame, get


def _needed(put: Put, get: Get) -> tuple[Put, Get]:
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
    return raw.decode(), at


_U8 = _number("B")
_U16 = _put_u16, _get_u16 = _number("H")
_U32 = _number("I")
_U64 = _number("Q")
_FLAG = _number("?")
_KEY = _put_key, _get_key = _bytes("H")
_PAYLOAD = _bytes("I")
_TEXT = _put_text, _get_text
_SEQ = _record(Seq, _U32, _U32)
_PEER = _needed(*_framed(*_record(Peer, _TEXT, _TEXT)))
_ANY_REF = _framed(*_record(Ref, _KEY, _PEER, _U64))
_REF = _needed(*_ANY_REF)
_REFS = _many(*_REF)
_CLAIM = _record(LinkClaim, _U8, _KEY, _KEY, _SEQ, _U32)
_ANSWER = _record(LinkAnswer, _U16, _FLAG, _FLAG, _REFS)

_FORMATS: tuple[tuple[type[Message], tuple[tuple[Put, Get], ...]], ...] = (
    (Lookup, (_U64, _PEER, _KEY, _FLAG, _U16, _KEY, _many(*_KEY))),
    (LookupReply, (_U64, _REF, _REF, _U16, _FLAG)),
    (Walk, (_U64, _PEER, _U8, _KEY, _KEY, _U64, _U16, _FLAG)),
    (WalkReply, (_U64, _ANY_REF, _FLAG, _FLAG, _U16)),
    (SetR, (_U64, _PEER, _U8, _KEY, _REF, _SEQ, _KEY, _KEY, _FLAG)),
    (SetRAck, (_U64, _ANY_REF, _SEQ, _REFS, _PAYLOAD)),
    (SetRNak, (_U64, _FLAG, _ANY_REF)),
    (SetL, (_U8, _KEY, _REF, _SEQ, _KEY, _REFS)),
    (Ping, (_U64, _PEER, _many(*_CLAIM))),
    (Pong, (_U64, _many(*_ANSWER))),
    (
        Cast,
        (
            *(_U64, _PEER, _PEER, _U64, _KEY, _KEY, _U8, _FLAG, _FLAG, _FLAG, _FLAG),
            *(_U16, _KEY, _U8, _U16, _many(*_KEY), _PAYLOAD),
        ),
    ),
    (CastAck, (_U64, _FLAG, _U32, _U32, _U32, _U16, _PAYLOAD)),
    (CastBusy, (_U64, _FLAG)),
    (Tell, (_PEER, _PAYLOAD)),
    (Invite, (_PEER,)),
)

_WRITERS: dict[type[Message], tuple[bytes, tuple[Put, ...]]] = {
    kind: (bytes([code]), tuple(put for put, _ in fields)) for code, (kind, fields) in enumerate(_FORMATS, 1)
}
_READERS: dict[int, tuple[Any, tuple[Get, ...]]] = {
    code: (kind, tuple(get for _, get in fields)) for code, (kind, fields) in enumerate(_FORMATS, 1)
}


def encode(message: Message) -> bytes:
    """Wire format of a message.

    Raises OverlayError where a field is too long for its length (a key over 65,535 bytes).
    """
    head, puts = _WRITERS[type(message)]
    try:
        return head + b"".join([put(value) for put, value in zip(puts, message, strict=True)])
    except error as cause:
        raise OverlayError(f"{type(message).__name__} does not fit its wire format: {cause}") from cause


def decode(data: bytes) -> Message:
    """The message in ``data``. Raises OverlayError where there is not exactly one."""
    try:
        kind, gets = _READERS[data[0]]
        values = []
        at = 1
        for get in gets:
            value, at = get(data, at)
            values.append(value)
    except (KeyError, IndexError, error, UnicodeDecodeError) as cause:
        raise OverlayError(f"{len(data)} bytes that are no overlay message") from cause
    if at != len(data):
        raise OverlayError(f"{len(data) - at} bytes behind an overlay message")
    message: Message = kind(*values)
    return message
