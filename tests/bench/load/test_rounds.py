"""Reading in rounds: nothing is left behind, and the end of a connection is seen."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from ildm.mqtt import ConnAck, PubAck, Publish, Version
from ildm_bench.load import rounds
from ildm_bench.load.pacing import Schedule
from ildm_bench.load.publisher import Publisher
from ildm_bench.load.rounds import Rounds
from ildm_bench.load.subscriber import Subscriber, collect
from tests.bench.load.support import message, scenario, tcp_pair

NEVER = 10**15
"""Nanoseconds between two rounds of which the second does not come."""


@contextmanager
def _uvloop() -> Iterator[asyncio.Runner]:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@asynccontextmanager
async def _subscribers(
    count: int, qos: int = 0
) -> AsyncIterator[tuple[list[Subscriber], list[socket.socket]]]:
    """Subscribers after their handshake, and the other ends of their sockets."""
    loop = asyncio.get_running_loop()
    found, ends = [], []
    for number in range(count):
        ours, theirs = tcp_pair()
        subscriber = Subscriber(number, f"s{number}", "host:1", Version.V311, 0, scenario(qos=qos))
        await loop.create_connection(lambda s=subscriber: s, sock=ours)  # type: ignore[misc]
        subscriber.begin(0)
        theirs.settimeout(10)
        found.append(subscriber)
        ends.append(theirs)
    yield found, ends
    for subscriber, theirs in zip(found, ends, strict=True):
        subscriber.abort()
        theirs.close()


def _send(end: socket.socket, seqs: range, qos: int = 0) -> None:
    packets = [
        Publish(topic="t", payload=message(seq), qos=qos, packet_id=seq + 1 if qos else None) for seq in seqs
    ]
    end.sendall(b"".join(packet.encode(Version.V311) for packet in packets))


def _seqs(subscriber: Subscriber) -> list[int]:
    batch = collect([subscriber])
    return [] if batch is None else [int(seq) for seq in batch.records["seq"]]


async def _everything_is_read_at_the_end() -> None:
    async with _subscribers(3) as (subscribers, ends):
        reading = Rounds(asyncio.get_running_loop(), subscribers, NEVER)
        _send(ends[0], range(100))
        _send(ends[1], range(3))
        reading.close()
        assert [_seqs(s) for s in subscribers] == [[*range(100)], [*range(3)], []]
        assert all(s.closed is None for s in subscribers)


async def test_at_the_end_everything_that_has_come_is_read() -> None:
    await _everything_is_read_at_the_end()


def test_at_the_end_everything_that_has_come_is_read_on_uvloop() -> None:
    with _uvloop() as runner:
        runner.run(_everything_is_read_at_the_end())


async def test_more_than_one_read_takes_is_read_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "READ", 100)
    async with _subscribers(1) as ((subscriber,), (end,)):
        reading = Rounds(asyncio.get_running_loop(), [subscriber], NEVER)
        _send(end, range(100))
        reading.close()
        assert _seqs(subscriber) == list(range(100))


async def test_rounds_take_what_has_come_since_the_last() -> None:
    async with _subscribers(2) as (subscribers, ends):
        reading = Rounds(asyncio.get_running_loop(), subscribers, 1_000_000)
        got: list[list[int]] = [[], []]
        for first in range(0, 50, 5):
            for end in ends:
                _send(end, range(first, first + 5))
            async with asyncio.timeout(120):
                while len(got[0]) + len(got[1]) < 2 * (first + 5):
                    await _next_alarm()
                    for each, subscriber in zip(got, subscribers, strict=True):
                        each += _seqs(subscriber)
        reading.close()
        assert got == [list(range(50))] * 2


async def _next_alarm() -> None:
    """Let the loop look at its files, timers of the kernel among them, once."""
    ready = asyncio.Event()
    reader, writer = os.pipe()
    loop = asyncio.get_running_loop()
    loop.add_reader(reader, ready.set)
    os.write(writer, b"x")
    await ready.wait()
    loop.remove_reader(reader)
    os.close(reader)
    os.close(writer)


async def test_a_closed_connection_is_seen_and_the_others_are_read_on() -> None:
    async with _subscribers(2) as (subscribers, ends):
        reading = Rounds(asyncio.get_running_loop(), subscribers, 1_000_000)
        _send(ends[0], range(2))
        ends[0].close()
        async with asyncio.timeout(120):
            while subscribers[0].closed is None:
                await _next_alarm()
        _send(ends[1], range(4))
        reading.close()
        assert [_seqs(s) for s in subscribers] == [[0, 1], [0, 1, 2, 3]]
        assert [s.closed for s in subscribers] == ["closed by the target", None]


async def test_what_is_read_in_rounds_is_acknowledged() -> None:
    async with _subscribers(1, qos=1) as ((subscriber,), (end,)):
        reading = Rounds(asyncio.get_running_loop(), [subscriber], NEVER)
        _send(end, range(3), qos=1)
        reading.close()
        assert end.recv(100) == b"\x40\x02\0\x01\x40\x02\0\x02\x40\x02\0\x03"
        assert _seqs(subscriber) == [0, 1, 2]


async def test_rounds_are_more_frequent_while_much_comes_within_a_bound() -> None:
    """So that no socket is full: the target would be held up by the generator."""
    async with _subscribers(1) as ((subscriber,), (end,)):
        reading = Rounds(asyncio.get_running_loop(), [subscriber], NEVER)
        waits: list[int] = []
        size = len(Publish(topic="t", payload=message(0)).encode(Version.V311))
        for much in (True,) * 5 + (False,) * 5:
            _send(end, range(rounds.PLENTY // size + 10 if much else 1))
            reading._round()
            waits.append(reading._every_ns)
        reading.close()
        assert waits[:5] == [NEVER // 2, NEVER // 4, NEVER // 8, NEVER // 8, NEVER // 8]
        assert waits[5:] == [NEVER // 4, NEVER // 2, NEVER, NEVER, NEVER]


async def test_acknowledgements_to_publishers_are_read_in_rounds() -> None:
    ours, theirs = tcp_pair()
    publisher = Publisher(0, "p", "host:1", Version.V311, 0, scenario(qos=1))
    await asyncio.get_running_loop().create_connection(lambda: publisher, sock=ours)  # type: ignore[type-var]
    now = time.monotonic_ns()
    publisher.prepare(ConnAck(), 10**8, 10)
    publisher.begin(Schedule(now - 10**9, now, 10**8, 1), 0, 0)
    assert publisher.patient
    publisher.send_due(now)
    reading = Rounds(asyncio.get_running_loop(), [publisher], NEVER)
    theirs.sendall(b"".join(PubAck(packet_id=n).encode(Version.V311) for n in (1, 2, 4)))
    reading.close()
    assert publisher._inflight == {3, *range(5, 11)}
    publisher.abort()
    theirs.close()


async def test_a_connection_lost_before_the_first_round_is_no_obstacle() -> None:
    async with _subscribers(2) as (subscribers, ends):
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        told = subscribers[0].connection_lost

        def connection_lost(exc: Exception | None) -> None:
            told(exc)
            lost.set_result(None)

        subscribers[0].connection_lost = connection_lost  # type: ignore[method-assign]
        ends[0].close()
        await lost
        await _next_alarm()
        reading = Rounds(asyncio.get_running_loop(), subscribers, NEVER)
        _send(ends[1], range(2))
        reading.close()
        assert _seqs(subscribers[1]) == [0, 1]
        assert subscribers[0].closed == "closed by the target"


async def test_nothing_stays_open() -> None:
    async with _subscribers(1) as ((subscriber,), _):
        before = set(os.listdir("/proc/self/fd"))
        Rounds(asyncio.get_running_loop(), [subscriber], time.monotonic_ns()).close()
        assert set(os.listdir("/proc/self/fd")) == before
