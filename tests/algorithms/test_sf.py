"""Subscription flooding, thesis 5.3.2 and 5.4.1."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import topic_matches
from ildm_algorithms.sf import SubscriptionFlooding
from tests.algorithms.trees import FIGURE_5_5, Tree
from tests.support.transcripts import check_transcript


def figure_5_6() -> Tree:
    return Tree(SubscriptionFlooding, FIGURE_5_5)


def test_figure_5_6() -> None:
    tree = figure_5_6()
    tree.step("1. C1 subscribes to t at I2")
    tree.subscribe("I2", "t")
    assert sorted(line.replace("  ", " ") for line in tree.lines[1:]) == [
        "I2 -> I1 SUBSCRIBE t qos 0",
        "I2 -> I3 SUBSCRIBE t qos 0",
        "I2 -> I4 SUBSCRIBE t qos 0",
        "I3 -> I5 SUBSCRIBE t qos 0",
    ]
    tree.step("2. C2 subscribes to t at I3")
    before = len(tree.lines)
    tree.subscribe("I3", "t")
    assert tree.lines[before:] == ["I3 -> I2  SUBSCRIBE t qos 0"]  # and nothing to I5, I1, I4
    tree.step("3. C3 publishes to t at I5")
    tree.publish("I5", "t")
    assert sorted(tree.transfers()) == ["I3>I2", "I5>I3"]
    check_transcript("sf_figure_5_6", tree.lines)


def figure_5_7() -> Tree:
    """I1 and I3 want t1 and t2 of I2; C3 at I4 wants t3; I2 and I4 are not joined yet."""
    tree = Tree(SubscriptionFlooding, ("I1 I2", "I3 I2"))
    tree.subscribe("I1", "t1")
    tree.subscribe("I3", "t2")
    tree.subscribe("I4", "t3")
    return tree


def test_figure_5_7_adding_a_neighbour() -> None:
    tree = figure_5_7()
    tree.lines.clear()
    tree.join("I2", "I4")
    assert sorted(tree.lines) == [
        "I2 -> I1  SUBSCRIBE t3 qos 0",
        "I2 -> I3  SUBSCRIBE t3 qos 0",
        "I2 -> I4  SUBSCRIBE t1 qos 0",
        "I2 -> I4  SUBSCRIBE t2 qos 0",
        "I4 -> I2  SUBSCRIBE t3 qos 0",
    ]
    check_transcript("sf_figure_5_7", tree.lines)


def test_removing_a_neighbour_takes_back_what_only_it_wanted() -> None:
    tree = figure_5_7()
    tree.join("I2", "I4")
    tree.lines.clear()
    tree.part("I2", "I4")
    assert sorted(tree.lines) == ["I2 -> I1  UNSUBSCRIBE t3", "I2 -> I3  UNSUBSCRIBE t3"]
    tree.publish("I1", "t3")
    assert tree.transfers() == []


def test_a_covering_filter_replaces_the_covered_and_gives_it_back() -> None:
    tree = Tree(SubscriptionFlooding, ("I1 I2",))
    link = tree["I2"].by_id["I1"]
    tree.subscribe("I1", "a/b", 2)
    tree.subscribe("I1", "a/#", 0)
    # the covering filter carries the higher QoS of what it covers
    assert link.interest == {"a/#": 2}
    tree.subscribe("I1", "a/+", 1)
    assert link.interest == {"a/#": 2}
    tree.unsubscribe("I1", "a/#")
    assert link.interest == {"a/+": 2}
    tree.unsubscribe("I1", "a/+")
    assert link.interest == {"a/b": 2}
    tree.unsubscribe("I1", "a/b")
    assert link.interest == {}
    check_transcript("sf_covering", tree.lines)


def test_a_retained_message_goes_everywhere() -> None:
    tree = figure_5_6()
    tree.publish("I5", "nobody/wants/it")
    assert tree.transfers() == []
    tree.publish("I5", "nobody/wants/it", retain=True)
    assert sorted(tree.transfers()) == ["I2>I1", "I2>I4", "I3>I2", "I5>I3"]


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
    tree = figure_5_6()
    for name, topic_filter, qos in actions:
        if topic_filter in tree[name].local_interest:
            tree.unsubscribe(name, topic_filter)
        else:
            tree.subscribe(name, topic_filter, qos)
    for publisher in tree.nodes:
        for topic in TOPICS:
            before = {name: len(tree.injected(name)) for name in tree.nodes}
            tree.publish(publisher, topic)
            for name, node in tree.nodes.items():
                got = tree.injected(name)[before[name] :]
                wanted = any(topic_matches(f, topic) for f in node.local_interest)
                if name != publisher:
                    assert len(got) <= 1
                    assert not wanted or got == [topic]
