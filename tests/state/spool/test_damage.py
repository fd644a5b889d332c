"""Bytes that are flipped, ends that are torn, files that are gone: only what they hit is lost, and told."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from ildm.core.spool import Identity, Record
from ildm.state.spool.records import HEADERS, Kind, decode_header, decode_name
from ildm.state.spool.segments import DAMAGED, Segment, number_of
from ildm.state.spool.walk import walk
from ildm.testing.virtual.disk import SimDisk
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, segments, to

SETTINGS = Settings(segment_bytes=700)
ALL = [(number, 0) for number in range(12)]


def filled(settings: Settings = SETTINGS) -> SimDisk:
    """Twelve records for ``a``, some freed by ``b``, in several segments; killed."""
    lives = Lives(settings)
    spool = lives.spool
    spool.snapshot = lambda: b"snapshot"
    for number in range(12):
        spool.append(record(number), to("a", "b"))
        spool.journal(b"entry %d" % number)
        spool.commit()
        if number % 3 == 0:
            for stored in spool.consumer("b").read(1):
                spool.consumer("b").free(stored.lsn, 0, 1)
    spool.commit()
    lives.disk.kill()
    return lives.disk


IMAGE = filled()
OFFSETS = [(name, offset) for name in sorted(IMAGE.files) for offset in range(len(IMAGE.files[name].content))]


def reopened(disk: SimDisk) -> Lives:
    return Lives(SETTINGS, disk)


def admitted(lives: Lives) -> int:
    counters = lives.counters
    return counters["spool_damaged"] + counters["spool_torn"] + counters["spool_unreadable"]


def test_nothing_is_wrong_with_the_image() -> None:
    lives = reopened(deepcopy(IMAGE))
    assert numbers(read_all(lives.spool, "a")) == ALL
    assert numbers(read_all(lives.spool, "b")) == ALL[4:]
    assert [entry for _, entry in lives.spool.replay()] == [b"entry %d" % number for number in range(12)]
    assert admitted(lives) == 0
    assert len(IMAGE.files) > 3


@pytest.mark.parametrize("part", range(8))
def test_every_flipped_byte(part: int) -> None:
    for name, offset in OFFSETS[part::8]:
        disk = deepcopy(IMAGE)
        disk.flip(name, offset, 1 << offset % 8)
        lives = reopened(disk)
        found = numbers(read_all(lives.spool, "a"))
        assert found == [each for each in ALL if each in found], (name, offset)
        entries = [entry for _, entry in lives.spool.replay()]
        lost = len(ALL) - len(found) + 12 - len(entries)
        assert lost <= 1, (name, offset)
        assert not lost or admitted(lives), (name, offset)


@pytest.mark.parametrize("part", range(8))
def test_a_tail_torn_at_every_byte(part: int) -> None:
    name = segments(IMAGE)[-1]
    for size in range(part, len(IMAGE.files[name].content) + 1, 8):
        disk = deepcopy(IMAGE)
        disk.cut(name, size)
        lives = reopened(disk)
        found = numbers(read_all(lives.spool, "a"))
        assert found == ALL[: len(found)]
        assert len(found) >= 9
        lives.spool.append(record(50), to("a"))
        lives.spool.commit()
        again = Lives(SETTINGS, disk)
        assert numbers(read_all(again.spool, "a")) == [*found, (50, 0)]
        if size >= HEADERS:
            assert admitted(again) == 0  # it was cut off


@pytest.mark.parametrize(("beyond", "cut_short"), [(0, 1), (1, 0), (4095, 0)])
@pytest.mark.parametrize("room", [True, False])
def test_an_end_between_two_pages_is_that_of_a_write_which_a_kill_has_ended(
    room: bool, beyond: int, cut_short: int
) -> None:
    settings = Settings(segment_bytes=20_000)
    lives = Lives(settings)
    frames = b"x" * 9000
    lives.spool.append(Record(frames, 1, Identity("here", 1)), to("a"))
    lives.spool.commit()
    lives.disk.kill()
    name = next(name for name, file in lives.disk.files.items() if frames in file.content)
    size = len(lives.disk.files[name].content)
    lives.disk.cut(name, 4096 + beyond)
    if room:
        lives.disk.files[name].content.extend(bytes(size - 4096 - beyond))
    again = Lives(settings, lives.disk)
    assert again.counters["spool_torn"] == 1
    assert again.counters["spool_cut_short"] == cut_short


def test_a_kill_ends_a_write_between_two_pages(tmp_path: Path) -> None:
    """Linux looks for it there; that is what tells it from a loss."""
    file = tmp_path / "written"
    writing = "import os, sys\nfd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)\n"
    writing += "print(flush=True)\nwhile True: os.write(fd, b'x' * 20001)"
    for _ in range(20):
        with subprocess.Popen([sys.executable, "-c", writing, file], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
        size = file.stat().st_size
        assert size % 20001 == 0 or size % 4096 == 0


def test_a_segment_that_is_gone_is_named() -> None:
    for name in segments(IMAGE)[1:-1]:
        disk = deepcopy(IMAGE)
        del disk.files[name]
        lives = reopened(disk)
        found = numbers(read_all(lives.spool, "a"))
        assert found == [each for each in ALL if each in found]
        assert 12 - 4 <= len(found) < 12
        gone = [fields for _, event, fields in lives.logged if event == "a segment of the spool is gone"]
        assert [fields["file"] for fields in gone] == [name]
        assert lives.counters["spool_damaged"] == 1


def test_a_damaged_segment_is_set_aside_and_written_anew() -> None:
    disk = deepcopy(IMAGE)
    name = segments(disk)[1]
    disk.flip(name, 500)
    lives = reopened(disk)
    lives.spool.snapshot = lambda: b"later"
    for entry, _ in list(lives.spool.replay())[-1:]:
        lives.spool.journaled(entry)
    before = bytes(disk.files[name].content)
    lives.run(20)
    assert bytes(disk.files[name + DAMAGED].content) == before
    again = lives.kill()
    found = numbers(read_all(again, "a"))
    assert 11 <= len(found) <= 12
    assert numbers(read_all(again, "b"))
    assert admitted(lives) == 0


def test_the_number_of_a_name_that_is_lost_is_given_to_no_other() -> None:
    """Both copies of it in all segments, and all checkpoints: then only the records say that it was given."""
    disk = deepcopy(IMAGE)
    for name in segments(disk):
        file = disk.open(name)
        header = decode_header(file.read(0, HEADERS))
        assert header is not None
        salt = Segment(number_of(name) or 0, header.key, header.first).salt
        for _, end, kind, entry in list(walk(file.read, HEADERS, file.size(), salt, 1 << 20)):
            if kind == Kind.CHECKPOINT or (kind == Kind.NAME and decode_name(entry)[1] == "here"):
                disk.flip(name, end - 1)
    lives = reopened(disk)
    spool = lives.spool
    spool.append(Record(bytes(50), 1, Identity("elsewhere", 3)), to("a"))
    spool.commit()
    origins = [stored.record.identity.origin for stored in read_all(spool, "a") if stored.record.identity]
    assert origins[-1] == "elsewhere"
    assert all(origin.startswith("?") for origin in origins[:-1])
    assert len(set(origins)) == 2


def test_garbage_where_the_disk_cannot_be_read() -> None:
    disk = deepcopy(IMAGE)
    name = segments(disk)[1]
    disk.files[name].failing = 5
    lives = reopened(disk)
    found = numbers(read_all(lives.spool, "a"))
    assert found == [each for each in ALL if each in found]
    assert admitted(lives)


def test_what_becomes_unreadable_while_it_waits_is_counted() -> None:
    lives = reopened(deepcopy(IMAGE))
    name = segments(lives.disk)[1]
    lives.disk.files[name].content[HEADERS:] = bytes(len(lives.disk.files[name].content) - HEADERS)
    before = lives.spool.consumer("a").waiting.messages
    found = numbers(read_all(lives.spool, "a"))
    assert lives.counters["spool_unreadable"] == before - len(found) > 0
    assert lives.spool.consumer("a").beyond_messages == 0
    assert lives.spool.consumer("a").waiting.messages == len(found)


@pytest.mark.parametrize("part", [1 / 2, 1 / 3])
@pytest.mark.parametrize("place", [0, 1, -2])
def test_a_segment_cut_in_the_middle_of_the_spool_is_told_in_messages_or_entries(
    part: float, place: int
) -> None:
    lives = Lives(Settings(segment_bytes=4_000, bytes=100_000))
    count = 150
    for number in range(count):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
    lives.run(1)
    lives.disk.kill()
    name = segments(lives.disk)[place]
    lives.disk.cut(name, int(len(lives.disk.files[name].content) * part))
    lives.open()
    left = len(read_all(lives.spool, "a"))
    missing = count - left
    assert missing > 1
    told = lives.spool.losses.get("a", 0)
    assert told <= missing <= told + lives.spool.lost_entries
    # the entries beside the records are few: headers and checkpoints
    assert lives.spool.lost_entries < 2 * missing + 10
