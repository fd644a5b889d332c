"""Result 1: single brokers side by side (thesis 5.6.1, Fig. 5.10-5.12)."""

from __future__ import annotations

from ildm.testing.live.brokers import broker_class
from ildm_bench.measure.figures import Comparison, Group
from ildm_bench.results.common import Bench, Sockets, comparison
from ildm_bench.results.tables import OF_LIMIT, Row
from ildm_bench.testbed.spec import Quota, TestbedSpec

CORES = 0.5
START_MS = {"mosquitto": 10.0, "activemq": 20.0, "rabbitmq": 80.0, "moquette": 40.0}
"""Guess for each make."""
WHOLE = 4
"""How much shorter than with the quota intervals are guessed to be without one."""
WARM_UP = {"mosquitto": 0.0, "activemq": 15.0, "rabbitmq": 5.0, "moquette": 15.0}


def run(bench: Bench, sockets: Sockets = "both", cores: float | None = CORES) -> Comparison:
    """Limit, latency, loss of each broker that is installed, each with the same quota.

    ``cores`` None: each has the whole machine, which it shares with the generator (the thesis's S2).
    """
    quota = None if cores is None else Quota(cores)
    scenario = bench.scenario("single")
    groups: list[Group] = []
    missing: list[str] = []
    for make, start in START_MS.items():
        if reason := broker_class(make).available():
            missing.append(f"Not measured: {reason}")
            continue
        found = bench.limits(
            make,
            make,
            scenario,
            TestbedSpec([make], front="none", quota=quota),
            sockets if make == "mosquitto" else "nodelay",
            start_ms=start if cores is not None else start / WHOLE,
            warm_up=WARM_UP[make],
            first_ms=0.5 if cores is not None else 0.0625,
        )
        groups.append(Group(name=make, limits=found))
    limits = [limit for group in groups for limit in group.limits]
    share = f"{cores:g} of a core" if cores is not None else "the whole machine, beside the generator"
    text = (
        f"Five topics with 10 publishers and 10 subscribers each, 32 bytes, QoS 0; every broker has {share}."
    )
    rows = [Row.of_limit(limit, limits[0]) for limit in limits]
    return comparison("Single brokers", [text], OF_LIMIT, rows, groups=groups, sockets=sockets, notes=missing)
