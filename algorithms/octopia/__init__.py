"""OctopiA: content-based publish/subscribe on clusters of brokers."""

from algorithms.octopia.config import OctopiaConfig
from algorithms.octopia.plugin import Octopia

__all__ = ["Octopia", "OctopiaConfig"]
