"""``overflow: block``: publishers wait, nothing is lost, and nobody waits for ever.

A neighbour is made to wait by its acknowledgements, never by its socket: what it acknowledges of the messages
in the other direction is read whatever it is held for.
"""

from __future__ import annotations

import pytest

from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.load import BLOCK, SHAPES, Load
from tests.support.site import row


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("names", ["abc", "abcde"])
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("slow", [True, False])
def test_load_in_all_directions_ends_and_loses_nothing(
    world: World, shape: str, names: str, qos: int, slow: bool
) -> None:
    """Every site publishes as fast as it may; with one slow broker every queue on the way fills."""
    sites = SHAPES[shape](world, names, "pf", link=BLOCK)
    if slow:
        sites[-1].broker.answer_delay = 0.05
    loads = [Load(site, qos, 300) for site in sites]
    assert world.run_until(lambda: all(load.acknowledged == 300 for load in loads), 600)
    world.run(120)
    assert not any(load.closed for load in loads)
    everything = {topic for load in loads for topic in load.topics}
    for site, load in zip(sites, loads, strict=True):
        arrived = site.broker.topics()
        assert set(arrived) == everything - set(load.topics)
        assert len(arrived) == len(set(arrived))
        for other in loads:  # of each publisher in its order
            if other is not load:
                assert [topic for topic in arrived if topic in set(other.topics)] == other.topics
        assert not {name: n for name, n in site.node.counters.items() if "_dropped" in name}
        for link in site.node.links.links.values():
            assert link.idle
            assert all(not sender.pressure._held for sender in link.senders)


def test_local_clients_are_served_while_one_is_made_to_wait(world: World) -> None:
    """A held publisher waits for its acknowledgements; its pings, and all other clients, do not."""
    a, b = row(world, "ab", "pf", link=BLOCK)
    b.broker_down()
    world.run(1)
    load = Load(a, 1, 200)
    world.run(5)
    assert 80 < load.acknowledged < 140  # what fills the window and the queue
    heard = a.subscriber("local")
    a.client("other").send(Publish(topic="local", payload=b"x"))
    world.run(1)
    assert heard.messages == [("local", b"x")]
    b.broker_up()
    assert world.run_until(lambda: load.acknowledged == 200, 60)
    world.run(10)
    assert b.broker.topics().count("local") <= 1
    assert [topic for topic in b.broker.topics() if topic != "local"] == load.topics


def test_qos_0_does_not_wait_and_does_not_push_out_what_does(world: World) -> None:
    a, b = row(world, "ab", "pf", link=BLOCK)
    b.broker_down()
    world.run(1)
    load = Load(a, 1, 200)
    world.run(5)
    telemetry = a.client("t")
    for i in range(500):
        telemetry.send(Publish(topic="t", payload=b"%d" % i))
    world.run(1)
    assert a.node.counters["link_dropped_overflow_qos0"] > 0
    b.broker_up()
    assert world.run_until(lambda: load.acknowledged == 200, 60)
    world.run(10)
    assert [topic for topic in b.broker.topics() if topic != "t"] == load.topics
    assert "link_dropped_overflow_qos1" not in a.node.counters


def test_one_read_of_thousands_is_taken_and_disturbs_nobody(world: World) -> None:
    """A client that sends without waiting for answers is made to wait like one that does not."""
    a, b = row(world, "ab", "pf", link=BLOCK)
    b.broker_down()
    world.run(1)
    patient = Load(a, 1, 200, window=5)
    world.run(5)
    greedy = Load(a, 1, 5000, window=5000, name="greedy")
    world.run(5)
    b.broker_up()
    assert world.run_until(lambda: patient.acknowledged == 200 and greedy.acknowledged == 5000, 60)
    world.run(10)
    for load in (patient, greedy):
        assert [topic for topic in b.broker.topics() if topic in set(load.topics)] == load.topics
        assert not load.closed
    assert a.node.counters["clients_over_inflight"] == 0


def test_a_held_client_that_goes_is_forgotten(world: World) -> None:
    a, b = row(world, "ab", "pf", link=BLOCK)
    b.broker_down()
    world.run(1)
    load = Load(a, 1, 200)
    world.run(5)
    sender = a.node.links.links["b"].senders[0]
    assert len(sender.pressure._held) == 1
    load.transport.close()
    world.run(1)
    assert sender.pressure._held == set()
