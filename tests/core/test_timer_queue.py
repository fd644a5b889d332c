"""Many timers on one: what an event loop promises of its own, and what is kept of cancelled ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.timer_queue import CANCELLED, RESOLUTION, QueuedTimer, TimerQueue
from ildm.testing.virtual.world import World


class Watched:
    """A queue in virtual time, with what it has called and how often it was woken."""

    def __init__(self) -> None:
        self.world = World(0)
        self.called: list[tuple[object, float]] = []
        self.wakes = 0
        self.queue = TimerQueue(lambda: self.world.time, self._wake)

    def _wake(self, delay: float, callback: Callable[[], None]) -> Any:
        self.wakes += 1
        return self.world.call_at(self.world.time + delay, callback)

    def set(self, delay: float, name: object) -> QueuedTimer:
        return self.queue.call_later(delay, self.note, name)

    def note(self, name: object) -> None:
        self.called.append((name, self.world.time))


delays = st.integers(0, 40).map(lambda tenths: tenths / 10)
steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "pass"]), delays, st.integers(0, 50)), max_size=80
)


@given(steps)
def test_each_is_called_once_when_it_is_due_and_in_order_unless_it_is_cancelled(
    steps: list[tuple[str, float, int]],
) -> None:
    watched = Watched()
    timers: list[tuple[float, int, QueuedTimer]] = []
    cancelled: set[int] = set()
    for step, delay, which in steps:
        if step == "set":
            number = len(timers)
            timers.append((watched.world.time + delay, number, watched.set(delay, number)))
        elif step == "cancel" and which < len(timers):
            timers[which][2].cancel()
            if all(name != which for name, _ in watched.called):
                cancelled.add(which)
        elif step == "pass":
            watched.world.run(delay)
        assert len(watched.queue) == len(timers) - len(cancelled) - len(watched.called)
    watched.world.run(10)
    expected = sorted((due, number) for due, number, _ in timers if number not in cancelled)
    assert [name for name, _ in watched.called] == [number for _, number in expected]
    assert [at for _, at in watched.called] == pytest.approx([due for due, _ in expected], abs=RESOLUTION)
    assert len(watched.queue) == 0


def test_cancelled_timers_are_not_kept_until_they_are_due() -> None:
    watched = Watched()
    kept = watched.set(50, "kept")
    for number in range(20 * CANCELLED):
        watched.set(10, number).cancel()
        assert len(watched.queue._heap) <= 2 * CANCELLED + 2
    assert len(watched.queue) == 1
    watched.world.run(60)
    assert watched.called == [("kept", 50)]
    assert kept.callback is None


def test_a_cancelled_timer_lets_go_of_what_it_would_have_called() -> None:
    timer = Watched().set(10, "argument")
    timer.cancel()
    timer.cancel()
    assert timer.callback is None
    assert timer.arguments == ()


def test_time_outs_that_are_cancelled_wake_nobody_but_once_in_a_while() -> None:
    watched = Watched()
    for _ in range(1000):
        watched.set(10, "never").cancel()
        watched.world.run(0.01)
    assert watched.wakes < 5


def test_one_that_is_set_by_a_callback_for_at_once_comes_after_others_have_had_their_turn() -> None:
    watched = Watched()
    turns: list[int] = []

    def again() -> None:
        turns.append(watched.wakes)
        if len(turns) < 5:
            watched.queue.call_later(0, again)

    watched.queue.call_later(0, again)
    watched.world.run(1)
    assert turns == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_an_event_loop(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    told: list[str] = []

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        set_at = [loop.time()]  # all of them at once, however long that takes
        queue = TimerQueue(lambda: set_at[0] if set_at else loop.time(), loop.call_later)
        called: list[int] = []
        done = loop.create_future()

        def fail() -> None:
            raise ValueError("of a callback")

        queue.call_later(0.004, called.append, 2)
        queue.call_later(0.002, called.append, 1)
        queue.call_later(0.003, called.append, 9).cancel()
        queue.call_later(0.002, fail)
        queue.call_later(-1, called.append, 0)
        queue.call_later(0.0065, done.set_result, None)
        set_at.clear()
        async with asyncio.timeout(120):
            await done
        assert len(queue) == 0
        return called

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(main()) == [0, 1, 2]
    assert told == ["of a callback"]
