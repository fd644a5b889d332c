"""Records of MQTTLoader (github.com/dist-sys/mqttloader, 0.8) as a run of the pipeline.

With ``output`` set MQTTLoader writes a CSV file with a line for each message: ``TIME,CLIENT,S,`` of what was
sent and ``TIME,CLIENT,R,LATENCY`` of what was received, in microseconds; the first line is ``TIME,,,``, when
the measurement began. A received message does not say which one it is. It is the one that was sent at its
time less its latency, which MQTTLoader takes from the payload. Of several sent in the same microsecond a
subscriber is taken to get each once.

Without ``output`` there is the summary on standard output alone, of which `summary_table` makes a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from ildm_bench.analysis.errors import CorruptLog, MissingLog
from ildm_bench.load.scenario import Scenario, Topic
from ildm_bench.measure.manifest import Client, Generator, Manifest, Summary, Worker
from ildm_bench.measure.schema import NETWORK, RECEIVE, RESOURCES, SEND, log_file, run_directory

WORKER = "mqttloader"
COLUMNS = {"time": pa.int64(), "client": pa.string(), "event": pa.string(), "latency": pa.int64()}
NOTES = (
    "Imported from MQTTLoader, which records neither broker, QoS and payload nor how its own load was met.",
    "Deliveries are counted as if each subscriber wanted each message: not so with shared_subscription.",
)
_NUMBER = re.compile(r"^([A-Z][A-Za-z ]+?)(?: \[([a-z/]+)\])?: ([0-9]+(?:\.[0-9]+)?)$")
_SECTION = re.compile(r"^-+(Publisher|Subscriber)-+$")

Column = np.ndarray


class Records(NamedTuple):
    """All files together; times in microseconds since the epoch."""

    began: int
    publishers: list[str]
    subscribers: list[str]
    sent: Column
    """When; in the order of time."""
    sender: Column
    """Which of ``publishers``."""
    received: Column
    receiver: Column
    """Which of ``subscribers``."""
    latency: Column


def read_records(paths: Sequence[Path]) -> Records:
    """Read the files of one measurement: one, or that of each machine.

    Raises:
        MissingLog: a file is not there.
        CorruptLog: it is no record of MQTTLoader, or has neither sent nor received messages.
    """
    tables = [_read(path) for path in paths]
    began = min(start for start, _ in tables)
    whole = pa.concat_tables([table for _, table in tables])
    events = whole["event"].to_numpy(zero_copy_only=False)
    times = whole["time"].to_numpy()
    clients = whole["client"].to_numpy(zero_copy_only=False)
    latencies = whole["latency"].fill_null(0).to_numpy()
    is_sent, is_received = events == "S", events == "R"
    for what, mask in (("sent", is_sent), ("received", is_received)):
        if not mask.any():
            raise CorruptLog(paths[0], f"no message that was {what}: give the files of all machines")
    order = np.argsort(times[is_sent], kind="stable")
    publishers, sender = np.unique(clients[is_sent][order].astype(str), return_inverse=True)
    subscribers, receiver = np.unique(clients[is_received].astype(str), return_inverse=True)
    return Records(
        began,
        publishers.tolist(),
        subscribers.tolist(),
        times[is_sent][order],
        sender,
        times[is_received],
        receiver,
        latencies[is_received],
    )


def _read(path: Path) -> tuple[int, pa.Table]:
    """When the measurement began, and the lines after that."""
    if not path.exists():
        raise MissingLog(path, "not there")
    options = pc.ConvertOptions(column_types=COLUMNS, null_values=[""], strings_can_be_null=False)
    try:
        table = pc.read_csv(
            path,
            pc.ReadOptions(column_names=list(COLUMNS), use_threads=False),  # errors name the line then
            convert_options=options,
        )
    except (pa.ArrowException, OSError) as error:
        raise CorruptLog(path, f"is no record of MQTTLoader 0.8: {str(error).splitlines()[0]}") from error
    events = table["event"].to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(events == "")
    if starts.tolist() != [0] or not table["time"][0].is_valid:
        where = int(starts[starts > 0][0]) + 1 if (starts > 0).any() else 1
        raise CorruptLog(path, f"line {where}: TIME,,, stands in the first line, and there alone")
    rest = table.slice(1)
    bad = ~np.isin(events[1:], ("S", "R")) | rest["time"].is_null().to_numpy()
    bad |= (events[1:] == "R") & rest["latency"].is_null().to_numpy()
    bad |= rest["client"].to_numpy(zero_copy_only=False) == ""
    if bad.any():
        raise CorruptLog(
            path, f"line {int(np.flatnonzero(bad)[0]) + 2}: neither TIME,CLIENT,S, nor TIME,CLIENT,R,LATENCY"
        )
    return table["time"][0].as_py(), rest


def _ranks(*keys: Column) -> Column:
    """Of each row how many rows before it have the same keys."""
    order = np.lexsort(tuple(reversed(keys)))  # stable
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - first
    return ranks


def matched(records: Records) -> Column:
    """Of each received message the index of the one sent, -1 where no file has it."""
    at = records.received - records.latency
    order = np.lexsort((records.received, at, records.receiver))
    occurrence = np.empty(len(at), dtype=np.int64)
    occurrence[order] = _ranks(records.receiver[order], at[order])
    first = np.searchsorted(records.sent, at, "left")
    count = np.searchsorted(records.sent, at, "right") - first
    # more than were sent at that time are repetitions
    return np.where(count > 0, first + np.minimum(occurrence, np.maximum(count - 1, 0)), -1)


def import_run(paths: Sequence[Path], results: Path, ramp: float = 0.0) -> str:
    """Write the records as a run below ``results``; its name, that of the first file.

    ``ramp``: seconds at the beginning and at the end that do not count, as ``ramp_up`` and ``ramp_down``.

    Raises:
        MissingLog, CorruptLog: as `read_records`; the measurement is not longer than the ramps.
    """
    records = read_records(paths)
    found = matched(records)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", paths[0].stem)
    directory = run_directory(results, name)
    known = found >= 0
    seq = _ranks(records.sender)
    began, ended = records.began * 1000, int(records.sent[-1] + 1) * 1000
    window = began + round(ramp * 1e9), ended - round(ramp * 1e9)
    if window[0] >= window[1]:
        raise CorruptLog(
            paths[0], f"is {(ended - began) / 1e9:g} s long, which two ramps of {ramp:g} s do not leave"
        )
    send: dict[str, Column] = {
        "topic": np.zeros(len(seq), dtype=np.int16),
        "publisher": records.sender.astype(np.int32),
        "seq": seq,
        "intended_ns": records.sent * 1000,
        "sent_ns": records.sent * 1000,
    }
    of = found[known]
    receiver, received = records.receiver[known], records.received[known]
    order = np.lexsort((received, receiver))
    arrival = np.empty(len(order), dtype=np.int64)
    arrival[order] = _ranks(receiver[order])
    receive: dict[str, Column] = {column: values[of] for column, values in send.items()} | {
        "subscriber": (receiver + len(records.publishers)).astype(np.int32),
        "received_ns": received * 1000,
        "arrival": arrival,
    }
    for role, schema, columns in (("send", SEND, send), ("receive", RECEIVE, receive)):
        path = log_file(directory, role, WORKER)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
    for file, schema in (("resources", RESOURCES), ("network", NETWORK)):
        pq.write_table(schema.empty_table(), directory / f"{file}.parquet")
    notes = [*NOTES, f"Files: {', '.join(path.name for path in paths)}."]
    if unknown := int((~known).sum()):
        notes.append(f"{unknown} received messages are left out: no file has when they were sent.")
    _manifest(records, name, window, ended, send, receive, ramp, notes).write(directory)
    return name


def _manifest(
    records: Records,
    name: str,
    window: tuple[int, int],
    ended: int,
    send: dict[str, Column],
    receive: dict[str, Column],
    ramp: float,
    notes: list[str],
) -> Manifest:
    began = records.began * 1000
    publishers, subscribers = len(records.publishers), len(records.subscribers)
    duration = (ended - began) / 1e9
    sent = int(((window[0] <= send["sent_ns"]) & (send["sent_ns"] < window[1])).sum())
    got = int(((window[0] <= receive["received_ns"]) & (receive["received_ns"] < window[1])).sum())
    seconds = (window[1] - window[0]) / 1e9
    interval = max(0.001, 1000 * duration * publishers / len(records.sent))
    clients = [
        *((each, True) for each in records.publishers),
        *((each, False) for each in records.subscribers),
    ]
    return Manifest(
        run=name,
        label="MQTTLoader",
        scenario=Scenario(
            name="mqttloader",
            duration=duration,
            warm_up=ramp,
            cool_down=ramp,
            interval=interval,
            topics=[Topic(name="mqttloader", publishers=publishers, subscribers=subscribers)],
        ),
        interval_ms=interval,
        targets=[],
        began_ns=began,
        window_begin_ns=window[0],
        window_end_ns=window[1],
        ended_ns=ended,
        wall_time=datetime.fromtimestamp(records.began / 1e6, UTC).isoformat(),
        clients=[
            Client(client_id=each, topic=0, site=0, publisher=publisher, worker=WORKER)
            for each, publisher in clients
        ],
        workers=[Worker(name=WORKER, host="", clock_offset_ns=0, clock_error_ns=0, cpu_seconds=0.0)],
        processes=[],
        generator=Generator(
            intended=sent,
            sent=sent,
            late=0,
            blocked=0,
            lag_p50_us=0,
            lag_p99_us=0,
            lag_max_us=0,
            verdict="ok",
        ),
        summary=Summary(
            ingress=sent / seconds,
            egress=got / seconds,
            ratio=got / (sent * subscribers) if sent else 0.0,
            expected=len(records.sent) * subscribers,
            received=len(receive["seq"]),
        ),
        machine="",
        notes=notes,
    )


def is_summary(path: Path) -> bool:
    """Whether a file is what MQTTLoader wrote to standard output, not its records."""
    with path.open(errors="replace") as file:
        return any(_SECTION.match(line.strip()) for _, line in zip(range(1000), file, strict=False))


def summary_table(path: Path) -> list[list[str]]:
    """The numbers of a summary: heading, then a row for each with its unit and value.

    Raises:
        CorruptLog: there are none.
    """
    rows, section = [["", "", "MQTTLoader"]], ""
    for line in path.read_text(errors="replace").splitlines():
        if found := _SECTION.match(line.strip()):
            section = found[1].lower()
        elif section and (number := _NUMBER.match(line.strip())):
            rows.append([f"{section}: {number[1].lower()}", number[2] or "", number[3]])
    if len(rows) == 1:
        raise CorruptLog(path, "has no numbers of MQTTLoader's summary")
    return rows
