"""The filters worth announcing to a neighbour: inter-subscribe only the difference (thesis 5.3.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from ildm.mqtt.topics import LONGER_TWINS

K = TypeVar("K", bound=Hashable)

# How many things there are at QoS 0, 1 and 2, packed into one integer (32 bits each): half the memory
# of a list per trie node, and sums of such counts are plain sums.
_ONE = (1, 1 << 32, 1 << 64)

_SHORTER_TWINS = {longer: shorter for shorter, longer in LONGER_TWINS.items()}

MOST_HEAVY = 1024
"""Filters with ``+`` at two or more levels that are compared with others."""
WORK = 10_000
"""Trie nodes that a call looks at, about, some milliseconds; what is left is done by ``go_on``."""
WORK_PER_FILTER = 32
"""As many more for each filter of an ``update``."""
MOST_NODES = 1024
"""Of the trie that are looked at for what one filter with ``+`` covers."""
_HEAD = 8
"""What it takes to withdraw or restore a filter, in such nodes."""
_TWINS = frozenset(LONGER_TWINS) | frozenset(LONGER_TWINS.values())

_Before = dict[str, int | None]
"""Filters whose announcement an update touched -> QoS announced before it, None if they were not."""


def _highest(counts: int) -> int:
    """The highest QoS with a count above zero; ``counts`` is not 0."""
    return 2 if counts >= _ONE[2] else 1 if counts >= _ONE[1] else 0


def _is_heavy(topic_filter: str) -> bool:
    """Many of the kind may cover one filter: to look for them all would take long."""
    return topic_filter.count("+") > 1 and topic_filter not in _TWINS


def _split(topic_filter: str) -> tuple[list[str], bool]:
    """The levels before ``#``, and whether there is a ``#``."""
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        levels.pop()
        return levels, True
    return levels, False


@dataclass(frozen=True)
class Delta:
    """A change of the announced set; false if nothing changes. No filter is in both parts."""

    subscribe: dict[str, int] = field(default_factory=dict)
    """Filter -> QoS (0, 1, 2) to subscribe to, for the first time or anew with another QoS."""
    unsubscribe: list[str] = field(default_factory=list)
    """Filters to unsubscribe from; after the subscriptions, so that no topic is uncovered meanwhile."""

    def __bool__(self) -> bool:
        return bool(self.subscribe or self.unsubscribe)


class _Entry:
    """One filter that at least one source holds."""

    __slots__ = ("aside", "covered", "holders", "job", "leaving", "topic_filter")

    def __init__(self, topic_filter: str, aside: bool) -> None:
        self.topic_filter = topic_filter
        self.aside = aside
        """It is announced whatever covers it, and covers nothing."""
        self.holders = 0
        """Packed count of the sources that hold this filter, by their QoS."""
        self.covered = 0
        """Packed count of the filters this one covers, itself included; 0 while it is not announced."""
        self.leaving = False
        """Nobody holds it any more, but it stays, as if held, until what it covered is announced."""
        self.job: _Job | None = None


class _Job:
    """A walk over what ``entry`` covers: to withdraw it, or to restore it when ``entry`` is leaving."""

    __slots__ = ("entry", "heads")

    def __init__(self, entry: _Entry, heads: Iterator[_Entry]) -> None:
        self.entry = entry
        self.heads = heads


class _Node:
    """One topic level of the trie; ``multi`` is the filter that goes on with ``/#`` from here."""

    __slots__ = ("children", "exact", "multi", "weight")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.exact: _Entry | None = None
        self.multi: _Entry | None = None
        self.weight = 0
        """Packed count of the filters at this node and below; a node without any is removed."""


