"""Fig. 5.5, 5.6 and 5.7 of the thesis over real brokers: what crosses each link is counted."""

from __future__ import annotations

import pytest

from tests.sites.client import Client, until
from tests.sites.conftest import Sites, trees
from tests.sites.site import Site, join, settled

FIVE = [("mosquitto", i) for i in range(5)]
MIX = [("mosquitto", 0), ("rabbitmq", 0), ("activemq", 0), ("moquette", 0), ("mosquitto", 1)]
brokers = pytest.mark.parametrize("brokers", [FIVE, MIX], ids=["five-mosquittos", "mix"])

Brokers = list[tuple[str, int]]


async def figure_5_5(sites: Sites, brokers: Brokers, algorithm: str) -> dict[str, Site]:
    """I2 is linked to I1, I3 and I4; I3 to I5."""
    made = {}
    for number, (kind, index) in enumerate(brokers, 1):
        made[f"I{number}"] = await sites.make(sites.shared_broker(kind, index), algorithm)
    for one, other in (("I1", "I2"), ("I2", "I3"), ("I2", "I4"), ("I3", "I5")):
        await join(made[one], made[other])
    await settled(*made.values())
    return made


def transfers(made: dict[str, Site]) -> dict[str, int]:
    """Messages sent over each link so far, by ``from>to``; links without any are left out."""
    names = {site.name: name for name, site in made.items()}
    return {
        f"{name}>{names[link.node_id]}": link.transferred_out
        for name, site in made.items()
        for link in site.node.links.links.values()
        if link.transferred_out
    }


def neighbor_rows(made: dict[str, Site]) -> dict[str, int]:
    """The same as the admin API shows it."""
    names = {site.name: name for name, site in made.items()}
    return {
        f"{name}>{names[row['node_id']]}": row["transferred_out"]
        for name, site in made.items()
        for row in site.server.admin.view.neighbors()
        if row["transferred_out"]
    }


async def play(made: dict[str, Site], topic: str) -> tuple[Client, Client, Client]:
    """C1 subscribes at I2, C2 at I3, C3 publishes at I5."""
    c1, c2, c3 = [await made[name].connect() for name in ("I2", "I3", "I5")]
    await c1.subscribe((topic, 1))
    await settled(*made.values())
    await c2.subscribe((topic, 1))
    await settled(*made.values())
    await c3.publish(topic, b"m", 1)
    for client in (c1, c2):
        message = await client.receive()
        assert (message.topic, message.payload, message.qos) == (topic, b"m", 1)
    await settled(*made.values())
    return c1, c2, c3


@brokers
async def test_figure_5_5_publication_flooding(sites: Sites, brokers: Brokers, topic_root: str) -> None:
    made = await figure_5_5(sites, brokers, "pf")
    c1, c2, _ = await play(made, topic_root)
    assert transfers(made) == neighbor_rows(made) == {"I5>I3": 1, "I3>I2": 1, "I2>I1": 1, "I2>I4": 1}
    assert {name: site.node.counters["injected"] for name, site in made.items()} == {
        "I1": 1,
        "I2": 1,
        "I3": 1,
        "I4": 1,
        "I5": 0,
    }
    assert not any(site.node.counters["inter_subscribes"] for site in made.values())
    assert [c1.waiting, c2.waiting] == [0, 0]


@brokers
async def test_figure_5_6_subscription_flooding(sites: Sites, brokers: Brokers, topic_root: str) -> None:
    made = await figure_5_5(sites, brokers, "sf")
    c1, c2, c3 = await play(made, topic_root)
    assert transfers(made) == neighbor_rows(made) == {"I5>I3": 1, "I3>I2": 1}
    # C1: I2 tells I1, I3 and I4, and I3 tells I5; C2: I3 tells I2 alone, as I5 has been told
    assert {name: site.node.counters["inter_subscribes"] for name, site in made.items()} == {
        "I1": 0,
        "I2": 3,
        "I3": 2,
        "I4": 0,
        "I5": 0,
    }
    await c1.unsubscribe(topic_root)
    await settled(*made.values())
    await c3.publish(topic_root, b"n", 1)
    assert (await c2.receive()).payload == b"n"
    await settled(*made.values())
    assert transfers(made) == {"I5>I3": 2, "I3>I2": 1}
    assert [c1.waiting, c2.waiting] == [0, 0]


@trees
@brokers
async def test_every_site_gets_one_copy_from_every_other(
    sites: Sites, brokers: Brokers, algorithm: str, topic_root: str
) -> None:
    made = await figure_5_5(sites, brokers, algorithm)
    clients = {name: await site.connect() for name, site in made.items()}
    for client in clients.values():
        await client.subscribe((f"{topic_root}/+", 1))
    await settled(*made.values())
    for name, client in clients.items():
        await client.publish(f"{topic_root}/{name}", name.encode(), 1)
    for client in clients.values():
        got = await client.receive_all(5)
        assert sorted(m.payload.decode() for m in got) == sorted(made)
    await settled(*made.values())
    assert transfers(made) == {
        "I1>I2": 1,
        "I2>I1": 4,
        "I4>I2": 1,
        "I2>I4": 4,
        "I5>I3": 1,
        "I3>I5": 4,
        "I3>I2": 2,
        "I2>I3": 3,
    }
    assert all(client.waiting == 0 for client in clients.values())


async def test_figure_5_7_adding_and_removing_a_neighbor(sites: Sites, topic_root: str) -> None:
    """C1 at I1 wants t1, C2 at I3 wants t2, C3 at I4 wants t3; then I2 adds I4."""
    made = {f"I{n}": await sites.make(sites.shared_broker("mosquitto", n), "sf") for n in range(1, 5)}
    one, two, three, four = made.values()
    await join(one, two)
    await join(three, two)
    topics = [f"{topic_root}/{n}" for n in (1, 2, 3)]
    clients = [await site.connect() for site in (one, three, four)]
    for client, topic in zip(clients, topics, strict=True):
        await client.subscribe((topic, 1))
    await settled(*made.values())
    assert two.link(one).interest == {topics[0]: 1}
    assert two.link(three).interest == {topics[1]: 1}
    before = {name: site.node.counters["inter_subscribes"] for name, site in made.items()}
    await join(two, four)
    await settled(*made.values())
    assert four.link(two).interest == {topics[0]: 1, topics[1]: 1}
    assert two.link(four).interest == {topics[2]: 1}
    # I1 and I3 know of each other's wish already, and learn the new one
    assert one.link(two).interest == {topics[1]: 1, topics[2]: 1}
    assert three.link(two).interest == {topics[0]: 1, topics[2]: 1}
    sent = {name: site.node.counters["inter_subscribes"] - before[name] for name, site in made.items()}
    assert sent == {"I1": 0, "I2": 4, "I3": 0, "I4": 1}
    for publisher in clients:
        for topic in topics:
            await publisher.publish(topic, b"m", 1)
    for client, topic in zip(clients, topics, strict=True):
        assert [m.topic for m in await client.receive_all(3)] == [topic] * 3
    two.server.node.links.remove(four.name)
    await until(lambda: four.name not in two.node.links.links and not four.node.links.cooperation.active)
    await settled(*made.values())
    assert one.link(two).interest == {topics[1]: 1}
    assert three.link(two).interest == {topics[0]: 1}
    assert [client.waiting for client in clients] == [0, 0, 0]
