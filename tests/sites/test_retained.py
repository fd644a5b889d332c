"""Retained messages end the same at all sites, whatever was set while they were apart."""

from __future__ import annotations

import pytest

from ildm.mqtt import Property, Version
from tests.sites.client import Client, until
from tests.sites.conftest import Proxies, Sites, every_algorithm, trees
from tests.sites.proxy import Proxy
from tests.sites.site import Site, join, joined, settled

pairs = pytest.mark.parametrize(
    "kinds", [("mosquitto", "mosquitto"), ("mosquitto", "activemq"), ("rabbitmq", "moquette")], ids="-".join
)
Pair = tuple[str, str]


async def make(sites: Sites, kinds: Pair, algorithm: str) -> tuple[Site, Site]:
    here = await sites.make(kinds[0], algorithm)
    same = kinds[0] == kinds[1]
    return here, await sites.make(sites.shared_broker(kinds[1], 1 if same else 0), algorithm)


async def held(site: Site, topic: str) -> bytes | None:
    """What a new subscriber gets at a site."""
    # Without the node in between, where that can be: SG-TBPS fetches what a client asks the node for, and
    # Moquette hangs up on quick clients, see Site.connect.
    through = site.has_overlay or site.broker.name == "moquette"
    client = await site.connect() if through else await Client.connect(site.broker.address)
    await client.subscribe((topic, 1))
    probe = await site.connect()
    await settled(site)
    await probe.publish(topic, b"probe", 1)
    before = await client.receive_until(b"probe")
    for one in (client, probe):
        await one.disconnect()
    return before[0].payload if before else None


async def apart(here: Site, there: Site, proxy: Proxy) -> None:
    proxy.cut()
    await until(lambda: not here.link(there).connected and not there.link(here).connected)


async def together(here: Site, there: Site, proxy: Proxy) -> None:
    proxy.mend()
    await joined(here, there)
    await until(lambda: here.node.retained.digest == there.node.retained.digest, "the same retained messages")
    await settled(here, there)


async def publish_later(client: Client, topic: str, payload: bytes, sites: tuple[Site, Site]) -> None:
    """Set a value at a time that is later than that of all others, in the milliseconds of a stamp."""
    last = max(site.node.retained.clock.last for site in sites)
    await until(lambda: all(site.node.driver.wall() * 1000 > last + 1 for site in sites))
    await client.publish(topic, payload, 1, retain=True)


@pairs
async def test_a_value_set_before_the_sites_are_joined(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    here, there = await make(sites, kinds, algorithm)
    publisher = await here.connect()
    await publisher.publish(topic_root, b"early", 1, retain=True)
    assert await held(there, topic_root) is None
    await join(here, there)
    if not here.has_overlay:
        await until(lambda: here.node.retained.digest == there.node.retained.digest)
    await settled(here, there)
    assert await held(there, topic_root) == b"early"
    await publisher.publish(topic_root, b"", 1, retain=True)


@trees
@pairs
async def test_values_set_at_both_sites_of_a_cut_link(
    sites: Sites, proxies: Proxies, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    """The newest wins everywhere, be it a deletion; who listens hears each new value once."""
    here, there = await make(sites, kinds, algorithm)
    proxy = await proxies.join(here, there)
    clients = [await site.connect() for site in (here, there)]
    names = ["mine", "yours", "deleted", "same"]
    for name in names:
        await clients[0].publish(f"{topic_root}/{name}", b"first", 1, retain=True)
    await settled(here, there)
    for client in clients:
        for name in names:
            await client.subscribe((f"{topic_root}/{name}", 1))
            assert (await client.receive()).payload == b"first"
    await settled(here, there)
    await apart(here, there, proxy)
    for name, first, second in (("mine", 1, 0), ("yours", 0, 1)):
        await publish_later(clients[first], f"{topic_root}/{name}", b"older", (here, there))
        await publish_later(clients[second], f"{topic_root}/{name}", b"newer", (here, there))
    await publish_later(clients[1], f"{topic_root}/deleted", b"", (here, there))
    await together(here, there, proxy)
    for site in (here, there):
        assert await held(site, f"{topic_root}/mine") == b"newer"
        assert await held(site, f"{topic_root}/yours") == b"newer"
        assert await held(site, f"{topic_root}/deleted") is None
        assert await held(site, f"{topic_root}/same") == b"first"
    await settled(here, there)
    for client in clients:
        await client.publish(f"{topic_root}/same", b"end", 1)
    for client in clients:
        got = [(m.topic, m.payload) for _ in clients for m in await client.receive_until(b"end")]
        last = {name: [p for t, p in got if t == f"{topic_root}/{name}"] for name in names}
        # probes of the checks above come from both sites
        values = {name: [p for p in payloads if p != b"probe"] for name, payloads in last.items()}
        # the order of different publishers is free, but everybody hears everything, and nothing twice
        assert sorted(values["mine"]) == sorted(values["yours"]) == [b"newer", b"older"]
        assert values["deleted"] == [b""]
        assert values["same"] == []
    for name in names:
        await clients[0].publish(f"{topic_root}/{name}", b"", 1, retain=True)


@every_algorithm
async def test_no_stamp_is_seen_by_clients(sites: Sites, algorithm: str, topic_root: str) -> None:
    """The user property by which nodes tell the newest stays between them."""
    both = await sites.row(["mosquitto", "mosquitto"], algorithm)
    listeners = [await site.connect(version=Version.V5) for site in both]
    for listener in listeners:
        await listener.subscribe((topic_root, 1))
    await settled(*both)
    publisher = await both[0].connect(version=Version.V5)
    users = {Property.USER_PROPERTY: [("mine", "1")]}
    await publisher.publish(topic_root, b"x", 1, retain=True, properties=users)
    await publisher.publish(topic_root, b"y", 1, retain=True)
    for listener in listeners:
        assert [m.properties for m in await listener.receive_all(2)] == [users, {}]
    await settled(*both)
    late = await both[1].connect(version=Version.V5)
    await late.subscribe((topic_root, 1))
    assert (await late.receive()).properties == {}
    await publisher.publish(topic_root, b"", 1, retain=True)
