"""Log files that are missing, damaged or of another kind: named and refused, or left out and noted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ildm_bench.analysis.errors import BadFile, CorruptLog, MissingLog, WrongSchema
from ildm_bench.analysis.logs import check_log, find_runs
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.measure.schema import RECEIVE, SEND, log_file
from tests.bench.analysis.logs import BEGAN, SECOND, every_message, manifest, write_run, write_table


def damage_page(path: Path, column: str) -> None:
    """Change a byte in the middle of the first page of a column; the footer stays whole."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(c for n in range(group.num_columns) if (c := group.column(n)).path_in_schema == column)
    place = chunk.data_page_offset + chunk.total_compressed_size // 2
    if chunk.has_dictionary_page:
        place = chunk.dictionary_page_offset + chunk.total_compressed_size // 2
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run without loss: workers w0 to w3, of which w0 and w1 publish, w2 and w3 subscribe."""
    made = manifest("a", [("throughput", 2, 2)], workers=4)
    return write_run(tmp_path, made, *every_message(made, 300, SECOND // 100, 1_000_000))


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -9])
def test_cut_off(run: Path, keep: int) -> None:
    path = log_file(run, "receive", "w2")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptLog) as caught:
        find_runs(run.parent)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("column", "type_", "found"), [("seq", pa.int32(), "int32 not null"), ("topic", pa.string(), "string")]
)
def test_wrong_type(run: Path, column: str, type_: pa.DataType, found: str) -> None:
    path = log_file(run, "send", "w1")
    place = SEND.get_field_index(column)
    write_table(path, SEND.set(place, pa.field(column, type_, nullable=type_ == pa.string())), [])
    with pytest.raises(WrongSchema) as caught:
        find_runs(run.parent)
    error = caught.value
    assert (error.path, error.column, error.found) == (path, column, found)
    assert error.expected == f"{SEND.field(column).type} not null"


def test_missing_column(run: Path) -> None:
    path = log_file(run, "receive", "w3")
    write_table(path, SEND, [])
    with pytest.raises(
        WrongSchema, match=r"w3\.parquet: column 'subscriber': int32 not null.*no such column"
    ):
        find_runs(run.parent)
    assert check_log(path, SEND) == 0


def test_log_that_is_not_there(run: Path) -> None:
    log_file(run, "send", "w0").unlink()
    with pytest.raises(MissingLog, match=r"role=send/w0\.parquet"):
        find_runs(run.parent)


def test_log_of_nobody(run: Path) -> None:
    log_file(run, "receive", "w2").with_stem("w9").write_bytes(log_file(run, "receive", "w2").read_bytes())
    with pytest.raises(CorruptLog, match=r"w9\.parquet: no worker"):
        find_runs(run.parent)


@pytest.mark.parametrize("bad", ["refuse", "skip"])
def test_manifest_is_always_needed(run: Path, bad: str) -> None:
    manifest_file = run / "run.json"
    text = manifest_file.read_text()
    for content, kind in ((text[:-50], CorruptLog), (text.replace('"a"', '"b"', 1), CorruptLog)):
        manifest_file.write_text(content)
        with pytest.raises(kind, match=r"run\.json"):
            find_runs(run.parent, bad=bad)
    manifest_file.unlink()
    with pytest.raises(MissingLog, match=r"run\.json"):
        find_runs(run.parent, bad=bad)


def test_runs_that_are_not_there(tmp_path: Path, run: Path) -> None:
    with pytest.raises(MissingLog, match="run=none"):
        find_runs(run.parent, ["none"])
    with pytest.raises(MissingLog, match="run=ID"):
        find_runs(tmp_path / "nothing")
    assert [found.manifest.run for found in find_runs(run.parent, ["a", "a"])] == ["a"]


def test_damaged_page_is_named(spark: SparkSession, run: Path) -> None:
    path = log_file(run, "receive", "w2")
    damage_page(path, "received_ns")
    with pytest.raises(CorruptLog) as caught:
        analyse(spark, run.parent)
    assert caught.value.path == path.resolve()


def test_left_out_and_noted(spark: SparkSession, tmp_path: Path) -> None:
    """What remains counts as if the clients of the bad logs had not been there."""
    results = tmp_path / "odd [name] 100%25"
    made = manifest("with space", [("throughput", 4, 4)], workers=8)
    directory = write_run(results, made, *every_message(made, 400, SECOND // 100, 1_000_000))
    whole = manifest("whole", [("throughput", 1, 1)])
    write_run(results, whole, *every_message(whole, 400, SECOND // 100, 1_000_000))
    log_file(directory, "send", "w0").write_bytes(b"")
    damage_page(log_file(directory, "receive", "w4"), "arrival")
    log_file(directory, "receive", "w5").unlink()
    write_table(log_file(directory, "receive", "w6"), SEND, [])
    (directory / "network.parquet").write_bytes(b"PAR1")
    told: list[str] = []
    undisturbed, figures = analyse(spark, results, bad="skip", progress=told.append)
    assert undisturbed.notes == []
    assert undisturbed.ratio == 1
    assert any("w4.parquet" in line for line in told)
    left_out = [note for note in figures.notes if note.startswith("left out")]
    assert [note.split(":")[0].removeprefix("left out ") for note in left_out] == [
        "role=send/w0.parquet",
        "role=receive/w5.parquet",
        "role=receive/w6.parquet",
        "role=receive/w4.parquet",
        "network.parquet",
    ]
    sent_in_window = 3 * 200
    assert (figures.expected, figures.missing, figures.losses) == (sent_in_window, 0, [])
    assert figures.ingress == sent_in_window / 2
    assert figures.duplicates == figures.order_violations == 0


def test_samples_are_checked_too(spark: SparkSession, run: Path) -> None:
    write_table(run / "network.parquet", RECEIVE, [])
    with pytest.raises(BadFile, match=r"network\.parquet: column 'time_ns'"):
        analyse(spark, run.parent)


def test_window_of_the_helper(run: Path) -> None:
    """The runs above send on both sides of the window's ends."""
    window = find_runs(run.parent)[0].manifest
    assert BEGAN < window.window_begin_ns < BEGAN + 300 * SECOND // 100
