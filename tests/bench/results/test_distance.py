"""The results over distance: what their tables count; nothing is measured here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from ildm_bench.measure.schema import RECEIVE
from ildm_bench.report import write_comparison
from ildm_bench.results import distance, overlay, tables
from ildm_bench.results.common import QUICK, Bench
from ildm_bench.results.tables import Row
from ildm_bench.testbed.distance import Distances, load_distances
from ildm_bench.testbed.spec import TestbedSpec
from tests.bench.report.samples import run as sample_run

FAR = Distances.by_regions({"eu": 2, "us": 2}, 4, 40)


def test_bytes_between_regions_are_those_of_the_run() -> None:
    before = {("site-0", "site-2"): 100, ("", ""): 7}
    now = {("site-0", "site-2"): 130, ("site-3", "site-1"): 5, ("site-0", "site-1"): 1000, ("", ""): 9}
    assert overlay.crossing(now, before, FAR) == 35


@pytest.mark.parametrize(("topology", "copies"), [("row", 2), ("star", 8)])
def test_a_tree_crosses_regions_at_each_link_between_them(topology: Any, copies: int) -> None:
    twelve = load_distances(overlay.DISTANCES)
    spec = TestbedSpec(["mosquitto"] * 12, algorithm="sf", topology=topology, distances=twelve)
    bed: Any = SimpleNamespace(spec=spec, is_overlay=False)
    assert sum(twelve.crosses(*pair) for pair in overlay.links_of(bed)) == copies


def test_a_mesh_is_asked_for_the_links_in_use() -> None:
    states = {0: {1: "active", 2: "blocked", 3: "active"}, 1: {0: "active"}, 2: {3: "active"}}
    states |= {3: {2: "active", 0: "active", 1: "blocked"}}

    def node(site: int) -> SimpleNamespace:
        rows = [{"node_id": f"site-{far}", "state": state} for far, state in states[site].items()]
        page = SimpleNamespace(items=rows)
        return SimpleNamespace(node_id=f"site-{site}", admin=SimpleNamespace(neighbors=lambda: page))

    spec = TestbedSpec(["mosquitto"] * 4, algorithm="sf", topology="mesh", distances=FAR)
    assert len(spec.edges) == 6
    bed: Any = SimpleNamespace(
        servers=[SimpleNamespace(node=node(site)) for site in range(4)], is_overlay=False, spec=spec
    )
    assert overlay.links_of(bed) == [(0, 1), (0, 3), (2, 3)]


def test_an_overlay_is_asked_for_its_tree() -> None:
    def tree(site: int, *children: dict[str, Any]) -> dict[str, Any]:
        return {"node": f"site-{site}", "children": list(children)}

    traced = {"trees": [{"tree": tree(0, tree(1, tree(2)), tree(3))}, {"tree": None}]}
    node = SimpleNamespace(admin=SimpleNamespace(trace=lambda topic: traced))
    bed: Any = SimpleNamespace(servers=[SimpleNamespace(node=node)] * 12, is_overlay=True)
    assert overlay.links_of(bed) == [(0, 1), (1, 2), (0, 3)]


def test_a_message_takes_as_long_as_to_the_last_of_its_subscribers(tmp_path: Path) -> None:
    manifest = SimpleNamespace(
        scenario=SimpleNamespace(topics=[SimpleNamespace(clients=c) for c in ("throughput", "latency")]),
        window_begin_ns=1_000,
        window_end_ns=9_000_000,
    )
    received = [
        # topic, publisher, seq, sent, subscriber, received: all in the window but the last two
        (1, 0, 0, 1_000, 0, 2_001_000),
        (1, 0, 0, 1_000, 1, 5_001_000),
        (1, 0, 1, 5_000_000, 0, 6_000_000),
        (0, 1, 0, 5_000_000, 0, 99_000_000),
        (1, 0, 2, 9_000_000, 0, 99_000_000),
    ]
    directory = tmp_path / "run=r" / "role=receive"
    directory.mkdir(parents=True)
    rows = [
        {"topic": t, "publisher": p, "seq": s, "intended_ns": at, "sent_ns": at, "subscriber": sub}
        | {"received_ns": got, "arrival": 0}
        for t, p, s, at, sub, got in received
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=RECEIVE), directory / "w.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay.Manifest, "read", lambda path: manifest)
        assert sorted(overlay.times_to_all(tmp_path, "r")) == [1.0, 5.0]


def test_a_row_of_the_overlay_table_shows_its_rounds() -> None:
    spread = {
        "to_all.mean": [48.0, 52.0],
        "to_all.worst": [55.0, 60.0],
        "each.mean": [],
        "each.worst": [],
        "copies": [2.0, 2.0],
        "bytes_between": [345.0, 347.0],
    }
    row = Row("STLA", sample_run("STLA", 1000.0), rounds=spread)
    cells = tables.cells(row, overlay.METRICS)
    assert cells[1:5] == ["50 (48-52)", "60 (55-60)", "", ""]
    assert cells[6:8] == ["2 (2-2)", "346 (345-347)"]


@pytest.mark.parametrize(("distribution", "counts"), [("Zipf", (31, 10, 19)), ("uniform", (21, 19, 20))])
def test_places_are_in_proportion_and_not_in_the_order_of_names(
    distribution: str, counts: tuple[int, ...]
) -> None:
    found = distance.places(distribution, 60)
    assert tuple(Counter(found)[place] for place in distance.PLACES) == counts
    assert found != sorted(found)
    assert found == distance.places(distribution, 60)
    far = distance.distances(["kanazawa", "kyoto", "kanazawa"])
    assert far.delays_ms == ((0, 20, 0.2), (20, 0, 20), (0.2, 20, 0))


def test_what_was_measured_before_is_drawn_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, QUICK, Console(quiet=True))
    for algorithm, least in (("sg_tbps", [0.4, 61.5, 20.6]), ("stla", [0.3, 40.2, 20.3])):
        for name in distance.SHARES:
            rounds = [{"least_ms": least, "lost": 1}, {"least_ms": [1.0, 51.5, 19.0], "lost": 0}]
            stored = json.dumps({"rounds": rounds, "disturbance": {"others": 0.01}})
            (tmp_path / f"{algorithm}-{name}.json").write_text(stored)
            (tmp_path / f"{algorithm}-{name}-simulated.json").write_text(str([[1.0] * 200]))
    comparison = distance.run(bench, 3)
    first = ["SG-TBPS, Zipf", "3", "56.5 (51.5-61.5)", "25.7 (23.8-27.5)", "1", "102"]
    assert comparison.table[1] == first
    assert comparison.runs[0].spread["completion_ms"] == [61.5, 51.5]
    assert comparison.runs[0].disturbance.others == 0.01
    assert comparison.table[2] == ["SG-TBPS, Zipf, simulated", "200", "1.0", "1.0", "0", ""]
    assert comparison.table[3][:3] == ["STLA, Zipf", "3", "45.9 (40.2-51.5)"]
    assert write_comparison(comparison, tmp_path).exists()
