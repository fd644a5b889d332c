"""Result 3: one link with 1, 2 and 4 sessions against a bridge between the same brokers."""

from __future__ import annotations

from bench.figures import Comparison, Group, Limit
from bench.micro.measure import machine
from bench.results.common import SHARED_CORES, Bench
from bench.testbed.spec import TestbedSpec

SESSIONS = (1, 2, 4)


def run(bench: Bench, command: str, qos: int = 0) -> Comparison:
    """Messages per second from the clients of one site to those of the other, and CPU per message."""
    scenario = bench.scenario("link").model_copy(update={"qos": qos})
    brokers = ["mosquitto", "mosquitto"]
    start = 1.0 if qos == 0 else 4.0
    limits = [
        bench.limit(
            f"qos{qos}-bridge",
            "Mosquitto bridge",
            scenario,
            TestbedSpec(brokers, front="none", bridge=True, link_qos=qos),
            start_ms=start,
            first_ms=0.125,
        )
    ]
    for sessions in SESSIONS:
        spec = TestbedSpec(brokers, algorithm="sf", sessions=sessions, link_qos=qos)
        label = f"link, {sessions} session{'s' if sessions > 1 else ''}"
        name = f"qos{qos}-link-{sessions}"
        limits.append(bench.limit(name, label, scenario, spec, start_ms=start, first_ms=0.125))
    return Comparison(
        title=f"One link, QoS {qos}",
        text="\n".join(
            [
                "50 publishers at one site, a subscriber for each of their 5 topics at the other; 32 bytes.",
                "The nodes run SF. No quotas: nodes or bridge, both brokers and the load share the cores.",
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
