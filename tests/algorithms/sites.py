"""Sites in one graph, whose clients publish texts and get them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ildm.api import OverlayAlgorithm
from ildm.testing import Delivery, LinkModel, PluginWorld, SimNode, uniform
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla

Kinds = Mapping[type[OverlayAlgorithm[Any]], Mapping[str, Any]]
"""Algorithms with their options."""
TOPIC_BASED: Kinds = {SgTbps: {}, AtmTbps: {}, Stla: {"locality": ["here"]}}


def all_kinds(clusters: str, members: Mapping[str, str], **options: Any) -> Kinds:
    """The topic-based ones with these options, and OctopiA on a grid of the regions x and y."""
    grid = {"regions": ["x-y"], "clusters": list(clusters), "members": members}
    return {**{kind: {**own, **options} for kind, own in TOPIC_BASED.items()}, Octopia: grid}


class Graph:
    """The nodes of sites, and what their brokers deliver, through all lives of the nodes."""

    def __init__(
        self,
        algorithm: type[OverlayAlgorithm[Any]],
        options: Mapping[str, Any],
        names: Sequence[str],
        seed: int = 1,
        spool: bool = False,
        **link: Any,
    ) -> None:
        model = LinkModel(**{"delay": uniform(0.002, 0.02), **link})
        self.world = PluginWorld(algorithm, options, seed, model, spool=spool)
        self.world.on_delivery = self._delivered
        self.got: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self.world.add(name, None if name == names[0] else names[0])
            self.world.run(0.5)

    def _delivered(self, node: SimNode, delivery: Delivery) -> None:
        self.got[node.node_id].append(delivery.payload.decode())

    def send(self, name: str, topic: str, texts: Iterable[str], qos: int) -> None:
        for text in texts:
            self.world[name].publish(topic, text.encode(), qos, publisher=1)

    def kill(self, *names: str, silent: bool = False) -> None:
        for name in names:
            self.world.kill(name, silent)

    def start(self, *names: str) -> None:
        """Nodes are there again, with the sessions their brokers have."""
        for name in names:
            self.world.add(name, keep=True)
