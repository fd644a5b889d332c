"""Packets that come in parts: relayed as they come, whole for whom needs them whole, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ildm.api import Filter, Session, Source
from ildm.config import Address
from ildm.mqtt import (
    Connect,
    Disconnect,
    Framer,
    PacketType,
    Property,
    PubAck,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
    decode,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import Keeper, keeper_at
from tests.support.site import Site, row

LARGE = bytes(range(256)) * 800


def parts(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


# relayed as it comes ------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [None, "pf", "sf"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize(
    ("qos", "retain", "alias"), [(0, False, False), (1, False, False), (2, False, False), (1, True, True)]
)
def test_a_large_message_is_relayed_as_it_comes_and_crosses_when_it_is_whole(
    world: World, algorithm: str | None, version: Version, qos: int, retain: bool, alias: bool
) -> None:
    """Its client may take longer than its keep alive: the broker sees it alive all the time."""
    if algorithm is None:
        a = Site(world, "a", None)
    else:
        a, b = row(world, "ab", algorithm)
        b.subscriber("t", qos=qos)
    client = a.client("c", version=version)
    properties = {Property.TOPIC_ALIAS: 1} if alias and version is Version.V5 else {}
    message = Publish(
        topic="t", payload=LARGE, qos=qos, retain=retain, packet_id=1 if qos else None, properties=properties
    )
    frame = message.encode(version)
    before = Publish(topic="t", payload=b"before").encode(version)
    to_broker = a.broker.of("c")
    arrived = len(to_broker.transport.other.written)
    client.transport.write(before)
    sent = len(before)
    for part in parts(frame, 20_000):
        client.transport.write(part)
        sent += len(part)
        world.run(1)
        assert len(to_broker.transport.other.written) - arrived == sent
    client.send(Publish(topic="t", payload=b"after"))
    world.run(1)
    payloads = [packet.payload for client_id, packet in a.broker.published if client_id == "c"]
    assert payloads == [b"before", LARGE, b"after"]
    if algorithm is not None:
        assert [p.payload for i, p in b.broker.published if i.startswith("ildm-")] == payloads
    assert a.node.partials.bytes == 0


def test_a_large_message_that_nobody_wants_elsewhere_is_not_kept(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.subscriber("wanted")
    clients = {topic: a.client(topic) for topic in ("wanted", "unwanted")}
    for topic, client in clients.items():
        client.transport.write(Publish(topic=topic, payload=LARGE).encode(Version.V311)[:100_000])
    world.run(1)
    assert a.node.partials.bytes == 100_000
    for client in clients.values():
        client.transport.abort()
    world.run(1)
    assert a.node.partials.bytes == 0


def test_a_packet_over_the_limit_is_refused_by_its_header(world: World) -> None:
    a, b = row(world, "ab", "pf", limits={"packet_size": 100_000})
    keeper = keeper_at(a)
    client = a.client("c", version=Version.V5)
    good = Publish(topic="t", payload=bytes(90_000)).encode(Version.V5)
    client.transport.write(good + Publish(topic="t", payload=bytes(100_001)).encode(Version.V5)[:20_000])
    world.run(1)
    assert [packet.reason_code for packet in client.got(Disconnect)] == [0x95]
    assert keeper.raw["c"] == good
    assert b.broker.topics() == ["t"]


def test_what_a_client_may_not_send_is_refused_by_its_header(world: World) -> None:
    site = Site(world, "a", "pf")
    keeper = keeper_at(site)
    client = site.client("c", version=Version.V5)
    client.transport.write(b"\x36\xff\xff\x3f" + bytes(10_000))  # QoS 3
    world.run(1)
    assert [packet.reason_code for packet in client.got(Disconnect)] == [0x81]
    assert keeper.raw["c"] == b""


# bounds -------------------------------------------------------------------------------------------


def test_all_incomplete_messages_together_are_bounded(world: World) -> None:
    """The one begun first gives way: it stays with its broker, counted."""
    a, b = row(world, "ab", "pf", limits={"partial_bytes": 605_000})
    clients = [a.client(f"c{i}") for i in range(4)]
    frames = [Publish(topic=f"t{i}", payload=LARGE).encode(Version.V311) for i in range(4)]
    for client, frame in zip(clients, frames, strict=True):
        client.transport.write(frame[:200_000])
        world.run(1)
    assert a.node.partials.bytes == 600_000
    assert a.node.counters["transfer_dropped_partial"] == 1
    for client, frame in zip(clients[:3], frames, strict=False):
        client.transport.write(frame[200_000:])
        world.run(1)
    assert b.broker.topics() == ["t1", "t2"]
    assert [packet.topic for _, packet in a.broker.published] == ["t0", "t1", "t2"]
    clients[0].transport.write(frames[0])
    world.run(1)
    clients[3].transport.write(frames[3][200_000:])
    world.run(1)
    assert b.broker.topics() == ["t1", "t2", "t0", "t3"]
    assert a.node.partials.bytes == 0


def test_an_alias_is_forgotten_with_a_copy_that_was_given_up(world: World) -> None:
    a, b = row(world, "ab", "pf", limits={"partial_bytes": 100_000})
    client = a.client("c", version=Version.V5)
    alias = {Property.TOPIC_ALIAS: 1}
    client.send(Publish(topic="one", properties=alias))
    client.send(Publish(topic="two", payload=LARGE, properties=alias))
    world.run(1)
    client.send(Publish(topic="", properties=alias))
    world.run(1)
    assert b.broker.topics() == ["one"]
    assert a.node.counters["transfer_dropped_partial"] == 1
    assert a.node.counters["transfer_dropped_unusable"] == 1


def test_who_holds_the_oldest_packet_that_cannot_be_relayed_in_part_is_ended(world: World) -> None:
    a, _ = row(world, "ab", "pf", limits={"partial_bytes": 150_000})
    clients = [a.client(f"c{i}", version=Version.V5) for i in range(2)]
    wanted = [Subscription(topic_filter=f"{i}/" + "x" * 60_000) for i in range(4)]
    frame = Subscribe(packet_id=1, subscriptions=wanted).encode(Version.V5)
    for client in clients:
        client.transport.write(frame[:100_000])
        world.run(1)
    assert [end.reason_code for end in clients[0].got(Disconnect)] == [0x97]
    assert clients[0].closed
    assert not clients[1].closed
    clients[1].transport.write(frame[100_000:150_001])
    world.run(1)
    assert [end.reason_code for end in clients[1].got(Disconnect)] == [0x97]
    assert a.node.partials.bytes == 0
    assert a.node.counters["packets_over_limit"] == 2


# packets of the node's own ------------------------------------------------------------------------


class Nothing(Filter):
    """Drops what the broker sends."""

    wants = frozenset({(Source.BROKER, PacketType.PUBLISH)})

    def filter(self, session: Session, frame: bytes) -> bytes | None:
        return None


def test_the_node_answers_for_a_client_between_its_packets(world: World) -> None:
    keeper = Keeper()
    world.listen(Address("a", 3), keeper.connection)
    node = make_node(world, "a", plugin_specs(None, filters=[("nothing", Nothing)]))
    node.start({})
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id="c"))
    world.run(1)
    frame = Publish(topic="t", payload=LARGE).encode(Version.V311)
    client.transport.write(frame[:50_000])
    world.run(1)
    keeper.connections[0].send(Publish(topic="x", payload=b"x", qos=1, packet_id=7))
    world.run(1)
    assert len(keeper.raw["c"]) == 50_000
    ping = b"\xc0\0"
    client.transport.write(frame[50_000:] + ping)
    world.run(1)
    assert keeper.raw["c"] == frame + PubAck(packet_id=7).encode(Version.V311) + ping


@pytest.mark.parametrize("finishes", [True, False])
def test_a_client_is_moved_off_between_its_packets(world: World, finishes: bool) -> None:
    a, b = row(world, "ab", "pf", limits={"drain_timeout": 5})
    b.subscriber("#")
    keeper = keeper_at(a)
    client = a.client("c")
    frame = Publish(topic="t", payload=LARGE).encode(Version.V311)
    client.transport.write(frame[:50_000])
    world.run(1)
    finished: list[bool] = []
    a.node.drain(lambda: finished.append(True))
    world.run(1)
    assert not client.closed
    if finishes:
        client.transport.write(frame[50_000:] + b"\xc0\0")
    world.run(5)
    assert client.closed
    assert finished
    assert keeper.raw["c"] == (frame + Disconnect().encode(Version.V311) if finishes else frame[:50_000])
    assert b.broker.topics() == (["t"] if finishes else [])


# the end of what a client sends ---------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [None, "pf"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("shut", ["half", "whole"])
@pytest.mark.parametrize("size", [10, 200_000])
def test_what_a_client_sends_before_it_goes_arrives(
    world: World, algorithm: str | None, version: Version, shut: str, size: int
) -> None:
    """CONNECT, PUBLISH and DISCONNECT in one, and it is gone before the broker has answered."""
    sites = [Site(world, "a", None)] if algorithm is None else row(world, "ab", algorithm)
    client = MiniClient(version)
    world.connect(Address("a", 1), client)
    will = Will(topic="will", payload=b"")
    data = Connect(client_id="c", version=version, will=will).encode()
    data += Publish(topic="t", payload=bytes(size), qos=1, packet_id=1).encode(version)
    client.transport.write(data + Disconnect().encode(version))
    if shut == "half":
        world.run(0.0005)
        client.transport.write_eof()
    else:
        client.transport.close()
    world.run(2)
    for site in sites:
        assert [packet.topic for _, packet in site.broker.published] == ["t"]
    assert not sites[0].node.sessions
    assert not [c for c in sites[0].broker.connections if c.client_id == "c"]
    if shut == "half":
        assert len(client.got(PubAck)) == 1


def test_a_client_that_goes_without_disconnect_leaves_its_will(world: World) -> None:
    _, b = row(world, "ab", "pf")
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id="c", will=Will(topic="will", payload=b"")))
    client.send(Publish(topic="t", payload=b"x"))
    world.run(0.0005)
    client.transport.write_eof()
    world.run(2)
    assert b.broker.topics() == ["t", "will"]
    assert client.closed


def test_a_broker_that_does_not_close_is_not_waited_for_for_ever(world: World) -> None:
    site = Site(world, "a", None)
    keeper_at(site)
    client = site.client("c")
    to_broker = next(iter(site.node.sessions)).paired
    assert to_broker is not None
    far = to_broker.transport.other  # type: ignore[union-attr]
    far.endpoint.eof_received = lambda: True
    client.transport.write_eof()
    world.run(9)
    assert not client.closed
    world.run(2)
    assert client.closed
    assert not site.node.sessions


def test_a_client_that_goes_within_its_connect_is_forgotten(world: World) -> None:
    site = Site(world, "a", None)
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.transport.write(Connect(client_id="c").encode()[:-1])
    world.run(0.1)
    client.transport.write_eof()
    world.run(1)
    assert client.closed
    assert not site.node.sessions


# cuts ---------------------------------------------------------------------------------------------

MESSAGES = st.builds(
    lambda topic, size, qos, retain, alias: Publish(
        topic=topic,
        payload=bytes(i & 0xFF for i in range(size)),
        qos=qos,
        retain=retain,
        packet_id=1 + size % 3 if qos else None,
        properties={Property.TOPIC_ALIAS: 1} if alias else {},
    ),
    st.sampled_from(["t", "u/v", "wanted"]),
    st.sampled_from([0, 1, 100, 126, 4090, 4096, 5000]),
    st.sampled_from([0, 0, 1, 2]),
    st.booleans(),
    st.booleans(),
)
OTHERS = st.sampled_from(
    [
        b"\xc0\0",
        Subscribe(packet_id=9, subscriptions=[Subscription(topic_filter="a/" * 40 + "#")]),
        b"\x40\x02\0\x05",
    ]
)


def without_repetitions(published: list[Publish]) -> list[Publish]:
    """What is new: of QoS 2 not the same content with an identifier that nobody releases (MQTT-4.3.3-10)."""
    last: dict[int | None, tuple[str, bytes]] = {}
    new = []
    for message in published:
        content = message.topic, message.payload
        if message.qos == 2:
            if last.get(message.packet_id) == content:
                continue
            last[message.packet_id] = content
        new.append(message)
    return new


@given(
    packets=st.lists(st.one_of(MESSAGES, MESSAGES, OTHERS), max_size=12),
    cuts=st.one_of(st.just([1]), st.lists(st.sampled_from([1, 2, 3, 7, 100, 4000, 5000]), min_size=1)),
    version=st.sampled_from([Version.V311, Version.V5]),
    algorithm=st.sampled_from([None, "pf", "sf"]),
)
@example(
    packets=[Publish(topic="t", payload=bytes(5000)), Publish(topic="t", payload=bytes(5000))],
    cuts=[4000],
    version=Version.V5,
    algorithm="pf",
)
@example(
    packets=[Publish(topic="t", payload=b"x", qos=2, packet_id=1)] * 2,
    cuts=[1],
    version=Version.V5,
    algorithm="pf",
)
@settings(max_examples=40, deadline=None)
def test_the_broker_and_other_sites_get_the_same_however_the_bytes_are_cut(
    packets: list[Publish | Subscribe | bytes], cuts: list[int], version: Version, algorithm: str | None
) -> None:
    data = b""
    for packet in packets:
        if isinstance(packet, Publish) and version is not Version.V5:
            packet.properties = {}
        data += packet if isinstance(packet, bytes) else packet.encode(version)
    chunks, pos, index = [], 0, 0
    while pos < len(data):
        chunks.append(data[pos : pos + cuts[index % len(cuts)]])
        pos += len(chunks[-1])
        index += 1
    published = [p for p in (decode(f, version) for f in Framer().feed(data)) if isinstance(p, Publish)]
    new = without_repetitions(published)
    crossing = [p.payload for p in new if algorithm == "pf" or p.topic == "wanted" or p.retain]
    for way in ([data], chunks):
        world = World()
        if algorithm is None:
            a = Site(world, "a", None)
        else:
            a, b = row(world, "ab", algorithm, link={"transfer": "received"})
            b.subscriber("wanted", qos=2)
        keeper = keeper_at(a)
        client = a.client("c", version=version)
        session = next(s for s in a.node.sessions if s.client_id == "c")
        if session.publishing.aliases is not None:
            session.publishing.aliases.maximum = 10
        for chunk in way:
            session.data_received(chunk)
        world.run(2)
        assert keeper.raw["c"] == data
        assert session.relay.messages_in == len(published)
        assert not client.closed
        if algorithm is not None:
            received = [p.payload for i, p in b.broker.published if i.startswith("ildm-")]
            assert received == crossing
