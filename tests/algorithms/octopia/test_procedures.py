"""The procedures of the paper over a grid in virtual time, counted in messages (sections 6 to 9)."""

from __future__ import annotations

import pytest

from ildm_algorithms.octopia.content.content import ContentFilter
from tests.algorithms.octopia.worlds import make, octopia, payloads, sent, topics

PAPER = {"summary": 0, "qos": 0}
"""Bits alone, and no acknowledgements."""


def bits(world, name: str, uid: int = 1) -> str:  # type: ignore[no-untyped-def]
    """As in the paper: cluster 0 is the rightmost; the own one is not used."""
    found = octopia(world, name).replicas.clt.bits(uid)
    marks = {None: "?", True: "1", False: "0"}
    return "".join("-" if index not in found else marks[found[index]] for index in reversed(range(3)))


def test_subscriptions_and_advertisements_do_not_wait_for_each_other() -> None:
    """K_3 x a-b-c, publisher at a0: ADV 2 messages, SUB 2 each, and a bit for each cluster."""
    world = make(**PAPER)
    before = sent(world, "adverts", "subs", "civs", "pub")

    def since() -> tuple[int, ...]:
        nonlocal before
        world.run(0.5)
        now = sent(world, "adverts", "subs", "civs", "pub")
        before, found = now, tuple(b - a for a, b in zip(before, now, strict=True))
        return found

    octopia(world, "a0").advertise(ContentFilter("t"))
    assert since() == (2, 0, 2, 0)  # each is answered
    assert bits(world, "a0") == "00-"
    assert [len(octopia(world, name).replicas.clt) for name in ("a0", "a1", "a2", "b0", "c2")] == [
        *(1, 1, 1),
        *(0, 0),
    ]
    world["b1"].subscribe("t")
    assert since() == (0, 2, 1, 0)
    assert bits(world, "a0") == "01-"
    world["a1"].subscribe("t")
    assert since() == (0, 2, 0, 0)
    world["c0"].subscribe("t")
    assert since() == (0, 2, 0, 0)
    assert bits(world, "a0") == "01-"
    world["a0"].publish("t", b"1")
    assert since() == (0, 0, 0, 4)  # a0>b0>c0, a0>a1>b1
    world["c2"].subscribe("t")
    assert since() == (0, 2, 1, 0)
    assert bits(world, "a0") == "11-"
    world["a0"].publish("t", b"2")
    assert since() == (0, 0, 0, 7)
    world["a1"].unsubscribe("t")
    assert since() == (0, 2, 0, 0)
    world["b1"].unsubscribe("t")
    assert since() == (0, 2, 1, 0)
    assert bits(world, "a0") == "10-"
    assert octopia(world, "a0").unadvertise(1)
    assert since() == (2, 0, 0, 0)
    assert len(octopia(world, "a1").replicas.clt) == 0
    assert [payloads(world, name) for name in ("a1", "b1", "c0", "c2")] == [
        *([b"1", b"2"], [b"1", b"2"], [b"1", b"2"], [b"2"]),
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_content_and_plain_subscriptions_side_by_side(qos: int) -> None:
    world = make(("a-b",), 2)
    world["b1"].subscribe("filter/price>80/stock/#", qos)
    world["b1"].subscribe("stock/+", qos)
    world["a1"].subscribe("filter/sym=IBM&price<=80/stock/x", qos)
    world["a0"].subscribe("filter/price>0/stock/#", qos)
    world.run(1)
    world["a0"].publish("stock/x", b'{"price": 90, "sym": "IBM"}', qos)
    world["a0"].publish("stock/x", b'{"price": 70, "sym": "IBM"}', qos)
    world["a0"].publish("other", b'{"price": 90}', qos)
    world.run(1)
    assert sorted(topics(world, "b1")) == ["filter/price>80/stock/x", "stock/x", "stock/x"]
    assert topics(world, "a1") == ["filter/sym=IBM&price<=80/stock/x"]
    assert topics(world, "a0") == ["filter/price>0/stock/x"] * 2  # the publisher's own site
    assert {delivery.qos for _, delivery in world.deliveries()} == {qos}
    assert world["b0"].deliveries == []
    assert world.counters()["duplicates"] == 0


def test_only_what_matches_crosses_with_precise_bits() -> None:
    """A cluster tells its filters, so that a reading which nobody there wants stays at home (+)."""
    world = make(("a",), 2)
    world["a1"].subscribe("filter/temp>100/t/#")
    world.run(1)
    world["a0"].publish("t/1", b'{"temp": 20}')  # advertises the topic: not answered yet, so it crosses
    world.run(1)
    assert sent(world, "pub") == (1,)
    for temp in range(98, 103):
        world["a0"].publish("t/1", b'{"temp": %d}' % temp)
    world.run(1)
    assert sent(world, "pub") == (3,)
    assert payloads(world, "a1") == [b'{"temp": 101}', b'{"temp": 102}']


def test_a_cluster_with_too_many_filters_gets_all_of_a_topic() -> None:
    world = make(("a",), 2, summary=2)
    for number in range(3):
        world["a1"].subscribe(f"filter/n={number}/t")
    world.run(1)
    world["a0"].publish("t", b"")
    world.run(1)
    world["a0"].publish("t", b'{"n": 9}')
    world.run(1)
    assert sent(world, "pub") == (2,)
    assert octopia(world, "a0").replicas.clt.bits(1) == {1: True}
    for number in range(3):
        world["a1"].unsubscribe(f"filter/n={number}/t")
    world.run(1)
    world["a0"].publish("t", b'{"n": 9}')
    world.run(1)
    assert sent(world, "pub") == (2,)
    assert octopia(world, "a0").replicas.clt.bits(1) == {1: False}


def test_a_filter_that_others_ask_for_in_other_words_is_one_row_and_two_topics() -> None:
    world = make(("a",), 2)
    world["a1"].subscribe("filter/b=2&a=1/t", client="one")
    world["a1"].subscribe("filter/a=1&b=2/t", client="two")
    world.run(1)
    assert len(octopia(world, "a1").replicas.prt) == 1
    world["a0"].publish("t", b'{"a": 1, "b": 2}')
    world.run(1)
    assert topics(world, "a1") == ["filter/a=1&b=2/t", "filter/b=2&a=1/t"]
    world["a1"].unsubscribe("filter/a=1&b=2/t", client="two")
    world.run(1)
    world["a0"].publish("t", b'{"a": 1, "b": 2}')
    world.run(1)
    assert topics(world, "a1")[2:] == ["filter/b=2&a=1/t"]


def test_names_of_expressions() -> None:
    world = make(("a",), 2, expressions={"dear": "price>80"})
    world["a1"].subscribe("filter/dear&sym=IBM/t")
    world.run(1)
    world["a0"].publish("t", b'{"price": 81, "sym": "IBM"}')
    world["a0"].publish("t", b'{"price": 79, "sym": "IBM"}')
    world.run(1)
    assert topics(world, "a1") == ["filter/dear&sym=IBM/t"]


def test_topics_are_advertised_when_they_are_published_to_and_given_up_when_idle() -> None:
    world = make(("a",), 2, max_topics=2, publisher_idle=10.0)
    node = octopia(world, "a0")
    for topic in ("a", "b", "c", "b", "d"):
        world["a0"].publish(topic)
    assert sorted(content.topic_filter for content in node.replicas.clt.own.values()) == ["b", "d"]
    assert node.counters["topics_displaced"] == 2
    world.run(9)
    world["a0"].publish("b")
    world.run(2)
    assert [content.topic_filter for content in node.replicas.clt.own.values()] == ["b"]
    world.run(15)
    assert not node.replicas.clt.own
    assert len(octopia(world, "a1").replicas.clt) == 0
    assert node.counters["topics_idle"] == 2


def test_what_is_advertised_by_configuration_needs_no_advertisement_of_topics() -> None:
    world = make(("a",), 2, advertise=["t/#", {"topic": "stock", "where": "price>10"}])
    node = octopia(world, "a0")
    assert [str(content) for content in node.replicas.clt.own.values()] == ["t/#", "stock price>10"]
    world["a0"].publish("t/x")
    world["a0"].publish("stock", b'{"price": 20}')
    assert len(node.replicas.clt.own) == 2
    assert sent(world, "pub") == (0,)
    world["a0"].publish("stock", b'{"price": 5}')  # was not announced
    assert len(node.replicas.clt.own) == 3
    assert sent(world, "pub") == (1,)


def test_what_is_published_below_the_root_stays_at_its_site() -> None:
    world = make(("a",), 2)
    world["a1"].subscribe("#")
    world.run(1)
    world["a0"].publish("filter/x>1/t")
    world.run(1)
    assert world["a1"].deliveries == []
    assert octopia(world, "a0").counters["published_below_root"] == 1
