"""Result: traffic of other kinds than the papers' five topics, at a fixed rate.

A gateway with many topic names, many devices, fan-in, fan-out: with a relay before the broker, over one link.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Comparison
from ildm_bench.micro.relay import ONE_ADDRESS
from ildm_bench.results.common import Bench, comparison
from ildm_bench.results.latency import measure_in_turn
from ildm_bench.results.tables import EGRESS, LOST, Metric, Row, cpu_by_role, latency
from ildm_bench.testbed.spec import TestbedSpec

KINDS = ("gateway", "gateway-10k", "devices", "fan-in", "fan-out")
"""Scenarios in configs/bench, of two sites: publishers at the first, subscribers at the second."""
RATE = {0: 1.0, 1: 0.25, 2: 0.1}
"""By QoS, of the scenario's rate."""
FILES = 500
"""Open files that a process has beside those of its clients."""


def relays() -> dict[str, TestbedSpec]:
    """What may stand before one broker."""
    limits = {"limits": ONE_ADDRESS}
    return {
        "broker alone": TestbedSpec(["mosquitto"], front="none"),
        "HAProxy": TestbedSpec(["mosquitto"], front="haproxy"),
        "node": TestbedSpec(["mosquitto"], node_extra=limits),
        "node, SF": TestbedSpec(["mosquitto"], algorithm="sf", node_extra=limits),
    }


def links(qos: int) -> dict[str, TestbedSpec]:
    """What may join two brokers."""
    brokers = ["mosquitto"] * 2
    return {
        "bridge": TestbedSpec(brokers, front="none", bridge=True, link_qos=qos),
        "link, SF": TestbedSpec(brokers, algorithm="sf", link_qos=qos, node_extra={"limits": ONE_ADDRESS}),
    }


def at_one_site(scenario: Scenario) -> Scenario:
    """All clients of the scenario at its first site."""
    topics = [
        topic.model_copy(
            update={
                "publishers": sum(scenario.counts(topic, "publishers")),
                "subscribers": sum(scenario.counts(topic, "subscribers")),
            }
        )
        for topic in scenario.topics
    ]
    return scenario.model_copy(update={"sites": 1, "topics": topics, "name": f"{scenario.name}-one-site"})


def open_files() -> int:
    """As many open files as the system lets this process have, and those that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def within_files(scenario: Scenario, files: int) -> tuple[Scenario, str]:
    """No more publishers than a relay with that many open files can serve, two for each; and what to say."""
    most = (files - FILES) // 2
    counts = [scenario.counts(topic, "publishers") for topic in scenario.topics]
    largest = max(here for here, *_ in counts)
    if largest <= most:
        return scenario, ""
    topics = [
        topic.model_copy(update={"publishers": [min(here, most), *others]})
        for topic, (here, *others) in zip(scenario.topics, counts, strict=True)
    ]
    note = f"{scenario.name}: {most:,} instead of {largest:,}, as a process here may open {files:,} files"
    return scenario.model_copy(update={"topics": topics}), note


METRICS = (
    EGRESS,
    Metric("ratio", lambda row: f"{row.figures.ratio:.3f}"),
    cpu_by_role("CPU us/message"),
    latency("p50 ms", "p50"),
    latency("p99 ms", "p99"),
    LOST,
)


def run(bench: Bench, qos: int = 0, kinds: Sequence[str] = KINDS) -> Comparison:
    """CPU for each message delivered and latency, every kind of traffic over every way."""
    files = open_files()
    rows: list[Row] = []
    notes: list[str] = []
    for kind in kinds:
        scenario, note = within_files(bench.scenario(kind), files)
        if note:
            notes.append(note)
        scenario = scenario.model_copy(
            update={"qos": qos, "interval": scenario.interval / RATE[qos], "name": f"{kind}-qos-{qos}"}
        )
        found = measure_in_turn(bench, at_one_site(scenario), relays())
        found += measure_in_turn(bench, scenario, links(qos))
        for each in found:
            run = each.model_copy(update={"label": f"{kind}: {each.label}"})
            rows.append(Row(run.label, run))
    text = (
        "Each kind of traffic at a fixed rate, 80 to 280 bytes a message: a gateway with 100 and "
        "with 10,000 topic names in turn, devices with a connection each, fan-in, fan-out. With a "
        "relay before one broker, and from one site to another. Where the ratio (egress / due) is "
        "below 0.99 the rate was not borne. Latency of l-clients, from the write to the read. No "
        "quotas."
    )
    return comparison(f"Mixed traffic, QoS {qos}", [text], METRICS, rows, notes=notes)
