"""Sites in a grid of regions and clusters, and how a test sees that they have agreed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest

from ildm.core.plugin.loading import ALGORITHMS
from tests.sites.client import PATIENCE
from tests.sites.conftest import Sites
from tests.sites.mesh import Mesh
from tests.sites.site import Elsewhere, Site, crossing

NAME = "octopia"
QUICK: dict[str, Any] = {
    "hello_interval": 0.3,
    "dead_after": 2.0,
    "ack_timeout": 0.5,
    "timeout_min": 0.1,
    "timeout_max": 1.0,
}
"""Options with shorter times, so that failures are noticed soon."""
CALM = 5
"""So many looks in a row must find nothing left to do."""
Kind = tuple[str, int]
"""Make and number of a shared broker."""

installed = pytest.mark.skipif(
    not entry_points(group=ALGORITHMS, name=NAME), reason="octopia is not installed yet: make setup does it"
)


def choice(regions: int, clusters: int, names: Sequence[str], **options: Any) -> dict[str, Any]:
    """The section ``algorithm``: regions ``a``, ``b``... in a row, clusters ``c0``, ``c1``...

    The names fill one cluster after the other: ``names[i]`` is in cluster ``i // regions``.
    """
    labels = [chr(ord("a") + index) for index in range(regions)]
    return {
        "name": NAME,
        "regions": [f"{one}-{other}" for one, other in itertools.pairwise(labels)] or labels,
        "clusters": [f"c{index}" for index in range(clusters)],
        "members": {
            name: f"{labels[number % regions]}/c{number // regions}" for number, name in enumerate(names)
        },
        **QUICK,
        **options,
    }


async def grid(
    sites: Sites,
    regions: int,
    clusters: int,
    kinds: Sequence[Kind] | None = None,
    *,
    mesh: Mesh | None = None,
    others: Mapping[int, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Site]:
    """A grid without gaps, before shared brokers, all of whose sites have heard of each other.

    The first is named by all others as a neighbour. With a mesh they reach each other by its gates.
    ``others`` are members that the test makes itself, by their place among all. ``changes`` are keys of the
    nodes' configuration.
    """
    others = others or {}
    names = sites.upcoming(regions * clusters - len(others))
    everybody = list(names)
    for place, name in sorted(others.items()):
        everybody.insert(place, name)
    algorithm = choice(regions, clusters, everybody, **options)
    made: list[Site] = []
    for index, name in enumerate(names):
        kind = ("mosquitto", index) if kinds is None else kinds[index]
        link = {} if mesh is None else await mesh.link(name)
        keys = dict(changes or {})
        keys["link"] = {**link, **keys.get("link", {})}
        made.append(await sites.make(sites.shared_broker(*kind), algorithm, **keys))
        if index:
            made[-1].add(made[0], None if mesh is None else mesh.gates[names[0]].address)
    if not others:
        await agreed(made)
    return made


def fault(views: Iterable[Mapping[str, Any]], alive: Container[str]) -> str | None:
    """What keeps the nodes that have told this from having agreed; None: nothing does."""
    for view in views:
        if not view:
            return "a node has not started"
        for row in view["tables"]["links"]:
            if (row["state"] == "up") is not (row["node"] in alive):
                return f"{view['node']} has {row['node']} as {row['state']}"
        for name in ("not acknowledged", "lacking", "not told yet"):
            if view["facts"][name]:
                return f"{view['node']}: {name} {view['facts'][name]}"
        owed = [name for name in (view["facts"]["owed to"] or "").split(", ") if name in alive]
        if owed:
            return f"{view['node']} owes {owed}"  # those that are dead are told when they are back
    return None


async def agreed(made: Iterable[Site], *elsewhere: Elsewhere) -> None:
    """Wait until the running nodes know of each other, of no others, and nothing is under way between them.

    What is wanted and advertised where is known then to all who have to know, as nothing waits for a timer.
    """
    found: str | None = ""

    async def look() -> str | None:
        sites = [site for site in made if site.running]
        crossed: dict[tuple[str, str, str], int] = {}
        for site in sites:
            if not (site.node.links.idle and site.node.injector.idle):
                return f"{site.name} has messages to send"
            crossed |= crossing(site, site.server.admin.view.neighbors())
        views = [site.overlay() for site in sites]
        for node in elsewhere:
            views.append(await node.overlay())
            crossed |= crossing(node, await node.neighbors())
        known = {site.name for site in sites}  # what a process tells is of another moment
        for (here, there, way), count in crossed.items():
            back = crossed.get((here, there, "got" if way == "sent" else "sent"))
            if {here, there} <= known and back != count:
                return f"{here} to {there}: {count} {way}, at the other end {back}"
        return fault(views, known | {node.name for node in elsewhere})

    async def poll() -> None:
        nonlocal found
        calm = 0
        while calm < CALM:
            found = await look()
            calm = calm + 1 if found is None else 0
            await asyncio.sleep(0.01)

    try:
        async with asyncio.timeout(PATIENCE):
            await poll()
    except TimeoutError:
        raise AssertionError(f"not agreed: {found}") from None
