"""MQTTLoader's records as a run: which message is which, what the pipeline makes of it, what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ildm_bench.analysis.cli import imported_from, runs_below
from ildm_bench.analysis.errors import CorruptLog, MissingLog
from ildm_bench.analysis.mqttloader import import_run, is_summary, matched, read_records, summary_table
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import spark_session
from ildm_bench.cli import app
from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.schema import RECEIVE, SEND, log_file, run_directory

START = 1_700_000_000_000_000
PUBLISHERS = [f"ml-own-p-0000{number}" for number in range(2)]
SUBSCRIBERS = [f"ml-own-s-0000{number}" for number in range(3)]
SUMMARY = """\
INFO: started
-----Publisher-----
Maximum throughput [msg/s]: 120
Average throughput [msg/s]: 110.5
Number of published messages: 221
Per second throughput [msg/s]: 120, 101

-----Subscriber-----
Number of received messages: 663
Average latency [ms]: 1.396
"""


def lines(seconds: int = 4, lost: int = 0, twice: int = 0) -> list[str]:
    """Both publishers send each 10 ms, at the same microsecond; deliveries take 500 us and more each."""
    found = [f"{START},,,"]
    left_out, repeated = lost, twice
    for number in range(seconds * 100):
        at = START + 10_000 * (number + 1)
        found += [f"{at},{publisher},S," for publisher in PUBLISHERS]
        for place, subscriber in enumerate(SUBSCRIBERS):
            for offset in range(len(PUBLISHERS)):
                latency = 500 + 100 * place + 10 * offset
                line = f"{at + latency},{subscriber},R,{latency}"
                if left_out and number == seconds * 50:
                    left_out -= 1
                    continue
                found.append(line)
                if repeated and number == seconds * 50 + 1 and offset:
                    repeated -= 1
                    found.append(line)
    return found


def written(directory: Path, *content: str, name: str = "mqttloader_20260101-000000.csv") -> Path:
    path = directory / name
    path.write_text("\n".join(content) + "\n")
    return path


def test_each_delivery_is_that_of_a_message_sent(tmp_path: Path) -> None:
    records = read_records([written(tmp_path, *lines())])
    assert (records.publishers, records.subscribers) == (PUBLISHERS, SUBSCRIBERS)
    found = matched(records)
    assert (records.sent[found] == records.received - records.latency).all()
    pairs = {*zip(records.receiver.tolist(), found.tolist(), strict=True)}
    assert len(pairs) == len(found)  # nobody has one twice, though two were sent at the same time


def test_records_are_a_run_of_the_pipeline(tmp_path: Path) -> None:
    path = written(tmp_path, *lines(lost=1, twice=2))
    name = import_run([path], tmp_path / "results", ramp=1.0)
    directory = run_directory(tmp_path / "results", name)
    for role, schema in (("send", SEND), ("receive", RECEIVE)):
        assert pq.ParquetFile(log_file(directory, role, "mqttloader")).schema_arrow.equals(schema)
    manifest = Manifest.read(directory)
    assert manifest.seconds == pytest.approx(2, abs=0.02)
    (figures,) = analyse(spark_session(quick=True), tmp_path / "results")
    assert figures.ingress == pytest.approx(200, rel=0.01)
    assert figures.egress == pytest.approx(600, rel=0.01)
    assert (figures.sp_ratio, figures.missing, figures.duplicates) == (3.0, 1, 2)
    assert figures.order_violations == 0
    latency = figures.latency["throughput.sent"]
    assert latency.mean == pytest.approx(605, rel=0.02)
    assert manifest.summary.egress == pytest.approx(figures.egress, rel=0.01)
    assert any("records neither broker" in note for note in figures.notes)


def test_machines_of_one_measurement_have_a_file_each(tmp_path: Path) -> None:
    first, *rest = lines()
    sent = written(tmp_path, first, *(line for line in rest if ",S," in line), name="a.csv")
    received = written(tmp_path, first, *(line for line in rest if ",R," in line), name="b.csv")
    with pytest.raises(CorruptLog, match=r"a.csv: no message that was received: give the files of all"):
        import_run([sent], tmp_path)
    import_run([sent, received], tmp_path)
    receives = pq.ParquetFile(log_file(run_directory(tmp_path, "a"), "receive", "mqttloader")).read()
    assert len(receives) == 4 * 100 * 2 * 3


def test_what_nobody_has_sent_is_left_out_and_noted(tmp_path: Path) -> None:
    path = written(tmp_path, *lines(), f"{START + 77_777},{SUBSCRIBERS[0]},R,5")
    name = import_run([path], tmp_path)
    notes = Manifest.read(run_directory(tmp_path, name)).notes
    assert "1 received messages are left out: no file has when they were sent." in notes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (["1,a,S,"], "line 1: TIME,,, stands in the first line"),
        (["1,,,", "2,a,S,", "3,,,"], "line 3: TIME,,, stands in the first line"),
        (["1,,,", "2,a,X,"], "line 2: neither TIME,CLIENT,S, nor"),
        (["1,,,", "2,a,S,", "3,b,R,"], "line 3: neither TIME,CLIENT,S, nor"),
        (["1,,,", "2,,S,"], "line 2: neither TIME,CLIENT,S, nor"),
        (["1,,,", "two,a,S,"], "is no record of MQTTLoader 0.8: .*'two'"),
        (["1,,,", "2,a,S"], "is no record of MQTTLoader 0.8: .*[Rr]ow"),
        (["1,,,"], "no message that was sent"),
    ],
)
def test_other_files_are_refused(content: list[str], reason: str, tmp_path: Path) -> None:
    path = written(tmp_path, *content)
    with pytest.raises(CorruptLog, match=reason) as refused:
        read_records([path])
    assert refused.value.path == path


def test_ramps_leave_something(tmp_path: Path) -> None:
    with pytest.raises(CorruptLog, match=r"which two ramps of 2\.5 s do not leave"):
        import_run([written(tmp_path, *lines())], tmp_path, ramp=2.5)


def test_a_summary_is_a_table_beside_the_figures(tmp_path: Path) -> None:
    summary, records = written(tmp_path, SUMMARY, name="out.txt"), written(tmp_path, *lines())
    assert (is_summary(summary), is_summary(records)) == (True, False)
    rows = summary_table(summary)
    assert rows[1:] == [
        ["publisher: maximum throughput", "msg/s", "120"],
        ["publisher: average throughput", "msg/s", "110.5"],
        ["publisher: number of published messages", "", "221"],
        ["subscriber: number of received messages", "", "663"],
        ["subscriber: average latency", "ms", "1.396"],
    ]
    names, tables = imported_from([records, summary], tmp_path / "results", 0.0)
    assert tables == [rows]
    assert runs_below(tmp_path / "results", names, print) == {tmp_path / "results": names}
    with pytest.raises(CorruptLog, match="has no numbers"):
        summary_table(written(tmp_path, "-----Publisher-----", name="empty.txt"))
    with pytest.raises(MissingLog, match=r"none\.csv: not there"):
        imported_from([tmp_path / "none.csv"], tmp_path, 0.0)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, "1,,,", "2,a,X,")
    done = CliRunner().invoke(app, ["analyse", str(tmp_path), "--mqttloader", str(path)])
    assert done.exit_code == 1
    assert f"error: {path}: line 2: neither" in done.output
