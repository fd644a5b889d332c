"""What a client can make the node keep by subscribing: in number, in levels, in bytes, for all clients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.local.requests import REQUEST_BYTES, Requests, kept_bytes
from ildm.mqtt import (
    Disconnect,
    OverLimit,
    Property,
    ProtocolViolation,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import keeper_at
from tests.support.site import Site, row


def subscribe(world: World, client: MiniClient, *filters: str) -> None:
    before = len(client.got(SubAck))
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=f) for f in filters]))
    world.run(1)
    assert len(client.got(SubAck)) == before + 1


def unsubscribe(world: World, client: MiniClient, *filters: str) -> None:
    client.send(Unsubscribe(packet_id=2, topic_filters=list(filters)))
    world.run(1)
    assert client.got(UnsubAck)


def wanted(site: Site, of: str) -> set[str]:
    return set(site.node.links.links[of].interest)


def warnings(site: Site) -> list[object]:
    logged = site.node.driver.logged
    return [fields["limit"] for _, event, fields in logged if event == "subscription stays at its broker"]


def test_a_filter_of_too_many_levels_stays_at_its_broker(world: World) -> None:
    a, b = row(world, "ab", "sf", limits={"topic_levels": 10})
    client = a.client("c")
    fits, deep = "/".join("1234567890"), "/".join("1234567890x")
    subscribe(world, client, deep, fits, "x" + deep)
    assert wanted(b, "a") == {fits}
    assert a.node.counters["subscriptions_over_limit"] == 2
    assert warnings(a) == ["limits.topic_levels"]
    b.client("p").send(Publish(topic=fits, payload=b"1"))
    a.client("q").send(Publish(topic=deep, payload=b"2"))
    world.run(1)
    assert [payload for _, payload in client.messages] == [b"1", b"2"]
    unsubscribe(world, client, deep, fits)
    assert wanted(b, "a") == set()
    assert a.node.clients.budget.bytes == 0


def test_the_filters_of_a_client_are_bounded_in_bytes(world: World) -> None:
    size = kept_bytes("f/1")
    a, b = row(world, "ab", "sf", limits={"subscription_bytes": 3 * size})
    one, two = a.client("one"), a.client("two")
    subscribe(world, one, "f/1", "f/2", "f/3", "f/4")
    subscribe(world, one, "f/1", "f/4")
    subscribe(world, two, "g/1", "g/2", "g/3")
    assert wanted(b, "a") == {"f/1", "f/2", "f/3", "g/1", "g/2", "g/3"}
    assert a.node.counters["subscriptions_over_limit"] == 2
    assert warnings(a) == ["limits.subscription_bytes"]
    unsubscribe(world, one, "f/1", "f/4")
    subscribe(world, one, "f/4")
    assert wanted(b, "a") == {"f/4", "f/2", "f/3", "g/1", "g/2", "g/3"}


def test_the_filters_of_all_clients_are_bounded_together(world: World) -> None:
    size = kept_bytes("f/1")
    a, b = row(world, "ab", "sf", limits={"all_subscription_bytes": 3 * size})
    one, two = a.client("one"), a.client("two")
    subscribe(world, one, "f/1", "f/2")
    subscribe(world, two, "f/1", "f/2", "f/3")
    assert wanted(b, "a") == {"f/1", "f/2"}
    assert warnings(a) == ["limits.all_subscription_bytes"]
    one.transport.abort()
    world.run(1)
    assert a.node.clients.budget.bytes == size
    subscribe(world, two, "f/2", "f/3")
    assert wanted(b, "a") == {"f/1", "f/2", "f/3"}


def test_a_restored_session_is_bounded_too(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    client = a.client(
        "c", version=Version.V5, clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 600}
    )
    subscribe(world, client, "a/b", "a/b/c", "d")
    a.crash()
    a.settings["limits"] = {"topic_levels": 2}
    a.start(("b",))
    world.run(20)
    assert set(a.node.clients.records["c"].filters) == {"a/b", "d"}
    assert warnings(a) == ["limits.topic_levels"]


def test_requests_without_an_answer_are_bounded(world: World) -> None:
    site = Site(world, "a", None, limits={"subscription_bytes": 1_000_000})
    keeper_at(site)
    client = site.client("c", version=Version.V5)
    names = [Subscription(topic_filter=f"f/{i}") for i in range(1000)]
    for packet_id in range(1, 10):
        client.send(Subscribe(packet_id=packet_id, subscriptions=names))
    world.run(1)
    assert [end.reason_code for end in client.got(Disconnect)] == [0x97]
    assert client.closed


@pytest.mark.parametrize("cut", [False, True])
def test_a_request_of_many_megabytes_is_refused(world: World, cut: bool) -> None:
    site = Site(world, "a", None)
    keeper = keeper_at(site)
    client = site.client("c", version=Version.V5)
    names = [Subscription(topic_filter=f"{i}/" + "x" * 65_000) for i in range(20)]
    frame = Subscribe(packet_id=1, subscriptions=names).encode(Version.V5)
    client.transport.write(frame[:10_000] if cut else frame)
    world.run(1)
    assert [end.reason_code for end in client.got(Disconnect)] == [0x97]
    assert keeper.raw["c"] == b""


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3))))
@settings(deadline=None)
def test_what_waits_is_what_was_asked_and_not_answered(steps: list[tuple[int, int]]) -> None:
    """A count of 0 stands for an answer."""
    limit = 20 * REQUEST_BYTES
    requests = Requests(limit)
    model: dict[int, int] = {}
    for packet_id, count in steps:
        size = 10 + REQUEST_BYTES * count
        if not count:
            answered = requests.take(packet_id)
            assert len(answered or []) == model.pop(packet_id, 0)
        elif (
            sum(10 + REQUEST_BYTES * c for i, c in model.items() if i != packet_id) + size
            > 20 * REQUEST_BYTES
        ):
            with pytest.raises(OverLimit):
                requests.add(packet_id, ["f"] * count, 10)
            model.pop(packet_id, None)
        else:
            requests.add(packet_id, ["f"] * count, 10)
            model[packet_id] = count
        assert requests.bytes == sum(10 + REQUEST_BYTES * c for c in model.values())
        assert len(requests) == len(model)


def test_there_are_no_more_requests_than_packet_identifiers() -> None:
    requests = Requests(1 << 40)
    for packet_id in range(1, 65_536):
        requests.add(packet_id, ["f"], 10)
    with pytest.raises(ProtocolViolation):
        requests.add(1, ["f"], 10)
