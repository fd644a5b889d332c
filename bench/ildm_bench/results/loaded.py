"""A testbed at a part of its limit, where latency is no matter of how much has piled up."""

from __future__ import annotations

from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import spark_session
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Limit, RunFigures
from ildm_bench.results.common import Bench, testbed
from ildm_bench.results.latency import merged
from ildm_bench.results.tables import CPU, EGRESS, INGRESS, LOST, Metric, latency, measured
from ildm_bench.testbed.spec import TestbedSpec

LOAD = "load.json"
AT_LOAD = (
    Metric("interval", lambda row: row.interval),
    INGRESS,
    EGRESS,
    measured("ratio", "ratio", ".4f"),
    latency("latency ms, mean", "mean"),
    latency("p99", "p99"),
    LOST,
    CPU,
)


def at_load(
    bench: Bench, name: str, label: str, scenario: Scenario, spec: TestbedSpec, limit: Limit, load: float
) -> RunFigures | None:
    """Runs at ``load`` (a part of one) of a limit, all rounds as one; None where there is no limit.

    Goes on where it was interrupted: the file ``load.json`` in the directory ``name`` has what was found.
    """
    if limit.interval_ms is None:
        return None
    directory = bench.out / name / "load"
    done = directory / LOAD
    if done.exists():
        return RunFigures.model_validate_json(done.read_text())
    part = scenario.model_copy(update={"interval": limit.interval_ms / load})
    with testbed(spec, bench.out / "testbed", label) as (target, _):
        names = [
            bench.load(f"{label} at {load:.0%} of its limit, round {round_ + 1}", part, target, directory)
            for round_ in range(bench.profile.rounds)
        ]
    found = merged(analyse(spark_session(quick=True), directory, names))
    done.write_text(found.model_dump_json(indent=1) + "\n")
    return found
