"""Fixed headers and the framer: every stream whole, in pieces, and with trailing data (MQTT 5, 2.1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import (
    CLIENT_FIRST_BYTE,
    SERVER_FIRST_BYTE,
    EncodeError,
    Framer,
    MalformedPacket,
    PacketTooLarge,
    ReasonCode,
    Version,
    check_first_byte,
    decode_varint,
    encode_varint,
    frame_bounds,
    frame_length,
)
from tests.mqtt.packet_strategies import VERSIONS, packets

VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_455, "ffffff7f"),
]


@pytest.mark.parametrize(("value", "wire"), VARINTS)
def test_variable_byte_integer_at_its_limits(value: int, wire: str) -> None:
    raw = bytes.fromhex(wire)
    assert encode_varint(value) == raw
    assert decode_varint(b"?" + raw + b"rest", 1) == (value, 1 + len(raw))
    for cut in range(len(raw)):
        assert decode_varint(raw[:cut], 0) is None


@given(st.binary(max_size=8), st.integers(0, 3))
def test_bounds_of_a_frame_are_what_its_remaining_length_says(data: bytes, pos: int) -> None:
    """Also in forms longer than necessary, which MQTT 3.1.1 allows."""
    try:
        length = decode_varint(data, pos + 1)
    except MalformedPacket as error:
        with pytest.raises(MalformedPacket, match=error.message):
            frame_bounds(data, pos)
        return
    expected = (0, 0) if length is None else (length[1], length[1] + length[0])
    assert frame_bounds(data, pos) == expected


@given(st.integers(0, 268_435_455))
def test_variable_byte_integer_round_trip(value: int) -> None:
    raw = encode_varint(value)
    assert decode_varint(raw, 0) == (value, len(raw))


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_variable_byte_integer_out_of_range(value: int) -> None:
    with pytest.raises(EncodeError):
        encode_varint(value)


def test_variable_byte_integer_of_five_bytes() -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode_varint(b"\xff\xff\xff\xff\x7f", 0)
    assert caught.value.clause == "MQTT-1.5.5"


def test_frame_length() -> None:
    assert frame_length(b"") is None
    assert frame_length(b"\xc0") is None
    assert frame_length(b"\x30\x80") is None
    assert frame_length(b"\xc0\x00") == 2
    assert frame_length(b"\xc0\x00\x30\x80\x01", 2) == 131


def _legal(first: int, version: Version, from_client: bool) -> bool:
    type, flags = first >> 4, first & 15
    if type == 3:
        return flags & 6 != 6 and not (flags & 8 and not flags & 6)
    both, client, server = {4, 5, 6, 7}, {1, 8, 10, 12, 14}, {2, 9, 11, 13}
    if version is Version.V5:
        both |= {14, 15}
    if type not in both | (client if from_client else server):
        return False
    if type in (6, 8, 10):
        return flags == 2 or (version is Version.V31 and flags == 10)
    return flags == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_first_byte_tables(version: Version) -> None:
    for first in range(256):
        assert bool(CLIENT_FIRST_BYTE[version][first]) == _legal(first, version, from_client=True), hex(first)
        assert bool(SERVER_FIRST_BYTE[version][first]) == _legal(first, version, from_client=False), hex(
            first
        )
        legal = _legal(first, version, True) or _legal(first, version, False)
        if legal:
            assert check_first_byte(first, version) == first >> 4
        else:
            with pytest.raises(MalformedPacket):
                check_first_byte(first, version)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    version = draw(st.sampled_from(VERSIONS))
    return [packet.encode(version) for packet in draw(st.lists(packets(version), max_size=6))]


@given(streams(), st.binary(max_size=1))
def test_stream_whole_and_with_an_incomplete_tail(frames: list[bytes], tail: bytes) -> None:
    framer = Framer()
    assert framer.feed(b"".join(frames) + tail) == frames
    assert framer.pending == len(tail)


@given(streams())
@settings(max_examples=50)
def test_stream_byte_by_byte(frames: list[bytes]) -> None:
    framer = Framer()
    stream = b"".join(frames)
    found = []
    for n in range(len(stream)):
        found += framer.feed(stream[n : n + 1])
        assert framer.pending == n + 1 - sum(map(len, found))
    assert found == frames


@given(streams(), st.lists(st.integers(1, 40), min_size=1))
def test_stream_in_chunks(frames: list[bytes], sizes: list[int]) -> None:
    framer = Framer()
    stream = b"".join(frames)
    found, pos, turn = [], 0, 0
    while pos < len(stream):
        size = sizes[turn % len(sizes)]
        found += framer.feed(stream[pos : pos + size])
        pos += size
        turn += 1
    assert found == frames
    assert framer.pending == 0


def test_large_frame_in_small_chunks_with_a_packet_after_it() -> None:
    frame = b"\x30" + encode_varint(20_000_000) + bytes(20_000_000)
    stream = frame + b"\xc0\0"
    framer = Framer()
    found = []
    for pos in range(0, len(stream), 65_536):
        assert framer.pending == pos
        found += framer.feed(stream[pos : pos + 65_536])
    assert found == [frame, b"\xc0\0"]


def test_too_large_is_seen_in_the_header_and_keeps_what_came_before() -> None:
    framer = Framer(100)
    exact = b"\x30\x62" + bytes(98)
    assert framer.feed(exact) == [exact]
    with pytest.raises(PacketTooLarge) as caught:
        framer.feed(b"\xc0\0" + exact + b"\x30\x63")
    assert caught.value.frames == [b"\xc0\0", exact]
    assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE
    assert caught.value.clause == "MQTT-3.1.2-24"
    with pytest.raises(PacketTooLarge) as again:
        framer.feed(b"\xc0\0")
    assert again.value.frames == ()
    assert framer.pending == 0


def test_header_beyond_four_bytes_keeps_what_came_before() -> None:
    framer = Framer()
    assert framer.feed(b"\xd0\0\x30\xff\xff\xff") == [b"\xd0\0"]
    with pytest.raises(MalformedPacket) as caught:
        framer.feed(b"\xff")
    assert caught.value.frames == []
    with pytest.raises(MalformedPacket) as caught:
        Framer().feed(b"\xd0\0\x30\xff\xff\xff\xff")
    assert caught.value.frames == [b"\xd0\0"]
