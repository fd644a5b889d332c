"""What is said of the messages that come next: each end draws the same conclusions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.spool import Identity
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.message_ids import FROM, ReceivedIds, SentIds, message_id
from ildm.mqtt import MalformedPacket, Publish, Version, decode

ONE = Identity("a", 5 << 32)
names = st.text(min_size=1, max_size=40)
numbers = st.integers(1, (1 << 62))
identities = st.builds(Identity, names, numbers)
sent = st.tuples(st.one_of(st.none(), identities), st.one_of(st.none(), identities), st.integers(1, 9))


def payload(packet: bytes) -> bytes:
    message = decode(packet, Version.V5)
    assert isinstance(message, Publish)
    assert message.topic == FROM
    return message.payload


def test_what_follows_needs_no_word() -> None:
    sent_ids = SentIds()
    assert sent_ids.needed(ONE, None, 0, 3)
    assert not sent_ids.needed(ONE, None, 3, 2)
    assert not sent_ids.needed(Identity("a", ONE.number + 5), None, 0, 1)
    assert sent_ids.needed(ONE, None, 0, 1)
    assert sent_ids.needed(Identity("b", ONE.number + 1), None, 0, 1)
    assert sent_ids.needed(None, None, 0, 1)
    assert not sent_ids.needed(None, None, 0, 1)


def test_on_a_new_connection_nothing_has_been_said() -> None:
    sent_ids = SentIds()
    sent_ids.needed(ONE, None, 0, 3)
    sent_ids.clear()
    assert sent_ids.needed(ONE, None, 3, 1)


@given(st.lists(sent))
def test_both_ends_agree(messages: list[tuple[Identity | None, Identity | None, int]]) -> None:
    sent_ids, received_ids = SentIds(), ReceivedIds()
    for identity, again, count in messages:
        goes_round = again if identity is not None else None
        packet = sent_ids.needed(identity, goes_round, 0, count)
        if packet:
            received_ids.told(payload(packet))
        assert received_ids.take(count) == Origin(identity, goes_round)


def test_nobody_introduced_is_unknown() -> None:
    received_ids = ReceivedIds()
    assert received_ids.take(3) == UNKNOWN


@given(st.binary(max_size=40))
def test_whatever_comes_is_understood_or_refused(data: bytes) -> None:
    received_ids = ReceivedIds()
    try:
        received_ids.told(data)
    except MalformedPacket:
        assert received_ids.take(1) == UNKNOWN


@pytest.mark.parametrize("again", [None, Identity("other", 7)])
def test_cut_short_it_is_malformed_or_a_shorter_name(again: Identity | None) -> None:
    whole = payload(message_id(ONE, again))
    for size in range(1, 9):
        with pytest.raises(MalformedPacket):
            ReceivedIds().told(whole[:size])
