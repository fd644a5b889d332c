"""What MQTT promises clients, across sites: retained messages, wills, sessions, QoS, refusals."""

from __future__ import annotations

import pytest

from ildm.mqtt import Property, ReasonCode, Version, Will
from ildm.testing import LinkModel, constant
from ildm.testing.broker import RecordingBroker
from tests.algorithms.octopia.worlds import LINE, make, octopia, payloads, topics


def retained(world, topic: str) -> set[bytes | None]:  # type: ignore[no-untyped-def]
    """What the brokers of all living nodes retain on a topic."""
    found = (node.broker.retained.get(topic) for node in world.alive())
    return {None if message is None else message.payload for message in found}


def test_a_retained_message_is_retained_everywhere_and_its_deletion_too() -> None:
    world = make(LINE, 3)
    world["b1"].publish("state", b"on", retain=True)
    world.run(1)
    assert retained(world, "state") == {b"on"}
    world["c2"].subscribe("state")
    assert payloads(world, "c2") == [b"on"]
    assert world["c2"].deliveries[0].retain
    world["a0"].publish("state", b"", retain=True)
    world.run(1)
    assert retained(world, "state") == {None}


def test_of_two_retained_messages_the_newer_wins_everywhere() -> None:
    world = make(LINE, 2, model=LinkModel(delay=constant(0.05)))
    world["a0"].publish("state", b"first", retain=True)
    world.run(0.06)
    world["c1"].publish("state", b"second", retain=True)
    world.run(2)
    assert retained(world, "state") == {b"second"}


def test_a_new_content_filter_gets_what_is_retained_and_matches() -> None:
    """Without the retain flag: under the topics of such filters brokers keep nothing."""
    world = make(("a",), 2)
    for room, temp in (("one", 20), ("two", 30)):
        world["a0"].publish(f"room/{room}", b'{"temp": %d}' % temp, retain=True)
    world.run(1)
    world["a1"].subscribe("filter/temp>25/room/+")
    world.run(1)
    assert [(d.topic, d.payload, d.retain) for d in world["a1"].deliveries] == [
        ("filter/temp>25/room/two", b'{"temp": 30}', False)
    ]
    world["a0"].publish("room/one", b'{"temp": 26}', retain=True)
    world.run(1)
    assert topics(world, "a1")[1:] == ["filter/temp>25/room/one"]
    assert not any(topic.startswith("filter/") for topic in world["a1"].broker.retained)


def test_no_more_than_so_many_retained_messages_for_one_filter() -> None:
    world = make(("a",), 1, retained_answers=3)
    for number in range(5):
        world["a0"].publish(f"t/{number}", b'{"n": 1}', retain=True)
    world["a0"].subscribe("filter/n=1/t/+")
    world.run(1)
    assert len(world["a0"].deliveries) == 3
    assert octopia(world, "a0").counters["retained_answers_cut"] == 1


def test_retained_messages_are_alike_after_a_partition() -> None:
    world = make(LINE, 2)
    world["a0"].publish("old", b"1", retain=True)
    world["a0"].publish("gone", b"1", retain=True)
    world["c1"].subscribe("filter/n>5/state")
    world.run(1)
    near = ["a0", "b0", "c0"]
    world.partition(near)
    world.run(20)
    world["a0"].publish("state", b'{"n": 6}', retain=True)
    world["b1"].publish("other", b"far", retain=True)
    world["b0"].publish("old", b"near", retain=True)
    world.run(1)
    world["b1"].publish("old", b"newer", retain=True)
    world["b1"].publish("gone", b"", retain=True)
    world.run(5)
    assert retained(world, "state") == {None, b'{"n": 6}'}
    world.heal()
    world.run(60)
    assert retained(world, "state") == {b'{"n": 6}'}
    assert retained(world, "other") == {b"far"}
    assert retained(world, "old") == {b"newer"}
    assert retained(world, "gone") == {None}
    assert topics(world, "c1") == ["filter/n>5/state"]


def test_a_node_that_joins_gets_all_that_is_retained() -> None:
    world = make(LINE, 2)
    world.kill("b1")
    world.run(20)
    for number in range(300):
        world["a0"].publish(f"t/{number}", b"%d" % number, retain=True)
    world.run(1)
    before = world.network.sent["held"]
    world.add("b1", introducer="a0")
    world.run(20)
    assert len([t for t in world["b1"].broker.retained if t.startswith("t/")]) == 300
    assert len({octopia(world, node.node_id).retained.digest for node in world.alive()}) == 1
    assert world.network.sent["held"] - before < 30  # not each of its neighbours sent it everything


