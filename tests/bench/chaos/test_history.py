"""Histories: what is written is what is read, and what is of no use is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.analysis.errors import CorruptLog, MissingLog, WrongSchema
from ildm_bench.chaos import history as h
from ildm_bench.chaos.files import events_of, histories, parquet_files, read_file, stock_of, to_parquet
from ildm_bench.chaos.tables import EVENTS, RUNS

ROWS = [
    h.Event(0.0, "p", "connect", "ok", "a", session="p/0", detail='{"clean":true}'),
    h.Event(0.5, "p", "publish", "invoke", "a", topic="t/ü", qos=2, retain=True, publisher="p", seq=0),
    h.Event(0.5, "node/a", "counters", "ok", topic="rss_bytes", seq=1 << 40, incarnation=3),
]


def written(directory: Path, run: str = "1", name: str = "", times: int = 1) -> h.Run:
    with h.History(run, directory, name) as history:
        for _ in range(times):
            for event in ROWS:
                history.add(event)
        about = h.Run(run, algorithm="pf", sites=3, seconds=2.5)
        history.finish(about)
    return about


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    first, second = written(tmp_path, "1"), written(tmp_path, "2", "other")
    assert read(tmp_path) == [(first, ROWS), (second, ROWS)]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".parquet"] * 4


def read(*directories: Path) -> list[tuple[h.Run, list[h.Event]]]:
    return [(about, list(events_of(events))) for about, events in histories(stock_of(directories))]


def test_events_are_read_in_their_order_and_those_of_an_unfinished_run_are_not(tmp_path: Path) -> None:
    with h.History("1", tmp_path) as first, h.History("2", tmp_path) as other:
        for event in ROWS:
            first.add(event)
            first.flush()
            other.add(event)
            other.flush()
        first.finish(h.Run("1"))
    assert read(tmp_path) == [(h.Run("1"), ROWS)]


def test_a_run_without_events_is_one(tmp_path: Path) -> None:
    about = written(tmp_path, times=0)
    assert read(tmp_path) == [(about, [])]


def test_a_run_in_two_files_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    with h.History("1", tmp_path, "other") as history:
        history.add(ROWS[0])
    (tmp_path / "runs-other.jsonl").touch()
    with pytest.raises(CorruptLog, match="run 1 has events in another file"):
        read(tmp_path)


def test_what_waits_to_be_written_is_bounded(tmp_path: Path) -> None:
    with h.History("1", tmp_path) as history:
        for _ in range(3 * h.BUFFERED):
            history.add(ROWS[0])
            assert len(history.events) < h.BUFFERED
    history.close()
    assert [row["n"] for row in read_jsonl(tmp_path)] == list(range(3 * h.BUFFERED))


def read_jsonl(directory: Path) -> list[dict[str, int]]:
    (path,) = [path for path in to_parquet(directory) if path.stem == "history-0"]
    rows: list[dict[str, int]] = read_file(path, EVENTS).to_pylist()
    return rows


def test_a_writer_goes_on_after_a_conversion(tmp_path: Path) -> None:
    first = written(tmp_path, "1")
    to_parquet(tmp_path)
    second = written(tmp_path, "2")
    assert read(tmp_path) == [(first, ROWS), (second, ROWS)]


def test_the_torn_last_line_of_a_killed_writer_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "history-0.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    [(_, events)] = read(tmp_path)
    assert len(events) == 2


@pytest.mark.parametrize(
    ("line", "error", "text"),
    [
        ("nonsense", CorruptLog, "JSON"),
        ('{"run":"1","n":0,"t":0.0,"process":"p","op":"dance","phase":"ok"}', CorruptLog, "'dance'"),
        ('{"run":"1","n":0,"t":0.0,"process":"p","op":"fault","phase":"often"}', CorruptLog, "'often'"),
        ('{"run":"1","n":0,"t":0.0,"process":"p","op":"fault"}', WrongSchema, "'phase'"),
        ('{"run":"1","n":"x","t":0.0,"process":"p","op":"fault","phase":"ok"}', CorruptLog, "/n"),
        ('{"run":"1","n":0,"t":0.0,"process":"p","op":"fault","phase":"ok","x":1}', CorruptLog, "x"),
    ],
)
def test_lines_of_no_use_are_refused(tmp_path: Path, line: str, error: type[Exception], text: str) -> None:
    written(tmp_path)
    with (tmp_path / "history-0.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(error, match=text):
        read(tmp_path)


def test_a_directory_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingLog):
        read(tmp_path)


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "x")
    written(tmp_path / "y")
    with pytest.raises(CorruptLog, match="a run of the name 1"):
        read(tmp_path / "x", tmp_path / "y")


def test_parquet_of_other_columns_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = parquet_files(tmp_path)["history"][0]
    with pytest.raises(WrongSchema, match="'engine'"):
        read_file(path, RUNS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptLog):
        read(tmp_path)


def test_what_a_run_was_is_said_by_itself(tmp_path: Path) -> None:
    with h.History("1", tmp_path) as history, pytest.raises(ValueError, match="'2'"):
        history.finish(h.Run("2"))


@pytest.mark.parametrize("size", [0, 64])
def test_a_payload_says_where_it_is_from(size: int) -> None:
    data = h.payload("7", "p.1", 42, size)
    assert h.origin(data) == ("7", "p.1", 42)
    assert len(data) >= size


@pytest.mark.parametrize("data", [b"", b"7/p/4", b"7/p/x/", b"7/p/-1/", b"\xff/p/1/"])
def test_other_payloads_have_no_origin(data: bytes) -> None:
    assert h.origin(data) is None


def test_digests_tell_payloads_apart() -> None:
    assert h.digest(b"") == ""
    assert len({h.digest(b"a"), h.digest(b"b"), h.digest(b"")}) == 3
