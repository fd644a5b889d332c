"""Converged tables of a multi-key Skip Graph as numpy arrays (thesis 2.2.4, 2.2.5), base 2.

Keys are ranks: key ``k`` of ``0..n-1`` is the k-th in ascending order. ``owner[k]`` is the physical node
that holds it; all keys of a node share the node's 64-bit membership vector. The list of level i holds the
keys whose vectors share the first i bits. A list of one physical node only says nothing about others, so it
is left out, except at level 0; a node takes part in a level no longer than it meets others there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

NONE = -1
DIGITS = 64
CHUNK = 1 << 22  # table slots looked at in one go where all at once would take too much memory


@dataclass
class Graph:
    """The tables of all keys.

    owner: int32[n], physical node of each key. vectors: uint64[physical]. left, right: int32[levels, n],
    the neighbour's rank, ``NONE`` where the linear list ends; neighbours of the same node are shown.
    """

    owner: Ranks
    vectors: Vectors
    left: Ranks
    right: Ranks

    @property
    def levels(self) -> int:
        return int(self.left.shape[0])

    @property
    def keys(self) -> int:
        return int(self.owner.size)

    @property
    def nodes(self) -> int:
        return int(self.vectors.size)

    @cached_property
    def single(self) -> bool:
        """Whether no physical node holds more than one key."""
        return not _several(self.owner, self.nodes)

    @cached_property
    def held(self) -> tuple[Ranks, Counts]:
        """All ranks grouped by owner, ascending inside a group; int64[nodes + 1] with the groups' bounds."""
        ranks = np.argsort(self.owner, kind="stable").astype(np.int32)
        bounds = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(self.owner, minlength=self.nodes), out=bounds[1:])
        return ranks, bounds

    @cached_property
    def composites(self) -> Counts:
        """int64[n], ascending: owner * n + rank of each key, to bisect for a node's keys in a range."""
        ranks, _ = self.held
        return self.owner[ranks].astype(np.int64) * self.keys + ranks

    def keys_of(self, node: int) -> Ranks:
        """int32[...]: the ranks a physical node holds, ascending."""
        ranks, bounds = self.held
        return ranks[bounds[node] : bounds[node + 1]]


def build(owner: npt.ArrayLike, vectors: npt.ArrayLike, max_levels: int | None = None) -> Graph:
    """The converged tables of keys in ascending order.

    owner: int[n] with values below len(vectors); vectors: uint64[physical]. Levels end when every list holds
    keys of one physical node only, at the latest with ``max_levels``. Raises ValueError on other shapes.
    """
    owners, digits = _checked(owner, vectors)
    if max_levels is not None and max_levels < 1:
        raise ValueError(f"max_levels is {max_levels}, below 1")
    levels = level_count(owners, digits)
    if max_levels is not None:
        levels = min(levels, max_levels)
    left = np.full((levels, owners.size), NONE, np.int32)
    right = np.full((levels, owners.size), NONE, np.int32)
    for level, (order, linked) in enumerate(lists(owners, digits, levels)):
        behind = np.flatnonzero(linked)
        here, before = order[behind], order[behind - 1]
        left[level][here] = before
        right[level][before] = here
    return Graph(owners, digits, left, right)


def level_count(owner: Ranks, vectors: Vectors) -> int:
    """Levels with a list of more than one physical node; level 0 always counts."""
    held = np.zeros(vectors.size, np.bool_)
    held[owner] = True
    ascending = np.sort(vectors[held])
    if ascending.size < 2:
        return 1
    nearest = int((ascending[1:] ^ ascending[:-1]).min())
    return DIGITS - nearest.bit_length() + 1


def lists(owner: Ranks, vectors: Vectors, levels: int) -> Iterator[tuple[Ranks, Flags]]:
    """Per level: the ranks list by list, and whether each one continues the list of the one before it.

    Each level is the one before it, stably divided by one more digit: a radix sort, least digit first, that
    stops after every digit. Lists of one physical node are dropped on the way.
    """
    several = _several(owner, vectors.size)
    order = np.arange(owner.size, dtype=np.int32)
    digits = vectors[owner]
    linked = np.ones(owner.size, np.bool_)
    linked[:1] = False
    for level in range(levels):
        if level:
            ones = (digits >> np.uint64(DIGITS - level)) & np.uint64(1) == 1
            order = np.concatenate((order[~ones], order[ones]))
            digits = np.concatenate((digits[~ones], digits[ones]))
            linked = np.zeros(order.size, np.bool_)
            np.less(digits[1:] ^ digits[:-1], np.uint64(1 << (DIGITS - level)), out=linked[1:])
            shared = _shared(linked, owner[order] if several else None)
            order, digits, linked = order[shared], digits[shared], linked[shared]
        yield order, linked


