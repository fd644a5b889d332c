"""Advertisements of this node's clients: those configured, and topics once they are published to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm_algorithms.octopia.content.content import ContentFilter

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.delivery.carried import Carried
    from ildm_algorithms.octopia.tables.replicas import Replicas

__all__ = ["Published"]


class Published:
    """Advertises at most ``max_topics`` topics by themselves, until they are idle for ``publisher_idle``."""

    def __init__(
        self, api: NodeApi, config: OctopiaConfig, replicas: Replicas, count: Callable[[str], None]
    ) -> None:
        self.api = api
        self.config = config
        self.clt = replicas.clt
        self.sessions = replicas.sessions
        self.count = count
        self._learned: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Topics: uid, and when one was published to last; the longest ago first."""
        self._uid = 0
        self._sweeping = False

    def start(self) -> None:
        """Advertise what the configuration says."""
        for content in self.config.advertised:
            self.advertise(content)

    def advertise(self, content: ContentFilter) -> int:
        """Answers the uid."""
        self._uid += 1
        self.sessions.advertise(self._uid, content)
        return self._uid

    def clusters_of(self, carried: Carried) -> frozenset[int]:
        """The clusters that a message of this node's clients goes to."""
        if carried.everywhere:
            return self.clt.clusters
        topic = carried.publish.topic
        found = self.clt.clusters_of(topic, carried.attributes)
        if topic in self._learned:
            self._learned[topic] = self._learned[topic][0], self.api.now()
            self._learned.move_to_end(topic)
        elif found is None:
            self._learn(topic)
        return self.clt.clusters if found is None else found

    def _learn(self, topic: str) -> None:
        self._learned[topic] = self.advertise(ContentFilter(topic)), self.api.now()
        if len(self._learned) > self.config.max_topics:
            self.count("topics_displaced")
            self._forget_oldest()
        if not self._sweeping:
            self._sweeping = True
            self.api.call_later(self.config.publisher_idle, self._sweep)

    def _forget_oldest(self) -> None:
        _, (uid, _) = self._learned.popitem(last=False)
        self.sessions.unadvertise(uid)

    def _sweep(self) -> None:
        """Withdraw what nobody has published to for too long."""
        now = self.api.now()
        while self._learned:
            _, used = next(iter(self._learned.values()))
            left = used + self.config.publisher_idle - now
            if left > 0:
                self.api.call_later(left, self._sweep)
                return
            self.count("topics_idle")
            self._forget_oldest()
        self._sweeping = False