class CoveringSet(Generic[K]):
    """What has to be announced toward one neighbour, given the interest of several sources.

    Let F be all filters held by any source, q(f) the maximum QoS over the sources that hold f. Announced
    are the maximal filters of F under ``covers`` (the shorter of two that cover each other), each with
    the maximum q(g) of all g in F that it covers, itself included. So every topic that some source wants
    is subscribed to, at a QoS no lower than wanted (MQTT-3.8.4-8).

    Filters have to be valid and without ``$share/group/`` (see ``split_shared``).

    Cost of the change of one filter f in ``update``:

    - f stays covered, or only its QoS changes: O(trie nodes on paths that cover f), usually the number
      of its levels, however large F is.
    - f becomes announced: as above, and a walk over the part of the trie f covers: nothing for a filter
      without wildcards; the children of each level with ``+``; for ``#`` the subtree, without what lies
      below another ``#`` there. Those are the filters announced so far, to be withdrawn, and rarely more.
    - f stops being announced: the same walk, the question who covers it now for each filter found, and
      for each that is restored a walk to count what it covers: O(levels) unless it has a ``+``.

    All that is bounded, as one packet may bring thousands of filters and one filter cover thousands. Where a
    bound bites, more is announced than the maximal filters, which costs some traffic, never less:

    - Walks stop after about ``WORK`` nodes; the rest is left for ``go_on``, to be called soon while
      ``behind``. Until then what a new filter covers stays announced, and a filter nobody holds any more.
    - Not compared with others, but announced as they are, while anybody holds them, are filters with ``+``
      that cover more than ``MOST_NODES`` of the trie; those with ``+`` at two or more levels, of which
      thousands may cover one filter without covering each other, beyond ``MOST_HEAVY``; and what comes in
      an update after the work for all its filters is used up.

    What still depends on F: to restore one filter with ``+`` that has come to cover much, O(|F|).
    Memory: one node per distinct level, one small record per filter. Nothing recurses.
    """

    __slots__ = (
        "_announced",
        "_dollar",
        "_entries",
        "_heavy",
        "_jobs",
        "_left",
        "_plain",
        "_sources",
        "announced",
    )

    def __init__(self) -> None:
        # Two tries: a filter with a leading wildcard covers none that starts with "$" (MQTT-4.7.2-1).
        self._plain = _Node()
        self._dollar = _Node()
        self._entries: dict[str, _Entry] = {}
        self._heavy = 0
        self._jobs: deque[_Job] = deque()
        self._left = 0
        self._sources: dict[K, dict[str, int]] = {}
        self._announced: dict[str, int] = {}
        self.announced: Mapping[str, int] = MappingProxyType(self._announced)
        """Filter -> QoS of what is announced now: a live, read-only view."""

    def update(self, source: K, changes: Mapping[str, int | None]) -> Delta:
        """Set the QoS of filters of ``source``, None removes one; answers the smallest change due.

        Filters not in ``changes`` stay as they are; removing a filter the source does not hold is no change.

        Raises:
            ValueError: a QoS is not 0, 1, 2 or None; then nothing has changed.
        """
        for topic_filter, qos in changes.items():
            if qos not in (None, 0, 1, 2):
                raise ValueError(f"qos of {topic_filter!r} must be 0, 1, 2 or None, not {qos!r}")
        held = self._sources.setdefault(source, {})
        self._left = WORK + WORK_PER_FILTER * len(changes)
        before: _Before = {}
        removed: list[str] = []
        for topic_filter, qos in changes.items():
            old = held.get(topic_filter)
            if qos is None:
                if old is not None:
                    removed.append(topic_filter)
            elif qos != old:
                held[topic_filter] = qos
                self._hold(topic_filter, old, qos, before)
        # Additions came first, and covered filters leave before those that cover them: otherwise filters
        # would be restored only to be withdrawn again.
        removed.sort(key=self._announced.__contains__)
        for topic_filter in removed:
            self._hold(topic_filter, held.pop(topic_filter), None, before)
        if not held:
            del self._sources[source]
        self._work(before)
        return self._delta(before)

    @property
    def behind(self) -> bool:
        """More is announced than has to be: there is work for ``go_on``."""
        return bool(self._jobs)

    def go_on(self) -> Delta:
        """Do some more of what an update has left; answers the change due."""
        self._left = WORK
        before: _Before = {}
        self._work(before)
        return self._delta(before)

    def covered_by(self, topic_filter: str) -> int:
        """How many filters, itself included, a filter stands for; 0 if it is not announced."""
        entry = self._entries.get(topic_filter)
        if entry is None:
            return 0
        counts, total = entry.covered, 0
        while counts:
            counts, number = divmod(counts, _ONE[1])
            total += number
        return total

    def remove_source(self, source: K) -> Delta:
        """Remove all that ``source`` holds; an unknown source is no change."""
        return self.update(source, dict.fromkeys(self._sources.get(source, ())))

    def _delta(self, before: _Before) -> Delta:
        delta = Delta()
        for topic_filter, old in before.items():
            new = self._announced.get(topic_filter)
            if new is None:
                if old is not None:
                    delta.unsubscribe.append(topic_filter)
            elif new != old:
                delta.subscribe[topic_filter] = new
        return delta

    def _hold(self, topic_filter: str, old: int | None, new: int | None, before: _Before) -> None:
        """One source's QoS goes from ``old`` to ``new``."""
        entry = self._entries.get(topic_filter)
        if entry is None:
            entry = self._entries[topic_filter] = _Entry(topic_filter, self._is_aside(topic_filter))
            self._heavy += _is_heavy(topic_filter) and not entry.aside
        was = entry.holders
        if entry.leaving:
            entry.leaving, entry.job, entry.holders = False, None, 0
        entry.holders += (0 if new is None else _ONE[new]) - (0 if old is None else _ONE[old])
        if entry.aside:
            self._hold_aside(entry, before)
        elif not was:
            self._insert(entry, before)
        elif not entry.holders:
            entry.holders, entry.leaving = _ONE[_highest(was)], True
            self._start(entry, before)
        elif _highest(was) != _highest(entry.holders):
            change = _ONE[_highest(entry.holders)] - _ONE[_highest(was)]
            self._weigh(topic_filter, change)
            self._count(topic_filter, change, before)

    def _is_aside(self, topic_filter: str) -> bool:
        """Whether to compare a new filter with the others is too much work."""
        if topic_filter in _TWINS:
            return False
        if self._left <= 0 or (_is_heavy(topic_filter) and self._heavy >= MOST_HEAVY):
            return True
        if "+" not in topic_filter or self._is_covered(topic_filter):
            return False
        return self._region(topic_filter, MOST_NODES) is None

    def _is_covered(self, topic_filter: str) -> bool:
        """Whether another filter covers this one that is announced and will stay so."""
        return any(
            coverer.covered and not coverer.leaving and coverer.topic_filter != topic_filter
            for coverer in self._coverers(topic_filter)
        )

    def _hold_aside(self, entry: _Entry, before: _Before) -> None:
        topic_filter = entry.topic_filter
        before.setdefault(topic_filter, self._announced.pop(topic_filter, None))
        if entry.holders:
            qos = self._announced[topic_filter] = _highest(entry.holders)
            entry.covered = _ONE[qos]
        else:
            del self._entries[topic_filter]

    def _insert(self, entry: _Entry, before: _Before) -> None:
        topic_filter = entry.topic_filter
        weight = _ONE[_highest(entry.holders)]
        node, multi = self._weigh(topic_filter, weight)
        if multi:
            node.multi = entry
        else:
            node.exact = entry
        # A filter that any other covers is covered by an announced one too: those are the maximal ones.
        if self._count(topic_filter, weight, before):
            return
        self._announce(entry, before)
        self._start(entry, before)

    def _start(self, entry: _Entry, before: _Before) -> None:
        """Begin to withdraw what a new filter covers, or to restore what one that leaves has covered."""
        job = entry.job = _Job(entry, self._heads(entry))
        if not self._run(job, before):
            self._jobs.append(job)

    def _work(self, before: _Before) -> None:
        while self._jobs and self._left > 0:
            if self._run(self._jobs[0], before):
                self._jobs.popleft()

    def _run(self, job: _Job, before: _Before) -> bool:
        """Go on with a job; whether it is done, or none any more."""
        entry = job.entry
        if entry.job is not job:
            return True
        if self._left <= 0:
            return False
        if not self._is_pointless(entry):
            for head in job.heads:
                if not entry.leaving:
                    self._withdraw(head, before)
                elif self._is_bare(head):
                    self._announce(head, before)
                self._left -= _HEAD
                if self._left <= 0:
                    return False
        entry.job = None
        if entry.leaving:
            self._remove(entry, before)
        return True

    def _is_pointless(self, entry: _Entry) -> bool:
        """Whether nothing needs to be looked at to withdraw or to restore it."""
        if not entry.leaving:
            return not entry.covered
        return entry.covered == entry.holders or self._is_covered(entry.topic_filter)

    def _is_bare(self, entry: _Entry) -> bool:
        """Whether it is not announced, and no other covers it that stays."""
        if entry.covered or entry.leaving:
            return False
        return all(c is entry or c.leaving for c in self._coverers(entry.topic_filter))

    def _withdraw(self, entry: _Entry, before: _Before) -> None:
        if entry.covered:
            entry.covered = 0
            before.setdefault(entry.topic_filter, self._announced.pop(entry.topic_filter))

    def _remove(self, entry: _Entry, before: _Before) -> None:
        topic_filter = entry.topic_filter
        self._withdraw(entry, before)
        del self._entries[topic_filter]
        self._heavy -= _is_heavy(topic_filter)
        self._unlink(topic_filter, entry.holders)
        self._count(topic_filter, -entry.holders, before)

    def _announce(self, entry: _Entry, before: _Before) -> None:
        entry.covered = self._covered(entry.topic_filter)
        before.setdefault(entry.topic_filter, None)
        self._announced[entry.topic_filter] = _highest(entry.covered)

    def _count(self, topic_filter: str, change: int, before: _Before) -> bool:
        """Change the count of each announced filter that covers this one; whether there is one that stays.

        The longer of two equal filters counts the shorter while it is announced, but does not keep the
        shorter from being announced.
        """
        found = False
        longer = self._entries.get(LONGER_TWINS.get(topic_filter, ""))
        if longer is not None and longer.covered:
            self._add(longer, change, before)
        for coverer in self._coverers(topic_filter):
            if coverer.covered:
                found = found or not coverer.leaving
                self._add(coverer, change, before)
        return found

    def _add(self, coverer: _Entry, change: int, before: _Before) -> None:
        """Change the count of an announced filter, and its QoS with it."""
        coverer.covered += change
        name = coverer.topic_filter
        qos = _highest(coverer.covered)
        if qos != self._announced[name]:
            before.setdefault(name, self._announced[name])
            self._announced[name] = qos

    def _root(self, topic_filter: str) -> _Node:
        return self._dollar if topic_filter.startswith("$") else self._plain

    def _weigh(self, topic_filter: str, change: int) -> tuple[_Node, bool]:
        """Add to the weights down to the filter's node, making nodes that miss; answers (node, multi)."""
        levels, multi = _split(topic_filter)
        node = self._root(topic_filter)
        node.weight += change
        for level in levels:
            children = node.children
            if children is None:
                children = node.children = {}
            child = children.get(level)
            if child is None:
                child = children[level] = _Node()
            node = child
            node.weight += change
        return node, multi

    def _unlink(self, topic_filter: str, weight: int) -> None:
        levels, multi = _split(topic_filter)
        node = self._root(topic_filter)
        node.weight -= weight
        path = [node]
        for level in levels:
            assert node.children is not None
            node = node.children[level]
            node.weight -= weight
            path.append(node)
        if multi:
            node.multi = None
        else:
            node.exact = None
        for level, parent in zip(reversed(levels), reversed(path[:-1]), strict=True):
            assert parent.children is not None
            if parent.children[level].weight:
                break
            del parent.children[level]
            if not parent.children:
                parent.children = None

    def _coverers(self, topic_filter: str) -> Iterator[_Entry]:
        """The filters of F that cover this one, itself included if it is there.

        The longer of two equal filters is not named for the shorter, which takes precedence.
        """
        twin = LONGER_TWINS.get(topic_filter)
        # The longer form of the same filter meets more of those that cover it: "+/+/#" covers "/#".
        levels, multi = _split(twin or topic_filter)
        nodes = [self._root(topic_filter)]
        for level in levels:
            below: list[_Node] = []
            for node in nodes:
                if node.multi is not None:
                    yield node.multi
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
                    if level != "+":
                        child = children.get("+")
                        if child is not None:
                            below.append(child)
            if not below:
                return
            self._left -= len(below)
            nodes = below
        for node in nodes:
            if node.multi is not None and node.multi.topic_filter != twin:
                yield node.multi
            if node.exact is not None and not multi:
                yield node.exact

    def _region(self, topic_filter: str, most: int = 1 << 62) -> tuple[list[_Node], bool] | None:
        """Where the filters are that this one covers: (nodes, whether all that is below them counts).

        But for ``/#``, which ``+/+/#`` covers from a level below (see ``_outside``). None if it takes a look
        at more than ``most`` nodes.
        """
        levels, multi = _split(_SHORTER_TWINS.get(topic_filter, topic_filter))
        nodes = [self._root(topic_filter)]
        for level in levels:
            below: list[_Node] = []
            for node in nodes:
                children = node.children
                if children is None:
                    continue
                if level == "+":
                    if len(below) + len(children) > most:
                        return None
                    below.extend(children.values())
                else:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
            seen = len(below)
            most -= seen
            self._left -= seen
            if most < 0:
                return None
            nodes = below
            if not seen:
                break
        return nodes, multi

    def _outside(self, topic_filter: str) -> _Entry | None:
        """The only filter that can be covered from outside the region: ``/#``, as it asks for two levels."""
        return self._entries.get("/#") if topic_filter == "+/+/#" else None

    def _covered(self, topic_filter: str) -> int:
        """Packed count of the filters of F that this one covers, by their QoS."""
        region = self._region(topic_filter)
        assert region is not None
        nodes, multi = region
        if multi:
            outside = self._outside(topic_filter)
            weight = 0 if outside is None else _ONE[_highest(outside.holders)]
            return weight + sum(node.weight for node in nodes)
        return sum(_ONE[_highest(node.exact.holders)] for node in nodes if node.exact is not None)

    def _heads(self, entry: _Entry) -> Iterator[_Entry]:
        """The filters that ``entry`` covers, but those which a ``#`` named here covers as well."""
        longer = LONGER_TWINS.get(entry.topic_filter)
        if longer is not None and longer in self._entries:
            yield self._entries[longer]
            return
        outside = self._outside(entry.topic_filter)
        if outside is not None:
            yield outside
        region = self._region(entry.topic_filter)
        assert region is not None
        nodes, multi = region
        if not multi:
            for node in nodes:
                if node.exact is not None and node.exact is not entry:
                    yield node.exact
            return
        # It has come while this walk was interrupted, and takes precedence.
        shorter = _SHORTER_TWINS.get(entry.topic_filter)
        while nodes:
            node = nodes.pop()
            self._left -= 1
            if node.multi is not None and node.multi is not entry:
                leaves = node.multi.leaving
                if node.multi.topic_filter != shorter:
                    yield node.multi
                if not leaves:
                    continue
            if node.exact is not None:
                yield node.exact
            if node.children is not None:
                nodes.extend(node.children.values())
