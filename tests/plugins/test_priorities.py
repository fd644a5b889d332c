"""The example of a tree algorithm: alone, simulated, and live before Mosquitto and amqtt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ildm.mqtt import Property, Publish
from ildm.testing import FakeNode, LinkModel, PluginWorld, constant
from ildm.testing.live.client import PahoClient
from ildm.testing.live.fleet import Fleet
from ildm.testing.live.site import NodeFactory
from tests.plugins.commands import configured
from tests.plugins.examples.priorities.ildm_priorities.priorities import Priorities


def payloads(node: FakeNode[Priorities]) -> list[bytes]:
    return [gone.message.payload for gone in node.transferred]


def test_alarms_are_first_and_bulk_is_last() -> None:
    node = FakeNode(Priorities, {"rate": 1})
    node.link("b")
    for topic in ("bulk/x", "alarm/x", "alarmed", "bulk"):
        node.publish(topic)
    assert [gone.priority for gone in node.transferred] == [-8, 7, 0, 0]


def test_bulk_over_the_rate_waits_in_order_or_is_dropped() -> None:
    node = FakeNode(Priorities, {"rate": 2, "burst": 3, "waiting": 2})
    node.link("b")
    for number in range(7):
        node.publish("bulk/x", b"%d" % number)
    assert payloads(node) == [b"0", b"1", b"2"]
    assert node.counters == {"bulk_delayed": 2, "bulk_dropped": 2}
    node.advance(0.5)
    node.publish("bulk/x", b"7")  # behind the one that waits
    assert payloads(node)[3:] == [b"3"]
    node.advance(1.0)
    assert payloads(node)[3:] == [b"3", b"4", b"7"]
    node.advance(60)  # no more than ``burst`` after a pause, however long
    for number in range(4):
        node.publish("bulk/x", b"%d" % number)
    assert payloads(node)[6:] == [b"0", b"1", b"2"]


def test_a_site_pays_for_its_own_bulk_only() -> None:
    node = FakeNode(Priorities, {"rate": 1, "burst": 1, "waiting": 0})
    b, c = node.link("b"), node.link("c")
    for _ in range(5):
        node.arrive(b, Publish(topic="bulk/x"))
    assert [gone.link for gone in node.transferred] == [c] * 5
    assert node.counters == {}


def test_message_expiry_goes_on_while_a_message_waits() -> None:
    node = FakeNode(Priorities, {"rate": 0.5, "burst": 1})
    node.link("b")
    for _ in range(3):
        node.publish("bulk/x", properties={Property.MESSAGE_EXPIRY_INTERVAL: 3})
    node.advance(10)
    times = [gone.message.properties[Property.MESSAGE_EXPIRY_INTERVAL] for gone in node.transferred]
    assert times == [3, 1]
    assert node.counters == {"bulk_delayed": 1, "bulk_expired": 1}


def test_what_waits_at_the_end_is_counted() -> None:
    node = FakeNode(Priorities, {"rate": 1, "burst": 1})
    for _ in range(4):
        node.publish("bulk/x")
    node.stop()
    assert node.counters == {"bulk_delayed": 3, "bulk_dropped": 3}


def test_an_alarm_overtakes_what_waits_for_a_link() -> None:
    model = LinkModel(delay=constant(0.01), sending=0.01)
    world = PluginWorld(Priorities, {"rate": 1000, "burst": 100}, seed=1, model=model)
    for number in range(50):
        world.add(f"n{number}", introducer=f"n{number // 2}" if number else None)
    world.settle()
    for node in world.alive():
        node.subscribe("#")
    world.settle()
    for number in range(10):
        for topic in ("bulk/x", "other", "alarm/x"):
            world["n0"].publish(topic, b"%d" % number, publisher=number)
    world.settle()
    first, *rest = world["n1"].deliveries  # the only neighbour of n0, which sent one at once
    assert first.topic == "bulk/x"
    assert [delivery.topic for delivery in rest] == ["alarm/x"] * 10 + ["other"] * 10 + ["bulk/x"] * 9
    for node in world.alive():
        for topic in ("bulk/x", "other", "alarm/x"):
            got = [delivery.payload for delivery in node.deliveries if delivery.topic == topic]
            assert got == [b"%d" % number for number in range(10)]


def test_live(
    installed_examples: Path,
    ildm_node: NodeFactory,
    ildm_fleet: Fleet,
    ildm_client: Callable[..., PahoClient],
) -> None:
    """More bulk than may leave; and what waits for a node that is away goes in order of priority."""
    algorithm = configured("priorities")["algorithm"]
    broker = ildm_fleet.start("mosquitto")
    a = ildm_node(algorithm, broker="amqtt", python_path=installed_examples)
    b = ildm_node(algorithm, broker=broker, neighbors=[a], python_path=installed_examples)
    publisher, near, far = ildm_client(a), ildm_client(a), ildm_client(broker, level=5)
    for subscriber in (near, far):
        subscriber.subscribe(("#", 1))
    bulk = [b"%d" % number for number in range(algorithm["burst"] + algorithm["waiting"] + 4)]
    for payload in bulk:
        publisher.publish("bulk/x", payload, 1)
    publisher.publish("end", b"end", 1)
    assert [message.payload for message in near.receive_until(b"end")] == bulk
    assert sorted(message.payload for message in far.receive_until(b"end")) == bulk[: algorithm["burst"]]
    assert a.admin.algorithm()["counters"] == {"bulk_delayed": algorithm["waiting"], "bulk_dropped": 4}
    b.kill()
    a.wait_until(lambda: a.links_up(0), "the link is still there")
    for topic in ("other", "alarm/x"):
        for _ in range(3):
            publisher.publish(topic, topic.encode(), 1)
    publisher.publish("last", b"last", 1)
    b.start()
    got = [message.topic for message in far.receive_until(b"last")]
    assert [topic for topic in got if topic in ("alarm/x", "other")] == ["alarm/x"] * 3 + ["other"] * 3
