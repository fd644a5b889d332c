"""Result 4: latency that a relay and a link add at a load that all of them bear."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ildm_bench.analysis.histogram import merge
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import spark_session
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Comparison, ProcessUse, RunFigures
from ildm_bench.measure.quiet import worst
from ildm_bench.measure.spread import PERCENTILES, rounds_of
from ildm_bench.results.common import (
    NODELAY,
    Bench,
    Sockets,
    comparison,
    merged_latency,
    socket_label,
    testbed,
)
from ildm_bench.results.tables import KEY, LOST, Metric, Row, latency
from ildm_bench.testbed.spec import TestbedSpec

RELAYS = {
    "broker alone": TestbedSpec(["mosquitto"], front="none"),
    "HAProxy": TestbedSpec(["mosquitto"], front="haproxy"),
    "node": TestbedSpec(["mosquitto"]),
    "node, SF": TestbedSpec(["mosquitto"], algorithm="sf"),
}
LINKS = {
    "bridge": TestbedSpec(["mosquitto"] * 2, front="none", bridge=True),
    "link, PF": TestbedSpec(["mosquitto"] * 2, algorithm="pf"),
    "link, SF": TestbedSpec(["mosquitto"] * 2, algorithm="sf"),
}


SHOWN = ("mean", "p50", "p99", "p99.9")
METRICS = (
    *(latency(f"{heading} us", name, ".0f", 1.0) for heading, name in zip(SHOWN, PERCENTILES, strict=True)),
    Metric("p50 +", lambda row: _more(row, "p50")),
    Metric("p99 +", lambda row: _more(row, "p99")),
    Metric("samples", lambda row: f"{row.figures.latency[KEY].count:,}"),
    Metric("load, egress/s", lambda row: f"{row.figures.egress:,.0f}"),
    LOST,
)


def _more(row: Row, name: str) -> str:
    """How much more than the reference's."""
    assert row.reference is not None
    own, other = (getattr(each.latency[KEY], name) for each in (row.figures, row.reference))
    return "" if own is None or other is None else f"{own - other:+.0f}"


def run(bench: Bench, sockets: Sockets = "both") -> Comparison:
    """Two scenarios, each with ways of its own."""
    rows: list[Row] = []
    settings = NODELAY[sockets]
    for scenario_name, ways in (("latency", RELAYS), ("two-sites-latency", LINKS)):
        specs = {
            socket_label(way, nodelay): replace(spec, nodelay=nodelay)
            for way, spec in ways.items()
            for nodelay in settings
        }
        found = measure_in_turn(bench, bench.scenario(scenario_name), specs)
        rows += [
            Row(each.label, each, reference=found[place % len(settings)]) for place, each in enumerate(found)
        ]
    text = (
        "Latency of l-clients in a process of their own, from the write to the read, while t-clients "
        "keep up about half the load that the slowest way bears. No quotas. Differences are to the "
        "first way of each scenario with the same sockets."
    )
    return comparison("Latency at half load", [text], METRICS, rows, sockets=sockets)


def measure_in_turn(bench: Bench, scenario: Scenario, ways: dict[str, TestbedSpec]) -> list[RunFigures]:
    """Each way carries the same load, round by round, as machines drift; the rounds of each as one run."""
    results = bench.out / scenario.name
    names: dict[str, list[str]] = {way: [] for way in ways}
    with ExitStack() as stack:
        targets = {
            way: stack.enter_context(testbed(spec, bench.out / "testbed" / _slug(way), way))[0]
            for way, spec in ways.items()
        }
        for round_ in range(bench.profile.rounds):
            for way, target in targets.items():
                what = f"{scenario.name}, round {round_ + 1}: {way}"
                names[way].append(bench.load(what, scenario, target, results))
    spark = spark_session(quick=True)
    return [merged(analyse(spark, results, runs)) for runs in names.values()]


def merged(rounds: Sequence[RunFigures]) -> RunFigures:
    """The rounds of one way as one run: distributions merged, counts added, rates averaged; their spread."""
    histograms = {key: merge([each.histograms[key] for each in rounds]) for key in rounds[0].histograms}
    latencies = {
        key: merged_latency(histogram, [each.latency[key] for each in rounds])
        for key, histogram in histograms.items()
    }
    count = len(rounds)
    outcome = next((each for each in rounds if each.void), None) or rounds[-1]
    return rounds[-1].model_copy(
        update={
            "verdict": outcome.verdict,
            "reason": outcome.reason,
            "histograms": histograms,
            "latency": latencies,
            "expected": sum(each.expected for each in rounds),
            "missing": sum(each.missing for each in rounds),
            "duplicates": sum(each.duplicates for each in rounds),
            "order_violations": sum(each.order_violations for each in rounds),
            "ingress": sum(each.ingress for each in rounds) / count,
            "egress": sum(each.egress for each in rounds) / count,
            "ratio": sum(each.ratio for each in rounds) / count,
            "processes": _processes(rounds),
            "notes": list(dict.fromkeys(note for each in rounds for note in each.notes)),
            "disturbance": worst([each.disturbance for each in rounds]),
            "spread": rounds_of(rounds),
        }
    )


def _processes(rounds: Sequence[RunFigures]) -> list[ProcessUse]:
    """Each with its mean CPU time; the rest is the last round's."""
    found = []
    for use in rounds[-1].processes:
        alike = [other for each in rounds for other in each.processes if other.name == use.name]
        means = {
            name: sum(getattr(other, name) for other in alike) / len(alike)
            for name in ("cores", "cpu_us_per_delivery")
        }
        found.append(use.model_copy(update=means))
    return found


def _slug(text: str) -> Path:
    return Path("".join(c if c.isalnum() else "-" for c in text))
