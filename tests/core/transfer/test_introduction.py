"""What is said of the messages that come next: each end draws the same conclusions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.spool import Identity
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.introduction import FROM, Introduced, Introducer, introduction
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
    introducer = Introducer()
    assert introducer.needed(ONE, None, 0, 3)
    assert not introducer.needed(ONE, None, 3, 2)
    assert not introducer.needed(Identity("a", ONE.number + 5), None, 0, 1)
    assert introducer.needed(ONE, None, 0, 1)
    assert introducer.needed(Identity("b", ONE.number + 1), None, 0, 1)
    assert introducer.needed(None, None, 0, 1)
    assert not introducer.needed(None, None, 0, 1)


def test_on_a_new_connection_nothing_has_been_said() -> None:
    introducer = Introducer()
    introducer.needed(ONE, None, 0, 3)
    introducer.clear()
    assert introducer.needed(ONE, None, 3, 1)


@given(st.lists(sent))
def test_both_ends_agree(messages: list[tuple[Identity | None, Identity | None, int]]) -> None:
    introducer, introduced = Introducer(), Introduced()
    for identity, again, count in messages:
        goes_round = again if identity is not None else None
        packet = introducer.needed(identity, goes_round, 0, count)
        if packet:
            introduced.told(payload(packet))
        assert introduced.take(count) == Origin(identity, goes_round)


def test_nobody_introduced_is_unknown() -> None:
    introduced = Introduced()
    assert introduced.take(3) == UNKNOWN


@given(st.binary(max_size=40))
def test_whatever_comes_is_understood_or_refused(data: bytes) -> None:
    introduced = Introduced()
    try:
        introduced.told(data)
    except MalformedPacket:
        assert introduced.take(1) == UNKNOWN


@pytest.mark.parametrize("again", [None, Identity("other", 7)])
def test_cut_short_it_is_malformed_or_a_shorter_name(again: Identity | None) -> None:
    whole = payload(introduction(ONE, again))
    for size in range(1, 9):
        with pytest.raises(MalformedPacket):
            Introduced().told(whole[:size])
