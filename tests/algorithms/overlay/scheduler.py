"""Nodes with a Skip Graph each over a seeded, virtual network, and what their tables must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from ildm.api import Peer, SendResult
from ildm.testing.kernel import Kernel, Timer
from ildm_algorithms.overlay.graph import Arrival, OverlayConfig, SkipGraph
from ildm_algorithms.overlay.keys import Ref, prefix
from ildm_algorithms.overlay.wire.messages import FORMATS, Message, Seq, decode
from tests.algorithms.fake_api import FakeApi

__all__ = ["Network", "Node", "key_of"]


_KINDS = {format.code: format.kind.__name__ for format in FORMATS}


def key_of(number: int, node_id: str) -> bytes:
    return b"%05d-%s" % (number, node_id.encode())


class Network:
    """Virtual time; each message has a delay of its own, so that messages overtake each other."""

    def __init__(
        self, seed: int = 0, *, delay: tuple[float, float] = (0.001, 0.05), note: bool = False
    ) -> None:
        self.random = Random(seed)
        self.delay = delay
        self.loss = 0.0
        self.duplicate = 0.0
        self.kernel = Kernel()
        self.at = self.kernel.schedule
        self.nodes: dict[str, Node] = {}
        self.messages = 0
        self.wrongly_suspected = 0
        self.lines: list[str] = []
        self.note = note
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self.slow: dict[str, float] = {}
        """Seconds by which what a node sends is late."""
        self.stalled: dict[str, list[tuple[str, str, bytes]]] = {}
        """Nodes that stand still, and what they have not read."""
        self.sent: Counter[str] = Counter()
        """Messages by type."""
        self.resets = True
        """A node that is gone is noticed by who sends to it."""
        self.parts: Callable[[Node], dict[str, Any]] = lambda node: {}
        """What the graph of each node is given besides: routings, messages."""
        self.graph: type[SkipGraph] = SkipGraph

    @property
    def time(self) -> float:
        return self.kernel.now

    def run(self, seconds: float) -> None:
        self.kernel.run(self.time + seconds)

    def run_until(self, end: float, happened: Callable[[], bool]) -> bool:
        before = -1
        while before < self.kernel.events:
            before = self.kernel.events
            self.kernel.run(end, max_events=1)
            if happened():
                return True
        return False

    def stand_still(self, seconds: float) -> None:
        """The process of all nodes does nothing for a while; then timers come before what is to be read."""
        for node_id in self.nodes:
            self.hang(node_id)
        self.run(seconds)
        self.go_on(*self.nodes)

    def add(self, node_id: str, vector: int | None = None, **options: Any) -> Node:
        node = Node(self, node_id, vector, options)
        self.nodes[node_id] = node
        return node

    def carry(self, sender: str, to: str, data: bytes) -> None:
        self.messages += 1
        self.sent[_KINDS.get(data[0], "other")] += 1
        if self.note:
            self.line(f"{sender} -> {to}  {describe(decode(data))}")
        if self.random.random() < self.loss or self.cut(sender, to):
            return
        late = self.slow.get(sender, 0.0)
        for _ in range(2 if self.random.random() < self.duplicate else 1):
            self.at(late + self.random.uniform(*self.delay), self._arrive, sender, to, data)

    def hang(self, node_id: str) -> None:
        """A node does nothing from now on, and nobody is told."""
        self.stalled[node_id] = []

    def go_on(self, *node_ids: str) -> None:
        """Nodes that have stood still read what has come meanwhile, after their timers."""
        unread = [message for node_id in node_ids for message in self.stalled.pop(node_id)]
        for node_id in node_ids:
            node = self.nodes[node_id]
            timers, node.late = node.late, []
            for callback, args in timers:
                callback(*args)
        for message in unread:
            self._arrive(*message)

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        if to in self.stalled:
            self.stalled[to].append((sender, to, data))
            return
        node = self.nodes.get(to)
        if node is not None:
            node.graph.receive(sender, data)
        elif self.resets and sender in self.nodes:
            self.nodes[sender].graph.unreachable(to)

    def line(self, text: str) -> None:
        self.lines.append(text)

    # what must be ---------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """What is wrong with the structure as a whole; nothing in a converged one."""
        refs = sorted(
            Ref(key, node.peer, node.graph.vector)
            for node in self.nodes.values()
            if node.alive
            for key in node.graph.keys()  # noqa: SIM118
        )
        found = [
            f"{node.node_id} lacks or has too much: {sorted(node.wanted ^ set(node.graph.keys()))}"
            for node in self.nodes.values()
            if node.alive and node.wanted != set(node.graph.keys())
        ]
        right = expected(refs)
        for ref in refs:
            levels = self.nodes[ref.peer.node_id].graph.neighbors(ref.key)
            have = [tuple(r.key if r else None for r in pair) for pair in levels]
            if have != right[ref.key]:
                found.append(f"{ref.key!r} has {have}, not {right[ref.key]}")
        return found

    def settle(self, limit: float = 120.0) -> float:
        """Run until the structure is right; the time it took."""
        start = self.time
        while self.time < start + limit:
            self.run(0.25)
            if not self.faults():
                return self.time - start
        raise AssertionError("\n".join([f"after {limit} s:", *self.faults()[:20]]))


def expected(refs: list[Ref], base: int = 2) -> dict[bytes, list[tuple[bytes | None, bytes | None]]]:
    """The tables of a converged graph: all levels of a node up to the first without a foreign neighbour."""
    tables: dict[bytes, list[tuple[bytes | None, bytes | None]]] = {ref.key: [] for ref in refs}
    active = list(refs)
    for level in range(65):
        lists: dict[int, list[Ref]] = {}
        for ref in active:
            lists.setdefault(prefix(ref.vector, level, base), []).append(ref)
        active = []
        for members in lists.values():
            keys = [ref.key for ref in members]
            for key, before, after in zip(keys, [None, *keys], [*keys[1:], None], strict=False):
                tables[key].append((before, after))
            if len({ref.peer.node_id for ref in members}) > 1:
                active += members
        if not active:
            break
    return tables


class Node(FakeApi):
    """Env and Hooks of one SkipGraph."""

    def __init__(self, network: Network, node_id: str, vector: int | None, options: dict[str, Any]) -> None:
        super().__init__(node_id, network.kernel)
        self.network = network
        self.random = Random(f"{node_id} {network.random.random()}")
        self.alive = True
        self.late: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        """Timers that were due while it stood still."""
        self.wanted: set[bytes] = set()
        self.arrivals: list[Arrival] = []
        self.times: list[float] = []
        """When each of them came."""
        self.direct: list[tuple[Peer, bytes]] = []
        self.events: list[tuple[Any, ...]] = []
        self.graph = network.graph(self, self, OverlayConfig(**options), vector, **network.parts(self))

    # what tests do

    def start(self, number: int) -> Node:
        key = key_of(number, self.node_id)
        self.wanted.add(key)
        self.graph.start(key)
        return self

    def insert(self, *numbers: int) -> Node:
        for number in numbers:
            key = key_of(number, self.node_id)
            self.wanted.add(key)
            self.graph.insert(key)
        return self

    def remove(self, *keys: bytes) -> None:
        for key in keys:
            self.wanted.discard(key)
            self.graph.remove(key)

    def crash(self) -> None:
        self.alive = False
        del self.network.nodes[self.node_id]

    def leave(self, done: Callable[[], None] = lambda: None) -> None:
        self.wanted.clear()

        def gone() -> None:
            self.crash()
            done()

        self.graph.stop(gone)

    # Env

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        def fire() -> None:
            if self.node_id in self.network.stalled:
                self.late.append((callback, args))
            elif self.alive:
                callback(*args)

        return self.network.at(delay, fire)

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        assert to.node_id != self.node_id
        self.network.carry(self.node_id, to.node_id, data)
        return SendResult.OK

    def log(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))
        if event == "node suspected" and fields["suspect"] in self.network.nodes:
            self.network.wrongly_suspected += 1

    # Hooks

    def delivered(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        self.times.append(self.network.time)

    def received(self, sender: Peer, payload: bytes) -> None:
        self.direct.append((sender, payload))

    def merging(self, others: bool, since: float | None) -> None:
        self.events.append(("merging",))

    def passed_over(self, since: float) -> None:
        self.events.append(("passed over", since))

    def neighbors_changed(self, key: bytes) -> None:
        self.events.append(("changed", key))

    def status_for(self, key: bytes, joining: Ref) -> bytes:
        return b"status of " + key if joining.key > key else b""

    def joined(self, key: bytes, left: Ref | None, status: bytes) -> None:
        self.events.append(("joined", key, left.key if left else None, status))

    def left(self, key: bytes) -> None:
        self.events.append(("left", key))


def describe(message: Message) -> str:
    """A message as a line of a transcript, without random numbers and addresses."""
    parts = []
    for name, value in zip(message._fields, message, strict=True):
        if name in {"id", "origin", "vector", "request", "number", "parent", "terms"}:
            continue
        text = "" if value is False else name if value is True else f"{name} {_text(value)}"
        if text not in {"", f"{name} "} and value is not None and value != 0:
            parts.append(text)
    return f"{type(message).__name__}  {', '.join(parts)}"


def _text(value: object) -> str:
    match value:
        case Ref():
            return value.key.decode()
        case Seq():
            return f"{value.repair}.{value.step}"
        case bytes():
            return value.decode("latin-1")
        case Peer():
            return value.node_id
        case tuple():
            return " ".join(_short(part) for part in value)
    return str(value)


def _short(part: Any) -> str:
    if isinstance(part, Ref):
        return part.key.decode()
    if isinstance(part, bytes):
        return part.decode("latin-1")
    return (
        "("
        + " ".join(
            _short(p) if isinstance(p, Ref | bytes) else str(p) for p in part if not isinstance(p, tuple)
        )
        + ")"
    )


def union(nodes: Iterable[Node]) -> list[bytes]:
    return sorted(key for node in nodes for key in node.graph.keys())  # noqa: SIM118
