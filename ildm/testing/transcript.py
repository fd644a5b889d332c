"""A world that writes down what passes between its nodes, for golden files and figures of a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ildm.api import Algorithm, Filter
from ildm.mqtt import Publish
from ildm.testing.broker import RecordingBroker
from ildm.testing.link import SimLink
from ildm.testing.network import LinkModel
from ildm.testing.node import SimNode
from ildm.testing.world import PluginWorld


class Transcript(PluginWorld):
    """A :class:`PluginWorld` with a line for each message between nodes, and for each into a broker.

    The lines are ``I5 -> I3  PUBLISH t`` (``retain`` behind it if it is), ``I2 -> I1  SUBSCRIBE t qos 0``,
    ``I2 -> I1  UNSUBSCRIBE t``, ``I2 -> I4  DATA 12 bytes``, and ``I3 -> broker  PUBLISH t``.

    Attributes:
        lines: what has happened so far.
    """

    def __init__(
        self,
        algorithm: type[Algorithm],
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        model: LinkModel | None = None,
        filters: Iterable[tuple[type[Filter], Mapping[str, Any] | None]] = (),
    ) -> None:
        super().__init__(algorithm, options, seed, model, filters)
        self.lines: list[str] = []
        self.network.on_carry = self._carried

    def make_node(self, node_id: str) -> SimNode:
        node = super().make_node(node_id)
        node.broker = _NotingBroker(node_id, self.lines)
        return node

    def _carried(self, link: SimLink, what: Any) -> None:
        way = f"{link.here.node_id} -> {link.node_id}  "
        if isinstance(what, Publish):
            self.lines.append(f"{way}PUBLISH {what.topic}{' retain' if what.retain else ''}")
        elif isinstance(what, Mapping):
            for topic_filter, qos in what.items():
                gone = qos is None
                self.lines.append(
                    f"{way}UNSUBSCRIBE {topic_filter}" if gone else f"{way}SUBSCRIBE {topic_filter} qos {qos}"
                )
        else:
            self.lines.append(f"{way}DATA {len(what)} bytes")

    def step(self, title: str) -> None:
        """A heading in the transcript."""
        self.lines.append(f"# {title}")

    def transfers(self) -> list[str]:
        """The messages between nodes so far, as ``I5>I3``."""
        parts = (line.split() for line in self.lines)
        return [f"{p[0]}>{p[2]}" for p in parts if p[1] == "->" and p[3] == "PUBLISH" and p[2] != "broker"]


class _NotingBroker(RecordingBroker):
    __slots__ = ("lines", "node_id")

    def __init__(self, node_id: str, lines: list[str]) -> None:
        super().__init__()
        self.node_id = node_id
        self.lines = lines

    def inject(self, message: Publish) -> dict[str, int]:
        self.lines.append(f"{self.node_id} -> broker  PUBLISH {message.topic}")
        return super().inject(message)
