"""Result 5: four brokers of different make joined by SF, under load."""

from __future__ import annotations

from ildm.testing.live.brokers import broker_class
from ildm.testing.live.process import ProcessError
from ildm_bench.analysis.pipeline import analyse, write_figures
from ildm_bench.analysis.session import spark_session
from ildm_bench.measure.figures import Comparison, Group
from ildm_bench.measure.limits import measure
from ildm_bench.results.common import Bench, comparison, testbed
from ildm_bench.results.latency import merged
from ildm_bench.results.tables import (
    EGRESS,
    INGRESS,
    LOST,
    OF_LIMIT,
    Metric,
    Row,
    cpu_by_role,
    latency,
    measured,
)
from ildm_bench.testbed.spec import TestbedSpec

MAKES = ("mosquitto", "activemq", "rabbitmq", "moquette")
WARM_UP = 10.0
START_MS, FIRST_MS = 40.0, 0.5
ENDS = "Cores in use say which broker or node ends the search: the first one named, where it uses a core."


def _cores(row: Row) -> str:
    """Cores in use at the limit, the most first; brokers are named by their make."""
    uses = sorted(row.figures.processes, key=lambda use: use.cores, reverse=True)
    return ", ".join(f"{use.label or use.name} {use.cores:.2f}" for use in uses if use.role != "generator")


OF_MIXED = (*OF_LIMIT[:-1], Metric("cores in use", _cores))
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


def run(bench: Bench, limit: bool = False) -> Comparison:
    """Every topic has publishers and subscribers at all four sites; nothing may be lost.

    With ``limit`` the load is the highest that they bear together (thesis 5.5.5), not the fixed one.
    """
    scenario = bench.scenario("heterogeneous")
    makes = [make for make in MAKES if broker_class(make).available() is None]
    if len(makes) < len(MAKES):
        missing = "; ".join(filter(None, (broker_class(make).available() for make in MAKES)))
        raise ProcessError(f"all four brokers are needed: {missing}")
    spec = TestbedSpec(makes, algorithm="sf", topology="tree")
    text = (
        f"{', '.join(makes)} in a tree, each with its node; every topic has publishers and "
        "subscribers at all four sites."
    )
    if limit:
        found = bench.limit(
            "limit", "SF", scenario, spec, start_ms=START_MS, warm_up=WARM_UP, first_ms=FIRST_MS
        )
        groups = [Group(name="mixed", limits=[found])]
        rows = [Row.of_limit(found, found)]
        return comparison("Limit of four makes joined by SF", [text, ENDS], OF_MIXED, rows, groups=groups)
    results = bench.out / "runs"
    with testbed(spec, bench.out / "testbed", "SF") as (target, _):
        bench.console.print("warming up")
        measure(scenario.shortened(WARM_UP), target, results / "warm-up")
        rounds = [
            bench.load(f"round {round_ + 1}", scenario, target, results)
            for round_ in range(bench.profile.rounds)
        ]
    runs = analyse(spark_session(quick=True), results, rounds)
    write_figures(runs, results)
    page = comparison("Four makes joined by SF", [text], METRICS, [Row("", merged(runs))])
    return page.model_copy(update={"table": [line[1:] for line in page.table], "reference": ""})
