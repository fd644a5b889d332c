"""Session state over two sites: takeover, clean start, session present, session expiry, restart of a node."""

from __future__ import annotations

import pytest

from ildm.mqtt import Property, Version
from tests.sites.client import until
from tests.sites.conftest import Sites, every_algorithm
from tests.sites.site import Site, joined, settled

EXPIRY = Property.SESSION_EXPIRY_INTERVAL


async def two(sites: Sites, algorithm: str) -> list[Site]:
    return await sites.row(["mosquitto", "mosquitto"], algorithm)


async def test_takeover_at_the_same_site(sites: Sites, topic_root: str) -> None:
    """The broker closes the older connection (MQTT-3.1.4-3); the interest stays with the new one."""
    here, there = await two(sites, "sf")
    old = await there.connect(topic_root, version=Version.V5, clean=False, properties={EXPIRY: 60})
    await old.subscribe((topic_root, 1))
    await settled(here, there)
    new = await there.connect(topic_root, version=Version.V5, clean=False, properties={EXPIRY: 60})
    assert new.connack.session_present
    await old.wait_closed()
    await settled(here, there)
    assert here.link(there).interest == {topic_root: 1}
    await (await here.connect()).publish(topic_root, b"m", 1)
    assert (await new.receive()).payload == b"m"
    clean = await there.connect(topic_root, version=Version.V5)
    assert not clean.connack.session_present
    await new.wait_closed()
    await settled(here, there)
    assert here.link(there).interest == {}


async def test_the_same_client_id_at_two_sites(sites: Sites, algorithm: str, topic_root: str) -> None:
    """Client identifiers are each broker's own: both connections stay, as with two brokers (no takeover)."""
    both = await two(sites, algorithm)
    clients = [await site.connect(topic_root) for site in both]
    for client in clients:
        await client.subscribe((topic_root, 1))
    await settled(*both)
    for client in clients:
        await client.publish(topic_root, b"m", 1)
    for client in clients:
        assert [m.payload for m in await client.receive_all(2)] == [b"m", b"m"]
        assert not client.closed.is_set()


@every_algorithm
@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
@pytest.mark.parametrize("version", [Version.V31, Version.V311, Version.V5], ids=str)
async def test_messages_published_while_away_arrive_at_the_return(
    sites: Sites, algorithm: str, version: Version, restart: bool, topic_root: str
) -> None:
    """Also when the node of the second site was stopped and started meanwhile (thesis 5.3.3, 5.4.1)."""
    here, there = await two(sites, algorithm)
    queues = not there.has_overlay  # a link in a tree keeps what comes while the node is stopped
    properties = {EXPIRY: 600} if version is Version.V5 else {}
    away = await there.connect(topic_root[:20], version=version, clean=False, properties=properties)
    await away.subscribe((f"{topic_root}/#", 2))
    await settled(here, there)
    away.drop()
    publisher = await here.connect()
    await publisher.publish(f"{topic_root}/1", b"1", 1)
    await settled(here, there)
    if restart:
        await there.stop()
        await until(lambda: not here.is_connected(there))
        if queues:
            await publisher.publish(f"{topic_root}/2", b"2", 1)
        await there.start()
        there.add(here)
        await joined(there, here)
        if not queues:
            await publisher.publish(f"{topic_root}/2", b"2", 1)
    else:
        await publisher.publish(f"{topic_root}/2", b"2", 1)
    await publisher.publish(f"{topic_root}/3", b"3", 2)
    await settled(here, there)
    back = await there.connect(topic_root[:20], version=version, clean=False, properties=properties)
    assert back.connack.session_present is (version is not Version.V31)
    assert [(m.payload, m.qos) for m in await back.receive_all(3)] == [(b"1", 1), (b"2", 1), (b"3", 2)]
    if algorithm == "sf":
        assert here.link(there).interest == {f"{topic_root}/#": 2}
    await publisher.publish(f"{topic_root}/4", b"4", 1)
    assert (await back.receive()).payload == b"4"
    assert back.waiting == 0
    await back.disconnect()
    await (await there.connect(topic_root[:20], version=version)).disconnect()  # a clean start ends it
    await settled(here, there)
    if algorithm == "sf":
        assert here.link(there).interest == {}


async def test_a_clean_session_ends_with_its_connection(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    """MQTT-3.1.2-6 (3.1.1), and MQTT 5 without a session expiry interval."""
    here, there = await two(sites, algorithm)
    for version, clean in ((Version.V311, True), (Version.V5, True), (Version.V5, False)):
        client = await there.connect(topic_root, version=version, clean=clean)
        await client.subscribe((topic_root, 1))
        await settled(here, there)
        await client.disconnect()
        await until(lambda: not there.node.sessions)
        await settled(here, there)
        if algorithm == "sf":
            assert here.link(there).interest == {}
        await (await here.connect()).publish(topic_root, b"m", 1)
        await settled(here, there)
        client = await there.connect(topic_root, version=version, clean=clean)
        assert not client.connack.session_present
        await client.subscribe((topic_root, 1))
        await settled(here, there)
        await client.publish(topic_root, b"end", 1)
        assert await client.receive_until(b"end") == []
        await client.disconnect()


@pytest.mark.parametrize("shortened", [False, True], ids=["connect", "disconnect"])
async def test_session_expiry(sites: Sites, topic_root: str, shortened: bool) -> None:
    """After it neither session nor interest is left (3.1.2.11.2); DISCONNECT may shorten it."""
    here, there = await two(sites, "sf")
    away = await there.connect(
        topic_root, version=Version.V5, clean=False, properties={EXPIRY: 600 if shortened else 1}
    )
    await away.subscribe((topic_root, 1))
    await settled(here, there)
    if shortened:
        await away.disconnect(properties={EXPIRY: 1})
    else:
        away.drop()
        await away.wait_closed()
    await until(lambda: not there.node.sessions)
    assert here.link(there).interest == {topic_root: 1}
    await until(lambda: here.link(there).interest == {}, "the end of the interest")
    assert there.node.counters["sessions_expired"] == 1
    assert there.server.admin.view.status()["persistent_sessions"] == 0
    publisher = await here.connect()
    await publisher.publish(topic_root, b"late", 1)
    assert here.transferred_to(there) == 0


async def test_a_session_that_expires_while_the_node_is_down(sites: Sites, topic_root: str) -> None:
    here, there = await two(sites, "sf")
    away = await there.connect(topic_root, version=Version.V5, clean=False, properties={EXPIRY: 1})
    await away.subscribe((topic_root, 1))
    await settled(here, there)
    away.drop()
    await until(lambda: not there.node.sessions)
    gone_at = there.node.driver.wall()
    await there.stop()
    wall = there.node.driver.wall
    await until(lambda: wall() > gone_at + 1.2)
    await there.start()
    there.add(here)
    await joined(there, here)
    await settled(here, there)
    assert here.link(there).interest == {}
