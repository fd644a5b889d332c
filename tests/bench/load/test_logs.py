"""Logs: complete, beside the load, and an error with the file's name where the disk takes no more."""

from __future__ import annotations

import asyncio
import os
import threading
from array import array
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ildm.mqtt import Version
from ildm_bench.load import logs, payload
from ildm_bench.load.connection import LoadError
from ildm_bench.load.logs import WAITING, LogWriter, ReceiveLog, write_send_log
from ildm_bench.load.pacing import Schedule
from ildm_bench.load.publisher import Publisher
from ildm_bench.load.subscriber import Batch
from ildm_bench.measure.schema import RECEIVE, SEND, log_file
from tests.bench.load.support import message, scenario


def _batch(subscriber: int, first: int, count: int) -> Batch:
    data = b"".join(message(first + k, topic=4, publisher=9) for k in range(count))
    records = payload.decode(np.frombuffer(data, np.uint8).reshape(count, payload.SIZE))
    arrival = np.arange(first, first + count, dtype=np.int64)
    return Batch(records, arrival + 10**6, np.full(count, subscriber, np.int32), arrival)


def _row(seq: int) -> list[np.ndarray]:
    """One row of a send log."""
    columns = [np.array([value]) for value in (0, 0, seq, 1, 2)]
    return [column.astype(field.type.to_pandas_dtype()) for column, field in zip(columns, SEND, strict=True)]


def _log_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("log-")]


def test_every_message_received_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ROW_GROUP", 10)
    monkeypatch.setattr(logs, "PART", 10)
    log = ReceiveLog(tmp_path, "w")
    for batch in (_batch(1, 0, 7), _batch(2, 0, 7), _batch(1, 7, 1), _batch(2, 7, 30)):
        log.add(batch)
    log.close()
    file = pq.ParquetFile(log_file(tmp_path, "receive", "w"))
    table = file.read()
    assert table.schema.equals(RECEIVE)
    assert file.metadata.num_row_groups == 2
    assert {file.metadata.row_group(0).column(n).compression for n in range(8)} == {"ZSTD"}
    expected = [(s, seq) for s, of in ((1, 7), (2, 7)) for seq in range(of)]
    expected += [(1, 7), *((2, seq) for seq in range(7, 37))]
    rows = table.to_pylist()
    assert [(row["subscriber"], row["arrival"]) for row in rows] == expected
    for row in rows:
        seq = row["arrival"]
        assert (row["topic"], row["publisher"], row["seq"]) == (4, 9, seq)
        assert (row["intended_ns"], row["sent_ns"], row["received_ns"]) == (
            10 * seq,
            10 * seq + 1,
            seq + 10**6,
        )
    assert not _log_threads()


@pytest.mark.parametrize("group", [1, 7, 1 << 18])
def test_every_message_sent_becomes_a_row(
    tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROW_GROUP", group)

    async def publishers() -> list[Publisher]:
        found = [Publisher(n, "p", "h:1", Version.V311, n % 2, scenario()) for n in range(4)]
        for place, publisher in enumerate(found):
            publisher.schedule = Schedule(1000, 9000, 100, 4)
            publisher.place = place
            publisher.sent_ns = array("q", [5000 + 10 * k for k in range(5 * place)])
        return found

    write_send_log(tmp_path, "w", asyncio.run(publishers()))
    table = pq.ParquetFile(log_file(tmp_path, "send", "w")).read()
    assert table.schema.equals(SEND)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (place % 2, place, k, 1000 + 25 * place + 100 * k, 5000 + 10 * k)
        for place in range(4)
        for k in range(5 * place)
    ]
    assert not _log_threads()


def test_a_worker_without_clients_leaves_empty_logs(tmp_path: Path) -> None:
    ReceiveLog(tmp_path, "w").close()
    write_send_log(tmp_path, "w", [])
    for role, schema in (("receive", RECEIVE), ("send", SEND)):
        table = pq.ParquetFile(log_file(tmp_path, role, "w")).read()
        assert table.schema.equals(schema)
        assert table.num_rows == 0


def test_a_disk_that_is_slow_stalls_nothing_until_it_is_too_slow(tmp_path: Path) -> None:
    path = log_file(tmp_path, "send", "w")
    path.parent.mkdir()
    os.mkfifo(path)  # to open it for writing waits for a reader
    log = LogWriter(tmp_path, "send", "w", SEND)
    for seq in range(WAITING):
        log.put(_row(seq))
    with pytest.raises(LoadError, match=f"{path} cannot be written as fast as messages come"):
        log.put(_row(WAITING))
    with path.open("rb"):
        log.discard()
    assert not _log_threads()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = log_file(tmp_path, "send", "w")
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    log = LogWriter(tmp_path, "send", "w", SEND)
    with suppress(LoadError):  # if it has been found already
        log.put(_row(0))
    with pytest.raises(LoadError, match=rf"{path}: .*No space left on device"):
        log.close()
    with pytest.raises(LoadError, match="No space left on device"):
        log.put(_row(1))
    assert not _log_threads()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "role=send").write_text("in the way")
    with pytest.raises(LoadError, match="role=send: "):
        LogWriter(tmp_path, "send", "w", SEND)
    assert not _log_threads()
