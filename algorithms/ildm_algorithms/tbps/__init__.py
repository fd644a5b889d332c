"""What topic-based publish/subscribe algorithms on sorted keys have in common (thesis 3.2)."""

from ildm_algorithms.tbps.config import TbpsConfig
from ildm_algorithms.tbps.keys.spreading import Direct, Spreading
from ildm_algorithms.tbps.plugin import TopicBased

__all__ = ["Direct", "Spreading", "TbpsConfig", "TopicBased"]
