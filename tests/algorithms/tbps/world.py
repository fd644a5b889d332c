"""Nodes in virtual time, each with a small broker, over a perfect list or over the Skip Graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from ildm.api import Injections, NodeStatus, OverlayAlgorithm, Peer, SendResult, Stamp, Unreachable
from ildm.config import LimitsConfig, LinkConfig
from ildm.core.counters import Counters
from ildm.core.plugin.arguments import (
    check_bytes,
    check_callable,
    check_data,
    check_delay,
    check_frame,
    check_identity,
    check_message,
    check_overlay,
)
from ildm.core.tables import Key, Row, Table
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.stamps import stamped
from ildm.mqtt import Property, Publish, Version, decode, topic_matches
from ildm.testing.keeping import Disk, Keeping
from ildm.testing.kernel import Kernel, Timer
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.tbps import TopicBased
from ildm_algorithms.tbps.keys.encoding import key_text
from tests.algorithms.fake_api import FakeApi
from tests.algorithms.tbps.line import Line, PerfectGraph

LARGEST = LinkConfig().packet_size


class Delivery(NamedTuple):
    """What a local subscriber got."""

    topic: str
    payload: bytes
    retain: bool
    qos: int


class FakeLink(NamedTuple):
    node_id: str
    peer: Peer
    introducer: bool


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


class Clock:
    """The driver and store of what a node remembers: each look at the clock is a millisecond later."""

    def __init__(self, world: World) -> None:
        self.now = lambda: world.now
        self.wall = world.wall

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        """Nothing outlives a test."""


class Node(FakeApi):
    """A node with its broker; implements what topic-based algorithms use of NodeApi."""

    def __init__(
        self, world: World, node_id: str, algorithm: type[TopicBased[Any]], options: Mapping[str, Any]
    ) -> None:
        super().__init__(node_id, world.kernel)
        self.world = world
        self.status = NodeStatus.STOPPED
        self.random = Random(f"{world.seed} {node_id}")
        self.links = ()  # the network is not made of links here
        self.local_interest: dict[str, int] = {}
        self.wanted: dict[str, dict[str, int]] = {}
        """Filter -> client -> QoS."""
        self.expiry = LinkConfig().expiry
        clock: Any = Clock(world)
        self.memory = RetainedStore(clock, node_id, LimitsConfig(), Counters(), clock, self.expiry)
        self.broker: dict[str, Publish] = {}
        """Retained messages of the local broker."""
        self.deliveries: list[Delivery] = []
        self.injected: list[Publish] = []
        self.life = 0
        """Grows with each restart; 0 is before the first."""
        self.alive = True
        self.make = partial(algorithm, self, algorithm.Config.model_validate(options))  # type: ignore[arg-type]
        self.algorithm: TopicBased[Any] = self.make()
        self.start()

    def start(self) -> None:
        self.status = NodeStatus.RUNNING
        self.keeping = Keeping(self.world.disk, self.node_id)
        self.algorithm.on_ildm_start()
        if self.local_interest:  # of persistent sessions
            self.algorithm.on_interest_changed(None, dict(self.local_interest))

    # what clients do --------------------------------------------------------------------------

    def subscribe(self, *filters: str, qos: int = 2, client: str = "c") -> None:
        for topic_filter in filters:
            self.wanted.setdefault(topic_filter, {})[client] = qos
            for message in self.broker.values():
                if topic_matches(topic_filter, message.topic):
                    self.deliveries.append(Delivery(message.topic, message.payload, True, message.qos))
            self._interest_changed(topic_filter)

    def unsubscribe(self, *filters: str, client: str = "c") -> None:
        for topic_filter in filters:
            del self.wanted[topic_filter][client]
            self._interest_changed(topic_filter)

    def _interest_changed(self, topic_filter: str) -> None:
        highest = max(self.wanted[topic_filter].values(), default=None)
        if highest == self.local_interest.get(topic_filter):
            return
        if highest is None:
            del self.local_interest[topic_filter]
        else:
            self.local_interest[topic_filter] = highest
        self.algorithm.on_interest_changed(None, {topic_filter: highest})

    def publish(
        self, topic: str, payload: str = "x", qos: int = 0, retain: bool = False, expiry: int | None = None
    ) -> None:
        properties = {} if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        message = Publish(
            topic=topic,
            payload=payload.encode(),
            qos=qos,
            retain=retain,
            packet_id=7 if qos else None,
            properties=properties,
        )
        self._broke(message)
        if topic.startswith("$"):
            return
        if retain:
            message = stamped(message, self.memory.entered(message))
        self.algorithm.on_publish(message, 0)

    def _broke(self, message: Publish) -> None:
        if message.retain and message.payload:
            self.broker[message.topic] = message
        elif message.retain:
            self.broker.pop(message.topic, None)
        if any(topic_matches(f, message.topic) for f in self.local_interest):
            self.deliveries.append(Delivery(message.topic, message.payload, False, message.qos))

    # NodeApi ----------------------------------------------------------------------------------

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        check_delay(delay)
        check_callable(callback)
        life = self.life

        def fire() -> None:
            if self.alive and life == self.life:
                callback(*args)

        return self.kernel.schedule(delay, fire)

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        check_overlay(isinstance(self.algorithm, OverlayAlgorithm))
        check_data(to, data, turn)
        if to.node_id == self.node_id:
            return SendResult.SELF
        if len(data) >= LARGEST:
            return SendResult.TOO_LARGE
        self.world.send(self, to, data)
        return SendResult.OK

    def retained(self, topic_filter: str) -> list[Publish]:
        return list(self.memory.matching(topic_filter))

    def retained_topics(self) -> Iterator[tuple[str, Stamp]]:
        return self.memory.stamps()

    def inject(self, message: Publish, identity: tuple[str, int] | None = None) -> bool:
        check_message(message)
        check_identity(identity)
        if identity is not None and message.retain and self.memory.is_old_repetition(message):
            return True
        if self.world.spool and not self.keeping.enter(identity):
            return False
        if message.retain:
            judged = self.memory.judge_injected(message)
            if judged is None:
                return True
            message = judged
        self.injected.append(message)
        given = self.injections.given + 1
        self.injections = Injections(given, given)
        self._broke(message)
        return True

    def inject_frame(self, frame: bytes, identity: tuple[str, int] | None = None) -> bool:
        message = check_frame(frame) or decode(frame, Version.V5)
        assert isinstance(message, Publish)
        return self.inject(message, identity)

    def has_injected(self, origin: str, number: int) -> bool | None:
        return self.keeping.has_injected(origin, number) if self.world.spool else None

    def keep(self, data: bytes) -> int | None:
        check_bytes(data, "data")
        return self.keeping.keep(data) if self.world.spool else None

    def unkeep(self, number: int) -> None:
        self.keeping.unkeep(number)

    def when_kept(self, callback: Callable[[], None]) -> None:
        check_callable(callback)
        callback()

    def kept(self) -> Iterator[tuple[int, bytes]]:
        return self.keeping.kept()


class World:
    """Nodes, the messages between them, and virtual time.

    They run what ``over`` says (one of ``KINDS``), or another ``algorithm``.
    """

    def __init__(
        self,
        over: str = "line",
        seed: int = 0,
        algorithm: type[TopicBased[Any]] | None = None,
        **options: Any,
    ) -> None:
        self.over = over
        self.algorithm = algorithm or KINDS[over].algorithm
        self.own_options = KINDS[over].options
        self.seed = seed
        self.options = options
        self.kernel = Kernel()
        self.later = self.kernel.schedule
        self.nodes: dict[str, Node] = {}
        self.random = Random(seed)
        self.disk = Disk()
        self.spool = False
        """Nodes have one, on that disk."""
        self.line = Line(self)
        self.sent = 0
        self.loss = 0.0
        """Probability that a message between nodes is lost; half as many are doubled."""
        self.parts: dict[str, int] = {}
        """Nodes of different parts cannot reach each other."""
        self._looks = 0
        self._arrives: dict[tuple[str, str], float] = {}

    def add(self, *names: str, to: Node | None = None, **options: Any) -> list[Node]:
        """New nodes; over a Skip Graph each joins ``to``, or else the first of all."""
        made = []
        for name in names:
            node = self._make(name, options)
            made.append(node)
            first = to or next(iter(self.nodes.values()))
            if first is not node:
                self.introduce(node, first)
        self.run()
        return made

    def apart(self, name: str) -> Node:
        """A new node that founds a graph of its own."""
        node = self._make(name, {})
        self.run()
        return node

    def _make(self, name: str, options: Mapping[str, Any]) -> Node:
        chosen = {**self.options, **self.own_options(name), **options}
        node = self.nodes[name] = Node(self, name, self.algorithm, chosen)
        return node

    def introduce(self, node: Node, to: Node) -> None:
        node.algorithm.on_link_up(FakeLink(to.node_id, to.peer, True))  # type: ignore[arg-type]

    @property
    def now(self) -> float:
        return self.kernel.now

    def wall(self) -> float:
        self._looks += 1
        return 1000 + self.now + self._looks / 1000

    def send(self, source: Node, to: Peer, data: bytes) -> None:
        self.sent += 1
        if self.loss and self.random.random() < self.loss:
            return
        pair = source.node_id, to.node_id
        if self.parts.get(source.node_id) != self.parts.get(to.node_id):
            self.later(0.001, self._failed, source, to, Unreachable.NO_ANSWER)
            return
        if not to.address.partition(":")[2]:
            self.later(0.001, self._failed, source, to, Unreachable.NO_ADDRESS)
            return
        if to.address.partition(":")[0] != to.node_id:
            self.later(0.001, self._failed, source, to, Unreachable.OTHER_NODE)
            return
        at = max(self.now + 0.001 + 0.002 * self.random.random(), self._arrives.get(pair, 0.0))
        self._arrives[pair] = at

        def arrive() -> None:
            node = self.nodes.get(to.node_id)
            if node is not None and node.alive:
                node.algorithm.on_message(source.peer, data, 0)
            elif source.alive:
                source.algorithm.on_unreachable(to.node_id, Unreachable.REFUSED)

        self.later(at - self.now, arrive)
        if self.loss and self.random.random() < self.loss / 2:
            self.later(at - self.now + 0.002, arrive)

    def _failed(self, source: Node, to: Peer, reason: Unreachable) -> None:
        if source.alive:
            source.algorithm.on_unreachable(to.node_id, reason)

    def partition(self, *parts: list[Node]) -> None:
        """The network falls into parts; without any it is whole again."""
        self.parts = {node.node_id: number for number, part in enumerate(parts) for node in part}
        for node in self.nodes.values():
            for other in self.nodes.values():
                if self.parts.get(node.node_id) != self.parts.get(other.node_id):
                    node.algorithm.on_unreachable(other.node_id, Unreachable.NO_ANSWER)

    def kill(self, node: Node) -> None:
        """The node is gone without a word."""
        node.alive = False
        del self.nodes[node.node_id]
        if self.over == "line":
            self.line.crash(node.algorithm.graph)  # type: ignore[arg-type]

    def restart(self, node: Node) -> None:
        """The node crashes and comes back at once, with the memory and the broker it had."""
        if self.over == "line":
            self.line.crash(node.algorithm.graph)  # type: ignore[arg-type]
        node.life += 1
        node.status = NodeStatus.STOPPED
        node.algorithm = node.make()
        node.start()
        first = next(iter(self.nodes.values()))
        if first is not node:
            self.introduce(node, first)

    def run(self, seconds: float = 0.5) -> None:
        self.kernel.run(self.now + seconds)

    def settle(self) -> None:
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
