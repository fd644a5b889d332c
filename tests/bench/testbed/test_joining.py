"""What nodes of a testbed are told, and how it is seen that they have found together."""

from __future__ import annotations

from typing import Any

import pytest

from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.joining import GRID, Kind, algorithm_of, grid_of, one_overlay
from ildm_bench.testbed.spec import TestbedSpec


def view(*keys: tuple[str, str | None, str | None], status: str = "in") -> dict[str, Any]:
    return {"keys": [{"key": k, "status": status, "levels": [(left, right)]} for k, left, right in keys]}


def test_one_list_over_all_nodes_is_one_overlay() -> None:
    views = [view(("a", None, "b"), ("c", "b", None)), view(("b", "a", "c"))]
    assert one_overlay(views)
    assert one_overlay(views[:1]) is False
    assert one_overlay([*views, view(("d", None, None))]) is False
    assert one_overlay([view(("a", None, "b")), view(("b", None, None))]) is False
    assert one_overlay([view(("a", None, None), status="joining")]) is False
    assert one_overlay([{"keys": []}]) is True


def test_a_circle_is_none() -> None:
    assert one_overlay([view(("a", None, "b"), ("b", "a", "c"), ("c", "b", "b"))]) is False


@pytest.mark.parametrize(
    ("name", "overlay"), [("sf", False), ("sg_tbps", True), ("nobody's", False), (None, False)]
)
def test_what_kind_an_algorithm_is(name: str | None, overlay: bool) -> None:
    assert Kind.of(name) == Kind(overlay=overlay, asks_locality=False)


def test_who_asks_for_its_locality_is_told_the_region() -> None:
    asking = Kind(overlay=True, asks_locality=True)
    far = Distances.by_regions({"eu/fr": 1, "us": 1}, 1, 40)
    spec = TestbedSpec(["mosquitto"] * 2, algorithm={"name": "near", "qos": 1}, distances=far)
    assert algorithm_of(spec, 0, asking) == {"name": "near", "qos": 1, "locality": ["eu", "fr"]}
    assert algorithm_of(spec, 0, Kind(overlay=True, asks_locality=False)) == spec.algorithm
    alone = TestbedSpec(["mosquitto"] * 2, algorithm="near")
    assert algorithm_of(alone, 1, asking) == {"name": "near", "locality": ["site-1"]}
    own = TestbedSpec(["mosquitto"], algorithm={"name": "near", "locality": ["here"]})
    assert algorithm_of(own, 0, asking) == own.algorithm


def test_regions_of_a_matrix_are_clusters_of_a_grid() -> None:
    """Of unequal size: labels that one of them has not filled are nobody."""
    far = Distances.by_regions({"eu/fr": 3, "us": 2}, 1, 40)
    spec = TestbedSpec(["mosquitto"] * 5, algorithm={"name": "grid", "qos": 1}, distances=far)
    grid = {
        "regions": ["r0-r1", "r1-r2"],
        "clusters": ["eu-fr", "us"],
        "members": {
            "site-0": "r0/eu-fr",
            "site-1": "r1/eu-fr",
            "site-2": "r2/eu-fr",
            "site-3": "r0/us",
            "site-4": "r1/us",
        },
    }
    asking = Kind(overlay=True, asks_locality=False, asks_grid=True)
    assert algorithm_of(spec, 0, asking) == {"name": "grid", "qos": 1, **grid}
    assert tuple(grid_of(spec)) == GRID


def test_without_a_matrix_each_site_is_a_cluster() -> None:
    spec = TestbedSpec(["mosquitto"] * 2, algorithm="grid")
    assert grid_of(spec) == {
        "regions": ["r0"],
        "clusters": ["site-0", "site-1"],
        "members": {"site-0": "r0/site-0", "site-1": "r0/site-1"},
    }
