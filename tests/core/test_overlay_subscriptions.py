"""SUBACK of a node whose algorithm has an overlay: it waits until the overlay knows of the filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ildm.api import OverlayAlgorithm, PluginConfig
from ildm.config import Address
from ildm.mqtt import Publish, SubAck, Subscribe, Subscription
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from tests.support.site import Site


@pytest.fixture
def world() -> World:
    return World()


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
