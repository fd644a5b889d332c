"""Local clients that misbehave, each in one way; an act may last some virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from ildm.config import Address
from ildm.mqtt import (
    Connect,
    Disconnect,
    MqttError,
    Property,
    Publish,
    Unsubscribe,
    Version,
    Will,
    encode_varint,
)
from ildm.testing.virtual.client import MiniClient
from tests.hostile.arena import Arena, subscribe
from tests.support.site import Site

Act = Callable[[Arena, Site, Random], None]

BURST = 3000
_numbers = itertools.count()


class Raw(MiniClient):
    """A client that does not understand what it gets, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = 0

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)


def opened(arena: Arena, site: Site) -> Raw:
    """A TCP connection without CONNECT."""
    client = Raw()
    arena.hostile.append(site.world.connect(Address(site.name, 1), client))
    return client


class Hostile(MiniClient):
    """Ends the connection when it does not understand a thing: its broker may be hostile, too."""

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except MqttError:
            self.transport.abort()


def connected(arena: Arena, site: Site, version: Version = Version.V311, **fields: Any) -> MiniClient:
    client = Hostile(version)
    arena.hostile.append(site.world.connect(Address(site.name, 1), client))
    client.send(Connect(client_id=f"evil{next(_numbers)}", version=version, **fields))
    site.world.run(0.1)
    return client


def never_reads(arena: Arena, site: Site, random: Random) -> None:
    """Subscribes to everything and reads nothing of it, while others publish much."""
    client = connected(arena, site)
    subscribe(client, ["#"])
    arena.world.run(0.1)
    client.transport.pause_reading()
    flood(arena, site, random, 0)


def reads_slowly(arena: Arena, site: Site, random: Random) -> None:
    client = connected(arena, site)
    client.transport.read_rate = 1000.0
    subscribe(client, ["#"])
    arena.world.run(0.1)
    flood(arena, site, random, 1)


def flood(arena: Arena, site: Site, random: Random, qos: int) -> None:
    """Publishes without end at one QoS, and does not wait for anything."""
    client = connected(arena, site, Version.V5)
    size = random.choice([0, 100, 3000])
    for number in range(600):
        packet_id = number % 60000 + 1 if qos else None
        topic = f"flood/{number % 7}"
        client.send(Publish(topic=topic, payload=b"x" * size, qos=qos, packet_id=packet_id))
        if number % 50 == 0:
            arena.world.run(0.001)
    arena.world.run(0.05)


def flood_qos_0(arena: Arena, site: Site, random: Random) -> None:
    flood(arena, site, random, 0)


def flood_qos_1(arena: Arena, site: Site, random: Random) -> None:
    flood(arena, site, random, 1)


def flood_qos_2(arena: Arena, site: Site, random: Random) -> None:
    """Never releases what it has published."""
    flood(arena, site, random, 2)


def half_open(arena: Arena, site: Site, random: Random) -> None:
    """The path breaks in one direction, with the most wanted subscription."""
    client = connected(arena, site)
    subscribe(client, ["#"])
    arena.world.run(0.1)
    (client.transport.other if random.random() < 0.5 else client.transport).mute = True
    flood(arena, site, random, 0)


def many_properties(arena: Arena, site: Site, random: Random) -> None:
    """As many user properties as a packet takes: in PUBLISH, in CONNECT or in the will."""
    count = (arena.here.node.config.limits.packet_size - 300) // 5
    properties: dict[Property, Any] = {Property.USER_PROPERTY: [("", "")] * count}
    kind = random.randrange(3)
    if kind == 0:
        connected(arena, site, Version.V5, properties=properties)
    elif kind == 1:
        will = Will(topic="flood/will", payload=b"x", properties=properties)
        client = connected(arena, site, Version.V5, will=will)
        client.transport.abort()
    else:
        client = connected(arena, site, Version.V5)
        for number in range(20):
            client.send(
                Publish(topic="flood/p", retain=True, qos=1, packet_id=number + 1, properties=properties)
            )
    arena.world.run(0.1)


def many_filters(arena: Arena, site: Site, random: Random) -> None:
    """As many filters as one SUBSCRIBE takes, then as many as one UNSUBSCRIBE does."""
    client = connected(arena, site)
    count = (arena.here.node.config.limits.packet_size - 300) // 8
    filters = [f"{n:05d}" for n in range(count)]
    subscribe(client, filters)
    arena.world.run(0.5)
    client.send(Unsubscribe(packet_id=2, topic_filters=filters))
    arena.world.run(0.5)


def burst_of_subscriptions(arena: Arena, site: Site, random: Random) -> None:
    """One SUBSCRIBE for each of many filters, without waiting for an answer."""
    client = connected(arena, site, keep_alive=0)
    for number in range(BURST):
        subscribe(client, [f"burst/{number}"], number % 65535 + 1)
        if number % 1000 == 999:
            arena.world.run(0.01)
    arena.world.run(0.2)
    if random.random() < 0.5:
        client.transport.abort()


def deep_filters(arena: Arena, site: Site, random: Random) -> None:
    """Filters of hundreds of levels, and a topic as deep."""
    client = connected(arena, site)
    for number in range(40):
        subscribe(client, [f"{number}/" + "/".join("+" * 200)], number + 1)
    client.send(Publish(topic="1/" + "/".join("a" * 200), payload=b"x"))
    arena.world.run(0.1)


