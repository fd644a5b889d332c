"""Result 1: single brokers side by side (thesis 5.6.1, Fig. 5.10-5.12)."""

from __future__ import annotations

from ildm.testing.live.brokers import broker_class
from ildm_bench.measure.figures import Comparison, Group, Limit
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import (
    HEADING,
    NODELAY,
    SHARED_CORES,
    Bench,
    Sockets,
    limit_row,
    socket_label,
    socket_words,
)
from ildm_bench.testbed.spec import Quota, TestbedSpec

MAKES = ("mosquitto", "activemq", "rabbitmq", "moquette")
CORES = 0.5
START_MS = {"mosquitto": 10.0, "activemq": 20.0, "rabbitmq": 80.0, "moquette": 40.0}
WARM_UP = {"mosquitto": 0.0, "activemq": 15.0, "rabbitmq": 5.0, "moquette": 15.0}


def run(bench: Bench, command: str, sockets: Sockets = "both") -> Comparison:
    """Limit, latency, loss of each broker that is installed, each with the same quota."""
    scenario = bench.scenario("single")
    groups: list[Group] = []
    missing: list[str] = []
    for make in MAKES:
        if reason := broker_class(make).available():
            missing.append(reason)
            continue
        found = []
        for nodelay in NODELAY[sockets] if make == "mosquitto" else (True,):
            spec = TestbedSpec([make], front="none", quota=Quota(CORES), nodelay=nodelay)
            found.append(
                bench.limit(
                    make if nodelay else f"{make}-default-sockets",
                    socket_label(make, nodelay),
                    scenario,
                    spec,
                    start_ms=START_MS[make],
                    warm_up=WARM_UP[make],
                    first_ms=0.5,
                )
            )
        groups.append(Group(name=make, limits=found))
    limits: list[Limit] = [limit for group in groups for limit in group.limits]
    return Comparison(
        title="Single brokers",
        text="\n".join(
            [
                f"Five topics with 10 publishers and 10 subscribers each, 32 bytes, QoS 0; every broker has "
                f"{CORES:g} of a core.",
                socket_words(NODELAY[sockets]),
                SHARED_CORES,
                machine(),
                *(f"Not measured: {reason}" for reason in missing),
            ]
        ),
        command=command,
        groups=groups,
        table=[HEADING, *(limit_row(limit, limits[0]) for limit in limits)],
        reference=limits[0].label if limits else "",
    )
