"""Result 3: one link with 1, 2 and 4 sessions against a bridge between the same brokers."""

from __future__ import annotations

from ildm_bench.measure.figures import Comparison, Group
from ildm_bench.results.common import NODELAY, Bench, Sockets, comparison
from ildm_bench.results.tables import INTERVAL, LOST, RATIO, Row, cpu_of, measured
from ildm_bench.testbed.spec import TestbedSpec

SESSIONS = (1, 2, 4)
START_MS = {(0, 1): 0.1, (0, 10): 1.0, (1, 1): 0.4, (1, 10): 4.0, (2, 1): 0.8, (2, 10): 8.0}
"""Guesses by QoS and publishers per topic."""
METRICS = (
    INTERVAL,
    measured("messages/s", "egress", ",.0f"),
    RATIO,
    cpu_of("nodes' CPU us/message", "node"),
    cpu_of("brokers' CPU us/message", "broker"),
    LOST,
)


def run(bench: Bench, qos: int = 0, publishers: int = 1, sockets: Sockets = "both") -> Comparison:
    """Messages per second from the clients of one site to those of the other, and CPU per message."""
    scenario = bench.scenario("link")
    topics = [
        topic.model_copy(update={"publishers": [publishers, 0]}) if topic.interval is None else topic
        for topic in scenario.topics
    ]
    scenario = scenario.model_copy(update={"qos": qos, "topics": topics})
    brokers = ["mosquitto", "mosquitto"]
    ways = [("bridge", "bridge", TestbedSpec(brokers, front="none", bridge=True, link_qos=qos))]
    for sessions in SESSIONS:
        spec = TestbedSpec(brokers, algorithm="pf", sessions=sessions, link_qos=qos)
        ways.append((f"link-{sessions}", f"link, {sessions} session{'s' if sessions > 1 else ''}", spec))
    through = TestbedSpec(brokers, algorithm="sf", link_qos=qos)
    ways.append(("through", "link, subscribers behind their node, SF", through))
    start = START_MS.get((qos, publishers), 1.0)
    limits = [
        limit
        for name, label, spec in ways
        for limit in bench.limits(
            name,
            label,
            scenario,
            spec,
            sockets,
            start_ms=start,
            first_ms=0.0125,
            beyond=spec.algorithm == "pf",
        )
    ]
    settings = len(NODELAY[sockets])
    return comparison(
        f"One link, QoS {qos}, {publishers * 5} publishers",
        [
            f"{publishers} publishers for each of 5 topics at one site, a subscriber for each at the",
            "other, 32 bytes. The nodes run PF, and the subscribers connect to the far broker itself, as",
            "with the bridge; in the last row they are behind its node, which relays what comes out.",
            "No quotas: nodes or bridge, both brokers and the load share the cores.",
            "Ratios are to the bridge with the same sockets.",
        ],
        METRICS,
        [Row.of_limit(limit, limits[place % settings]) for place, limit in enumerate(limits)],
        groups=[Group(name="link", limits=limits)],
        sockets=sockets,
    )
