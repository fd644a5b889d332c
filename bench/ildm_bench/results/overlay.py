"""Result 6: sites far from each other, by trees that somebody lays out and by overlays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import spark_session
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Comparison
from ildm_bench.measure.limits import Target, measure
from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.quiet import Disturbance
from ildm_bench.measure.schema import run_directory
from ildm_bench.results.common import Bench, comparison, testbed
from ildm_bench.results.latency import merged
from ildm_bench.results.tables import CPU, LOST, Row, averaged, latency
from ildm_bench.sim.spanning import Edges, from_median, improved, paths
from ildm_bench.testbed.distance import Distances, load_distances
from ildm_bench.testbed.spec import TestbedSpec, Topology
from ildm_bench.testbed.testbed import Testbed

DISTANCES = Path(__file__).parents[3] / "configs/distance/three-regions.yaml"


class Way(NamedTuple):
    """How the sites are joined."""

    algorithm: str
    topology: Topology = "row"
    tree: Literal["delay", "age"] = "delay"
    """``link.tree``: which links of a mesh carry messages."""


WAYS = {
    "SF, row": Way("sf"),
    "SF, star": Way("sf", "star"),
    "SF, mesh: oldest links": Way("sf", "mesh", "age"),
    "SF, mesh: least delay": Way("sf", "mesh"),
    "SG-TBPS": Way("sg_tbps"),
    "ATM-TBPS": Way("atm_tbps"),
    "STLA": Way("stla"),
}
WARM_UP = 12.0
"""Seconds of load before: links are made, and nodes of an overlay learn of each other."""
PUBLISHER = 5


class Measured(NamedTuple):
    """One round of one way: its run, and what went from one region into another."""

    run: str
    copies: int
    """Of one message."""
    bytes: int
    """In the whole run."""
    tree: Edges
    """The links that carry messages; empty: an overlay, whose topics have a tree each."""


METRICS = (
    averaged("time to all ms, mean", "to_all.mean", ".0f"),
    averaged("worst", "to_all.worst", ".0f", of=max),
    averaged("each to each ms, mean", "each.mean", ".0f"),
    averaged("longest path", "each.worst", ".0f", of=max),
    latency("delivery ms, mean", "mean", ".0f"),
    averaged("messages between regions", "copies", ".3g"),
    averaged("bytes between regions", "bytes_between", ",.0f"),
    CPU,
    LOST,
)
Traffic = Mapping[tuple[str, str], int]


def run(bench: Bench) -> Comparison:
    """Messages and bytes between regions are for one message to all sites; the bytes have all that nodes tell
    each other in them, acknowledgements and upkeep, too. Delays of each site to each other are those of the
    links along the tree that was in use, without the time in nodes."""
    distances = load_distances(DISTANCES)
    scenario = bench.scenario("overlay")
    results = bench.out / "runs"
    measured: dict[str, list[Measured]] = {}
    for label, (algorithm, topology, tree) in WAYS.items():
        bench.console.rule(label)
        spec = TestbedSpec(
            ["mosquitto"] * len(distances.names),
            algorithm=algorithm,
            topology=topology,
            distances=distances,
            node_extra={"link": {"tree": tree}},
        )
        done = bench.out / f"{algorithm}-{topology}-{tree}.json"
        if done.exists():
            bench.console.print(f"found before: {done}")
            measured[label] = [Measured(*each) for each in json.loads(done.read_text())]
            continue
        with testbed(spec, bench.out / "testbed", label) as (target, bed):
            assert bed.distance is not None
            measure(scenario.shortened(WARM_UP), target, bench.out / "warm-up")
            once = partial(_once, scenario, target, bed, results)
            own = [pid for _, pid in target.processes]
            measured[label] = []
            for round_ in range(bench.profile.rounds):
                what = f"{label}, round {round_ + 1}"
                bench.console.print(what)
                found, _ = bench.gate.measure(what, once, lambda pair: pair[1], own)
                measured[label].append(found)
        done.write_text(json.dumps(measured[label]))
    delays = np.asarray(distances.delays_ms)
    rows: list[Row] = []
    for rounds in measured.values():
        run = merged(analyse(spark_session(quick=True), results, [each.run for each in rounds]))
        to_all = [times_to_all(results, each.run) for each in rounds]
        spread = {
            "to_all.mean": [mean(each) for each in to_all],
            "to_all.worst": [max(each) for each in to_all],
            "copies": [float(each.copies) for each in rounds],
            "bytes_between": [each.bytes / messages(results, each.run) for each in rounds],
        }
        trees = [paths(delays, each.tree) for each in rounds if each.tree]
        spread |= {"each.mean": [each.mean for each in trees], "each.worst": [each.worst for each in trees]}
        run = run.model_copy(update={"spread": {**run.spread, **spread}})
        rows.append(Row(run.label, run, rounds=spread))
    best = paths(delays, improved(delays, from_median(delays)))
    text = (
        "Twelve sites in three regions, 40 ms one way between regions and 4 ms within; a proxy on "
        "the same machine delays. One site publishes, all subscribe, 32 bytes, QoS 0. The row goes "
        "from region to region; the middle of the star is in another region than the publisher. In the "
        "mesh each site has a link with each other, and the nodes choose those that carry messages. "
        f"Between all pairs of sites the best tree that was found takes {best.mean:.0f} ms on average and "
        f"{best.worst:.0f} at most, without the time in nodes."
    )
    return comparison("Overlays over distance", [text], METRICS, rows)


def _once(scenario: Scenario, target: Target, bed: Testbed, results: Path) -> tuple[Measured, Disturbance]:
    assert bed.distance is not None
    assert bed.spec.distances is not None
    before = bed.distance.traffic()
    manifest = measure(scenario, target, results)
    between = crossing(bed.distance.traffic(), before, bed.spec.distances)
    links = links_of(bed)
    copies = sum(bed.spec.distances.crosses(*pair) for pair in links)
    return Measured(manifest.run, copies, between, [] if bed.is_overlay else links), manifest.disturbance


def crossing(now: Traffic, before: Traffic, distances: Distances) -> int:
    """Bytes that have gone from one region into another."""
    return sum(
        count - before.get(way, 0)
        for way, count in now.items()
        if all(way) and distances.crosses(*(int(name.removeprefix("site-")) for name in way))
    )


def links_of(bed: Testbed) -> Edges:
    """The links that one message goes over; an overlay is asked for its tree."""
    # In a tree somebody subscribes beyond each link, so each carries every message once.
    if bed.is_overlay:
        return _traced(bed)
    return sorted(_used(bed)) if bed.spec.topology == "mesh" else list(bed.spec.edges)


def _used(bed: Testbed) -> set[tuple[int, int]]:
    """The links of a mesh that carry messages."""
    nodes = [server.node for server in bed.servers if server.node is not None]
    active = (
        (_site(node.node_id), _site(row["node_id"]))
        for node in nodes
        for row in node.admin.neighbors().items
        if row["state"] == "active"
    )
    return {(min(pair), max(pair)) for pair in active}


def _traced(bed: Testbed) -> list[tuple[int, int]]:
    node = bed.servers[PUBLISHER].node
    assert node is not None
    trees = [part["tree"] for part in node.admin.trace("topic1")["trees"] if part["tree"] is not None]
    return [pair for tree in trees for pair in _pairs(tree)]


def _pairs(tree: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    for child in tree["children"]:
        yield _site(tree["node"]), _site(child["node"])
        yield from _pairs(child)


def _site(node_id: str) -> int:
    return int(node_id.removeprefix("site-"))


def messages(results: Path, run: str) -> int:
    """All that was sent."""
    return int(ds.dataset(run_directory(results, run) / "role=send").count_rows())


def times_to_all(results: Path, run: str) -> list[float]:
    """For each message of an l-client within the window: ms until the last subscriber had it."""
    manifest = Manifest.read(run_directory(results, run))
    topic = next(i for i, t in enumerate(manifest.scenario.topics) if t.clients == "latency")
    sent = ds.field("sent_ns")
    table = ds.dataset(run_directory(results, run) / "role=receive").to_table(
        ["publisher", "seq", "sent_ns", "received_ns"],
        filter=(ds.field("topic") == topic)
        & (sent >= manifest.window_begin_ns)
        & (sent < manifest.window_end_ns),
    )
    late = table.append_column("late", pc.subtract(table["received_ns"], table["sent_ns"]))
    last = late.group_by(["publisher", "seq"]).aggregate([("late", "max")])
    return [ns / 1e6 for ns in last["late_max"].to_pylist()]
