"""OctopiA: content-based publish/subscribe on clusters of brokers."""

from ildm_algorithms.octopia.config import OctopiaConfig
from ildm_algorithms.octopia.plugin import Octopia

__all__ = ["Octopia", "OctopiaConfig"]
