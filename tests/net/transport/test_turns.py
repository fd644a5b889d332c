"""How long one connection keeps the event loop, by a clock of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from ildm.core.counters import Counters
from ildm.net.transport.paced import Paced
from ildm.net.transport.reactor import Reactor
from ildm.net.transport.sockets import AT_ONCE
from ildm.net.transport.turns import BURST, FEW, LEAST, MUCH, PART, PART_OF_FEW, READ, TURN, Pace, Turns
from tests.net.transport.test_reactor import Noted, until


class Clock:
    """Seconds that pass when the test says so, and the calls that a loop is asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, Counters(), lambda: self.now)

    def turn(self) -> None:
        """One of the loop: what is asked for meanwhile comes in the next one."""
        soon = self.soon.copy()
        self.soon.clear()
        for each in soon:
            each()


def test_who_waits_goes_on_in_order_for_a_bounded_time_in_each_turn() -> None:
    clock = Clock()
    done: list[int] = []

    def work(number: int) -> Callable[[], None]:
        def go_on() -> None:
            clock.now += TURN / 4
            done.append(number)

        return go_on

    for number in range(10):
        clock.turns.wait(work(number))
    assert len(clock.soon) == 1
    seen = []
    while clock.turns.busy:
        clock.turn()
        seen.append(len(done))
    assert done == list(range(10))
    assert seen == [4, 8, 10]
    assert clock.turns.counters["turns_waited"] == 10
    assert not clock.soon


def test_who_asks_again_goes_on_behind_the_others() -> None:
    clock = Clock()
    done: list[str] = []
    left = {"a": 3, "b": 2, "c": 1}

    def work(name: str) -> Callable[[], None]:
        def go_on() -> None:
            done.append(name)
            left[name] -= 1
            if left[name]:
                clock.turns.wait(go_on)

        return go_on

    for name in left:
        clock.turns.wait(work(name))
    clock.turn()
    assert done == ["a", "b", "c"], "one call each in a turn, however cheap"
    clock.turn()
    clock.turn()
    assert done == ["a", "b", "c", "a", "b", "a"]


def test_one_that_fails_holds_up_nobody() -> None:
    clock = Clock()
    done: list[int] = []

    def fails() -> None:
        raise ValueError("it fails")

    clock.turns.wait(fails)
    clock.turns.wait(lambda: done.append(1))
    with pytest.raises(ValueError, match="it fails"):
        clock.turn()
    clock.turn()
    assert done == [1]


def test_the_share_follows_what_bytes_cost() -> None:
    pace = Pace()
    for _ in range(20):
        pace.read(pace.share, PART / 4)
    assert pace.share == READ
    pace.read(READ, 64 * PART)
    assert pace.share == READ // 64
    for _ in range(20):
        pace.read(pace.share, 10 * PART)
    assert pace.share == LEAST
    pace.read(LEAST, PART * 0.7)
    assert pace.share == LEAST, "neither more nor less where it is about right"


def test_who_costs_much_again_and_again_waits_until_there_is_nothing_left() -> None:
    pace = Pace()
    spent = 0.0
    while not pace.waits:
        pace.read(pace.share, PART)
        spent += PART
    assert BURST < spent <= BURST + PART
    pace.read(pace.share, PART)
    assert pace.waits
    pace.read(10, PART)
    assert not pace.waits
    pace.read(10, 2 * MUCH)
    assert pace.waits
    pace.read(10, MUCH / 2)
    assert not pace.waits


def test_a_large_cheap_packet_does_not_wait() -> None:
    pace = Pace()
    read = 0
    while read < 1 << 20:
        read += pace.share
        pace.read(pace.share, pace.share * 4e-10)
        assert not pace.waits
    assert pace.share == READ


def test_full_reads_now_and_then_are_no_flood() -> None:
    pace = Pace()
    for _ in range(100):
        pace.read(pace.share, PART)
        assert pace.burst
        pace.read(10, PART / 10)
        assert not pace.burst
        assert not pace.waits


class Costly(Noted):
    """Each byte takes its time; those of an innocent do not."""

    clock: Clock
    cost = 1e-6
    taken = 0

    def data_received(self, data: bytes) -> None:
        if data[:1] == b"!":
            self._tell("asked")
            return
        Costly.taken += len(data)
        self.clock.now += self.cost * len(data)
        super().data_received(data)