def antichain(arena: Arena, site: Site, random: Random) -> None:
    """Filters of which none covers another, and which one topic matches all of."""
    client = connected(arena, site)
    levels = 8
    filters = [
        "/".join("+" if n in chosen else "a" for n in range(levels))
        for chosen in itertools.combinations(range(levels), levels // 2)
    ]
    for start in range(0, len(filters), 100):
        subscribe(client, filters[start : start + 100], start // 100 + 1)
    arena.world.run(0.2)
    for number in range(20):
        client.send(Publish(topic="a/" * (levels - 1) + str(number), payload=b"x"))
    arena.world.run(0.1)


def toggles_everything(arena: Arena, site: Site, random: Random) -> None:
    """Subscribes to ``#`` and unsubscribes, over and over, beside many filters that it covers."""
    client = connected(arena, site)
    subscribe(client, [f"toggle/{n}" for n in range(300)], 1)
    arena.world.run(0.1)
    for number in range(40):
        subscribe(client, ["#"], 2 * number + 10)
        client.send(Unsubscribe(packet_id=2 * number + 11, topic_filters=["#"]))
        if random.random() < 0.2:
            arena.world.run(0.002)
    arena.world.run(0.2)


def garbage(arena: Arena, site: Site, random: Random) -> None:
    """Bytes that mean nothing, before CONNECT, after it or after CONNACK."""
    for _ in range(8):
        client = opened(arena, site)
        if random.random() < 0.6:
            name = f"garbage{next(_numbers)}"
            client.transport.write(Connect(client_id=name).encode(Version.V311))
            if random.random() < 0.7:
                arena.world.run(0.02)
        first = bytes([random.choice([0x00, 0x10, 0x30, 0x34, 0x3F, 0x62, 0x82, 0xA2, 0xE0, 0xF0, 0xFF])])
        length = random.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff", encode_varint(40), b"\x00"])
        client.transport.write(first + length + random.randbytes(random.randrange(200)))
        arena.world.run(0.01)


def cut_anywhere(arena: Arena, site: Site, random: Random) -> None:
    """Packets in pieces, the last of which never comes."""
    for _ in range(5):
        client = opened(arena, site)
        data = Connect(client_id=f"cut{next(_numbers)}").encode(Version.V311)
        data += Publish(topic="cut/t", payload=b"x" * 300, qos=2, packet_id=1).encode(Version.V311)
        data = data[: random.randrange(1, len(data))]
        while data:
            cut = random.randrange(1, 30)
            client.transport.write(data[:cut])
            data = data[cut:]
            arena.world.run(0.002)
        if random.random() < 0.5:
            client.transport.abort()
    arena.world.run(0.05)


def giant_connect(arena: Arena, site: Site, random: Random) -> None:
    """A CONNECT larger than any packet may be, as far as it is taken; and one of a single long id."""
    client = opened(arena, site)
    client.transport.write(b"\x10" + encode_varint(250_000_000) + b"\x00\x04MQTT\x05\x02\x00\x3c")
    for _ in range(40):
        client.transport.write(b"\xff" * 4096)
        arena.world.run(0.001)
    client = opened(arena, site)
    client.transport.write(Connect(client_id="x" * 30_000).encode(Version.V311))
    arena.world.run(0.1)


def connect_storm(arena: Arena, site: Site, random: Random) -> None:
    """Connects and disconnects, over and over; some wait for nothing."""
    for _ in range(60):
        client = opened(arena, site)
        connect = Connect(client_id=f"storm{next(_numbers)}").encode(Version.V311)
        client.transport.write(connect + Disconnect().encode(Version.V311))
        if random.random() < 0.5:
            client.transport.abort()
    arena.world.run(0.1)


def one_id_for_many(arena: Arena, site: Site, random: Random) -> None:
    """Many connections take over each other's session, and have wills."""
    for number in range(40):
        client = opened(arena, site)
        will = Will(topic="flood/will", payload=b"x" * 500, qos=1, retain=True)
        connect = Connect(client_id="same", clean_start=number % 2 == 0, will=will)
        client.transport.write(connect.encode(Version.V311))
        if random.random() < 0.3:
            arena.world.run(0.005)
    arena.world.run(0.1)


def retained_everywhere(arena: Arena, site: Site, random: Random) -> None:
    """Sets and deletes retained messages on ever new topics."""
    client = connected(arena, site)
    for number in range(500):
        payload = b"x" * random.choice([0, 10, 2000])
        client.send(Publish(topic=f"kept/{number}", payload=payload, retain=True))
        if number % 50 == 0:
            arena.world.run(0.005)
    arena.world.run(0.1)


def new_topic_each_time(arena: Arena, site: Site, random: Random) -> None:
    """Long topics that nobody has used before."""
    client = connected(arena, site)
    for number in range(300):
        topic = f"{number}/" + "t" * random.choice([10, 400, 20_000])
        client.send(Publish(topic=topic, payload=b"x"))
        if number % 20 == 0:
            arena.world.run(0.005)
    arena.world.run(0.1)


def takes_all_connections(arena: Arena, site: Site, random: Random) -> None:
    """Opens connections and says nothing; a bound lower than ``limits.clients`` is no bound on one peer."""
    clients = [opened(arena, site) for _ in range(60)]
    arena.world.run(0.05)
    for client in clients[::2]:
        client.transport.abort()


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        never_reads,
        reads_slowly,
        flood_qos_0,
        flood_qos_1,
        flood_qos_2,
        half_open,
        many_properties,
        many_filters,
        burst_of_subscriptions,
        deep_filters,
        antichain,
        toggles_everything,
        garbage,
        cut_anywhere,
        giant_connect,
        connect_storm,
        one_id_for_many,
        retained_everywhere,
        new_topic_each_time,
        takes_all_connections,
    )
}
