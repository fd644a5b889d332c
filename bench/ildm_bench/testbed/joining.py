"""What nodes of a testbed are told of each other, and whether they have found together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from ildm.admin.view import AdminError
from ildm.api import OverlayAlgorithm
from ildm.core.plugin.loading import ALGORITHMS
from ildm.testing.live.node import NodeProcess
from ildm_bench.testbed.spec import TestbedSpec, edges_of

LOCALITY = "locality"
"""Option of an algorithm: the path of regions a site is in, from the largest to the smallest."""
GRID = ("regions", "clusters", "members")
"""Options of an algorithm whose nodes are told where all sites are, as copies of one tree (OctopiA)."""


class Kind(NamedTuple):
    """What has to be known of an algorithm before its nodes are made."""

    overlay: bool
    """Its nodes make their links themselves; those of the configuration are only the way in."""
    asks_locality: bool
    """It does not run without being told where a site is."""
    asks_grid: bool = False
    """It does not run without being told where all sites are."""

    @classmethod
    def of(cls, name: str | None) -> Kind:
        """By the name of its entry point. Nothing is known of one that is not there or cannot be imported:
        whoever loads it is told so."""
        found = list(entry_points(group=ALGORITHMS, name=name)) if name else []
        try:
            plugin = found[0].load() if len(found) == 1 else None
        except (ImportError, AttributeError):
            plugin = None
        if not isinstance(plugin, type) or not issubclass(plugin, OverlayAlgorithm):
            return cls(overlay=False, asks_locality=False)
        options = plugin.Config.model_fields
        required = {name for name, option in options.items() if option.is_required()}
        return cls(overlay=True, asks_locality=LOCALITY in required, asks_grid=required.issuperset(GRID))


def algorithm_of(spec: TestbedSpec, site: int, kind: Kind) -> str | Mapping[str, Any] | None:
    """The section ``algorithm`` of a site's configuration.

    Without distances each site is a region of its own.
    """
    algorithm = spec.algorithm
    if algorithm is None or not (kind.asks_locality or kind.asks_grid):
        return algorithm
    document = dict(algorithm) if isinstance(algorithm, Mapping) else {"name": algorithm}
    if kind.asks_grid:
        return {**grid_of(spec), **document}
    place = (f"site-{site}",) if spec.distances is None else spec.distances.regions[site]
    return {LOCALITY: list(place), **document}


def grid_of(spec: TestbedSpec) -> dict[str, Any]:
    """The options :data:`GRID` of all sites: each region of the distances is a cluster, without distances
    each site. The first sites of all clusters are region ``r0``, the second ones ``r1``, and so on; within a
    cluster they are joined as the testbed's topology says.
    """
    names = [f"site-{site}" for site in range(len(spec.brokers))]
    if spec.distances is not None:
        names = ["-".join(region) for region in spec.distances.regions]
    places: dict[str, list[int]] = {}
    for site, name in enumerate(names):
        places.setdefault(name, []).append(site)
    depth = max(len(sites) for sites in places.values())
    return {
        "regions": [f"r{one}-r{other}" for one, other in edges_of(spec.topology, depth)] or ["r0"],
        "clusters": list(places),
        "members": {
            f"site-{site}": f"r{rank}/{name}"
            for name, sites in places.items()
            for rank, site in enumerate(sites)
        },
    }


def one_overlay(views: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what all nodes tell of their overlay (`ildm.api.OverlayView`) is one list at level 0.

    An algorithm without such lists has nothing to wait for.
    """
    rows = {row["key"]: row for view in views for row in view["keys"]}
    if any(row["status"] == "joining" for row in rows.values()):
        return False
    chained = {key: row["levels"][0] for key, row in rows.items() if row["levels"]}
    heads = [key for key, (left, _) in chained.items() if left is None]
    here, seen = heads[0] if len(heads) == 1 else None, 0
    while here in chained and seen <= len(chained):
        here, seen = chained[here][1], seen + 1
    return here is None and seen == len(chained)


def found_together(nodes: Sequence[NodeProcess], kind: Kind) -> bool:
    """Whether all nodes are in one overlay; in a grid, whether each hears all of its cluster and region."""
    try:
        views = [node.admin.overlay() for node in nodes]
        if kind.asks_grid:
            return all(row["state"] == "up" for view in views for row in view["tables"]["links"])
        return one_overlay(views)
    except AdminError as error:  # an algorithm without a view of it
        return "has no overlay" in str(error)
