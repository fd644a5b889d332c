"""The figures of one run from what the jobs counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from pyspark.sql import Row

from ildm_bench.analysis.errors import BadFile
from ildm_bench.analysis.histogram import from_buckets, latency_of
from ildm_bench.analysis.jobs import INTENDED_NS, SECOND, SENT_NS
from ildm_bench.analysis.logs import Run
from ildm_bench.analysis.samples import network_growth, process_uses
from ildm_bench.measure.figures import (
    Histogram,
    Latency,
    Loss,
    ProcessUse,
    RunFigures,
    Second,
    bears,
)
from ildm_bench.measure.manifest import Manifest

SINCE = {SENT_NS: "sent", INTENDED_NS: "intended"}


@dataclass(frozen=True)
class Counts:
    """Of one run, the rows that each job gave (see `ildm_bench.analysis.jobs`)."""

    sent: list[Row]
    received: list[Row]
    deliveries: list[Row]
    violations: list[Row]

    @property
    def ingress(self) -> list[Row]:
        """Of t-clients."""
        return [row for row in self.sent if row["throughput"]]

    @property
    def egress(self) -> list[Row]:
        """The same of what was received."""
        return [row for row in self.received if row["throughput"] and row["about"] == SECOND]


def sp_ratio(manifest: Manifest) -> float:
    """Deliveries per message of the t-clients that took part (thesis 5.5.4); 0 without t-publishers."""
    publishers: dict[int, int] = defaultdict(int)
    subscribers: dict[int, int] = defaultdict(int)
    for client in manifest.clients:
        if manifest.scenario.topics[client.topic].clients == "throughput":
            (publishers if client.publisher else subscribers)[client.topic] += 1
    due = sum(count * subscribers[topic] for topic, count in publishers.items())
    return due / sum(publishers.values()) if publishers else 0.0


def figures_of(run: Run, counts: Counts, skip: bool = False) -> RunFigures:
    """The figures of a run; ``skip``: samples of no use are left out and noted.

    Raises:
        MissingLog, CorruptLog, WrongSchema: samples of resources or counters are of no use.
    """
    manifest = run.manifest
    notes = [*manifest.notes, *run.notes]
    sent_in_window = sum(row["in_window"] for row in counts.ingress)
    received_in_window = sum(row["marked"] for row in counts.egress)
    ratio_due = sp_ratio(manifest)
    due = sent_in_window * ratio_due
    ratio = received_in_window / due if due else 0.0
    queued_seconds = manifest.summary.queued / (due / manifest.seconds) if due else 0.0
    losses, expected, missing = _losses(run, counts, notes)
    histograms, latency = _latencies(counts, notes)
    messages = sum(row["messages"] for row in counts.deliveries)
    processes: list[ProcessUse] = []
    network: dict[str, dict[str, int]] = {}
    try:
        processes = process_uses(run.directory, manifest, received_in_window, notes.append)
    except BadFile as error:
        _refuse_or_note(error, skip, notes)
    try:
        network = network_growth(run.directory)
    except BadFile as error:
        _refuse_or_note(error, skip, notes)
    return RunFigures(
        run=manifest.run,
        label=manifest.label,
        scenario=manifest.scenario.name,
        interval_ms=manifest.interval_ms,
        seconds=manifest.seconds,
        sp_ratio=ratio_due,
        ingress=sent_in_window / manifest.seconds,
        egress=received_in_window / manifest.seconds,
        ratio=ratio,
        under_limit=bears(ratio, queued_seconds) and manifest.generator.verdict == "ok",
        queued_seconds=queued_seconds,
        verdict=manifest.generator.verdict,
        reason=manifest.generator.reason,
        expected=expected,
        missing=missing,
        loss_rate=missing / expected if expected else 0.0,
        losses=losses,
        duplicates=messages - sum(row["distinct"] for row in counts.deliveries),
        order_violations=sum(row["messages"] for row in counts.violations),
        latency=latency,
        histograms=histograms,
        per_second=_per_second(counts),
        processes=processes,
        network=network,
        machine=manifest.machine,
        notes=notes,
        targets=manifest.targets,
        disturbance=manifest.disturbance,
    )


def _losses(run: Run, counts: Counts, notes: list[str]) -> tuple[list[Loss], int, int]:
    """Those that miss messages; what was expected and is missing at t-clients."""
    manifest = run.manifest
    sent: Counter[int] = Counter()
    for row in counts.sent:
        sent[row["topic"]] += row["in_window"]
    got = {(row["subscriber"], row["topic"]): row["in_window"] for row in counts.deliveries}
    unknown = run.clients_left_out("receive")
    losses, expected, missing = [], 0, 0
    surplus = 0
    for number, client in enumerate(manifest.clients):
        if client.publisher or number in unknown:
            continue
        topic = manifest.scenario.topics[client.topic]
        due = sent.get(client.topic, 0)
        lost = due - got.get((number, client.topic), 0)
        surplus += max(0, -lost)
        lost = max(0, lost)
        if lost:
            losses.append(Loss(topic=topic.name, subscriber=client.client_id, expected=due, missing=lost))
        if topic.clients == "throughput":
            expected += due
            missing += lost
    if surplus:
        notes.append(f"{surplus} deliveries of messages that no send log has")
    subscribed = {(n, client.topic) for n, client in enumerate(manifest.clients) if not client.publisher}
    astray = sum(
        row["messages"] for row in counts.deliveries if (row["subscriber"], row["topic"]) not in subscribed
    )
    # Rows whose topic the manifest does not know are not among those that the jobs counted.
    astray += run.rows("receive") - sum(row["messages"] for row in counts.deliveries)
    if astray:
        notes.append(f"{astray} deliveries of topics that their receiver is not a subscriber of")
    nowhere = run.rows("send") - sum(row["messages"] for row in counts.sent)
    if nowhere:
        notes.append(f"{nowhere} messages sent to topics that the manifest does not have: not counted")
    return losses, expected, missing


def _latencies(counts: Counts, notes: list[str]) -> tuple[dict[str, Histogram], dict[str, Latency]]:
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in counts.received:
        if since := SINCE.get(row["about"]):
            kind = "throughput" if row["throughput"] else "latency"
            by_key[f"{kind}.{since}"].append(row)
    histograms, latency = {}, {}
    for key, rows in sorted(by_key.items()):
        histogram = from_buckets((row["place"], row["messages"]) for row in rows)
        count = sum(histogram.counts)
        largest = max(row["max_ns"] for row in rows)
        histograms[key] = histogram
        latency[key] = latency_of(histogram, sum(row["sum_ns"] for row in rows) / count / 1e3, largest / 1e3)
        if early := sum(row["marked"] for row in rows):
            notes.append(f"{early} of {count} latencies {key} were negative (clock error), taken as 0")
    return histograms, latency


def _per_second(counts: Counts) -> list[Second]:
    ingress: Counter[int] = Counter()
    for row in counts.ingress:
        ingress[row["second"]] += row["messages"]
    egress = {row["place"]: row["messages"] for row in counts.egress}
    seconds = ingress.keys() | egress.keys()
    if not seconds:
        return []
    return [
        Second(second=second, ingress=ingress.get(second, 0), egress=egress.get(second, 0))
        for second in range(min(seconds), max(seconds) + 1)
    ]


def _refuse_or_note(error: BadFile, skip: bool, notes: list[str]) -> None:
    if not skip:
        raise error
    notes.append(f"left out {error.path.name}: {error.reason}")
