"""SG-TBPS: topic-based publish/subscribe on a Skip Graph (thesis 3.2)."""

from __future__ import annotations

from typing import Literal

from ildm_algorithms.overlay.casts.routing import ROUTINGS
from ildm_algorithms.tbps import Direct, TbpsConfig, TopicBased

__all__ = ["SgTbps", "SgTbpsConfig"]


class SgTbpsConfig(TbpsConfig):
    """Options of the algorithm ``sg_tbps``."""

    routing: Literal["sfb", "mrf"] = "sfb"
    """How messages spread over a segment: SFB (thesis 4.1.2) or MRF (2.2.5)."""


class SgTbps(TopicBased[SgTbpsConfig]):
    """Each message goes to the subscribers of its topic and to nobody else, over paths of their own."""

    def make_spreading(self) -> Direct:
        return Direct(self.graph, ROUTINGS[self.config.routing])
