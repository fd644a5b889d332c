"""A table of topic filters that answers which keys a topic name concerns (MQTT 5, 4.7)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from ildm.mqtt.topics import LONGER_TWINS

K = TypeVar("K", bound=Hashable)

_SHARED = 4096
"""Levels, and ends of filters, that are looked for among those there are before another is made."""


class _Tail(Generic[K]):
    """The only filter that goes on from here: its other levels, ``#`` included, and who holds it.

    Most filters share their beginning with others and their end with none, or the end with very many. So
    where paths no longer part there is no node, and filters that end alike with one holder share a tail.
    """

    __slots__ = ("holders", "levels")

    def __init__(self, levels: tuple[str, ...], holders: dict[K, int]) -> None:
        self.levels = levels
        self.holders = holders


class _Node(Generic[K]):
    """One topic level of the trie; ``multi`` belongs to the filter that goes on with ``/#`` from here."""

    __slots__ = ("children", "exact", "multi")

    def __init__(self) -> None:
        # None until needed: an empty dict costs more than the node.
        self.children: dict[str, _Node[K] | _Tail[K]] | None = None
        self.exact: dict[K, int] | None = None
        self.multi: dict[K, int] | None = None


class FilterTable(Generic[K]):
    """Topic filters, each held by any number of keys with a QoS (0, 1 or 2).

    Filters have to be valid and without ``$share/group/`` (see ``split_shared``). ``add`` and ``remove``
    cost O(levels). ``match`` costs O(trie nodes on paths that match the topic), which depends on the
    filters that match and not on how many there are. Nothing recurses.

    Memory: an entry in a dict per filter and another per key that holds it; nodes only where filters part
    (`_Tail`), sets of holders only where there is more than one.
    """

    __slots__ = ("_alone", "_by_key", "_dollar", "_levels", "_plain", "_size", "_tails", "generation")

    def __init__(self) -> None:
        # Two tries, so that a leading wildcard cannot meet a "$"-topic (MQTT-4.7.2-1) and the walk
        # down needs no test for it.
        self._plain: _Node[K] = _Node()
        self._dollar: _Node[K] = _Node()
        self._by_key: dict[K, dict[str, int]] = {}
        self._alone: dict[K, tuple[dict[K, int], ...]] = {}
        """A key as the only holder, by QoS. Sets of one holder are these, and never changed in place."""
        self._levels: dict[str, str] = {}
        self._tails: dict[tuple[tuple[str, ...], K, int], _Tail[K]] = {}
        """Tails with one holder, which stand in many places and are not changed in place either."""
        self._size = 0
        self.generation = 0
        """Grows with each change; what was cached from ``match`` under another value is stale."""

    def __len__(self) -> int:
        """Number of (filter, key) entries."""
        return self._size

    def __iter__(self) -> Iterator[tuple[str, K, int]]:
        """All entries as (filter, key, qos). The table must not change meanwhile."""
        for key, held in self._by_key.items():
            for topic_filter, qos in held.items():
                yield topic_filter, key, qos

    def filters(self, key: K) -> dict[str, int]:
        """The filters of ``key`` with their QoS, as a copy; empty for an unknown key."""
        return dict(self._by_key.get(key, ()))

    def add(self, topic_filter: str, key: K, qos: int = 0) -> bool:
        """Enter the filter for ``key``, or replace its QoS (as MQTT-3.8.4-3 does); True if that is a change.

        Raises:
            ValueError: ``qos`` is not 0, 1 or 2.
        """
        if qos not in (0, 1, 2):
            raise ValueError(f"qos must be 0, 1 or 2, not {qos!r}")
        held = self._by_key.setdefault(key, {})
        before = held.get(topic_filter)
        if before == qos:
            return False
        held[topic_filter] = qos
        self._enter(topic_filter.split("/"), self._root(topic_filter), key, qos)
        self._size += before is None
        self.generation += 1
        return True

    def remove(self, topic_filter: str, key: K) -> bool:
        """Remove one entry; False if there is none."""
        held = self._by_key.get(key)
        if held is None or topic_filter not in held:
            return False
        del held[topic_filter]
        if not held:
            del self._by_key[key]
        self._unlink(topic_filter, key)
        if not held:
            self._forget(key)
        self._size -= 1
        self.generation += 1
        return True

    def remove_key(self, key: K) -> int:
        """Remove all entries of ``key``; answers how many there were."""
        held = self._by_key.pop(key, None)
        if held is None:
            return 0
        for topic_filter in held:
            self._unlink(topic_filter, key)
        self._forget(key)
        self._size -= len(held)
        self.generation += 1
        return len(held)

    def match(self, topic: str) -> dict[K, int]:
        """The keys with a filter that matches ``topic``, each with the maximum QoS of those filters.

        A subscriber gets an overlapping message once, at the maximum QoS (MQTT-3.3.4-2).
        """
        found = self.match_within(topic, 1 << 62)
        assert found is not None
        return found

    def match_within(self, topic: str, most: int) -> dict[K, int] | None:
        """The same, or None if it takes a look at more than about ``most`` nodes of the trie.

        Filters with ``+`` at many levels can all match one topic: 12,870 of those with eight in sixteen.
        """
        found: dict[K, int] = {}
        nodes = [self._root(topic)]
        levels = topic.split("/")
        for depth, level in enumerate(levels, 1):
            below: list[_Node[K]] = []
            for node in nodes:
                if node.multi is not None:
                    _merge(found, node.multi)
                children = node.children
                if children is None:
                    continue
                for name in (level, "+"):
                    child = children.get(name)
                    if child is None:
                        continue
                    if isinstance(child, _Node):
                        below.append(child)
                        continue
                    compared = _compare(child.levels, levels, depth)
                    if compared >= 0:
                        _merge(found, child.holders)
                        most -= compared
                    else:
                        most += compared
            most -= len(below)
            if most < 0:
                return None
            if not below:
                return found
            nodes = below
        for node in nodes:
            if node.exact is not None:
                _merge(found, node.exact)
            if node.multi is not None:
                _merge(found, node.multi)
        return found

    def intersecting(self, topic_filter: str) -> dict[K, int]:
        """The keys with a filter that matches some topic which ``topic_filter`` matches, too.

        Each with the maximum QoS of those filters. Cost: the nodes of the trie that begin like a topic of
        ``topic_filter``.
        """
        found: dict[K, int] = {}
        nodes = [self._root(topic_filter)]
        # The longer of two equal filters says all that can be said about the topics.
        levels = LONGER_TWINS.get(topic_filter, topic_filter).split("/")
        for depth, level in enumerate(levels, 1):
            if level == "#":
                _merge_all(found, nodes)
                return found
            below: list[_Node[K]] = []
            for node in nodes:
                if node.multi is not None:
                    _merge(found, node.multi)
                children = node.children
                if children is None:
                    continue
                names = children if level == "+" else [name for name in (level, "+") if name in children]
                for name in names:
                    child = children[name]
                    if isinstance(child, _Node):
                        below.append(child)
                    elif _meet(child.levels, levels[depth:]) and not (
                        levels == ["+"] and name == "" and child.levels  # see below
                    ):
                        _merge(found, child.holders)
            nodes = below
        empty = self._plain.children.get("") if levels == ["+"] and self._plain.children else None
        for node in nodes:
            if node is not empty:  # "/#" and "+" have only the empty topic in common, and that is none
                _merge_both(found, node)
        return found

    def _root(self, text: str) -> _Node[K]:
        return self._dollar if text.startswith("$") else self._plain

    def _enter(self, levels: list[str], node: _Node[K], key: K, qos: int) -> None:
        for depth, level in enumerate(levels, 1):
            if level == "#":
                node.multi = self._with(node.multi, key, qos)
                return
            children = node.children
            if children is None:
                children = node.children = {}
            child = children.get(level)
            if child is None:
                children[self._levels.setdefault(level, level)] = self._tail(levels, depth, None, key, qos)
                return
            if isinstance(child, _Tail):
                if len(child.levels) == len(levels) - depth and child.levels == tuple(levels[depth:]):
                    children[level] = self._tail(levels, depth, child.holders, key, qos)
                    return
                child = children[level] = self._parted(child, levels, depth)
            node = child
        node.exact = self._with(node.exact, key, qos)

    def _tail(
        self, levels: list[str], depth: int, holders: dict[K, int] | None, key: K, qos: int
    ) -> _Tail[K]:
        """The end of a filter, with one holder more; levels that come often are one object for all."""
        shared = self._levels
        if len(shared) >= _SHARED:
            shared.clear()
        rest = tuple([shared.setdefault(level, level) for level in levels[depth:]])
        known = self._tails.get((rest, key, qos)) if holders is None else None
        if known is not None:
            return known
        holders = self._with(holders, key, qos)
        tail = _Tail(rest, holders)
        if len(holders) == 1:
            if len(self._tails) >= _SHARED:
                self._tails.clear()
            self._tails[rest, key, qos] = tail
        return tail

    def _parted(self, tail: _Tail[K], levels: list[str], depth: int) -> _Node[K]:
        """Nodes in place of a tail, as far as it goes with the levels of another filter from ``depth`` on."""
        top = node = _Node[K]()
        for place, level in enumerate(tail.levels):
            if level == "#":
                node.multi = tail.holders
                return top
            if depth + place == len(levels) or level != levels[depth + place]:
                node.children = {level: _Tail(tail.levels[place + 1 :], tail.holders)}
                return top
            further = _Node[K]()
            node.children = {level: further}
            node = further
        node.exact = tail.holders
        return top

    def _with(self, holders: dict[K, int] | None, key: K, qos: int) -> dict[K, int]:
        if holders is None or (len(holders) == 1 and key in holders):
            alone = self._alone.get(key)
            if alone is None:
                alone = self._alone[key] = tuple([{key: each} for each in range(3)])
            return alone[qos]
        if len(holders) == 1:
            return {**holders, key: qos}
        holders[key] = qos
        return holders

    def _without(self, holders: dict[K, int], key: K) -> dict[K, int] | None:
        if len(holders) == 1:
            return None
        if len(holders) == 2:
            other = next(each for each in holders if each != key)
            return self._with(None, other, holders[other])
        del holders[key]
        return holders

    def _forget(self, key: K) -> None:
        """Nothing of a key that holds no filter any more."""
        self._alone.pop(key, None)
        self._tails.clear()

    def _unlink(self, topic_filter: str, key: K) -> None:
        """Take the entry out of the trie, and the nodes that nothing needs any more."""
        node = self._root(topic_filter)
        path: list[tuple[dict[str, _Node[K] | _Tail[K]], str, _Node[K]]] = []
        levels = topic_filter.split("/")
        for level in levels:
            if level == "#":
                assert node.multi is not None
                node.multi = self._without(node.multi, key)
                break
            children = node.children
            assert children is not None
            child = children[level]
            if isinstance(child, _Tail):
                left = self._without(child.holders, key)
                if left is not None:
                    children[level] = _Tail(child.levels, left)
                else:
                    del children[level]
                    if not children:
                        node.children = None
                break
            path.append((children, level, node))
            node = child
        else:
            assert node.exact is not None
            node.exact = self._without(node.exact, key)
        while path and node.children is None and node.exact is None and node.multi is None:
            siblings, level, node = path.pop()
            del siblings[level]
            if siblings:
                return
            node.children = None


