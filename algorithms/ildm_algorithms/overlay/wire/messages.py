"""Messages of the overlay and their formats (see :mod:`ildm_algorithms.overlay.wire.codec`).

A :class:`Ref` is framed as a whole, so that a known one is recognised by its bytes and decoded once. Most of
the traffic consists of these.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ildm.api import Peer
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.wire.codec import (
    FLAG,
    KEY,
    PAYLOAD,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Codec,
    Format,
    OverlayError,
    framed,
    many,
    needed,
    record,
)

__all__ = [
    "CODEC",
    "FORMATS",
    "NO_SEQ",
    "PEER",
    "REF",
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
    "Term",
    "Terms",
    "Walk",
    "WalkReply",
    "Why",
    "decode",
    "encode",
]


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
    terms: int
    """Checksum of what the origin needs alike at all nodes (:mod:`ildm_algorithms.overlay.terms`)."""


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
    terms: int
    """As in :class:`Lookup`, of the sender."""


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
    terms: int
    """As in :class:`Lookup`, of the sender."""


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
    reliable: bool = False
    trace: bool = False
    deliver: bool = True
    control: bool = False
    """The payload is a message for the overlay itself."""
    depth: int = 0
    at: bytes = b""
    """The key for which the receiver was chosen; empty at the origin."""
    strays: int = 0
    """How often it was not there."""
    line: int = 0
    """0, or the number of the division, not the first of its part, that this copy comes from."""
    left: int = 0
    """Hundredths of a second until the origin gives the cast up, when this was sent; of a reliable one."""
    turn: int = 0
    unresponsive: tuple[str, ...] = ()
    """Nodes that it goes around, as they have not answered somebody on its way."""
    extra: tuple[bytes, ...] = ()
    note: bytes = b""
    """For the nodes on the way, each of which divides it among its copies."""
    payload: bytes = b""


class Why(IntEnum):
    """Why a part of a cast is not complete."""

    COMPLETE = 0
    DEADLINE = 1
    """Somebody has not acknowledged in time."""
    FULL = 2
    """The origin has as many casts under way as it may have."""
    NO_WAY = 3
    """Nobody was known to hand it to, or it has gone from node to node too often."""
    UNKNOWN = 4

    @classmethod
    def of(cls, number: int) -> Why:
        return cls(number) if number < cls.UNKNOWN else cls.UNKNOWN


class CastAck(NamedTuple):
    """The subtree of a copy has been served: what was reached in it. ``why``: a :class:`Why`."""

    request: int
    why: int
    nodes: int
    keys: int
    hops: int
    depth: int
    tree: bytes


class CastBusy(NamedTuple):
    """The copy has arrived, its subtree is being served; ``missed``: it cannot be served here; ``full``:
    not now."""

    request: int
    missed: bool
    full: bool


class Tell(NamedTuple):
    origin: Peer
    payload: bytes


class Invite(NamedTuple):
    """Become part of the graph of ``peer``."""

    peer: Peer


class Term(NamedTuple):
    """A parameter that must be the same at all nodes of a graph, as text."""

    name: str
    value: str


class Terms(NamedTuple):
    """What ``origin`` needs alike at all nodes; ``answer``: the receiver is refused and shall say its own."""

    origin: Peer
    answer: bool
    terms: tuple[Term, ...]


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
    | Terms
)

SEQ = record(Seq, U32, U32)
PEER = needed(*framed(*record(Peer, TEXT, TEXT)))
ANY_REF = framed(*record(Ref, KEY, PEER, U64))
REF = needed(*ANY_REF)
REFS = many(*REF)
CLAIM = record(LinkClaim, U8, KEY, KEY, SEQ, U32)
ANSWER = record(LinkAnswer, U16, FLAG, FLAG, REFS)

FORMATS: tuple[Format, ...] = (
    Format(1, Lookup, (U64, PEER, KEY, FLAG, U16, KEY, many(*KEY), U32)),
    Format(2, LookupReply, (U64, REF, REF, U16, FLAG)),
    Format(3, Walk, (U64, PEER, U8, KEY, KEY, U64, U16, FLAG)),
    Format(4, WalkReply, (U64, ANY_REF, FLAG, FLAG, U16)),
    Format(5, SetR, (U64, PEER, U8, KEY, REF, SEQ, KEY, KEY, FLAG, U32)),
    Format(6, SetRAck, (U64, ANY_REF, SEQ, REFS, PAYLOAD)),
    Format(7, SetRNak, (U64, FLAG, ANY_REF)),
    Format(8, SetL, (U8, KEY, REF, SEQ, KEY, REFS, U32)),
    Format(9, Ping, (U64, PEER, many(*CLAIM))),
    Format(10, Pong, (U64, many(*ANSWER))),
    Format(
        11,
        Cast,
        (
            *(U64, PEER, PEER, U64, KEY, KEY, U8, FLAG, FLAG, FLAG, FLAG),
            *(U16, KEY, U8, U64, U16, U16, many(*TEXT), many(*KEY), KEY, PAYLOAD),
        ),
    ),
    Format(12, CastAck, (U64, U8, U32, U32, U32, U16, PAYLOAD)),
    Format(13, CastBusy, (U64, FLAG, FLAG)),
    Format(14, Tell, (PEER, PAYLOAD)),
    Format(15, Invite, (PEER,)),
    Format(16, Terms, (PEER, FLAG, many(*record(Term, TEXT, TEXT)))),
)
CODEC = Codec(FORMATS)
"""Of the messages of every graph."""
encode = CODEC.encode


def decode(data: bytes) -> Message:
    """See :meth:`Codec.decode`."""
    message: Message = CODEC.decode(data)
    return message
