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
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import (
    KEY,
    NODELAY,
    SHARED_CORES,
    Bench,
    Sockets,
    latency_words,
    merged_latency,
    socket_label,
    socket_words,
    testbed,
)
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


def run(bench: Bench, command: str, sockets: Sockets = "both") -> Comparison:
    """Two scenarios, each with ways of its own."""
    runs: list[RunFigures] = []
    rows: list[list[str]] = []
    settings = NODELAY[sockets]
    for scenario_name, ways in (("latency", RELAYS), ("two-sites-latency", LINKS)):
        specs = {
            socket_label(way, nodelay): replace(spec, nodelay=nodelay)
            for way, spec in ways.items()
            for nodelay in settings
        }
        found = measure_in_turn(bench, bench.scenario(scenario_name), specs)
        runs += found
        for place, each in enumerate(found):
            latency, base = each.latency[KEY], found[place % len(settings)].latency[KEY]
            rows.append(
                [
                    each.label,
                    *(latency_words(each, name, ".0f", 1.0) for name in PERCENTILES),
                    f"{latency.p50 - base.p50:+.0f}",
                    "" if latency.p99 is None or base.p99 is None else f"{latency.p99 - base.p99:+.0f}",
                    f"{latency.count:,}",
                    f"{each.egress:,.0f}",
                    f"{each.missing} of {each.expected}",
                ]
            )
    return Comparison(
        title="Latency at half load",
        text="\n".join(
            [
                "Latency of l-clients in a process of their own, from the write to the read, while t-clients "
                "keep up about half the load that the slowest way bears. No quotas. Differences are to the "
                "first way of each scenario with the same sockets.",
                socket_words(settings),
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        runs=runs,
        table=[
            [
                "",
                "mean us",
                "p50 us",
                "p99 us",
                "p99.9 us",
                "p50 +",
                "p99 +",
                "samples",
                "load, egress/s",
                "lost",
            ],
            *rows,
        ],
        reference=runs[0].label if runs else "",
    )


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
    latency = {
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
            "latency": latency,
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
