"""The figures of a run once more, worked out in the most literal way."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.schema import run_directory


@dataclass
class Truth:
    ingress: int
    egress: int
    per_second: dict[int, tuple[int, int]]
    losses: dict[str, tuple[int, int]]
    expected: int
    missing: int
    duplicates: int
    order_violations: int
    latencies: dict[str, list[int]]


def truth(results: Path, manifest: Manifest) -> Truth:
    """Counts of the run; ``latencies`` are the sorted values by key."""
    directory = run_directory(results, manifest.run)
    sent, received = (_rows(directory / f"role={role}") for role in ("send", "receive"))
    kinds = [topic.clients for topic in manifest.scenario.topics]
    begin, end, began = manifest.window_begin_ns, manifest.window_end_ns, manifest.began_ns
    sent_inside = [row for row in sent if begin <= row["sent_ns"] < end]
    received_inside = [row for row in received if begin <= row["received_ns"] < end]

    def throughput(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if kinds[row["topic"]] == "throughput"]

    ingress = Counter((row["sent_ns"] - began) // 10**9 for row in throughput(sent))
    egress = Counter((row["received_ns"] - began) // 10**9 for row in throughput(received))
    got = Counter((row["subscriber"], row["publisher"], row["seq"]) for row in received)
    losses: dict[str, tuple[int, int]] = {}
    expected = missing = 0
    for number, client in enumerate(manifest.clients):
        if client.publisher:
            continue
        due = [row for row in sent_inside if row["topic"] == client.topic]
        lost = sum((number, row["publisher"], row["seq"]) not in got for row in due)
        if lost:
            losses[client.client_id] = len(due), lost
        if kinds[client.topic] == "throughput":
            expected, missing = expected + len(due), missing + lost
    by_pair: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    latencies: dict[str, list[int]] = defaultdict(list)
    for row in received:
        by_pair[row["publisher"], row["subscriber"]].append((row["arrival"], row["seq"]))
    for row in received_inside:
        for since in ("sent", "intended"):
            latency = max(row["received_ns"] - row[f"{since}_ns"], 0)
            latencies[f"{kinds[row['topic']]}.{since}"].append(latency)
    return Truth(
        ingress=len(throughput(sent_inside)),
        egress=len(throughput(received_inside)),
        per_second={second: (ingress[second], egress[second]) for second in {*ingress, *egress}},
        losses=losses,
        expected=expected,
        missing=missing,
        duplicates=sum(got.values()) - len(got),
        order_violations=sum(
            any(earlier < arrival and before > seq for earlier, before in pair)
            for pair in by_pair.values()
            for arrival, seq in pair
        ),
        latencies={key: sorted(values) for key, values in latencies.items()},
    )


def _rows(directory: Path) -> list[dict[str, Any]]:
    return [
        row for path in sorted(directory.glob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()
    ]
