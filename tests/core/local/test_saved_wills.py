"""Wills and QoS 2 handshakes over restarts of the node, in order and by kill -9."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.tables import UNRELEASED, WILLS
from ildm.mqtt import Connect, Disconnect, Property, Publish, PubRel, Version, Will
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site, row


def connect(client_id: str = "w", retain: bool = False, delay: int = 0, **fields: Any) -> Connect:
    properties = {Property.WILL_DELAY_INTERVAL: delay} if delay else {}
    return Connect(
        client_id=client_id,
        version=Version.V5,
        will=Will(topic=f"will/{client_id}", payload=b"offline", qos=1, retain=retain, properties=properties),
        **fields,
    )


def killed(site: Site, then: float = 0.5) -> None:
    """The node is killed and started again with what it had saved."""
    site.world.run(0.1)  # until it is handed to the store
    saved = site.store.copy()
    site.kill()
    site.world.run(then)
    site.store = saved
    if isinstance(site.spool, MemorySpool):
        site.spool = site.spool.next_life()
    site.start(("b",))


def wills(site: Site) -> list[str]:
    return [topic for topic in site.broker.topics() if topic.startswith("will/")]


def test_wills_of_clients_that_do_not_come_back_after_a_kill_reach_the_other_sites(world: World) -> None:
    """The broker has published them when the killed node's connections ended, but only locally."""
    a, b = row(world, "ab", "pf")
    a.client(connect=connect("gone"))
    a.client(connect=connect("back"))
    a.client(connect=connect("clean")).send(Disconnect())
    a.client("without")
    world.run(1)
    assert set(a.store.rows(WILLS)) == {("gone",), ("back",)}
    killed(a)
    world.run(2)
    back = a.client(connect=connect("back"))
    world.run(10)
    assert wills(b) == ["will/gone"]
    assert set(a.store.rows(WILLS)) == {("back",)}
    back.send(Disconnect())
    world.run(1)
    assert a.store.rows(WILLS) == {}


def test_with_a_spool_the_will_of_a_client_that_is_back_is_sent_first(world: World) -> None:
    """The broker has published it; what the client says now comes after it."""
    a, b = [Site(world, name, "pf", spool=MemorySpool()) for name in "ab"]
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    client = a.client(connect=connect("w"))
    clean = a.client(connect=connect("clean"))
    clean.send(Disconnect())
    world.run(1)
    assert client.packets
    killed(a)
    world.run(1)
    for name in ("w", "clean"):
        back = a.client(connect=connect(name))
        back.send(Publish(topic=f"will/{name}", payload=b"online", qos=1, packet_id=1))
    world.run(10)
    got = [(p.topic, p.payload) for _, p in b.broker.published if p.topic.startswith("will/")]
    assert got == [("will/w", b"offline"), ("will/w", b"online"), ("will/clean", b"online")]
    assert set(a.store.rows(WILLS)) == {("w",), ("clean",)}


def test_a_retained_will_replaces_the_value_at_every_site(world: World) -> None:
    a, b = row(world, "ab", "sf")
    client = a.client(connect=connect("w", retain=True))
    client.send(Publish(topic="will/w", payload=b"online", retain=True))
    world.run(1)
    killed(a)
    world.run(10)
    for site in (a, b):
        assert site.broker.retained["will/w"].payload == b"offline"
        assert site.node.retained.values["will/w"].message.payload == b"offline"


def test_clients_without_an_identifier_are_not_taken_for_each_other(world: World) -> None:
    a, b = row(world, "ab", "pf")
    a.client(connect=connect(""))
    killed(a)
    again = a.client(connect=connect(""))
    world.run(10)
    assert wills(b) == ["will/"]
    again.send(Disconnect())
    world.run(1)
    assert a.store.rows(WILLS) == {}


def test_a_delayed_will_waits_over_an_orderly_restart(world: World) -> None:
    """Its client has gone before the node is stopped; it is due at its time, once."""
    a, b = row(world, "ab", "pf")
    fields = {"properties": {Property.SESSION_EXPIRY_INTERVAL: 600}}
    a.client(connect=connect("w", delay=60, **fields)).transport.abort()
    world.run(10)
    done: list[bool] = []
    a.node.drain(lambda: done.append(True))
    world.run(5)
    assert done
    assert wills(b) == []
    a.start(("b",))
    world.run(40)
    assert wills(b) == []
    world.run(10)
    assert wills(b) == ["will/w"]
    assert a.store.rows(WILLS) == {}


