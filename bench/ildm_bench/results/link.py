"""Result 3: one link with 1, 2 and 4 sessions against a bridge between the same brokers."""

from __future__ import annotations

from dataclasses import replace

from ildm_bench.measure.figures import Comparison, Group, Limit
from ildm_bench.measure.spread import words
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import (
    NODELAY,
    SHARED_CORES,
    Bench,
    Sockets,
    egress_ratio,
    socket_label,
    socket_words,
)
from ildm_bench.testbed.spec import TestbedSpec

SESSIONS = (1, 2, 4)
START_MS = {(0, 1): 0.1, (0, 10): 1.0, (1, 1): 0.4, (1, 10): 4.0, (2, 1): 0.8, (2, 10): 8.0}
"""Guesses by QoS and publishers per topic."""


def run(
    bench: Bench, command: str, qos: int = 0, publishers: int = 1, sockets: Sockets = "both"
) -> Comparison:
    """Messages per second from the clients of one site to those of the other, and CPU per message."""
    scenario = bench.scenario("link")
    topics = [
        topic.model_copy(update={"publishers": [publishers, 0]}) if topic.interval is None else topic
        for topic in scenario.topics
    ]
    scenario = scenario.model_copy(update={"qos": qos, "topics": topics})
    brokers = ["mosquitto", "mosquitto"]
    start = START_MS.get((qos, publishers), 1.0)

    def each(name: str, label: str, spec: TestbedSpec, beyond: bool) -> list[Limit]:
        """The limit with each setting of the sockets."""
        return [
            bench.limit(
                name if nodelay else f"{name}-default-sockets",
                socket_label(label, nodelay),
                scenario,
                replace(spec, nodelay=nodelay),
                start_ms=start,
                first_ms=0.0125,
                beyond=beyond,
            )
            for nodelay in NODELAY[sockets]
        ]

    bridge = TestbedSpec(brokers, front="none", bridge=True, link_qos=qos)
    limits = each("bridge", "bridge", bridge, False)
    for sessions in SESSIONS:
        spec = TestbedSpec(brokers, algorithm="pf", sessions=sessions, link_qos=qos)
        label = f"link, {sessions} session{'s' if sessions > 1 else ''}"
        limits += each(f"link-{sessions}", label, spec, True)
    through = TestbedSpec(brokers, algorithm="sf", link_qos=qos)
    limits += each("through", "link, subscribers behind their node, SF", through, False)
    references = limits[: len(NODELAY[sockets])] * len(limits)
    return Comparison(
        title=f"One link, QoS {qos}, {publishers * 5} publishers",
        text="\n".join(
            [
                f"{publishers} publishers for each of 5 topics at one site, a subscriber for each at the",
                "other, 32 bytes. The nodes run PF, and the subscribers connect to the far broker itself, as",
                "with the bridge; in the last row they are behind its node, which relays what comes out.",
                "No quotas: nodes or bridge, both brokers and the load share the cores.",
                f"{socket_words(NODELAY[sockets])} Ratios are to the bridge with the same.",
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        groups=[Group(name="link", limits=limits)],
        table=[
            ["", "limit", "messages/s", "ratio", "nodes' CPU us/message", "brokers' CPU us/message", "lost"],
            *(_row(limit, beside) for limit, beside in zip(limits, references, strict=False)),
        ],
        reference=limits[0].label,
    )


def _row(limit: Limit, reference: Limit) -> list[str]:
    figures = limit.figures
    spread = limit.spread
    if figures is None or reference.figures is None or limit.interval_ms is None:
        return [limit.label, "none", "", "", "", "", ""]

    def cpu(role: str) -> str:
        """Of both together with the spread, then of each."""
        uses = [use.cpu_us_per_delivery for use in figures.processes if use.role == role]
        if not uses:
            return ""
        return (
            f"{words(sum(uses), spread.get(f'cpu.{role}', ()))}: {' + '.join(f'{use:.2f}' for use in uses)}"
        )

    bound = "" if limit.bounded_by == "target" else " (generator's)"
    return [
        limit.label,
        f"{words(limit.interval_ms, spread.get('interval_ms', ()), 'g')} ms{bound}",
        words(figures.egress, spread.get("egress", ()), ",.0f"),
        egress_ratio(limit, reference),
        cpu("node"),
        cpu("broker"),
        f"{figures.missing} of {figures.expected}",
    ]
