"""SUBACK of a node whose algorithm has an overlay: it waits until the overlay knows of the filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ildm.api import NodeApi, OverlayAlgorithm, PluginConfig
from ildm.config import Address
from ildm.mqtt import Disconnect, Publish, SubAck, Subscribe, Subscription, Unsubscribe
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from tests.support.site import Site


def subscribe(client: MiniClient, *filters: str, qos: int = 0) -> None:
    wanted = [Subscription(topic_filter=name, qos=qos) for name in filters]
    client.send(Subscribe(packet_id=1, subscriptions=wanted))


class Asked(OverlayAlgorithm[PluginConfig]):
    """Notes what it is asked, and does not answer."""

    asked: Sequence[str] = ()
    done: Callable[[], bool]

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        self.asked, self.done = list(topic_filters), done
        return False


class Failing(OverlayAlgorithm[PluginConfig]):
    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        raise ValueError("no")


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither")


class Vague(OverlayAlgorithm[PluginConfig]):
    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        answer: Any = Undecided()
        return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("algorithm", [SgTbps, AtmTbps])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("latency", [0.001, 0.03])
def test_what_is_published_after_suback_crosses_in_order(
    world: World, algorithm: type[OverlayAlgorithm[Any]], qos: int, latency: float
) -> None:
    """Also where the publisher has more topics below a prefix than keys of their own."""
    world.latency = latency
    a, b, c = (Site(world, name, algorithm, link={"advertise": f"{name}:2"}) for name in "abc")
    b.node.links.add(Address("a", 2), False)
    c.node.links.add(Address("b", 2), False)
    world.run(20)
    publisher = a.client("p")
    for number in range(30):
        publisher.send(Publish(topic=f"x/{number}", payload=b"warm"))
    world.run(30)
    subscriber = c.client("s")
    subscribe(subscriber, "x/new", "+/other", qos=qos)
    assert world.run_until(lambda: bool(subscriber.got(SubAck)), 2)
    assert c.node.counters["subscribe_waits_expired"] == 0
    sent = [b"%d" % number for number in range(20)]
    for number, text in enumerate(sent, 1):
        publisher.send(Publish(topic="x/new", payload=text, qos=qos, packet_id=number if qos else None))
    world.run(2)
    assert subscriber.messages == [("x/new", text) for text in sent]
    assert b.broker.topics() == []


def test_a_suback_waits_for_the_overlay_as_long_as_for_neighbours(world: World) -> None:
    site = Site(world, "a", Asked, link={"advertise": "a:2", "subscribe_wait": 3.0})
    algorithm = site.node.dispatch.algorithm
    assert isinstance(algorithm, Asked)
    client = site.client("c")
    subscribe(client, "t", "$share/g/u")
    world.run(2.5)
    assert algorithm.asked == ["t", "u"]
    assert client.got(SubAck) == []
    assert algorithm.done()
    world.run(0.1)
    assert len(client.got(SubAck)) == 1
    assert site.node.counters["subscribe_waits_expired"] == 0
    subscribe(client, "t")
    world.run(3.1)
    assert len(client.got(SubAck)) == 2
    assert site.node.counters["subscribe_waits_expired"] == 1
    assert not algorithm.done()  # it has gone
    assert len(client.got(SubAck)) == 2


@pytest.mark.parametrize("algorithm", [Failing, Vague])
def test_nobody_waits_for_an_algorithm_that_fails(
    world: World, algorithm: type[OverlayAlgorithm[Any]]
) -> None:
    site = Site(world, "a", algorithm, link={"advertise": "a:2"})
    client = site.client("c")
    subscribe(client, "t")
    world.run(0.1)
    assert client.got(SubAck)
    assert site.node.counters["plugin_errors"] == 1


def overlay(world: World, algorithm: type[OverlayAlgorithm[Any]], **settings: Any) -> list[Site]:
    """Three sites, in one graph."""
    sites = [Site(world, name, algorithm, link={"advertise": f"{name}:2"}, **settings) for name in "abc"]
    sites[1].node.links.add(Address("a", 2), False)
    sites[2].node.links.add(Address("b", 2), False)
    world.run(20)
    return sites


def retained(client: MiniClient) -> list[tuple[str, bytes, bool]]:
    return [(packet.topic, packet.payload, packet.retain) for packet in client.got(Publish)]


@pytest.mark.parametrize("algorithm", [SgTbps, AtmTbps])
@pytest.mark.parametrize("topic_filter", ["r/1", "r/#"])
def test_the_broker_serves_what_is_retained_elsewhere(
    world: World, algorithm: type[OverlayAlgorithm[Any]], topic_filter: str
) -> None:
    """To a first subscriber as to any other: with the flag, once; and again when it was the only one."""
    a, _, c = overlay(world, algorithm)
    publisher = a.client("p")
    publisher.send(Publish(topic="r/1", payload=b"kept", qos=1, packet_id=1, retain=True))
    world.run(10)
    everything = c.client("all")
    client = c.client("s")
    for pause in (0.0, 0.2, 0.5, 1.2, 5.0):
        client.packets.clear()
        subscribe(client, topic_filter, qos=1)
        world.run(1)
        assert client.got(SubAck)
        assert retained(client) == [("r/1", b"kept", True)], pause
        client.send(Unsubscribe(packet_id=2, topic_filters=[topic_filter]))
        world.run(pause)
    assert c.node.counters["retained_waits_expired"] == 0
    subscribe(everything, "#")
    world.run(1)
    subscribe(c.client("other"), topic_filter)
    world.run(1)
    assert retained(everything) == [("r/1", b"kept", True)]  # not once more for the other one


class Fetching(OverlayAlgorithm[PluginConfig]):
    """Notes what it is asked before a SUBSCRIBE, and does not answer."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.asked: list[list[str]] = []
        self.done: list[Callable[[], bool]] = []

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        self.asked.append(list(topic_filters))
        self.done.append(done)
        return False


