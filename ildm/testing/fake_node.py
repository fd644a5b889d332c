"""Algorithms at work on fake nodes: every transfer and inter-subscription becomes a line of a transcript."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ildm.api import Algorithm, NodeStatus, Peer, TreeAlgorithm
from ildm.core.plugin.arguments import check_filters, checked_qos
from ildm.mqtt import Publish


class FakeLink:
    """One direction of sight onto a neighbour."""

    def __init__(self, here: FakeNode, far: FakeNode) -> None:
        self.here = here
        self.far = far
        self.node_id = far.node_id
        self.peer = far.peer
        self.dialed = False
        self.introducer = False
        self.sessions = ()
        self.interest: dict[str, int] = {}
        self.announced: dict[str, int] = {}
        self.back: FakeLink
        self.up = True

    def inter_subscribe(self, filters: Mapping[str, int]) -> None:
        check_filters(filters)
        for topic_filter, qos in filters.items():
            if self.announced.get(topic_filter) != qos:
                self.announced[topic_filter] = qos
                self.here.network.note(
                    f"{self.here.node_id} -> {self.node_id}  SUBSCRIBE {topic_filter} qos {qos}"
                )
                self.here.network.later(self.far.hear, self.back, topic_filter, qos)

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        for topic_filter in filters:
            if self.announced.pop(topic_filter, None) is not None:
                self.here.network.note(f"{self.here.node_id} -> {self.node_id}  UNSUBSCRIBE {topic_filter}")
                self.here.network.later(self.far.hear, self.back, topic_filter, None)


class FakeNode:
    """Implements for one algorithm what those of a tree use of :class:`ildm.api.NodeApi`."""

    def __init__(self, network: FakeNetwork, node_id: str, algorithm: type[Algorithm]) -> None:
        self.network = network
        self.node_id = node_id
        self.peer = Peer(node_id, f"{node_id}:1885")
        self.status = NodeStatus.STOPPED
        self.links: list[FakeLink] = []
        self.local_interest: dict[str, int] = {}
        self.wanted: dict[str, dict[str, int]] = {}
        """Filter -> client -> QoS."""
        self.random = Random(node_id)
        self.counters: dict[str, int] = {}
        self.logged: list[tuple[str, dict[str, object]]] = []
        self.injected: list[Publish] = []
        self.algorithm = algorithm(self, algorithm.Config())  # type: ignore[arg-type]
        self.status = NodeStatus.RUNNING
        self.algorithm.on_ildm_start()

    @property
    def topics(self) -> list[str]:
        """Of what was injected."""
        return [message.topic for message in self.injected]

    def hear(self, link: FakeLink, topic_filter: str, qos: int | None) -> None:
        if not link.up:
            return
        if qos is None:
            link.interest.pop(topic_filter, None)
        else:
            link.interest[topic_filter] = qos
        self.algorithm.on_interest_changed(link, {topic_filter: qos})

    def subscribe(self, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        """A local client's subscription was granted."""
        self.wanted.setdefault(topic_filter, {})[client] = qos
        self._interest_changed(topic_filter)

    def unsubscribe(self, topic_filter: str, client: str = "c") -> None:
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
        self.network.settle()

    def publish(self, topic: str, retain: bool = False, payload: bytes = b"", qos: int = 0) -> None:
        """A local client publishes."""
        if not topic.startswith("$"):
            self._forward(Publish(topic=topic, payload=payload, qos=qos, retain=retain), None)
        self.network.settle()

    def receive(self, link: FakeLink, message: Publish) -> None:
        self.injected.append(message)
        self.network.note(f"{self.node_id} -> B{self.node_id[1:]}  PUBLISH {message.topic}")
        self._forward(message, link)

    def _forward(self, message: Publish, source: FakeLink | None) -> None:
        topic, retain = message.topic, message.retain
        assert isinstance(self.algorithm, TreeAlgorithm)
        for link, qos in self.algorithm.route(topic, retain, source):
            assert isinstance(link, FakeLink)
            checked_qos(qos)
            if link is source or not link.up:
                continue
            mark = " retain" if retain else ""
            self.network.note(f"{self.node_id} -> {link.node_id}  PUBLISH {topic}{mark}")
            copy = replace(message, qos=message.qos if retain else min(message.qos, qos))
            self.network.later(link.far.receive, link.back, copy)

    # the rest of NodeApi ----------------------------------------------------------------------

    def routes_changed(self) -> None:
        pass

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def log(self, event: str, **fields: object) -> None:
        self.logged.append((event, fields))
        self.network.note(f"{self.node_id} log {event}")


class FakeNetwork:
    """Fake nodes and the messages under way between them, in order."""

    def __init__(self, algorithm: type[Algorithm]) -> None:
        self.algorithm = algorithm
        self.nodes: dict[str, FakeNode] = {}
        self.lines: list[str] = []
        self._under_way: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, *names: str) -> list[FakeNode]:
        for name in names:
            self.nodes[name] = FakeNode(self, name, self.algorithm)
        return [self.nodes[name] for name in names]

    def join(self, a: str, b: str) -> None:
        """Link two nodes; both learn of it, then what they say travels."""
        here, far = self.nodes[a], self.nodes[b]
        one, two = FakeLink(here, far), FakeLink(far, here)
        one.back, two.back = two, one
        one.dialed = one.introducer = True
        here.links.append(one)
        here.algorithm.on_link_up(one)
        far.links.append(two)
        far.algorithm.on_link_up(two)
        self.settle()

    def part(self, a: str, b: str) -> None:
        for name, other in ((a, b), (b, a)):
            node = self.nodes[name]
            link = next(link for link in node.links if link.node_id == other)
            link.up = False
            node.links.remove(link)
            node.algorithm.on_link_down(link)
        self.settle()

    def note(self, line: str) -> None:
        self.lines.append(line)

    def step(self, title: str) -> None:
        self.lines.append(f"# {title}")

    def later(self, callback: Callable[..., None], *args: Any) -> None:
        self._under_way.append((callback, args))

    def settle(self) -> None:
        for _ in range(100_000):
            if not self._under_way:
                return
            callback, args = self._under_way.popleft()
            callback(*args)
        raise AssertionError("messages without end")

    def transfers(self) -> list[str]:
        """PUBLISH messages between nodes so far, as ``I5>I3``."""
        return [
            f"{parts[0]}>{parts[2]}"
            for line in self.lines
            if (parts := line.split())[3:4] == ["PUBLISH"] and parts[2].startswith("I")
        ]
