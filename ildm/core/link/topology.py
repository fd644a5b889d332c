"""Which links form the tree (PF and SF suppose one, thesis 5.3).

Every node floods an advertisement of its own links over all of them, blocked ones too, so each knows
the whole graph. The tree is the minimum spanning forest under the order of the links' weights, which say how
slow they are (:mod:`ildm.core.link.weights`), and of their ages. All nodes compute the same one. Of a cycle
the slowest link stays blocked, or the youngest of several, and takes over by itself when the tree breaks.
Without weights ages alone decide. A link's age is a counter agreed when it is made, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ildm.mqtt import IldmError


class TopologyError(IldmError):
    """An advertisement that cannot be understood."""


LARGEST_ADVERTISEMENT = 1 << 20
"""Bytes of one that are looked at; a few milliseconds of work."""
MAX_NODE_ID = 64
MAX_NUMBER = 1 << 53
NO_WEIGHT = 2 * MAX_NUMBER


class Advertisement(NamedTuple):
    """Links of one node: neighbour -> age of the link. Higher ``(boot, sequence)`` is newer."""

    node: str
    boot: int
    sequence: int
    links: Mapping[str, int]

    @property
    def order(self) -> tuple[int, int, list[tuple[str, int]]]:
        """What is newer comes later; also of two under one number, which no single node makes."""
        return self.boot, self.sequence, sorted(self.links.items())

    def encode(self) -> bytes:
        return json.dumps([self.node, self.boot, self.sequence, dict(self.links)]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Advertisement:
        """Raises: TopologyError."""
        try:
            if len(data) > LARGEST_ADVERTISEMENT:
                raise ValueError(f"{len(data)} bytes")
            node, boot, sequence, links = json.loads(data)
            if not (
                _is_node(node)
                and _is_number(boot)
                and _is_number(sequence)
                and isinstance(links, dict)
                and all(map(_is_node, links))
                and all(map(_is_number, links.values()))
            ):
                raise TypeError("wrong types")
        except (ValueError, TypeError, RecursionError) as error:
            raise TopologyError(f"malformed topology advertisement: {error}") from None
        return cls(node, boot, sequence, links)


def _is_node(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NODE_ID


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < MAX_NUMBER


def after(boot: int, sequence: int) -> tuple[int, int]:
    """The next number of an advertisement."""
    return (boot, sequence + 1) if sequence < MAX_NUMBER - 1 else (boot + 1, 0)


class Topology:
    """The graph as one node knows it; at most ``max_nodes`` advertisements are kept."""

    def __init__(self, node: str, boot: int, max_nodes: int) -> None:
        self.node = node
        self.boot = boot
        self.max_nodes = max_nodes
        self._known: dict[str, Advertisement] = {node: Advertisement(node, boot, 0, {})}
        self.weights: Mapping[tuple[str, str], int] | None = None
        """Of links, each by its nodes in order; None: ages alone decide."""
        self._chosen: list[tuple[str, str]] | None = None
        """The forest; None: to be worked out anew."""
        self._unreachable: frozenset[str] = frozenset()
        """Known nodes to which there was no path as :meth:`returned` was asked last."""

    @property
    def own(self) -> Advertisement:
        return self._known[self.node]

    @property
    def nodes(self) -> int:
        return len(self._known)

    def advertisements(self) -> list[Advertisement]:
        """Everything known, for a neighbour that has just been connected."""
        return list(self._known.values())

    def set_links(self, links: Mapping[str, int]) -> Advertisement | None:
        """This node's links now; the advertisement to flood, or None if nothing changed."""
        own = self.own
        if dict(own.links) == dict(links):
            return None
        self.boot, sequence = after(self.boot, own.sequence)
        changed = Advertisement(self.node, self.boot, sequence, dict(links))
        self._known[self.node] = changed
        self._chosen = None
        self._prune()
        return changed

    def is_news(self, advertisement: Advertisement) -> bool:
        """Whether an advertisement is newer than what is known of its node."""
        known = self._known.get(advertisement.node)
        if known is None or advertisement.node != self.node:
            return known is None or known.order < advertisement.order
        # of its own kind is also what another node with this id says under the same number
        return known[1:3] < advertisement[1:3] or (
            known[1:3] == advertisement[1:3] and known.links != advertisement.links
        )

    def receive(self, advertisement: Advertisement) -> Advertisement | None:
        """Take in an advertisement; what to flood on, or None if it was known.

        An older life's advertisement of this very node is answered with a newer one.
        """
        known = self._known.get(advertisement.node)
        if not self.is_news(advertisement):
            return None
        if advertisement.node == self.node:
            if advertisement.boot >= MAX_NUMBER - 2:
                return None  # no life of this node, and not to be outbid
            self.boot, sequence = after(advertisement.boot, advertisement.sequence)
            newer = Advertisement(self.node, self.boot, sequence, self.own.links)
            self._known[self.node] = newer
            self._chosen = None
            return newer
        if known is None and len(self._known) >= self.max_nodes:
            self._prune()
            if len(self._known) >= self.max_nodes:
                raise TopologyError(f"more than {self.max_nodes} nodes (link.max_nodes)")
        self._known[advertisement.node] = advertisement
        self._chosen = None
        return advertisement

    def weigh(self, weights: Mapping[tuple[str, str], int] | None) -> None:
        """Other weights count from now on. A link that has none is heavier than any that has."""
        self.weights = weights
        self._chosen = None

    def next_age(self) -> int:
        """The age of a link made now: younger than every link known."""
        ages = (age for known in self._known.values() for age in known.links.values())
        return min(MAX_NUMBER - 1, 1 + max(ages, default=0))

    def tree(self) -> set[str]:
        """Neighbours of this node in the minimum spanning forest."""
        return {b if a == self.node else a for a, b in self._forest() if self.node in (a, b)}

    def hop(self, node: str) -> str | None:
        """The neighbour of this node that leads to another one in the forest."""
        neighbors = _neighbors(self._forest())
        for first in neighbors.get(self.node, ()):
            if node in _reached(neighbors, first, without=self.node):
                return first
        return None

    def longest(self, length: Callable[[int], float]) -> float | None:
        """The longest path in this node's tree, by a length for each weight; None: ages alone decide."""
        weights = self.weights
        if weights is None:
            return None
        neighbors = _neighbors(self._forest())

        def farthest(start: str) -> tuple[float, str]:
            far = {start: 0.0}
            border = [start]
            while border:
                node = border.pop()
                for other in neighbors.get(node, ()):
                    if other not in far:
                        weight = weights.get((min(node, other), max(node, other)), 0)
                        far[other] = far[node] + length(weight)
                        border.append(other)
            return max((distance, node) for node, distance in far.items())

        return farthest(farthest(self.node)[1])[0]

    def behind(self) -> dict[str, set[str]]:
        """The nodes that each neighbour of this node in the forest leads to, with itself."""
        neighbors = _neighbors(self._forest())
        return {
            first: _reached(neighbors, first, without=self.node) for first in neighbors.get(self.node, ())
        }

    def forest(self) -> frozenset[tuple[str, str]]:
        """The links of the minimum spanning forest, each by its nodes in order."""
        return frozenset(self._forest())

    def _forest(self) -> list[tuple[str, str]]:
        """The edges of the minimum spanning forest."""
        if self._chosen is None:
            self._chosen = self._choose()
        return self._chosen

    def _choose(self) -> list[tuple[str, str]]:
        weights = self.weights or {}
        edges = sorted((weights.get((a, b), NO_WEIGHT), age, a, b) for age, a, b in self._edges())
        chosen: list[tuple[str, str]] = []
        group: dict[str, str] = {}

        def find(node: str) -> str:
            while (parent := group.setdefault(node, node)) != node:
                group[node] = group.get(parent, parent)
                node = parent
            return node

        for _, _, a, b in edges:
            root_a, root_b = find(a), find(b)
            if root_a != root_b:
                group[root_a] = root_b
                chosen.append((a, b))
        return chosen

    def graph(self) -> list[tuple[str, str, bool]]:
        """All links that both ends advertise, as pairs of nodes, and whether each is in the forest."""
        forest = set(self._forest())
        return [(a, b, (a, b) in forest) for _, a, b in sorted(self._edges())]

    def agreed(self, node: str) -> bool:
        """Whether a neighbour advertises the link to this node as this node does."""
        far = self._known.get(node)
        return far is not None and far.links.get(self.node) == self.own.links.get(node)

    def reaches(self, node: str) -> bool:
        """Whether there is a path to a node over links which both ends advertise."""
        return node in self._reachable()

    def reachable(self) -> dict[str, int]:
        """All nodes with such a path, this one too, and the life in which each was advertised."""
        return {node: self._known[node].boot for node in self._reachable()}

    def returned(self) -> list[Advertisement]:
        """What is known of nodes to which there is a path again.

        It has to be flooded: it may be no news here, but a node beyond has forgotten what it could not reach.
        """
        reachable = self._reachable()
        returned = [self._known[node] for node in self._unreachable & reachable]
        self._unreachable = frozenset(self._known.keys() - reachable)
        return returned

    def knows(self, node: str) -> bool:
        """Whether there is an advertisement of a node."""
        return node in self._known

    def _edges(self) -> set[tuple[int, str, str]]:
        edges = set()
        for node, known in self._known.items():
            for far, age in known.links.items():
                back = self._known.get(far)
                if back is not None and back.links.get(node) == age:
                    edges.add((age, min(node, far), max(node, far)))
        return edges

    def _reachable(self) -> set[str]:
        return _reached(_neighbors([(a, b) for _, a, b in self._edges()]), self.node)

    def _prune(self) -> None:
        # what cannot be reached cannot be kept up to date; it is learnt anew when it comes back
        keep = self._reachable() | set(self.own.links)
        self._known = {node: known for node, known in self._known.items() if node in keep}
        self._chosen = None


def reached(edges: Iterable[tuple[str, str]], start: str) -> set[str]:
    """All nodes that paths over these links lead to, with the first."""
    return _reached(_neighbors(edges), start)


def _neighbors(edges: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    neighbors: dict[str, list[str]] = {}
    for a, b in edges:
        neighbors.setdefault(a, []).append(b)
        neighbors.setdefault(b, []).append(a)
    return neighbors


def _reached(neighbors: dict[str, list[str]], start: str, without: str = "") -> set[str]:
    """All nodes that paths from ``start`` lead to, but those through one node."""
    seen = {start, without}
    border = [start]
    while border:
        for far in neighbors.get(border.pop(), ()):
            if far not in seen:
                seen.add(far)
                border.append(far)
    return seen - ({without} if without != start else set())
