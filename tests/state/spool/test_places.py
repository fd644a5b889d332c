"""Files of a spool under names that are not theirs: what they hold is found, and nothing of others is cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ildm.core.spool import Identity, Record
from ildm.state.spool.disk import OsDisk
from ildm.state.spool.records import HEADERS, decode_header, encode_header
from ildm.state.spool.segments import MARK, MISPLACED, MOVED, name_of
from ildm.testing.virtual.disk import SimDisk, SimFile
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, segments, to

SETTINGS = Settings(segment_bytes=700)
COUNT = 12
ALL = [(number, 0) for number in range(COUNT)]


def filled(seed: int = 0) -> SimDisk:
    lives = Lives(SETTINGS, SimDisk(Random(seed)))
    for number in range(COUNT):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
    lives.disk.kill()
    return lives.disk


def as_before(disk: SimDisk) -> SimDisk:
    """As an earlier version has written it: headers do not say the number."""
    for file in (disk.files[name] for name in segments(disk)):
        header = decode_header(bytes(file.content[:HEADERS]))
        if header is not None:
            file.content[:HEADERS] = encode_header(header._replace(number=0))
    return disk


def put(disk: SimDisk, name: str, file: SimFile) -> None:
    copied = disk.files[name] = SimFile(disk, 0)
    copied.content = bytearray(file.content)


def copied(disk: SimDisk) -> None:
    put(disk, name_of(99), disk.files[segments(disk)[1]])


def copied_over_all(disk: SimDisk) -> None:
    put(disk, "9" * 16 + ".spool", disk.files[segments(disk)[0]])


def copied_below(disk: SimDisk) -> None:
    first = segments(disk)[0]
    assert first != name_of(0)
    put(disk, name_of(0), disk.files[segments(disk)[-2]])


def renamed(disk: SimDisk) -> None:
    disk.files[name_of(99)] = disk.files.pop(segments(disk)[1])


def swapped(disk: SimDisk) -> None:
    one, other = segments(disk)[1:3]
    disk.files[one], disk.files[other] = disk.files[other], disk.files[one]


def turned(disk: SimDisk) -> None:
    one, two, three = segments(disk)[:3]
    disk.files[one], disk.files[two], disk.files[three] = (disk.files[each] for each in (two, three, one))


def killed_amid(disk: SimDisk) -> None:
    one, other = segments(disk)[1:3]
    disk.files[one + MOVED], disk.files[other + MOVED] = disk.files.pop(one), disk.files.pop(other)


@pytest.mark.parametrize("made", [lambda disk: disk, as_before], ids=["now", "earlier version"])
@pytest.mark.parametrize(
    "hurt", [copied, copied_over_all, copied_below, renamed, swapped, turned, killed_amid]
)
def test_a_file_is_bound_to_its_place(
    made: Callable[[SimDisk], SimDisk], hurt: Callable[[SimDisk], None]
) -> None:
    disk = made(filled())
    hurt(disk)
    before = {bytes(file.content).rstrip(b"\0") for name, file in disk.files.items() if name != MARK} - {b""}
    lives = Lives(SETTINGS, disk)
    assert lives.counters["spool_misplaced"] >= 1
    assert lives.counters["spool_damaged"] == 0
    assert before <= {bytes(file.content).rstrip(b"\0") for file in disk.files.values()}, "nothing is cut"
    lives.spool.append(record(COUNT), to("a"))
    lives.spool.commit()
    again = lives.kill()
    assert lives.counters["spool_misplaced"] == 0, "it is put in order once"
    assert numbers(read_all(again, "a")) == [*ALL, (COUNT, 0)]


@pytest.mark.parametrize("made", [lambda disk: disk, as_before], ids=["now", "earlier version"])
@pytest.mark.parametrize("number", [0, 2, 99])
def test_a_segment_of_another_spool_is_left_out(made: Callable[[SimDisk], SimDisk], number: int) -> None:
    disk, other = made(filled()), made(filled(seed=7))
    theirs = other.files[segments(other)[2]]
    replaced = name_of(number) in disk.files
    put(disk, name_of(number), theirs)
    lives = Lives(SETTINGS, disk)
    assert ("error", "a file of the spool is left out") in [
        (level, event) for level, event, _ in lives.logged
    ]
    assert bytes(disk.files[name_of(number) + MISPLACED].content) == bytes(theirs.content)
    found = numbers(read_all(lives.spool, "a"))
    assert found == [each for each in ALL if each in found]
    assert (len(found) < COUNT) == replaced
    assert bool(lives.spool.lost_entries) == replaced, "the one that was there is missed"


def test_what_cannot_be_renamed_is_read_all_the_same() -> None:
    disk = filled()
    swapped(disk)
    disk.fails["rename"] = errno.EROFS
    assert numbers(read_all(Lives(SETTINGS, disk).spool, "a")) == ALL


def test_a_segment_of_an_earlier_version_is_read_and_written_anew_with_its_number() -> None:
    disk = as_before(filled())
    lives = Lives(SETTINGS, disk)
    assert numbers(read_all(lives.spool, "a")) == ALL
    headers = [decode_header(bytes(disk.files[name].content[:HEADERS])) for name in segments(disk)]
    assert [header.number for header in headers if header is not None and header.number] == [
        headers[-1].number
    ]


@pytest.mark.parametrize("what", ["directory", "fifo", "link", "socket", "empty"])
def test_what_is_no_file_in_the_place_of_a_segment(tmp_path: Path, what: str) -> None:
    """It neither keeps the spool from being opened nor is it waited for, followed or removed."""
    path = tmp_path / "spool" / name_of(3)
    disk = OsDisk(tmp_path / "spool", lambda callback: callback())
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(outside)
    elif what == "socket":
        os.mknod(path, 0o600 | 0o140000)
    else:
        path.touch()
    lives = Lives(SETTINGS, disk)  # type: ignore[arg-type]
    assert lives.counters["spool_damaged"] == (what != "empty")
    assert os.path.lexists(path) == (what != "empty")
    lives.spool.append(record(1), to("a"))
    lives.spool.commit()
    assert lives.spool.failure is None
    assert outside.read_bytes() == b"precious"
    assert numbers(read_all(lives.open(), "a")) == [(1, 0)]


def test_what_is_lost_is_told_in_messages() -> None:
    """A part that is damaged: how many messages, and of whom, at level error."""
    lives = Lives(Settings(segment_bytes=20_000, bytes=200_000))
    for number in range(6):
        lives.spool.append(record(number, messages=number + 1), to("a", "b"))
    lives.spool.append(Record(b"x" * 100, 1, Identity("here", 9)), to("b"))
    lives.spool.commit()
    for stored in lives.spool.consumer("b").read(1):
        lives.spool.consumer("b").free(stored.lsn, 0, 1)
    lives.spool.commit()
    (file,) = [each for each in lives.disk.files.values() if b"00000003.0000" in each.content]
    for number in (0, 3):
        file.content[file.content.index(b"%08d.0000" % number) + 20] ^= 1
    lives.kill()
    assert lives.spool.losses == {"a": 1 + 4, "b": 4}
    assert lives.counters["spool_lost"] == 9
    assert lives.spool.lost_entries == 0
    loud = [(event, fields) for level, event, fields in lives.logged if level == "error"]
    told = {f["consumer"]: f["messages"] for event, f in loud if event == "messages of the spool are lost"}
    assert told == lives.spool.losses


def test_an_end_that_no_kill_leaves_is_told_as_lost() -> None:
    lives = Lives(Settings(segment_bytes=20_000, bytes=200_000))
    for number in range(20):
        lives.spool.append(record(number), to("a"))
        lives.spool.commit()
    (name,) = [each for each, file in lives.disk.files.items() if b"00000019.0000" in file.content]
    lives.disk.cut(name, lives.disk.files[name].content.index(b"00000011.0000") + 17)
    lives.kill()
    loud = [(event, fields) for level, event, fields in lives.logged if level == "error"]
    assert [f["file"] for event, f in loud if event.startswith("the end of the spool is lost")] == [name]
    assert lives.counters["spool_damaged"] == 1
    assert lives.spool.losses == {"a": 1}, "of what is cut off, the file says no more"
