"""What nodes send each other to fill their tables (ATM-TBPS IV-B, Table II).

======= ======= ================= ==================================================================
Explore message REXP              along the neighbours of one side, to ever higher levels
Note    on cast EEXP, UNSUB       alone: it looks for entries, or says that a subscriber leaves
Note    on cast PUB               with a message: it looks for entries on the way
New     message NEW               here is a key that you do not know
Forget  message (not of the paper) the key that you have sent a copy to is not here
======= ======= ================= ==================================================================

Known entries travel as the CRC-32 of each: one in four billion strangers is taken for known.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack
from typing import NamedTuple
from zlib import crc32

from ildm.api import Peer
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.wire.codec import FLAG, KEY, U8, U16, Codec, Format, OverlayError
from ildm_algorithms.overlay.wire.messages import PEER, REF

__all__ = [
    "FORMATS",
    "Explore",
    "Forget",
    "New",
    "Note",
    "Query",
    "digest",
    "knows",
    "read_note",
    "write_note",
]


class Explore(NamedTuple):
    """REXP: look for entries of all levels on one side."""

    sender: Ref
    forwarder: Ref
    at: bytes
    """The key of the receiver."""
    known: bytes
    right: bool
    hops: int
    """How often it is passed on at most."""


class New(NamedTuple):
    sender: Ref
    to: bytes
    """The own key whose table lacks it."""


class Forget(NamedTuple):
    sender: Peer
    key: bytes


class Note(NamedTuple):
    """What travels with a cast."""

    sender: Ref
    """The key that looks for entries, or leaves."""
    forwarder: Ref
    known: bytes
    requested: int
    """How many more of those on the way of this copy shall make themselves known."""
    leaving: bool


Query = Explore | New | Forget
FORMATS = (
    Format(64, Explore, (REF, REF, KEY, KEY, FLAG, U8)),
    Format(65, New, (REF, KEY)),
    Format(66, Forget, (PEER, KEY)),
)
FIRST_MESSAGES = "64:Explore 65:New 66:Forget"
"""Version 1 of the algorithm's messages as the terms of an overlay have them: nodes with another text are
refused, so it never changes."""
_NOTES = Codec((Format(1, Note, (REF, REF, KEY, U16, FLAG)),))
write_note = _NOTES.encode


def read_note(data: bytes) -> Note:
    """Raises OverlayError where there is none."""
    note: Note = _NOTES.decode(data)
    _sums(note.known)
    return note


def digest(refs: Iterable[Ref]) -> bytes:
    """For :attr:`Note.known`."""
    sums = sorted(map(_sum, refs))
    return pack(f">{len(sums)}I", *sums)


def knows(known: bytes, ref: Ref) -> bool:
    """Whether a digest has an entry, just as it is. Raises OverlayError where the digest is none."""
    return _sum(ref) in _sums(known)


def _sums(known: bytes) -> tuple[int, ...]:
    count, rest = divmod(len(known), 4)
    if rest:
        raise OverlayError("the entries known to an explorer are cut")
    return unpack(f">{count}I", known)


def _sum(ref: Ref) -> int:
    # A node that has started anew has the same keys, but another vector, perhaps another address.
    return crc32(ref.key + ref.vector.to_bytes(8, "big") + ref.peer.address.encode())
