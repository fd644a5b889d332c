"""The owner's word, and how long a member has not heard a new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.pair.word import LATE, LOOKS, SIZE, SilenceWatch, Word

WORD = Word("a", 7, 1, "machine-1")
NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@given(NAMES, st.integers(0, (1 << 32) - 1), st.integers(0, 10**20 - 1))
def test_a_word_is_of_one_size_and_is_read_as_it_was_said(member: str, epoch: int, number: int) -> None:
    word = Word(member, epoch, number, "6d2c0a2f-0d3f-4a43-9d3c-0f3f6d2c0a2f")
    assert len(word.encode()) == SIZE
    assert Word.decode(word.encode()) == word


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * SIZE, b"\xff" * 9, WORD.encode()[:20], WORD.encode().replace(b" 1 a", b" 2 a")],
)
def test_what_is_no_word_is_none(data: bytes) -> None:
    assert Word.decode(data) is None


@given(st.binary(max_size=2 * SIZE))
def test_any_bytes_are_read(data: bytes) -> None:
    Word.decode(data)


def looked(watch: SilenceWatch, word: Word | None, start: float, seconds: float) -> float:
    """Look for so many seconds as a standby does; answers the time of the last look."""
    now = start
    for _ in range(round(seconds * LOOKS)):
        now += 1 / LOOKS
        watch.look(word, now)
    return now


def test_an_owner_that_says_words_is_not_silent_however_long() -> None:
    watch, now = SilenceWatch(1.0, 0.0), 0.0
    for number in range(100):
        now = looked(watch, WORD._replace(number=number), now, 0.8)
        assert not watch.silent


@pytest.mark.parametrize("word", [WORD, None])
def test_an_owner_is_silent_after_the_time_and_not_before(word: Word | None) -> None:
    watch = SilenceWatch(1.0, 0.0)
    watch.look(word, 0.0)
    now = looked(watch, word, 0.0, 0.9)
    assert not watch.silent
    now = looked(watch, word, now, 0.2)
    assert watch.silent
    watch.begin()
    assert not watch.silent
    looked(watch, word, now, 1.1)
    assert watch.silent


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    """A machine that was asleep: owner and standby wake together."""
    watch = SilenceWatch(1.0, 0.0)
    watch.look(WORD, 0.0)
    now = looked(watch, WORD, 0.0, 0.5)
    watch.look(WORD, now + 3600)
    assert not watch.silent
    now = looked(watch, WORD, now + 3600, 0.9)
    assert not watch.silent
    looked(watch, WORD, now, 0.2)
    assert watch.silent


def test_looks_that_are_a_little_late_count() -> None:
    watch, now = SilenceWatch(1.0, 0.0), 0.0
    watch.look(WORD, now)
    for _ in range(4):
        now += (LATE - 0.5) / LOOKS
        watch.look(WORD, now)
    assert watch.silent
