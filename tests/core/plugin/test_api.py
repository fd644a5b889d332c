"""The five APIs of the thesis (Table 5.1) and what was added to them, as a plugin sees them."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import (
    Link,
    NodeApi,
    NodeStatus,
    PluginConfig,
    Role,
    Session,
    SessionStatus,
    Source,
    TreeAlgorithm,
)
from ildm.config import Address
from ildm.core.node import Node
from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    EncodeError,
    MalformedPacket,
    MqttError,
    PacketType,
    PingReq,
    Property,
    PubAck,
    Publish,
    Subscribe,
    Subscription,
    Version,
    create_message,
    decode,
)
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World

PEER = Address("peer", 9)


class Recorder(TreeAlgorithm):
    """Notes every call, and wants every message."""

    wants = frozenset((source, type) for source in Source for type in PacketType)

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.events: list[tuple[Any, ...]] = []
        self.messages: list[tuple[Session, PacketType, bytes]] = []

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        self.messages.append((session, type, message))

    def on_tcp_down(self, session: Session) -> None:
        self.events.append(("tcp down", session, session.status))

    def on_recv_failure(self, session: Session, exception: Exception) -> None:
        self.events.append(("recv failure", session, type(exception)))

    def on_session_established(self, session: Session) -> None:
        self.events.append(("established", session, session.status))

    def on_session_closed(self, session: Session) -> None:
        self.events.append(("closed", session, session.status))

    def on_ildm_stop(self) -> None:
        self.events.append(("stop", self.api.status))

    def on_ildm_add(self, host: str, port: int) -> None:
        self.events.append(("add", host, port, self.api.status))

    def on_ildm_remove(self, host: str, port: int) -> None:
        self.events.append(("remove", host, port, self.api.status))

    def on_link_up(self, link: Link) -> None:
        self.events.append(("up", link.node_id, link in self.api.links))

    def on_link_down(self, link: Link) -> None:
        self.events.append(("down", link.node_id, link in self.api.links))

    def of(self, role: Role) -> list[tuple[str, SessionStatus]]:
        """Events of the sessions with one role."""
        return [(e[0], e[2]) for e in self.events if len(e) == 3 and getattr(e[1], "role", None) is role]

    def seen(self, role: Role) -> list[PacketType]:
        """Types of the messages from sessions with one role."""
        return [type for session, type, _ in self.messages if session.role is role]

    def session(self, role: Role) -> Session:
        """The last session with that role to be established."""
        found = [e[1] for e in self.events if e[0] == "established" and e[1].role is role]
        return found[-1]  # type: ignore[no-any-return]


UP = ("established", SessionStatus.ESTABLISHED)
CLOSED = ("closed", SessionStatus.CLOSED)
TCP_DOWN = ("tcp down", SessionStatus.CLOSED)


def start(world: World, name: str) -> tuple[Node, Recorder, Broker]:
    broker = Broker()
    world.listen(Address(name, 3), broker.connection)
    node = make_node(world, name, plugin_specs("recorder", Recorder))
    node.start({})
    plugin = node.dispatch.algorithm
    assert isinstance(plugin, Recorder)
    world.run(0.1)
    return node, plugin, broker


def client(world: World, name: str, version: Version = Version.V311) -> MiniClient:
    one = MiniClient(version)
    world.connect(Address(name, 1), one)
    one.send(Connect(client_id="c", version=version))
    world.run(0.1)
    return one


# session manager ----------------------------------------------------------------------------------


def test_a_plugins_own_session_from_its_creation_to_its_end(world: World) -> None:
    _, plugin, _ = start(world, "a")
    far = MiniClient(Version.V5)
    world.listen(PEER, lambda: far)
    api = plugin.api
    session = api.create_session(PEER.host, PEER.port)
    assert (session.role, session.status) == (Role.PEER, SessionStatus.CLOSED)
    assert not api.send_message(session, b"\xc0\x00")
    world.run(1)
    assert plugin.of(Role.PEER) == [UP]
    assert plugin.session(Role.PEER) is session
    assert session.peer == "peer:9"
    assert api.get_paired_session(session) is None
    assert api.send_message(session, api.create_mqtt_message(PacketType.PINGREQ))
    answer = Publish(topic="t", payload=b"x").encode(Version.V5)
    far.transport.write(answer[:3])
    world.run(1)
    far.transport.write(answer[3:])
    world.run(1)
    assert far.packets == [PingReq()]
    assert plugin.messages == [(session, PacketType.PUBLISH, answer)]
    assert api.send_message(session, b"\xc0\x00")
    api.close_session(session)
    assert session.status is SessionStatus.TERMINATING
    assert not api.send_message(session, b"\xc0\x00")
    world.run(1)
    assert far.packets == [PingReq(), PingReq()]  # sent before the end, it still goes out
    assert far.closed
    assert plugin.of(Role.PEER) == [UP, CLOSED]


def test_a_session_that_the_peer_closes_or_breaks(world: World) -> None:
    _, plugin, _ = start(world, "a")
    peers = [MiniClient(), MiniClient()]
    world.listen(PEER, iter(peers).__next__)
    plugin.api.create_session(PEER.host, PEER.port)
    world.run(1)
    peers[0].transport.close()
    world.run(1)
    assert plugin.of(Role.PEER) == [UP, TCP_DOWN, CLOSED]
    plugin.events.clear()
    session = plugin.api.create_session(PEER.host, PEER.port)
    world.run(1)
    peers[1].transport.write(b"\xd0\x00\x00\x00")  # PINGRESP, then packet type 0, which is forbidden (2.1.2)
    world.run(1)
    failure = ("recv failure", session, MalformedPacket)
    assert [event for event in plugin.events if event[1] is session][1:2] == [failure]
    assert plugin.seen(Role.PEER) == [PacketType.PINGRESP]
    assert (peers[1].closed, plugin.of(Role.PEER)[-1]) == (True, CLOSED)


def test_a_session_that_cannot_be_made(world: World) -> None:
    _, plugin, _ = start(world, "a")
    session = plugin.api.create_session("nobody", 1)
    world.run(1)
    assert plugin.of(Role.PEER) == [TCP_DOWN]
    assert not plugin.api.send_message(session, b"\xc0\x00")


def test_a_session_that_is_full_takes_no_more(world: World) -> None:
    _, plugin, _ = start(world, "a")
    world.listen(PEER, MiniClient)
    session: Any = plugin.api.create_session(PEER.host, PEER.port)
    world.run(1)
    session.pause_writing()
    assert not plugin.api.send_message(session, b"\xc0\x00")
    session.resume_writing()
    assert plugin.api.send_message(session, b"\xc0\x00")


def test_client_and_broker_sessions_are_paired(world: World) -> None:
    _, plugin, _ = start(world, "a")
    client(world, "a", Version.V5)
    near, far = plugin.session(Role.CLIENT), plugin.session(Role.BROKER)
    assert plugin.api.get_paired_session(near) is far
    assert plugin.api.get_paired_session(far) is near
    for session in (near, far):
        assert (session.client_id, session.version) == ("c", Version.V5)
    assert near.id != far.id


def test_a_plugin_may_end_and_use_the_sessions_of_others(world: World) -> None:
    _, plugin, _ = start(world, "a")
    one = client(world, "a")
    session = plugin.session(Role.CLIENT)
    assert plugin.api.send_message(session, Publish(topic="t").encode(Version.V311))
    plugin.api.close_session(session)
    world.run(1)
    assert one.messages == [("t", b"")]
    assert one.closed


# message listener ---------------------------------------------------------------------------------


def test_messages_of_client_and_broker_are_shown_as_they_came(world: World) -> None:
    _, plugin, _ = start(world, "a")
    one = client(world, "a")
    for packet in (
        Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t")]),
        Publish(topic="t", payload=b"x", qos=1, packet_id=2),
        PingReq(),
        Disconnect(),
    ):
        one.send(packet)
        world.run(0.1)
    kind = PacketType
    assert plugin.seen(Role.CLIENT) == [
        kind.CONNECT, kind.SUBSCRIBE, kind.PUBLISH, kind.PINGREQ, kind.DISCONNECT
    ]  # fmt: skip
    assert plugin.seen(Role.BROKER) == [kind.CONNACK, kind.SUBACK, kind.PUBLISH, kind.PUBACK, kind.PINGRESP]
    sent = b"".join(bytes(m) for session, _, m in plugin.messages if session.role is Role.CLIENT)
    assert sent == bytes(one.transport.written)
    received = [decode(m, Version.V311) for session, _, m in plugin.messages if session.role is Role.BROKER]
    assert received == one.packets


def test_enhanced_authentication_and_a_refusal_are_shown(world: World) -> None:
    _, plugin, broker = start(world, "a")
    broker.refuse_with = 0x87
    one = MiniClient(Version.V5)
    world.connect(Address("a", 1), one)
    method: dict[Property, Any] = {Property.AUTHENTICATION_METHOD: "m"}
    one.send(Connect(client_id="c", version=Version.V5, properties=method))
    one.send(Auth(reason_code=0x18, properties=method))
    world.run(1)
    assert one.got(ConnAck)[0].reason_code == 0x87
    assert plugin.seen(Role.CLIENT) == [PacketType.CONNECT, PacketType.AUTH]
    assert plugin.seen(Role.BROKER) == [PacketType.CONNACK]


def test_messages_of_neighbours_are_shown(world: World) -> None:
    _, plugin, _ = start(world, "a")
    node, other, _ = start(world, "b")
    node.links.add(Address("a", 2), False)
    world.run(2)
    other.api.links[0].inter_subscribe({"t": 1})
    for number, qos in enumerate((0, 1), 1):
        message = Publish(topic="t", payload=b"x", qos=qos, packet_id=number if qos else None)
        other.api.transfer(other.api.links[0], message)
    world.run(1)
    seen = plugin.seen(Role.LINK)
    assert [seen.count(type) for type in (PacketType.SUBSCRIBE, PacketType.PUBLISH)] == [1, 2]
    shown = [decode(m, Version.V5) for s, type, m in plugin.messages if type is PacketType.PUBLISH]
    assert [(m.topic, m.payload, m.qos) for m in shown if isinstance(m, Publish)] == [
        ("t", b"x", 0),
        ("t", b"x", 1),
    ]


def test_a_plugin_that_wants_nothing_is_shown_nothing(world: World) -> None:
    class Deaf(Recorder):
        wants = frozenset()

    broker = Broker()
    world.listen(Address("a", 3), broker.connection)
    node = make_node(world, "a", plugin_specs("deaf", Deaf))
    node.start({})
    one = client(world, "a")
    one.send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert one.got(PubAck)
    plugin = node.dispatch.algorithm
    assert isinstance(plugin, Deaf)
    assert plugin.messages == []
    assert plugin.of(Role.CLIENT) == [UP]


# event listener -----------------------------------------------------------------------------------


def test_a_client_that_leaves_and_one_that_is_lost(world: World) -> None:
    _, plugin, _ = start(world, "a")
    client(world, "a").send(Disconnect())
    world.run(1)
    assert plugin.of(Role.CLIENT) == [UP, CLOSED]
    plugin.events.clear()
    client(world, "a").transport.abort()
    world.run(1)
    assert plugin.of(Role.CLIENT) == [UP, TCP_DOWN, CLOSED]


def test_a_client_that_breaks_the_protocol(world: World) -> None:
    _, plugin, _ = start(world, "a")
    one = client(world, "a")
    session = plugin.session(Role.CLIENT)
    one.transport.write(b"\x36\x02\x00\x01")  # QoS 3 (MQTT-3.3.1-4)
    world.run(1)
    failed = [event for event in plugin.events if event[0] == "recv failure"]
    assert [(event[1], issubclass(event[2], MqttError)) for event in failed] == [(session, True)]
    assert one.closed


# status listener ----------------------------------------------------------------------------------


def test_neighbours_come_and_go_and_the_node_stops(world: World) -> None:
    start(world, "a")
    node, plugin, _ = start(world, "b")
    plugin.events.clear()
    node.links.add(Address("a", 2), False)
    assert plugin.events == [("add", "a", 2, NodeStatus.ILDM_ADDING)]
    world.run(2)
    assert ("up", "a", True) in plugin.events
    assert plugin.of(Role.LINK) == [UP]
    assert plugin.api.status is NodeStatus.RUNNING
    assert [link.node_id for link in plugin.api.links] == ["a"]
    assert [one.role for one in plugin.api.links[0].sessions] == [Role.LINK]
    plugin.events.clear()
    node.links.remove("a:2")
    assert plugin.events[0] == ("remove", "a", 2, NodeStatus.ILDM_REMOVING)
    world.run(2)
    assert ("down", "a", False) in plugin.events
    assert plugin.of(Role.LINK)[-1] == CLOSED
    assert not plugin.api.links
    plugin.events.clear()
    stopped: list[bool] = []
    node.drain(lambda: stopped.append(True))
    world.run(2)
    assert stopped == [True]
    assert plugin.events[:1] == [("stop", NodeStatus.RUNNING)]
    assert str(plugin.api.status) == "stopped"


# message generator, and what was added to the table -------------------------------------------------


def test_messages_are_generated(world: World) -> None:
    _, plugin, _ = start(world, "a")
    build = plugin.api.create_mqtt_message
    for version in Version:
        message = build(PacketType.PUBLISH, version, topic="t", payload=b"x", qos=1, packet_id=3)
        assert decode(message, version) == Publish(topic="t", payload=b"x", qos=1, packet_id=3)
    assert build(PacketType.PUBLISH, topic="t") == create_message(PacketType.PUBLISH, Version.V5, topic="t")
    with pytest.raises(EncodeError, match="no parameter 'subject'"):
        build(PacketType.PUBLISH, subject="t")


def test_injection_time_chance_counters_and_log(world: World) -> None:
    node, plugin, broker = start(world, "a")
    api = plugin.api
    assert api.node_id == "a"
    api.inject(Publish(topic="t", payload=b"x"))
    fired: list[tuple[str, float]] = []
    api.call_later(2, lambda text: fired.append((text, api.now())), "now")
    api.call_later(2, fired.append, ("never", 0.0)).cancel()
    began = api.now()
    world.run(3)
    assert broker.topics() == ["t"]
    assert fired == [("now", began + 2)]
    api.count("things")
    api.count("things", 2)
    assert node.dispatch.loaded[0].counters == {"things": 3}
    api.log("told", size=1)
    assert isinstance(node.driver, WorldDriver)
    assert node.driver.logged[-1] == ("info", "told", {"plugin": "recorder", "size": 1})
    _, other, _ = start(World(), "a")
    assert [api.random.random() for _ in range(3)] == [other.api.random.random() for _ in range(3)]


def test_interest_of_local_clients(world: World) -> None:
    _, plugin, _ = start(world, "a")
    one = client(world, "a")
    one.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t/#", qos=1)]))
    world.run(1)
    assert dict(plugin.api.local_interest) == {"t/#": 1}


def test_routes_are_remembered_until_they_change(world: World) -> None:
    class Counting(TreeAlgorithm):
        def route(self, topic: str, retain: bool, source: Link | None) -> tuple[()]:
            self.api.count(topic)
            return ()

    world.listen(Address("a", 3), Broker().connection)
    node = make_node(world, "a", plugin_specs("counting", Counting))
    node.start({})
    plugin = node.dispatch.algorithm
    assert plugin is not None
    one = client(world, "a")
    for _ in range(2):
        for _ in range(3):
            one.send(Publish(topic="t"))
            world.run(0.1)
        plugin.api.routes_changed()
    assert node.dispatch.loaded[0].counters == {"t": 2}
