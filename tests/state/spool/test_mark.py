"""An end that is lost is told in messages and receivers, as the mark beside the segments knows them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random

import pytest

from ildm.state.spool.batch import SMALLEST
from ildm.state.spool.log import MARKED_BYTES, MARKED_BYTES_EACH
from ildm.state.spool.mark import Mark, Share, decode_mark, encode_mark, read_mark
from ildm.state.spool.records import HEADERS, DamageError
from ildm.state.spool.segments import MARK
from ildm.testing.virtual.disk import SimDisk, SimFile
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, segments, to
from tests.state.spool.test_model import ACTIONS, Model

SETTINGS = Settings(segment_bytes=20_000, bytes=200_000)


def filled(mode: str = "process") -> Lives:
    """Twenty records of two messages for ``a``, every other one for ``b``, of which it has freed one."""
    lives = Lives(SETTINGS._replace(mode=mode))
    for number in range(20):
        lives.spool.append(record(number, messages=2), to("a", "b") if number % 2 else to("a"))
        lives.spool.commit()
    (stored,) = lives.spool.consumer("b").read(1)
    lives.spool.consumer("b").free(stored.lsn, 0, 2)
    lives.run(1)
    lives.disk.kill()
    return lives


def newest(lives: Lives) -> str:
    return segments(lives.disk)[-1]


def within(lives: Lives) -> None:
    lives.disk.cut(newest(lives), lives.disk.files[newest(lives)].content.index(b"00000010.0000") + 17)


def between(lives: Lives) -> None:
    """Where an entry ends; the rest is room."""
    name = newest(lives)
    content = lives.disk.files[name].content
    end = content.index(b"00000009.0001") + 50
    content[end:] = bytes(len(content) - end)


def in_pages(lives: Lives) -> None:
    """Where a kill may have ended a write."""
    name = newest(lives)
    content = lives.disk.files[name].content
    begin, size = content.index(b"00000010.0000") + 17, len(content)
    content[begin:] = b"x" * (-begin % 4096)
    content.extend(bytes(size - len(content)))


def to_nothing(lives: Lives) -> None:
    lives.disk.cut(newest(lives), 0)


def removed(lives: Lives) -> None:
    del lives.disk.files[newest(lives)]


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize(
    ("hurt", "lost"),
    [
        (within, {"a": 20, "b": 10}),
        (between, {"a": 20, "b": 10}),
        (in_pages, {"a": 20, "b": 10}),
        (to_nothing, {"a": 40, "b": 18}),
        (removed, {"a": 40, "b": 18}),
    ],
)
def test_a_lost_end_is_told_in_messages(
    hurt: Callable[[Lives], None], lost: dict[str, int], mode: str
) -> None:
    """What ``b`` has freed in the lost end comes again, and is one less that it is known to miss."""
    lives = filled(mode)
    last = lives.spool.last
    hurt(lives)
    lives.logged.clear()
    lives.open()
    found = {name: len(numbers(read_all(lives.spool, name))) for name in ("a", "b")}
    freed = 2 if found["b"] else 0
    assert lives.spool.losses == {"a": lost["a"], "b": lost["b"] - freed}
    assert found == {"a": 40 - lost["a"], "b": 18 + freed - lost["b"]}
    assert lives.counters["spool_lost"] == sum(lives.spool.losses.values())
    assert lives.counters["spool_damaged"] == 1
    assert lives.counters["spool_torn"] == 0, "one place, counted once"
    assert lives.spool.last >= last, "no number is given twice"
    loud = [(event, fields) for level, event, fields in lives.logged if level == "error"]
    assert [event for event, _ in loud if "mark" in event] == [
        "the end of the spool is lost, as its mark tells"
    ]
    told = {f["consumer"]: f["messages"] for event, f in loud if event == "messages of the spool are lost"}
    assert told == lives.spool.losses
    again = lives.kill()
    assert again.losses == {}, "it is told once"


def test_what_comes_after_the_mark_is_not_known() -> None:
    lives = filled()
    before = lives.disk.files[MARK]
    lives.open()
    lives.spool.append(record(50), to("a"))
    lives.spool.commit()
    lives.disk.files[MARK] = before
    lives.disk.cut(newest(lives), HEADERS + 5)
    lives.kill()
    assert lives.spool.losses == {}
    assert lives.counters["spool_torn"] == 1


def test_what_was_freed_is_not_lost() -> None:
    lives = filled()
    lives.open()
    lives.spool.append(record(50), to("a", "b", held=("b",)))
    lives.spool.consumer("b").free(lives.spool.last, 0, 1)
    lives.spool.commit()
    lives.run(1)
    lives.disk.cut(newest(lives), HEADERS + 5)
    lives.kill()
    assert lives.spool.losses == {"a": 1}


def test_a_consumer_is_named_although_its_name_is_lost() -> None:
    lives = Lives(SETTINGS)
    lives.spool.append(record(1, messages=3), to("link/b/0"))
    lives.spool.close()
    lives.disk.cut(newest(lives), HEADERS)
    assert lives.kill().losses == {"link/b/0": 3}


def damaged(disk: SimDisk) -> None:
    disk.flip(MARK, 20)


def cut(disk: SimDisk) -> None:
    disk.cut(MARK, 20)


def of_another_spool(disk: SimDisk) -> None:
    theirs = Lives(SETTINGS, SimDisk(Random(7)))
    theirs.spool.close()
    disk.files[MARK] = theirs.disk.files[MARK]


def unreadable(disk: SimDisk) -> None:
    disk.files[MARK].failing = errno.EIO


def missing(disk: SimDisk) -> None:
    del disk.files[MARK]


@pytest.mark.parametrize(
    ("hurt", "words"), [(damaged, 1), (cut, 1), (of_another_spool, 1), (unreadable, 1), (missing, 0)]
)
@pytest.mark.parametrize("torn", [False, True])
def test_a_mark_that_cannot_be_used_changes_nothing(
    hurt: Callable[[SimDisk], None], words: int, torn: bool
) -> None:
    lives = filled()
    if torn:
        within(lives)
    hurt(lives.disk)
    lives.open()
    assert lives.events().count("the mark of the spool is left out") == words
    assert lives.spool.losses == ({"a": 2} if torn else {}), "as the head of a record tells"
    assert lives.counters["spool_damaged"] == torn, "no kill ends a file there"
    assert lives.counters["spool_torn"] == torn
    lives.kill()
    assert lives.events().count("the mark of the spool is left out") == words, "it is written anew"


def test_marks_that_cannot_be_written_are_no_failure_and_leave_none() -> None:
    lives = filled()
    lives.open()
    file = lives.disk.files[MARK]

    def fail(offset: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file.write = fail  # type: ignore[method-assign]
    lives.disk.fails["create"] = errno.ENOSPC
    for number in range(30, 40):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
        assert lives.spool.durable == lives.spool.last
        lives.run(1)
    assert lives.spool.failure is None
    assert 1 < lives.counters["spool_marks_failed"] <= 10
    assert lives.events().count("the mark of the spool cannot be written") == 1
    assert MARK not in lives.disk.files, "an older one would tell what does not hold any more"
    lives.disk.fails.clear()
    lives.run(5)
    lives.spool.append(record(41), to("a"))
    lives.spool.commit()
    assert read_mark(lives.disk) is not None


def test_a_commit_after_a_while_takes_the_mark_along_and_many_do_not() -> None:
    lives = Lives(SETTINGS)
    lives.run(1)
    lives.disk.written = 0
    written = []
    for number in range(10):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
        mark = read_mark(lives.disk)
        assert mark is not None
        written.append(mark.last)
    assert written == [1] * 10
    lives.run(0.1)
    mark = read_mark(lives.disk)
    assert mark is not None
    assert (mark.last, mark.shares) == (10, [Share(1, "a", 10)])
    assert mark.end == lives.spool.disk_bytes


def test_the_mark_follows_a_burst() -> None:
    """No time passes."""
    lives = Lives(SETTINGS._replace(segment_bytes=1 << 20, bytes=1 << 22))
    before = 0
    marks = set()
    for number in range(1000):
        lives.spool.append(record(number, size=200), to("a"))
        lives.spool.commit()
        mark = read_mark(lives.disk)
        assert mark is not None
        marks.add(mark.end)
        before = max(before, lives.spool.disk_bytes - mark.end)
    assert before <= MARKED_BYTES + MARKED_BYTES_EACH
    assert len(marks) < 30


@pytest.mark.parametrize("seed", range(60))
def test_no_more_is_told_than_is_lost_and_no_less_than_is_missing(seed: int) -> None:
    """Anything is done, the node stops, and the newest segment is cut anywhere."""
    random = Random(seed)
    model = Model(random, Settings(segment_bytes=random.choice((1500, 6000)), expiry=1e9))
    for action in random.choices(list(ACTIONS), list(ACTIONS.values()), k=60):
        action(model)
    model.spool.close()
    disk = model.lives.disk
    name = segments(disk)[-1]
    disk.cut(name, random.randrange(len(disk.files[name].content) + 1))
    spool = model.lives.kill()
    for consumer, entries in model.model.items():
        left = {(entry.number, place) for entry in entries.values() for place in entry.left}
        found = numbers(read_all(spool, consumer))
        told = spool.losses.get(consumer, 0)
        assert told <= len(left - set(found))
        assert len(found) + told >= len(left)


def test_a_record_beyond_the_room_of_its_segment_goes_to_the_next_one_on_a_full_disk() -> None:
    """That has taken the last room there was."""
    settings = Settings(segment_bytes=2 * SMALLEST, bytes=1 << 20)
    for capacity in range(6 * SMALLEST, 8 * SMALLEST, 512):
        lives = Lives(settings, SimDisk(capacity=capacity))
        lives.spool.snapshot = bytes
        count = 0
        while not lives.spool.full:
            lives.spool.append(record(count, size=1500), to("a"))
            lives.spool.commit()
            count += 1
        assert lives.spool.failure is None, capacity
        assert len(read_all(lives.kill(), "a")) == count


def test_the_bytes_of_a_mark() -> None:
    mark = Mark(b"01234567", 3, 1_700_000_000, 12345, 77, [Share(1, "link/b/0", 5), Share(9, "é", 1 << 40)])
    data = encode_mark(mark)
    assert decode_mark(data) == decode_mark(data + b"rest of a longer one") == mark
    for end in range(len(data)):
        with pytest.raises(DamageError):
            decode_mark(data[:end])
    for place in range(len(data)):
        with pytest.raises(DamageError):
            decode_mark(data[:place] + bytes((data[place] ^ 4,)) + data[place + 1 :])


def test_zeros_are_no_mark() -> None:
    lives = filled()
    file = lives.disk.files[MARK] = SimFile(lives.disk, 100)
    assert bytes(file.content) == bytes(100)
    lives.open()
    assert lives.events().count("the mark of the spool is left out") == 1
