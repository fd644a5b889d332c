"""The machine of one publisher: every event in every state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ildm_algorithms.tbps.keys.encoding import Segment
from ildm_algorithms.tbps.messages import Signal, decode_payload
from ildm_algorithms.tbps.publishers.publisher import (
    Epoch,
    Left,
    Publisher,
    PublisherCommand,
    PublisherState,
    Status,
)

EPOCH = st.builds(Epoch, st.integers(0, 4), st.sampled_from(["", "a", "m", "z"]))
STATUS = st.builds(Status, EPOCH, st.booleans())
EVENT = st.one_of(
    st.tuples(st.just("joined"), st.sampled_from(Left), st.none() | STATUS),
    st.tuples(st.just("neighbor_changed"), st.sampled_from(Left)),
    st.tuples(st.just("signalled"), STATUS),
    st.tuples(st.just("answered"), STATUS),
    st.tuples(st.just("reported"), STATUS),
    st.tuples(st.just("ticked")),
    st.tuples(st.just("hinted")),
)


@given(st.lists(EVENT, max_size=12))
def test_invariants(events: list[tuple]) -> None:  # type: ignore[type-arg]
    publisher = Publisher("m")
    left = None
    hinted = False
    for name, *args in events:
        before = publisher.status
        if name == "neighbor_changed" and left is None:
            continue  # the graph tells of neighbours of keys that are in it
        command = getattr(publisher, name)(*args)
        if name in ("joined", "neighbor_changed"):
            left = args[0]
        if name in ("ticked", "neighbor_changed"):
            hinted = False
        hinted = hinted or name == "hinted"
        assert publisher.epoch >= before.epoch  # an older epoch never wins
        if left is None:
            assert publisher.state is PublisherState.JOINING
            assert command is None
            continue
        assert publisher.rendezvous == (left is not Left.PUBLISHER)
        if publisher.rendezvous:
            # the rendezvous point sees for itself, and what it changes is told with an epoch of its own
            # or takes a subscriber's word until it looks again
            if publisher.suspended or not hinted:
                assert publisher.suspended == (left is not Left.SUBSCRIBER)
            if publisher.status != before and name not in ("joined", "signalled"):
                assert publisher.epoch > before.epoch
                assert command is not None
                assert command.order is PublisherCommand.ANNOUNCE
        if name == "hinted":
            assert publisher.state is PublisherState.ACTIVE
        if command is not None:
            if command.order in (PublisherCommand.ANNOUNCE, PublisherCommand.CORRECT):
                assert publisher.rendezvous
                assert command.status == publisher.status
            if command.order in (PublisherCommand.ASK, PublisherCommand.REPORT, PublisherCommand.HAND_OVER):
                assert not publisher.rendezvous
                assert command.status == before


@given(st.lists(EVENT, max_size=8), STATUS)
def test_a_follower_obeys_the_newest_signal(events: list[tuple], status: Status) -> None:  # type: ignore[type-arg]
    publisher = Publisher("m")
    publisher.joined(Left.PUBLISHER, None)
    for name, *args in events:
        if name not in ("joined", "neighbor_changed"):
            getattr(publisher, name)(*args)
    newer = Status(Epoch(publisher.epoch.number + 1, "z"), status.suspended)
    publisher.signalled(newer)
    assert publisher.status == newer
    publisher.signalled(Status(Epoch(newer.epoch.number - 1, "z"), not status.suspended))
    assert publisher.status == newer


@given(st.lists(EVENT, max_size=8), st.lists(EVENT, max_size=8), st.booleans())
def test_two_neighbours_agree_by_question_and_report(
    left_events: list[tuple],  # type: ignore[type-arg]
    right_events: list[tuple],  # type: ignore[type-arg]
    subscribers: bool,
) -> None:
    """Whatever has been lost before: the rendezvous point, and the publisher on its right that asks."""
    rendezvous, follower = Publisher("a"), Publisher("b")
    rendezvous.joined(Left.OTHER, None)
    follower.joined(Left.PUBLISHER, None)
    for publisher, events in ((rendezvous, left_events), (follower, right_events)):
        for name, *args in events:
            getattr(publisher, name)(*args)
    rendezvous.neighbor_changed(Left.SUBSCRIBER if subscribers else Left.OTHER)
    follower.neighbor_changed(Left.PUBLISHER)
    for _ in range(2):
        follower.used = True
        question = follower.ticked()
        assert question is not None
        assert question.order is PublisherCommand.ASK
        report = follower.answered(rendezvous.status)
        if report is not None:
            assert report.order is PublisherCommand.REPORT
            signal = rendezvous.reported(report.status)
            if signal is not None:
                follower.signalled(signal.status)
    assert follower.suspended == rendezvous.suspended == (not subscribers)


def test_a_question_that_got_lost_is_asked_again() -> None:
    """Of a publisher that has handed over while its neighbour could not be reached, say."""
    publisher = Publisher("m")
    publisher.joined(Left.PUBLISHER, Status(Epoch(1, "a"), False))
    assert publisher.ticked() is None
    publisher.used = True
    ask = publisher.ticked()
    assert ask is not None
    assert publisher.ticked() == ask
    assert publisher.answered(Status(Epoch(1, "a"), False)) is None
    assert publisher.ticked() is None


def test_epochs_end_where_their_number_does() -> None:
    """Whoever sends the greatest number there is makes nobody send a greater one."""
    publisher = Publisher("b")
    publisher.joined(Left.OTHER, None)
    publisher.signalled(Status(Epoch((1 << 64) - 1, "a"), False))
    command = publisher.neighbor_changed(Left.SUBSCRIBER) or publisher.neighbor_changed(Left.OTHER)
    assert command is not None
    signal = Signal(Segment.exact("t"), command.status)
    assert decode_payload(signal.encode()) == signal


def test_a_subscriber_that_speaks_up_while_a_publisher_joins_is_not_forgotten() -> None:
    publisher = Publisher("m")
    assert publisher.hinted() is None
    publisher.joined(Left.PUBLISHER, Status(Epoch(3, "z"), True))  # told before the subscriber was there
    assert publisher.state is PublisherState.ACTIVE


def test_the_rendezvous_point_takes_a_subscribers_word_until_it_looks_again() -> None:
    publisher = Publisher("m")
    publisher.joined(Left.OTHER, None)
    command = publisher.hinted()
    assert command is not None
    assert command.order is PublisherCommand.ANNOUNCE
    assert publisher.state is PublisherState.ACTIVE
    assert publisher.neighbor_changed(Left.SUBSCRIBER) is None  # it has been announced
    publisher.neighbor_changed(Left.OTHER)
    publisher.hinted()
    command = publisher.ticked()
    assert command is not None
    assert command.order is PublisherCommand.ANNOUNCE
    assert publisher.state is PublisherState.SUSPENDED
