"""Who was answered gets what comes after it."""

from __future__ import annotations

from ildm.api import Peer
from ildm_algorithms.tbps.retained.following import FOLLOWED, LONGEST, MOST, UNDER_WAY, Following

A, B = Peer("a", "a:1"), Peer("b", "b:1")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_comes_by_itself_follows_for_a_while_and_what_is_late_for_longer() -> None:
    clock = Clock()
    following = Following(clock)
    assert following.of("t/1", late=True) == []
    following.answered(A, "t/#")
    clock.now += UNDER_WAY
    following.answered(B, "t/1")
    assert set(following.of("t/1", late=False)) == {A, B}
    assert following.of("t/2", late=False) == [A]
    assert following.of("u", late=True) == []
    clock.now += 1
    assert following.of("t/1", late=False) == [B]
    assert following.of("t/2", late=False) == []
    assert set(following.of("t/1", late=True)) == {A, B}
    clock.now += FOLLOWED - UNDER_WAY
    assert following.of("t/1", late=True) == [B]


def test_who_asks_again_is_answered_anew() -> None:
    clock = Clock()
    following = Following(clock)
    following.answered(A, "t")
    following.answered(B, "t")
    clock.now += FOLLOWED
    following.answered(A, "t")
    clock.now += 1
    assert following.of("t", late=True) == [A]


def test_it_is_bounded() -> None:
    following = Following(Clock())
    for number in range(MOST + 10):
        following.answered(A, f"t/{number}")
    assert following.of("t/9", late=True) == []
    assert following.of("t/10", late=True) == [A]
    assert len(following._at) == len(following._table) == MOST
    following.answered(B, "l" * (LONGEST + 1))
    assert following.of("l" * (LONGEST + 1), late=True) == []
