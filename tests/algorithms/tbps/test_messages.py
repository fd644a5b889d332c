"""What nodes send each other: there and back, and what is no payload."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ildm_algorithms.exchange.messages import Message, MessageError
from ildm_algorithms.tbps.keys.encoding import Segment
from ildm_algorithms.tbps.messages import (
    Answer,
    Ask,
    Filters,
    Late,
    Merged,
    Missed,
    Needed,
    Newer,
    Offer,
    Offered,
    Payload,
    Query,
    Report,
    Signal,
    Statuses,
    Survey,
    Want,
    decode_payload,
)
from ildm_algorithms.tbps.publishers.publisher import Epoch, Status

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SEGMENT = st.sampled_from(
    [Segment.exact("a/b"), Segment.wildcard([]), Segment.aggregate(["a"]), Segment.exact("/" * 60_000)]
)
STATUS = st.builds(Status, st.builds(Epoch, st.integers(0, 2**64 - 1), st.text(max_size=3)), st.booleans())
PAYLOAD = st.one_of(
    st.builds(
        Message,
        U64,
        U32,
        st.integers(0, 2**16 - 1),
        st.binary(max_size=9),
    ),
    st.builds(Signal, SEGMENT, STATUS),
    st.builds(Report, SEGMENT, STATUS),
    st.builds(Merged, st.booleans()),
    st.builds(Query, st.text(max_size=9)),
    st.builds(Filters, st.lists(st.text(max_size=5).map(str.encode), max_size=3)),
    st.builds(Newer, st.lists(st.binary(max_size=9), max_size=3)),
    st.builds(Survey, st.binary(max_size=9)),
    st.builds(Needed, st.lists(SEGMENT, max_size=3)),
    st.builds(Ask, st.lists(SEGMENT, max_size=3)),
    st.builds(Statuses, st.lists(st.tuples(SEGMENT, STATUS), max_size=3)),
    st.builds(
        Missed,
        st.lists(st.tuples(st.text(max_size=5), U32), max_size=3),
        U32,
        st.dictionaries(st.text(max_size=5), U64, max_size=3),
    ),
    st.builds(
        Offer,
        U64,
        st.lists(st.tuples(st.text(max_size=5), st.lists(st.tuples(U64, U32), max_size=2)), max_size=3),
    ),
    st.builds(Offered, U32, U64),
    st.builds(Want, U64, st.lists(U64, max_size=3)),
    st.builds(
        Late,
        st.booleans(),
        st.lists(U64, max_size=2),
        st.lists(st.tuples(U32, st.binary(max_size=9)), max_size=3),
    ),
    st.builds(Answer, st.text(max_size=5), st.none() | st.booleans(), st.lists(st.binary(max_size=9))),
)


@given(PAYLOAD)
def test_there_and_back(payload: Payload) -> None:
    assert decode_payload(payload.encode()) == payload


@given(
    st.sampled_from([kind.encode() for kind in "MSRQGKTAXOUWFIHVN"]),
    st.binary(max_size=40),
)
@example(b"S", b"")
@example(b"A", b"\3")
@example(b"I", b"\0\0\0\1\xff")
def test_any_bytes_are_a_payload_or_refused(kind: bytes, data: bytes) -> None:
    try:
        payload = decode_payload(kind + data)
    except MessageError:
        return
    assert payload.encode() == kind + data


@given(PAYLOAD, st.data())
def test_cut_off(payload: Payload, data: st.DataObject) -> None:
    whole = payload.encode()
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with suppress(MessageError):
        assert decode_payload(part) != payload


@pytest.mark.parametrize(
    "data",
    [b"", b"?", b"M1234567", b"S", b"Q\xff", b"T\0\0\0\1", b"L\0\0\0\0\0\0\0\1", b"U\0", b"A\1\0\0\0\5x"],
)
def test_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode_payload(data)


@pytest.mark.parametrize(
    "payload",
    [
        Needed([Segment(b"\1" + b"a" * 600 + b"\0\0")]),
        Signal(Segment.exact("a"), Status(Epoch(1, "n" * 400), False)),
        Filters([b"a"] * 10_001),
        Needed([Segment.exact("a")] * 10_001),
    ],
)
def test_what_is_kept_of_others_is_not_longer_than_it_can_be(payload: Payload) -> None:
    """Bounds count segments and nodes: one that takes megabytes is none."""
    with pytest.raises(MessageError):
        decode_payload(payload.encode())


def test_a_question_of_earlier_nodes_is_understood() -> None:
    data = b"L" + b"".join(age.to_bytes(4, "big") + len(name).to_bytes(4, "big") + name for name, age in OLD)
    assert decode_payload(data) == Missed([(name.decode(), age) for name, age in OLD])


OLD = [(b"a/#", 5), (b"", 2**32 - 1)]
