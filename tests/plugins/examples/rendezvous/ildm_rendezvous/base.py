"""What all parts of the algorithm need."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ildm.api import OverlayAlgorithm, Peer, PluginConfig, SendResult
from ildm.mqtt import validate_topic_filter


def _checked(topic_filter: str) -> str:
    validate_topic_filter(topic_filter)
    return topic_filter


TopicFilter = Annotated[str, AfterValidator(_checked)]


class Options(PluginConfig):
    """The keys beside ``name`` in the configuration file; but for ``interval`` the same at all nodes."""

    interval: float = Field(default=5.0, gt=0)
    """Seconds between two comparisons of tables of members, and between two registrations."""
    most: int = Field(default=10_000, ge=1)
    """Members that are remembered, with those that have gone."""
    levels: int = Field(default=1, ge=1)
    """So many levels of a topic decide about its home."""
    filters: int = Field(default=10_000, ge=1)
    """So many filters of each site are held by a home."""


class Base(OverlayAlgorithm[Options]):
    def send(self, peer: Peer, data: bytes, turn: int = 0) -> None:
        """Send to a node, which may be this one; what is refused is counted."""
        result = self.api.send(peer, data, turn)
        if result is SendResult.SELF:
            self.on_message(peer, data, turn)
        elif not result:
            self.api.count("not_sent")
