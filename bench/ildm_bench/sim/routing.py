"""Range queries over converged tables, wave by wave in arrays (thesis 2.2.5, 4.1.1, 4.1.2).

The same decisions as in `overlay/casts/routing.py`, for all messages of one depth at once. A message
is addressed to a key and carries the range its receiver answers for. The receiver's keys divide the range
into gaps; into each gap it forwards from the own key on its left, from the one on its right, or from both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ildm_bench.sim.tables import NONE, Counts, Flags, Graph, Ranks

Routing = Literal["sfb", "mrf"]


@dataclass
class Tree:
    """How a query reached the keys of a range from one key.

    ranks: int32[reached], in the order reached, those of one depth together. depth: int32[reached], messages
    from the start. parent: int32[reached], index into ``ranks`` of the key that the sender was addressed by,
    -1 for those that the entry holds. messages: all messages sent, also those on the way to the range.
    """

    ranks: Ranks
    depth: Ranks
    parent: Ranks
    messages: int


@dataclass
class Spreads:
    """Many range queries; queries that enter a range at the same key share one tree.

    Per query: entry int32[queries], the key the range was entered by, NONE when no key is in the range;
    hops int32[queries], messages on the way to it; tree int32[queries], index of its tree or NONE.
    Per key reached: ranks, depth (from the entry), parent (as in :class:`Tree`), member (its tree).
    Per tree: forwards int64[trees], messages inside the range.
    """

    entry: Ranks
    hops: Ranks
    tree: Ranks
    ranks: Ranks
    depth: Ranks
    parent: Ranks
    member: Ranks
    forwards: Counts

    @property
    def messages(self) -> Counts:
        """int64[queries]: messages of each query."""
        inside = np.zeros(self.tree.size, np.int64)
        reached = self.tree != NONE
        inside[reached] = self.forwards[self.tree[reached]]
        return inside + self.hops

    @cached_property
    def depths(self) -> Counts:
        """int64[trees, depths]: keys per depth below the entry."""
        deepest = int(self.depth.max(initial=0)) + 1
        cells = self.member.astype(np.int64) * deepest + self.depth
        return np.bincount(cells, minlength=self.forwards.size * deepest).reshape(-1, deepest)

    def path_lengths(self) -> Counts:
        """int64[longest + 1]: pairs of a query and a key reached by it, per number of hops between them."""
        lengths = np.zeros(int(self.hops.max(initial=0)) + self.depths.shape[1], np.int64)
        reached = self.tree != NONE
        for hops in np.unique(self.hops[reached]):
            shared = np.bincount(self.tree[reached & (self.hops == hops)], minlength=self.forwards.size)
            lengths[hops : hops + self.depths.shape[1]] += shared @ self.depths
        return lengths[: int(np.flatnonzero(lengths).max(initial=0)) + 1]

    def children(self, keys: int) -> Counts:
        """int64[keys]: keys reached from each key by one message inside the range, all trees added up.

        Where nodes have one key each, that is how often each one forwards.
        """
        below = self.parent[self.parent != NONE]
        return np.bincount(self.ranks[below], minlength=keys)


class _Wave(NamedTuple):
    """Messages of one depth: addressed key, range, tree, index of the sender's key in what was reached."""

    to: Ranks
    low: Ranks
    high: Ranks
    tree: Ranks
    parent: Ranks

    def take(self, where: npt.NDArray[np.intp] | Flags) -> _Wave:
        return _Wave(*(column[where] for column in self))


class _Gaps(NamedTuple):
    """Gaps between own keys: the own keys around each (NONE: an end of the range), range, tree, sender."""

    before: Ranks
    after: Ranks
    low: Ranks
    high: Ranks
    tree: Ranks
    sender: Ranks

    def take(self, where: npt.NDArray[np.intp] | Flags) -> _Gaps:
        return _Gaps(*(column[where] for column in self))


def spread(graph: Graph, start: int, low: int, high: int, routing: Routing) -> Tree:
    """A query from the node of key ``start`` to the ranks [low, high), wherever ``start`` lies.

    Raises ValueError where start or range are not ranks of the graph.
    """
    spreads = spread_many(graph, [start], [low], [high], routing)
    hops = int(spreads.hops[0])
    return Tree(spreads.ranks, spreads.depth + np.int32(hops), spreads.parent, int(spreads.messages[0]))


