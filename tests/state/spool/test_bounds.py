"""How much there may be, and how long: room, age, and segments of which little is left."""

from __future__ import annotations

import errno

from ildm.state.spool.records import RECORD_SIZE
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, to


def fill(lives: Lives, *names: str) -> int:
    """Append until there is no room; answers how many."""
    count = 0
    while not lives.spool.full:
        lives.spool.append(record(count), to(*names))
        lives.spool.commit()
        count += 1
    return count


def opened(**settings: object) -> Lives:
    lives = Lives(Settings(bytes=10_000, segment_bytes=2_000)._replace(**settings))
    lives.spool.snapshot = bytes
    return lives


def test_full_until_a_segment_is_free() -> None:
    lives = opened()
    told = []
    lives.spool.on_room = lambda: told.append(lives.spool.disk_bytes)
    count = fill(lives, "a")
    assert 8_000 < lives.spool.disk_bytes < 10_000
    assert sum(len(file.content) for file in lives.disk.files.values()) <= 12_000
    assert count > 6_000 / (RECORD_SIZE + 50)
    consumer = lives.spool.consumer("a")
    for stored in consumer.read(500):
        consumer.free(stored.lsn, 0, 1)
    lives.run(1)
    assert told == []
    for stored in consumer.read(1500):
        consumer.free(stored.lsn, 0, 1)
    lives.run(1)
    assert len(told) == 1
    assert not lives.spool.full


def test_what_is_appended_when_full_is_kept() -> None:
    lives = opened()
    count = fill(lives, "a")
    for number in range(count, count + 5):
        lives.spool.append(record(number), to("a"))
    lives.spool.commit()
    assert len(read_all(lives.kill(), "a")) == count + 5


def test_the_oldest_of_the_largest_gives_way() -> None:
    lives = opened()
    lives.spool.append(record(1000), to("b"))
    count = fill(lives, "a")
    dropped = 0
    while lives.spool.full:
        [(name, part)] = lives.spool.drop_oldest()
        assert name == "a"
        assert 500 <= part.bytes < 600
        dropped += part.messages
        lives.run(1)
    assert lives.counters["spool_dropped_full"] == dropped
    assert not lives.spool.full
    spool = lives.kill()
    assert numbers(read_all(spool, "a")) == [(number, 0) for number in range(dropped, count)]
    assert numbers(read_all(spool, "b")) == [(1000, 0)]
    assert spool.drop_oldest() == []


def test_what_is_in_hand_does_not_give_way() -> None:
    lives = opened()
    lives.spool.append(record(0), to("a", held="a"))
    assert lives.spool.drop_oldest() == []


def test_what_has_grown_old_is_dropped() -> None:
    lives = opened(expiry=100.0)
    for number in range(20):
        lives.spool.append(record(number), to("a", "b"))
        lives.run(10)
    assert numbers(read_all(lives.spool, "a")) == [(number, 0) for number in range(10, 20)]
    assert lives.counters["spool_dropped_age"] == 2 * 10
    assert lives.spool.consumer("b").waiting.oldest == 1_700_000_000 + 100
    lives.run(1000)
    assert lives.spool.consumer("b").waiting.messages == 0
    # what is in hand is its owner's business
    assert lives.spool.consumer("a").waiting.messages == 10


def test_of_a_segment_little_is_left() -> None:
    lives = opened()
    count = fill(lives, "a")
    consumer = lives.spool.consumer("a")
    kept = []
    for index, stored in enumerate(read_all(lives.spool, "a")):
        if index % 9:
            consumer.free(stored.lsn, 0, 1)
        else:
            kept.append(numbers([stored])[0])
            consumer.note(stored.lsn, 0, 7)
    lives.spool.commit()
    before = lives.spool.disk_bytes
    lives.run(30)
    assert lives.counters["spool_rewritten"] >= 2
    assert lives.spool.disk_bytes < before / 2
    last = lives.spool.append(record(count), to("a"))
    lives.spool.commit()
    again = lives.kill()
    stored = read_all(again, "a")
    assert numbers(stored) == [*kept, (count, 0)]
    assert [each.note for each in stored] == [7] * len(kept) + [None]
    assert stored[-1].lsn == last
    rewritten = lives.counters["spool_rewritten"]
    lives.run(30)
    assert lives.counters["spool_rewritten"] == rewritten  # there is nothing to be gained


def test_without_space_for_another_segment_there_is_no_room_but_what_comes_is_kept() -> None:
    lives = opened(bytes=1 << 20)
    lives.disk.capacity = 5_000
    count = fill(lives, "a")
    assert lives.spool.failure is None
    assert lives.spool.durable == lives.spool.last
    consumer = lives.spool.consumer("a")
    for stored in read_all(lives.spool, "a"):
        consumer.free(stored.lsn, 0, 1)
    lives.run(1)
    assert lives.spool.failure is None
    assert numbers(read_all(lives.kill(), "a")) == []
    lives.run(10)
    assert not lives.spool.full
    assert count > 10


def test_with_no_space_at_all_everything_waits_in_memory_and_nothing_is_durable() -> None:
    lives = opened(bytes=1 << 20)
    lives.disk.capacity = 3_000
    for number in range(60):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
    assert lives.spool.failure is not None
    durable = lives.spool.durable
    assert 0 < durable < lives.spool.last
    assert lives.spool.full
    assert len(numbers(read_all(lives.spool, "a"))) == 60  # also what is not on the disk
    lives.disk.capacity = 1 << 30
    told = []
    lives.spool.on_durable = lambda: told.append(lives.spool.durable)
    lives.run(5)
    assert lives.spool.failure is None
    assert told[0] >= 60
    assert not lives.spool.full
    assert len(read_all(lives.kill(), "a")) == 60


def test_a_disk_that_cannot_sync_moves_what_is_not_safe() -> None:
    lives = opened(mode="power", bytes=1 << 20)
    for number in range(5):
        lives.spool.append(record(number), to("a"))
    lives.spool.commit()
    lives.run(1)
    lives.disk.once["sync"] = [errno.EIO]
    lives.spool.append(record(5), to("a"))
    lives.spool.commit()
    lives.run(1)
    assert lives.spool.durable >= 6
    assert lives.counters["spool_syncs_failed"] == 1
    assert numbers(read_all(lives.cut_power(), "a")) == [(number, 0) for number in range(6)]


def test_many_records_take_no_memory_each() -> None:
    lives = Lives(Settings(bytes=1 << 30, segment_bytes=1 << 20))
    lives.spool.snapshot = bytes
    for number in range(20_000):
        lives.spool.append(record(number), to("a", "b"))
        if number % 100 == 0:
            lives.spool.commit()
    lives.spool.commit()
    spool = lives.kill()
    consumer = spool.consumer("a")
    assert consumer.waiting.messages == 20_000
    assert consumer.hands == {}
    assert sum(len(segment.live) for segment in spool.segments.segments) <= 2 * len(spool.segments.segments)
    page = consumer.read(1000)
    assert len(page) == 20
    assert len(consumer.hands) == 20


def test_the_oldest_gives_way_by_itself_where_that_is_configured() -> None:
    lives = opened(full="drop_oldest", bytes=20_000)
    for number in range(400):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
        lives.run(0.1)
        assert not lives.spool.full
        assert lives.spool.disk_bytes < 24_000
    dropped = lives.counters["spool_dropped_full"]
    assert 200 < dropped < 400
    found = numbers(read_all(lives.kill(), "a"))
    assert found == [(number, 0) for number in range(400 - len(found), 400)]
    assert len(found) + dropped == 400
