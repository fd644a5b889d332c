"""Chunks of a compressed link: what is put in comes out, nothing else does, and memory is bounded."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.counters import Counters
from ildm.core.link import chunks
from ildm.core.link.chunks import (
    ANEW,
    CODED,
    DEFLATE,
    FIRST_WAIT,
    LARGEST,
    LARGEST_CODED,
    LARGEST_STORED,
    LOOKED_AT,
    SHARE,
    SMALL,
    STORED,
    ZSTD,
    Compressor,
    Contexts,
    Decompressor,
    codecs,
)
from ildm.mqtt import MalformedPacket
from ildm.mqtt.framing import encode_varint

CODECS = [DEFLATE, pytest.param(ZSTD, marks=pytest.mark.skipif(ZSTD not in codecs(), reason="no zstandard"))]
READING = b'{"device":"sensor-017","ts":1700000000000,"temperature":20.25,"humidity":41.5,"status":"ok"}'
both = pytest.mark.parametrize("codec", CODECS)


def compressor(codec: str, most: int = 8) -> Compressor:
    return Compressor(codec, Contexts(most, Counters()))


def everything(decompressor: Decompressor, data: bytes) -> bytes:
    parts = [decompressor.plain(data)]
    while decompressor.waits:
        parts.append(decompressor.plain(b""))
    return b"".join(parts)


def head(kind: int, length: int) -> bytes:
    return encode_varint(length << 2 | kind)


def deflated(plain: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (stream.compress(plain) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]


WRITES = st.lists(
    st.tuples(
        st.one_of(
            st.binary(min_size=1, max_size=300),
            st.integers(1, 3000).map(lambda n: READING * n),
            st.integers(1, 100_000).map(lambda n: random.Random(n).randbytes(n)),
        ),
        st.booleans(),
    ),
    max_size=12,
)


@both
@settings(max_examples=60, derandomize=True, deadline=None)
@given(writes=WRITES, cuts=st.lists(st.integers(1, 40_000), min_size=1, max_size=8))
def test_what_was_written_comes_out_however_it_is_cut(
    codec: str, writes: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    sender, receiver = compressor(codec), Decompressor(codec)
    wire = b"".join(sender.chunks(data, code) for data, code in writes)
    got, at, turn = [], 0, 0
    while at < len(wire):
        size = cuts[turn % len(cuts)]
        got.append(everything(receiver, wire[at : at + size]))
        at, turn = at + size, turn + 1
    assert b"".join(got) == b"".join(data for data, _ in writes)


@both
def test_what_was_written_so_far_comes_out_at_once(codec: str) -> None:
    sender, receiver = compressor(codec), Decompressor(codec)
    for n in range(200):
        data = READING.replace(b"20.25", str(n).encode())
        assert receiver.plain(sender.chunks(data)) == data


@both
def test_readings_take_a_fraction_of_their_bytes(codec: str) -> None:
    sender, chance = compressor(codec), random.Random(1)
    messages = [READING.replace(b"20.25", b"%.2f" % chance.gauss(20, 3)) for _ in range(1000)]
    for joined, least in ((1, 3), (10, 8)):
        writes = [b"".join(messages[at : at + joined]) for at in range(0, 1000, joined)]
        assert sum(len(sender.chunks(write)) for write in writes) * least < 1000 * len(READING)


@both
def test_the_context_begins_with_the_first_chunk_and_goes_on(codec: str) -> None:
    sender = compressor(codec)
    first, second = sender.chunks(READING), sender.chunks(READING)
    assert (first[0] & 3, second[0] & 3) == (ANEW, CODED)
    with pytest.raises(MalformedPacket, match="goes on"):
        Decompressor(codec).plain(second)


def test_a_few_bytes_are_stored() -> None:
    sender = compressor(DEFLATE)
    assert sender.chunks(b"@\x02\0\1") == head(STORED, 4) + b"@\x02\0\1"
    assert sender.chunks(bytes(SMALL - 1))[0] & 3 == STORED
    assert sender.chunks(bytes(SMALL))[0] & 3 == ANEW


def test_what_is_not_to_be_coded_enters_no_context() -> None:
    secret = random.Random(2).randbytes(2000)
    sender, receiver = compressor(DEFLATE), Decompressor(DEFLATE)
    sender.chunks(READING)
    stored = sender.chunks(secret, code=False)
    assert stored == head(STORED, 2000) + secret
    assert len(sender.chunks(secret)) > 2000  # nothing to refer to
    assert receiver.plain(stored) == secret


def test_what_does_not_shrink_is_stored_and_tried_again_ever_later() -> None:
    sender, chance = compressor(DEFLATE), random.Random(3)
    contexts = sender._contexts
    wire, plain, kinds = 0, 0, []
    for _ in range(1000):
        data = chance.randbytes(LARGEST)
        made = sender.chunks(data)
        wire, plain = wire + len(made), plain + LARGEST
        kinds.append(made[0] & 3)
        assert contexts.count == (kinds[-1] != STORED and sender._looked_at > 0)
    coded = [at for at, kind in enumerate(kinds) if kind != STORED]
    first, wait = LOOKED_AT // LARGEST, FIRST_WAIT // LARGEST
    starts = [at for at in coded if at - 1 not in coded]
    assert starts == [0, first + wait, 2 * first + 3 * wait, 3 * first + 7 * wait]
    assert wire < plain * 1.001


def test_what_shrinks_again_is_coded_again() -> None:
    sender, chance = compressor(DEFLATE), random.Random(3)
    sender.chunks(chance.randbytes(LOOKED_AT))
    assert sender.chunks(READING)[0] & 3 == STORED
    for _ in range(FIRST_WAIT // LARGEST_STORED):
        sender.chunks(chance.randbytes(LARGEST_STORED))
    assert sender.chunks(READING * 1000)[0] & 3 == ANEW
    assert sender._wait == FIRST_WAIT


def test_contexts_are_bounded_and_given_back() -> None:
    counters = Counters()
    contexts = Contexts(1, counters)
    first, second = Compressor(DEFLATE, contexts), Compressor(DEFLATE, contexts)
    first.chunks(READING)
    assert second.chunks(READING)[0] & 3 == STORED
    assert (contexts.count, counters["link_contexts_refused"]) == (1, 1)
    first.end()
    first.end()
    assert second.chunks(READING)[0] & 3 == ANEW
    assert contexts.count == 1


# what no sender makes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        head(3, 5) + b"12345",
        head(STORED, 0),
        head(ANEW, 0),
        head(CODED, 4) + b"1234",
        head(ANEW, LARGEST_CODED + 1),
        b"\xff\xff\xff\xff\x01",
        head(ANEW, 1) + b"\x00",  # an empty block
        head(ANEW, 3) + b"\xff\xff\xff",
        head(ANEW, len(deflated(bytes(LARGEST + 1)))) + deflated(bytes(LARGEST + 1)),
    ],
    ids=[
        "kind",
        "nothing stored",
        "nothing coded",
        "no context",
        "long",
        "varint",
        "empty",
        "garbage",
        "bomb",
    ],
)
def test_what_cannot_be_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        Decompressor(DEFLATE).plain(data)


@both
def test_a_stream_that_has_ended_goes_on_with_nothing(codec: str) -> None:
    if codec == DEFLATE:
        stream = zlib.compressobj(6, zlib.DEFLATED, -15)
        ended = stream.compress(READING) + stream.flush()
    else:
        ended = chunks.zstandard.compress(READING)
    receiver = Decompressor(codec)
    assert receiver.plain(head(ANEW, len(ended)) + ended) == READING
    with pytest.raises(MalformedPacket):
        receiver.plain(head(CODED, 5) + b"\x00\x01\x02\x03\x04")


def bomb(codec: str, size: int) -> bytes:
    if codec == DEFLATE:
        return deflated(bytes(size))
    parameters = chunks.zstandard.ZstdCompressionParameters.from_level(1, window_log=15, write_content_size=0)
    stream = chunks.zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return bytes(stream.compress(bytes(size)) + stream.flush(chunks.zstandard.COMPRESSOBJ_FLUSH_BLOCK))


@both
def test_a_bomb_is_malformed_before_it_takes_memory(codec: str) -> None:
    coded = bomb(codec, 20 << 20)
    assert len(coded) < LARGEST_CODED
    receiver = Decompressor(codec)
    tracemalloc.start()
    with pytest.raises(MalformedPacket, match="too large"):
        receiver.plain(head(ANEW, len(coded)) + coded)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@both
def test_many_chunks_of_much_are_decoded_in_shares(codec: str) -> None:
    sender, receiver = compressor(codec), Decompressor(codec)
    wire = b"".join(sender.chunks(bytes(LARGEST)) for _ in range(100))
    assert len(wire) < 64 << 10
    shares = [len(receiver.plain(wire))]
    while receiver.waits:
        shares.append(len(receiver.plain(b"")))
    assert sum(shares) == 100 * LARGEST
    assert max(shares) <= SHARE + LARGEST


@both
@settings(max_examples=300, derandomize=True, deadline=None)
@given(data=st.lists(st.binary(max_size=200), max_size=8), kinds=st.lists(st.integers(1, 2), min_size=1))
def test_garbage_is_taken_or_malformed(codec: str, data: list[bytes], kinds: list[int]) -> None:
    for frame in (False, True):
        receiver = Decompressor(codec)
        receiver.plain(compressor(codec).chunks(READING))
        try:
            for at, part in enumerate(data):
                whole = head(kinds[at % len(kinds)], len(part)) + part if frame else part
                everything(receiver, whole)
        except MalformedPacket:
            continue


@both
def test_of_an_incomplete_chunk_no_more_is_kept_than_a_chunk_has(codec: str) -> None:
    receiver = Decompressor(codec)
    begun = head(ANEW, LARGEST_CODED)
    for byte in begun + bytes(LARGEST_CODED - 1):
        assert receiver.plain(bytes((byte,))) == b""
    with pytest.raises(MalformedPacket):
        receiver.plain(b"\xff")
