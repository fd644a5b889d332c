"""What a neighbour sends over a compressed link, from behind the handshake."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ildm.config import Address
from ildm.core.link.chunks import DEFLATE, LARGEST, LARGEST_CODED, SHARE, ZSTD, Decompressor, codecs
from ildm.core.link.compression import CompressedTransport
from ildm.mqtt import MalformedPacket
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_bytes
from tests.fuzz.streams import Case
from tests.support.site import Site, session_of

RETURN = 60.0
"""Seconds within which a link that was broken is there again."""


class Chunks(Target):
    """A neighbour whose chunks have others between them. Setup: the codec (bit 0)."""

    name = "chunks"
    mutate = staticmethod(mutate_bytes)
    inputs_of_a_life = 50

    def __init__(self) -> None:
        self.links: dict[str, tuple[World, Site, Site]] = {}

    def fresh(self) -> None:
        self.links = {codec: linked(codec) for codec in codecs()}

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        codec = ZSTD if case.setup & 1 and ZSTD in codecs() else DEFLATE
        pieces = case.pieces()
        whole, bad = decoded(codec, [case.stream])
        parts, bad_in_parts = decoded(codec, pieces)
        assert bad == bad_in_parts, "the cuts decide what is malformed"
        assert parts.startswith(whole) or whole.startswith(parts)
        assert bad or len(parts) == len(whole)
        world, a, b = self.links[codec]
        before = dict(a.node.counters)
        pipe = inner(b)
        for piece in pieces:
            pipe.write(piece)
        world.run(0.05)
        found = {name for name, count in a.node.counters.items() if count != before.get(name)}
        pipe.reset()
        assert world.run_until(lambda: back(a, b), RETURN)
        assert not a.node.counters["link_internal_errors"]
        assert a.node.links.parts.compression.contexts.count <= 1
        return found | {(codec, bad, min(len(whole), SHARE) // LARGEST)}


def linked(codec: str) -> tuple[World, Site, Site]:
    world = World()
    a, b = (Site(world, name, "pf", link={"compression": codec}) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    world.run_until(lambda: back(a, b), RETURN)
    return world, a, b


def back(a: Site, b: Site) -> bool:
    """Both ends carry messages."""
    return a.links() == {"b": "active"} and b.links() == {"a": "active"}


def inner(site: Site) -> Pipe:
    """The connection beneath the compression."""
    transport = session_of(site, "a").transport
    assert isinstance(transport, CompressedTransport)
    pipe = transport._transport
    assert isinstance(pipe, Pipe)
    return pipe


def decoded(codec: str, pieces: list[bytes]) -> tuple[bytes, bool]:
    """What comes of a stream that begins with a chunk of the context, and whether it is malformed."""
    decompressor = Decompressor(codec)
    plain = b""
    try:
        for piece in pieces:
            share = decompressor.plain(piece)
            while decompressor.waits:
                assert len(share) <= SHARE + LARGEST + len(piece)
                plain += share
                share = decompressor.plain(b"")
            plain += share
            assert sum(map(len, decompressor._tail.parts)) <= LARGEST_CODED + 4
    except MalformedPacket:
        return plain, True
    return plain, False
