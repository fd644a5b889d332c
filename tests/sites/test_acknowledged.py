"""What acknowledgements promise across sites: a SUBACK that messages come, the broker's refusal that they do
not, and what a killed node's clients had left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ildm.config import Address
from ildm.mqtt import Connect, Disconnect, PubAck, Publish, PubRel, Version, Will
from tests.sites.client import Client, until
from tests.sites.conftest import Sites, trees
from tests.sites.process import ProcessSite
from tests.sites.site import join, settled
from tests.sites.test_node_failures import far_joined
from tests.support.brokers import Fleet

ROUNDS = 200
MAKES = ("mosquitto", "rabbitmq", "activemq", "moquette")
ACL = "topic readwrite open/#\ntopic read closed/#\n"


@pytest.mark.parametrize("clean", [True, False])
async def test_what_is_published_right_after_a_suback_arrives(
    sites: Sites, clean: bool, topic_root: str
) -> None:
    """Three sites in a row, subscriber and publisher at its ends; each round has a filter of its own."""
    there, middle, here = await sites.row(["mosquitto", "rabbitmq", "mosquitto"], "sf")
    await settled(there, middle, here)
    subscriber = await there.connect(f"{topic_root}-{clean}".replace("/", ""), clean=clean)
    publisher = await here.connect()
    for number in range(ROUNDS):
        topic = f"{topic_root}/{number}"
        await subscriber.subscribe((topic, 1))
        await publisher.publish(topic, b"%d" % number, 1)
    got = await subscriber.receive_all(ROUNDS)
    assert sorted(int(m.payload) for m in got) == list(range(ROUNDS))
    assert there.node.counters["subscribe_waits_expired"] == 0
    if not clean:
        ended = await there.connect(f"{topic_root}-{clean}".replace("/", ""), clean=True)
        await ended.disconnect()


@trees
@pytest.mark.parametrize("kind", ["mosquitto", "activemq"])
@pytest.mark.parametrize("released", [True, False])
async def test_an_identifier_used_again_too_soon_loses_no_message(
    sites: Sites, algorithm: str, kind: str, released: bool, topic_root: str
) -> None:
    """All in one chunk, against MQTT-2.2.1-3. Whatever the broker delivers of it, the other site delivers."""
    here, there = await sites.row([kind, "mosquitto"], algorithm)
    local, remote = await here.connect(), await there.connect()
    for subscriber in (local, remote):
        await subscriber.subscribe((f"{topic_root}/#", 1))
    await settled(here, there)
    publisher = await here.connect()
    sent: list[Publish | PubRel] = []
    for number in range(5):
        sent.append(Publish(topic=f"{topic_root}/t", payload=b"%d" % number, qos=2, packet_id=1))
        if released:
            sent.append(PubRel(packet_id=1))
    sent.append(PubRel(packet_id=1))
    publisher.send(b"".join(packet.encode(Version.V311) for packet in sent))
    delivered = [message.payload for message in await local.receive_until(b"4")]
    arrived = [message.payload for message in await remote.receive_until(b"4")]
    assert set(delivered) <= set(arrived)
    if released:
        assert delivered == arrived == [b"0", b"1", b"2", b"3"]


@trees
async def test_what_the_broker_denies_reaches_no_other_site(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    """Mosquitto says so in MQTT 5 at QoS 1 and 2; a retained value elsewhere stays as it is."""
    here = await sites.make(await sites.own_broker("mosquitto", acl=ACL), algorithm)
    there = await sites.make("mosquitto", algorithm)
    await join(there, here)
    subscriber = await there.connect()
    await subscriber.subscribe(("closed/#", 2), ("open/#", 2))
    await (await there.connect()).publish("closed/state", b"kept", 1, retain=True)
    assert (await subscriber.receive()).payload == b"kept"
    await settled(here, there)
    client = await here.connect(version=Version.V5)
    for qos in (1, 2):
        for retain in (False, True):
            assert await client.publish("closed/state", b"OPEN", qos, retain=retain) == 0x87
            assert await client.publish("open/state", b"%d" % qos, qos) < 0x80
    await client.publish("open/state", b"end", 2)
    got = await subscriber.receive_until(b"end")
    assert {m.topic for m in got} <= {"open/state"}
    assert here.node.counters["refused_by_broker"] == 4
    late = await there.connect()
    await late.subscribe("closed/#")
    assert (await late.receive()).payload == b"kept"
    await (await there.connect()).publish("closed/state", b"", 1, retain=True)


@pytest.mark.parametrize(
    ("kind", "version"), [("mosquitto", Version.V5), *((kind, Version.V311) for kind in MAKES)]
)
async def test_a_client_that_publishes_and_leaves_without_waiting(
    sites: Sites, kind: str, version: Version, topic_root: str
) -> None:
    here, there = await sites.row([kind, "mosquitto"], "pf")
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/#", 2))
    for number in range(50):
        client = await here.connect(version=version)
        qos = 1 + number % 2
        message = Publish(topic=f"{topic_root}/x", payload=b"%d" % number, qos=qos, packet_id=1)
        client.send(message.encode(version) + Disconnect().encode(version))
        client.transport.close()
    got = await subscriber.receive_all(50)
    assert sorted(int(m.payload) for m in got) == list(range(50))


@pytest.mark.parametrize("kind", ["mosquitto", "rabbitmq"])
async def test_a_client_that_leaves_while_its_broker_stands_still(
    sites: Sites, kind: str, topic_root: str
) -> None:
    """What the broker takes when it goes on crosses all the same; else it would be retained here alone."""
    broker = await sites.own_broker(kind)
    here = await sites.make(broker, "sf")
    there = await sites.make("mosquitto", "sf")
    await join(there, here)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    client = await here.connect()
    for pid in broker.pids():
        os.kill(pid, signal.SIGSTOP)
    try:
        client.send(Publish(topic=topic_root, payload=b"last", qos=1, retain=True, packet_id=1))
        await client.disconnect()
        await asyncio.sleep(3)
    finally:
        for pid in broker.pids():
            os.kill(pid, signal.SIGCONT)
    assert (await subscriber.receive()).payload == b"last"
    assert here.node.counters["unanswered_by_broker"] == 0
    await (await there.connect()).publish(topic_root, b"", 1, retain=True)


async def test_order_is_kept_over_topics_though_the_broker_does_not_answer_in_order(
    sites: Sites, topic_root: str
) -> None:
    """RabbitMQ answers at once what goes to no queue, and what it writes for an absent session later."""
    here, there = await sites.row(["rabbitmq", "mosquitto"], "sf")
    absent = await here.connect(f"{topic_root}-absent".replace("/", ""), clean=False)
    await absent.subscribe((f"{topic_root}/kept", 1))
    await absent.disconnect()
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/+", 1))
    publisher = await here.connect()
    topics = [f"{topic_root}/kept", f"{topic_root}/free"]
    batches = [range(first, first + 20) for first in range(1, 1001, 20)]
    for numbers in batches:
        publisher.send(
            b"".join(
                Publish(topic=topics[n % 2], payload=b"%d" % n, qos=1, packet_id=n).encode(Version.V311)
                for n in numbers
            )
        )
        for _ in numbers:
            await publisher.packet(PubAck)
    got = await subscriber.receive_all(1000)
    assert [int(m.payload) for m in got] == list(range(1, 1001))
    assert here.node.counters["answers_out_of_order"] > 0
    ended = await here.connect(f"{topic_root}-absent".replace("/", ""), clean=True)
    await ended.disconnect()


# a node that is killed ---------------------------------------------------------------------------


@pytest.fixture
async def far(tmp_path: Path, fleet: Fleet) -> AsyncIterator[ProcessSite]:
    """A site whose node is a process; not started."""
    name = f"far{tmp_path.name[-6:]}"
    limits = {"will_grace": 1.0}
    site = ProcessSite(fleet.shared("mosquitto", 1), tmp_path / "far", "sf", name, limits=limits)
    yield site
    if site.process is not None and site.process.returncode is None:
        await site.kill()


async def saved(far: ProcessSite, table: str, count: int) -> None:
    await until(lambda: far.saved_rows(table) == count, f"{count} rows of {table} in the state file")


async def test_the_wills_of_a_killed_nodes_clients_reach_the_other_sites(
    sites: Sites, far: ProcessSite, topic_root: str
) -> None:
    """The status of its clients changes at every site, the retained one, too."""
    here = await sites.make("mosquitto", "sf")
    await far.start()
    here.node.links.add(Address(*far.link_address), False)
    await far_joined(here, far)
    watcher = await here.connect()
    await watcher.subscribe((f"{topic_root}/#", 1))
    clients = {}
    for name in ("gone", "back"):
        topic = f"{topic_root}/{name}"
        will = Will(topic=topic, payload=b"offline", qos=1, retain=True)
        clients[name] = await far.connect(f"{topic_root}-{name}".replace("/", ""), will=will)
        await clients[name].publish(topic, b"online", 1, retain=True)
    assert {m.payload for m in await watcher.receive_all(2)} == {b"online"}
    await saved(far, "wills", 2)
    await far.kill()
    await far.start()
    will = Will(topic=f"{topic_root}/back", payload=b"offline", qos=1, retain=True)
    back = await far.connect(f"{topic_root}-back".replace("/", ""), will=will)
    await far_joined(here, far)
    offline = await watcher.receive_all(2)  # the broker has published both when the node was killed
    assert {m.topic for m in offline} == {f"{topic_root}/gone", f"{topic_root}/back"}
    for client in (await here.connect(), await far.connect()):
        await client.subscribe((f"{topic_root}/gone", 1))
        assert (await client.receive()).payload == b"offline"
    await back.disconnect()
    for name in clients:
        await (await here.connect()).publish(f"{topic_root}/{name}", b"", 1, retain=True)


async def test_a_qos_2_message_sent_again_over_a_killed_node_comes_once(
    sites: Sites, far: ProcessSite, topic_root: str
) -> None:
    here = await sites.make("mosquitto", "sf")
    await far.start()
    here.node.links.add(Address(*far.link_address), False)
    await far_joined(here, far)
    watcher = await here.connect()
    await watcher.subscribe((f"{topic_root}/#", 2))
    name = f"{topic_root}-two".replace("/", "")
    message = Publish(topic=f"{topic_root}/x", payload=b"once", qos=2, packet_id=7)
    client = await Client.open(far.address)
    client.send(Connect(client_id=name, clean_start=False))
    client.send(message)
    assert (await watcher.receive()).payload == b"once"
    await saved(far, "unreleased_messages", 1)
    await far.kill()
    await far.start()
    client = await far.connect(name, clean=False)
    message.dup = True
    client.send(message)
    await far_joined(here, far)
    await client.publish(f"{topic_root}/x", b"end", 1)
    assert await watcher.receive_until(b"end") == []
    await (await far.connect(name)).disconnect()
