"""Clients that send on although their acknowledgements wait: read up to a bound, then not until released."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.mqtt import Connect, Disconnect, PingReq, PingResp, Property, PubAck, Publish, PubRec, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

VERSIONS = [Version.V311, Version.V5]
INFLIGHT = 10


def message(number: int, topic: str = "t", qos: int = 1, size: int = 1) -> Publish:
    return Publish(topic=topic, payload=b"x" * size, qos=qos, packet_id=number if qos else None)


def session_of(site: Site) -> Any:
    (session,) = (session for session in site.node.sessions if session.client_id == "c")
    return session


def at_broker(site: Site) -> list[int | None]:
    return [packet.packet_id for client_id, packet in site.broker.published if client_id == "c"]


def acknowledged(client: MiniClient) -> list[int]:
    return [packet.packet_id for packet in client.packets if isinstance(packet, PubAck | PubRec)]


# one by one, as a run, and too large to come at once: each has a way of its own through the session
KINDS = ("mixed", "run", "large")


def packets(kind: str, version: Version, count: int = 25) -> list[Publish]:
    if kind == "large":
        return [message(number, size=8000) for number in range(1, count + 1)]
    return [message(number, qos=1 + number % 2 * (kind == "mixed")) for number in range(1, count + 1)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_read_up_to_the_bound_and_goes_on_when_released(
    world: World, version: Version, kind: str, together: bool
) -> None:
    site, other = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = site.client("c", version=version)
    session = session_of(site)
    session.acks.hold("full")
    sent = packets(kind, version)
    if together:
        client.transport.write(b"".join(packet.encode(version) for packet in sent))
    else:
        for packet in sent:
            client.send(packet)
            world.run(0.01)
    client.send(PingReq())
    world.run(5)
    assert at_broker(site) == list(range(1, INFLIGHT + 1))
    assert acknowledged(client) == client.got(PingResp) == []
    assert session.paused
    assert not client.closed
    assert site.node.counters["clients_unread"] == 1
    session.acks.release("full")
    world.run(5)
    assert at_broker(site) == acknowledged(client) == list(range(1, 26))
    assert len(client.got(PingResp)) == 1
    assert not session.paused
    assert site.node.counters["clients_over_inflight"] == 0
    assert len(other.broker.topics()) == 25


def test_what_needs_no_acknowledgement_passes_until_more_comes_that_does(world: World) -> None:
    a, _ = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = a.client("c")
    session_of(a).acks.hold("full")
    for number in range(1, INFLIGHT + 1):
        client.send(message(number))
    client.send(message(0, qos=0))
    client.send(PingReq())
    world.run(1)
    assert len(at_broker(a)) == INFLIGHT + 1
    assert client.got(PingResp)
    assert not session_of(a).paused


def test_bytes_are_bounded_too(world: World) -> None:
    a, _ = row(world, "ab", "pf", link={"inflight": 1000, "inflight_bytes": 64 << 10})
    client = a.client("c")
    session = session_of(a)
    session.acks.hold("full")
    client.transport.write(b"".join(message(n, size=10_000).encode(Version.V311) for n in range(1, 30)))
    world.run(1)
    assert at_broker(a) == [1, 2, 3, 4, 5, 6]
    session.acks.release("full")
    world.run(1)
    assert acknowledged(client) == list(range(1, 30))


def test_held_again_it_is_read_up_to_the_bound_again(world: World) -> None:
    a, _ = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = a.client("c")
    session = session_of(a)
    session.acks.hold("full")
    for number in range(1, 26):
        client.send(message(number))
    world.run(1)
    session.acks.release("full")
    session.acks.hold("full again")  # before what was put off has had its turn
    world.run(1)
    assert at_broker(a) == list(range(1, 21))
    assert acknowledged(client) == list(range(1, 11))
    session.acks.release("full again")
    world.run(1)
    assert acknowledged(client) == list(range(1, 26))
    assert a.node.counters["clients_unread"] == 2


def test_the_broker_does_not_miss_it(world: World) -> None:
    """MQTT-3.1.2-22: silence of one and a half times the keep alive ends a client."""
    a, _ = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = a.client(connect=Connect(client_id="c", keep_alive=30))
    session = session_of(a)
    session.acks.hold("full")
    for number in range(1, 26):
        client.send(message(number))
    world.run(1)
    connection = a.broker.of("c")
    for _ in range(10):
        before = len(connection.received)
        world.run(44)
        assert [type(packet) for packet in connection.received[before:]].count(PingReq) >= 1
    assert not client.closed
    assert client.got(PingResp) == []
    session.acks.release("full")
    world.run(1)
    before = len(connection.received)
    world.run(60)
    assert connection.received[before:] == []
    assert acknowledged(client) == list(range(1, 26))


@pytest.mark.parametrize("count", [10, 11])
def test_of_mqtt_5_it_is_ended_beyond_the_receive_maximum_it_was_told(world: World, count: int) -> None:
    a, b = row(world, "ab", "pf", link={"inflight": 100})
    a.broker.connack[Property.RECEIVE_MAXIMUM] = 10
    client = a.client("c", version=Version.V5)
    session = session_of(a)
    session.acks.hold("full")
    client.transport.write(b"".join(message(n).encode(Version.V5) for n in range(1, count + 1)))
    world.run(1)
    assert [packet.reason_code for packet in client.got(Disconnect)] == ([0x93] if count > 10 else [])
    assert client.closed == (count > 10)
    assert at_broker(a) == list(range(1, 11))
    assert len(b.broker.topics()) == 10
    assert a.node.counters["clients_over_inflight"] == count - 10


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_of_one_that_goes_what_it_has_sent_is_passed_on(
    world: World, says_goodbye: bool, noticed: bool
) -> None:
    a, _ = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = a.client("c")
    session = session_of(a)
    session.acks.hold("full")
    data = b"".join(message(n).encode(Version.V311) for n in range(1, 26))
    client.transport.write(data + (Disconnect().encode(Version.V311) if says_goodbye else b""))
    world.run(1)
    if noticed:  # as something could not be written to it
        session.transport.abort()
    else:  # who does not read does not hear of the end either
        client.transport.abort()
        world.run(1)
        assert at_broker(a) == list(range(1, 11))
        session.acks.release("full")
    world.run(10)
    assert at_broker(a) == list(range(1, 26))
    assert session.relay.clean == says_goodbye
    assert session not in a.node.sessions
    assert not [each for each in a.broker.connections if each.client_id == "c"]


@pytest.mark.parametrize("how", ["kick", "drain", "broker"])
def test_one_that_waits_can_be_ended(world: World, how: str) -> None:
    a, _ = row(world, "ab", "pf", link={"inflight": INFLIGHT})
    client = a.client(connect=Connect(client_id="c", keep_alive=30))
    session = session_of(a)
    session.acks.hold("full")
    client.transport.write(b"".join(message(n).encode(Version.V311) for n in range(1, 26)))
    world.run(1)
    if how == "kick":
        session.kick()
    elif how == "drain":
        session.move_off()
    else:
        connection = a.broker.of("c")
        connection.transport.close()
    world.run(20)
    assert client.closed
    assert session not in a.node.sessions
    assert at_broker(a) == list(range(1, 11))