def filled(far: socket.socket) -> int:
    """Send what the system takes; answers how many bytes that is."""
    sent = 0
    while True:
        try:
            sent += far.send(bytes(4096))
        except BlockingIOError:
            return sent


@pytest.mark.parametrize("flooders", [1, 20])
async def test_an_innocent_waits_for_one_turn_whoever_floods(flooders: int) -> None:
    """The flood is with the system before the first turn, so that each read could take much at once."""
    loop = asyncio.get_running_loop()
    clock = Clock()
    clock.turns = Turns(loop.call_soon, Counters(), lambda: clock.now)
    Costly.clock, Costly.taken = clock, 0
    reactor = Reactor(loop, clock.turns)
    pairs = [socket.socketpair() for _ in range(flooders + 1)]
    protocols: list[Costly] = []
    for near, far in pairs:
        near.setblocking(False)
        far.setblocking(False)
        protocols.append(Costly())
    sent = 0
    for _, far in pairs[:-1]:
        sent += filled(far)
    for (near, _), protocol in zip(pairs, protocols, strict=True):
        reactor.adopt(near, protocol)
    innocent, far = protocols[-1], pairs[-1][1]
    try:
        longest = 0.0
        while Costly.taken < sent // 2:
            begun = clock.now
            innocent.told.clear()
            far.send(b"!")
            await innocent.told_of("asked")
            if Costly.taken > 2 * flooders * BURST / Costly.cost:  # by then they wait
                longest = max(longest, clock.now - begun)
            await asyncio.sleep(0)
        # two turns for those that wait, each with the last read that it has begun
        read = PART_OF_FEW if flooders <= FEW else 2 * LEAST * Costly.cost
        assert longest <= 2 * (TURN + read)
        await until(lambda: Costly.taken == sent)
        taken = [len(protocol.got) for protocol in protocols[:-1]]
        assert sum(taken) == sent, "all of it goes on, in the end"
    finally:
        for _, other in pairs:
            other.close()
        reactor.close()


async def test_many_that_send_a_little_again_and_again_do_not_fill_a_turn() -> None:
    """Each sends less at once than lets one wait, so that all of it could be read in the same turn."""
    loop = asyncio.get_running_loop()
    clock = Clock()
    clock.turns = Turns(loop.call_soon, Counters(), lambda: clock.now)
    Costly.clock, Costly.taken = clock, 0
    reactor = Reactor(loop, clock.turns)
    pairs = [socket.socketpair() for _ in range(51)]
    protocols = [Costly() for _ in pairs]
    for (near, far), protocol in zip(pairs, protocols, strict=True):
        near.setblocking(False)
        far.setblocking(False)
        reactor.adopt(near, protocol)
    innocent, far = protocols[-1], pairs[-1][1]
    little = bytes(LEAST - 12)
    sent = [0] * 50
    try:
        taken = []
        for _ in range(100):
            for number, (_, flooder) in enumerate(pairs[:-1]):
                if len(protocols[number].got) == sent[number]:
                    sent[number] += flooder.send(little)
            begun = clock.now
            innocent.told.clear()
            far.send(b"!")
            await innocent.told_of("asked")
            taken.append(clock.now - begun)
        # after a turn to learn what they cost: what is read as it comes and what waits, each with a last read
        assert max(taken[5:]) <= 2 * (2 * TURN + 2 * LEAST * Costly.cost), taken
        await until(lambda: Costly.taken == sum(sent))
        assert min(sent) > len(little), "each goes on"
    finally:
        for _, other in pairs:
            other.close()
        reactor.close()


async def test_a_turn_accepts_a_few() -> None:
    loop = asyncio.get_running_loop()
    reactor = Reactor(loop, Turns(loop.call_soon, Counters()))
    begun: list[Noted] = []

    def begin() -> Noted:
        begun.append(Noted())
        return begun[-1]

    listening = socket.create_server(("127.0.0.1", 0), backlog=16)
    far = [socket.create_connection(listening.getsockname()) for _ in range(2 * AT_ONCE + 1)]
    accepting = reactor.listen(listening, begin, reactor.turns.counters)
    try:
        reactor.turn()
        assert len(begun) == AT_ONCE
        await until(lambda: len(begun) == len(far))
    finally:
        accepting.close()
        for each in far:
            each.close()
        reactor.close()


