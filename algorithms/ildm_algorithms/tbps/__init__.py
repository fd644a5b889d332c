"""What topic-based publish/subscribe algorithms on sorted keys have in common (thesis 3.2)."""

from ildm_algorithms.tbps.config import TbpsConfig
from ildm_algorithms.tbps.plugin import TopicBased
from ildm_algorithms.tbps.spreading import Direct, Spreading

__all__ = ["Direct", "Spreading", "TbpsConfig", "TopicBased"]