def test_a_will_crosses_like_any_message() -> None:
    world = make(LINE, 2)
    world["c1"].subscribe("filter/n=1/wills/#", 1)
    world.run(1)
    client = world["a0"].client("c", will=Will(topic="wills/c", payload=b'{"n": 1}', qos=1))
    client.disconnect(with_will=True)
    world.run(1)
    assert topics(world, "c1") == ["filter/n=1/wills/c"]


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_come_once_over_a_network_that_loses_and_doubles(qos: int) -> None:
    world = make(LINE, 3, model=LinkModel(loss=0.1, duplicate=0.1), run=30.0)
    for name in ("a1", "b2", "c0"):
        world[name].subscribe("filter/n>=0/t", qos)
    world.run(30)
    for number in range(60):
        world["a0"].publish("t", b'{"n": %d}' % number, qos)
        world.run(0.05)
    world.run(60)
    for name in ("a1", "b2", "c0"):
        assert sorted(payloads(world, name)) == sorted(b'{"n": %d}' % number for number in range(60))


def test_a_message_crosses_with_the_lesser_qos() -> None:
    world = make(("a",), 2, qos=1)
    world["a1"].subscribe("t", 2)
    world["a1"].subscribe("filter/n=1/t", 0)
    world.run(1)
    world["a0"].publish("t", b'{"n": 1}', 2)
    world.run(1)
    assert {(d.topic, d.qos) for d in world["a1"].deliveries} == {("t", 1), ("filter/n=1/t", 0)}


def test_properties_cross_and_are_attributes() -> None:
    world = make(("a",), 2)
    broker = world["a1"].broker = RecordingBroker()
    world["a1"].subscribe("filter/unit=K/t")
    world.run(1)
    properties = {Property.USER_PROPERTY: [("unit", "K")], Property.CONTENT_TYPE: "text/plain"}
    world["a0"].publish("t", b"300", properties=properties)
    world.run(1)
    assert [message.properties for message in broker.injected] == [properties]


def test_a_wrong_expression_is_refused_with_its_reason() -> None:
    world = make(("a",), 2)
    client = world["a0"].client("c")
    client.subscribe(("filter/price>>3/t", 1), ("filter/price>3/t", 1), ("t", 0))
    told = client.told[-1]
    assert told.reason_codes == [ReasonCode.TOPIC_FILTER_INVALID, 1, 0]  # type: ignore[union-attr]
    old = world["a0"].client("old", version=Version.V311)
    old.subscribe(("filter/=/t", 1))
    assert old.told[-1].reason_codes == [0x80]  # type: ignore[union-attr]
    world.run(1)
    world["a1"].publish("t", b'{"price": 4}')
    world.run(1)
    assert sorted(topics(world, "a0")) == ["filter/price>3/t", "t"]
    assert octopia(world, "a0").counters["subscriptions_refused"] == 2
    assert [event for _, _, event, _ in world.logs if event == "expression refused"]


def test_rules_of_access_hold_for_users() -> None:
    rules = [{"deny": ["secret/#"], "user": "guest"}]
    world = make(("a",), 1, access=rules)
    guest = world["a0"].client("g", username="guest")
    guest.subscribe(("filter/n>1/secret/x", 0), ("filter/n>1/t", 0))
    assert guest.told[-1].reason_codes == [ReasonCode.NOT_AUTHORIZED, 0]  # type: ignore[union-attr]
    other = world["a0"].client("o", username="owner")
    other.subscribe(("filter/n>1/secret/x", 0))
    assert other.told[-1].reason_codes == [0]  # type: ignore[union-attr]


def test_a_bad_expression_that_a_broker_has_granted_is_shown() -> None:
    """As one of a session from before the node stood there."""
    world = make(("a",), 1)
    octopia(world, "a0").on_interest_changed(None, {"filter/x>/t": 1})
    view = octopia(world, "a0").overlay()
    assert view.facts["bad expressions"] == 1
    assert view.tables["bad expressions"][0]["filter"] == "filter/x>/t"


def test_shared_subscriptions_to_content() -> None:
    world = make(("a",), 2)
    for client in ("one", "two"):
        world["a1"].subscribe("$share/g/filter/n>0/t", 1, client=client)
    world.run(1)
    for number in range(4):
        world["a0"].publish("t", b'{"n": %d}' % (number + 1), 1)
    world.run(1)
    assert len(world["a1"].deliveries) == 4
    assert {delivery.client for delivery in world["a1"].deliveries} == {"one", "two"}


def test_thousands_of_filters_of_one_client() -> None:
    world = make(LINE, 2)
    changes = {f"filter/n={number}/t": 0 for number in range(3000)}
    octopia(world, "c1").on_interest_changed(None, changes)
    assert octopia(world, "c1").overlay().facts["not told yet"] == 2980
    world.run(2)
    assert octopia(world, "c1").overlay().facts["not told yet"] == 0
    assert len(octopia(world, "a1").replicas.prt) == 3000
    octopia(world, "c1").on_interest_changed(None, dict.fromkeys(changes))
    world.run(2)
    assert len(octopia(world, "a1").replicas.prt) == 0
