"""Topics and filters as sorted keys of the overlay (thesis 3.2.1).

A key is, in this order:

======== ===============================================================================
levels   for each topic level the byte 1 and the escaped level
class    0 0 exact, 0 1 wildcard; 2 aggregate
type     0 subscriber, 1 publisher: the subkey that parts each segment (thesis Fig. 3.3)
locality levels of a path, written like a topic; empty by default
node     identifier of the physical node, which makes the key unique
======== ===============================================================================

The bytes 0, 1 and 2 of a level are written as 2 and the value plus three. So keys compare as tuples of
levels do: ``a-b`` stands behind all of ``a/...``, which stands behind ``a``. Levels and class name a
*segment*: the subscribers of one topic or of one literal prefix, and behind them its publishers.

An *aggregate* publishes any number of topics below a prefix with one key, which stands behind the keys of
all of them: ``a`` and ``a/...``, then the aggregates of ``a``, then ``a-b``. (No level contains a 2 that is
followed by 1.) Such a segment has publishers only.

The key of a node that takes part in no segment is the byte 0xff and the node's identifier: the "default key"
of the thesis. No level can begin with that byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

from ildm.mqtt import IldmError
from ildm_algorithms.overlay.keys import EVERYTHING, Range

__all__ = [
    "ALL_NODES",
    "KeyFormatError",
    "OverlayKey",
    "Role",
    "Segment",
    "default_key",
    "key_text",
    "literal_prefix",
    "parse_key",
    "prefixes_above",
    "publisher_ranges",
    "segment_of_filter",
    "segments_of_topic",
    "topics_below",
]

MAX_PREFIX = 32
"""Levels of a literal prefix at most; filters with more are kept under their first 32. It bounds the
segments of a topic, which may have 65,536 levels. The same for all nodes of an overlay."""
MAX_PATH = 512
"""Bytes of encoded levels at most. A longer prefix is cut as above; a longer topic likewise, with a
digest behind it. (A topic may have 65,535 bytes, and whoever knows a node keeps its keys.)"""
REMEMBERED = 256
"""Characters of a topic at most whose segments are remembered: each message asks for them."""
MAX_CODE = MAX_PATH + 64
"""No code of a segment is longer."""
EXACT, WILDCARD, AGGREGATE = b"\0\0", b"\0\1", b"\2"
SUBSCRIBER, PUBLISHER, BEHIND = b"\0", b"\1", b"\2"
DEFAULT = b"\xff"
_ESCAPED = {value: bytes((2, value + 3)) for value in range(3)}


class KeyFormatError(IldmError, ValueError):
    """Bytes that are no key of this overlay."""


class Role(StrEnum):
    """What a key stands for."""

    SUBSCRIBER = "subscriber"
    PUBLISHER = "publisher"
    AGGREGATE = "aggregate"
    DEFAULT = "default"


def _level(text: str) -> bytes:
    raw = text.encode()
    # Control characters are rare in topics, and the path of each message leads through here.
    if min(raw, default=3) > 2:
        return b"\1" + raw
    return b"\1" + b"".join(_ESCAPED.get(byte) or bytes((byte,)) for byte in raw)


def _path(levels: Sequence[str]) -> bytes:
    """Levels without the terminating zero: what all longer paths begin with."""
    return b"".join(map(_level, levels))


def _prefix(levels: Sequence[str]) -> bytes:
    """Encoded levels as far as the bounds allow. Of two tuples of levels, one the start of the other,
    the results are so, too."""
    size = 0
    kept = []
    for level in levels[:MAX_PREFIX]:
        encoded = _level(level)
        size += len(encoded)
        if size > MAX_PATH:
            break
        kept.append(encoded)
    return b"".join(kept)


def _read_levels(path: bytes) -> tuple[str, ...]:
    """The levels of an encoded path.

    Raises:
        KeyFormatError: it is none, has a wrong escape, or no UTF-8.
    """
    if path and path[0] != 1:
        raise KeyFormatError(f"no path in key: {path!r}")
    try:
        return tuple(_unescape(level).decode() for level in path.split(b"\1")[1:])
    except UnicodeDecodeError:
        raise KeyFormatError(f"no UTF-8 in key: {path!r}") from None


def _part(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Path and class of the segment at the start of a key, and what follows.

    Raises:
        KeyFormatError: there is no class.
    """
    head = data.partition(b"\0")[0]
    end = head.find(AGGREGATE + PUBLISHER)
    if end < 0:
        end = len(head) - head.endswith(AGGREGATE)  # the code of a segment, with nothing behind it
    size = 1 if data[end : end + 1] == AGGREGATE else 2
    kind = data[end : end + size]
    if kind not in (EXACT, WILDCARD, AGGREGATE):
        raise KeyFormatError(f"no class in key {data!r}")
    return data[:end], kind, data[end + size :]


