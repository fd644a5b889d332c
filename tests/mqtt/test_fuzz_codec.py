"""Whatever bytes arrive, only MqttError comes out; what is accepted survives another round."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ildm.mqtt import Version, encode_varint
from tests.fuzz.targets.codec import Codec, one_frame
from tests.mqtt.packet_strategies import VERSIONS, packets

versions = st.sampled_from(VERSIONS)


def one_input(data: bytes) -> None:
    """A stream, in every version, with nothing left out."""
    codec = Codec()
    codec.thorough = True
    codec.read(data)


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x30\xff\xff\xff\xff\x01")
@example(b"\x82\x80\x00")
@settings(max_examples=300)
def test_random_bytes(data: bytes) -> None:
    one_input(data)


@given(st.integers(0, 255), st.binary(max_size=100), versions)
@settings(max_examples=500)
def test_random_bodies_in_a_true_frame(first: int, body: bytes, version: Version) -> None:
    one_frame(bytes((first,)) + encode_varint(len(body)) + body, version)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, Version]:
    """A valid packet with a few bytes changed, removed or put in; mostly with its length corrected."""
    version = draw(versions)
    frame = draw(packets(version)).encode(version)
    raw = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        how = draw(st.sampled_from(("change", "flip", "remove", "insert", "cut")))
        if how == "insert" or not raw:
            raw[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif how == "change":
            raw[at] = draw(st.integers(0, 255))
        elif how == "flip":
            raw[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "remove":
            del raw[at : at + draw(st.integers(1, 4))]
        else:
            del raw[at:]
    if len(raw) > 2 and draw(st.integers(0, 3)):
        body = bytes(raw[2:])
        return bytes(raw[:1]) + encode_varint(len(body)) + body, version
    return bytes(raw), version


@given(mutated())
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_packets(case: tuple[bytes, Version]) -> None:
    one_frame(*case)


@given(st.lists(mutated(), max_size=3))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_streams_of_mutated_packets(cases: list[tuple[bytes, Version]]) -> None:
    one_input(b"".join(frame for frame, _ in cases))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_first_byte_with_short_bodies(version: Version) -> None:
    for first in range(256):
        for size in range(6):
            for fill in (0, 1, 0xFF):
                one_frame(bytes((first, size)) + bytes((fill,)) * size, version)
