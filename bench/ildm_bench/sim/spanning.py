"""Trees that span all sites, each linked with each: what the delays along their paths are.

Delays are one-way, in ms, as a square matrix. A tree is its edges. That of the nodes is chosen by
`ildm.core.link.topology` itself, from the weights of `ildm.core.link.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ildm.core.link.topology import Advertisement, Topology
from ildm.core.link.weights import steps

Delays = npt.NDArray[np.float64]
Edges = Sequence[tuple[int, int]]

EARTH = 12_742.0
"""Diameter in km."""
PER_KM = 1 / 200
"""ms of light in a fibre."""
LEAST, MOST = 1.2, 1.9
"""Times the great circle that a path is long."""
CITIES = (
    *((51.5, -0.1), (40.7, -74.0), (35.7, 139.7), (1.3, 103.8), (-33.9, 151.2), (-23.5, -46.6)),
    *((50.1, 8.7), (34.0, -118.2), (19.0, 72.8), (-26.2, 28.0), (25.2, 55.3), (43.7, -79.4)),
    *((48.9, 2.4), (40.4, -3.7), (59.3, 18.1), (52.2, 21.0), (45.5, 9.2), (41.0, 29.0)),
    *((55.8, 37.6), (30.0, 31.2), (6.5, 3.4), (-1.3, 36.8), (13.0, 80.3), (13.8, 100.5)),
    *((-6.2, 106.8), (22.3, 114.2), (37.6, 127.0), (34.7, 135.5), (14.6, 121.0), (-37.8, 145.0)),
    *((-36.8, 174.8), (47.6, -122.3), (41.9, -87.6), (32.8, -96.8), (25.8, -80.2), (19.4, -99.1)),
    *((4.7, -74.1), (-12.0, -77.0), (-33.4, -70.7), (-34.6, -58.4)),
)
"""Latitude and longitude of large cities; the first twelve, from London to Toronto, are on all continents."""


class Paths(NamedTuple):
    """Of all pairs of sites, and of the site with the most links."""

    mean: float
    worst: float
    hops: float
    """Links of a path, mean."""
    degree: int


def between_cities(generator: np.random.Generator, sites: int) -> Delays:
    """Delays between the first so many cities."""
    latitude, longitude = np.radians(np.asarray(CITIES[:sites])).T
    apart = np.sin((latitude[:, None] - latitude) / 2) ** 2
    apart += np.cos(latitude[:, None]) * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    detour = np.triu(generator.uniform(LEAST, MOST, (sites, sites)), 1)
    delays: Delays = EARTH * np.arcsin(np.sqrt(apart)) * PER_KM * (detour + detour.T)
    return delays


def paths(delays: Delays, edges: Edges) -> Paths:
    """Along a tree."""
    found, hops = along(delays, edges), along(np.ones_like(delays), edges)
    pairs = len(delays) * (len(delays) - 1)
    degrees = np.bincount(np.asarray(edges).ravel())
    return Paths(
        float(found.sum() / pairs), float(found.max()), float(hops.sum() / pairs), int(degrees.max())
    )


def along(delays: Delays, edges: Edges) -> Delays:
    """float64[sites, sites]: delays along the edges of a forest; infinite where there is no path."""
    found = np.full_like(delays, np.inf)
    np.fill_diagonal(found, 0.0)
    groups = {site: [site] for site in range(len(delays))}
    for one, other in edges:
        near, far = groups[one], groups[other]
        found[np.ix_(near, far)] = found[near, one][:, None] + delays[one, other] + found[other, far]
        found[np.ix_(far, near)] = found[np.ix_(near, far)].T
        near += far
        groups |= dict.fromkeys(far, near)
    return found


def chosen(delays: Delays, ages: Delays, by_delay: bool) -> Edges:
    """The tree of the nodes; ``ages``: of the links, in any order that differs."""
    count = len(delays)
    names = [f"{site:04}" for site in range(count)]
    topology = Topology(names[0], 1, count)
    order = {}
    for age, pair in enumerate(sorted((ages[a, b], a, b) for a in range(count) for b in range(a))):
        order[pair[2], pair[1]] = order[pair[1], pair[2]] = age + 1
    for site, name in enumerate(names):
        links = {names[far]: order[site, far] for far in range(count) if far != site}
        if site:
            topology.receive(Advertisement(name, 1, 0, links))
        else:
            topology.set_links(links)
    if by_delay:
        pairs = ((a, b) for b in range(count) for a in range(b))
        topology.weigh({(names[a], names[b]): steps(2 * delays[a, b] / 1000) for a, b in pairs})
    return [(int(a), int(b)) for a, b, active in topology.graph() if active]


def from_median(delays: Delays) -> Edges:
    """Shortest paths from the site with the least sum of delays to all others."""
    root = int(shortest(delays).sum(axis=1).argmin())
    left = np.full(len(delays), np.inf)
    left[root] = 0.0
    before = np.full(len(delays), -1)
    done = np.zeros(len(delays), np.bool_)
    for _ in range(len(delays)):
        here = int(np.where(done, np.inf, left).argmin())
        done[here] = True
        better = ~done & (left[here] + delays[here] < left)
        left[better] = left[here] + delays[here][better]
        before[better] = here
    return [(site, int(parent)) for site, parent in enumerate(before) if parent >= 0]


def shortest(delays: Delays) -> Delays:
    """Over any links."""
    found = delays.copy()
    for site in range(len(delays)):
        found = np.minimum(found, found[:, site, None] + found[site])
    return found


def improved(delays: Delays, edges: Edges) -> Edges:
    """A tree that no exchange of one edge makes better in the mean; the least is hard to find."""
    edges = list(edges)
    changed = True
    while changed:
        changed = False
        for place in range(len(edges)):
            rest = edges[:place] + edges[place + 1 :]
            found = along(delays, rest)
            side = np.isfinite(found[edges[place][0]])
            near, far = np.flatnonzero(side), np.flatnonzero(~side)
            to_near = found[np.ix_(near, near)].sum(axis=1) * far.size
            to_far = found[np.ix_(far, far)].sum(axis=1) * near.size
            cost = to_near[:, None] + to_far + near.size * far.size * delays[np.ix_(near, far)]
            row, column = np.unravel_index(int(cost.argmin()), cost.shape)
            best = int(near[row]), int(far[column])
            old = edges[place] if side[edges[place][0]] else edges[place][::-1]
            now = cost[int(np.searchsorted(near, old[0])), int(np.searchsorted(far, old[1]))]
            if cost[row, column] < now - 1e-9:
                edges[place] = best
                changed = True
    return edges
