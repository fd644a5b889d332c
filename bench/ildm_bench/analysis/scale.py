"""How the pipeline grows: ``python -m ildm_bench.analysis.scale --rows 1000000 50000000``.

For each number of rows a run with that many rows in its receive log is made up: 40 publishers and 8
subscribers of 4 topics, each message to the 2 subscribers of its topic, a log file for each topic, latencies
of log-normal distribution. Then the pipeline runs over it in a process of its own.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.manifest import Client, Generator, Manifest, Summary, Worker
from ildm_bench.measure.schema import RECEIVE, SEND, log_file, run_directory
from ildm_bench.micro.measure import machine
from ildm_bench.options import LOCAL

TOPICS, PUBLISHERS, SUBSCRIBERS = 4, 10, 2
SECONDS = 80
RUN = "scale"
_CHUNK = 250_000
"""Messages of a topic that are made at once."""


@dataclass(frozen=True)
class Measured:
    """One measurement of the pipeline."""

    rows: int
    file_bytes: int
    seconds: float
    java_bytes: int
    """Largest resident memory of the Java processes, the driver and its launcher."""


def write_run(results: Path, rows: int, seed: int = 1) -> int:
    """A run with ``rows`` rows received, rounded down to a multiple of 8; bytes of its logs."""
    per_topic = rows // (TOPICS * SUBSCRIBERS)
    began = 1_750_000_000_000_000_000
    step = SECONDS * 1_000_000_000 // max(1, per_topic)
    directory = run_directory(results, RUN)
    clients = _clients()
    chance = np.random.default_rng(seed)
    log_file(directory, "send", "w0").parent.mkdir(parents=True)
    log_file(directory, "receive", "w0").parent.mkdir()
    for topic in range(TOPICS):
        numbers = {
            role: [n for n, c in enumerate(clients) if c.topic == topic and c.publisher == (role == "send")]
            for role in ("send", "receive")
        }
        with (
            pq.ParquetWriter(log_file(directory, "send", f"w{topic}"), SEND, compression="zstd") as send,
            pq.ParquetWriter(
                log_file(directory, "receive", f"w{topic}"), RECEIVE, compression="zstd"
            ) as receive,
        ):
            for start in range(0, per_topic, _CHUNK):
                place = np.arange(start, min(start + _CHUNK, per_topic), dtype=np.int64)
                intended = began + place * step
                sent = intended + chance.integers(0, 20_000, place.size)
                message: list[np.ndarray] = [
                    np.full(place.size, topic, np.int16),
                    np.asarray(numbers["send"], np.int32)[place % PUBLISHERS],
                    place // PUBLISHERS,
                    intended,
                    sent,
                ]
                send.write_table(_table(message, SEND))
                for subscriber in numbers["receive"]:
                    latency = chance.lognormal(13.0, 0.7, place.size).astype(np.int64)
                    columns: list[np.ndarray] = [
                        *message,
                        np.full(place.size, subscriber, np.int32),
                        np.maximum.accumulate(sent + latency),
                        place,
                    ]
                    receive.write_table(_table(columns, RECEIVE))
    _manifest(clients, began).write(directory)
    return sum(path.stat().st_size for path in directory.glob("role=*/*.parquet"))


def measure(rows: int, memory: str, master: str) -> Measured:
    """Make a run up and put the pipeline over it.

    Raises:
        RuntimeError: the pipeline failed, or did not count what was made up.
    """
    with tempfile.TemporaryDirectory(prefix="ildm-scale-") as place:
        results = Path(place)
        size = write_run(results, rows)
        command = [sys.executable, "-m", "ildm_bench.analysis.job", place]
        start = time.monotonic()
        with (results / "log").open("w+") as log:
            child = subprocess.Popen(
                [*command, "--driver-memory", memory, "--master", master], stdout=log, stderr=log
            )
            largest = _watch(child)
            seconds = time.monotonic() - start
            log.seek(0)
            said = log.read()
        if child.returncode:
            raise RuntimeError(f"the pipeline ended with status {child.returncode}:\n{said[-3000:]}")
        counted = re.search(r"(\d+) received", said)
        if counted is None or int(counted[1]) != rows // 8 * 8:
            raise RuntimeError(f"the pipeline did not count {rows // 8 * 8} rows:\n{said[-3000:]}")
        return Measured(rows, size, seconds, largest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m ildm_bench.analysis.scale", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 50_000_000])
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--master", default=LOCAL)
    options = parser.parse_args(arguments)
    print(f"{machine()}; {options.master}, driver memory {options.driver_memory}")
    print(
        f"{'rows':>12}  {'files MB':>9}  {'seconds':>8}  {'s/million':>9}  {'Java peak MB':>12}", flush=True
    )
    for rows in options.rows:
        it = measure(rows, options.driver_memory, options.master)
        print(
            f"{it.rows:>12}  {it.file_bytes / 1e6:>9.1f}  {it.seconds:>8.1f}  "
            f"{it.seconds / it.rows * 1e6:>9.2f}  {it.java_bytes / 1e6:>12.0f}",
            flush=True,
        )
    return 0


def _watch(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> int:
    """Wait for its end; the largest resident memory of its Java processes, looked at four times a second."""
    largest = 0
    while True:
        try:
            child.wait(0.25)
        except subprocess.TimeoutExpired:
            largest = max(largest, _java_bytes(child.pid))
        else:
            return largest


def _java_bytes(pid: int) -> int:
    total = 0
    try:
        for process in psutil.Process(pid).children(recursive=True):
            if process.name() == "java":
                total += process.memory_info().rss
    except psutil.NoSuchProcess:
        return total  # it has just ended, and the next look will tell that
    return total


def _clients() -> list[Client]:
    return [
        Client(
            client_id=f"{'p' if publisher else 's'}{topic}.{number}",
            topic=topic,
            site=0,
            publisher=publisher,
            worker=f"w{topic}",
        )
        for topic in range(TOPICS)
        for publisher, count in ((True, PUBLISHERS), (False, SUBSCRIBERS))
        for number in range(count)
    ]


def _manifest(clients: list[Client], began: int) -> Manifest:
    second = 1_000_000_000
    topics = [{"name": f"t{n}", "publishers": PUBLISHERS, "subscribers": SUBSCRIBERS} for n in range(TOPICS)]
    return Manifest(
        run=RUN,
        scenario=Scenario.model_validate({"name": RUN, "topics": topics}),
        interval_ms=1,
        targets=[],
        began_ns=began,
        window_begin_ns=began + 10 * second,
        window_end_ns=began + (SECONDS - 10) * second,
        ended_ns=began + SECONDS * second,
        wall_time="2026-01-01T00:00:00+00:00",
        clients=clients,
        workers=[
            Worker(name=f"w{n}", host="", clock_offset_ns=0, clock_error_ns=0, cpu_seconds=0)
            for n in range(TOPICS)
        ],
        processes=[],
        generator=Generator(
            intended=0, sent=0, late=0, blocked=0, lag_p50_us=0, lag_p99_us=0, lag_max_us=0, verdict="ok"
        ),
        summary=Summary(ingress=0, egress=0, ratio=0, expected=0, received=0),
        machine="",
    )


def _table(columns: list[np.ndarray], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


if __name__ == "__main__":
    sys.exit(main())
