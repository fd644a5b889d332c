"""What a run leaves on disk, and the columns of its log files.

A run is a directory ``run=ID`` below a directory of results::

    run=ID/run.json                          the manifest (`ildm_bench.measure.manifest.Manifest`)
    run=ID/role=send/WORKER.parquet          one row for each PUBLISH that a publisher handed to its socket
    run=ID/role=receive/WORKER.parquet       one row for each PUBLISH that a subscriber got
    run=ID/resources.parquet                 samples of the processes that took part
    run=ID/network.parquet                   samples of the kernel's TCP counters

All times are nanoseconds on one clock, that of the coordinator: each worker adds the measured offset of
its own clock, the publisher's before the time goes into the payload. ``topic`` and the clients are the
indexes of the manifest, not names. Files are Parquet with Zstandard; rows are in no order.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

MANIFEST = "run.json"
FIGURES = "figures.json"

SEND = pa.schema(
    [
        pa.field("topic", pa.int16(), nullable=False),
        pa.field("publisher", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),  # from 0, without a gap, for each publisher
        pa.field("intended_ns", pa.int64(), nullable=False),  # when the schedule wanted it sent
        pa.field("sent_ns", pa.int64(), nullable=False),  # when it was handed to the socket
    ]
)
RECEIVE = pa.schema(
    [
        *SEND,
        pa.field("subscriber", pa.int32(), nullable=False),
        pa.field("received_ns", pa.int64(), nullable=False),  # when the chunk that it came in was read
        pa.field("arrival", pa.int64(), nullable=False),  # ordinal of the message at its subscriber, from 0
    ]
)
RESOURCES = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("process", pa.string(), nullable=False),  # name in the manifest, its children included
        pa.field("user_s", pa.float64(), nullable=False),  # CPU seconds since the start of the process
        pa.field("system_s", pa.float64(), nullable=False),
        pa.field("rss_bytes", pa.int64(), nullable=False),
        pa.field("threads", pa.int32(), nullable=False),
        pa.field("voluntary_switches", pa.int64(), nullable=False),
        pa.field("involuntary_switches", pa.int64(), nullable=False),
    ]
)
NETWORK = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("namespace", pa.string(), nullable=False),  # network namespace: "host" or the site's name
        pa.field("counter", pa.string(), nullable=False),  # the kernel's name, such as RetransSegs
        pa.field("value", pa.int64(), nullable=False),  # since the namespace began
    ]
)
ROLES = {"send": SEND, "receive": RECEIVE}
"""Schemas of the two logs; ``role`` and ``run`` come from the names of the directories."""


def run_directory(results: Path, run: str) -> Path:
    return results / f"run={run}"


def log_file(directory: Path, role: str, worker: str) -> Path:
    """The log of one worker in the directory of a run."""
    return directory / f"role={role}" / f"{worker}.parquet"
