"""What a plugin gets wrong costs itself something, and nobody else: no session, no client, no other node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import field_validator

from ildm.api import (
    Algorithm,
    Deferred,
    Filter,
    Link,
    NodeApi,
    OverlayAlgorithm,
    PluginConfig,
    PluginError,
    Reject,
    Session,
    Source,
    TreeAlgorithm,
)
from ildm.config import Address, PluginChoice
from ildm.core.node import Node
from ildm.core.plugin.checking import check_plugin
from ildm.core.plugin.loading import checked_options
from ildm.mqtt import (
    Connect,
    PacketType,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
)
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World
from tests.support.kept import size_of

PUBLISHES = frozenset({(Source.CLIENT, PacketType.PUBLISH)})


class Quiet(TreeAlgorithm):
    """Uses what it is told to use."""


class MuteError(Exception):
    """An error without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Unsure:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("it depends")


def start(
    world: World, name: str = "a", plugin: Any = Quiet, filters: Any = None, **settings: Any
) -> tuple[Node, Broker]:
    broker = Broker()
    world.listen(Address(name, 3), broker.connection)
    if plugin is not None and issubclass(plugin, OverlayAlgorithm):
        settings["link"] = {"advertise": f"{name}:2"}
    specs = plugin_specs(None if plugin is None else "plugin", plugin, filters)
    node = make_node(world, name, specs, **settings)
    node.start({})
    world.run(0.1)
    return node, broker


def pair(world: World, plugin: Any = Quiet) -> tuple[Node, Node, Broker]:
    """Two nodes with a link, and the broker of the far one."""
    node, _ = start(world, "a", plugin)
    far, far_broker = start(world, "b", plugin)
    node.links.add(Address("b", 2), False)
    world.run(2)
    return node, far, far_broker


def api_of(node: Node) -> NodeApi:
    assert node.dispatch.algorithm is not None
    return node.dispatch.algorithm.api


def connected(world: World, name: str = "c") -> MiniClient:
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id=name, version=Version.V311))
    world.run(0.1)
    return client


def assert_served(world: World, node: Node) -> None:
    """A client publishes and is answered, and one failure is counted."""
    client = connected(world)
    client.send(Publish(topic="t", qos=1, packet_id=1))
    world.run(1)
    assert len(client.got(PubAck)) == 1
    assert not client.closed
    assert node.dispatch.loaded[0].errors == node.counters["plugin_errors"] == 1


# hooks ----------------------------------------------------------------------------------------------


def leave() -> Any:
    sys.exit(3)


def fail_without_a_text() -> Any:
    raise MuteError


def half_made() -> Any:
    class Half(Deferred[bytes]):
        def __init__(self) -> None:
            """As one forgets to call that of the class."""

    return Half()


@pytest.mark.parametrize("answer", [leave, fail_without_a_text, half_made])
def test_a_filter_that_fails_oddly_lets_pass(world: World, answer: Callable[[], Any]) -> None:
    class Odd(Filter):
        wants = PUBLISHES

        def filter(self, session: Session, message: bytes) -> Any:
            return answer()

    node, _ = start(world, plugin=None, filters=[("odd", Odd)])
    assert_served(world, node)


@pytest.mark.parametrize("answer", [leave, fail_without_a_text])
def test_an_algorithm_that_fails_oddly_keeps_messages_local(world: World, answer: Callable[[], Any]) -> None:
    class Odd(TreeAlgorithm):
        def route(self, topic: str, retain: bool, source: Link | None) -> Any:
            return answer()

    node, _ = start(world, plugin=Odd)
    assert_served(world, node)


