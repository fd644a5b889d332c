"""Eq. 3: Q * (1 + Q_in) / (1 + Q_out) > tau."""

from __future__ import annotations

from ildm_algorithms.octopia.grid.congestion import LinkLoad


def test_a_queue_that_grows_is_congested_earlier_than_a_long_one_that_shrinks() -> None:
    growing, shrinking = LinkLoad(tau=10, window=0.05), LinkLoad(tau=10, window=0.05)
    growing.congested(1.0, 0)
    shrinking.congested(1.0, 30)
    growing.sent(9)
    shrinking.sent(1)
    # 9 in, 4 out: 5 * 10 / 5; 1 in, 19 out: 12 * 2 / 20
    assert growing.element(1.05, 5) == 2.0
    assert not growing.congested(1.05, 5)
    assert growing.congested(1.06, 6)
    assert shrinking.element(1.05, 12) == 0.1
    assert not shrinking.congested(1.05, 12)


def test_within_a_window_the_last_full_one_counts() -> None:
    load = LinkLoad(tau=10, window=0.05)
    load.sent(9)
    assert load.element(0.05, 9) == 10.0
    load.sent(3)
    assert load.element(0.09, 0) == 10.0
    assert load.element(0.10, 0) == 4 / 13


def test_a_link_without_messages_is_free() -> None:
    load = LinkLoad(tau=10, window=0.05)
    assert load.element(5.0, 0) == 1.0
    assert not load.congested(5.0, 0)
