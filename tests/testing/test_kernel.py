"""The simulator's event loop."""

from __future__ import annotations

import math

import pytest

from ildm.testing.kernel import COMPACT_ABOVE, Kernel
from ildm_bench.sim.speed import speed


def test_callbacks_come_in_the_order_of_their_times() -> None:
    kernel = Kernel()
    seen: list[tuple[float, str]] = []
    for delay, name in ((3.0, "c"), (1.0, "a"), (2.0, "b")):
        kernel.schedule(delay, lambda name=name: seen.append((kernel.now, name)))
    kernel.run()
    assert seen == [(1.0, "a"), (2.0, "b"), (3.0, "c")]
    assert kernel.events == 3


def test_equal_times_keep_the_order_in_which_they_were_scheduled() -> None:
    kernel = Kernel()
    seen: list[int] = []
    for number in range(100):
        if number % 2:
            kernel.post(1.0, seen.append, number)
        else:
            kernel.schedule(1.0, seen.append, number)
    kernel.run()
    assert seen == list(range(100))


def test_what_a_callback_schedules_at_once_comes_after_what_was_due() -> None:
    kernel = Kernel()
    seen: list[str] = []
    kernel.post(0.0, lambda: kernel.post(0.0, seen.append, "later"))
    kernel.post(0.0, seen.append, "first")
    kernel.run()
    assert seen == ["first", "later"]


def test_a_cancelled_timer_is_not_called_and_does_not_count() -> None:
    kernel = Kernel()
    seen: list[int] = []
    timer = kernel.schedule(1.0, seen.append, 1)
    kernel.schedule(2.0, seen.append, 2)
    timer.cancel()
    timer.cancel()
    assert len(kernel) == 1
    kernel.run()
    assert seen == [2]
    assert kernel.events == 1
    assert len(kernel) == 0


def test_cancelling_what_has_been_called_changes_nothing() -> None:
    kernel = Kernel()
    timer = kernel.schedule(0.0, lambda: None)
    kernel.post(1.0, lambda: None)
    kernel.run(until=0.5)
    timer.cancel()
    assert len(kernel) == 1


def test_cancelled_timers_do_not_pile_up() -> None:
    kernel = Kernel()
    seen: list[int] = []
    kernel.post(1e6, seen.append, 0)
    for _ in range(10 * COMPACT_ABOVE):
        kernel.schedule(1e9, seen.append, 1).cancel()
    assert len(kernel._heap) <= COMPACT_ABOVE + 2
    assert len(kernel) == 1
    kernel.run(until=1e7)
    assert seen == [0]


def test_until_is_inclusive_and_is_where_time_stands() -> None:
    kernel = Kernel()
    seen: list[int] = []
    kernel.post(1.0, seen.append, 1)
    kernel.post(2.0, seen.append, 2)
    kernel.post(2.5, seen.append, 3)
    kernel.run(until=2.0)
    assert seen == [1, 2]
    assert kernel.now == 2.0
    kernel.run(until=2.25)
    assert kernel.now == 2.25
    kernel.run()
    assert kernel.now == 2.5


def test_max_events_stops_in_between() -> None:
    kernel = Kernel()
    seen: list[int] = []
    for number in range(5):
        kernel.post(number, seen.append, number)
    kernel.run(until=10.0, max_events=2)
    assert seen == [0, 1]
    assert kernel.now == 1.0
    kernel.run(until=10.0)
    assert kernel.now == 10.0


def test_an_exception_ends_the_run_and_the_rest_can_go_on() -> None:
    kernel = Kernel()
    seen: list[int] = []

    def fail() -> None:
        raise RuntimeError("broken")

    kernel.post(1.0, fail)
    kernel.post(2.0, seen.append, 2)
    with pytest.raises(RuntimeError, match="broken"):
        kernel.run()
    assert kernel.now == 1.0
    assert kernel.current is fail
    kernel.run()
    assert seen == [2]
    assert kernel.events == 2


@pytest.mark.parametrize("delay", [-1.0, math.nan])
def test_impossible_delays_are_refused(delay: float) -> None:
    kernel = Kernel()
    with pytest.raises(ValueError, match="delay"):
        kernel.schedule(delay, print)
    with pytest.raises(ValueError, match="delay"):
        kernel.post(delay, print)
    with pytest.raises(ValueError, match="has passed"):
        kernel.post_at(-1.0, print)


def test_equal_seeds_give_equal_runs() -> None:
    def trace(seed: int) -> list[float]:
        kernel = Kernel(seed)
        times: list[float] = []

        def again() -> None:
            times.append(kernel.now)
            kernel.post(kernel.random.random(), again)

        again()
        kernel.run(max_events=100)
        return times

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_speed_is_measured() -> None:
    assert speed(events=1000, pending=10) > 0
