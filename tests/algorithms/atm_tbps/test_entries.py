"""Flexible tables: what they drop (ATM-TBPS IV-A), against the paper's figures and the order of tables."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.atm_tbps.entries import Entries
from ildm_algorithms.overlay.keys import Ref, common_digits
from ildm_bench.sim.tables import ideal_vectors

BITS = 64


def ref(key: bytes, vector: int) -> Ref:
    return Ref(key, Peer(key.hex(), "x:1"), vector)


def sharing(key: bytes, own: Ref, level: int) -> Ref:
    """An entry that shares exactly ``level`` digits with the own vector."""
    return ref(key, own.vector ^ (1 << (BITS - 1 - level)))


def table(own: Ref, limit: int, strangers: frozenset[bytes] = frozenset()) -> Entries:
    return Entries(own, lambda key: key not in strangers, limit, 2)


def keys(refs: list[Ref]) -> list[bytes]:
    return sorted(each.key for each in refs)


def test_figure_8() -> None:
    """Of D, F and G one is too much: D and F are of the fullest level, and F is farther."""
    own = ref(b"A", 0)
    levels = {"B": 0, "C": 1, "D": 0, "E": 2, "F": 0, "G": 1}
    found = {name: sharing(name.encode(), own, level) for name, level in levels.items()}
    sticky = {found[name].key: found[name] for name in "BCE"}
    entries = table(own, 5)
    gone = [other for name in "DFG" for other in entries.learn(found[name], sticky)]
    assert keys(gone) == [b"F"]
    assert keys(entries.refs()) == [b"D", b"G"]
    assert (entries.room(sticky), entries.size(sticky)) == (0, 5)


@pytest.mark.parametrize(
    ("limit", "learned"), [(4, []), (5, [2]), (6, [2, 5]), (7, [2, 3, 5]), (8, [1, 2, 3, 5])]
)
def test_a_publisher_right_of_eight_subscribers(limit: int, learned: list[int]) -> None:
    vectors = [int(vector) for vector in ideal_vectors(9)]
    refs = [ref(bytes([number]), vectors[number]) for number in range(9)]
    sticky = {refs[number].key: refs[number] for number in (0, 4, 6, 7)}
    entries = table(refs[8], limit)
    for number in (5, 1, 3, 2):
        entries.learn(refs[number], sticky)
    assert keys(entries.refs()) == [bytes([number]) for number in learned]
    assert entries.room(sticky) == limit - 4 - len(learned)


def test_levels_are_to_be_alike_before_the_farthest_goes() -> None:
    """Three of level 0, three of level 1, two of level 2: the paper's B5 would take one of level 2."""
    own = ref(b"\0", 0)
    levels = {1: 0, 4: 0, 7: 0, 2: 1, 5: 1, 8: 1, 3: 2, 6: 2}
    entries = table(own, 7)
    gone = [
        key for at, level in levels.items() for key in entries.learn(sharing(bytes([at]), own, level), {})
    ]
    assert keys(gone) == [b"\x07"]


def test_strangers_make_room_for_subscribers_and_the_left_goes_of_two_alike() -> None:
    own = ref(b"m", 0)
    entries = table(own, 2, frozenset({b"a", b"z"}))
    entries.learn(sharing(b"a", own, 0), {})
    entries.learn(sharing(b"z", own, 5), {})
    assert entries.room({}) == 2
    assert keys(entries.learn(sharing(b"n", own, 0), {})) == [b"a"]
    assert keys(entries.learn(sharing(b"l", own, 0), {})) == [b"z"]
    assert keys(entries.learn(sharing(b"z", own, 0), {})) == [b"z"]
    assert keys(entries.learn(sharing(b"k", own, 7), {})) == [b"l"]
    assert entries.room({}) == 0


def test_a_table_with_too_many_neighbours_learns_nothing_and_loses_what_has_become_one() -> None:
    own = ref(b"m", 0)
    entries = table(own, 2)
    other = sharing(b"n", own, 0)
    assert entries.learn(other, {}) == []
    assert entries.trim({other.key: other}) == [other]
    sticky = {key: sharing(key, own, 1) for key in (b"a", b"b", b"c")}
    assert entries.learn(other, sticky) == [other]
    assert (entries.room(sticky), entries.size(sticky), len(entries)) == (0, 3, 0)
    assert entries.learn(own, {}) == []


def better(
    own: Ref, strangers: frozenset[bytes], kept: tuple[Ref, ...], sticky: list[Ref]
) -> tuple[object, ...]:
    """The order of whole tables as a value that is greater for the better one."""
    entries = [*kept, *sticky]
    sizes = Counter(common_digits(own.vector, each.vector) for each in entries)
    fullest = [level for level, size in sizes.items() if size == max(sizes.values())]
    return (
        sum(each.key not in strangers for each in entries),
        [-size for size in sorted(sizes.values(), reverse=True)],
        min(fullest, default=0),
    )


@given(st.data(), st.integers(0, 2**32))
def test_the_outcome_is_that_of_the_order_of_tables_and_not_of_the_order_of_learning(
    data: st.DataObject, seed: int
) -> None:
    random = Random(seed)
    own = ref(b"m", random.getrandbits(BITS))
    names = random.sample([bytes([n]) for n in range(256) if n != own.key[0]], 9)
    refs = [sharing(name, own, random.randrange(4)) for name in names]
    split = data.draw(st.integers(0, 4))
    sticky, learned = {each.key: each for each in refs[:split]}, refs[split:]
    strangers = frozenset(each.key for each in refs if random.random() < 0.3)
    limit = data.draw(st.integers(0, 10))
    outcomes = []
    for _ in range(3):
        random.shuffle(learned)
        entries = table(own, limit, strangers)
        for each in learned:
            entries.learn(each, sticky)
            assert entries.size(sticky) <= max(limit, len(sticky))
        outcomes.append(keys(entries.refs()))
    assert outcomes == [outcomes[0]] * 3
    kept = tuple(each for each in learned if each.key in outcomes[0])
    best = max(
        better(own, strangers, chosen, list(sticky.values())) for chosen in combinations(learned, len(kept))
    )
    assert better(own, strangers, kept, list(sticky.values())) == best
