from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.wire import messages
from ildm_algorithms.overlay.wire.messages import (
    Cast,
    Invite,
    Message,
    OverlayError,
    Seq,
    SetRNak,
    decode,
    encode,
)

text = st.text(max_size=8)
key = st.binary(min_size=1, max_size=12)
peers = st.builds(Peer, text, text)
refs = st.builds(Ref, key, peers, st.integers(0, 2**64 - 1))
seqs = st.builds(Seq, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
KINDS = [format.kind for format in messages.FORMATS]


def fields(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Any message of a kind, from the types of its fields."""
    strategies = {
        "bool": st.booleans(),
        "bytes": st.binary(max_size=20),
        "Peer": peers,
        "Ref": refs,
        "Ref | None": st.none() | refs,
        "Seq": seqs,
        "tuple[Ref, ...]": st.lists(refs, max_size=4).map(tuple),
        "tuple[bytes, ...]": st.lists(key, max_size=4).map(tuple),
        "tuple[LinkClaim, ...]": st.lists(
            st.builds(messages.LinkClaim, st.integers(0, 64), key, key, seqs, st.integers(0, 2**32 - 1)),
            max_size=3,
        ).map(tuple),
        "tuple[LinkAnswer, ...]": st.lists(
            st.builds(
                messages.LinkAnswer,
                st.integers(0, 2**16 - 1),
                st.booleans(),
                st.booleans(),
                st.lists(refs, max_size=4).map(tuple),
            ),
            max_size=3,
        ).map(tuple),
        "str": text,
        "tuple[str, ...]": st.lists(text, max_size=3).map(tuple),
        "tuple[Term, ...]": st.lists(st.builds(messages.Term, text, text), max_size=3).map(tuple),
        "int": st.integers(0, 255),
    }
    return st.builds(kind, *(strategies[kind.__annotations__[name].__forward_arg__] for name in kind._fields))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_message_comes_back_as_it_was(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(fields(kind))
    again = decode(encode(message))
    assert again == message
    assert type(again) is kind


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_message_cut_short_or_with_something_behind_it_is_refused(
    kind: type[Message], data: st.DataObject
) -> None:
    whole = encode(data.draw(fields(kind)))
    with pytest.raises(OverlayError):
        decode(whole + b"\0")
    with pytest.raises(OverlayError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=60))
def test_nothing_else_is_raised_by_any_bytes(data: bytes) -> None:
    with suppress(OverlayError):
        assert encode(decode(data))


def test_a_key_that_is_too_long_is_refused() -> None:
    peer = Peer("n1", "h:1")
    message = Cast(
        1, peer, peer, 0, b"x" * 70_000, b"", 0, *(False,) * 4, 0, b"", 0, 0, 0, 0, (), (), b"", b""
    )
    with pytest.raises(OverlayError):
        encode(message)


def test_numbers_of_a_repair_outrank_those_before() -> None:
    seq = Seq(0, 5)
    assert seq < seq.next < seq.gnext < seq.gnext.next


def test_the_numbers_of_the_messages_are_those_that_all_nodes_know() -> None:
    assert [(format.code, format.kind.__name__) for format in messages.FORMATS] == [
        (1, "Lookup"),
        (2, "LookupReply"),
        (3, "Walk"),
        (4, "WalkReply"),
        (5, "SetR"),
        (6, "SetRAck"),
        (7, "SetRNak"),
        (8, "SetL"),
        (9, "Ping"),
        (10, "Pong"),
        (11, "Cast"),
        (12, "CastAck"),
        (13, "CastBusy"),
        (14, "Tell"),
        (15, "Invite"),
        (16, "Terms"),
    ]


def test_names_of_nodes_are_short() -> None:
    """They are kept in many places, and bounds count nodes."""
    with pytest.raises(OverlayError):
        decode(encode(Invite(Peer("n" * 400, "n:1"))))


def test_a_long_reference_is_read_but_not_remembered() -> None:
    """Thousands of references are remembered, so that few bytes of each are."""
    ref = Ref(b"k" * 5_000, Peer("n", "n:1"), 1)
    first, second = (decode(encode(SetRNak(1, True, ref))) for _ in range(2))
    assert isinstance(first, SetRNak)
    assert isinstance(second, SetRNak)
    assert first.hint == second.hint == ref
    assert first.hint is not second.hint