def _unescape(level: bytes) -> bytes:
    if b"\2" not in level:
        return level
    head, *pieces = level.split(b"\2")
    out = [head]
    for piece in pieces:
        if not piece or not 3 <= piece[0] <= 5:
            raise KeyFormatError(f"wrong escape in {level!r}")
        out.append(bytes((piece[0] - 3,)) + piece[1:])
    return b"".join(out)


class Segment(NamedTuple):
    """All subscribers and publishers of one topic, or of the filters with one literal prefix."""

    code: bytes
    """What their keys begin with: levels and class."""

    @classmethod
    def exact(cls, topic: str) -> Segment:
        """The segment of one topic; it serves filters without wildcards."""
        levels = topic.split("/")
        path = _path(levels)
        if len(path) > MAX_PATH:
            # a level cannot contain "#", so nothing else leads here
            path = _prefix(levels) + b"\1#" + blake2b(path, digest_size=16).hexdigest().encode()
        return cls(path + EXACT)

    @classmethod
    def wildcard(cls, prefix: Sequence[str]) -> Segment:
        """The segment of all filters whose levels before the first ``+`` or ``#`` are ``prefix``."""
        return cls(_prefix(prefix) + WILDCARD)

    @classmethod
    def aggregate(cls, prefix: Sequence[str]) -> Segment:
        """The publishers of topics below ``prefix`` that have no key for each topic; no subscribers."""
        return cls(_prefix(prefix) + AGGREGATE)

    @property
    def subscribers(self) -> Range:
        """G^S of the thesis."""
        return Range(self.code + SUBSCRIBER, self.code + PUBLISHER)

    @property
    def publishers(self) -> Range:
        """G^P of the thesis, behind the subscribers."""
        return Range(self.code + PUBLISHER, self.code + BEHIND)

    @property
    def members(self) -> Range:
        """Subscribers and publishers."""
        return Range(self.code + SUBSCRIBER, self.code + BEHIND)

    def subscriber_key(self, node_id: str, locality: Sequence[str] = ()) -> bytes:
        return self.code + SUBSCRIBER + _path(locality) + b"\0" + node_id.encode()

    def publisher_key(self, node_id: str, locality: Sequence[str] = ()) -> bytes:
        return self.code + PUBLISHER + _path(locality) + b"\0" + node_id.encode()

    @property
    def is_exact(self) -> bool:
        return self.code.endswith(EXACT)

    @property
    def is_aggregate(self) -> bool:
        return self.code.endswith(AGGREGATE)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the topic, or of the prefix (none for the filter ``#``).

        Raises:
            KeyFormatError: the code is none.
        """
        path, _, rest = _part(self.code)
        if rest:
            raise KeyFormatError(f"no class in segment {self.code!r}")
        return _read_levels(path)

    @property
    def text(self) -> str:
        """The topic, or the prefix with ``#`` behind it.

        Raises:
            KeyFormatError: the code is none.
        """
        levels = self.levels
        return "/".join(levels if self.is_exact else (*levels, "#"))


_ROLES = {
    (False, SUBSCRIBER): Role.SUBSCRIBER,
    (False, PUBLISHER): Role.PUBLISHER,
    (True, PUBLISHER): Role.AGGREGATE,
}
"""By whether the segment is one of aggregates, and the type."""


class OverlayKey(NamedTuple):
    """A key taken apart."""

    role: Role
    segment: Segment | None
    """None for a default key."""
    locality: tuple[str, ...]
    node_id: str

    @property
    def text(self) -> str:
        """For people: ``a/b subscriber n1``, ``a/# publisher n2``, ``a/# aggregate n2``, ``default n3``."""
        if self.segment is None:
            return f"{self.role} {self.node_id}"
        where = f" {'/'.join(self.locality)}" if self.locality else ""
        return f"{self.segment.text} {self.role}{where} {self.node_id}"


def default_key(node_id: str) -> bytes:
    """Key of a node whatever it subscribes to or publishes; it makes the node a member at all times."""
    return DEFAULT + node_id.encode()


ALL_NODES = Range(DEFAULT, EVERYTHING.high)
"""The default keys."""


def parse_key(key: bytes) -> OverlayKey:
    """Take a key apart.

    Raises:
        KeyFormatError: it is none of this overlay.
    """
    try:
        if key.startswith(DEFAULT):
            return OverlayKey(Role.DEFAULT, None, (), key[1:].decode())
        path, kind, rest = _part(key)
        _read_levels(path)
        role = _ROLES.get((kind == AGGREGATE, rest[:1]))
        locality, end, node_id = rest[1:].partition(b"\0")
        if role is None or not end:
            raise KeyFormatError(f"no type in key {key!r}")
        return OverlayKey(role, Segment(path + kind), _read_levels(locality), node_id.decode())
    except UnicodeDecodeError:
        raise KeyFormatError(f"no UTF-8 in key {key!r}") from None


def key_text(key: bytes) -> str:
    """A key for people; one that cannot be read in hexadecimal."""
    try:
        return parse_key(key).text
    except KeyFormatError:
        return key.hex()


def literal_prefix(topic_filter: str) -> tuple[tuple[str, ...], bool]:
    """The levels before the first wildcard, and whether there is a wildcard at all."""
    levels = topic_filter.split("/")
    for depth, level in enumerate(levels):
        if level in ("+", "#"):
            return tuple(levels[:depth]), True
    return tuple(levels), False


def segment_of_filter(topic_filter: str) -> Segment:
    """Where a node subscribes for a filter: a wildcard filter under its literal prefix."""
    levels, wildcard = literal_prefix(topic_filter)
    return Segment.wildcard(levels) if wildcard else Segment.exact(topic_filter)


def _ends(levels: Sequence[bytes]) -> list[int]:
    """Where in the joined ``levels`` a prefix may end that is kept whole, none of them first."""
    return [end for end in accumulate(map(len, levels[:MAX_PREFIX]), initial=0) if end <= MAX_PATH]


def segments_of_topic(topic: str) -> Sequence[Segment]:
    """Where subscribers of a topic of k levels are: its own segment, then k+1 (at most 33) wildcard ones."""
    return _segments(topic) if len(topic) <= REMEMBERED else _segments.__wrapped__(topic)


@lru_cache(4_096)
def _segments(topic: str) -> Sequence[Segment]:
    levels = [_level(level) for level in topic.split("/")]
    path = b"".join(levels)
    return (Segment.exact(topic), *(Segment(path[:end] + WILDCARD) for end in reversed(_ends(levels))))


def topics_below(prefix: Sequence[str]) -> Range:
    """Keys of all topics that begin with ``prefix``, itself among them; of more if it is very long."""
    start = _prefix(prefix)
    return Range(start + b"\0", start + AGGREGATE)


def prefixes_above(topic_filter: str) -> Sequence[Segment]:
    """The aggregates one of which may publish to a filter from a place of its own: those of all prefixes of
    a topic, itself not among them; those of the prefixes of a literal prefix, itself among them."""
    short = len(topic_filter) <= REMEMBERED
    return _prefixes(topic_filter) if short else _prefixes.__wrapped__(topic_filter)


@lru_cache(4_096)
def _prefixes(topic_filter: str) -> Sequence[Segment]:
    literal, wildcard = literal_prefix(topic_filter)
    levels = [_level(level) for level in literal]
    path = b"".join(levels)
    ends = reversed(_ends(levels))
    return tuple(Segment(path[:end] + AGGREGATE) for end in ends if wildcard or end < len(path))


def publisher_ranges(topic_filter: str) -> list[Range]:
    """Where the keys of all that publish what a filter matches are.

    The segment of the topic, or all keys below a literal prefix with the aggregates of that one, which
    follow; then the aggregates of each shorter prefix.
    """
    literal, wildcard = literal_prefix(topic_filter)
    above = [segment.publishers for segment in prefixes_above(topic_filter)]
    if wildcard:
        return [Range(topics_below(literal).low, above[0].high), *above[1:]]
    return [Segment.exact(topic_filter).members, *above]
