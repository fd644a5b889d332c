"""Plugins at work in nodes in virtual time: one that fails harms nobody, and filters do what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ildm.api import Filter, Link, NodeApi, Plugin, PluginConfig, Session, Source, TreeAlgorithm
from ildm.config import Address
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpecs
from ildm.mqtt import (
    Connect,
    PacketType,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World

PUBLISH = PacketType.PUBLISH


def start(world: World, name: str, specs: PluginSpecs) -> tuple[Node, Broker]:
    broker = Broker()
    world.listen(Address(name, 3), broker.connection)
    node = make_node(world, name, specs)
    node.start({})
    return node, broker


def client(world: World, name: str, client_id: str, version: Version = Version.V311) -> MiniClient:
    one = MiniClient(version)
    world.connect(Address(name, 1), one)
    one.send(Connect(client_id=client_id, version=version))
    world.run(0.1)
    return one


def subscriber(world: World, name: str) -> MiniClient:
    one = client(world, name, f"subscriber-{name}")
    one.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="#")]))
    world.run(0.1)
    assert one.got(SubAck)
    return one


def failures(node: Node) -> list[tuple[object, object, object]]:
    """Plugin, hook and number of each failure that was logged."""
    driver = node.driver
    assert isinstance(driver, WorldDriver)
    entries = [(level, fields) for level, event, fields in driver.logged if event == "plugin failed"]
    assert all(level == "error" and isinstance(fields["exc_info"], Exception) for level, fields in entries)
    return [(fields["plugin"], fields["hook"], fields["failures"]) for _, fields in entries]


class Failing(TreeAlgorithm):
    wants = frozenset({(Source.CLIENT, PUBLISH)})

    def on_session_established(self, session: Session) -> None:
        raise RuntimeError("established")

    def route(self, topic: str, retain: bool, source: Link | None) -> Any:
        raise RuntimeError("route")

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        raise RuntimeError("arrived")


def test_hooks_that_raise_are_logged_and_counted_and_the_relay_goes_on(world: World) -> None:
    node, _ = start(world, "a", plugin_specs("bad", Failing))
    far = subscriber(world, "a")
    publisher = client(world, "a", "p")
    before = node.counters["plugin_errors"]
    assert before >= 4  # two sessions for each client
    for number in range(6):
        publisher.send(Publish(topic=f"t/{number}", payload=b"x"))
    world.run(1)
    assert far.messages == [(f"t/{number}", b"x") for number in range(6)]
    assert not publisher.closed
    errors = before + 2 * 6
    assert node.counters["plugin_errors"] == node.dispatch.loaded[0].errors == errors
    logged = failures(node)
    assert [number for _, _, number in logged] == [1, 2, 4, 8, 16][: errors.bit_length()]
    assert {plugin for plugin, _, _ in logged} == {"bad"}
    assert logged[0][1] == "on_session_established"


@pytest.mark.parametrize("answer", [None, 7, [None], ["link"], [(None, 1)], "ab"])
def test_a_route_that_makes_no_sense_is_nobody(world: World, answer: object) -> None:
    def route(self: TreeAlgorithm, topic: str, retain: bool, source: Link | None) -> object:
        return answer

    node, _ = start(world, "a", plugin_specs("bad", type("Lost", (TreeAlgorithm,), {"route": route})))
    far = subscriber(world, "a")
    client(world, "a", "p").send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert far.messages == [("t", b"x")]
    assert failures(node) == [("bad", "route", 1)]


def test_a_timer_that_raises_is_the_plugins_failure(world: World) -> None:
    class Late(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            api.call_later(1, self.ring)

        def ring(self) -> None:
            raise RuntimeError("late")

    node, _ = start(world, "a", plugin_specs("bad", Late))
    world.run(2)
    assert failures(node) == [("bad", "ring", 1)]


# filters ------------------------------------------------------------------------------------------


def appending(text: bytes, source: Source = Source.CLIENT) -> type[Plugin]:
    """A filter that appends to payloads."""

    class Appending(Filter):
        wants = frozenset({(source, PUBLISH)})

        def filter(self, session: Session, message: bytes) -> bytes:
            packet = decode(message, session.version)
            assert isinstance(packet, Publish)
            packet.payload += text
            return packet.encode(session.version)

    return Appending


class DropsX(Filter):
    wants = frozenset({(source, PUBLISH) for source in Source})

    def filter(self, session: Session, message: bytes) -> bytes | None:
        return None if message.endswith(b"x") else message


class Raising(Filter):
    wants = frozenset({(Source.CLIENT, PUBLISH)})

    def filter(self, session: Session, message: bytes) -> bytes:
        raise RuntimeError("filter")


def filtered(*filters: tuple[str, type[Plugin]], algorithm: Any = None) -> PluginSpecs:
    return plugin_specs("all" if algorithm else None, algorithm, list(filters))


def test_filters_are_chained_in_order(world: World) -> None:
    one, two = ("one", appending(b"1")), ("two", appending(b"2"))
    for name, chain, expected in (("a", (one, two), b"-12"), ("b", (two, one), b"-21")):
        start(world, name, filtered(*chain))
        far = subscriber(world, name)
        client(world, name, "p").send(Publish(topic="t", payload=b"-"))
        world.run(1)
        assert far.messages == [("t", expected)]


def test_after_a_drop_and_a_failure(world: World) -> None:
    """A filter that drops ends the chain; one that raises is passed over."""
    chain = (("bad", Raising), ("one", appending(b"x")), ("drop", DropsX), ("never", Raising))
    node, broker = start(world, "a", filtered(*chain))
    publisher = client(world, "a", "p")
    publisher.send(Publish(topic="t", payload=b"-"))
    world.run(1)
    assert broker.published == []
    assert node.counters["filtered"] == 1
    assert failures(node) == [("bad", "filter", 1)]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_dropped_message_is_acknowledged(world: World, version: Version) -> None:
    reason = 0x99 if version is Version.V5 else 0
    _, broker = start(world, "a", filtered(("drop", DropsX)))
    publisher = client(world, "a", "p", version)
    publisher.send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    publisher.send(Publish(topic="t", payload=b"x", qos=2, packet_id=2))
    world.run(1)
    expected: list[object] = [
        PubAck(packet_id=1, reason_code=reason),
        PubRec(packet_id=2, reason_code=reason),
    ]
    if version is Version.V311:  # in MQTT 5 that PUBREC ends the handshake (MQTT-4.3.3-4)
        publisher.send(PubRel(packet_id=2))
        expected.append(PubComp(packet_id=2))
    publisher.send(Publish(topic="t", payload=b"-", qos=2, packet_id=2))
    publisher.send(PubRel(packet_id=2))
    world.run(1)
    assert publisher.packets[1:] == [*expected, PubRec(packet_id=2), PubComp(packet_id=2)]
    assert [message.payload for _, message in broker.published] == [b"-"]


NONSENSE: list[Callable[[Publish, bytes], object]] = [
    lambda packet, frame: "text",
    lambda packet, frame: bytearray(frame),
    lambda packet, frame: b"",
    lambda packet, frame: frame[:-1],
    lambda packet, frame: frame + b"\xc0\x00",
    lambda packet, frame: b"\xc0\x00",
    lambda packet, frame: PubAck(packet_id=5).encode(Version.V311),
    lambda packet, frame: Publish(topic="t").encode(Version.V311),
    lambda packet, frame: Publish(topic="t", qos=1, packet_id=6).encode(Version.V311),
    lambda packet, frame: Publish(topic="t", qos=2, packet_id=5).encode(Version.V311),
    lambda packet, frame: frame.replace(b"t", b"#", 1),
]


@pytest.mark.parametrize("result", NONSENSE)
def test_what_a_filter_may_not_return_is_refused(
    world: World, result: Callable[[Publish, bytes], object]
) -> None:
    """The message goes on as it came, and later filters still see it."""

    class Nonsense(Filter):
        wants = frozenset({(Source.CLIENT, PUBLISH)})

        def filter(self, session: Session, message: bytes) -> Any:
            packet = decode(message, session.version)
            assert isinstance(packet, Publish)
            return result(packet, message)

    node, broker = start(world, "a", filtered(("bad", Nonsense), ("good", appending(b"!"))))
    publisher = client(world, "a", "p")
    publisher.send(Publish(topic="t", payload=b"-", qos=1, packet_id=5))
    world.run(1)
    assert [(p.topic, p.payload, p.qos) for _, p in broker.published] == [("t", b"-!", 1)]
    assert publisher.got(PubAck) == [PubAck(packet_id=5)]
    assert failures(node) == [("bad", "filter", 1)]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_malformed_message_is_not_the_filters_fault(world: World, version: Version) -> None:
    node, broker = start(world, "a", filtered(("one", appending(b"!"))))
    publisher = client(world, "a", "p", version)
    publisher.transport.write(Publish(topic="t").encode(version).replace(b"t", b"#"))  # MQTT-3.3.2-2
    world.run(1)
    assert publisher.closed
    assert (node.counters["malformed"], node.counters["plugin_errors"]) == (1, 0)
    assert broker.published == []


class Everywhere(TreeAlgorithm):
    def route(self, topic: str, retain: bool, source: Link | None) -> Iterable[tuple[Link, int]]:
        return [(link, 2) for link in self.api.links if link is not source]


@pytest.mark.parametrize("source", [Source.CLIENT, Source.BROKER, Source.LINK])
def test_a_filter_works_where_it_wants_to(world: World, source: Source) -> None:
    """At node b, which gets messages from its own clients, from a neighbour, and from its broker."""
    start(world, "a", filtered(algorithm=Everywhere))
    chain = (
        ("drop", type("DropsHere", (DropsX,), {"wants": {(source, PUBLISH)}})),
        ("mark", appending(b"!", source)),
    )
    node, broker = start(world, "b", filtered(*chain, algorithm=Everywhere))
    node.links.add(Address("a", 2), False)
    world.run(2)
    at_a, at_b = subscriber(world, "a"), subscriber(world, "b")
    remote, local = client(world, "a", "remote"), client(world, "b", "local")
    for qos in (0, 1):
        for publisher, topic in ((remote, "remote"), (local, "local")):
            for payload in (b"x", b"-"):
                publisher.send(
                    Publish(topic=f"{topic}/{qos}", payload=payload, qos=qos, packet_id=7 if qos else None)
                )
                world.run(1)

    def passing(topic: str, *where: Source) -> list[tuple[str, bytes]]:
        touched = source in where
        return [
            (f"{topic}/{q}", p + b"!" * touched)
            for q in (0, 1)
            for p in (b"x", b"-")
            if not touched or p != b"x"
        ]

    def seen(messages: list[tuple[str, bytes]], topic: str) -> list[tuple[str, bytes]]:
        return [(t, p) for t, p in messages if t.startswith(topic)]

    published = [(message.topic, message.payload) for _, message in broker.published]
    assert seen(published, "remote") == passing("remote", Source.LINK)
    assert seen(published, "local") == passing("local", Source.CLIENT)
    assert seen(at_a.messages, "remote") == passing("remote")
    assert seen(at_a.messages, "local") == passing("local", Source.CLIENT)
    assert seen(at_b.messages, "remote") == passing("remote", Source.LINK, Source.BROKER)
    assert seen(at_b.messages, "local") == passing("local", Source.CLIENT, Source.BROKER)
    assert failures(node) == []


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_message_dropped_on_its_way_to_a_client_is_acknowledged_for_it(
    world: World, version: Version
) -> None:
    _, broker = start(world, "a", filtered(("drop", DropsX)))
    one = client(world, "a", "c", version)
    connection: Connection = broker.connections[0]
    connection.send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    connection.send(Publish(topic="t", payload=b"x", qos=2, packet_id=2))
    connection.send(Publish(topic="t", payload=b"-", qos=2, packet_id=3))
    world.run(1)
    reason = 0x83 if version is Version.V5 else 0
    assert connection.received[1:] == [PubAck(packet_id=1), PubRec(packet_id=2, reason_code=reason)]
    assert [packet.packet_id for packet in one.got(Publish)] == [3]
    if version is Version.V311:  # the client answers a PUBREL it knows nothing of
        assert one.got(PubRel) == [PubRel(packet_id=2)]
        one.send(PubComp(packet_id=2))
        world.run(1)
        assert connection.received[-1] == PubComp(packet_id=2)


def test_a_reserved_packet_of_the_broker_is_left_to_the_client(world: World) -> None:
    _, broker = start(world, "a", filtered(("drop", DropsX)))
    one = client(world, "a", "c")
    broker.connections[0].transport.write(b"\x00\x00" + Publish(topic="t", payload=b"-").encode(Version.V311))
    arrived = bytearray()
    one.data_received = arrived.extend  # type: ignore[method-assign,assignment]
    world.run(1)
    assert bytes(arrived) == b"\x00\x00" + Publish(topic="t", payload=b"-").encode(Version.V311)