def fetching(world: World, **settings: Any) -> tuple[Site, Fetching]:
    site = Site(world, "a", Fetching, link={"advertise": "a:2", "subscribe_wait": 1.0}, **settings)
    algorithm = site.node.dispatch.algorithm
    assert isinstance(algorithm, Fetching)
    return site, algorithm


def test_what_follows_a_subscribe_waits_with_it(world: World) -> None:
    site, algorithm = fetching(world)
    client = site.client("c")
    client.send(Publish(topic="t", payload=b"before"))
    subscribe(client, "t", "$share/g/u", "$SYS/#")
    client.send(Publish(topic="t", payload=b"after"))
    world.run(0.5)
    assert algorithm.asked == [["t", "u"]]
    assert client.messages == client.got(SubAck) == []
    assert algorithm.done[0]()
    world.run(0.1)
    assert client.got(SubAck)
    assert client.messages == [("t", b"after")]
    assert site.node.counters["retained_waits_expired"] == 0


def test_many_subscribes_in_a_row_wait_no_longer_than_one(world: World) -> None:
    site, algorithm = fetching(world)
    client = site.client("c")
    for number in range(50):
        subscribe(client, f"t/{number}")
    world.run(1.1)
    assert len(client.got(SubAck)) == 50
    assert site.node.counters["retained_waits_expired"] == len(algorithm.done) == 1
    assert not algorithm.done[0]()
    world.run(2)
    subscribe(client, "later")
    world.run(0.1)
    assert algorithm.asked[-1] == ["later"]
    assert len(client.got(SubAck)) == 50


@pytest.mark.parametrize("ending", ["disconnects", "is cut off", "is kicked"])
def test_a_client_that_leaves_while_its_subscribe_waits(world: World, ending: str) -> None:
    site, algorithm = fetching(world)
    client = site.client("c")
    subscribe(client, "t")
    world.run(0.1)
    if ending == "disconnects":
        client.send(Disconnect())
        client.transport.close()
    elif ending == "is cut off":
        client.transport.abort()
    else:
        (session,) = (each for each in site.node.sessions if each.client_id == "c" and hasattr(each, "kick"))
        session.kick()
    world.run(0.1)
    algorithm.done[0]()
    world.run(5)
    assert site.node.counters["undecided"] == 0
    assert not [each for each in site.node.sessions if each.client_id == "c"]
    assert site.node.clients.interest.maximum == {}


@pytest.mark.parametrize("algorithm", [Failing, Vague])
def test_nobody_waits_for_an_algorithm_that_fails_before_a_subscribe(
    world: World, algorithm: type[OverlayAlgorithm[Any]]
) -> None:
    site = Site(
        world,
        "a",
        type("Own", (algorithm,), {"before_subscribe": algorithm.when_known}),
        link={"advertise": "a:2"},
    )
    client = site.client("c")
    subscribe(client, "t")
    world.run(0.1)
    assert client.got(SubAck)
    assert site.node.counters["plugin_errors"] == 2


def test_a_filter_that_the_broker_refuses_is_wanted_for_a_moment_only(world: World) -> None:
    a, _, c = overlay(world, SgTbps)
    a.client("p").send(Publish(topic="r/1", payload=b"kept", qos=1, packet_id=1, retain=True))
    c.broker.denies = lambda topic_filter: True  # type: ignore[method-assign,assignment]
    client = c.client("s")
    subscribe(client, "r/1")
    world.run(5)
    assert client.got(SubAck)[0].reason_codes == [0x80]
    algorithm: Any = c.node.dispatch.algorithm
    assert any("subscriber" in key.key for key in algorithm.overlay().keys)
    world.run(20)
    assert not any("subscriber" in key.key for key in algorithm.overlay().keys)
    assert c.broker.retained == {}


def test_a_broker_that_is_slow_with_what_was_fetched(world: World) -> None:
    a, _, c = overlay(world, SgTbps)
    a.client("p").send(Publish(topic="r/1", payload=b"kept", qos=1, packet_id=1, retain=True))
    world.run(5)
    client = c.client("s")
    c.broker.answer_delay = 0.2
    subscribe(client, "r/1")
    assert world.run_until(lambda: bool(client.got(SubAck)), 2)
    world.run(1)
    assert retained(client) == [("r/1", b"kept", True)]
