"""Reference tables of small Skip Graphs, by the definition, and queries walked node by node over them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.overlay.casts.routing import ROUTINGS, Levels
from ildm_algorithms.overlay.keys import Range, Ref, common_digits, prefix
from ildm_bench.sim.routing import Routing
from ildm_bench.sim.tables import NONE, Ranks, Vectors


@dataclass(frozen=True)
class Layout:
    """Keys 0..n-1 of physical nodes: the owner of each, and a vector for each node."""

    owner: list[int]
    vectors: list[int]


@st.composite
def layouts(draw: st.DrawFn, keys: int = 24, most: int = 4) -> Layout:
    """Graphs of 1..keys keys with up to ``most`` keys per node on average; vectors that share many digits."""
    count = draw(st.integers(1, keys))
    nodes = draw(st.integers(max(1, count // most), count))
    if most == 1:
        owner = list(draw(st.permutations(range(count))))
        nodes = count
    else:
        owner = draw(st.lists(st.integers(0, nodes - 1), min_size=count, max_size=count))
    digits = draw(st.sampled_from([3, 6, 64]))
    vectors = draw(st.lists(st.integers(0, 2**digits - 1), min_size=nodes, max_size=nodes, unique=nodes <= 8))
    return Layout(owner, [vector << (64 - digits) for vector in vectors])


def key(rank: int) -> bytes:
    """Keys leave room between one another, for ranges that hold none."""
    return (2 * rank + 1).to_bytes(4, "big")


def keys_between(low: int, high: int) -> Range:
    """The ranks [low, high) as a range of keys; never empty as a range of bytes."""
    return Range((2 * low).to_bytes(4, "big"), (2 * high).to_bytes(4, "big") + b"\0")


def lines(layout: Layout, level: int) -> dict[int, list[int]]:
    """Keys of each list of a level, by the digits that their vectors share."""
    found: dict[int, list[int]] = {}
    for rank, owner in enumerate(layout.owner):
        found.setdefault(prefix(layout.vectors[owner], level), []).append(rank)
    return found


def neighbors(layout: Layout) -> list[list[tuple[int, int]]]:
    """Per level and key the ranks on its left and right; NONE: the list ends, or one node is alone in it."""
    tables = []
    for level in range(levels(layout)):
        table = [(NONE, NONE)] * len(layout.owner)
        for line in lines(layout, level).values():
            if level == 0 or len({layout.owner[rank] for rank in line}) > 1:
                for left, rank, right in zip([NONE, *line], line, [*line[1:], NONE], strict=False):
                    table[rank] = (left, right)
        tables.append(table)
    return tables


def levels(layout: Layout) -> int:
    """Levels with a list of several physical nodes, at least one."""
    held = sorted(set(layout.owner))
    vectors = [layout.vectors[node] for node in held]
    return 1 + max((common_digits(a, b) for i, a in enumerate(vectors) for b in vectors[:i]), default=0)


class NodeView:
    """The tables of one physical node as the routing of the live nodes sees them."""

    def __init__(self, layout: Layout, node: int, tables: list[list[tuple[int, int]]]) -> None:
        self.held = [key(rank) for rank, owner in enumerate(layout.owner) if owner == node]
        self.tables: dict[bytes, Levels] = {
            key(rank): [(self.ref(layout, left), self.ref(layout, right)) for left, right in column]
            for rank, column in enumerate(zip(*tables, strict=True))
            if layout.owner[rank] == node
        }

    @staticmethod
    def ref(layout: Layout, rank: int) -> Ref | None:
        if rank == NONE:
            return None
        owner = layout.owner[rank]
        return Ref(key(rank), Peer(str(owner), ""), layout.vectors[owner])

    def keys(self) -> list[bytes]:
        return self.held

    def neighbors(self, of: bytes) -> Levels:
        return self.tables[of]

    def entries(self, target: Range) -> list[Ref]:
        return []


@dataclass
class Walk:
    """Per key reached: depth and the key its sender was addressed by (None: held by the entry)."""

    depth: dict[int, int]
    parent: dict[int, int | None]
    messages: int


def walk(layout: Layout, start: int, low: int, high: int, routing: Routing) -> Walk:
    """Run a query node by node with the decisions of the live nodes."""
    tables = neighbors(layout)
    views = [NodeView(layout, node, tables) for node in range(len(layout.vectors))]
    rank = {key(number): number for number in range(len(layout.owner))}
    result = Walk({}, {}, 0)
    waiting: deque[tuple[int, Range, int, int | None]] = deque([(start, keys_between(low, high), 0, None)])
    while waiting:
        to, target, depth, parent = waiting.popleft()
        step = ROUTINGS[routing].split(views[layout.owner[to]], target)
        for held in step.own:
            assert rank[held] not in result.depth
            result.depth[rank[held]] = depth
            result.parent[rank[held]] = parent
        addressed = None
        if step.own:
            addressed = to if key(to) in step.own else rank[step.own[0]]
        for forward in step.forwards:
            result.messages += 1
            assert result.messages < 10 * len(layout.owner) + 10
            waiting.append((rank[forward.to.key], forward.target, depth + 1, addressed))
    return result


def arrays(layout: Layout) -> tuple[Ranks, Vectors]:
    return np.array(layout.owner, np.int32), np.array(layout.vectors, np.uint64)
