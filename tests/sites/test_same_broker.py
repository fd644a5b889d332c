"""Two nodes before one broker that are to be linked, with real brokers."""

from __future__ import annotations

import asyncio

import pytest

from tests.sites.client import until
from tests.sites.conftest import Sites, makes, trees
from tests.sites.site import Site, join
from tests.sites.test_metrics import LISTENING, scraped

ALLOWED = "topic readwrite open/#\n"
"""Rules of a broker under which nodes cannot find each other."""


def numbers_of(*sites: Site) -> list[int]:
    """Of their connections with the broker."""
    return [site.node.injector.same_broker.number for site in sites]


async def refused(one: Site, other: Site) -> None:
    """Wait until a link which ``other`` dials is refused at both ends, with the reason."""
    address = one.link_address

    def shown() -> bool:
        neighbor = other.node.links.neighbors[address]
        return (
            neighbor.state == "refused"
            and one.node.injector.same_broker.shared_with == [other.name]
            and other.node.injector.same_broker.shared_with == [one.name]
        )

    await until(shown, f"refusal of the link {one.name}-{other.name}")
    _, [row], _ = await other.shell("neighbor list")
    assert row["state"] == "refused"
    assert "have the same broker" in row["reason"]
    for name in (one.name, other.name):
        assert name in row["reason"]
    for site, shared_with in ((one, other), (other, one)):
        assert (await site.shell("status"))["broker"]["shared_with"] == [shared_with.name]
    _, _, [turned_away] = await one.shell("neighbor list")
    assert (turned_away["node_id"], turned_away["kind"]) == (other.name, "same-broker")
    assert any(site.node.counters["links_refused_same-broker"] for site in (one, other))


@makes("mosquitto", "rabbitmq", "moquette")
async def test_it_is_refused_and_each_message_comes_once(
    sites: Sites, algorithm: str, kind: str, topic_root: str
) -> None:
    one, other = await sites.make(kind, algorithm), await sites.make(kind, algorithm)
    other.add(one)
    if not one.has_overlay:
        await refused(one, other)
    else:
        await until(
            lambda: one.node.injector.same_broker.shared_with == [other.name], "the neighbour is found"
        )
    at_one, at_other = await one.connect(), await other.connect()
    for client in (at_one, at_other):
        await client.subscribe((f"{topic_root}/#", 1))
    await at_one.publish(f"{topic_root}/x", b"once", 1)
    await at_other.publish(f"{topic_root}/x", b"too", 1)
    await until(lambda: one.node.injector.idle and other.node.injector.idle, "nothing is left to inject")
    await at_one.publish(f"{topic_root}/x", b"end", 1)
    for client in (at_one, at_other):
        assert [message.payload for message in await client.receive_until(b"end")] == [b"once", b"too"]
        assert client.waiting == 0


async def test_metrics_show_it(sites: Sites) -> None:
    def shared(found: dict[str, float]) -> list[float]:
        names = ("broker_shared", "broker_sharing_unknown", 'links_refused_total{reason="same-broker"}')
        return [found[f"ildm_{name}"] for name in names]

    one, other = await sites.make("mosquitto", "sf", **LISTENING), await sites.make("mosquitto", "sf")
    assert shared(await scraped(one)) == [0, 0, 0]
    other.add(one)
    await refused(one, other)
    await until(lambda: one.node.counters["links_refused_same-broker"] > 0, "the next attempt, at the latest")
    neighbours, unknown, times = shared(await scraped(one))
    assert (neighbours, unknown) == (1, 0)
    assert times > 0


@trees
async def test_it_is_found_again_after_a_restart_of_the_broker(sites: Sites, algorithm: str) -> None:
    broker = await sites.own_broker("mosquitto")
    one, other = await sites.make(broker, algorithm), await sites.make(broker, algorithm)
    other.add(one)
    await refused(one, other)
    numbers = numbers_of(one, other)
    await asyncio.to_thread(broker.restart)
    await until(
        lambda: all(now > before for now, before in zip(numbers_of(one, other), numbers, strict=True)),
        "the broker is back",
    )
    await refused(one, other)


@trees
async def test_a_link_that_was_there_is_shown_as_refused(sites: Sites, algorithm: str) -> None:
    """One end moves to the other's broker; the link keeps what is for the neighbour."""
    one = await sites.make("mosquitto", algorithm)
    other = await sites.make(sites.shared_broker("mosquitto", 1), algorithm)
    await join(other, one)
    address = other.node.broker_address
    other.node.brokers.replace([one.node.broker_address])
    await refused(one, other)
    other.node.brokers.replace([address])
    await until(lambda: one.is_joined(other) and other.is_joined(one), "the link")


@trees
async def test_a_broker_of_its_own_ends_the_refusal(sites: Sites, algorithm: str, topic_root: str) -> None:
    one, other = await sites.make("mosquitto", algorithm), await sites.make("mosquitto", algorithm)
    other.add(one)
    await refused(one, other)
    own = sites.shared_broker("mosquitto", 1)
    other.node.brokers.replace([other.node.broker_address._replace(port=own.address[1])])
    await until(lambda: one.is_joined(other) and other.is_joined(one), "the link")
    assert other.node.injector.same_broker.shared_with == []


@trees
@pytest.mark.parametrize("kind", ["forbidden", "activemq", "amqtt"])
async def test_where_nothing_can_be_found_it_is_said(sites: Sites, algorithm: str, kind: str) -> None:
    if kind == "forbidden":
        broker = await sites.own_broker("mosquitto", acl=ALLOWED)
    else:
        broker = sites.shared_broker(kind)
    one, other = await sites.make(broker, algorithm), await sites.make(broker, algorithm)
    await join(other, one)
    for site in (one, other):
        await until(lambda site=site: site.node.injector.same_broker.unheard is not None, "it is said")
        told = (await site.shell("status"))["broker"]
        assert "$ildm/probe/same/#" in told["sharing_unknown"]
        assert told["shared_with"] == []


@trees
async def test_brokers_with_a_bridge_are_not_taken_for_one(sites: Sites, algorithm: str) -> None:
    """A bridge of everything carries no topic that begins with ``$``."""
    far = await sites.own_broker("mosquitto")
    bridge = [
        "connection test",
        "address {}:{}".format(*far.address),
        "notifications false",
        "topic # both 0",
    ]
    near = await sites.own_broker("mosquitto", extra=bridge)
    one, other = await sites.make(near, algorithm), await sites.make(far, algorithm)
    await join(other, one)
    for site in (one, other):
        session = site.node.injector.same_broker.session
        assert session is not None
        await until(lambda session=session: session.echoed, "the node hears itself")
    assert one.is_joined(other)
    assert one.node.injector.same_broker.shared_with == []
