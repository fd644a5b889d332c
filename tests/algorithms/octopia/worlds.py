"""Worlds of OctopiA: a grid of nodes named by region and cluster, ``a0`` to ``c2``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ildm.testing import LinkModel, PluginWorld
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.octopia.messages import CODEC

LINE = ("a-b", "b-c")
"""Regions a, b, c in a row."""


def grid(regions: Sequence[str] = LINE, clusters: int = 3, **options: Any) -> dict[str, Any]:
    """Options of a whole grid: region ``a`` and cluster ``c1`` hold node ``a1``."""
    labels = sorted({label for edge in regions for label in edge.split("-")})
    names = [f"c{number}" for number in range(clusters)]
    members = {f"{label}{n}": f"{label}/{name}" for label in labels for n, name in enumerate(names)}
    return {"regions": list(regions), "clusters": names, "members": members, **options}


def make(
    regions: Sequence[str] = LINE,
    clusters: int = 3,
    seed: int = 1,
    model: LinkModel | None = None,
    run: float = 4.0,
    spool: bool = False,
    **options: Any,
) -> PluginWorld:
    """A world in which all nodes have found each other."""
    chosen = grid(regions, clusters, **options)
    world = PluginWorld(Octopia, chosen, seed=seed, model=model, spool=spool)
    world.network.classify = classify
    first = next(iter(chosen["members"]))
    for number, name in enumerate(chosen["members"]):
        world.add(name, introducer=first if number else None)
    world.run(run)
    return world


def classify(data: bytes) -> str:
    """Kind of a message: the name of its class."""
    return type(CODEC.decode(data)).__name__.lower()


def octopia(world: PluginWorld, name: str) -> Octopia:
    """The algorithm of a node."""
    found = world[name].algorithm
    assert isinstance(found, Octopia)
    return found


def payloads(world: PluginWorld, name: str) -> list[bytes]:
    """What the clients of a node got, in order."""
    return [delivery.payload for delivery in world[name].deliveries]


def topics(world: PluginWorld, name: str) -> list[str]:
    return [delivery.topic for delivery in world[name].deliveries]


def sent(world: PluginWorld, *kinds: str) -> tuple[int, ...]:
    """Messages of these kinds so far."""
    return tuple(world.network.sent[kind] for kind in kinds)


def tables(world: PluginWorld) -> Mapping[str, object]:
    """The tables of all living nodes, without what differs between two ways to the same state."""
    return dict(_tables(world))


def _tables(world: PluginWorld) -> Iterator[tuple[str, object]]:
    for node in world.alive():
        name = node.node_id
        algorithm = octopia(world, name)
        replicas, view = algorithm.replicas, algorithm.members.view
        yield (
            name,
            (
                sorted(str(entry) for entry in replicas.prt.index),
                sorted(str(content) for content in replicas.clt.own.values()),
                [sorted(replicas.clt.bits(uid).items()) for uid in sorted(replicas.clt.own)],
                {
                    other: sorted(str(row.advertised) for row in replicas.clt.rows(other).values())
                    for other in view.secondary.values()
                },
                view.primary,
                view.secondary,
                replicas.lacking(),
            ),
        )
