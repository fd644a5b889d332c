"""ATM-TBPS: adaptive topologies for topic-based publish/subscribe (Banno, Shudo 2020)."""

from algorithms.atm_tbps.config import AtmTbpsConfig
from algorithms.atm_tbps.plugin import AtmTbps

__all__ = ["AtmTbps", "AtmTbpsConfig"]
