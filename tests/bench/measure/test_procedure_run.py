"""Running a limit search: the journal it resumes from, and what it shows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ildm_bench.measure.figures import Latency, Limit, Point, ProcessUse, RunFigures
from ildm_bench.measure.limit_search import Journal, run_search
from ildm_bench.measure.procedure import Search, SearchConfig, SearchError, SearchHeader
from ildm_bench.measure.progress import Progress, point_line, render_limit
from tests.bench.measure.test_procedure import SCENARIO, above, conduct, point_of, search_of


class Bench:
    """A target with a known limit, and a clock that moves only when something is measured."""

    def __init__(self, limit: float = 2.35, stop_after: int = 1000) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self._oracle = above(limit)
        self._stop_after = stop_after

    def clock(self) -> float:
        return self.now

    def measure(self, interval: float) -> Point:
        if len(self.asked) == self._stop_after:
            raise KeyboardInterrupt
        self.asked.append(interval)
        self.now += 60.0
        return point_of(interval, self._oracle(interval)).model_copy(update={"run": f"r{len(self.asked)}"})


def console_of(terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=120, color_system="standard" if terminal else None
    )


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def run(
    journal: Path, bench: Bench, console: Console | None = None, seconds: float = 0.0, **config: object
) -> Limit:
    progress = Progress(console or console_of(), seconds, bench.clock)
    return run_search(search_of(**config), bench.measure, journal, progress)


def test_journal_is_header_and_points(tmp_path: Path) -> None:
    path = tmp_path / "new" / "limit.jsonl"
    limit = run(path, Bench())
    header, *points = path.read_text().splitlines()
    assert SearchHeader.model_validate_json(header) == search_of().header
    assert [Point.model_validate_json(line) for line in points] == limit.points
    assert limit == conduct_with_runs()


def conduct_with_runs() -> Limit:
    bench = Bench()
    search = search_of()
    while (interval := search.next()) is not None:
        search.record(bench.measure(interval))
    assert search.outcome is not None
    return search.outcome


@given(cut=st.integers(0, 8), full=st.booleans(), repeat=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_interrupt_leaves_a_journal_that_resumes(
    tmp_path_factory: pytest.TempPathFactory, cut: int, full: bool, repeat: int
) -> None:
    path = tmp_path_factory.mktemp("search") / "limit.jsonl"
    config = {"full": full, "repeat": repeat}
    first, second = Bench(stop_after=cut), Bench()
    console = console_of()
    if cut == 8 and not full and repeat == 1:
        run(path, first, console, **config)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(path, first, console, **config)
        assert "the same search resumes from it" in shown(console)
    limit = run(path, second, **config)
    assert first.asked + second.asked == [point.interval_ms for point in limit.points]
    whole = conduct(search_of(**config), above(2.35))
    assert limit.interval_ms == whole.interval_ms
    assert len(limit.points) == len(whole.points), "nothing was measured twice"
    third = Bench()
    assert run(path, third, **config) == limit
    assert third.asked == []


@pytest.mark.parametrize("lost", [1, 20])
def test_half_written_line_is_ignored_with_a_warning(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "limit.jsonl"
    whole = run(path, Bench())
    path.write_bytes(path.read_bytes()[:-lost])
    console, bench = console_of(), Bench()
    limit = run(path, bench, console)
    assert bench.asked == [2.4]
    assert limit.interval_ms == whole.interval_ms
    assert "the last line is half written, ignored" in shown(console)
    assert len(path.read_text().splitlines()) == 1 + len(whole.points)
    assert run(path, Bench()) == limit


def test_half_written_header_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    path.write_text(search_of().header.model_dump_json()[:30])
    console = console_of()
    assert run(path, Bench(), console).interval_ms == 2.4
    assert "half written" in shown(console)
    assert json.loads(path.read_text().splitlines()[0])["scenario"] == "small"


def test_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    path.touch()
    console = console_of()
    assert run(path, Bench(), console).interval_ms == 2.4
    assert "half written" not in shown(console)


def test_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    run(path, Bench())
    before = path.read_bytes()
    bench = Bench()
    with pytest.raises(SearchError) as caught:
        run(path, bench, full=True, repeat=3)
    assert "config.full: False, now True" in str(caught.value)
    assert "config.repeat: 1, now 3" in str(caught.value)
    elsewhere = Search(SearchHeader.of(SCENARIO, ["127.0.0.1:1884"]))
    with pytest.raises(SearchError, match=r"targets: \['127.0.0.1:1883'\], now \['127.0.0.1:1884'\]"):
        run_search(elsewhere, bench.measure, path, Progress(console_of()))
    assert bench.asked == []
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["some text", "some text\n", '{"a": 1}\n', "\n"])
def test_another_file_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "limit.jsonl"
    path.write_text(content)
    with pytest.raises(SearchError, match="no journal of a limit search"):
        run(path, Bench())
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:2], "{}", *lines[3:]], "line 3 is no measurement"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: a measurement at 4 ms: 2 ms is due"),
        (lambda lines: [*lines, lines[-1]], "line 10: a measurement at 2.4 ms: none is due"),
    ],
)
def test_damaged_journal_is_refused(
    tmp_path: Path, change: Callable[[list[str]], list[str]], message: str
) -> None:
    path = tmp_path / "limit.jsonl"
    run(path, Bench())
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(SearchError, match=message):
        run(path, Bench())


def test_one_search_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    with Journal(path, search_of().header), pytest.raises(SearchError, match="another search is using"):
        run(path, Bench())
    assert run(path, Bench()).interval_ms == 2.4


def test_measurement_of_another_interval_is_not_journalled(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    with pytest.raises(SearchError, match="at 7 ms: 1 ms is due"):
        run_search(search_of(), lambda _: point_of(7.0, "under"), path, Progress(console_of()))
    assert len(path.read_text().splitlines()) == 1


def test_lines_without_a_terminal(tmp_path: Path) -> None:
    console = console_of()
    run(tmp_path / "limit.jsonl", Bench(), console, seconds=80.0)
    lines = shown(console).splitlines()
    assert len(lines) == 8
    assert lines[0] == (
        "step 1          1 ms  ingress      1,000/s  egress      1,000/s  ratio 0.5000  over the limit"
        "  (5 to 15 more, 5 to 15 min left)"
    )
    assert lines[2].endswith("under the limit  (4 to 5 more, 4 to 5 min left)")
    assert lines[-1] == (
        "step 4        2.4 ms  ingress        417/s  egress        833/s  ratio 1.0000  under the limit"
    )
    assert "\x1b" not in shown(console)


def test_resumed_lines_do_not_count_for_the_time_left(tmp_path: Path) -> None:
    path = tmp_path / "limit.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(path, Bench(stop_after=3))
    console = console_of()
    run(path, Bench(), console)
    lines = shown(console).splitlines()
    assert [line.endswith("(journal)") for line in lines] == [True] * 3 + [False] * 5
    assert lines[3].endswith("(3 to 4 more, 3 to 4 min left)")


def test_bar_on_a_terminal(tmp_path: Path) -> None:
    console = console_of(terminal=True)
    run(tmp_path / "limit.jsonl", Bench(), console, seconds=60.0)
    text = shown(console)
    assert "step 4: 2.2 ms" in text
    assert "more" in text
    assert "\x1b[32munder the limit" in text
    assert "\x1b[31mover the limit" in text


def test_time_left_counts_down_within_a_measurement() -> None:
    bench = Bench()
    progress = Progress(console_of(), 100.0, bench.clock)
    assert progress.time_left() == "done"
    progress.begins(1.0, 1, (2, 2))
    assert progress.time_left() == "2 more, 3 min left"
    bench.now += 40
    assert progress.time_left() == "2 more, 3 min left"
    bench.now += 20
    assert progress.time_left() == "2 more, 2 min left"
    bench.now += 500
    assert progress.time_left() == "2 more, 2 min left"
    progress.ended(point_of(1.0, "over"), (1, 1))
    assert progress.time_left() == "1 more, 9 min left"
    unknown = Progress(console_of(), clock=bench.clock)
    unknown.begins(1.0, 1, (2, 5))
    assert unknown.time_left() == "2 to 5 more"


@pytest.mark.parametrize(
    ("kind", "words", "style"),
    [
        ("under", "under the limit", "green"),
        ("over", "over the limit", "red"),
        ("refused", "over the limit: load refused", "red"),
        ("void", "void: the generator missed its target", "yellow"),
    ],
)
def test_verdict_in_words_and_colour(kind: str, words: str, style: str) -> None:
    line = point_line(point_of(0.125, kind))
    assert line.plain.endswith(f"  {words}")
    assert [line.plain[span.start :] for span in line.spans if span.style == style] == [words]


def figures() -> RunFigures:
    latency = Latency(count=10, mean=900, p50=800, p95=1500, p99=2500, p999=12345.6, max=20000)
    node = ProcessUse(
        name="node-0",
        role="node",
        site=0,
        label="SF",
        quota=0.5,
        cores=0.42,
        cpu_us_per_delivery=17.25,
        rss_bytes=50 << 20,
        voluntary_switches=1,
        involuntary_switches=2,
    )
    return RunFigures(
        run="r8",
        label="x",
        scenario="small",
        interval_ms=2.4,
        seconds=60,
        sp_ratio=2,
        ingress=416.5,
        egress=832.0,
        ratio=0.9988,
        under_limit=True,
        verdict="ok",
        reason="",
        expected=50_000,
        missing=5,
        loss_rate=0.0001,
        losses=[],
        duplicates=0,
        order_violations=0,
        latency={"throughput.sent": latency, "latency.intended": latency},
        histograms={},
        per_second=[],
        processes=[node, node.model_copy(update={"name": "broker-0", "role": "broker", "quota": None})],
        network={},
        machine="two cores",
        notes=["[shared] machine"],
    )


def rendered(limit: Limit) -> str:
    console = console_of()
    console.print(render_limit(limit))
    return shown(console)


def test_limit_with_figures() -> None:
    limit = conduct(search_of(), above(2.35))
    text = rendered(limit.model_copy(update={"figures": figures(), "notes": ["one", "one"]}))
    for part in (
        "Limit of x",
        "2.4 ms between messages",
        "target: the next smaller interval does not hold",
        "416 messages/s",
        "832 messages/s",
        "0.9988",
        "0.0100% (5 of 50,000)",
        "t-clients, since sent",
        "l-clients, since due",
        "12.346",
        "node-0",
        "17.25",
        "50.0",
        "note: [shared] machine",
    ):
        assert part in text
    assert text.count("note: one") == 1


def test_limit_without_figures_takes_the_point() -> None:
    text = rendered(conduct(search_of(first_ms=4), above(2.35)))
    assert "4 ms between messages" in text
    assert "schedule: the smallest interval that is allowed holds" in text
    assert "250 messages/s" in text
    assert "Latency" not in text


def test_no_limit() -> None:
    text = rendered(conduct(search_of(largest_ms=2), above(5)))
    assert "none: no interval is under the limit" in text
    assert "note: no interval up to 2 ms is under the limit" in text
    assert "bounded by" not in text


def test_long_searches_count_in_hours() -> None:
    bench = Bench()
    progress = Progress(console_of(), 600.0, bench.clock)
    progress.begins(1.0, 1, (5, 20))
    assert progress.time_left() == "5 to 20 more, 50 min to 3 h 20 min left"
    progress.begins(1.0, 1, (12, 20))
    assert progress.time_left() == "12 to 20 more, 2 h 00 min to 3 h 20 min left"


def test_defaults_go_to_standard_error() -> None:
    assert Progress().console.stderr
    assert SearchConfig().divisions == 20
