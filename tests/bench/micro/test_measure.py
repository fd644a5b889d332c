"""What the micro benchmarks share: turns, and the lines of their tables."""

from __future__ import annotations

import pytest

from ildm_bench.micro.measure import Column, heading, in_turn, line

COLUMNS = (Column("rate/s", 8, ",.0f"), Column("of", 4, ""), Column("ratio", 6, ".2f"))


def test_ways_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def measure(way: str) -> int:
        asked.append(way)
        return len(asked)

    assert in_turn(2, ["a", "b"], measure, lambda found: f"{found} found") == {"a": [1, 3], "b": [2, 4]}
    assert asked == ["a", "b", "a", "b"]
    assert capsys.readouterr().err.splitlines()[2] == "round 2 a: 3 found"


def test_a_line_has_its_values_below_their_headings() -> None:
    assert heading("way", 6, COLUMNS) == "way      rate/s   of  ratio"
    assert line("direct", 6, COLUMNS, (12_345.6, "x", 1.0)) == "direct   12,346    x   1.00"
    assert line("none", 6, COLUMNS, (7, None, None)) == "none          7"
