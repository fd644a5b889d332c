"""What still waits at the end of the window, from the logs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ildm_bench.load.verdict import queued
from ildm_bench.measure.schema import RECEIVE, SEND, log_file

END = 1000


def write(directory: Path, role: str, rows: Sequence[tuple[int, ...]]) -> None:
    """``rows``: topic, when sent, and for receivers when received."""
    for place in range(0, len(rows), 2):  # a file of each worker
        path = log_file(directory, role, f"worker-{place}")
        path.parent.mkdir(exist_ok=True)
        of_file = [
            {"topic": topic, "publisher": 0, "seq": 0, "intended_ns": sent, "sent_ns": sent}
            | ({"subscriber": 1, "received_ns": received[0], "arrival": 0} if received else {})
            for topic, sent, *received in rows[place : place + 2]
        ]
        schema = SEND if role == "send" else RECEIVE
        pq.write_table(pa.Table.from_pylist(of_file, schema=schema), path)


@pytest.mark.parametrize(
    ("received", "waiting"),
    [
        ([(0, 10, 20), (0, 10, 20), (0, 900, 990), (0, 900, 990)], 0),
        ([(0, 10, 20), (0, 10, 20), (0, 900, 999), (0, 900, 1000)], 1),
        ([(0, 10, 20), (0, 10, 20)], 2),
        ([(0, 10, 20), (0, 10, 20), (0, 900, 990), (0, 900, 990), (0, 1000, 1001)], 0),
        ([(0, 10, 20)] * 3 + [(0, 900, 990)] * 2, 0),
        ([], 4),
    ],
)
def test_deliveries_that_are_due_and_not_made_by_the_end(
    tmp_path: Path, received: list[tuple[int, ...]], waiting: int
) -> None:
    # two messages to two subscribers within the window, one after it, and one of l-clients
    write(tmp_path, "send", [(0, 10), (0, 900), (0, 1000), (1, 10)])
    write(tmp_path, "receive", received)
    assert queued(tmp_path, {0: 2}, END) == waiting


def test_without_logs_nothing_waits(tmp_path: Path) -> None:
    assert queued(tmp_path, {0: 2}, END) == 0