def _compare(rest: tuple[str, ...], levels: Sequence[str], depth: int) -> int:
    """How many levels were compared of a filter's rest with a topic from ``depth`` on; ``~`` of it if they
    differ."""
    size = len(levels)
    for compared, level in enumerate(rest, 1):
        if level == "#":
            return compared
        if depth == size or (level != levels[depth] and level != "+"):
            return ~compared
        depth += 1
    return len(rest) if depth == size else ~len(rest)


def _meet(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether some levels match the rests of two filters."""
    for one, other in zip(first, second, strict=False):
        if "#" in (one, other):
            return True
        if one != other and "+" not in (one, other):
            return False
    longer = first if len(first) > len(second) else second
    shorter = min(len(first), len(second))
    return len(longer) == shorter or longer[shorter] == "#"


def _merge_all(found: dict[K, int], nodes: list[_Node[K]]) -> None:
    """Of all filters below these nodes, which are taken out of the list."""
    while nodes:
        node = nodes.pop()
        _merge_both(found, node)
        if node.children is not None:
            for child in node.children.values():
                if isinstance(child, _Node):
                    nodes.append(child)
                else:
                    _merge(found, child.holders)


def _merge_both(found: dict[K, int], node: _Node[K]) -> None:
    if node.exact is not None:
        _merge(found, node.exact)
    if node.multi is not None:
        _merge(found, node.multi)


def _merge(found: dict[K, int], entries: dict[K, int]) -> None:
    for key, qos in entries.items():
        if found.get(key, -1) < qos:
            found[key] = qos
