"""ATM-TBPS: adaptive topologies for topic-based publish/subscribe (Banno, Shudo 2020)."""

from ildm_algorithms.atm_tbps.config import AtmTbpsConfig
from ildm_algorithms.atm_tbps.plugin import AtmTbps

__all__ = ["AtmTbps", "AtmTbpsConfig"]
