"""Result 3: one link with 1, 2 and 4 sessions against a bridge between the same brokers."""

from __future__ import annotations

from ildm_bench.figures import Comparison, Group, Limit
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import SHARED_CORES, Bench
from ildm_bench.testbed.spec import TestbedSpec

SESSIONS = (1, 2, 4)
START_MS = {(0, 1): 0.1, (0, 10): 1.0, (1, 1): 0.4, (1, 10): 4.0, (2, 1): 0.8, (2, 10): 8.0}
"""Guesses by QoS and publishers per topic."""


def run(bench: Bench, command: str, qos: int = 0, publishers: int = 1) -> Comparison:
    """Messages per second from the clients of one site to those of the other, and CPU per message."""
    scenario = bench.scenario("link")
    topics = [
        topic.model_copy(update={"publishers": [publishers, 0]}) if topic.interval is None else topic
        for topic in scenario.topics
    ]
    scenario = scenario.model_copy(update={"qos": qos, "topics": topics})
    brokers = ["mosquitto", "mosquitto"]
    start = START_MS.get((qos, publishers), 1.0)

    def limit(name: str, label: str, spec: TestbedSpec, beyond: bool) -> Limit:
        return bench.limit(name, label, scenario, spec, start_ms=start, first_ms=0.0125, beyond=beyond)

    bridge = TestbedSpec(brokers, front="none", bridge=True, link_qos=qos)
    limits = [limit("bridge", "bridge", bridge, False)]
    for sessions in SESSIONS:
        spec = TestbedSpec(brokers, algorithm="pf", sessions=sessions, link_qos=qos)
        label = f"link, {sessions} session{'s' if sessions > 1 else ''}"
        limits.append(limit(f"link-{sessions}", label, spec, True))
    through = TestbedSpec(brokers, algorithm="sf", link_qos=qos)
    limits.append(limit("through", "link, subscribers behind their node, SF", through, False))
    return Comparison(
        title=f"One link, QoS {qos}, {publishers * 5} publishers",
        text="\n".join(
            [
                f"{publishers} publishers for each of 5 topics at one site, a subscriber for each at the",
                "other, 32 bytes. The nodes run PF, and the subscribers connect to the far broker itself, as",
                "with the bridge; in the last row they are behind its node, which relays what comes out.",
                "No quotas: nodes or bridge, both brokers and the load share the cores.",
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        groups=[Group(name="link", limits=limits)],
        table=[
            ["", "limit", "messages/s", "ratio", "nodes' CPU us/message", "brokers' CPU us/message", "lost"],
            *(_row(limit, limits[0]) for limit in limits),
        ],
        reference=limits[0].label,
    )


def _row(limit: Limit, reference: Limit) -> list[str]:
    figures = limit.figures
    if figures is None or reference.figures is None:
        return [limit.label, "none", "", "", "", "", ""]

    def cpu(role: str) -> str:
        uses = [use.cpu_us_per_delivery for use in figures.processes if use.role == role]
        return " + ".join(f"{use:.2f}" for use in uses)

    bound = "" if limit.bounded_by == "target" else " (generator's)"
    return [
        limit.label,
        f"{limit.interval_ms:g} ms{bound}",
        f"{figures.egress:,.0f}",
        f"{figures.egress / reference.figures.egress:.2f}",
        cpu("node"),
        cpu("broker"),
        f"{figures.missing} of {figures.expected}",
    ]
