"""Result: what it costs to keep on disk what was acknowledged, beside a bridge between the same brokers."""

from __future__ import annotations

from ildm_bench.measure.figures import Comparison
from ildm_bench.results.common import Bench, comparison
from ildm_bench.results.latency import measure_in_turn
from ildm_bench.results.tables import LOST, Row, cpu_by_role, latency
from ildm_bench.testbed.spec import TestbedSpec

INTERVALS_MS = {0: (4.0,), 1: (10.0, 20.0), 2: (20.0,)}
"""By QoS: between two messages of each of 50 publishers; 12,500, 5,000 and 2,500 messages/s."""


def ways(qos: int) -> dict[str, TestbedSpec]:
    """A bridge that keeps its queue in memory, and one link in each mode of the spool; at QoS 0 nothing goes
    to the spool, and two modes show it."""
    brokers = ["mosquitto"] * 2
    bridge = {"bridge": TestbedSpec(brokers, front="none", bridge=True, link_qos=qos)}
    return bridge | {
        f"link, spool {mode}": TestbedSpec(
            brokers, algorithm="sf", link_qos=qos, node_extra={"spool": {"mode": mode}}
        )
        for mode in (("off", "process", "power") if qos else ("off", "process"))
    }


METRICS = (
    cpu_by_role("CPU us/message"),
    latency("p50 ms", "p50"),
    latency("p99 ms", "p99"),
    latency("p99.9 ms", "p999"),
    LOST,
)


def run(bench: Bench) -> Comparison:
    """CPU for each message of all processes of a kind, and latency from site to site."""
    rows: list[Row] = []
    for qos, intervals in INTERVALS_MS.items():
        for interval in intervals:
            scenario = bench.scenario("two-sites-latency").model_copy(
                update={"qos": qos, "interval": interval, "name": f"qos-{qos}-{interval:g}-ms"}
            )
            for each in measure_in_turn(bench, scenario, ways(qos)):
                run = each.model_copy(update={"label": f"QoS {qos}, {interval:g} ms, {each.label}"})
                rows.append(Row(f"QoS {qos}, {each.egress:,.0f}/s, {each.label}", run))
    text = (
        "Publishers at one site, subscribers at the other, 32 bytes. A bridge keeps what it "
        "has not delivered in memory (and on disk every 30 minutes); the nodes keep nothing on disk "
        "(off), what the end of the process must not destroy (process), or what the end of the "
        "machine's power must not (power). Latency from the write to the read. No quotas."
    )
    return comparison("What durability costs", [text], METRICS, rows)
