"""Records whose messages differ in topic and length."""

from __future__ import annotations

import pytest

from ildm.core.spool import Delivery, Stored
from ildm.mqtt import frame_bounds
from tests.state.spool.lives import SIZES, Lives, Settings, mixed, read_all, segments, single, to


def frames(stored: list[Stored]) -> list[tuple[int, bytes]]:
    return [(each.first, each.record.frames) for each in stored]


@pytest.mark.parametrize("freed", [(0,), (1,), (4,), (0, 1, 2), (1, 3), (0, 2, 4)])
def test_what_was_not_freed_of_it_comes_back_and_its_bytes_end_at_nothing(freed: tuple[int, ...]) -> None:
    lives = Lives()
    record = mixed(1)
    lsn = lives.spool.append(record, to("a", "b", held="a"))
    for place in freed:
        lives.spool.consumer("a").free(lsn, place, 1)
    lives.spool.commit()
    before = lives.spool.consumer("a").waiting
    spool = lives.kill()
    consumer = spool.consumer("a")
    assert consumer.waiting[:2] == before[:2]
    stored = read_all(spool, "a")
    places = [each.first + n for each in stored for n in range(each.record.messages)]
    assert places == [place for place in range(len(SIZES)) if place not in freed]
    for first, kept in frames(stored):
        begin = 0
        place = first
        while begin < len(kept):
            end = frame_bounds(kept, begin)[1]
            assert kept[begin:end] == single(record, place)
            begin, place = end, place + 1
    assert all(each.record.mixed for each in stored)
    for place in reversed(places):
        assert consumer.waiting.bytes > 0
        consumer.free(lsn, place, 1)
    assert consumer.waiting[:2] == (0, 0)
    assert frames(read_all(spool, "b")) == [(0, record.frames)]
    spool.consumer("b").free(lsn, 0, len(SIZES))
    spool.commit()
    again = lives.kill()
    assert [again.consumer(name).waiting[:2] for name in "ab"] == [(0, 0), (0, 0)]


def test_it_stays_itself_when_its_segment_is_written_anew() -> None:
    lives = Lives(Settings(segment_bytes=4000, bytes=32_000))
    lives.spool.snapshot = bytes
    number = 0
    while not lives.spool.full:
        number += 1
        lives.spool.append(mixed(number), to("a"))
        lives.spool.commit()
    consumer = lives.spool.consumer("a")
    expected: list[tuple[int, bytes]] = []
    for index, stored in enumerate(read_all(lives.spool, "a")):
        if index % 9:
            consumer.free(stored.lsn, 0, len(SIZES))
        else:
            consumer.free(stored.lsn, 1, 2)
            expected.append((0, single(stored.record, 0)))
            expected.append((3, single(stored.record, 3) + single(stored.record, 4)))
    lives.spool.commit()
    before = consumer.waiting
    lives.run(30)
    assert lives.counters["spool_rewritten"]
    spool = lives.kill()
    assert spool.consumer("a").waiting[:2] == before[:2]
    found = read_all(spool, "a")
    assert frames(found) == expected
    for stored in found:
        spool.consumer("a").free(stored.lsn, stored.first, stored.record.messages)
    assert spool.consumer("a").waiting[:2] == (0, 0)


@pytest.mark.parametrize("torn", [False, True])
def test_one_that_is_damaged_is_counted_and_takes_no_other_with_it(torn: bool) -> None:
    lives = Lives()
    first, last = mixed(1), mixed(2)
    lives.spool.append(first, [Delivery("a", 1)])
    lives.spool.append(last, [Delivery("a", 1)])
    lives.spool.commit()
    lives.disk.kill()
    name = segments(lives.disk)[-1]
    content = bytes(lives.disk.files[name].content)
    place = content.index(last.frames) + len(last.frames) // 2
    if torn:
        lives.disk.cut(name, place)
    else:
        lives.disk.flip(name, place)
    spool = lives.open()
    consumer = spool.consumer("a")
    assert frames(read_all(spool, "a")) == [(0, first.frames)]
    assert lives.counters["spool_torn"] + lives.counters["spool_damaged"] > 0
    consumer.free(1, 0, len(SIZES))
    for stored in read_all(spool, "a"):
        consumer.free(stored.lsn, stored.first, stored.record.messages)
    assert consumer.waiting[:2] == (0, 0)
