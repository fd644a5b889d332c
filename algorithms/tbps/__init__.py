"""What topic-based publish/subscribe algorithms on sorted keys have in common (thesis 3.2)."""

from algorithms.tbps.config import TbpsConfig
from algorithms.tbps.plugin import TopicBased
from algorithms.tbps.spreading import Direct, Spreading

__all__ = ["Direct", "Spreading", "TbpsConfig", "TopicBased"]
