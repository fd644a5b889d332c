"""What a killed node has acknowledged, or had under way, arrives at living brokers and clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import Disconnect, PubComp, Publish, PubRec, PubRel, Will
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.process import ProcessSite
from tests.sites.site import Site
from tests.support.brokers import Fleet

MESSAGES = 900
KILLS = (100, 350, 600)
"""Messages that the far broker has delivered when its node is killed."""
ONCE = {"mosquitto", "moquette"}
"""Makes that know a message of QoS 2 which is sent again. ActiveMQ forgets it with the connection, RabbitMQ
makes QoS 1 of it."""
SWALLOWS = {"moquette"}
"""It gives up a PUBLISH whose PUBREC it cannot write any more, and then says nothing to the repetition: the
node takes that for answered, and counts it."""
SPOOL = {"mode": "process"}

MakeFar = Callable[..., ProcessSite]


@pytest.fixture
async def make_far(fleet: Fleet, tmp_path: Path) -> AsyncIterator[MakeFar]:
    """Makes a site whose node is a process; it is not started."""
    made: list[ProcessSite] = []

    def make(kind: str, algorithm: str = "pf", **changes: Any) -> ProcessSite:
        name = f"far{tmp_path.name[-6:]}"
        broker = fleet.shared(kind, 1 if kind == "mosquitto" else 0)
        made.append(ProcessSite(broker, tmp_path / "far", algorithm, name, spool=SPOOL, **changes))
        return made[-1]

    yield make
    for site in made:
        if site.process is not None and site.process.returncode is None:
            await site.kill()


async def join(here: Site, far: ProcessSite) -> None:
    here.node.links.add(Address(*far.link_address), False)
    await until(lambda: linked(here, far), "the link with the process")


def linked(here: Site, far: ProcessSite) -> bool:
    link = here.node.links.links.get(far.name)
    return (
        link is not None
        and link.connected
        and link.ready_there
        and link in here.node.links.cooperation.active
    )


class Witness:
    """A subscriber of a broker itself, past the node."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.got: list[bytes] = []

    @classmethod
    async def at(cls, far: ProcessSite, topic: str) -> Witness:
        client = await Client.connect(far.broker.address)
        await client.subscribe((topic, 2))
        return cls(client)

    async def has(self, count: int) -> None:
        """Wait until so many different messages have come."""
        while len(set(self.got)) < count:
            self.got.append((await self.client.receive()).payload)

    async def twice(self, until_payload: bytes) -> list[bytes]:
        """What has come more than once, up to this message."""
        self.got += [message.payload for message in await self.client.receive_until(until_payload)]
        return [payload for payload, count in Counter(self.got).items() if count > 1]


@pytest.mark.parametrize("kind", ["mosquitto", "moquette", "activemq", "rabbitmq"])
async def test_a_node_killed_amid_its_injections_goes_on_with_them(
    sites: Sites, make_far: MakeFar, kind: str, topic_root: str
) -> None:
    far = make_far(kind)
    here = await sites.make("mosquitto", "pf", spool=SPOOL)
    await far.start()
    await join(here, far)
    witness = await Witness.at(far, topic_root)
    publisher = await here.connect()
    payloads = [b"%d" % number for number in range(MESSAGES)]
    publishing = asyncio.create_task(publisher.publish_all(topic_root, payloads, 2))
    unanswered = 0  # before the last life
    for count in KILLS:
        await witness.has(count)
        unanswered += await far.count("injection_unanswered")
        await far.kill()
        await far.start()
    await publishing
    if kind not in SWALLOWS:
        await witness.has(MESSAGES)
    await until(lambda: here.node.links.idle)
    await publisher.publish(topic_root, b"end", 2)
    twice = await witness.twice(b"end")
    assert twice == [] or kind not in ONCE, twice
    first = list(dict.fromkeys(witness.got))
    missing = set(payloads) - set(first)
    if missing:
        assert kind in SWALLOWS, missing
        await far.has_counted("injection_unanswered", len(missing) - unanswered)
    assert first == [payload for payload in payloads if payload not in missing]


async def test_a_client_sends_again_what_the_killed_node_has_not_answered(
    sites: Sites, make_far: MakeFar, topic_root: str
) -> None:
    """QoS 2 with DUP: what had crossed does not cross again, what had not does."""
    far = make_far("mosquitto")
    here = await sites.make("mosquitto", "pf", spool=SPOOL)
    await far.start()
    await join(here, far)
    watcher = await here.connect()
    await watcher.subscribe((topic_root, 2))
    client = await far.connect(topic_root, clean=False)
    for number in range(1, 11):
        client.send(Publish(topic=topic_root, payload=b"%d" % number, qos=2, packet_id=number))
    for _ in range(5):
        await client.packet(PubRec)
    await far.kill()
    await far.start()
    client = await far.connect(topic_root, clean=False)
    for number in range(1, 11):
        client.send(Publish(topic=topic_root, payload=b"%d" % number, qos=2, packet_id=number, dup=True))
    for number in range(1, 11):
        assert (await client.packet(PubRec)).packet_id == number
    for number in range(1, 11):
        client.send(PubRel(packet_id=number))
        await client.packet(PubComp)
    await client.publish(topic_root, b"end", 2)
    assert [m.payload for m in await watcher.receive_until(b"end")] == [b"%d" % n for n in range(1, 11)]


@pytest.mark.parametrize("clean", [False, True])
async def test_the_will_of_a_client_that_was_accepted_outlives_the_node(
    sites: Sites, make_far: MakeFar, topic_root: str, clean: bool
) -> None:
    """Killed as soon as the client has its CONNACK; or as soon as the broker has its DISCONNECT."""
    far = make_far("mosquitto", limits={"will_grace": 0.2})
    here = await sites.make("mosquitto", "pf", spool=SPOOL)
    await far.start()
    await join(here, far)
    watcher = await here.connect()
    await watcher.subscribe((f"{topic_root}/#", 1))
    will = Will(topic=f"{topic_root}/will", payload=b"gone", qos=1)
    client = await far.connect(will=will)
    if clean:
        client.send(Disconnect())
        await client.wait_closed()
    await far.kill()
    await far.start()
    other = await far.connect(will=Will(topic=f"{topic_root}/other", payload=b"gone", qos=1))
    await far.kill()
    await far.start()
    assert other.closed.is_set()
    came = [message.topic for message in await watcher.receive_all(1 if clean else 2)]
    assert sorted(came) == sorted([f"{topic_root}/other", *([] if clean else [f"{topic_root}/will"])])


async def test_a_subscription_that_was_granted_outlives_the_node(
    sites: Sites, make_far: MakeFar, topic_root: str
) -> None:
    """Killed as soon as the client of a persistent session has its SUBACK."""
    far = make_far("mosquitto", "sf")
    here = await sites.make("mosquitto", "sf", spool=SPOOL)
    await far.start()
    await join(here, far)
    client = await far.connect(topic_root, clean=False)
    await client.subscribe((topic_root, 1))
    await far.kill()
    publisher = await here.connect()
    await publisher.publish(topic_root, b"while away", 1)
    await far.start()
    await until(lambda: linked(here, far))
    await until(lambda: here.node.links.links[far.name].interest == {topic_root: 1})
    await publisher.publish(topic_root, b"back", 1)
    client = await far.connect(topic_root, clean=False)
    got = [message.payload for message in await client.receive_all(2)]
    assert got == [b"while away", b"back"]
    await client.unsubscribe(topic_root)
