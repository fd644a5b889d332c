"""The figures of routing decisions: all filters differ, each topic is wanted, and a filter takes memory."""

from __future__ import annotations

from ildm_bench.micro.routing import TOPICS, apart, covering_figures, filters, table_figures, topics


def test_filters_differ_and_topics_are_spread_over_them() -> None:
    assert len(set(filters(30_000))) == 30_000
    spread = topics(30_000)
    assert len(set(spread)) == TOPICS
    assert spread[0].startswith("site/0/device0/")
    assert "/device299/" in spread[-1]


def test_figures_are_of_what_was_entered() -> None:
    figures = apart(table_figures, 20_000)  # which fails if a topic is not wanted
    assert 20 < figures["bytes"] < 1000
    assert apart(covering_figures, 20_000)["announced_bytes"] > 100
