"""Dividing a range at the farthest first (ATM-TBPS IV-C): the paper's figure, a whole tree, any tables."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.atm_tbps.spreading import FAR
from ildm_algorithms.overlay.casts.routing import SFB, Forward, Levels
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_bench.sim.tables import ideal_vectors


class View:
    """One physical node."""

    def __init__(self, rows: dict[bytes, Levels], learned: list[Ref]) -> None:
        self.rows = rows
        self.learned = learned

    def keys(self) -> list[bytes]:
        return sorted(self.rows)

    def neighbors(self, key: bytes) -> Levels:
        return self.rows[key]

    def entries(self, target: Range) -> list[Ref]:
        return [ref for ref in self.learned if ref.key in target]


def ref(key: bytes, vector: int = 0, node: str | None = None) -> Ref:
    return Ref(key, Peer(node or key.hex(), "x:1"), vector)


def parts(forwards: list[Forward], names: str) -> dict[str, str]:
    """Receiver -> the keys it answers for, in the order of sending."""
    return {
        forward.to.key.decode(): "".join(name for name in names if name.encode() in forward.target)
        for forward in forwards
    }


def test_figure_9() -> None:
    """SFB takes the neighbours B, C and E; with D and G learned each of the five is a direct child."""
    neighbors: Levels = [(None, ref(b"B")), (None, ref(b"C")), (None, ref(b"E"))]
    view = View({b"A": neighbors}, [ref(b"G"), ref(b"D")])
    target = Range(b"A", b"I")
    assert parts(FAR.split(view, target).forwards, "ABCDEFGH") == {
        "G": "GH",
        "E": "EF",
        "D": "D",
        "C": "C",
        "B": "B",
    }
    assert list(parts(FAR.split(view, target).forwards, "")) == ["G", "E", "D", "C", "B"]
    assert parts(SFB.split(view, target).forwards, "ABCDEFGH") == {"E": "EFGH", "C": "CD", "B": "B"}


def graph(vectors: list[int], owners: list[int], learned: list[list[int]]) -> dict[str, View]:
    """Keys 0, 1, ... with right tables, and keys that each node has learned."""
    refs = [ref(bytes([n]), vectors[owner], str(owner)) for n, owner in enumerate(owners)]
    rows: dict[int, dict[bytes, Levels]] = {owner: {} for owner in owners}
    for number, owner in enumerate(owners):
        levels = []
        for level in range(9):
            same = [
                n
                for n, other in enumerate(owners)
                if vectors[other] >> (64 - level) == vectors[owner] >> (64 - level)
            ]
            at = same.index(number)
            left = refs[same[at - 1]] if at else None
            right = refs[same[at + 1]] if at + 1 < len(same) else None
            levels.append((left, right))
        rows[owner][refs[number].key] = levels
    return {
        str(owner): View(rows[owner], [refs[n] for n in learned[owner] if owners[n] != owner])
        for owner in rows
    }


def spread(views: dict[str, View], start: str, target: Range) -> tuple[Counter[bytes], dict[bytes, int]]:
    """How often each key was reached, and its hops."""
    reached: Counter[bytes] = Counter()
    hops: dict[bytes, int] = {}
    waiting = deque([(start, target, 0)])
    while waiting:
        node, part, depth = waiting.popleft()
        assert depth < 100
        step = FAR.split(views[node], part)
        for key in step.own:
            reached[key] += 1
            hops[key] = depth
        waiting.extend((forward.to.peer.node_id, forward.target, depth + 1) for forward in step.forwards)
    return reached, hops


def test_the_tree_of_a_publisher_right_of_eight_subscribers() -> None:
    vectors = [int(vector) for vector in ideal_vectors(9)]
    views = graph(vectors, list(range(9)), [[]] * 8 + [[2, 5]])
    _, hops = spread(views, "8", Range(bytes([0]), bytes([8])))
    assert hops == {bytes([n]): 2 if n in (1, 3) else 1 for n in range(8)}
    _, plain = spread(graph(vectors, list(range(9)), [[]] * 9), "8", Range(bytes([0]), bytes([8])))
    assert sorted(plain.values()) == [1, 1, 1, 1, 2, 2, 2, 3]  # what it does not know takes longer


@given(st.integers(0, 2**32), st.integers(1, 24), st.integers(1, 12), st.data())
def test_each_key_is_reached_once_whatever_has_been_learned(
    seed: int, keys: int, nodes: int, data: st.DataObject
) -> None:
    random = Random(seed)
    vectors = [random.getrandbits(64) for _ in range(nodes)]
    owners = [random.randrange(nodes) for _ in range(keys)]
    learned = [random.sample(range(keys), random.randint(0, keys)) for _ in range(nodes)]
    views = graph(vectors, owners, learned)
    low = data.draw(st.integers(0, keys))
    high = data.draw(st.integers(low, keys))
    reached, _ = spread(views, str(random.choice(owners)), Range(bytes([low]), bytes([high])))
    assert reached == Counter(bytes([n]) for n in range(low, high))
