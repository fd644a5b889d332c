"""Result 5: four brokers of different make joined by SF, under load."""

from __future__ import annotations

from ildm.testing.live.brokers import broker_class
from ildm.testing.live.process import ProcessError
from ildm_bench.analysis.pipeline import analyse, write_figures
from ildm_bench.analysis.session import spark_session
from ildm_bench.measure.figures import Comparison
from ildm_bench.measure.limits import measure
from ildm_bench.results.common import Bench, comparison, testbed
from ildm_bench.results.latency import merged
from ildm_bench.results.tables import EGRESS, INGRESS, LOST, Metric, Row, cpu_by_role, latency, measured
from ildm_bench.testbed.spec import TestbedSpec

MAKES = ("mosquitto", "activemq", "rabbitmq", "moquette")
WARM_UP = 10.0
METRICS = (
    INGRESS,
    EGRESS,
    measured("ratio", "ratio", ".4f"),
    LOST,
    Metric("duplicates", lambda row: str(row.figures.duplicates)),
    Metric("out of order", lambda row: str(row.figures.order_violations)),
    latency("latency ms, p50", "p50", ".1f"),
    latency("p99", "p99", ".1f"),
    cpu_by_role("CPU"),
)


def run(bench: Bench) -> Comparison:
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
    text = (
        f"{', '.join(makes)} in a tree, each with its node; every topic has publishers and "
        "subscribers at all four sites."
    )
    page = comparison("Four makes joined by SF", [text], METRICS, [Row("", merged(found))])
    return page.model_copy(update={"table": [line[1:] for line in page.table], "reference": ""})