def random_vectors(generator: np.random.Generator, nodes: int) -> Vectors:
    """uint64[nodes]: independent membership vectors."""
    return generator.integers(0, 1 << DIGITS, nodes, dtype=np.uint64)


def ideal_vectors(nodes: int) -> Vectors:
    """uint64[nodes]: every list evenly spaced (thesis 4.1.3): the first i bits are the rank modulo 2**i."""
    ranks = np.arange(nodes, dtype=np.uint64)
    vectors = np.zeros(nodes, np.uint64)
    for digit in range(max(nodes - 1, 0).bit_length()):
        vectors |= ((ranks >> np.uint64(digit)) & np.uint64(1)) << np.uint64(DIGITS - 1 - digit)
    return vectors


def table_sizes(graph: Graph) -> Counts:
    """int64[nodes]: entries of each node's table, one per level and side; own keys are not counted."""
    sizes = np.zeros(graph.nodes, np.int64)
    for side in (graph.left, graph.right):
        for row in side:
            here = np.flatnonzero(row != NONE)
            owners = graph.owner[here]
            foreign = owners != graph.owner[row[here]]
            sizes += np.bincount(owners[foreign], minlength=graph.nodes)
    return sizes


def neighbor_counts(graph: Graph) -> Counts:
    """int64[nodes]: different physical nodes in each node's table (thesis 3.4.4, "w/o redundancy")."""
    ranks, bounds = graph.held
    counts = np.zeros(graph.nodes, np.int64)
    step = max(1, CHUNK // (2 * graph.levels))
    first = 0
    while first < graph.nodes:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + step, "right")) - 1)
        here = ranks[bounds[first] : bounds[last]]
        pairs = []
        for side in (graph.left, graph.right):
            below: Ranks | None = None
            for row in side:
                there = row[here]
                # Seen from below, a neighbour is first met at the lowest of its levels.
                known = there != NONE if below is None else (there != NONE) & (there != below)
                own = graph.owner[here[known]].astype(np.int64)
                pairs.append(own * graph.nodes + graph.owner[there[known]])
                below = there
        merged = distinct(np.concatenate(pairs))
        owners, neighbors = np.divmod(merged, graph.nodes)
        counts += np.bincount(owners[owners != neighbors], minlength=graph.nodes)
        first = last
    return counts


def distinct(numbers: Counts) -> Counts:
    """The different values, ascending. Sorts ``numbers`` in place: faster here than numpy's hash table."""
    numbers.sort()
    new = np.ones(numbers.size, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return numbers[new]


def _shared(linked: Flags, owners: Ranks | None) -> Flags:
    """Which entries lie in lists of several physical nodes; ``owners`` None: each entry is a node."""
    if owners is None:
        shared = linked.copy()
        shared[:-1] |= linked[1:]
        return shared
    foreign = np.zeros(linked.size, np.bool_)
    foreign[1:] = linked[1:] & (owners[1:] != owners[:-1])
    starts = np.flatnonzero(~linked)
    if not starts.size:
        return foreign
    several: Flags = np.logical_or.reduceat(foreign, starts)
    return np.repeat(several, np.diff(starts, append=linked.size))


def _several(owner: Ranks, nodes: int) -> bool:
    return owner.size > 0 and int(np.bincount(owner, minlength=nodes).max()) > 1


def _checked(owner: npt.ArrayLike, vectors: npt.ArrayLike) -> tuple[Ranks, Vectors]:
    owners = np.ascontiguousarray(owner, np.int32)
    digits = np.ascontiguousarray(vectors, np.uint64)
    if owners.ndim != 1 or digits.ndim != 1:
        raise ValueError("owner and vectors must have one dimension each")
    if owners.size and not 0 <= int(owners.min()) <= int(owners.max()) < digits.size:
        raise ValueError(f"owner must lie in 0..{digits.size - 1}")
    return owners, digits
