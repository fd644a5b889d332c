"""Publication flooding (thesis 5.3.1): every message goes to every site."""

from __future__ import annotations

from ildm.api import Link, Route, TreeAlgorithm


class PublicationFlooding(TreeAlgorithm):
    """A message from a local client, or from a neighbour, goes to all other neighbours.

    Subscriptions stay with their broker. Retained messages need nothing special, as each broker gets
    them all (thesis 5.3.3). The links form a tree, so a message comes to each node once.
    """

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [(link, 2) for link in self.api.links if link is not source]