def spread_many(
    graph: Graph, starts: npt.ArrayLike, lows: npt.ArrayLike, highs: npt.ArrayLike, routing: Routing
) -> Spreads:
    """Queries from the nodes of ``starts`` to [lows, highs), int[queries] each; see :func:`spread`."""
    at, low, high = _queries(graph, starts, lows, highs)
    entry, hops = _enter(graph, at, low, high)
    reached = entry != NONE
    # Ranges first, then entries: both composites stay below 2**63 for every graph of fewer than 2**31 keys.
    bounds = low[reached].astype(np.int64) * (graph.keys + 1) + high[reached]
    _, ranges = np.unique(bounds, return_inverse=True)
    composite = ranges.astype(np.int64) * graph.keys + entry[reached]
    _, first, inverse = np.unique(composite, return_index=True, return_inverse=True)
    tree = np.full(at.size, NONE, np.int32)
    tree[reached] = inverse
    roots = np.flatnonzero(reached)[first]
    trees = _Wave(
        entry[roots],
        low[roots],
        high[roots],
        np.arange(roots.size, dtype=np.int32),
        np.full(roots.size, NONE, np.int32),
    )
    ranks, depth, parent, member, forwards = _flood(graph, trees, routing)
    return Spreads(entry, hops, tree, ranks, depth, parent, member, forwards)


def _queries(
    graph: Graph, starts: npt.ArrayLike, lows: npt.ArrayLike, highs: npt.ArrayLike
) -> tuple[Ranks, Ranks, Ranks]:
    at, low, high = np.broadcast_arrays(
        np.atleast_1d(np.asarray(starts, np.int32)),
        np.atleast_1d(np.asarray(lows, np.int32)),
        np.atleast_1d(np.asarray(highs, np.int32)),
    )
    if at.size and (int(at.min()) < 0 or int(at.max()) >= graph.keys):
        raise ValueError(f"a start is not among the ranks 0..{graph.keys - 1}")
    if bool(((low < 0) | (low > high) | (high > graph.keys)).any()):
        raise ValueError(f"a range does not lie in 0..{graph.keys}")
    return at, low, high


def _enter(graph: Graph, starts: Ranks, low: Ranks, high: Ranks) -> tuple[Ranks, Ranks]:
    """Key each query enters its range by (NONE: there is none), and the messages it takes to get there."""
    entry = np.full(starts.size, NONE, np.int32)
    hops = np.zeros(starts.size, np.int32)
    at = starts.copy()
    walking = np.arange(starts.size)
    passed = 0
    while walking.size:
        here, lowest, highest = at[walking], low[walking], high[walking]
        inside = (here >= lowest) & (here < highest)
        if graph.single:
            before, after = np.where(here < lowest, here, NONE), np.where(here >= highest, here, NONE)
        else:
            first, last, around = _own(graph, here, lowest, highest)
            ranks, _ = graph.held
            held = ~inside & (first < last)
            here = here.copy()
            here[held] = ranks[first[held]]
            inside |= held
            before, after = around
        entry[walking[inside]] = here[inside]
        hops[walking] = passed
        steps = _toward(graph, before, after, lowest, highest)
        going = ~inside & (steps != NONE)
        walking = walking[going]
        at[walking] = steps[going]
        passed += 1
    return entry, hops


def _toward(graph: Graph, before: Ranks, after: Ranks, low: Ranks, high: Ranks) -> Ranks:
    """Next key on the way to ranges without an own key; before, after: the nearest own keys (or NONE)."""
    right, right_level = _topmost(graph, 1, before, high)
    left, left_level = _topmost(graph, 0, after, low)
    from_right = (right != NONE) & (right >= low)
    from_left = (left != NONE) & (left < high)
    chosen = np.where(from_left & (~from_right | (left_level > right_level)), left, right)
    # Outside the range from the left wherever possible, as in ildm_algorithms.overlay.casts.routing.
    outside = np.where(right == NONE, left, right)
    chosen = np.where(from_right | from_left, chosen, outside)
    nothing = (low >= high) & ((before == low - 1) & (before != NONE) | (after == high))
    chosen[nothing] = NONE
    return chosen.astype(np.int32)


