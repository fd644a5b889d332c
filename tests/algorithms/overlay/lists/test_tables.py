"""Tables of nodes with many keys: what is kept in step with every change, and what that costs."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm_algorithms.overlay.keys import EVERYTHING, Range
from ildm_algorithms.overlay.lists.tables import Status, Table
from tests.algorithms.overlay.scheduler import Network, Node, key_of
from tests.algorithms.overlay.test_properties import Schedule, schedules
from tests.support.examples import examples


def table_of(node: Node) -> Table:
    return node.graph._table


def unknown(table: Table, target: Range) -> Iterator[Range]:
    """What :meth:`Table.unknown` finds, by looking at all own keys."""

    def agreed(key: bytes, right: bool) -> bool:
        link = table.nodes[key].links[0]
        ref = link.right if right else link.left
        other = table.nodes.get(ref.key)
        if ref.peer.node_id != table.node_id:
            return True
        if other is None or not other.serves(0):
            return False
        return (other.links[0].left if right else other.links[0].right).key == key

    keys = table.keys()
    for at in range(bisect_left(keys, target.low), bisect_left(keys, target.high) + 1):
        low, high, known = *target, True
        if at > 0:
            low, known = max(low, keys[at - 1] + b"\0"), agreed(keys[at - 1], right=True)
        if at < len(keys):
            high, known = min(high, keys[at]), known and agreed(keys[at], right=False)
        if not known and low < high:
            yield Range(low, high)


@examples(12)
@given(st.integers(0, 2**32), schedules)
def test_what_the_table_keeps_in_step_is_what_looking_at_all_keys_finds(seed: int, steps: list[str]) -> None:
    schedule = Schedule(seed, several=1.0)
    schedule.network.loss = 0.05
    low, high = sorted(key_of(schedule.pick.randrange(10_000), "") for _ in range(2))

    def look() -> bool:
        for node in schedule.network.nodes.values():
            table = table_of(node)
            links = [link for own in table.nodes.values() for link in own.links]
            served = [link for link in links if link.status >= Status.IN and table.foreign(link)]
            assert sorted(map(id, table.foreign_links)) == sorted(map(id, served))
            assert [table.foreign_links[link.at] for link in served] == served
            levels = {link.level for link in served}
            visible = next(level for level in range(table.height + 1) if level not in levels)
            assert table.visible == min(visible + 1, table.height)
            for target in (EVERYTHING, Range(low, high)):
                assert list(table.unknown(target)) == list(unknown(table, target))
        return False

    for name in steps:
        schedule.step(name)
        schedule.network.run_until(schedule.network.time + 0.1, look)


def calls(work: Callable[[], object]) -> int:
    """Calls of functions of the overlay meanwhile: what it costs, the same on every machine."""
    count = 0

    def called(frame: Any, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_globals["__name__"].startswith("ildm_algorithms.overlay.")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def few() -> tuple[Network, list[Node]]:
    """Four nodes with one key each."""
    network = Network(3)
    nodes = [network.add(f"n{number}").start(number * 20_000) for number in range(4)]
    for node in nodes[1:]:
        node.graph.join(nodes[0].peer)
    network.settle()
    return network, nodes


@pytest.mark.parametrize("scattered", [False, True])
def test_what_a_key_costs_does_not_grow_with_their_number(scattered: bool) -> None:
    network, nodes = few()

    def enter(first: int, count: int) -> int:
        def work() -> None:
            for number in range(first, first + count):
                (nodes[number % 4] if scattered else nodes[1]).insert(number)
                if number % 20 == 0:
                    network.run(1.0)

        return calls(work)

    first, _, last = enter(1, 100), enter(101, 400), enter(501, 100)
    assert last < 2 * first


def test_a_key_between_own_keys_enters_without_a_message() -> None:
    network, nodes = few()
    nodes[1].insert(*range(100, 200, 2))
    network.settle()
    network.run(5)
    before = network.messages
    for number in range(101, 199, 2):
        nodes[1].insert(number)
    network.run(0.01)
    assert network.messages == before
    assert network.faults() == []


def test_keys_that_enter_at_once_beside_each_other_wait_for_the_first() -> None:
    """Not each of them asks the other nodes who is on its left in each list."""
    network, nodes = few()
    network.run(5)
    before = network.messages
    nodes[1].insert(*range(100, 400))
    network.settle(limit=10.0)
    assert network.messages - before < 7 * 300


def test_a_key_that_is_removed_while_it_waits_for_another_is_gone() -> None:
    network, nodes = few()
    nodes[1].insert(*range(100, 140))
    nodes[1].remove(*(key_of(number, "n1") for number in range(100, 140, 3)))
    network.settle(limit=10.0)
    nodes[1].remove(*(key_of(number, "n1") for number in range(100, 140)))
    network.settle(limit=10.0)
    assert table_of(nodes[1]).keys() == [key_of(20_000, "n1")]


def test_rings_that_differ_between_own_keys_only_become_one() -> None:
    """All keys of other nodes lie between keys of one node, whose links nobody else shares."""
    network = Network(5)
    a, b = network.add("a").start(0), network.add("b").start(10)
    a.insert(20)
    c, d = network.add("c").start(30), network.add("d").start(40)
    c.insert(50)
    b.graph.join(a.peer)
    d.graph.join(c.peer)
    network.run(20)
    assert len(a.graph.keys()) == len(c.graph.keys()) == 2
    assert network.faults() != []
    a.graph._finder.meet(c.peer)
    network.settle(limit=60.0)
