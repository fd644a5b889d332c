"""Lives of a node are numbered; what happens when the numbers are wrong."""

from __future__ import annotations

from ildm_algorithms.octopia.grid.contacts import ContactState
from ildm_algorithms.octopia.grid.members import INCARNATION, INCARNATION_LIMIT
from ildm_algorithms.octopia.messages import CODEC
from tests.algorithms.octopia.worlds import make, octopia, payloads


def test_a_node_whose_clock_was_set_back_and_whose_state_is_lost_is_accepted() -> None:
    world = make(("a-b",), 2)
    world.kill("b1")
    world.run(20)
    world.saved["b1"][INCARNATION] = (10_000_000).to_bytes(8)  # as if the clock went hours ahead
    world.add("b1", introducer="a0")
    world.run(10)
    world.kill("b1")
    world.run(20)
    world.saved["b1"].clear()
    world.add("b1", introducer="a0")
    world["b1"].subscribe("t", 1)
    world.run(10)
    assert octopia(world, "b1").counters["boot_raised"] == 1
    assert octopia(world, "b1").members.incarnation > 10_000_000
    for name in ("a1", "b0"):
        assert octopia(world, name).members.contacts["b1"].state is ContactState.UP
        assert octopia(world, name).replicas.lacking() == []
    assert len(octopia(world, "a1").replicas.prt) == 1
    told = [event for _, name, event, _ in world.logs if name == "b1" and "later life" in event]
    assert len(told) == 1
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    assert payloads(world, "b1") == [b"1"]
    world.run(60)
    assert world.counters()["boot_raised"] == 1


def test_a_life_in_the_far_future_is_refused() -> None:
    """It could not be left behind any more, and numbers of messages would not fit."""
    world = make(("a",), 2)
    node, other = octopia(world, "a0"), octopia(world, "a1")
    hello = other.members._hello(other.members.contacts["a0"], False)
    node.on_message(world["a1"].peer, CODEC.encode(hello._replace(incarnation=INCARNATION_LIMIT)), 0)
    assert node.counters["malformed"] == 1
    world["a1"].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    assert payloads(world, "a1") == [b"1"]
