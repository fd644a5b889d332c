"""The machine of one aggregate: every event in every state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ildm_algorithms.tbps.publishers.aggregates import (
    ASK_EVERY,
    PROBES,
    Aggregate,
    AggregateCommand,
    Command,
    Knowledge,
)

LIMIT = 3
CODES = [bytes((number,)) for number in range(5)]
CODE = st.sampled_from(CODES)
EVENT = st.one_of(
    st.tuples(st.just("joined")),
    st.tuples(st.just("subscribed"), st.lists(CODE, max_size=4)),
    st.tuples(st.just("asked"), st.booleans()),
    st.tuples(st.just("waited")),
    st.tuples(st.just("merged")),
    st.tuples(st.just("ticked")),
    st.tuples(st.just("wants"), CODE),
    st.tuples(st.just("unsubscribed"), CODE, st.integers(0, 3)),
)


def knowing(*codes: bytes, limit: int = LIMIT) -> Aggregate:
    aggregate = Aggregate(limit)
    assert aggregate.joined() == Command(AggregateCommand.ASK)
    if codes:
        aggregate.subscribed(codes)
    assert aggregate.asked(True) == Command(AggregateCommand.AWAIT)
    assert aggregate.waited() is None
    assert aggregate.state is Knowledge.KNOWING
    return aggregate


@given(st.lists(EVENT, max_size=20))
def test_invariants(events: list[tuple]) -> None:  # type: ignore[type-arg]
    aggregate = Aggregate(LIMIT)
    for name, *args in events:
        before = aggregate.state
        known = aggregate.codes
        result = getattr(aggregate, name)(*args)
        assert len(aggregate.codes) <= LIMIT
        if name == "wants":
            # nothing is kept from a segment that has subscribers, or may have some
            assert result == (args[0] in known or aggregate.everywhere)
        elif result is not None:
            assert aggregate.state is not Knowledge.JOINING
            assert set(result.codes) <= aggregate.codes
        if name == "subscribed":
            assert aggregate.everywhere or set(args[0]) <= aggregate.codes
        if aggregate.state is Knowledge.KNOWING and before is not Knowledge.KNOWING:
            assert name == "waited"
        if before is Knowledge.JOINING:
            assert aggregate.state is Knowledge.JOINING or name == "joined"
        if known - aggregate.codes:
            assert name == "unsubscribed" or aggregate.everywhere


def test_messages_go_everywhere_until_all_have_answered() -> None:
    aggregate = Aggregate(LIMIT)
    assert aggregate.wants(b"a")
    aggregate.joined()
    assert aggregate.state is Knowledge.ASKING
    aggregate.asked(False)
    assert aggregate.wants(b"a")
    assert aggregate.waited() == Command(AggregateCommand.ASK)  # some were not reached
    aggregate.asked(True)
    assert aggregate.wants(b"a")
    aggregate.subscribed([b"b"])
    aggregate.waited()
    assert not aggregate.wants(b"a")
    assert aggregate.wants(b"b")


def test_a_subscriber_that_has_spoken_since_is_not_forgotten() -> None:
    aggregate = knowing(b"a")
    sent = aggregate.moment
    aggregate.subscribed([b"a"])
    aggregate.unsubscribed(b"a", sent)
    assert aggregate.wants(b"a")
    aggregate.unsubscribed(b"a", aggregate.moment)
    assert not aggregate.wants(b"a")
    aggregate.unsubscribed(b"a", aggregate.moment)


def test_what_is_used_is_probed_and_now_and_then_all_are_asked() -> None:
    aggregate = knowing(b"a", b"b")
    assert aggregate.ticked() is None  # nothing is published
    for _ in range(ASK_EVERY - 1):
        aggregate.wants(b"a")
        aggregate.wants(b"x")
        assert aggregate.ticked() == Command(AggregateCommand.PROBE, (b"a",))
    assert aggregate.ticked() == Command(AggregateCommand.ASK)
    aggregate.subscribed([b"a"])
    aggregate.asked(True)
    assert aggregate.waited() is None
    aggregate.wants(b"x")
    assert aggregate.ticked() == Command(AggregateCommand.PROBE, (b"b",))  # not mentioned again


def test_probes_are_bounded_and_none_is_forgotten() -> None:
    codes = [number.to_bytes(2) for number in range(PROBES + 10)]
    aggregate = knowing(*codes, limit=1000)
    probed: list[bytes] = []
    for code in codes:
        aggregate.wants(code)
    for _ in range(2):
        command = aggregate.ticked()
        assert command is not None
        assert len(command.codes) <= PROBES
        probed += command.codes
    assert sorted(probed) == codes


def test_too_many_segments_are_all_segments_until_there_are_fewer() -> None:
    aggregate = knowing(*CODES)
    assert aggregate.everywhere
    assert aggregate.wants(b"x")
    for _ in range(ASK_EVERY - 1):
        aggregate.ticked()
    assert aggregate.ticked() == Command(AggregateCommand.ASK)
    aggregate.subscribed(CODES[:1])
    aggregate.asked(True)
    assert aggregate.wants(b"x")
    aggregate.waited()
    assert aggregate.wants(CODES[0])
    assert not aggregate.wants(b"x")
    aggregate.subscribed([])  # one node has more than it can tell
    assert aggregate.wants(b"x")


def test_after_a_merge_nothing_is_missed() -> None:
    aggregate = knowing()
    assert not aggregate.wants(b"a")
    assert aggregate.merged() == Command(AggregateCommand.ASK)
    assert aggregate.wants(b"a")
    aggregate.asked(True)
    aggregate.waited()
    assert not aggregate.wants(b"a")
