"""When a node reads under load, in virtual time; and over real sockets, by a clock that stands still."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ildm.core.counters import Counters
from ildm.net.transport.reactor import Reactor
from ildm.net.transport.slots import AGAIN, EMPTY, LONGEST, MEASURED, ROW, TRUSTED, Slots
from ildm.net.transport.turns import Turns
from tests.net.transport.test_reactor import Noted, Run, run, until

__all__ = ["run"]

LENGTH = 0.0003


class Load:
    """Bytes that come at a rate, and a reactor that reads what has come by then."""

    def __init__(self, turn: float = 0.0001) -> None:
        """``turn``: seconds from one turn to the next, without slots."""
        self.counters = Counters()
        self.slots = Slots(LENGTH, self.counters)
        self.turn = turn
        self.now = 10.0
        self.read_until = self.now
        self.waited: list[float] = []

    def step(self, rate: float, in_slots: float | None = None) -> None:
        """One turn or slot; ``in_slots``: the rate of clients to whom answers come in slots."""
        slots = self.slots
        if not slots.open:
            self.now += self.turn
            wait = slots.begin(self.now)
            assert wait <= LENGTH
            self.waited.append(wait)
            self.now += wait
        else:
            self.now += LENGTH
            rate = rate if in_slots is None else in_slots
        slots.end(self.now, round((self.now - self.read_until) * rate))
        self.read_until = self.now

    def steps(self, count: int, rate: float, in_slots: float | None = None) -> None:
        for _ in range(count):
            self.step(rate, in_slots)

    def until_open(self, rate: float, in_slots: float | None = None) -> None:
        while not self.slots.open:
            self.step(rate, in_slots)

    def until_closed(self, rate: float, in_slots: float | None = None) -> None:
        while self.slots.open:
            self.step(rate, in_slots)


def test_a_lone_message_does_not_wait() -> None:
    load = Load()
    for _ in range(1000):
        load.now += 2 * LENGTH
        for _ in range(12):  # all that QoS 2 takes
            load.step(1e6)
    assert not any(load.waited)
    assert load.counters["read_slots"] == 0


def test_under_load_all_that_comes_within_a_slot_is_read_together() -> None:
    load = Load()
    load.until_open(1e6)
    assert load.now - 10 == pytest.approx(MEASURED, rel=0.1)
    assert load.waited[-1] == pytest.approx(LENGTH - load.turn)
    assert not any(load.waited[:-1])
    load.steps(1000, 1e6)
    assert load.slots.open
    assert load.counters["read_slots"] == 1
    assert load.counters["read_slots_vain"] == 0


def test_slots_end_with_the_load_and_are_soon_back_with_it() -> None:
    load = Load()
    load.until_open(1e6)
    load.steps(100, 1e6)
    load.steps(EMPTY - 1, 0)
    load.step(1e6)
    load.steps(EMPTY - 1, 0)
    assert load.slots.open
    load.step(0)
    assert not load.slots.open
    load.now += LENGTH
    for _ in range(ROW):
        load.step(1e6)
        assert load.waited[-1] == 0
    load.step(1e6)
    assert load.slots.open
    assert load.counters["read_slots"] == 2
    assert load.counters["read_slots_vain"] == 0


def test_a_trial_that_the_end_of_the_load_cuts_short_goes_on_with_it() -> None:
    load = Load()
    load.until_open(1e6)
    load.until_closed(0)
    load.now += 1.0
    load.until_open(1e6)
    load.steps(1000, 1e6)
    assert load.slots.open
    assert load.counters["read_slots_vain"] == 0


@pytest.mark.parametrize(
    ("turn", "in_slots"),
    [(0.00028, 1e6), (0.0001, 0.8e6)],
    ids=["as much comes at once without", "clients wait for answers"],
)
def test_slots_that_gain_nothing_are_given_up_for_some_time(turn: float, in_slots: float) -> None:
    load = Load(turn)
    load.until_open(1e6, in_slots)
    opened = load.now
    load.until_closed(1e6, in_slots)
    assert load.now - opened == pytest.approx(MEASURED, rel=0.1)
    assert load.counters["read_slots_vain"] == 1
    pauses = []
    for _ in range(6):
        given_up = load.now
        load.until_open(1e6, in_slots)
        pauses.append(load.now - given_up)
        load.until_closed(1e6, in_slots)
    doubled = [AGAIN, 2 * AGAIN, 4 * AGAIN, 8 * AGAIN, LONGEST, LONGEST]
    assert pauses == pytest.approx(doubled, abs=MEASURED)
    assert load.counters["read_slots_vain"] == 7
    load.until_open(1e6)
    load.until_closed(2e6)  # something is gained once
    load.until_open(1e6)
    load.until_closed(1e6, 0.8e6)
    given_up = load.now
    load.until_open(1e6)
    assert load.now - given_up == pytest.approx(AGAIN, abs=MEASURED)


def test_it_is_measured_anew_what_comes_without_slots() -> None:
    load = Load()
    load.until_open(1e6)
    opened = load.now
    load.until_closed(1e6)
    assert load.now - opened == pytest.approx(TRUSTED, rel=0.1)
    load.until_open(1e6)
    load.until_closed(1e6, 0.8e6)
    assert load.now - opened < 1.2 * TRUSTED
    assert load.counters["read_slots"] == 2
    assert load.counters["read_slots_vain"] == 1


class Loaded:
    """A reactor that reads in slots, as one of its connections has sent so much."""

    def __init__(self, length: float) -> None:
        self.counters = Counters()
        self.slots = Slots(length, self.counters)
        self._looks = 0
        loop = asyncio.get_running_loop()
        self.reactor = Reactor(loop, Turns(loop.call_soon, self.counters, self._clock), self.slots)
        self.pairs: list[tuple[socket.socket, Noted]] = []
        for _ in range(3):
            near, far = socket.socketpair()
            near.setblocking(False)
            self.pairs.append((far, Noted()))
            self.reactor.adopt(near, self.pairs[-1][1])

    def _clock(self) -> float:
        """The more it is looked at, the later it is."""
        self._looks += 1
        return 10 + self._looks * 1e-4

    async def __aenter__(self) -> Loaded:
        far, noted = self.pairs[0]
        sent = 0
        while not self.slots.open:
            far.send(b".")
            sent += 1
            await until(lambda: len(noted.got) == sent or self.slots.open)  # noqa: B023
        return self

    async def __aexit__(self, *_: object) -> None:
        self.reactor.close()
        for far, _ in self.pairs:
            far.close()


def test_what_comes_in_slots_comes_whole_and_in_order_also_from_who_leaves(run: Run) -> None:
    async def main() -> None:
        async with Loaded(0.005) as here:
            for number, (far, _) in enumerate(here.pairs):
                for part in (b"first", b"second"):
                    far.send(part)
                if number:
                    far.close()
            for number, (_, noted) in enumerate(here.pairs):
                await until(lambda: noted.got.endswith(b"firstsecond"))  # noqa: B023
                if number:
                    await noted.told_of("lost")
                    assert noted.got == b"firstsecond"
                    assert noted.told[-2:] == ["eof", "lost"]
            await until(lambda: not here.slots.open)  # nothing comes any more
            assert here.counters["read_slots"] >= 1
            far, noted = here.pairs[0]
            far.send(b"alone")
            await until(lambda: noted.got.endswith(b"alone"))

    run(main)


def test_a_reactor_that_is_closed_within_a_slot_ends_all(run: Run) -> None:
    async def main() -> None:
        async with Loaded(3600.0) as here:
            here.reactor.close()
            assert [noted.told[-1] for _, noted in here.pairs] == ["lost"] * 3

    run(main)
