"""A table of topic filters that answers which keys a topic name concerns (MQTT 5, 4.7)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from ildm.mqtt.topics import LONGER_TWINS

K = TypeVar("K", bound=Hashable)


class _Node(Generic[K]):
    """One topic level of the trie; ``multi`` belongs to the filter that goes on with ``/#`` from here."""

    __slots__ = ("children", "exact", "multi")

    def __init__(self) -> None:
        # None until needed: most nodes are leaves, and an empty dict costs more than the node.
        self.children: dict[str, _Node[K]] | None = None
        self.exact: dict[K, int] | None = None
        self.multi: dict[K, int] | None = None


class FilterTable(Generic[K]):
    """Topic filters, each held by any number of keys with a QoS (0, 1 or 2).

    Filters have to be valid and without ``$share/group/`` (see ``split_shared``). ``add`` and ``remove``
    cost O(levels). ``match`` costs O(trie nodes on paths that match the topic), which depends on the
    filters that match and not on how many there are. Nothing recurses.
    """

    __slots__ = ("_by_key", "_dollar", "_plain", "_size", "generation")

    def __init__(self) -> None:
        # Two tries, so that a leading wildcard cannot meet a "$"-topic (MQTT-4.7.2-1) and the walk
        # down needs no test for it.
        self._plain: _Node[K] = _Node()
        self._dollar: _Node[K] = _Node()
        self._by_key: dict[K, dict[str, int]] = {}
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
        node = self._root(topic_filter)
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        for level in levels:
            children = node.children
            if children is None:
                children = node.children = {}
            child = children.get(level)
            if child is None:
                child = children[level] = _Node()
            node = child
        entries = node.multi if multi else node.exact
        if entries is not None:
            entries[key] = qos
        elif multi:
            node.multi = {key: qos}
        else:
            node.exact = {key: qos}
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
        for level in topic.split("/"):
            below: list[_Node[K]] = []
            for node in nodes:
                if node.multi is not None:
                    _merge(found, node.multi)
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
                    child = children.get("+")
                    if child is not None:
                        below.append(child)
            if not below:
                return found
            most -= len(below)
            if most < 0:
                return None
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
        for level in levels:
            if level == "#":
                while nodes:
                    node = nodes.pop()
                    _merge_both(found, node)
                    if node.children is not None:
                        nodes.extend(node.children.values())
                return found
            below: list[_Node[K]] = []
            for node in nodes:
                if node.multi is not None:
                    _merge(found, node.multi)
                children = node.children
                if children is None:
                    continue
                if level == "+":
                    below.extend(children.values())
                else:
                    below.extend(children[name] for name in (level, "+") if name in children)
            nodes = below
        empty = self._plain.children.get("") if levels == ["+"] and self._plain.children else None
        for node in nodes:
            if node is not empty:  # "/#" and "+" have only the empty topic in common, and that is none
                _merge_both(found, node)
        return found

    def _root(self, text: str) -> _Node[K]:
        return self._dollar if text.startswith("$") else self._plain

    def _unlink(self, topic_filter: str, key: K) -> None:
        """Take the entry out of the trie, and the nodes that nothing needs any more."""
        node = self._root(topic_filter)
        path: list[tuple[dict[str, _Node[K]], str, _Node[K]]] = []
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        for level in levels:
            children = node.children
            assert children is not None
            path.append((children, level, node))
            node = children[level]
        entries = node.multi if multi else node.exact
        assert entries is not None
        del entries[key]
        if entries:
            return
        if multi:
            node.multi = None
        else:
            node.exact = None
        while path and node.children is None and node.exact is None and node.multi is None:
            siblings, level, node = path.pop()
            del siblings[level]
            if siblings:
                return
            node.children = None


def _merge_both(found: dict[K, int], node: _Node[K]) -> None:
    if node.exact is not None:
        _merge(found, node.exact)
    if node.multi is not None:
        _merge(found, node.multi)


def _merge(found: dict[K, int], entries: dict[K, int]) -> None:
    for key, qos in entries.items():
        if found.get(key, -1) < qos:
            found[key] = qos
