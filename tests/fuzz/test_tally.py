"""What was executed is added up by commit, target and way, no run twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz import tally
from tests.fuzz.tally import LedgerError, Row, Run, left, merged, read, totals, write


def row(runs: str, executions: int = 100, how: str = "own", **given: object) -> Row:
    fields = {"commit": "abc1234", "target": "codec", "cpu_minutes": 0.5, "finds": 0, "runs": runs}
    return Row(**fields | given | {"executions": executions, "how": how})  # type: ignore[arg-type]


def test_runs_of_one_setting_become_one_row_and_others_do_not() -> None:
    rows, had = merged([row("a", finds=1, note="mended")], [row("b"), row("c", how="atheris")])
    assert not had
    assert rows == [row("c", how="atheris"), row("a b", 200, cpu_minutes=1.0, finds=1, note="mended")]
    assert totals(rows) == {"codec": row("", 300, "atheris", cpu_minutes=1.5, finds=1)}


def test_a_run_that_the_ledger_has_is_not_counted_again() -> None:
    rows, had = merged([row("a b", 200)], [row("b"), row("c"), row("c")])
    assert [each.runs for each in had] == ["b", "c"]
    assert rows == [row("a b c", 300, cpu_minutes=1.0)]


def test_a_run_counts_when_it_has_ended_or_its_process_is_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "runs", "codec", "own", "abc1234")
    run.write(70, 60.0, 1)
    ledger = tmp_path / "ledger.csv"
    assert "0 runs added, 0 counted before, 1 go on still" in tally.tally(ledger, tmp_path / "runs")
    assert read(ledger) == []
    run.write(90, 90.0, 2, ended=True)
    for said in ("1 runs added, 0 counted before", "0 runs added, 1 counted before"):
        assert said in tally.tally(ledger, tmp_path / "runs")
        assert read(ledger) == [row(run.name, 90, cpu_minutes=1.5, finds=2)]
    killed = Run(tmp_path / "runs", "codec", "own", "abc1234")
    killed.write(10, 30.0, 0)
    monkeypatch.setattr(tally, "lives", lambda process: process != os.getpid())
    assert "1 runs added, 1 counted before" in tally.tally(ledger, tmp_path / "runs")
    (found,) = read(ledger)
    assert (found.executions, found.cpu_minutes, found.finds) == (100, 2.0, 2)


def test_what_was_not_run_is_no_row(tmp_path: Path) -> None:
    Run(tmp_path, "codec", "own", "abc1234").write(0, 1.0, 0, ended=True)
    assert left(tmp_path) == ([], 0)


def test_a_ledger_reads_as_it_was_written(tmp_path: Path) -> None:
    rows = [row("a", note='a comma, "quotes" and more'), row("b c", target="link")]
    write(tmp_path / "ledger.csv", rows)
    assert read(tmp_path / "ledger.csv") == rows


@pytest.mark.parametrize(
    "line",
    [
        "abc1234,codec,own,many,0.5,0,,a",
        "abc1234,codec,own,1,0.5,0,,a,b",
        "abc1234,codec,own,1,0.5,0",
    ],
)
def test_a_line_that_is_no_row_is_told(tmp_path: Path, line: str) -> None:
    ledger = tmp_path / "ledger.csv"
    ledger.write_text(",".join(tally.COLUMNS) + f"\n{line}\n")
    with pytest.raises(LedgerError, match=r"ledger\.csv:2: "):
        read(ledger)


def test_a_file_that_is_no_ledger_or_no_run_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(LedgerError, match="columns"):
        read(other)
    (tmp_path / "run.json").write_text('{"row": {}}')
    with pytest.raises(LedgerError, match="no run"):
        left(tmp_path)


def test_the_ledger_of_the_project_can_be_read() -> None:
    rows = read(tally.LEDGER)
    runs = [run for each in rows for run in each.runs.split()]
    assert len(runs) == len(set(runs))
    assert len({each.setting for each in rows}) == len(rows)
