"""Tables: the numbers of the model, all of them, and Markdown that stays a table."""

from __future__ import annotations

import re
from typing import Any

from ildm_bench.measure.figures import Comparison, Limit, RunFigures
from ildm_bench.report import markdown_table, tables
from ildm_bench.report.entries import limits_of, of_limit
from tests.bench.report import samples


def test_row_for_each_limit() -> None:
    comparison = samples.patterns()
    lines = markdown_table(comparison).splitlines()
    assert len(lines) == 2 + sum(len(group.limits) for group in comparison.groups)
    assert len({line.count(" | ") for line in lines}) == 1
    assert lines[1].startswith("| --- | --- | ---: |")
    best = next(line for line in lines if line.startswith("| high | SF |"))
    assert "| \N{LESS-THAN OR EQUAL TO} 8.8 ms | 5.68 k/s |" in best
    assert best.endswith("| \N{MULTIPLICATION SIGN}4.18 |")
    assert lines[-1].endswith("| \N{MULTIPLICATION SIGN}1 |")


def test_runs_refer_to_latency() -> None:
    comparison = samples.latencies()
    mark, _, head, _, *rows = markdown_table(comparison, void=True).splitlines()
    assert mark == "**Void, no result.** five pairs: lag of the generator: 99 % 8.2 ms"
    assert head.startswith("| Target | Interval |")
    assert head.endswith("| Latency \N{MULTIPLICATION SIGN} mosquitto alone |")
    one, alone = (comparison.runs[n].latency["latency.sent"].mean for n in (1, 0))
    assert rows[1].endswith(f"| \N{MULTIPLICATION SIGN}{one / alone:.3g} |")
    assert rows[3].startswith("| five pairs |")
    assert "void" in rows[3]
    assert not re.search(r"\d", rows[3].replace("100 ms", ""))


def test_own_table_goes_first() -> None:
    comparison = samples.singles().model_copy(
        update={"table": [["broker", "k/s"], ["a|b", "1"], ["<i>\nc\\", "2"], ["d"]]}
    )
    assert markdown_table(comparison) == (
        "| broker | k/s |\n| --- | ---: |\n| a\\|b | 1 |\n| &lt;i> c\\\\ | 2 |\n| d |  |\n"
    )


def test_nothing_to_compare() -> None:
    assert markdown_table(Comparison(title="empty", text="", reference="")) == ""


def test_limit_without_run_takes_its_point() -> None:
    with_run = samples.limit("PF", 2000)
    without = with_run.model_copy(update={"figures": None})
    point = next(p for p in with_run.points if p.interval_ms == with_run.interval_ms)
    entry = of_limit(without, "none")
    assert (entry.ingress, entry.egress, entry.ratio) == (point.ingress, point.egress, point.ratio)
    assert entry.name == "none · PF"


def test_limit_that_was_not_found_has_no_rates() -> None:
    (*_, moquette) = limits_of(samples.singles())
    assert moquette.ingress is moquette.egress is moquette.ratio is None


def test_long_tables_are_cut_and_say_so() -> None:
    figures = samples.losing()
    many = figures.model_copy(update={"losses": figures.losses * 40})
    table = tables.loss_table(many)
    assert table is not None
    assert len(table.rows) == tables.MOST_ROWS
    assert "the first 200 of 480" in table.caption
    assert table.rows[0][3] == "900"


def cells(figures: RunFigures) -> list[list[list[str]]]:
    shown = [
        tables.run_table(figures),
        tables.latency_table(figures),
        tables.process_table(figures),
        tables.loss_table(figures),
        tables.network_table(figures),
    ]
    return [table.rows for table in shown if table]


def test_every_number_comes_from_the_model() -> None:
    """Each field that a table shows is changed in turn, and one cell changes with it."""
    figures = samples.losing()
    before = cells(figures)
    data = figures.model_dump()
    unshown = {"run", "label", "scenario", "reason", "machine", "verdict", "under_limit", "notes"}
    # Drawn, not tabulated.
    unshown |= {"histograms", "per_second"}
    changed = 0
    for path in leaves({key: value for key, value in data.items() if key not in unshown}):
        copy = figures.model_dump()
        *above, last = path
        place: Any = copy
        for key in above:
            place = place[key]
        old = place[last]
        place[last] = (
            {"broker": "node", "node": "broker", "generator": "proxy"}.get(old, f"{old}x")
            if (isinstance(old, str))
            else (7 if old is None else old * 2 + 3)
        )
        after = cells(RunFigures.model_validate(copy))
        assert after != before, f"{path} is not shown"
        changed += 1
    assert changed > 150


def leaves(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, (*path, key))]
    if isinstance(data, list):
        return [leaf for key, value in enumerate(data) for leaf in leaves(value, (*path, key))]
    return [path]


def test_every_point_is_listed() -> None:
    found: Limit = samples.limit("SF", 3120)
    table = tables.point_table(found)
    assert len(table.rows) == len(found.points)
    words = {row[1] for row in table.rows}
    assert words == {"void", "over: refused", "over the limit", "under the limit"}
