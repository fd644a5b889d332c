"""Writing the logs of a worker beside the load: the arrays go to a thread that writes Parquet.

The thread spends nearly all of its time in Arrow, outside of Python's lock, so the load goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ildm_bench.load.connection import LoadError
from ildm_bench.load.publisher import Publisher
from ildm_bench.load.subscriber import Batch
from ildm_bench.measure.schema import RECEIVE, SEND, log_file

ROW_GROUP = 1 << 18
"""Rows of a Parquet row group."""
PART = 1 << 14
"""Rows that are put together and handed to the thread at once: a stall of less than a millisecond."""
REPEATED = ["topic", "publisher", "subscriber"]
WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "write_page_checksum": True,
    # a seventh of the CPU that the writer's defaults take, and files two thirds of the size
    "use_dictionary": REPEATED,
}
WAITING = 256
"""Such parts that may wait for the disk; more, and the run ends with an error."""


def warm_up() -> None:
    """Arrow imports pandas when it first sees an array of numpy: not while there is a load."""
    pa.array(np.zeros(1))


class LogWriter:
    """The log of one role of one worker."""

    def __init__(self, directory: Path, role: str, worker: str, schema: pa.Schema) -> None:
        """Raises: LoadError, there is no place for it."""
        self.path = log_file(directory, role, worker)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LoadError(f"{self.path.parent}: {error}") from error
        self._schema = schema
        deltas = [name for name in schema.names if name not in REPEATED]
        self._encoding = dict.fromkeys(deltas, "DELTA_BINARY_PACKED")
        self._queue: queue.Queue[list[Any] | None] = queue.Queue(WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"log-{role}", daemon=True)
        self._thread.start()

    def put(self, columns: list[Any], *, wait: bool = False) -> None:
        """Hand over one group of rows, an array for each column; ``wait`` for room where there is no load.

        Raises:
            LoadError: the disk is full, or too slow for the load.
        """
        self._check()
        try:
            self._queue.put(columns, block=wait)
        except queue.Full:
            raise LoadError(f"{self.path} cannot be written as fast as messages come") from None

    def close(self) -> None:
        """Write what waits and the end of the file.

        Raises:
            LoadError: it could not be written.
        """
        self.discard()
        self._check()

    def discard(self) -> None:
        """End the thread, whatever has become of the file."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise LoadError(f"{self.path}: {self._error}") from self._error

    def _run(self) -> None:
        ended = False
        try:
            with pq.ParquetWriter(
                self.path, self._schema, column_encoding=self._encoding, **WRITING
            ) as writer:
                waiting: list[pa.RecordBatch] = []
                while (columns := self._queue.get()) is not None:
                    arrays = [pa.array(column) for column in columns]
                    waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
                    if sum(batch.num_rows for batch in waiting) >= ROW_GROUP:
                        writer.write_table(pa.Table.from_batches(waiting))
                        waiting = []
                ended = True
                if waiting:
                    writer.write_table(pa.Table.from_batches(waiting))
        except Exception as error:  # whatever it is, the load has to end with it
            self._error = error
            while not ended:
                ended = self._queue.get() is None


class ReceiveLog:
    """Gathers the batches of the subscribers to groups of rows."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._writer = LogWriter(directory, "receive", worker, RECEIVE)
        self._batches: list[Batch] = []
        self._rows = 0

    def add(self, batch: Batch) -> None:
        """Raises: LoadError."""
        self._batches.append(batch)
        self._rows += len(batch.records)
        if self._rows >= PART:
            self._hand_over()

    def close(self) -> None:
        """Raises: LoadError."""
        if self._batches:
            self._hand_over()
        self._writer.close()

    def discard(self) -> None:
        """The load has failed: nobody needs the log."""
        self._batches.clear()
        self._writer.discard()

    def _hand_over(self) -> None:
        batches, self._batches, self._rows = self._batches, [], 0
        records = np.concatenate([batch.records for batch in batches])
        subscriber = np.concatenate([batch.subscriber for batch in batches])
        received = np.concatenate([batch.received_ns for batch in batches])
        arrival = np.concatenate([batch.arrival for batch in batches])
        self._writer.put([*_sender_columns(records), subscriber, received, arrival])


def _sender_columns(records: Any) -> list[Any]:
    return [
        records["topic"].astype(np.int16),
        records["publisher"].astype(np.int32),
        records["seq"].astype(np.int64),
        records["intended_ns"].astype(np.int64),
        records["sent_ns"].astype(np.int64),
    ]


def write_send_log(directory: Path, worker: str, publishers: Sequence[Publisher]) -> None:
    """The log of what was sent; written when the load is over.

    Raises:
        LoadError: it could not be written.
    """
    writer = LogWriter(directory, "send", worker, SEND)
    waiting: list[list[Any]] = []
    rows = 0
    try:
        for publisher in publishers:
            sent = np.frombuffer(publisher.sent_ns, np.int64)
            numbers = np.arange(len(sent), dtype=np.int64)
            start = publisher.schedule.time_of(publisher.place, 0)
            waiting.append(
                [
                    np.full(len(sent), publisher.topic_index, np.int16),
                    np.full(len(sent), publisher.number, np.int32),
                    numbers,
                    start + numbers * publisher.schedule.interval_ns,
                    sent,
                ]
            )
            rows += len(sent)
            if rows >= ROW_GROUP or publisher is publishers[-1]:
                writer.put([np.concatenate(column) for column in zip(*waiting, strict=True)], wait=True)
                waiting, rows = [], 0
    finally:
        writer.close()
