"""Sites of a test: each a node before a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ildm.testing.live.brokers import Broker
from ildm.testing.live.fleet import Fleet
from ildm.testing.live.node import NodeProcess

Choice = str | Mapping[str, Any]
"""A plugin by the name of its entry point, or a mapping with its ``name`` and its options."""


class NodeFactory:
    """``factory("sf")`` starts a node before a broker of its own, and returns when both are ready."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.brokers = Fleet(directory / "brokers")
        self._nodes: list[NodeProcess] = []

    def __call__(
        self,
        algorithm: Choice | None = None,
        *,
        filters: Iterable[Choice] = (),
        broker: str | Broker = "amqtt",
        neighbors: Sequence[NodeProcess] = (),
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        python_path: Path | None = None,
    ) -> NodeProcess:
        """Start a node.

        Args:
            algorithm: None: the node relays only.
            broker: the make of a new one (see :func:`require_broker`), or one that runs.
            neighbors: nodes to link with; the links are active on return.
            name: the node's id; without one ``node-1``, ``node-2`` and so on.
            config: keys of the configuration file to change, within sections key by key.
            python_path: a directory where the node's Python looks first, for plugins installed there.
        """
        if isinstance(broker, str):
            broker = self.brokers.start(broker)
        name = name or f"node-{len(self._nodes) + 1}"
        node = NodeProcess(
            self._directory / name,
            broker.address,
            algorithm,
            node_id=name,
            link={"settle": 0.05, "neighbors": [neighbor.link_address for neighbor in neighbors]},
            extra={"filters": list(filters), "log": {"level": "info"}, **(config or {})},
            python_path=python_path,
        )
        self._nodes.append(node)
        node.start()
        node.wait_linked(*neighbors)
        return node

    def close(self) -> None:
        """Kill all nodes and the brokers that were started for them."""
        for node in self._nodes:
            node.kill()
        self.brokers.close()
