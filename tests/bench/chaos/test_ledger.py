"""What was hunted is added up: by commit, no schedule twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.chaos.cli import LEDGER, app
from ildm_bench.chaos.ledger import HUNTED, LedgerError, Row, merged, read, row_of, totals, write
from ildm_bench.chaos.virtual.hunt import batches, hunt
from ildm_bench.commit import commit_of


def row(first: int, last: int, commit: str = "abc1234", **given: object) -> Row:
    fields = {
        "commit": commit,
        "algorithm": "sf",
        "fault": "mixed",
        "make": "mosquitto",
        "mode": "process",
        "first": first,
        "last": last,
        "schedules": last - first + 1,
        "minutes": 0.5,
        "owed": 10,
    }
    return Row.model_validate(fields | given)


def test_a_hunt_leaves_its_row() -> None:
    work = list(batches(32, 64, algorithm="sf", fault="kill-all", mode="off"))
    tally = hunt(work)
    assert tally.failures  # without a spool
    found = row_of(work, tally, "abc1234")
    assert (found.first, found.last, found.schedules, found.make) == (64, 95, 32, "mosquitto")
    assert found.lost == found.failed == len(tally.failures)
    assert found.twice == found.order == 0
    assert found.note.startswith(f"{tally.failures[0].schedule.seed}: lost ")
    assert found.owed == tally.owed


def test_neighbours_become_one_row_and_what_is_there_is_not_added() -> None:
    rows, had = merged(
        [row(0, 15, lost=1, note="seen")], [row(16, 31), row(0, 15), row(0, 15, commit="def5678")]
    )
    assert [(each.commit, each.first, each.last, each.schedules) for each in rows] == [
        ("abc1234", 0, 31, 32),
        ("def5678", 0, 15, 16),
    ]
    assert (rows[0].minutes, rows[0].owed, rows[0].lost, rows[0].note) == (1.0, 20, 1, "seen")
    assert had == [row(0, 15)]
    assert merged(rows, [row(4, 9)]) == (rows, [row(4, 9)])
    assert [each.schedules for each in totals(rows).values()] == [48]


def test_seeds_that_would_count_twice_are_refused() -> None:
    with pytest.raises(LedgerError, match="abc1234 sf mixed: seeds 10 to 20 overlap 0 to 15"):
        merged([row(0, 15)], [row(10, 20)])


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "hunts.csv"
    rows = [row(0, 15, note='12: lost p/0, "twice"\nand more'), row(20, 21, make="rabbitmq+activemq")]
    write(path, rows)
    assert read(path) == rows
    path.write_text(path.read_text().replace("0.5", "half"))
    with pytest.raises(LedgerError, match=r"hunts.csv:2: minutes: "):
        read(path)


def test_a_note_without_its_quotation_marks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hunts.csv"
    write(path, [row(0, 15, note="seen")])
    path.write_text(path.read_text().replace("seen", "seen, and mended"))
    with pytest.raises(LedgerError, match=r"hunts.csv:2: 20 columns in place of 19"):
        read(path)


def test_the_ledger_of_this_project_can_be_added_to() -> None:
    rows = read(Path(__file__).parents[3] / LEDGER)
    assert merged(rows, rows[-1:]) == (rows, rows[-1:])


def test_the_command_runs_hunts_and_adds_them_up(tmp_path: Path) -> None:
    ledger = tmp_path / "reports" / "hunts.csv"
    runner = CliRunner()
    drawn = ["run", "--virtual", "--algorithm", "sf", "--algorithm", "pf", "--fault", "none", "--runs", "2"]
    assert runner.invoke(app, [*drawn, "--out", str(tmp_path / "one")]).exit_code == 0
    assert (tmp_path / "one" / HUNTED).exists()
    added = runner.invoke(app, ["tally", str(tmp_path / "one"), "--ledger", str(ledger)])
    assert "4 schedules added" in added.output
    assert {each.commit for each in read(ledger)} == {commit_of(Path(__file__).parent)}
    again = runner.invoke(app, ["tally", str(tmp_path / "one"), "--ledger", str(ledger)])
    assert "0 schedules added; 2 of 2 rows were there before" in again.output
    assert sum(each.schedules for each in read(ledger)) == 4
    missing = runner.invoke(app, ["tally", str(tmp_path / "reports"), "--ledger", str(ledger)])
    assert missing.exit_code == 1
    assert isinstance(missing.exception, LedgerError)
