"""Graphs that become one again tell each other what they have retained."""

from __future__ import annotations

import pytest

from tests.algorithms.tbps.world import World


@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_the_newest_wins_where_the_checks_of_the_graph_heal_a_partition(parts: int, seed: int) -> None:
    """No link of an introducer comes back that would make the nodes join once more."""
    overlay = {"ping_interval": 0.4, "ping_timeout": 0.5, "check_interval": 2.0, "suspect_time": 3.0}
    world = World("graph", seed, probe_interval=3600.0, overlay={**overlay, "retry": 0.1})
    nodes = world.add(*(f"n{number}" for number in range(6)))
    for node in nodes:
        node.subscribe("a/b")
    world.settle()
    merges = [node.counters.get("merges") for node in nodes]
    world.partition(*(nodes[number::parts] for number in range(parts)))
    world.run(6)
    for number, node in enumerate(nodes):
        node.publish("a/b", str(number), retain=True)
    world.settle()
    kept = [node.broker["a/b"].payload for node in nodes]
    assert len(set(kept)) == parts
    assert kept[-1] == b"5"
    world.partition()
    world.run(20)
    assert [node.broker["a/b"].payload for node in nodes] == [b"5"] * 6
    assert [node.counters.get("merges") for node in nodes] == merges
