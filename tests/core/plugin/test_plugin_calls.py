"""What a plugin hands over wrongly is refused at the call, and a hook that takes long is told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ildm.api import (
    Filter,
    Link,
    NodeApi,
    NodeStatus,
    OverlayAlgorithm,
    Peer,
    PluginError,
    Session,
    Source,
    TreeAlgorithm,
)
from ildm.config import Address
from ildm.core.node import Node
from ildm.core.plugin.dispatch import OF_SESSIONS
from ildm.mqtt import Connect, PacketType, Property, Publish, Subscribe, Subscription, Version
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World


class Quiet(TreeAlgorithm):
    """Uses what it is told to use."""


class QuietOverlay(OverlayAlgorithm):
    """The same of the other kind."""


def start(world: World, name: str, plugin: Any = Quiet, **settings: Any) -> tuple[Node, Broker]:
    broker = Broker()
    world.listen(Address(name, 3), broker.connection)
    if issubclass(plugin, OverlayAlgorithm):
        settings["link"] = {"advertise": f"{name}:2"}
    node = make_node(world, name, plugin_specs("plugin", plugin), **settings)
    node.start({})
    world.run(0.1)
    return node, broker


def api_of(node: Node) -> NodeApi:
    assert node.dispatch.algorithm is not None
    return node.dispatch.algorithm.api


def logged(node: Node, event: str) -> list[dict[str, object]]:
    assert isinstance(node.driver, WorldDriver)
    return [fields for _, what, fields in node.driver.logged if what == event]


def message(**fields: Any) -> Any:
    return Publish(**{"topic": "t", **fields})


WRONG_MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: "t", "is no Publish"),
    (lambda: message(payload="text"), "the payload is str 'text', not bytes"),
    (lambda: message(payload=bytearray(b"x")), "not bytes"),
    (lambda: message(topic=b"t"), "the topic is bytes"),
    (lambda: message(topic=""), "empty topic name"),
    (lambda: message(topic="a/#"), "wildcard"),
    (lambda: message(topic="a\0"), "U\\+0000"),
    (lambda: message(topic="\ud800"), "surrogate"),
    (lambda: message(topic="x" * 65_536), "topic name of 65536 bytes"),
    (lambda: message(topic="$SYS/x"), "stay with their broker"),
    (lambda: message(topic="$ildm/ready", payload=b"0"), "stay with their broker"),
    (lambda: message(qos=9), "QoS 9"),
    (lambda: message(qos=None), "QoS None"),
    (lambda: message(properties={Property.MESSAGE_EXPIRY_INTERVAL: "soon"}), "MESSAGE_EXPIRY_INTERVAL"),
    (lambda: message(properties={Property.WILL_DELAY_INTERVAL: 1}), "no property"),
    (lambda: message(properties={Property.TOPIC_ALIAS: 1}), "TOPIC_ALIAS has a meaning on one"),
    (lambda: message(properties={Property.SUBSCRIPTION_IDENTIFIER: [1]}), "SUBSCRIPTION_IDENTIFIER has"),
]


@pytest.mark.parametrize(("make", "text"), WRONG_MESSAGES)
def test_a_message_no_broker_or_neighbour_would_take_is_refused(
    world: World, make: Callable[[], Any], text: str
) -> None:
    """The sessions stay, and what is right goes through before and after."""
    node, broker = start(world, "a")
    far, far_broker = start(world, "b")
    node.links.add(Address("b", 2), False)
    world.run(2)
    api = api_of(node)
    sessions = list(broker.connections)
    for step in range(2):
        api.inject(message(topic=f"local/{step}"))
        api.transfer(api.links[0], message(topic=f"far/{step}", qos=1))
        if not step:
            with pytest.raises(PluginError, match=text):
                api.inject(make())
            with pytest.raises(PluginError, match=text):
                api.transfer(api.links[0], make())
        world.run(5)
    assert broker.topics() == ["local/0", "local/1"]
    assert far_broker.topics() == ["far/0", "far/1"]
    assert broker.connections == sessions
    assert node.counters["link_sessions_lost"] == far.counters["link_sessions_lost"] == 0


WRONG_FILTERS: list[tuple[Any, str]] = [
    ({"a/#/b": 1}, "'#' is not the whole last level"),
    ({"a+": 1}, "'\\+' is not a whole level"),
    ({"": 0}, "empty topic filter"),
    ({b"a": 0}, "the filter is bytes"),
    ({"a/b": 9}, "QoS 9"),
    ({"a/b": "1"}, "QoS '1'"),
    ({"$SYS/#": 0}, "stay with their broker"),
    ({"$share/g/a": 0}, "stay with their broker"),
]


@pytest.mark.parametrize(("filters", "text"), WRONG_FILTERS)
def test_filters_no_neighbour_would_take_are_refused(world: World, filters: Any, text: str) -> None:
    """Nothing of the call is announced, and the link stays."""
    node, _ = start(world, "a")
    far, _ = start(world, "b")
    node.links.add(Address("b", 2), False)
    world.run(2)
    link = api_of(node).links[0]
    with pytest.raises(PluginError, match=text):
        link.inter_subscribe({"good": 1, **filters})
    assert dict(link.announced) == {}
    link.inter_subscribe({"good": 1})
    world.run(60)
    assert dict(api_of(far).links[0].interest) == {"good": 1}
    assert node.counters["link_sessions_lost"] == 0


def test_other_arguments_are_refused_too(world: World) -> None:
    tree, _ = start(world, "a")
    node, _ = start(world, "b", QuietOverlay)
    api, any_api = api_of(tree), api_of(node)
    peer = Peer("c", "c:2")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: api.send(peer, b"x"), "OverlayAlgorithm"),
        (lambda: any_api.send(("c", "c:2"), b"x"), "not a Peer"),  # type: ignore[arg-type]
        (lambda: any_api.send(peer, "x"), "not bytes"),  # type: ignore[arg-type]
        (lambda: any_api.send(peer, b"x", "1"), "not int"),  # type: ignore[arg-type]
        (lambda: api.create_session("", 1), "no host"),
        (lambda: api.create_session("c", 0), "no TCP port"),
        (lambda: api.create_session("c", "80"), "no TCP port"),  # type: ignore[arg-type]
        (lambda: api.transfer("c", message()), "not a link"),  # type: ignore[arg-type]
        (lambda: api.close_session("c"), "not a session"),  # type: ignore[arg-type]
        (lambda: api.send_message(api.create_session("c", 1), "x"), "not bytes"),  # type: ignore[arg-type]
        (lambda: api.call_later(-1, print), "a delay of -1 s"),
        (lambda: api.call_later(float("nan"), print), "a delay of nan s"),
    ]
    for call, text in wrong:
        with pytest.raises(PluginError, match=text):
            call()


def test_a_session_given_up_before_it_stands_is_not_heard_of_again(world: World) -> None:
    heard: list[Session] = []

    class Hearing(Quiet):
        def on_session_established(self, session: Session) -> None:
            heard.append(session)

    node, _ = start(world, "a", Hearing)
    far = MiniClient()
    world.listen(Address("peer", 9), lambda: far)
    heard.clear()
    api = api_of(node)
    session = api.create_session("peer", 9)
    api.close_session(session)
    world.run(1)
    assert far.closed
    assert heard == []


@pytest.mark.parametrize("hook", OF_SESSIONS)
def test_a_plugin_may_hear_of_one_thing_about_sessions_alone(world: World, hook: str) -> None:
    heard: list[Session] = []
    plugin = type("Hearing", (Quiet,), {hook: lambda self, session: heard.append(session)})
    start(world, "a", plugin)
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.transport.write(Connect(client_id="c").encode())
    world.run(1)
    client.transport.abort()
    world.run(1)
    assert "c" in [session.client_id for session in heard]


# the start ----------------------------------------------------------------------------------------


def test_the_start_is_the_first_hook_and_knows_what_is_remembered(world: World) -> None:
    """Status and address are there, and the retained messages; interest comes after it."""
    heard: list[tuple[Any, ...]] = []

    class Starting(Quiet):
        def __init__(self, api: NodeApi, config: Any) -> None:
            super().__init__(api, config)
            heard.append(("made", api.status))

        def on_ildm_start(self) -> None:
            remembered = [m.topic for m in self.api.retained("#")]
            interest = dict(self.api.local_interest)
            heard.append(
                ("start", self.api.status, self.api.peer, remembered, interest, list(self.api.links))
            )

        def on_interest_changed(self, source: Link | None, changes: Any) -> None:
            heard.append(("interest", dict(changes)))

    store = MemoryStore()
    first = make_node(world, "a", plugin_specs("plugin", Quiet), store=store)
    world.listen(Address("a", 3), Broker().connection)
    first.start({})
    one = MiniClient()
    world.connect(Address("a", 1), one)
    one.send(Connect(client_id="c", version=Version.V311, clean_start=False))
    one.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="f", qos=1)]))
    one.send(Publish(topic="kept", payload=b"x", retain=True))
    world.run(1)
    settings = {"link": {"advertise": "a:2"}}
    node = make_node(world, "a", plugin_specs("plugin", Starting), store=store, **settings)
    assert heard == [("made", NodeStatus.STOPPED)]
    node.start({})
    assert heard[1:] == [
        ("start", NodeStatus.RUNNING, Peer("a", "a:2"), ["kept"], {}, []),
        ("interest", {"f": 1}),
    ]


# hooks that take long -------------------------------------------------------------------------------


def test_a_hook_that_takes_long_is_logged_and_counted(world: World) -> None:
    """One line for the 1st, 2nd, 4th ... time; quick ones are not told of."""
    node, _ = start(world, "a", Slow, limits={"hook_warn": 1.0})
    world.listen(Address("a", 3), Broker().connection)
    Slow.world = world
    api_of(node).call_later(0.1, ring)
    api_of(node).call_later(0.2, quick)
    world.run(1)
    one = MiniClient()
    world.connect(Address("a", 1), one)
    one.send(Connect(client_id="c", version=Version.V311))
    for number in range(4):
        one.send(Publish(topic=f"t/{number}"))
    world.run(1)
    found = [
        (line["hook"], line["seconds"], line["times"]) for line in logged(node, "plugin held up the node")
    ]
    assert found == [("ring", 3.0, 1), ("route", 2.0, 2), ("route", 2.0, 4)]
    assert node.counters["plugin_slow_hooks"] == 5
    assert node.dispatch.loaded[0].slow == 5
    assert node.counters["plugin_errors"] == 1  # that of the first


def test_a_filter_that_takes_long_is_logged(world: World) -> None:
    class SlowFilter(Filter):
        wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

        def filter(self, session: Session, message: bytes) -> bytes:
            world.time += 1
            return message

        def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
            world.time += 2

    world.listen(Address("a", 3), Broker().connection)
    node = make_node(world, "a", plugin_specs(None, None, [("slow", SlowFilter)]))
    node.start({})
    one = MiniClient()
    world.connect(Address("a", 1), one)
    one.send(Connect(client_id="c", version=Version.V311))
    one.send(Publish(topic="t"))
    world.run(1)
    lines = logged(node, "plugin held up the node")
    assert [(line["plugin"], line["hook"], line["seconds"]) for line in lines] == [
        ("slow", "filter", 1.0),
        ("slow", "mqtt_message_arrived", 2.0),
    ]


class Slow(Quiet):
    world: World

    def route(self, topic: str, retain: bool, source: Link | None) -> tuple[()]:
        self.world.time += 2
        return ()


def ring() -> None:
    Slow.world.time += 3
    raise RuntimeError("late, too")


def quick() -> None:
    Slow.world.time += 0.5
