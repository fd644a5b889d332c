"""Result 4: latency that a relay and a link add at a load that all of them bear."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ildm_bench.analysis.histogram import merge, quantile
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import spark_session
from ildm_bench.figures import Comparison, Histogram, Latency, RunFigures
from ildm_bench.limits import measure, settle
from ildm_bench.load.scenario import Scenario
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import SHARED_CORES, Bench, testbed
from ildm_bench.spread import words
from ildm_bench.testbed.spec import TestbedSpec

KEY = "latency.sent"
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


def run(bench: Bench, command: str) -> Comparison:
    """Two scenarios, each with ways of its own."""
    runs: list[RunFigures] = []
    rows: list[list[str]] = []
    for scenario_name, ways in (("latency", RELAYS), ("two-sites-latency", LINKS)):
        found = measure_in_turn(bench, bench.scenario(scenario_name), ways)
        runs += found
        base = found[0].latency[KEY]
        for each in found:
            latency = each.latency[KEY]
            rows.append(
                [
                    each.label,
                    *(
                        words(value, (), ".0f")
                        for value in (latency.mean, latency.p50, latency.p99, latency.p999)
                    ),
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
                "first way of each scenario.",
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
                bench.console.print(f"{scenario.name}, round {round_ + 1}: {way}")
                settle(target.processes)
                names[way].append(measure(scenario, target, results).run)
    spark = spark_session(quick=True)
    return [_merged(analyse(spark, results, runs)) for runs in names.values()]


def _merged(rounds: list[RunFigures]) -> RunFigures:
    """The rounds of one way as one run: distributions merged, counts added, rates averaged."""
    histograms = {key: merge([each.histograms[key] for each in rounds]) for key in rounds[0].histograms}
    latency = {
        key: _latency(histogram, [each.latency[key] for each in rounds])
        for key, histogram in histograms.items()
    }
    return rounds[-1].model_copy(
        update={
            "histograms": histograms,
            "latency": latency,
            "expected": sum(each.expected for each in rounds),
            "missing": sum(each.missing for each in rounds),
            "ingress": sum(each.ingress for each in rounds) / len(rounds),
            "egress": sum(each.egress for each in rounds) / len(rounds),
            "notes": list(dict.fromkeys(note for each in rounds for note in each.notes)),
        }
    )


def _latency(histogram: Histogram, parts: list[Latency]) -> Latency:
    """Of all parts together; ``histogram`` has their values."""
    count = sum(part.count for part in parts)
    p50, p95, p99, p999 = (quantile(histogram, share) / 1000 for share in (0.5, 0.95, 0.99, 0.999))
    return Latency(
        count=count,
        mean=sum(part.mean * part.count for part in parts) / count,
        p50=p50,
        p95=p95,
        p99=p99,
        p999=p999,
        max=max(part.max for part in parts),
    )


def _slug(text: str) -> Path:
    return Path("".join(c if c.isalnum() else "-" for c in text))
