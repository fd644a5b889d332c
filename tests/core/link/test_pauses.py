"""The pauses of nodes that cannot be reached."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.link import pauses
from ildm.core.link.pauses import Pauses
from tests.support.examples import examples

NODES = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(st.sampled_from(["failed", "reached", "lost", "room"]), NODES, st.floats(0, 20)), max_size=60
)


def test_each_pause_is_longer_up_to_a_bound() -> None:
    made = Pauses(Random(1), 0.5, 5.0)
    now, step = 100.0, 0.5
    for number in range(8):
        assert made.failed("x", "refused", now) is (number == 0)
        pause = made.left("x", now)
        assert step / 2 <= pause <= step
        assert made.left("y", now) == 0
        now, step = now + pause, min(5.0, 2 * step)
        assert made.left("x", now) == pytest.approx(0)


def test_what_is_news() -> None:
    made = Pauses(Random(1), 0.5, 5.0)
    assert made.failed("x", "refused", 0)
    assert not made.failed("x", "refused", 100)
    assert made.failed("x", "no answer", 200)
    made.reached("x")
    assert made.failed("x", "no answer", 300)


@pytest.mark.parametrize(("age", "pause"), [(0.1, True), (60.0, False)])
def test_a_link_that_did_not_last_is_a_failure(age: float, pause: bool) -> None:
    made = Pauses(Random(1), 0.5, 5.0)
    made.failed("x", "refused", 0.0)
    made.reached("x")
    assert made.left("x", 0.0) == 0
    made.link_lost("x", age, 100.0)
    assert bool(made.left("x", 100.0)) is pause


@examples(100)
@given(STEPS)
def test_whatever_happens(steps: list[tuple[str, str, float]]) -> None:
    """Few nodes are remembered, none waits longer than the longest pause, a place comes free in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pauses, "REMEMBERED", 3)
        made = Pauses(Random(1), 0.5, 5.0)
        now = 0.0
        for what, node_id, later in steps:
            now += later
            match what:
                case "failed":
                    made.failed(node_id, "refused", now)
                    assert 0 < made.left(node_id, now) <= 5.0
                case "reached":
                    made.reached(node_id)
                    assert made.left(node_id, now) == 0
                case "lost":
                    made.link_lost(node_id, later, now)
                case "room":
                    made.has_room(node_id, now)
            assert len(made) <= 3
            assert all(made.left(each, now) <= 5.0 for each in "abcdef")
        assert made.has_room("new", now + 10.0)
