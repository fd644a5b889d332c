"""Frames of WebSocket, whatever the pieces they come in."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.net.transport.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    CloseCode,
    FrameError,
    FrameReader,
    frame,
    unmasked,
)


def masked(opcode: int, payload: bytes, fin: bool = True, key: bytes = b"\x01\xfe\x33\x80") -> bytes:
    """A frame as a client sends it."""
    whole = bytearray(frame(opcode, payload))
    head = len(whole) - len(payload)
    whole[0] &= 0xFF if fin else 0x7F
    whole[1] |= 0x80
    covered = bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))
    return bytes(whole[:head]) + key + covered


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """What a client sends, and the payload in it."""
    sent, payload = bytearray(), bytearray()
    for _ in range(draw(st.integers(1, 5))):
        parts = [
            random.Random(size).randbytes(size)
            for size in draw(
                st.lists(st.sampled_from((0, 1, 3, 125, 126, 300, 65_535, 65_536)), min_size=1, max_size=3)
            )
        ]
        for number, part in enumerate(parts):
            key = draw(st.binary(min_size=4, max_size=4))
            sent += masked(BINARY if number == 0 else CONTINUATION, part, number == len(parts) - 1, key)
            payload += part
            if draw(st.booleans()):
                sent += masked(draw(st.sampled_from((PING, PONG))), b"between", True, key)
    return bytes(sent), bytes(payload)


@given(streams(), st.lists(st.integers(1, 5000), max_size=50))
def test_the_payload_is_the_same_in_whatever_pieces_it_comes(
    stream: tuple[bytes, bytes], cuts: list[int]
) -> None:
    sent, payload = stream
    reader, found = FrameReader(1 << 20), bytearray()
    for size in cuts:
        piece, sent = sent[:size], sent[size:]
        found += reader.feed(piece)
    found += reader.feed(sent)
    assert bytes(found) == payload


def test_another_reader_goes_on_at_any_byte() -> None:
    """In a header, a mask, a payload, a PING or between frames of one message; the state is JSON."""
    key = b"\x01\xfe\x33\x80"
    sent = (
        masked(BINARY, b"first", fin=False)
        + masked(PING, b"are you there")
        + masked(CONTINUATION, bytes(range(200)), key=key[::-1])
        + masked(BINARY, b"y" * 70_000)
        + masked(BINARY, b"last")
    )
    payload = b"first" + bytes(range(200)) + b"y" * 70_000 + b"last"
    starts = [*range(300), *range(len(sent) - 50, len(sent) + 1)]
    for at in starts:
        one, other = FrameReader(1 << 20), FrameReader(1 << 20)
        found = one.feed(sent[:at])
        other.go_on(json.loads(json.dumps(one.state())))
        found += other.feed(sent[at:])
        assert found == payload, at
        assert [each.ping for each in (one, other)].count(b"are you there") == 1, at


@pytest.mark.parametrize(
    "state",
    [[], [BINARY, 5, 0, False, "", "", ""], [BINARY, 0, 0, False, "no hex", "", ""], [None, *[0] * 6]],
)
def test_a_reader_cannot_be_where_none_can_be(state: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        FrameReader(100).go_on(state)


def test_byte_by_byte_and_what_has_come_of_a_frame_goes_on_at_once() -> None:
    sent = masked(BINARY, b"first") + masked(PING, b"?") + masked(BINARY, b"") + masked(BINARY, b"x" * 200)
    reader = FrameReader(1000)
    found = [reader.feed(sent[at : at + 1]) for at in range(len(sent))]
    assert b"".join(found) == b"first" + b"x" * 200
    assert found[6:11] == [b"f", b"i", b"r", b"s", b"t"]
    assert reader.ping == b"?"


@given(st.binary(max_size=50), st.binary(min_size=4, max_size=4), st.integers(0, 3))
def test_the_mask_comes_off(data: bytes, key: bytes, phase: int) -> None:
    assert unmasked(data, key, phase) == bytes(b ^ key[(i + phase) % 4] for i, b in enumerate(data))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(BINARY, b"plain"), CloseCode.PROTOCOL_ERROR),
        (masked(TEXT, b"text"), CloseCode.UNSUPPORTED_DATA),
        (masked(CONTINUATION, b"of nothing"), CloseCode.PROTOCOL_ERROR),
        (masked(BINARY, b"a", fin=False) + masked(BINARY, b"b"), CloseCode.PROTOCOL_ERROR),
        (masked(PING, b"p" * 126), CloseCode.PROTOCOL_ERROR),
        (masked(PING, b"p", fin=False), CloseCode.PROTOCOL_ERROR),
        (masked(3, b""), CloseCode.PROTOCOL_ERROR),
        (masked(11, b""), CloseCode.PROTOCOL_ERROR),
        (b"\xc2" + masked(BINARY, b"rsv")[1:], CloseCode.PROTOCOL_ERROR),
        (masked(CLOSE, b"\x03"), CloseCode.PROTOCOL_ERROR),
        (masked(CLOSE, b"\x03\xe8\xff"), CloseCode.INVALID_DATA),
        (masked(CLOSE, b"\x03\xe8" + "\u00e9".encode()[:1]), CloseCode.INVALID_DATA),
        (masked(BINARY, b"x" * 1001), CloseCode.TOO_BIG),
        (b"\x82\xff" + b"\xff" * 8 + b"mask", CloseCode.TOO_BIG),
    ],
)
def test_what_no_client_may_send(sent: bytes, code: CloseCode) -> None:
    with pytest.raises(FrameError) as error:
        FrameReader(1000).feed(sent)
    assert error.value.code is code


def test_nothing_counts_after_a_close() -> None:
    reader = FrameReader(1000)
    assert reader.feed(masked(BINARY, b"a") + masked(CLOSE, b"\x03\xe8bye") + masked(BINARY, b"b")) == b"a"
    assert reader.closed == b"\x03\xe8bye"


def may_be_sent(code: int) -> bool:
    """RFC 6455, 7.4.1 and 7.4.2; 1012 to 1014 are in IANA's registry."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def test_each_code_of_a_close_frame_is_taken_or_refused() -> None:
    for code in range(1 << 16):
        reader, sent = FrameReader(1000), code.to_bytes(2, "big") + "\u00e9".encode()
        if may_be_sent(code):
            reader.feed(masked(CLOSE, sent))
            assert reader.closed == sent
            continue
        with pytest.raises(FrameError) as error:
            reader.feed(masked(CLOSE, sent))
        assert error.value.code is CloseCode.PROTOCOL_ERROR, code
        assert reader.closed is None


def test_a_close_frame_may_be_empty() -> None:
    reader = FrameReader(1000)
    reader.feed(masked(CLOSE, b""))
    assert reader.closed == b""
