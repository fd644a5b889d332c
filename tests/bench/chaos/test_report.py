"""The page: what was found stands on it, in words and in colour, and nothing on it is wider than a window."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from ildm_bench.chaos.check import check_histories
from ildm_bench.chaos.excuses import CAUSES
from ildm_bench.chaos.history import Event, History
from ildm_bench.chaos.outcome import Outcome, added
from ildm_bench.chaos.report import tables, write_report
from tests.bench.chaos import making
from tests.bench.chaos.making import BASE, fault, got, history, published
from tests.bench.report.pages import Page, browse


def runs(target: str, algorithm: str, lossy: bool = False, engine: str = "live") -> list[History]:
    made = []
    for seed in range(4):
        rows = making.random_history(seed)
        altered = making.lose(rows, random.Random(seed)) if lossy else None
        found = "+".join(sorted({row.topic for row in rows if row.op == "fault"})) or "none"
        made.append(
            history(
                altered or rows,
                f"{target}-{algorithm}-{seed}",
                target=target,
                algorithm=algorithm,
                engine=engine,
                fault=found,
                seed=seed,
            )
        )
    return made


@pytest.fixture(scope="module")
def sample() -> Outcome:
    """Two algorithms of which one loses, a bridge, and what a broker has lost."""
    lost = [*BASE, published(2.0), making.ended(3.0), making.connected(4.0, "s/1")]
    made = [
        *runs("ildm", "pf"),
        *runs("ildm", "<stla>", lossy=True, engine="virtual"),
        *runs("bridge", "", True),
    ]
    outcome = check_histories([*made, history(lost, "store", engine="live")])
    return outcome.model_copy(
        update={"notes": ["no netem & <no> tc"], "counters": {"spool_damaged": 2, "in": 7}}
    )


@pytest.fixture(scope="module")
def report(sample: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(sample, tmp_path_factory.mktemp("chaos"), "ildm-bench chaos check DIR")


def test_all_of_it_is_on_the_page(report: Path) -> None:
    page = Page(report.read_text(encoding="utf-8"))
    words = " ".join(text for _, text in page.words)
    for part in (
        "What is promised did not hold: ",
        "bridge: ",
        "Found, by kind of fault",
        "Exceptions, and what others have lost",
        CAUSES["store"],
        "What is not promised",
        "Time to recover, from the end of a fault",
        "Latency across sites, with and without faults",
        "<stla>",
        "spool_damaged",
        "no netem & <no> tc",
        "ildm-bench chaos check DIR",
    ):
        assert part in words, part
    assert sum(tag == "svg" for tag, _ in page.elements) == 3
    assert sorted(path.name for path in report.parent.glob("*.png")) == [
        "courses.png",
        "latency.png",
        "recovery.png",
    ]


def test_what_holds_is_said_to_hold(tmp_path: Path) -> None:
    outcome = check_histories([history([*BASE, published(2.0), got(2.1)])])
    page = Page(write_report(outcome, tmp_path).read_text(encoding="utf-8"))
    assert ("strong", "All that is promised held.") in page.words


def test_an_outcome_of_no_run_gives_a_page(tmp_path: Path) -> None:
    page = Page(write_report(Outcome(), tmp_path).read_text(encoding="utf-8"))
    assert ("strong", "There was no run.") in page.words


def test_cells_are_toned_as_they_say(sample: Outcome) -> None:
    found, cells = tables.by_broker(sample), 0
    for row, line in enumerate(found.table.rows):
        for column in range(6, len(line)):
            assert found.tones[row, column] == ("good" if line[column] == "0" else "bad")
            cells += line[column] != "0"
    assert cells >= 2
    heads = found.table.head
    stla = next(line for line in found.table.rows if line[0] == "<stla>")
    assert int(stla[heads.index("Lost")]) == sample.total("lost") > 0


def test_a_run_with_several_kinds_of_fault_counts_with_each() -> None:
    rows: list[Event | list[Event]] = [
        *BASE,
        published(2.0),
        fault(2.5, 3.0),
        fault(4.0, 5.0, "cut", "link/a/b", "1"),
    ]
    outcome = check_histories([history(rows, fault="cut+kill")])
    found = tables.by_fault(outcome).table
    assert [row[0] for row in found.rows] == ["cut", "kill"]
    assert {row[1] for row in found.rows} == {"1 lost, 1 unadmitted in 1 run"}


def test_many_algorithms_and_faults_are_drawn_together(tmp_path: Path) -> None:
    rows = [
        *BASE,
        published(2.0),
        *fault(2.5, 3.0, "cut", "link/a/b"),
        published(4.0, 1),
        got(4.1, 1),
        got(4.2),
    ]
    made = []
    for place in range(42):
        kind = f"kind{place % 7}"
        altered = [
            row._replace(topic=kind) if isinstance(row, Event) and row.op in {"fault", "heal"} else row
            for row in rows
        ]
        made.append(history(altered, f"r{place}", algorithm=f"a{place // 7}", fault=kind))
    outcome = check_histories(made)
    text = write_report(outcome, tmp_path).read_text(encoding="utf-8")
    assert "kind6: " in text
    assert "all algorithms" in text


def test_nothing_is_wider_than_the_window_and_the_console_is_empty(
    chromium: str, report: Path, tmp_path: Path
) -> None:
    _, complaints = browse(chromium, report, tmp_path / "first", "--dump-dom")
    assert complaints == []
    script = """<script>
addEventListener("load", () => {
  const all = [...document.querySelectorAll(".scroll")];
  const wide = all.filter((each) => each.scrollWidth > each.clientWidth);
  document.title = `width ${document.scrollingElement.scrollWidth} wide ${wide.length}`;
});
</script>"""
    text = report.read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(
        re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', script, text), encoding="utf-8"
    )
    dom, _ = browse(chromium, page, tmp_path / "second", "--dump-dom")
    ((width, wide),) = re.findall(r"<title>width (\d+) wide (\d+)</title>", dom)
    assert 800 < int(width) <= 1100
    assert wide == "0"


def test_of_several_outcomes_the_course_with_the_most_faults_is_drawn() -> None:
    rows = [*BASE, published(2.0), got(2.1)]
    calm = check_histories([history(rows, "calm", engine="live")])
    rough = check_histories([history([*rows, fault(3.0, 4.0)], "rough", engine="live")])
    assert [course.run for course in added([calm, rough]).courses] == ["rough"]
