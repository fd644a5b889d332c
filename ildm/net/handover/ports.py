"""What an upgrade needs of the node's server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ildm.config import Config
    from ildm.core.node import Node
    from ildm.net.listeners import ClientListeners
    from ildm.net.transport import Listener
    from ildm.net.transport.inherited import Inherited
    from ildm.net.transport.reactor import Reactor


class Host(Protocol):
    """A node with its sockets, as :class:`ildm.net.server.NodeServer`."""

    config: Config
    source: Path | None
    inherited: Inherited
    environment: Mapping[str, str]
    stop_requested: asyncio.Event
    reactor: Reactor | None
    for_clients: ClientListeners | None
    for_neighbors: list[Listener]
    node: Node

    async def stop_serving_people(self) -> None:
        """Give back what is not handed over: the sockets of metrics, the dashboard and the administrator."""

    def part(self) -> Callable[[], None]:
        """End the node, whose clients were taken from it; answers what closes the state, in any thread."""

    async def give_back(self) -> None:
        """The rest, but for the administrator, who waits for an answer."""