def _own(
    graph: Graph, keys: Ranks, low: Ranks, high: Ranks
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], tuple[Ranks, Ranks]]:
    """Slice of ``held`` that the owners of ``keys`` have in [low, high), and their keys next to the range."""
    ranks, bounds = graph.held
    owners = graph.owner[keys]
    first = np.searchsorted(graph.composites, owners.astype(np.int64) * graph.keys + low)
    last = np.searchsorted(graph.composites, owners.astype(np.int64) * graph.keys + high)
    before = np.where(first > bounds[owners], ranks[first - 1], np.int32(NONE))
    after = np.where(last < bounds[owners + 1], ranks[np.minimum(last, ranks.size - 1)], np.int32(NONE))
    return first, last, (before, after)


def _flood(graph: Graph, wave: _Wave, routing: Routing) -> tuple[Ranks, Ranks, Ranks, Ranks, Counts]:
    """Spread queries from inside their ranges: ranks, depth, parent and tree per key, forwards per tree."""
    forwards = np.zeros(wave.to.size, np.int64)
    columns: list[tuple[Ranks, Ranks, Ranks, Ranks]] = []
    divide = _split_forward if routing == "sfb" else _one_per_gap
    reached = 0
    while wave.to.size or not columns:
        keys, parent, member, gaps = (_two_gaps if graph.single else _several_gaps)(graph, wave, reached)
        columns.append((keys, np.full(keys.size, len(columns), np.int32), parent, member))
        wave = divide(graph, gaps.take(gaps.low < gaps.high))
        forwards += np.bincount(wave.tree, minlength=forwards.size)
        reached += keys.size
    ranks, depth, parents, members = (np.concatenate(column) for column in zip(*columns, strict=True))
    return ranks, depth, parents, members, forwards


def _two_gaps(graph: Graph, wave: _Wave, reached: int) -> tuple[Ranks, Ranks, Ranks, _Gaps]:
    """What a wave reaches, and the gaps to forward into, where each node has one key."""
    ends = np.full(wave.to.size, NONE, np.int32)
    sender = np.arange(reached, reached + wave.to.size, dtype=np.int32)
    gaps = _Gaps(
        np.concatenate((ends, wave.to)),
        np.concatenate((wave.to, ends)),
        np.concatenate((wave.low, wave.to + np.int32(1))),
        np.concatenate((wave.to, wave.high)),
        np.concatenate((wave.tree, wave.tree)),
        np.concatenate((sender, sender)),
    )
    return wave.to, wave.parent, wave.tree, gaps


def _several_gaps(graph: Graph, wave: _Wave, reached: int) -> tuple[Ranks, Ranks, Ranks, _Gaps]:
    """What a wave reaches, and the gaps to forward into, where nodes have several keys."""
    ranks, _ = graph.held
    first, last, _ = _own(graph, wave.to, wave.low, wave.high)
    counts = last - first
    offsets = np.cumsum(counts) - counts
    keys = ranks[np.repeat(first - offsets, counts) + np.arange(int(counts.sum()))]
    addressed = np.searchsorted(
        graph.composites, graph.owner[wave.to].astype(np.int64) * graph.keys + wave.to
    )
    sender = (reached + offsets + addressed - first).astype(np.int32)
    before = np.empty_like(keys)
    before[1:] = keys[:-1]
    before[offsets] = NONE
    low = before + np.int32(1)
    low[offsets] = wave.low
    final = keys[offsets + counts - 1]
    tree = np.repeat(wave.tree, counts)
    gaps = _Gaps(
        np.concatenate((before, final)),
        np.concatenate((keys, np.full(final.size, NONE, np.int32))),
        np.concatenate((low, final + np.int32(1))),
        np.concatenate((keys, wave.high)),
        np.concatenate((tree, wave.tree)),
        np.concatenate((np.repeat(sender, counts), sender)),
    )
    return keys, np.repeat(wave.parent, counts), tree, gaps


