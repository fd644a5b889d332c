"""A disk with less room than the spool may use: segments are smaller, and what is done with makes room."""

from __future__ import annotations

import pytest

from ildm.testing.virtual.disk import SimDisk
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, to

LARGE = Settings(bytes=8 << 20, segment_bytes=1 << 20)


def opened(capacity: int, mode: str, **settings: object) -> Lives:
    lives = Lives(LARGE._replace(mode=mode, **settings), SimDisk(capacity=capacity))
    lives.spool.snapshot = bytes
    return lives


def put(lives: Lives, number: int) -> None:
    lives.spool.append(record(number, size=500), to("a"))
    lives.spool.commit()
    lives.run(0.01)


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize("capacity", [100_000, 300_000, 1_000_000, 1_900_000])
def test_it_is_used_as_far_as_it_goes_and_again_when_nothing_waits(capacity: int, mode: str) -> None:
    lives = opened(capacity, mode)
    assert lives.spool.failure is None
    number = 0
    for _ in range(5):
        first = number
        while not lives.spool.full:
            put(lives, number)
            number += 1
        assert lives.spool.failure is None
        assert (number - first) * 500 > capacity // 4
        consumer = lives.spool.consumer("a")
        for stored in consumer.read(1 << 30):
            consumer.free(stored.lsn, 0, 1)
        lives.run(20)
        assert not lives.spool.full, "nothing waits"
        assert lives.spool.failure is None
    put(lives, number)
    assert numbers(read_all(lives.kill(), "a")) == [(number, 0)]


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize("capacity", [100_000, 1_000_000])
def test_more_is_passed_on_than_there_is_room_for_while_somebody_takes_it(capacity: int, mode: str) -> None:
    lives = opened(capacity, mode)
    consumer = lives.spool.consumer("a")
    for number in range(3 * capacity // 500):
        put(lives, number)
        for stored in consumer.read(1 << 20):
            consumer.free(stored.lsn, 0, 1)
        assert not lives.spool.full
    assert lives.counters["spool_writes_failed"] == 0


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize("capacity", [100_000, 1_000_000])
def test_the_oldest_gives_way_to_a_full_disk(capacity: int, mode: str) -> None:
    lives = opened(capacity, mode, full="drop_oldest")
    count = 3 * capacity // 500
    for number in range(count):
        put(lives, number)
        if lives.spool.full:
            lives.run(5)
        assert not lives.spool.full
    lives.run(5)
    assert lives.spool.failure is None
    assert lives.counters["spool_dropped_full"] > 0
    found = [number for number, _ in numbers(read_all(lives.spool, "a"))]
    assert found == list(range(found[0], count)), "the newest are kept"
    assert len(found) * 500 > capacity // 8
