"""Filters that cover or match very much: coming and going, and all at once."""

from __future__ import annotations

import itertools

from ildm.mqtt import FilterTable, Publish, Subscribe, Subscription, Unsubscribe
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def subscribe(client: MiniClient, *filters: str) -> None:
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=f) for f in filters]))


def exchanged(sites: list[Site]) -> int:
    counters = [site.node.counters for site in sites]
    return sum(c["inter_subscribes"] + c["inter_unsubscribes"] for c in counters)


def test_one_client_that_comes_and_goes_with_everything_costs_the_others_nothing(world: World) -> None:
    a, b, c = sites = row(world, "abc", "sf")
    many = a.client("many")
    subscribe(many, *(f"t/{i}" for i in range(1000)))
    world.run(3)
    moody = a.client("moody")
    before = exchanged(sites)
    for _ in range(30):
        subscribe(moody, "#")
        world.run(0.5)
        moody.send(Unsubscribe(packet_id=2, topic_filters=["#"]))
        world.run(0.5)
    assert exchanged(sites) - before <= 2 * 1001  # the first time, over two links
    assert a.node.links.links["b"].announced == {"#": 0}
    c.client("p").send(Publish(topic="t/7", payload=b"x"))
    world.run(1)
    assert many.messages == [("t/7", b"x")]
    world.run(60)
    assert len(a.node.links.links["b"].announced) == 1000
    assert c.node.links.links["b"].interest == b.node.links.links["a"].interest
    assert exchanged(sites) - before <= 4 * 1001


def test_who_comes_back_soon_again_and_again_is_waited_for_ever_longer(world: World) -> None:
    a, _ = sites = row(world, "ab", "sf")
    subscribe(a.client("many"), *(f"t/{i}" for i in range(200)))
    moody = a.client("moody")
    world.run(3)
    before = exchanged(sites)
    for _ in range(30):
        subscribe(moody, "#")
        world.run(1)
        moody.send(Unsubscribe(packet_id=2, topic_filters=["#"]))
        world.run(12)  # longer than it lingers at first
    assert exchanged(sites) - before <= 6 * 201


def test_a_filter_that_covers_few_goes_at_once(world: World) -> None:
    a, b = row(world, "ab", "sf")
    subscribe(a.client("some"), "t/1", "t/2")
    client = a.subscriber("t/#", "s")
    world.run(1)
    assert b.node.links.links["a"].interest == {"t/#": 0}
    client.send(Unsubscribe(packet_id=2, topic_filters=["t/#"]))
    world.run(1)
    assert b.node.links.links["a"].interest == {"t/1": 0, "t/2": 0}


def antichain(levels: int) -> list[str]:
    """All filters with ``+`` at half of the levels; each matches the one topic."""
    topic = [f"l{i}" for i in range(levels)]
    places = itertools.combinations(range(levels), levels // 2)
    return ["/".join("+" if i in chosen else level for i, level in enumerate(topic)) for chosen in places]


def test_a_topic_that_matches_too_many_filters_is_not_looked_up_to_the_end() -> None:
    table: FilterTable[str] = FilterTable()
    for topic_filter in antichain(14):
        table.add(topic_filter, "link", 1)
    topic = "/".join(f"l{i}" for i in range(14))
    assert table.match_within(topic, 1000) is None
    assert table.match_within(topic, 100_000) == table.match(topic) == {"link": 1}
    assert table.match_within("l0/x", 10) == {}


def test_such_a_topic_goes_to_everybody(world: World) -> None:
    a, b, c = row(world, "abc", "sf")
    wanted = antichain(14)
    link = b.node.links.links["c"]
    for start in range(0, len(wanted), 500):
        b.node.dispatch.interest_changed(link, dict.fromkeys(wanted[start : start + 500], 1))
    publisher = b.client("p")
    publisher.send(Publish(topic="/".join(f"l{i}" for i in range(14)), payload=b"x"))
    publisher.send(Publish(topic="other", payload=b"x"))
    world.run(1)
    assert len(a.broker.topics()) == len(c.broker.topics()) == 1
    (loaded,) = b.node.dispatch.loaded
    assert loaded.counters["routed_to_all"] == 1
