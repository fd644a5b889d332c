"""The flexible tables of ATM-TBPS over converged Skip Graph tables, and how a message spreads by them.

Everything that can be learned has been learned: each key of the topic knows its neighbours of all levels and,
of the other subscribers, those that `ildm_algorithms.atm_tbps.entries` would keep in the end. That is the
bound which live tables come to; tests hold both against each other.

A table is made when a message comes to its key with a part of the range to serve: most keys are leaves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np

from ildm_bench.sim.scribe import common_digits
from ildm_bench.sim.tables import DIGITS, NONE, Counts, Graph, Ranks

__all__ = ["Branch", "FlexibleTopic"]


class Branch(NamedTuple):
    """How a key was reached."""

    rank: int
    parent: int
    """Rank of the key that sent; NONE: the publisher's."""
    order: int
    """Which of the sender's copies this is, from 1 on."""
    depth: int
    """Messages from the publisher."""


@dataclass
class FlexibleTopic:
    """A topic whose subscribers are the ranks [low, high) of a graph, each of another node.

    limit: entries of each table, neighbours on other nodes among them.
    learned: share of the room beside the neighbours that is filled, with subscribers drawn at random; at 1 a
    key has heard of all, and keeps those of the policies.
    seed: of that draw, which is the same for a key each time.
    """

    graph: Graph
    low: int
    high: int
    limit: int
    learned: float = 1.0
    seed: int = 0

    def spread(self, publisher: int) -> list[Branch]:
        """A message from the key ``publisher``, right of the subscribers; a parent before its children."""
        known = self.entries(publisher)
        around = self._beyond(publisher)
        firsts = np.union1d(known, around[(around >= self.low) & (around < self.high)])
        bounds = [self.low, *(int(rank) + 1 for rank in firsts[:-1]), self.high]
        reached = []
        waiting: deque[tuple[Branch, int, int]] = deque()
        for order, rank in enumerate(firsts.tolist(), 1):
            waiting.append((Branch(rank, NONE, order, 1), bounds[order - 1], bounds[order]))
        while waiting:
            branch, low, high = waiting.popleft()
            reached.append(branch)
            if high - low > 1:
                for order, (rank, start, end) in enumerate(self._parts(branch.rank, low, high), 1):
                    waiting.append((Branch(rank, branch.rank, order, branch.depth + 1), start, end))
        return reached

    def _parts(self, rank: int, low: int, high: int) -> list[tuple[int, int, int]]:
        """Receiver and its part, in the order of sending: the farthest of each side first."""
        known = np.union1d(self.entries(rank), self._beyond(rank))
        left = known[(known >= low) & (known < rank)].tolist()
        right = known[(known > rank) & (known < high)].tolist()
        behind = [key + 1 for key in left[:-1]]
        lefts = zip(left, [low, *behind], [*behind, rank], strict=True) if left else ()
        rights = zip(right, [rank + 1, *right[1:]], [*right[1:], high], strict=True) if right else ()
        sides = zip_longest(lefts, reversed([*rights]))
        return [part for part in chain.from_iterable(sides) if part is not None]

    def _beyond(self, rank: int) -> Ranks:
        """What the node's nearest other keys around the topic have as neighbours: they count as well."""
        held = self.graph.keys_of(int(self.graph.owner[rank]))
        before, behind = held[held < self.low], held[(held >= self.high) & (held != rank)]
        found = []
        if before.size:
            found.append(self.graph.right[:, before[-1]])
        if behind.size and rank < self.high:
            found.append(self.graph.left[:, behind[0]])
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int32)

    def sticky(self, rank: int) -> Ranks:
        """Neighbours of all levels on other nodes, ascending; subscribers or not."""
        graph = self.graph
        around = np.unique(np.concatenate((graph.left[:, rank], graph.right[:, rank])))
        around = around[around != NONE]
        found: Ranks = around[graph.owner[around] != graph.owner[rank]]
        return found

    def entries(self, rank: int) -> Ranks:
        """The subscribers in the table of a key, ascending."""
        sticky = self.sticky(rank)
        inside = sticky[(sticky >= self.low) & (sticky < self.high)]
        others = np.ones(self.high - self.low, np.bool_)
        others[inside - self.low] = False
        if self.low <= rank < self.high:
            others[rank - self.low] = False
        learned = np.flatnonzero(others).astype(np.int32) + np.int32(self.low)
        room = max(0, self.limit - sticky.size)
        if self.learned < 1:
            count = min(round(self.learned * room), learned.size)
            generator = np.random.default_rng((self.seed, rank))
            learned = generator.choice(learned, count, replace=False)
        if learned.size > room:
            learned = self._kept(rank, sticky, learned, room)
        found: Ranks = np.union1d(inside, learned)
        return found

    def _kept(self, rank: int, sticky: Ranks, learned: Ranks, room: int) -> Ranks:
        """Which of too many: as equal numbers for all levels as can be, of each level the nearest."""
        vectors, owner = self.graph.vectors, self.graph.owner
        own = vectors[owner[rank]]
        of_learned = common_digits(vectors[owner[learned]], own)
        of_sticky = common_digits(vectors[owner[sticky]], own)
        fixed = np.bincount(of_sticky, minlength=DIGITS + 1)
        kept = shares(fixed, np.bincount(of_learned, minlength=DIGITS + 1), room)
        found = []
        for level in np.flatnonzero(kept):
            candidates = learned[of_learned == level]
            beside = sticky[of_sticky == level]
            left, right = candidates < rank, candidates > rank
            # Entries of the level and side on the way; of two alike the left one goes.
            nearer = np.empty(candidates.size, np.int64)
            nearer[left] = np.arange(int(left.sum()))[::-1] + _between(beside, candidates[left], rank)
            nearer[right] = np.arange(int(right.sum())) + _between(beside, candidates[right], rank)
            order = np.argsort(2 * nearer + left, kind="stable")
            found.append(candidates[order[: kept[level]]])
        return np.concatenate(found) if found else learned[:0]


def shares(fixed: Counts, wanted: Counts, room: int) -> Counts:
    """How many of ``wanted`` entries per level stay when one after another goes from the fullest level, of
    several the lowest, until ``room`` are left; ``fixed`` entries count and stay. int64[levels] each."""
    sizes = fixed + wanted
    kept = wanted.astype(np.int64)
    surplus = int(wanted.sum()) - room
    if surplus <= 0:
        return kept
    # The greatest size to which all levels can be cut without too many going.
    low, high = 0, int(sizes.max())
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(wanted, np.maximum(sizes - middle, 0)).sum()) <= surplus:
            high = middle
        else:
            low = middle + 1
    gone = np.minimum(wanted, np.maximum(sizes - high, 0))
    full = np.flatnonzero((sizes - gone == high) & (gone < wanted))
    gone[full[: surplus - int(gone.sum())]] += 1
    left: Counts = kept - gone
    return left


def _between(fixed: Ranks, candidates: Ranks, rank: int) -> Counts:
    """int64[candidates]: how many of ``fixed`` lie between each of them and the rank."""
    at = np.searchsorted(fixed, candidates)
    own = int(np.searchsorted(fixed, rank))
    return np.abs(at - own).astype(np.int64)
