"""Queues of a node's links, by which it decides on the way of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm_algorithms.octopia.grid.congestion import LinkLoad

if TYPE_CHECKING:
    from ildm.api import Link, NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.grid.members import Members

__all__ = ["Loads"]


class Loads:
    """Queues of the links with neighbours; implements :class:`ildm_algorithms.octopia.grid.routing.Load`."""

    def __init__(self, api: NodeApi, config: OctopiaConfig, members: Members) -> None:
        self.api = api
        self.config = config
        self.members = members
        self._links: dict[str, Link] = {}
        self._loads: dict[str, LinkLoad] = {}

    def link_up(self, link: Link) -> None:
        self._links[link.node_id] = link

    def link_down(self, link: Link) -> None:
        self._links.pop(link.node_id, None)

    def sent(self, node_id: str) -> None:
        """A message has been put into the queue."""
        if self.config.routing == "idr":
            self._load(node_id).sent()

    def usable(self, node_id: str) -> bool:
        return self.members.alive(node_id)

    def queued(self, node_id: str) -> float:
        link = self._links.get(node_id)
        return 0 if link is None else link.queued

    def congested(self, node_id: str) -> bool:
        return self._load(node_id).congested(self.api.now(), int(self.queued(node_id)))

    def _load(self, node_id: str) -> LinkLoad:
        load = self._loads.get(node_id)
        if load is None:
            load = self._loads[node_id] = LinkLoad(self.config.tau, self.config.window)
        return load
