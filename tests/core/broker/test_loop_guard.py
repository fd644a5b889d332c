"""A node whose broker's address leads back to itself says so, and stops relaying in a circle."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.broker.loop_guard import INTERVAL, SUSPICIOUS
from ildm.core.node import Node
from ildm.mqtt import ConnAck, Connect, ConnectReturnCode, ReasonCode, Version
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World

LIMIT = 2000
"""Clients a node may have: what a circle without an end would use up."""


def node_before(world: World, name: str, broker: str, algorithm: str | None = None) -> Node:
    from ildm_algorithms.pf import PublicationFlooding

    specs = plugin_specs(algorithm, PublicationFlooding) if algorithm else plugin_specs(None)
    node = make_node(world, name, specs, broker={"address": broker}, limits={"clients": LIMIT})
    node.start({})
    return node


def connect(world: World, name: str, client_id: str = "", version: Version = Version.V311) -> MiniClient:
    client = MiniClient(version)
    world.connect(Address(name, 1), client)
    client.transport.write(Connect(client_id=client_id, version=version, clean_start=True).encode())
    return client


def answer(client: MiniClient) -> int | None:
    return next((packet.reason_code for packet in client.got(ConnAck)), None)


def events(node: Node) -> list[str]:
    driver = node.driver
    assert isinstance(driver, WorldDriver)
    return [event for _, event, _ in driver.logged]


@pytest.mark.parametrize("circle", ["a", "ab", "abc"])
@pytest.mark.parametrize("client_id", ["", "me"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_circle_is_noticed_and_ends(circle: str, client_id: str, version: Version) -> None:
    """Of one node, or of several that take each other for their brokers."""
    world = World()
    after = dict(zip(circle, circle[1:] + circle[0], strict=True))
    nodes = [node_before(world, name, f"{after[name]}:1") for name in circle]
    client = connect(world, "a", client_id, version)
    world.run(1)
    unavailable = {
        Version.V311: int(ConnectReturnCode.SERVER_UNAVAILABLE),
        Version.V5: int(ReasonCode.SERVER_UNAVAILABLE),
    }
    assert answer(client) == unavailable[version]
    found = [node for node in nodes if node.counters["broker_loops"]]
    assert found
    for node in found:
        assert node.reach.down_reason == f"{node.broker_address} leads back to this node: see broker.address"
        assert "broker unavailable" in events(node)
    assert all(node.counters["broker_unavailable"] < 3 * SUSPICIOUS for node in nodes)
    world.run(60)
    assert all(node.sessions == set() for node in nodes)
    second = connect(world, "a", client_id, version)
    world.run(1)
    assert answer(second) == unavailable[version]


def test_the_nodes_own_sessions_find_it_without_any_client() -> None:
    world = World()
    node = node_before(world, "a", "a:1", "pf")
    world.run(60)
    assert node.reach.down_reason == "a:1 leads back to this node: see broker.address"
    assert events(node).count("broker unavailable") <= 2
    assert len(node.sessions) <= 2


def test_it_goes_on_when_the_circle_is_broken() -> None:
    """Such as by starting the broker where another node was."""
    world = World()
    node = node_before(world, "a", "b:1")
    other = node_before(world, "b", "a:1")
    client = connect(world, "a")
    world.run(1)
    assert answer(client) == int(ConnectReturnCode.SERVER_UNAVAILABLE)
    assert node.counters["broker_loops"] + other.counters["broker_loops"] >= 1
    world.listen(Address("b", 1), Broker().connection)
    world.run(3 * INTERVAL)
    assert node.reach.down_reason is None
    client = connect(world, "a")
    world.run(1)
    assert answer(client) == 0


def test_a_crowd_of_equal_clients_is_no_circle() -> None:
    """They have no identifier, come at once, and the broker does not answer: it is asked once."""
    world = World()
    broker = Broker()
    seen: list[str] = []
    broker.takes = lambda _, packet: seen.append(packet.client_id) is not None
    world.listen(Address("x", 3), broker.connection)
    node = node_before(world, "a", "x:3")
    for _ in range(200):
        connect(world, "a")
    world.run(INTERVAL)
    assert len(seen) == 201
    assert sum(client_id.startswith("ildm-loop-") for client_id in seen) == 1
    assert node.reach.down_reason is None
    assert node.counters["broker_loops"] == 0
    assert len(node.sessions) == 200
