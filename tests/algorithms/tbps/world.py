"""Worlds of the topic-based algorithms, over a perfect list or over the Skip Graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ildm.mqtt import Property, Publish
from ildm.testing import LinkModel, PluginWorld, RecordingBroker, SimNode, uniform
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.tbps import TopicBased
from ildm_algorithms.tbps.keys.encoding import key_text
from tests.algorithms.tbps.line import Line, PerfectGraph

MODEL = LinkModel(
    delay=uniform(0.001, 0.003), handshake=0, silence=0.001, connect_timeout=0.001, redial=0.001
)
"""Links are there at once, and so are outages known."""


class OverLine(SgTbps):
    """The algorithm over the perfect list."""

    def make_graph(self) -> Any:
        assert isinstance(self.api, Node)
        return PerfectGraph(self.api.world.line, self, self.api.peer)

    def on_ildm_start(self) -> None:
        """There is one list from the beginning: what looks like merging is the first neighbour that comes."""
        super().on_ildm_start()
        self.merges.watch._merged = lambda alone: None


def nowhere(name: str) -> Mapping[str, Any]:
    """No options of one node alone."""
    return {}


def placed(name: str) -> Mapping[str, Any]:
    """Nodes lie in two regions of three sites each, wherever their names put them."""
    number = sum(name.encode())
    return {"locality": [f"r{number % 2}", f"s{number % 3}"]}


class Kind(NamedTuple):
    """What a world runs."""

    algorithm: type[TopicBased[Any]]
    options: Callable[[str], Mapping[str, Any]] = nowhere
    """Of a node, by its id."""


KINDS = {"line": Kind(OverLine), "graph": Kind(SgTbps), "atm_tbps": Kind(AtmTbps), "stla": Kind(Stla, placed)}
"""``line``: SG-TBPS over the perfect list; ``graph``: over the Skip Graph, as are all others."""
GRAPHS = [kind for kind in KINDS if kind != "line"]


class Node(SimNode):
    """A node whose clients speak of texts."""

    world: World
    algorithm: TopicBased[Any]
    broker: RecordingBroker

    @property
    def injected(self) -> list[Publish]:
        return self.broker.injected

    @property
    def logged(self) -> list[tuple[str, Mapping[str, object]]]:
        return [(event, fields) for _, name, event, fields in self.world.logs if name == self.node_id]

    def subscribe(self, *filters: str, qos: int = 2, client: str = "client") -> None:  # type: ignore[override]
        for topic_filter in filters:
            super().subscribe(topic_filter, qos, client)

    def unsubscribe(self, *filters: str, client: str = "client") -> None:  # type: ignore[override]
        for topic_filter in filters:
            super().unsubscribe(topic_filter, client)

    def publish(  # type: ignore[override]
        self, topic: str, payload: str = "x", qos: int = 0, retain: bool = False, expiry: int | None = None
    ) -> None:
        properties = {} if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        super().publish(topic, payload.encode(), qos, retain, properties, publisher=0)


class World(PluginWorld):
    """Nodes that run what ``over`` says (one of ``KINDS``), or another ``algorithm``."""

    def __init__(
        self,
        over: str = "line",
        seed: int = 0,
        algorithm: type[TopicBased[Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(algorithm or KINDS[over].algorithm, options, seed, MODEL)
        self.network.random.seed(seed)
        self.over = over
        self.line = Line(self)

    @property
    def living(self) -> dict[str, Node]:
        return {name: node for name, node in self.nodes.items() if node.alive}  # type: ignore[misc]

    def seed_of(self, node_id: str) -> str:
        return super().seed_of(node_id).replace("/", " ", 1)

    def make_node(self, node_id: str) -> SimNode:
        node = Node(self, node_id, self.algorithm, self._configs[node_id])
        node.broker = RecordingBroker()
        return node

    def start(self, *names: str, to: str | None = None, **options: Any) -> list[Node]:
        """New nodes; over a Skip Graph each joins ``to``, or else the first of all."""
        for name in names:
            self.apart(name, to or next(iter(self.living), None), **options)
        self.run()
        return [self.living[name] for name in names]

    def apart(self, name: str, introducer: str | None = None, **options: Any) -> Node:
        """A new node; without an introducer it founds a graph of its own."""
        self.add(name, introducer, {**KINDS[self.over].options(name), **options})
        return self.living[name]

    def kill(self, node_id: str, silent: bool = False) -> None:
        graph = self.living[node_id].algorithm.graph
        if isinstance(graph, PerfectGraph):
            self.line.crash(graph)
        super().kill(node_id, silent)

    def restart(self, node_id: str) -> Node:
        """The node crashes and comes back at once, with the memory and the broker it had."""
        self.kill(node_id)
        self.add(node_id, keep=True)
        return self.living[node_id]

    def run(self, seconds: float = 0.5) -> None:  # type: ignore[override]
        super().run(seconds)

    def settle(self) -> None:  # type: ignore[override]
        """Let everything arrive that is under way, and the graph come to rest."""
        self.run(0.5 if self.over == "line" else 5.0)

    # transcripts ------------------------------------------------------------------------------

    def step(self, title: str) -> None:
        self.settle()
        self.line.note(f"# {title}")

    def states(self, segment: str) -> None:
        """Note the publishers of a segment from left to right."""
        self.settle()
        for key in self.line.keys:
            if key_text(key).startswith(f"{segment} publisher"):
                graph = self.line.owners[key]
                found = graph.hooks.segments.find(key)
                assert found is not None
                publisher = found[0].publisher
                mark = " rendezvous point" if publisher.rendezvous else ""
                self.line.note(
                    f"  {key_text(key)}: {publisher.state} epoch {publisher.epoch.number} "
                    f"{publisher.epoch.node_id}{mark}"
                )