@pytest.mark.parametrize(("clean", "expected"), [(False, []), (True, ["will/w"])])
def test_who_comes_back_after_a_restart_cancels_its_delayed_will(
    world: World, clean: bool, expected: list[str]
) -> None:
    """But not who ends the session by a clean start (MQTT-3.1.3-9)."""
    a, b = row(world, "ab", "pf")
    fields: dict[str, Any] = {"properties": {Property.SESSION_EXPIRY_INTERVAL: 600}}
    a.client(connect=connect("w", delay=60, **fields))
    killed(a)
    world.run(2)
    client = a.client(connect=Connect(client_id="w", version=Version.V5, clean_start=clean, **fields))
    world.run(100)
    assert wills(b) == expected
    client.send(Disconnect())
    world.run(1)
    assert a.store.rows(WILLS) == {}


def test_a_will_that_becomes_due_when_the_node_has_stopped_is_left_to_the_next_run(world: World) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client(connect=connect())
    a.node.clients.stop()
    client.transport.abort()
    world.run(1)
    assert set(a.store.rows(WILLS)) == {("w",)}
    assert wills(b) == []


def test_a_will_over_the_bound_is_served_but_not_saved(world: World) -> None:
    a, b = row(world, "ab", "pf", limits={"will_bytes": 1024})
    big = connect("big")
    assert big.will is not None
    big.will.payload = bytes(2000)
    client = a.client(connect=big)
    a.client(connect=connect("small"))
    assert set(a.store.rows(WILLS)) == {("small",)}
    assert a.node.counters["wills_not_saved"] == 1
    client.transport.abort()
    world.run(1)
    assert wills(b) == ["will/big"]
    assert a.node.clients.wills.bytes > 0


def test_a_damaged_will_is_set_aside(world: World) -> None:
    a, _ = row(world, "ab", "pf")
    a.kill()
    a.store.put(WILLS, ("x",), (b"\x30", 0, None))
    a.store.put(WILLS, ("y",), (b"\xc0\x00", 0, None))
    a.start(("b",))
    world.run(10)
    assert [key for _, key, _ in a.store.damaged] == [("x",), ("y",)]


def test_without_an_algorithm_no_wills_are_saved(world: World) -> None:
    site = Site(world, "a", None)
    site.client(connect=connect())
    assert site.store.rows(WILLS) == {}


# QoS 2 ------------------------------------------------------------------------------------------


def message(number: int, dup: bool = False) -> Publish:
    return Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number, dup=dup)


@pytest.mark.parametrize("dup", [True, False])
@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("transfer", ["acknowledged", "received"])
def test_a_qos_2_message_sent_again_after_a_restart_is_not_transferred_twice(
    world: World, how: str, transfer: str, dup: bool
) -> None:
    """Without DUP, too, as paho does it after a second attempt to connect."""
    a, b = row(world, "ab", "pf", link={"transfer": transfer})
    client = a.client("c", clean_start=False)
    for number in (1, 2, 3):
        client.send(message(number))
    world.run(0.05)
    client.send(PubRel(packet_id=2))
    world.run(0.05)
    if how == "killed":
        killed(a)
    else:
        a.node.drain(lambda: None)
        world.run(5)
        a.start(("b",))
    world.run(3)
    assert a.store.rows(UNRELEASED)
    client = a.client("c", clean_start=False)
    for number in (1, 3):
        client.send(message(number, dup=dup))
        client.send(PubRel(packet_id=number))
    client.send(message(2, dup=dup))  # another message: the one before was released
    world.run(1)
    assert [p.payload for i, p in b.broker.published if i.startswith("ildm-")] == [b"1", b"2", b"3", b"2"]
    client.send(PubRel(packet_id=2))
    world.run(1)
    assert a.store.rows(UNRELEASED) == {}


def test_another_message_under_an_identifier_that_was_not_released_is_not_lost(world: World) -> None:
    """What is remembered of the identifier may be older than its release."""
    a, b = row(world, "ab", "pf")
    a.client("c", clean_start=False).send(message(1))
    world.run(0.5)
    killed(a)
    world.run(3)
    client = a.client("c", clean_start=False)
    client.send(Publish(topic="t", payload=b"another", qos=2, packet_id=1, dup=True))
    world.run(1)
    assert [p.payload for i, p in b.broker.published if i.startswith("ildm-")] == [b"1", b"another"]


def test_unreleased_messages_of_clean_sessions_are_not_saved(world: World) -> None:
    a, _ = row(world, "ab", "pf")
    a.client("c").send(message(1))
    world.run(1)
    assert a.store.rows(UNRELEASED) == {}
    a.client("p", clean_start=False).send(message(1))
    world.run(1)
    assert set(a.store.rows(UNRELEASED)) == {("p", 1)}
    a.client("p", clean_start=True)
    world.run(1)
    assert a.store.rows(UNRELEASED) == {}