def test_an_error_without_a_text_is_told_of_by_its_type(world: World) -> None:
    class Unmade(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            raise MuteError

    with pytest.raises(PluginError, match="algorithm 'plugin' cannot be made: MuteError"):
        start(world, plugin=Unmade)


def test_an_attribute_that_is_named_like_a_hook_is_none(world: World) -> None:
    class Named(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            self.on_done = self.api.routes_changed

    node, _ = start(world, plugin=Named)
    assert api_of(node).status == "running"


def test_an_answer_that_is_neither_true_nor_false_does_not_keep_the_node(world: World) -> None:
    class Staying(OverlayAlgorithm):
        def is_leaving(self) -> Any:
            return Unsure()

    node, _ = start(world, plugin=Staying)
    ended: list[float] = []
    node.drain(lambda: ended.append(world.time))
    world.run(60)
    assert len(ended) == 1
    assert node.dispatch.loaded[0].errors >= 1


def test_a_hook_that_would_never_run_is_refused() -> None:
    """One with ``yield`` in it does nothing when it is called, but for those whose answer is gone through."""

    class Yielding(TreeAlgorithm):
        def on_link_up(self, link: Link) -> Any:
            yield link

    class Routing(TreeAlgorithm):
        def route(self, topic: str, retain: bool, source: Link | None) -> Iterator[tuple[Link, int]]:
            yield from ()

    with pytest.raises(PluginError, match="on_link_up is a generator, whose body nobody would run"):
        check_plugin("yielding", Yielding, Algorithm)
    check_plugin("routing", Routing, Algorithm)


def test_options_that_cannot_be_checked_are_an_error_of_the_configuration() -> None:
    class Options(PluginConfig):
        parts: int = 1

        @field_validator("parts")
        @classmethod
        def _divided(cls, parts: int) -> int:
            return 1 // parts

    class Dividing(TreeAlgorithm[Options]):
        pass

    choice = PluginChoice(name="dividing", options={"parts": 0})
    with pytest.raises(PluginError, match=r"algorithm 'dividing': its options cannot be checked: ZeroDiv"):
        checked_options(choice, Dividing, "algorithm")


# routes ---------------------------------------------------------------------------------------------


def test_a_route_without_an_end_is_a_failure(world: World) -> None:
    class Endless(TreeAlgorithm):
        def route(self, topic: str, retain: bool, source: Link | None) -> Iterator[tuple[Link, int]]:
            for _ in range(10_000):
                yield self.api.links[0], 1
            raise AssertionError("nobody is to go through that")

    node, _, far_broker = pair(world, Endless)
    client = connected(world)
    client.send(Publish(topic="t"))
    world.run(1)
    assert far_broker.topics() == []
    found = [fields["error"] for _, event, fields in log_of(node) if event == "plugin failed"]
    assert found == ["PluginError('the link with b comes twice in a route')"]


def test_a_message_does_not_go_over_the_link_of_another_node(world: World) -> None:
    class Straying(TreeAlgorithm):
        elsewhere: Link

        def route(self, topic: str, retain: bool, source: Link | None) -> list[tuple[Link, int]]:
            return [(self.elsewhere, 1)] if topic == "stray" else []

    node, far, far_broker = pair(world, Straying)
    third, _ = start(world, "c", Straying)
    third.links.add(Address("b", 2), False)
    world.run(2)
    Straying.elsewhere = api_of(third).links[0]
    client = connected(world)
    client.send(Publish(topic="stray"))
    world.run(1)
    with pytest.raises(PluginError, match="not a link of this node"):
        api_of(node).transfer(Straying.elsewhere, Publish(topic="t"))
    world.run(1)
    assert far_broker.topics() == []
    assert node.counters["plugin_errors"] == 1
    assert third.counters["transferred_out"] == far.counters["plugin_errors"] == 0


# what is handed out ---------------------------------------------------------------------------------


def test_what_is_handed_out_cannot_be_changed(world: World) -> None:
    node, far, _ = pair(world)
    api_of(far).links[0].inter_subscribe({"f": 1})
    world.run(1)
    shown: list[Any] = [
        api_of(node).local_interest,
        api_of(node).links[0].interest,
        api_of(far).links[0].announced,
    ]
    for mapping in shown:
        with pytest.raises(TypeError):
            mapping["x"] = 1
    links: Any = api_of(node).links
    with pytest.raises(AttributeError):
        links.clear()
    assert dict(api_of(node).links[0].interest) == {"f": 1}


def test_all_that_was_announced_can_be_withdrawn(world: World) -> None:
    node, far, _ = pair(world)
    link = api_of(node).links[0]
    link.inter_subscribe({"a": 1, "b": 1, "c": 1})
    world.run(1)
    assert len(api_of(far).links[0].interest) == 3
    link.inter_unsubscribe(link.announced)
    world.run(1)
    assert dict(link.announced) == dict(api_of(far).links[0].interest) == {}


# arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [None, ["a"], "a", 3, {"a": None}, [["a", 1]]])
def test_what_is_no_mapping_of_filters_is_refused(world: World, filters: Any) -> None:
    link = api_of(pair(world)[0]).links[0]
    with pytest.raises(PluginError):
        link.inter_subscribe(filters)
    assert dict(link.announced) == {}


@pytest.mark.parametrize("filters", [None, 3, [[]], "abc", ["a", 1]])
def test_what_is_no_filters_is_not_withdrawn(world: World, filters: Any) -> None:
    link = api_of(pair(world)[0]).links[0]
    link.inter_subscribe({"a": 1})
    with pytest.raises(PluginError):
        link.inter_unsubscribe(filters)
    assert dict(link.announced) == {"a": 1}


@pytest.mark.parametrize("properties", [None, 5, [1], "text"])
def test_a_message_whose_properties_are_none_is_refused(world: World, properties: Any) -> None:
    api = api_of(start(world)[0])
    with pytest.raises(PluginError, match="not a dict"):
        api.inject(Publish(topic="t", properties=properties))


@pytest.mark.parametrize("host", ["\ud800", "h" * 256, "a\nb"])
def test_a_host_that_cannot_be_is_refused(world: World, host: str) -> None:
    api = api_of(start(world)[0])
    with pytest.raises(PluginError, match="is no host"):
        api.create_session(host, 1)


@pytest.mark.parametrize("by", [1 << 63, -(1 << 20_000), True, 1.0], ids=["large", "huge", "bool", "float"])
def test_what_no_counter_comes_to_is_refused(world: World, by: Any) -> None:
    """A number of more than 4,300 digits could not be shown, nor all that is shown with it."""
    node, _ = start(world)
    with pytest.raises(PluginError, match="no int of 64 bits"):
        api_of(node).count("much", by)
    assert node.dispatch.loaded[0].counters == {}


def test_a_line_of_the_log_is_cut_wherever_it_is_long(world: World) -> None:
    node, _ = start(world)
    api_of(node).log("e" * 1_000_000, **{"n" * 1_000_000: "v" * 1_000_000})
    assert len(str(log_of(node)[-1])) < 3_000


def test_a_field_of_the_log_does_not_make_a_line_of_its_own(world: World) -> None:
    """Its name may be that of a client's user property."""
    node, _ = start(world)
    api_of(node).log("met", **{"a\n[error] b": 1, "\x1b[2J": 2, "\ud800": 3, "ü": 4})
    *_, fields = log_of(node)[-1]
    assert list(fields)[1:] == ["a\\n[error] b", "\\x1b[2J", "\\ud800", "ü"]


# what is kept ---------------------------------------------------------------------------------------


def test_results_that_wait_for_their_turn_are_bounded(world: World) -> None:
    """Work is handed in as long as that is possible, while each result is dealt with slowly."""
    given = 0

    def take_long(result: bytes | Exception) -> None:
        nonlocal given
        given += 1
        world.time += 0.1

    def hand_in() -> None:
        try:
            while True:
                api.offload(lambda: bytes(1000), take_long)
        except PluginError:
            node.driver.call_soon(hand_in)

    node, _ = start(world)
    api, loaded = api_of(node), node.dispatch.loaded[0]
    hand_in()
    world.run(5)
    assert given > 10
    assert loaded.offloads <= 100
    assert loaded.timers.waiting <= 100


def test_one_decision_may_be_that_on_several_questions(world: World) -> None:
    class Looking(Filter):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            self.found: Deferred[Subscription | Reject] = Deferred()
            api.call_later(1, self.found.decide, Reject())

        def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
            return self.found

    node, _ = start(world, plugin=None, filters=[("looking", Looking)])
    client = connected(world)
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=f) for f in "abc"]))
    world.run(2)
    assert client.got(SubAck)[0].reason_codes == [0x80] * 3
    assert node.counters["plugin_errors"] == 0


def test_a_decision_that_never_comes_keeps_nothing_of_those_who_asked(world: World) -> None:
    never: Deferred[bytes] = Deferred()

    class Waiting(Filter):
        wants = PUBLISHES

        def filter(self, session: Session, message: bytes) -> Any:
            return never

    start(world, plugin=None, filters=[("waiting", Waiting)])
    for number in range(20):
        client = connected(world, f"c{number}")
        client.send(Publish(topic="t"))
        world.run(0.1)
        if number % 2:
            client.transport.close()
    world.run(30)
    assert size_of([never]) < 2_000


def log_of(node: Node) -> list[tuple[str, str, dict[str, object]]]:
    assert isinstance(node.driver, WorldDriver)
    return node.driver.logged
