"""Synthetic runs: a manifest and the log files that its workers would have left."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ildm_bench.load.scenario import Scenario, Topic
from ildm_bench.measure.manifest import Client, Generator, Manifest, Process, Summary, Verdict, Worker
from ildm_bench.measure.schema import RECEIVE, ROLES, SEND, log_file, run_directory

SECOND = 1_000_000_000
BEGAN = 1_750_000_000 * SECOND + 123_456_789


class Sent(NamedTuple):
    topic: int
    publisher: int
    seq: int
    intended_ns: int
    sent_ns: int


class Received(NamedTuple):
    topic: int
    publisher: int
    seq: int
    intended_ns: int
    sent_ns: int
    subscriber: int
    received_ns: int
    arrival: int


def manifest(
    run: str = "one",
    topics: Sequence[tuple[str, int, int]] = (("throughput", 1, 1),),
    *,
    window: tuple[int, int] = (BEGAN + SECOND, BEGAN + 3 * SECOND),
    workers: int = 1,
    verdict: Verdict = "ok",
    processes: Sequence[Process] = (),
) -> Manifest:
    """`topics` are (throughput or latency, publishers, subscribers); clients take turns at the workers."""
    scenario = Scenario(
        name="made-up",
        topics=[
            Topic.model_validate(
                {
                    "name": f"topic/{number}",
                    "clients": kind,
                    "publishers": publishers,
                    "subscribers": subscribers,
                    "interval": 10.0 if kind == "latency" else None,
                }
            )
            for number, (kind, publishers, subscribers) in enumerate(topics)
        ],
    )
    roles = [
        (number, publisher)
        for number, (_, publishers, subscribers) in enumerate(topics)
        for publisher in [True] * publishers + [False] * subscribers
    ]
    return Manifest(
        run=run,
        label=f"label of {run}",
        scenario=scenario,
        interval_ms=10,
        targets=["127.0.0.1:1883"],
        began_ns=BEGAN,
        window_begin_ns=window[0],
        window_end_ns=window[1],
        ended_ns=BEGAN + 4 * SECOND,
        wall_time="2026-01-01T00:00:00+00:00",
        clients=[
            Client(
                client_id=f"client-{n}", topic=topic, site=0, publisher=publisher, worker=f"w{n % workers}"
            )
            for n, (topic, publisher) in enumerate(roles)
        ],
        workers=[
            Worker(name=f"w{n}", host="127.0.0.1", clock_offset_ns=0, clock_error_ns=0, cpu_seconds=0)
            for n in range(workers)
        ],
        processes=list(processes),
        generator=Generator(
            intended=0, sent=0, late=0, blocked=0, lag_p50_us=0, lag_p99_us=0, lag_max_us=0, verdict=verdict
        ),
        summary=Summary(ingress=0, egress=0, ratio=0, expected=0, received=0),
        machine="none",
    )


def write_table(path: Path, schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> Path:
    """A Parquet file with these rows."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd", write_page_checksum=True
    )
    return path


def write_run(
    results: Path, of: Manifest, sent: Sequence[Sent] = (), received: Sequence[Received] = ()
) -> Path:
    """The directory of a run with the manifest and the log that each worker has to write."""
    directory = run_directory(results, of.run)
    directory.mkdir(parents=True)
    of.write(directory)
    for role in ROLES:
        for worker in {c.worker for c in of.clients if c.publisher == (role == "send")}:
            mine = {n for n, c in enumerate(of.clients) if c.worker == worker}
            if role == "send":
                write_table(log_file(directory, role, worker), SEND, [r for r in sent if r.publisher in mine])
            else:
                rows = [r for r in received if r.subscriber in mine]
                write_table(log_file(directory, role, worker), RECEIVE, rows)
    return directory


def every_message(of: Manifest, count: int, interval: int, delay: int) -> tuple[list[Sent], list[Received]]:
    """Each publisher sends `count` messages, `interval` ns apart; each arrives once, `delay` later."""
    sent = [
        Sent(c.topic, n, seq, BEGAN + seq * interval, BEGAN + seq * interval)
        for seq in range(count)
        for n, c in enumerate(of.clients)
        if c.publisher
    ]
    received = [
        Received(*message, n, message.sent_ns + delay, arrival)
        for n, c in enumerate(of.clients)
        if not c.publisher
        for arrival, message in enumerate(m for m in sent if m.topic == c.topic)
    ]
    return sent, received


def random_messages(of: Manifest, chance: random.Random) -> tuple[list[Sent], list[Received]]:
    """Messages that are lost, doubled, held up and received before they were sent, as chance will have it."""
    loss, double, jitter = (chance.choice([0.0, 0.02, 0.4]) for _ in range(3))
    interval = chance.choice([SECOND // 7, SECOND // 40, SECOND // 100 + 1])
    largest = chance.choice([200, 10_000, 50_000_000, 3 * SECOND])
    sent = []
    for number, client in enumerate(of.clients):
        if client.publisher:
            for seq in range(chance.randrange(0, 150)):
                intended = BEGAN + seq * interval
                sent.append(Sent(client.topic, number, seq, intended, intended + chance.randrange(1000)))
    received = []
    for number, client in enumerate(of.clients):
        if client.publisher:
            continue
        queue: list[tuple[float, int, Sent]] = []
        for message in sent:
            if message.topic != client.topic:
                continue
            for _ in range((chance.random() >= loss) + (chance.random() < double)):
                at = message.sent_ns + chance.randrange(-50, largest)
                place = at if chance.random() < jitter else message.sent_ns
                queue.append((place, at, message))
        queue.sort()
        received += [
            Received(*message, number, at, arrival) for arrival, (_, at, message) in enumerate(queue)
        ]
    chance.shuffle(received)
    return sent, received
