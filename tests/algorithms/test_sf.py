"""Subscription flooding, thesis 5.3.2 and 5.4.1."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.sf import SubscriptionFlooding
from ildm.mqtt import topic_matches
from ildm.testing.fake_node import FakeNetwork
from tests.support.transcripts import check_transcript


def figure_5_6() -> FakeNetwork:
    network = FakeNetwork(SubscriptionFlooding)
    network.add("I1", "I2", "I3", "I4", "I5")
    for a, b in (("I1", "I2"), ("I2", "I3"), ("I2", "I4"), ("I3", "I5")):
        network.join(a, b)
    return network


def test_figure_5_6() -> None:
    network = figure_5_6()
    network.step("1. C1 subscribes to t at I2")
    network.nodes["I2"].subscribe("t")
    assert sorted(line.replace("  ", " ") for line in network.lines[1:]) == [
        "I2 -> I1 SUBSCRIBE t qos 0",
        "I2 -> I3 SUBSCRIBE t qos 0",
        "I2 -> I4 SUBSCRIBE t qos 0",
        "I3 -> I5 SUBSCRIBE t qos 0",
    ]
    network.step("2. C2 subscribes to t at I3")
    before = len(network.lines)
    network.nodes["I3"].subscribe("t")
    assert network.lines[before:] == ["I3 -> I2  SUBSCRIBE t qos 0"]  # and nothing to I5, I1, I4
    network.step("3. C3 publishes to t at I5")
    network.nodes["I5"].publish("t")
    assert sorted(network.transfers()) == ["I3>I2", "I5>I3"]
    check_transcript("sf_figure_5_6", network.lines)


def figure_5_7() -> FakeNetwork:
    """I1 and I3 want t1 and t2 of I2; C3 at I4 wants t3; I2 and I4 are not joined yet."""
    network = FakeNetwork(SubscriptionFlooding)
    network.add("I1", "I2", "I3", "I4")
    network.join("I1", "I2")
    network.join("I3", "I2")
    network.nodes["I1"].subscribe("t1")
    network.nodes["I3"].subscribe("t2")
    network.nodes["I4"].subscribe("t3")
    return network


def test_figure_5_7_adding_a_neighbour() -> None:
    network = figure_5_7()
    network.lines.clear()
    network.join("I2", "I4")
    assert sorted(network.lines) == [
        "I2 -> I1  SUBSCRIBE t3 qos 0",
        "I2 -> I3  SUBSCRIBE t3 qos 0",
        "I2 -> I4  SUBSCRIBE t1 qos 0",
        "I2 -> I4  SUBSCRIBE t2 qos 0",
        "I4 -> I2  SUBSCRIBE t3 qos 0",
    ]
    check_transcript("sf_figure_5_7", network.lines)


def test_removing_a_neighbour_takes_back_what_only_it_wanted() -> None:
    network = figure_5_7()
    network.join("I2", "I4")
    network.lines.clear()
    network.part("I2", "I4")
    assert sorted(network.lines) == ["I2 -> I1  UNSUBSCRIBE t3", "I2 -> I3  UNSUBSCRIBE t3"]
    network.nodes["I1"].publish("t3")
    assert network.transfers() == []


def test_a_covering_filter_replaces_the_covered_and_gives_it_back() -> None:
    network = FakeNetwork(SubscriptionFlooding)
    one, two = network.add("I1", "I2")
    network.join("I1", "I2")
    one.subscribe("a/b", 2)
    one.subscribe("a/#", 0)
    # the covering filter carries the higher QoS of what it covers
    assert two.links[0].interest == {"a/#": 2}
    one.subscribe("a/+", 1)
    assert two.links[0].interest == {"a/#": 2}
    one.unsubscribe("a/#")
    assert two.links[0].interest == {"a/+": 2}
    one.unsubscribe("a/+")
    assert two.links[0].interest == {"a/b": 2}
    one.unsubscribe("a/b")
    assert two.links[0].interest == {}
    check_transcript("sf_covering", network.lines)


def test_a_retained_message_goes_everywhere() -> None:
    network = figure_5_6()
    network.nodes["I5"].publish("nobody/wants/it")
    assert network.transfers() == []
    network.nodes["I5"].publish("nobody/wants/it", retain=True)
    assert sorted(network.transfers()) == ["I2>I1", "I2>I4", "I3>I2", "I5>I3"]


FILTERS = ["a", "a/b", "a/+", "a/#", "+/b", "#", "b/#", "+", "b"]
TOPICS = ["a", "a/b", "a/c", "b", "b/b", "c/b", "c"]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["I1", "I2", "I3", "I4", "I5"]), st.sampled_from(FILTERS), st.integers(0, 2)),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_every_broker_with_a_matching_subscriber_gets_exactly_one_copy(
    actions: list[tuple[str, str, int]],
) -> None:
    """Subscriptions toggle at random; after each state every publication is where it must be, once."""
    network = figure_5_6()
    for name, topic_filter, qos in actions:
        node = network.nodes[name]
        if topic_filter in node.local_interest:
            node.unsubscribe(topic_filter)
        else:
            node.subscribe(topic_filter, qos)
    for publisher in network.nodes.values():
        for topic in TOPICS:
            for node in network.nodes.values():
                node.injected.clear()
            publisher.publish(topic)
            for node in network.nodes.values():
                wanted = any(topic_matches(f, topic) for f in node.local_interest)
                if node is not publisher:
                    assert node.topics.count(topic) <= 1
                    assert not wanted or node.topics == [topic]
