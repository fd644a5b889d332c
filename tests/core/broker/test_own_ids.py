"""Client identifiers of the node's own sessions, before brokers that do not take all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.broker.own_ids import OwnIds
from ildm.mqtt import ConnAck, Connect, Publish, PubRel, Subscribe, Version
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site

LETTERS_AND_DIGITS = re.compile("[0-9a-zA-Z]{1,23}")
SAID = "the broker refuses the client identifier; the node's own sessions get short ones"
PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "3.1.1", "5"])


def is_plain(client_id: str) -> bool:
    """What MQTT-3.1.3-5 makes every broker take, and no more."""
    return LETTERS_AND_DIGITS.fullmatch(client_id) is not None


def connects(site: Site) -> list[str]:
    """Client identifiers of all CONNECTs that reach a site's broker from now on, in order."""
    seen: list[str] = []
    taken = site.broker.takes_id

    def takes(client_id: str) -> bool:
        seen.append(client_id)
        return taken(client_id)

    site.broker.takes_id = takes
    return seen


def sites(
    world: World,
    takes: Callable[[str], bool] = is_plain,
    protocol: str = "auto",
    speaks_5: bool = True,
    **settings: Any,
) -> tuple[Site, Site]:
    """Two sites, the broker of the second of which takes few client identifiers from the first on."""
    a, b = (
        Site(
            world,
            name,
            "sf",
            spool=MemorySpool(),
            broker={"address": f"{name}:3", "protocol": protocol},
            **settings,
        )
        for name in "ab"
    )
    b.broker.takes_id = takes
    b.broker.make = PLAIN._replace(speaks_5=speaks_5)
    b.node.links.add(Address("a", 2), False)
    world.run(10)
    return a, b


@pytest.mark.parametrize("node_id", ["a", "x" * 64, "site-ä", "Site.1", "ildm"])
def test_short_ones_are_what_every_broker_must_allow(node_id: str) -> None:
    ids = OwnIds(node_id, 64, lambda *args, **fields: None)
    usual = {ids.of(63), ids.of("audit"), ids.of("probe"), ids.of("same"), ids.of("older")}
    assert ids.refused(ids.of(0), 0x85)
    short = {ids.of(63), ids.of("audit"), ids.of("probe"), ids.of("same"), ids.of("older")}
    assert all(map(is_plain, short))
    assert not any(map(is_plain, usual))
    assert len(ids.all) == 2 * 68
    assert all(map(is_plain, {each for each in ids.all if ids.is_short(each)}))
    again = OwnIds(node_id, 1, lambda *args, **fields: None)
    again.short = True
    assert again.of(0) == ids.of(0)
    other = OwnIds(f"{node_id}2", 1, lambda *args, **fields: None)
    other.short = True
    assert not other.all & ids.all


@pytest.mark.parametrize("code", [0x03, 0x04, 0x05, 0x80, 0x84, 0x87, 0x88, 0x97])
def test_other_refusals_change_none(code: int) -> None:
    ids = OwnIds("a", 1, lambda *args, **fields: None)
    assert not ids.refused(ids.of(0), code)
    assert ids.of(0) == "ildm-a-0"


@pytest.mark.parametrize(
    ("protocol", "speaks_5"),
    [("auto", True), ("auto", False), ("3.1.1", True), ("3.1.1", False), ("5", True)],
)
def test_a_broker_of_letters_and_digits_gets_what_crosses(protocol: str, speaks_5: bool) -> None:
    world = World()
    a, b = sites(world, protocol=protocol, speaks_5=speaks_5, link={"sessions": 2})
    assert b.node.reach.down_reason is None
    own = {each.client_id for each in b.broker.connections}
    assert len(own) == 3
    assert own <= b.node.injector.client_ids
    version = Version.V5 if speaks_5 else Version.V311
    sub = b.subscriber("t/#", "sub1", version=version)
    a.client("p").send(Publish(topic="t/1", payload=b"x", qos=1, packet_id=1))
    world.run(2)
    assert [packet.payload for packet in sub.got(Publish)] == [b"x"]


def test_what_the_broker_keeps_is_compared_as_well() -> None:
    world = World()
    a, b = sites(world)
    b.subscriber("t/#", "sub")
    a.client("p").send(Publish(topic="t/1", payload=b"x", retain=True))
    world.run(5)
    b.broker.crash(keeps=False)
    world.run(10)
    assert b.broker.retained["t/1"].payload == b"x"