async def test_flooders_have_equal_shares() -> None:
    loop = asyncio.get_running_loop()
    clock = Clock()
    clock.turns = Turns(loop.call_soon, Counters(), lambda: clock.now)
    Costly.clock, Costly.taken = clock, 0
    reactor = Reactor(loop, clock.turns)
    pairs = [socket.socketpair() for _ in range(5)]
    protocols = [Costly() for _ in pairs]
    for near, far in pairs:
        near.setblocking(False)
        far.setblocking(False)
        filled(far)
    for (near, _), protocol in zip(pairs, protocols, strict=True):
        reactor.adopt(near, protocol)
    try:
        await until(lambda: Costly.taken > 40 * LEAST * len(pairs))
        taken = [len(protocol.got) for protocol in protocols]
        assert max(taken) - min(taken) <= 4 * LEAST, taken
    finally:
        for _, far in pairs:
            far.close()
        reactor.close()


class Carried:
    """A transport of an event loop, as far as it is asked."""

    def __init__(self) -> None:
        self.reading = True
        self.written = b""
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.ended = "abort"

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Dear(Noted):
    """Each byte takes a microsecond."""

    clock: Clock
    raises_after = 1 << 30

    def data_received(self, data: bytes) -> None:
        self.clock.now += 1e-6 * len(data)
        super().data_received(data)
        if len(self.got) > self.raises_after:
            raise ValueError("in its turn")


def paced(partner: Pace | None = None) -> tuple[Clock, Carried, Paced, Dear]:
    clock, carried, session = Clock(), Carried(), Dear()
    session.clock = clock
    between = Paced(session, clock.turns, partner)
    between.connection_made(carried)
    return clock, carried, between, session


def test_what_an_event_loop_reads_goes_on_in_shares_and_in_order() -> None:
    clock, carried, between, session = paced()
    data = bytes(range(256)) * 40
    between.data_received(data)
    assert len(session.got) == 3 * LEAST, "the rest waits for its turn"
    assert not carried.reading
    parts = []
    while clock.soon:
        before = len(session.got)
        clock.turn()
        parts.append(len(session.got) - before)
    assert bytes(session.got) == data
    assert max(parts) <= 2 * LEAST
    assert carried.reading
    between.data_received(b"few")
    assert session.got.endswith(b"few"), "what is little goes on at once"


def test_answers_wait_with_what_they_answer() -> None:
    partner = Pace()
    clock, _, between, session = paced(partner)
    partner.waits = True
    between.data_received(b"answer")
    assert not session.got
    clock.turn()
    assert session.got == b"answer"
    partner.waits = False
    between.data_received(b", another")
    assert session.got == b"answer, another"


async def test_one_that_raises_in_its_turn_is_ended() -> None:
    clock, carried, between, session = paced()
    session.raises_after = 4 * LEAST
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    between.data_received(bytes(20 * LEAST))
    while clock.soon:
        clock.turn()
    assert carried.ended == "abort"
    assert [str(each["exception"]) for each in told] == ["in its turn"]
    got = len(session.got)
    between.connection_lost(None)
    assert (len(session.got), session.told[-1]) == (got, "lost")


def test_a_session_that_pauses_gets_nothing_until_it_goes_on() -> None:
    clock, carried, between, session = paced()
    between.data_received(bytes(8 * LEAST))
    clock.turn()
    between.pause_reading()
    got = len(session.got)
    for _ in range(5):
        clock.turn()
    assert len(session.got) == got
    between.resume_reading()
    assert not carried.reading, "what is kept goes on first"
    while clock.soon:
        clock.turn()
    assert len(session.got) == 8 * LEAST
    assert carried.reading


@pytest.mark.parametrize("end", ["eof", "lost"])
def test_what_has_come_before_the_end_is_not_lost(end: str) -> None:
    clock, _, between, session = paced()
    between.data_received(bytes(10 * LEAST))
    clock.turn()
    if end == "eof":
        between.eof_received()
    else:
        between.connection_lost(None)
    assert len(session.got) == 10 * LEAST
    assert session.told[-1] == end
    clock.turn()
    assert session.told[-1] == end


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_session_that_has_ended_gets_nothing_more(end: str) -> None:
    clock, _, between, session = paced()
    between.data_received(bytes(10 * LEAST))
    clock.turn()
    got = len(session.got)
    getattr(between, end)()
    clock.turn()
    between.connection_lost(None)
    assert len(session.got) == got
    assert session.told[-1] == "lost"
