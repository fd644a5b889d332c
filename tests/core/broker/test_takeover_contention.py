"""Who else has the node's client identifier at its broker, from how its sessions there end."""

from __future__ import annotations

from random import Random

from ildm.core.broker.takeover_contention import LONGER, SHORT_LIVES, TakeoverContention

LONGEST = 10.0


def contention() -> TakeoverContention:
    return TakeoverContention("ildm-a-0", "a", Random(1), LONGEST)


def test_a_broker_that_says_why_is_believed_at_once() -> None:
    found = contention()
    assert found.reason(0) is None
    assert found.has_taken(100.0, 90.0, told=True, sent=False)
    assert "'ildm-a-0'" in str(found.reason(100.0))


def test_one_that_merely_hangs_up_has_to_do_so_again_and_again() -> None:
    found = contention()
    ends = [found.has_taken(float(n), 1.0, told=False, sent=False) for n in range(SHORT_LIVES)]
    assert ends == [False] * (SHORT_LIVES - 1) + [True]


def test_one_that_already_makes_long_pauses_is_found_out_by_the_other() -> None:
    found = contention()
    ends = [found.has_taken(40.0 * n, 4 * LONGEST, told=False, sent=False) for n in range(SHORT_LIVES)]
    assert ends[-1]


def test_neither_a_session_that_lasts_nor_a_broker_that_is_away_in_between_is_contention() -> None:
    found = contention()
    for n in range(3 * SHORT_LIVES):
        if n % (SHORT_LIVES - 1) == 0:
            found.explained()
        assert not found.has_taken(float(n), 1.0, told=False, sent=False)
    for n in range(3 * SHORT_LIVES):
        lived = LONGER * LONGEST if n % (SHORT_LIVES - 1) == 0 else 1.0
        assert not found.has_taken(100.0 + n, lived, told=False, sent=False)


def test_pauses_get_longer_than_before_and_are_bounded() -> None:
    found, pauses, now = contention(), [], 0.0
    for _ in range(8):
        assert found.has_taken(now, 1.0, told=True, sent=False)
        pauses.append(found.pause())
        now += pauses[-1] + 1.0
    assert pauses[0] >= LONGEST / 2
    assert pauses[1] >= LONGEST
    assert LONGER * LONGEST / 2 <= pauses[-1] <= LONGER * LONGEST


def test_two_that_both_make_such_pauses_do_not_forget_each_other() -> None:
    """Each has the session while the other pauses: its next loss comes within both pauses."""
    found = contention()
    assert found.has_taken(0.0, 1.0, told=True, sent=False)
    assert found.reason(2 * LONGER * LONGEST)


def test_another_client_that_has_gone_is_forgotten() -> None:
    found = contention()
    assert found.has_taken(0.0, 1.0, told=True, sent=False)
    found.pause()
    assert found.reason(3 * LONGER * LONGEST) is None
    assert not found.has_taken(3 * LONGER * LONGEST, 1.0, told=False, sent=False)
    assert found.pause() <= LONGEST


def test_sessions_that_all_had_something_to_send_are_followed_by_a_trial() -> None:
    found = contention()
    assert not any(found.has_taken(float(n), 1.0, told=False, sent=True) for n in range(SHORT_LIVES - 1))
    assert not found.suspected
    assert not found.has_taken(8.0, 1.0, told=False, sent=True)
    assert found.suspected
    found.explained()
    assert not found.suspected
    assert not any(found.has_taken(float(n), 1.0, told=False, sent=True) for n in range(SHORT_LIVES))
    assert found.has_taken(9.0, 1.0, told=False, sent=False)
    assert not found.suspected


def test_one_silent_session_among_them_is_enough() -> None:
    found = contention()
    ends = [found.has_taken(float(n), 1.0, told=False, sent=n != 3) for n in range(SHORT_LIVES)]
    assert ends == [False] * (SHORT_LIVES - 1) + [True]
