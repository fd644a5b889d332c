"""What the results of the workers say of the generator itself, and of the load, before any log is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.manifest import Generator, Summary, Verdict

MISSED = 0.01
"""Share of the messages which the generator may send late; with more the run is void."""

Result = Mapping[str, Any]
"""What a worker reports when it is done (`ildm_bench.load.worker.Job.finish`)."""


def total(results: Sequence[Result], key: str) -> int:
    return sum(int(result[key]) for result in results)


def judge(results: Sequence[Result], lost: Collection[str]) -> Generator:
    """How the generator did; ``lost`` are the processes of the target that have ended."""
    intended, late, blocked = (total(results, key) for key in ("intended", "late", "blocked"))
    closed = [text for result in results for text in result["closed"]]
    verdict: Verdict = "ok"
    reason = ""
    if lost:
        verdict, reason = "refused", f"ended during the run: {', '.join(sorted(lost))}"
    elif closed:
        verdict, reason = "refused", f"{len(closed)} or more clients lost their connection: {closed[0]}"
    elif late - blocked > MISSED * intended:
        share = (late - blocked) / intended
        verdict, reason = "void", f"the generator sent {share:.1%} of its messages late; 1 % is allowed"
    elif late > MISSED * intended:
        verdict, reason = "refused", f"{blocked / intended:.1%} of the messages were not taken in time"
    lags = sorted(lag for result in results for lag in result["lags"])

    def lag(share: float) -> float:
        return lags[min(len(lags) - 1, int(share * len(lags)))] / 1e3 if lags else 0.0

    return Generator(
        intended=intended,
        sent=total(results, "sent"),
        late=late,
        blocked=blocked,
        lag_p50_us=lag(0.5),
        lag_p99_us=lag(0.99),
        lag_max_us=lag(1.0),
        verdict=verdict,
        reason=reason,
    )


def summarise(
    results: Sequence[Result], scenario: Scenario, window: tuple[int, int], directory: Path
) -> Summary:
    """Throughput in the window (ns) and deliveries of the whole run, t-clients; by the logs what waited."""
    seconds = (window[1] - window[0]) / 1e9
    topics = [index for index, topic in enumerate(scenario.topics) if topic.clients == "throughput"]
    due = {index: sum(scenario.counts(scenario.topics[index], "subscribers")) for index in topics}
    sent = {index: sum(result["by_topic"][index] for result in results) for index in topics}
    ingress, egress = total(results, "sent") / seconds, total(results, "egress") / seconds
    lasting = ingress * scenario.sp_ratio
    return Summary(
        ingress=ingress,
        egress=egress,
        ratio=egress / lasting if lasting else 0.0,
        expected=sum(sent[index] * due[index] for index in topics),
        received=total(results, "received"),
        queued=queued(directory, due, window[1]),
    )


def queued(directory: Path, subscribers: Mapping[int, int], end_ns: int) -> int:
    """Deliveries of messages sent before ``end_ns`` that had not been made by then, lost ones among them.

    ``subscribers`` by number of the topic. Duplicates count as deliveries, as in egress.
    """
    waiting = 0
    for role, time in (("send", "sent_ns"), ("receive", "received_ns")):
        logs = sorted((directory / f"role={role}").glob("*.parquet"))
        if not logs:  # nobody has that role
            continue
        early = (ds.field("sent_ns") < end_ns) & (ds.field(time) < end_ns)
        topics = ds.dataset(logs).to_table(["topic"], filter=early)["topic"]
        for found in topics.value_counts().to_pylist():
            count = subscribers.get(found["values"], 0)
            waiting += found["counts"] * (count if role == "send" else -1 if count else 0)
    return max(0, waiting)
