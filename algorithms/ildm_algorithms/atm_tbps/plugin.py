"""The algorithm ``atm_tbps``: what it adds to those that live on sorted topics."""

from __future__ import annotations

from ildm_algorithms.atm_tbps.config import AtmTbpsConfig
from ildm_algorithms.atm_tbps.flexible import FlexibleGraph
from ildm_algorithms.atm_tbps.spreading import Farthest
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.tbps import TopicBased

__all__ = ["AtmTbps"]


class AtmTbps(TopicBased[AtmTbpsConfig]):
    """Topics with few subscribers get each message in one hop, others over trees of few."""

    graph: FlexibleGraph

    def make_graph(self) -> SkipGraph:
        return FlexibleGraph(self.api, self, self.config)

    def make_spreading(self) -> Farthest:
        return Farthest(self.graph)
