"""What brokers of each make take as the level that says what values are wanted.

Filters are ``filter/EXPRESSION/TOPIC FILTER``. Tried at the broker itself, and injected by a node that has
the message from another site: what the table of ``algorithms/ildm_algorithms/octopia/forms.md`` says. Nothing
of OctopiA runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ildm.mqtt import Version
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.site import join, settled
from tests.support.brokers import KINDS

PORTABLE = (
    "price>80&sym=IBM",
    "price>=80&price<=80%2E5",
    "sym!=IBM",
    "sym^=I",
    "sym='1 2%2C%2A%3F'",
    "!!alarm",
    "!alarm",
    "hot",
    "price>-5",
    "at=2024-01-01T00:00:00Z",
    "=<>",
    ">",
    '"a"|~@()[]{};:_-',
    "café",
    "\N{CJK UNIFIED IDEOGRAPH-65E5}\N{CJK UNIFIED IDEOGRAPH-672C}",
    "x=" + 1000 * "y",
    "x=" + 20_000 * "y",
)
"""Every make takes these."""
TROUBLE = {
    "?alarm": {"activemq"},
    "sym=a?": {"activemq"},
    "sym=a,b": {"activemq"},
    "price>80.5": {"rabbitmq"},
}
"""Those that some make takes for something else, with these makes."""
STARS = ("sym=a*", "*")
"""RabbitMQ makes topics of these that no client takes."""
ENDS = ("#", "+/t", "s/t")
"""Of the topic filter, behind the root of the test."""

each_make = pytest.mark.parametrize("kind", KINDS)


def spoiled(kind: str) -> set[str]:
    return {level for level, makes in TROUBLE.items() if kind in makes}


def levels(kind: str) -> list[str]:
    return [*PORTABLE, *TROUBLE, *(STARS if kind != "rabbitmq" else ())]


async def tried(
    kind: str, subscriber: Client, publisher: Client, root: str, settle: Callable[[], Awaitable[None]]
) -> set[str]:
    """The levels that do not come through as they are, each once for a filter of each kind."""
    wanted: dict[str, str] = {}
    for number, level in enumerate(levels(kind)):
        for end, rest in enumerate(ENDS):
            base = f"filter/{level}/{root}/{number}/{end}"
            assert await subscriber.subscribe((f"{base}/{rest}", 1)) == [1], level
            wanted[f"{base}/s/t"] = level
    end = f"{root}/end"
    await subscriber.subscribe((end, 1))
    await settle()
    for topic in wanted:
        await publisher.publish(topic, topic.encode(), 1)
    await publisher.publish(end, b"end", 1)
    got = [(m.topic, m.payload.decode()) for m in await subscriber.receive_until(b"end")]
    right = [topic for topic, payload in got if topic == payload]
    return {level for topic, level in wanted.items() if right.count(topic) != 1}


@each_make
async def test_at_the_broker(sites: Sites, kind: str, topic_root: str) -> None:
    broker = sites.shared_broker(kind)

    async def at_once() -> None:
        await asyncio.sleep(0)

    for version in sorted(broker.versions & {Version.V311, Version.V5}):
        clients = [await Client.connect(broker.address, version=Version(version)) for _ in range(2)]
        if kind == "moquette":
            await clients[0].unsubscribe("nothing")  # it may hang up on a SUBSCRIBE that follows CONNACK
        assert await tried(kind, clients[0], clients[1], f"{topic_root}{version}", at_once) == spoiled(kind)
        for client in clients:
            await client.disconnect()


@each_make
async def test_injected_by_a_node(sites: Sites, kind: str, topic_root: str) -> None:
    """Published at another site, of Mosquitto, which takes everything."""
    here = await sites.make(kind, "sf")
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sf")
    await join(there, here)
    subscriber = await here.connect(version=Version.V311)
    publisher = await there.connect(version=Version.V5)
    assert await tried(kind, subscriber, publisher, topic_root, lambda: settled(here, there)) == spoiled(kind)


@each_make
@pytest.mark.parametrize("level", [PORTABLE[0], PORTABLE[4], PORTABLE[-2]], ids=["plain", "quoted", "long"])
async def test_what_a_broker_keeps_for_later(sites: Sites, kind: str, level: str, topic_root: str) -> None:
    """A persistent session, and a retained message; to filters with wildcards RabbitMQ sends none."""
    if kind == "amqtt":
        pytest.skip("amqtt keeps nothing for a client that is away")
    site = await sites.make(kind, None)
    topic = f"filter/{level}/{topic_root}/t"
    away = await site.connect(topic_root[:20], clean=False)
    assert await away.subscribe((f"filter/{level}/{topic_root}/#", 1)) == [1]
    await away.disconnect()
    publisher = await site.connect()
    await publisher.publish(topic, b"kept", 1)
    back = await site.connect(topic_root[:20], clean=False)
    assert ((await back.receive()).topic, back.waiting) == (topic, 0)
    await back.unsubscribe(f"filter/{level}/{topic_root}/#")
    await back.disconnect()
    await (await site.connect(topic_root[:20])).disconnect()
    await publisher.publish(topic, b"retained", 1, retain=True)
    for rest in ("t",) if kind == "rabbitmq" else ("t", "+", "#"):
        late = await site.connect()
        await late.subscribe((f"filter/{level}/{topic_root}/{rest}", 1))
        message = await late.receive()
        assert (message.topic, message.payload) == (topic, b"retained")
    await publisher.publish(topic, b"", 1, retain=True)


@pytest.mark.parametrize("level", STARS)
async def test_rabbitmq_makes_a_plus_of_a_star(sites: Sites, level: str, topic_root: str) -> None:
    """In the topic of a message, which is malformed (MQTT-3.3.2-2): clients may end the connection."""
    broker = sites.shared_broker("rabbitmq")
    subscriber, publisher = [await Client.connect(broker.address) for _ in range(2)]
    await subscriber.subscribe((f"filter/{level}/{topic_root}/#", 1))
    await publisher.publish(f"filter/{level}/{topic_root}/t", b"m", 1)
    spoiled = f"filter/{level.replace('*', '+')}/{topic_root}/t".encode()
    await until(lambda: spoiled in subscriber.received)


async def test_shared_among_a_group(sites: Sites, topic_root: str) -> None:
    """Mosquitto; the other makes grant ``$share`` and deliver nothing."""
    site = await sites.make("mosquitto", None)
    members = [await site.connect(version=version) for version in (Version.V311, Version.V5)]
    topic = f"filter/{PORTABLE[0]}/{topic_root}/t"
    for member in members:
        await member.subscribe((f"$share/g/filter/{PORTABLE[0]}/{topic_root}/#", 1))
    publisher = await site.connect()
    for number in range(10):
        await publisher.publish(topic, b"%d" % number, 1)
    got: list[bytes] = []
    for member in members:
        got += [message.payload for message in await member.receive_all(5)]
    assert sorted(got) == [b"%d" % number for number in range(10)]