def test_only_sessions_that_need_one_get_a_short_one() -> None:
    """``ildm-NODE-0`` has 23 bytes, ``ildm-NODE-audit`` and ``-probe`` more."""
    world = World()
    name = "n" * 16
    broker = {"address": f"{name}:3", "protocol": "5"}
    site = Site(world, name, "sf", spool=MemorySpool(), broker=broker)
    site.broker.takes_id = lambda client_id: len(client_id) <= 23
    seen = connects(site)
    world.run(5)
    assert site.node.injector.delivery.known is not None
    site.client("p").send(Publish(topic="t", payload=b"x", retain=True))
    site.broker.crash(keeps=False)
    world.run(20)
    assert f"ildm-{name}-0" in {each.client_id for each in site.broker.connections}
    assert site.broker.retained["t"].payload == b"x"
    assert f"ildm-{name}-audit" not in seen
    assert any(map(is_plain, seen))


@pytest.mark.parametrize(("version", "code"), [(Version.V311, 2), (Version.V5, 0x85)])
@pytest.mark.parametrize("is_strict", [False, True])
def test_no_client_gets_either_of_them(version: Version, code: int, is_strict: bool) -> None:
    world = World()
    _, b = sites(world, is_plain if is_strict else lambda client_id: True)
    before = [each.client_id for each in b.broker.connections]
    for client_id in b.node.injector.client_ids:
        client = b.client(client_id, version=version)
        world.run(1)
        assert [packet.reason_code for packet in client.got(ConnAck)] == [code]
        assert client.closed
    assert [each.client_id for each in b.broker.connections] == before


def test_a_broker_that_takes_neither_gets_both_in_turn() -> None:
    world = World()
    broker = {"address": "a:3", "reconnect_min": 1, "reconnect_max": 10}
    site = Site(world, "a", "sf", broker=broker)
    world.run(5)
    site.broker.takes_id = lambda client_id: False
    seen = connects(site)
    site.broker.crash()
    world.run(100)
    assert "client identifier not valid" in str(site.node.reach.down_reason)
    kinds = [is_plain(each) for each in seen]
    assert kinds == [bool(n % 2) for n in range(len(kinds))]
    assert 10 <= len(seen) <= 60, "pauses grow as on any refusal"
    assert [event for _, event, _ in site.driver.logged].count(SAID) == 1
    site.broker.takes_id = lambda client_id: "-" in client_id
    world.run(20)
    assert [each.client_id for each in site.broker.connections] == ["ildm-a-0"]
    site.broker.takes_id = is_plain
    site.broker.crash()
    world.run(20)
    assert [is_plain(each.client_id) for each in site.broker.connections] == [True]


@PROTOCOLS
def test_a_restart_goes_on_with_the_short_session(protocol: str) -> None:
    """QoS 2: what was under way comes once, as the broker has kept the session."""
    world = World()
    a, b = sites(world, protocol=protocol)
    b.subscriber("t", "sub", clean_start=False)
    b.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
    a.client("p").send(Publish(topic="t", payload=b"x", qos=2, packet_id=1))
    world.run(2)
    seen = connects(b)
    b.kill()
    assert isinstance(b.spool, MemorySpool)
    b.spool = b.spool.next_life()
    b.store = b.store.copy()
    b.broker.takes = lambda _, packet: True
    b.start()
    world.run(20)
    assert [client_id for client_id in seen if "-" in client_id] == []
    payloads = [packet.payload for client_id, packet in b.broker.published if client_id.startswith("ildm")]
    assert payloads == [b"x"]


def test_another_name_at_the_broker_begins_clean() -> None:
    """What the broker holds under a name of earlier must not be taken for what is under way now."""
    world = World()
    _, b = sites(world)
    begun: list[tuple[str, bool]] = []

    def takes(_: object, packet: object) -> bool:
        if isinstance(packet, Connect) and packet.client_id.endswith("0"):
            begun.append((packet.client_id, packet.clean_start))
        return not isinstance(packet, Subscribe)

    b.broker.takes = takes
    b.broker.crash()
    world.run(5)
    assert begun[-1][1] is False
    b.broker.takes_id = lambda client_id: "-" in client_id
    b.broker.crash()
    world.run(5)
    assert (begun[-1][0], begun[-1][1]) == ("ildm-b-0", True)
    b.broker.crash()
    world.run(5)
    assert begun[-1] == ("ildm-b-0", False)
