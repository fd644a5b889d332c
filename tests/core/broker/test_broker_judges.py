"""Where the broker judges otherwise than its node: what it does not keep, does not show, or discards."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.mqtt import Connect, Property, Publish, Version, Will
from ildm.testing.virtual.broker import Connection
from ildm.testing.virtual.world import World
from tests.support.retained import set_value
from tests.support.site import Site, row


def hide(site: Site, *prefixes: str) -> None:
    """Let the broker grant every subscription, and deliver nothing below the prefixes to the node."""
    site.broker.gives = lambda connection, packet: (
        not (
            isinstance(packet, Publish)
            and connection.client_id.startswith("ildm-")
            and packet.topic.startswith(prefixes)
        )
    )


def injected(site: Site, topic: str) -> int:
    return site.broker.topics().count(topic)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_broker_that_keeps_nothing_is_sent_nothing_again(world: World, qos: int) -> None:
    a, b = row(world, "ab", "pf")
    b.broker.connack[Property.RETAIN_AVAILABLE] = 0
    b.broker.crash()
    client = a.client("setter")
    client.send(Publish(topic="t", payload=b"1", retain=True, qos=qos, packet_id=(qos and 1) or None))
    world.run(10)
    b.broker.crash(keeps=False)
    world.run(30)
    assert injected(b, "t") == 1
    assert b.node.injector.auditor.unseen is not None
    assert b.node.counters["retained_repaired"] == 0
    logged = [event for _, event, _ in b.node.driver.logged if "are not mended" in event]  # type: ignore[attr-defined]
    assert len(logged) == 1


@pytest.mark.parametrize("learnt", [0.5, 20])
@pytest.mark.parametrize("restart", ["broker", "node", "both"])
def test_a_broker_that_shows_the_node_nothing_is_tried_with_one_value_at_most(
    world: World, restart: str, learnt: float
) -> None:
    a, b = row(world, "ab", "pf")
    hide(b, "t/", "$")
    for i in range(5):
        set_value(a, f"t/{i}", b"1")
    world.run(learnt)
    if restart != "broker":
        b.crash()
    if restart != "node":
        b.broker.crash(keeps=False)
    if restart != "broker":
        b.start(("a",))
    world.run(100)
    tried = 0 if restart == "broker" and learnt == 20 else 1
    assert sum(injected(b, f"t/{i}") for i in range(5)) == 5 + tried
    assert b.node.injector.auditor.unseen is not None


@pytest.mark.parametrize("life", [0.5, 3, 20])
@pytest.mark.parametrize("restart", ["broker", "both"])
def test_a_broker_without_topics_that_begin_with_a_dollar_is_filled_again(
    world: World, restart: str, life: float
) -> None:
    """It shows values, yet echoes nothing, and may be gone before the node has seen one."""
    a, b = row(world, "ab", "pf")
    hide(b, "$")
    topics = [f"{level}/{i}" for level in "tu" for i in range(5)]
    for topic in topics:
        set_value(a, topic, b"1")
    world.run(life)
    if restart == "both":
        b.crash()
    b.broker.crash(keeps=False)
    if restart == "both":
        b.start(("a",))
    world.run(100)
    assert {topic: b.broker.retained[topic].payload for topic in topics} == dict.fromkeys(topics, b"1")
    assert b.node.injector.auditor.unseen is None


def test_where_the_account_may_read_a_part_that_part_is_mended(world: World) -> None:
    a, b = row(world, "ab", "pf")
    hide(b, "hidden/", "$")
    for topic in ("hidden/1", "shown/1"):
        set_value(a, topic, b"1")
    world.run(10)
    b.broker.crash(keeps=False)
    world.run(30)
    assert injected(b, "hidden/1") == 1
    assert injected(b, "shown/1") == 2


@pytest.mark.parametrize("restart", ["broker", "node", "both"])
@pytest.mark.parametrize(
    ("shown", "hidden"), [("t/pub/", "t/secret/"), ("/pub/", "/secret/"), ("t/", "t/s/")]
)
def test_a_hidden_parent_beside_one_that_is_shown_is_tried_with_one_value_at_most(
    world: World, restart: str, shown: str, hidden: str
) -> None:
    a, b = row(world, "ab", "pf")
    hide(b, hidden)
    for i in range(5):
        set_value(a, f"{shown}{i}", b"1")
        set_value(a, f"{hidden}{i}", b"1")
    world.run(20)
    if restart != "broker":
        b.crash()
    if restart != "node":
        b.broker.crash(keeps=False)
    if restart != "broker":
        b.start(("a",))
    world.run(100)
    assert sum(injected(b, f"{hidden}{i}") for i in range(5)) == (5 if restart == "broker" else 6)
    assert [injected(b, f"{shown}{i}") for i in range(5)] == [1 if restart == "node" else 2] * 5
    assert b.node.injector.auditor.unseen is not None


def test_a_broker_that_shows_the_account_more_after_a_restart_is_mended_from_then_on(world: World) -> None:
    a, b = row(world, "ab", "pf")
    hide(b, "t/")
    for i in range(5):
        set_value(a, f"t/{i}", b"1")
    world.run(20)
    assert b.node.injector.auditor.unseen is not None
    b.broker.gives = lambda *_: True
    b.broker.crash()
    world.run(20)
    assert b.node.injector.auditor.unseen is None
    b.broker.crash(keeps=False)
    world.run(20)
    assert sorted(b.broker.retained) == [f"t/{i}" for i in range(5)]


@pytest.mark.parametrize("late", [0.5, 5.0])
def test_a_busy_broker_that_shows_its_values_late_is_mended(world: World, late: float) -> None:
    a, b = row(world, "ab", "pf")
    for i in range(5):
        set_value(a, f"t/{i}", b"1")
    world.run(20)
    b.crash()
    b.broker.crash(keeps=False)
    b.start(("a",))

    def delayed(connection: Connection, packet: Any) -> bool:
        if not (isinstance(packet, Publish) and connection.client_id.startswith("ildm-")):
            return True
        world.call_at(world.time + late, connection.send, packet)
        return False

    b.broker.gives = delayed
    world.run(9)
    b.broker.gives = lambda *_: True
    world.run(60)
    assert sorted(b.broker.retained) == [f"t/{i}" for i in range(5)]


@pytest.mark.parametrize("bound", [1, 3])
def test_more_parents_than_are_remembered_are_filled_again(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr("ildm.core.broker.visibility.MARKS", bound)
    monkeypatch.setattr("ildm.core.broker.visibility.TRIALS", bound)
    monkeypatch.setattr("ildm.core.broker.audit.TOPICS", bound)
    a, b = row(world, "ab", "pf")
    topics = [f"t/{parent}/{i}" for parent in range(8) for i in range(3)]
    for topic in topics:
        set_value(a, topic, b"1")
    world.run(20)
    b.broker.crash(keeps=False)
    world.run(200)
    assert sorted(b.broker.retained) == topics


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("hidden", ["t/secret/", "t/secret/status", "t/pub/status"])
def test_a_will_on_a_topic_that_the_account_may_not_read_stays(
    world: World, hidden: str, revoked: bool
) -> None:
    a, b = row(world, "ab", "pf")
    topic = hidden + "status" if hidden.endswith("/") else hidden
    set_value(a, "t/pub/1", b"1")
    if revoked:
        set_value(a, topic, b"online")
        world.run(10)
        a.broker.crash()
    hide(a, hidden)
    world.run(10)
    before = injected(a, topic)
    will = Will(topic=topic, payload=b"offline", retain=True, qos=1)
    device = a.client("device", Connect(client_id="device", will=will))
    device.send(Publish(topic=topic, payload=b"online", retain=True, qos=1, packet_id=1))
    world.run(20)
    device.transport.abort()
    world.run(30)
    assert b.broker.retained[topic].payload == b"offline"
    assert a.node.counters["retained_wills_overruled"] == 0
    assert injected(a, topic) == before
    assert a.node.injector.auditor.unseen is not None


def judged(world: World, lasting: bytes | None) -> tuple[Site, Site]:
    """A client is gone for its node, while the broker has published no will, or another value since."""
    a, b = row(world, "ab", "pf")
    will = Will(topic="w", payload=b"offline", retain=True, qos=1)
    client = a.client("device", Connect(client_id="device", version=Version.V5, will=will))
    client.send(Publish(topic="w", payload=lasting or b"online", retain=True, qos=1, packet_id=1))
    world.run(5)
    if lasting is None:
        client.send(Publish(topic="w", retain=True, qos=1, packet_id=2))
        world.run(5)
    for connection in a.broker.connections:
        connection.will = None
    client.transport.abort()
    return a, b


@pytest.mark.parametrize("lasting", [b"online", None])
def test_a_will_that_the_broker_discards_goes_from_the_other_sites(
    world: World, lasting: bytes | None
) -> None:
    a, b = judged(world, lasting)
    world.run(1)
    assert b.broker.retained["w"].payload == b"offline"
    world.run(20)
    found = b.broker.retained.get("w")
    assert (None if found is None else found.payload) == lasting
    assert injected(a, "w") == 0
    assert a.node.counters["retained_wills_overruled"] == 1


@pytest.mark.parametrize("late", [0.0, 2.5, 4.0])
def test_a_will_that_the_broker_publishes_later_than_the_node_stays(world: World, late: float) -> None:
    a, b = judged(world, b"online")
    world.run(late)
    will = Publish(topic="w", payload=b"offline", retain=True)
    a.broker.take(will, a.broker.connections[0])
    world.run(30)
    assert a.broker.retained["w"].payload == b.broker.retained["w"].payload == b"offline"
    assert a.node.counters["retained_wills_overruled"] == 0
    assert injected(a, "w") == 0


@pytest.mark.parametrize(
    ("closes", "expected"),
    [(0.1, [b"online", b"offline", b"back"]), (1.0, [b"online", b"back", b"offline", b"back"])],
)
def test_a_will_of_a_session_that_is_taken_over_is_older_than_what_the_next_connection_sets(
    world: World, closes: float, expected: list[bytes]
) -> None:
    """The broker closes the earlier connection when that value is under way, or is there."""
    a, b = row(world, "ab", "pf")
    will = Will(topic="w", payload=b"offline", retain=True, qos=1)
    client = a.client("device", Connect(client_id="device", clean_start=False, will=will))
    client.send(Publish(topic="w", payload=b"online", retain=True, qos=1, packet_id=1))
    world.run(10)
    earlier = a.broker.of("device")
    a.broker.sessions["device"].connection = None  # closed later
    client = a.client("device", Connect(client_id="device", clean_start=False, will=will))
    a.broker.answer_delay = 0.5
    client.send(Publish(topic="w", payload=b"back", retain=True, qos=1, packet_id=1))
    world.run(closes)
    earlier.transport.close()
    world.run(30)
    assert [packet.payload for _, packet in b.broker.published if packet.topic == "w"] == expected
    assert a.broker.retained["w"].payload == b.broker.retained["w"].payload == b"back"
    assert injected(a, "w") == 0


def test_a_value_set_after_the_will_is_newer_than_both(world: World) -> None:
    a, b = judged(world, b"online")
    world.run(2)
    set_value(b, "w", b"else")
    world.run(20)
    assert a.broker.retained["w"].payload == b.broker.retained["w"].payload == b"else"


def test_a_will_that_the_broker_sent_without_its_node_is_not_overruled(world: World) -> None:
    a, b = row(world, "ab", "pf")
    will = Will(topic="w", payload=b"offline", retain=True, qos=1)
    client = a.client("device", Connect(client_id="device", will=will))
    client.send(Publish(topic="w", payload=b"online", retain=True, qos=1, packet_id=1))
    world.run(5)
    a.crash()
    a.broker.retained["w"] = Publish(topic="w", payload=b"offline", retain=True)
    a.start(("b",))
    world.run(100)
    assert a.broker.retained["w"].payload == b.broker.retained["w"].payload == b"offline"
    assert b"online" not in [
        packet.payload for name, packet in a.broker.published if name.startswith("ildm-")
    ]
