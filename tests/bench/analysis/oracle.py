"""The figures of a run once more, worked out by DuckDB in the most literal way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

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
    db = duckdb.connect()
    directory = run_directory(results, manifest.run)
    for role, name in (("send", "s"), ("receive", "r")):
        pattern = directory / f"role={role}" / "*.parquet"
        db.execute(
            f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{pattern}', hive_partitioning = false)"
        )
    db.execute("CREATE TABLE t (topic INT, name TEXT, kind TEXT)")
    for number, topic in enumerate(manifest.scenario.topics):
        db.execute("INSERT INTO t VALUES (?, ?, ?)", [number, topic.name, topic.clients])
    db.execute("CREATE TABLE c (client INT, id TEXT, topic INT, publisher BOOLEAN)")
    for number, client in enumerate(manifest.clients):
        db.execute(
            "INSERT INTO c VALUES (?, ?, ?, ?)", [number, client.client_id, client.topic, client.publisher]
        )

    def ask(query: str) -> list[tuple[Any, ...]]:
        return db.execute(query).fetchall()

    begin, end, began = manifest.window_begin_ns, manifest.window_end_ns, manifest.began_ns
    sent_inside = f"s.sent_ns >= {begin} AND s.sent_ns < {end}"
    received_inside = f"r.received_ns >= {begin} AND r.received_ns < {end}"
    per_second: dict[int, tuple[int, int]] = {}
    for place, (table, time) in enumerate((("s", "sent_ns"), ("r", "received_ns"))):
        for second, count in ask(
            f"SELECT CAST(floor(({time} - {began}) / 1e9) AS BIGINT), count(*) "
            f"FROM {table} JOIN t USING (topic) WHERE kind = 'throughput' GROUP BY 1"
        ):
            pair = list(per_second.get(second, (0, 0)))
            pair[place] = count
            per_second[second] = (pair[0], pair[1])
    per_subscriber = ask(
        f"""
        SELECT c.id, t.kind, count(s.seq),
            count(s.seq) FILTER (NOT EXISTS (
                SELECT 1 FROM r
                WHERE r.publisher = s.publisher AND r.seq = s.seq AND r.subscriber = c.client
            ))
        FROM c JOIN t USING (topic) LEFT JOIN s ON s.topic = c.topic AND {sent_inside}
        WHERE NOT c.publisher GROUP BY ALL
        """
    )
    return Truth(
        ingress=ask(
            f"SELECT count(*) FROM s JOIN t USING (topic) WHERE kind = 'throughput' AND {sent_inside}"
        )[0][0],
        egress=ask(
            f"SELECT count(*) FROM r JOIN t USING (topic) WHERE kind = 'throughput' AND {received_inside}"
        )[0][0],
        per_second=per_second,
        losses={who: (due, lost) for who, _, due, lost in per_subscriber if lost},
        expected=sum(due for _, kind, due, _ in per_subscriber if kind == "throughput"),
        missing=sum(lost for _, kind, _, lost in per_subscriber if kind == "throughput"),
        duplicates=ask(
            "SELECT coalesce(sum(n - 1), 0) FROM "
            "(SELECT count(*) AS n FROM r GROUP BY publisher, subscriber, seq)"
        )[0][0],
        order_violations=ask(
            """
            SELECT count(*) FROM r WHERE EXISTS (
                SELECT 1 FROM r AS e WHERE e.publisher = r.publisher AND e.subscriber = r.subscriber
                AND e.arrival < r.arrival AND e.seq > r.seq)
            """
        )[0][0],
        latencies={
            f"{kind}.{since}": values
            for kind in ("throughput", "latency")
            for since in ("sent", "intended")
            if (
                values := [
                    value
                    for (value,) in ask(
                        f"SELECT greatest(received_ns - {since}_ns, 0) FROM r JOIN t USING (topic) "
                        f"WHERE kind = '{kind}' AND {received_inside} ORDER BY 1"
                    )
                ]
            )
        },
    )
