"""Result 5: four brokers of different make joined by SF, under load."""

from __future__ import annotations

from ildm.testing.live.brokers import broker_class
from ildm.testing.live.process import ProcessError
from ildm_bench.analysis.pipeline import analyse, write_figures
from ildm_bench.analysis.session import spark_session
from ildm_bench.measure.figures import Comparison
from ildm_bench.measure.limits import measure
from ildm_bench.measure.spread import words
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import SHARED_CORES, Bench, cpu_by_role, latency_words, socket_words, testbed
from ildm_bench.results.latency import merged
from ildm_bench.testbed.spec import TestbedSpec

MAKES = ("mosquitto", "activemq", "rabbitmq", "moquette")
WARM_UP = 10.0


def run(bench: Bench, command: str) -> Comparison:
    """Every topic has publishers and subscribers at all four sites; nothing may be lost."""
    scenario = bench.scenario("heterogeneous")
    makes = [make for make in MAKES if broker_class(make).available() is None]
    if len(makes) < len(MAKES):
        missing = "; ".join(filter(None, (broker_class(make).available() for make in MAKES)))
        raise ProcessError(f"all four brokers are needed: {missing}")
    results = bench.out / "runs"
    with testbed(TestbedSpec(makes, algorithm="sf", topology="tree"), bench.out / "testbed", "SF") as (
        target,
        _,
    ):
        bench.console.print("warming up")
        measure(scenario.shortened(WARM_UP), target, results / "warm-up")
        rounds = [
            bench.load(f"round {round_ + 1}", scenario, target, results)
            for round_ in range(bench.profile.rounds)
        ]
    found = analyse(spark_session(quick=True), results, rounds)
    write_figures(found, results)
    figures = merged(found)
    spread = figures.spread
    return Comparison(
        title="Four makes joined by SF",
        text="\n".join(
            [
                f"{', '.join(makes)} in a tree, each with its node; every topic has publishers and "
                "subscribers at all four sites.",
                socket_words([True]),
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        runs=[figures],
        table=[
            [
                "ingress/s",
                "egress/s",
                "ratio",
                "lost",
                "duplicates",
                "out of order",
                "latency ms, p50",
                "p99",
                "CPU",
            ],
            [
                words(figures.ingress, spread["ingress"], ",.0f"),
                words(figures.egress, spread["egress"], ",.0f"),
                words(figures.ratio, spread["ratio"], ".4f"),
                f"{figures.missing} of {figures.expected}",
                f"{figures.duplicates}",
                f"{figures.order_violations}",
                latency_words(figures, "p50", ".1f"),
                latency_words(figures, "p99", ".1f"),
                cpu_by_role(figures),
            ],
        ],
    )
