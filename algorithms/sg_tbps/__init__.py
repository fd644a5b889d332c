"""SG-TBPS: topic-based publish/subscribe on a Skip Graph (thesis 3.2)."""

from algorithms.sg_tbps.plugin import SgTbps, SgTbpsConfig

__all__ = ["SgTbps", "SgTbpsConfig"]
