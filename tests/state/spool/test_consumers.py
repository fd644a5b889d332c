"""What a consumer has, where the order of things matters."""

from __future__ import annotations

import struct

import pytest

from ildm.state.spool.records import MARK, MOST, DamageError, Kind, Note, decode_note, encode_note
from ildm.state.spool.segments import COPIED
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, to


def test_what_was_freed_out_of_turn_stays_so_when_a_cursor_halts_before_it() -> None:
    lives = Lives(Settings(segment_bytes=1))  # a segment for each record
    spool = lives.spool
    spool.snapshot = bytes
    spool.append(record(1), to("a"))
    lsn = spool.append(record(2), to("a", "b", held="a"))
    spool.append(record(3), to("a"))
    spool.consumer("a").free(lsn, 0, 1)
    assert spool.consumer("a").discard(1, 0.0, 1000).messages == 1
    lives.run(1)
    assert numbers(read_all(lives.kill(), "a")) == [(3, 0)]


def test_who_has_come_is_known_before_a_snapshot_says_it() -> None:
    lives = Lives(Settings(segment_bytes=1))
    lives.spool.append(record(1), to("a"))
    lives.spool.commit()
    for stored in lives.spool.consumer("a").read(100):
        lives.spool.consumer("a").free(stored.lsn, 0, 1)
    lives.run(1)
    assert [identity.number for identity, _ in lives.kill().identities()] == [1]
    lives.run(1)
    assert [identity.number for identity, _ in lives.kill().identities()] == [1]


@pytest.mark.parametrize("size", [13, COPIED - 1, COPIED, COPIED + 1, 3 * COPIED])
def test_records_of_all_sizes_are_found_again(size: int) -> None:
    """Those of few bytes are put together with their head, for one checksum; it is the same for both."""
    lives = Lives(Settings())
    made = [record(number, size=size) for number in (1, 2)]
    for each in made:
        lives.spool.append(each, to("a"))
    lives.spool.commit()
    assert [stored.record for stored in read_all(lives.kill(), "a")] == made


def test_a_note_of_earlier_versions_is_beside_one_message() -> None:
    former = bytes((MARK, Kind.NOTE)) + struct.pack("<QIQIq", 9, 2, 7, 3, 70_001)
    assert decode_note(former) == Note(9, 2, 7, 3, 70_001, 1)
    note = Note(9, 2, 7, 3, 70_001, 40)
    assert decode_note(encode_note(note)) == note
    for damaged in (former[:-1], encode_note(note)[:-1], encode_note(note._replace(messages=MOST))):
        with pytest.raises(DamageError):
            decode_note(damaged)