def _split_forward(graph: Graph, gaps: _Gaps) -> _Wave:
    """SFB: every neighbour in a gap gets the part from its key to the next one farther from the own key."""
    limit, end = gaps.high.copy(), gaps.high.copy()
    floor, begin = gaps.low.copy(), gaps.low.copy()
    both = np.flatnonzero((gaps.before != NONE) & (gaps.after != NONE))
    if both.size:
        # One vector behind both own keys: the topmost neighbour from the left is at least as high as the
        # topmost one beyond it from the right, so the part between those two is its own.
        top, _ = _topmost(graph, 1, gaps.before[both], gaps.high[both])
        lowest = np.where(top == NONE, gaps.low[both], top + np.int32(1))
        other, _ = _topmost(graph, 0, gaps.after[both], lowest)
        same = (other != NONE) & (graph.owner[top] == graph.owner[other])
        border = np.where(same, other + np.int32(1), other)
        end[both] = np.where(other == NONE, gaps.high[both], border)
        begin[both] = border
        floor[both] = np.where(same, border, lowest)
    ahead, behind = gaps.before != NONE, gaps.after != NONE
    return _joined(
        _chains(graph, 1, gaps.before[ahead], limit[ahead], end[ahead], gaps.take(ahead)),
        _chains(graph, 0, gaps.after[behind], floor[behind], begin[behind], gaps.take(behind)),
    )


def _chains(graph: Graph, side: Literal[0, 1], own: Ranks, bound: Ranks, border: Ranks, gaps: _Gaps) -> _Wave:
    """Parts for all neighbours of ``own`` on a side (0 left, 1 right) within ``bound``.

    A neighbour's part ends at the next one above it, the last part at ``border``. Bottom-up, so that the
    arrays shrink as fast as the lists do.
    """
    table = graph.right if side else graph.left
    waves = []
    active = np.arange(own.size)
    near = table[0][own]
    active = active[_within(side, near, bound)]
    near = near[active]
    for level in range(1, graph.levels + 1):
        if not active.size:
            break
        far = table[level][own[active]] if level < graph.levels else np.full(active.size, NONE, np.int32)
        known = _within(side, far, bound[active])
        done = ~known | (far != near)
        at, to = active[done], near[done]
        edge = np.where(known[done], far[done] + np.int32(1 - side), border[at])
        low, high = (to, edge) if side else (edge, to + np.int32(1))
        waves.append(_Wave(to, low, high, gaps.tree[at], gaps.sender[at]))
        active, near = active[known], far[known]
    return _joined(*waves)


def _one_per_gap(graph: Graph, gaps: _Gaps) -> _Wave:
    """MRF: the neighbour of the highest level in a gap gets the gap."""
    right, right_level = _topmost(graph, 1, gaps.before, gaps.high)
    left, left_level = _topmost(graph, 0, gaps.after, gaps.low)
    to = np.where(left_level > right_level, left, right)
    wave = _Wave(to, gaps.low, gaps.high, gaps.tree, gaps.sender)
    return wave.take(to != NONE)


def _topmost(graph: Graph, side: Literal[0, 1], own: Ranks, bound: Ranks) -> tuple[Ranks, Ranks]:
    """Neighbour of the highest level within ``bound`` on a side, and that level; both NONE: there is none."""
    table = graph.right if side else graph.left
    found = np.full(own.size, NONE, np.int32)
    levels = np.full(own.size, NONE, np.int32)
    active = np.flatnonzero(own != NONE)
    for level in range(graph.levels):
        near = table[level][own[active]]
        known = _within(side, near, bound[active])
        active = active[known]
        if not active.size:
            break
        found[active] = near[known]
        levels[active] = level
    return found, levels


def _within(side: Literal[0, 1], neighbor: Ranks, bound: Ranks) -> Flags:
    return (neighbor != NONE) & (neighbor < bound) if side else neighbor >= bound


def _joined(*waves: _Wave) -> _Wave:
    if not waves:
        return _Wave(*(np.empty(0, np.int32) for _ in _Wave._fields))
    return _Wave(*(np.concatenate(columns) for columns in zip(*waves, strict=True)))
