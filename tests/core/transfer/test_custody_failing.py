"""While the disk fails: QoS 2 that would come twice waits, for a bounded time, and all else goes on."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import Publish, PubRel, SubAck, Subscribe, Subscription
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.disk_spool import DiskSite

WAIT = 5.0
"""Its spool tries again every two seconds."""


def sites(world: World, names: str, **link: Any) -> list[DiskSite]:
    spooling = {"failure_wait": WAIT, "segment_bytes": 64 << 10, "bytes": 1 << 20}
    made = [DiskSite(world, name, "pf", spooling, link=link) for name in names]
    for before, site in itertools.pairwise(made):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return made


def fail(site: DiskSite) -> None:
    site.disk.fails |= dict.fromkeys(("create", "write", "truncate", "sync"), errno.EIO)


def publish(client: MiniClient, payload: bytes, qos: int, packet_id: int) -> None:
    """Of QoS 2 with its release, which a client may send at once where it does not wait."""
    client.send(Publish(topic="t", payload=payload, qos=qos, packet_id=packet_id if qos else None))
    if qos == 2:
        client.transport.world.run(0.01)
        client.send(PubRel(packet_id=packet_id))


def got(site: DiskSite) -> list[bytes]:
    """What the node has given to its broker."""
    own = f"ildm-{site.name}-0"
    return [packet.payload for client_id, packet in site.broker.published if client_id == own]


def unguarded(site: DiskSite) -> tuple[int, int]:
    counters = site.node.counters
    return counters["link_unguarded"], counters["injection_unguarded"]


def test_at_the_receiving_node_qos_2_waits_and_the_rest_goes_past_it(world: World) -> None:
    a, b = sites(world, "ab")
    fail(b)
    client = a.client("p")
    for number, qos in enumerate((2, 1, 2, 0), 1):
        publish(client, b"%d" % qos, qos, number)
    world.run(WAIT - 2)
    assert got(b) == [b"1", b"0"]
    b.disk.fails.clear()
    world.run(3)
    assert got(b) == [b"1", b"0", b"2", b"2"]
    assert unguarded(b) == (0, 0)
    assert a.node.counters["link_unanswered"] == 0


def test_then_it_goes_all_the_same_and_is_counted(world: World) -> None:
    a, b = sites(world, "ab")
    fail(b)
    client = a.client("p")
    publish(client, b"waits", 2, 1)
    world.run(WAIT + 1)
    assert got(b) == [b"waits"]
    assert unguarded(b) == (0, 1)
    publish(client, b"waits no more", 2, 2)
    world.run(1)
    assert got(b) == [b"waits", b"waits no more"]
    assert unguarded(b) == (0, 2)
    b.disk.fails.clear()
    world.run(3)
    fail(b)
    publish(client, b"waits again", 2, 3)
    world.run(WAIT - 2)
    assert got(b)[2:] == []


def test_at_the_node_where_it_begins_nothing_goes_past_it_but_what_keeps_the_link(world: World) -> None:
    a, b = sites(world, "ab", keep_alive=1)
    fail(a)
    client = a.client("p")
    for number, qos in enumerate((2, 1, 0), 1):
        publish(client, b"%d" % qos, qos, number)
    world.run(WAIT - 2)
    assert got(b) == []
    assert a.node.counters["links_lost"] == b.node.counters["links_lost"] == 0
    assert b.node.links.links["a"].open_sessions
    world.run(2)
    assert got(b)[0] == b"2"
    assert sorted(got(b)[1:]) == [b"0", b"1"]
    assert unguarded(a) == (1, 0)


def test_what_another_node_has_numbered_is_passed_on_at_once(world: World) -> None:
    a, b, c = sites(world, "abc")
    fail(b)
    publish(a.client("p"), b"from a", 2, 1)
    world.run(WAIT - 2)
    assert got(c) == [b"from a"]
    assert got(b) == []
    b.disk.fails.clear()
    world.run(3)
    assert got(b) == [b"from a"]


@pytest.mark.parametrize("failing", ["a", "b"])
def test_a_node_killed_meanwhile_gives_nothing_twice(world: World, failing: str) -> None:
    a, b = sites(world, "ab")
    there = {"a": a, "b": b}[failing]
    fail(there)
    client = a.client("p")
    publish(client, b"once", 2, 1)
    world.run(WAIT - 2)
    assert got(b) == []
    there.disk.fails.clear()
    there.reborn("a" if failing == "b" else "b")
    if failing == "a":  # its client has no answer, and sends it again
        publish(a.client("p"), b"once", 2, 1)
    world.run(10)
    assert got(b) == [b"once"]


def test_a_connection_that_ends_meanwhile_takes_nothing_with_it(world: World) -> None:
    a, b = sites(world, "ab")
    fail(b)
    publish(a.client("p"), b"once", 2, 1)
    world.run(1)
    b.broker_down()
    b.broker_up()
    world.run(WAIT - 2)
    assert got(b) == []
    b.disk.fails.clear()
    world.run(5)
    assert got(b) == [b"once"]


def test_a_persistent_session_has_no_suback_while_something_here_is_not_kept(world: World) -> None:
    """As its filter would be, in the spool's journal."""
    a, _ = sites(world, "ab")
    fail(a)
    publish(a.client("p"), b"not kept", 1, 1)
    persistent, clean = a.client("kept", clean_start=False), a.client("clean")
    for client in (persistent, clean):
        client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=1)]))
    world.run(WAIT + 1)
    assert clean.got(SubAck)
    assert not persistent.got(SubAck)
    a.disk.fails.clear()
    world.run(3)
    assert persistent.got(SubAck)
    assert a.node.counters["subscribe_waits_expired"] == 0
