"""A spool looked at from outside, while a node has it open and after it was killed."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from ildm.core.spool import Identity, Record, Waiting
from ildm.mqtt import Property, Publish, Version
from ildm.net.spool_view import message_row
from ildm.state.spool.inspect import read_waiting, waiting
from tests.state.spool.lives import SIZES, Settings, mixed, record, single, to
from tests.state.spool.real import open_real


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Forty records for ``a``, every fourth for ``b`` as well; some are freed; not closed."""
    directory = tmp_path / "spool"
    spool = open_real(directory, Settings(segment_bytes=1500))
    spool.snapshot = bytes
    for number in range(40):
        names = ("a", "b") if number % 4 == 0 else ("a",)
        spool.append(record(number, messages=2), to(*names, qos=2 if number == 9 else 1))
    a = spool.consumer("a")
    for stored in a.read(900)[:7]:
        a.free(stored.lsn, 0, 2 if stored.lsn != 7 else 1)
    spool.commit()
    assert len(list(directory.iterdir())) > 3
    return directory


def test_what_waits_is_listed_in_pages(filled: Path) -> None:
    first = read_waiting(filled, ["a"], 0, 5)
    assert [(found.lsn, found.place) for found in first] == [(7, 1), (8, 0), (8, 1), (9, 0), (9, 1)]
    assert first[0].frame == record(6, 2).frames[50:]
    assert first[0].identity == Identity("here", 6)
    assert first[0].since > 1e9
    rest = read_waiting(filled, ["a"], first[-1].lsn, 1000)
    assert [found.lsn for found in rest] == [lsn for lsn in range(10, 41) for _ in range(2)]
    assert [found.qos for found in rest[:2]] == [2, 2]


def test_of_several_consumers_each_message_is_there_once(filled: Path) -> None:
    both = read_waiting(filled, ["a", "b"], 0, 4)
    assert [(found.lsn, found.place) for found in both[:4]] == [(1, 0), (1, 1), (5, 0), (5, 1)]
    assert len(read_waiting(filled, ["b"], 0, 1000)) == 20
    assert read_waiting(filled, ["nobody"], 0, 1000) == []


def test_how_much_waits(filled: Path) -> None:
    found = waiting(filled)
    assert found == {
        "a": Waiting(67, 67 * 50, found["a"].oldest),
        "b": Waiting(20, 20 * 50, found["b"].oldest),
    }


def test_looking_changes_nothing(filled: Path) -> None:
    before = {path.name: path.read_bytes() for path in filled.iterdir()}
    read_waiting(filled, ["a"], 0, 1000)
    waiting(filled)
    assert {path.name: path.read_bytes() for path in filled.iterdir()} == before


def test_only_its_owner_may_look(filled: Path) -> None:
    assert stat.S_IMODE(filled.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in filled.iterdir()} == {0o600}


@pytest.mark.parametrize("freed", [(), (0,), (1, 2), (4,), (0, 1, 2, 3, 4)])
def test_of_messages_of_several_topics_each_is_listed_on_its_own(
    tmp_path: Path, freed: tuple[int, ...]
) -> None:
    """As it was given, although a consumer has freed some of the record."""
    given = mixed(1)
    spool = open_real(tmp_path / "spool")
    spool.append(given, to("a", "b", held="a"))
    for place in freed:
        spool.consumer("a").free(1, place, 1)
    spool.commit()
    left = [place for place in range(len(SIZES)) if place not in freed]
    for consumers, places in ((["a"], left), (["b"], range(len(SIZES))), (["a", "b"], range(len(SIZES)))):
        found = read_waiting(tmp_path / "spool", consumers, 0, 1)
        assert [(one.lsn, one.place, one.frame) for one in found] == [
            (1, place, single(given, place)) for place in places
        ]
    rows = [message_row(one) for one in read_waiting(tmp_path / "spool", ["a"], 0, 1)]
    assert [(row["topic"], row["number"], len(base64.b64decode(row["payload"]))) for row in rows] == [
        (f"t/{place}", 1 + place, SIZES[place]) for place in left
    ]
    assert waiting(tmp_path / "spool").get("a", Waiting(0, 0, None)).messages == len(left)


def test_of_messages_of_several_topics_each_has_its_own_end(tmp_path: Path) -> None:
    intervals = (60, None, 3600)
    frames = [
        Publish(
            topic=f"t/{place}",
            qos=1,
            packet_id=place + 1,
            properties={} if interval is None else {Property.MESSAGE_EXPIRY_INTERVAL: interval},
        ).encode(Version.V5)
        for place, interval in enumerate(intervals)
    ]
    spool = open_real(tmp_path / "spool")
    given = Record(b"".join(frames), len(frames), Identity("here", 1), expires=1000.0, mixed=True)
    spool.append(given, to("a"))
    spool.commit()
    rows = [message_row(one) for one in read_waiting(tmp_path / "spool", ["a"], 0, 1)]
    assert [row["expires_at"] for row in rows] == [1060.0, None, 4600.0]
