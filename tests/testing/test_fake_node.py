"""One plugin in a unit test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ildm import testing
from ildm.api import (
    Filter,
    Link,
    NodeApi,
    NodeStatus,
    OverlayAlgorithm,
    Peer,
    PluginConfig,
    PluginError,
    Route,
    SendResult,
    Stamp,
    TreeAlgorithm,
    Unreachable,
    Via,
)
from ildm.mqtt import Property, Publish
from ildm.testing import FakeNode, SimulationError
from ildm.testing.contract import stamped
from ildm_algorithms.pf import PublicationFlooding
from ildm_algorithms.sf import SubscriptionFlooding


def test_an_algorithm_sees_clients_and_neighbours() -> None:
    node = FakeNode(SubscriptionFlooding)
    link = node.link("b")
    assert [found.node_id for found in node.links] == ["b"]
    node.subscribe("alarm/#", qos=1)
    assert link.announced == {"alarm/#": 1}
    node.unsubscribe("alarm/#")
    assert link.announced == {}
    link.hear({"t": 0, "u": 1})
    link.hear({"u": None})
    node.publish("t", b"x", qos=1)
    node.publish("u", b"y")
    (gone,) = node.transferred
    assert (gone.link, gone.message.topic, gone.message.payload, gone.message.qos) == (link, "t", b"x", 0)


def test_messages_of_neighbours_reach_the_broker_and_go_on() -> None:
    node = FakeNode(PublicationFlooding)
    one, two = node.link("b"), node.link("c")
    node.subscribe("#", qos=2)
    node.arrive(one, Publish(topic="t", payload=b"x", qos=1, packet_id=7))
    assert [(m.topic, m.payload, m.qos) for m in node.injected] == [("t", b"x", 1)]
    assert [(d.topic, d.qos) for d in node.deliveries] == [("t", 1)]
    assert [(t.link, t.message.topic) for t in node.transferred] == [(two, "t")]


class Congested(TreeAlgorithm):
    """Passes by a link that is far behind, and waits for one that is full."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.kept: list[Publish] = []

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        ways = [link for link in self.api.links if link.queued < 10]
        for link in self.api.links:
            if link not in ways and not self.api.transfer(link, message, turn, -8):
                self.kept.append(message)
        return [Via(link, 1, 3) for link in ways]

    def on_writable(self, link: Link) -> None:
        while self.kept and self.api.transfer(link, self.kept[0], 0, -8):
            self.kept.pop(0)


def test_what_a_link_bears_is_the_tests_to_say() -> None:
    node = FakeNode(Congested)
    link = node.link("b")
    link.queue(9, 900)
    node.publish("t", b"1")
    link.queue(10, 1000)
    node.publish("t", b"2")
    link.queue(20, 2000, full=True)
    node.publish("t", b"3")
    assert (link.queued, link.queued_bytes) == (20, 2000)
    assert [(t.message.payload, t.priority) for t in node.transferred] == [(b"1", 3), (b"2", -8)]
    assert [message.payload for message in node.plugin.kept] == [b"3"]
    link.queue(10, 1000)
    assert [(t.message.payload, t.priority) for t in node.transferred][2:] == [(b"3", -8)]


def test_retained_messages_are_stamped_and_judged() -> None:
    node = FakeNode(PublicationFlooding)
    link = node.link("b")
    node.publish("t", b"mine", retain=True)
    (gone,) = node.transferred
    stamp = Stamp.of(gone.message)
    assert stamp is not None
    assert stamp.node == "node"
    older = stamped("t", b"older", -1 + stamp.time, "a")
    node.arrive(link, older)
    assert [(m.payload, m.retain, m.properties) for m in node.injected] == [(b"older", False, {})]
    assert older.properties  # the caller's is not touched
    assert node.broker.retained["t"].payload == b"mine"


def test_a_neighbour_that_leaves_is_heard_of_no_more() -> None:
    node = FakeNode(SubscriptionFlooding)
    link = node.link("b")
    link.hear({"t": 0})
    link.down()
    assert list(node.links) == []
    node.publish("t")
    assert node.transferred == []
    for call in (link.down, lambda: link.hear({"u": 0}), lambda: node.arrive(link, Publish(topic="t"))):
        with pytest.raises(SimulationError, match="has left"):
            call()
    again = node.link("b")
    assert again is not link
    with pytest.raises(SimulationError, match="up already"):
        node.link("b")


class Echo(OverlayAlgorithm):
    """Answers whoever sends, twice, and tells."""

    def __init__(self, api: Any, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.events: list[object] = []

    def on_link_up(self, link: Link) -> None:
        self.events.append(("up", link.node_id, link.introducer))
        self.api.send(link.peer, b"hello")

    def on_link_down(self, link: Link) -> None:
        self.events.append(("down", link.node_id))

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.events.append(("unreachable", node_id, reason))

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.api.count("echoed")
        self.api.log("echo", size=len(data))
        self.api.call_later(1.0, self.api.inject, Publish(topic=f"from/{sender.node_id}", payload=data))

    def on_publish(self, message: Publish, turn: int) -> None:
        self.events.append(("publish", message.topic))

    def on_ildm_stop(self) -> None:
        self.events.append("stop")


def test_an_overlay_sends_and_is_told() -> None:
    node = FakeNode(Echo)
    link = node.link("b", introducer=True)
    assert node.sent == [(link.peer, b"hello", 0)]
    node.publish("t")
    node.message("c", b"123")  # also from a node that there is no link with
    assert node.counters == {"echoed": 1}
    assert node.logged == [("echo", {"size": 3})]
    node.advance(0.5)
    assert node.injected == []
    node.advance(0.5)
    assert [(m.topic, m.payload) for m in node.injected] == [("from/c", b"123")]
    link.down()
    node.unreachable("d", Unreachable.NO_ANSWER)
    node.stop()
    assert node.plugin.events == [
        ("up", "b", True),
        ("publish", "t"),
        ("down", "b"),
        ("unreachable", "b", Unreachable.LOST),
        ("unreachable", "d", Unreachable.NO_ANSWER),
        "stop",
    ]


def test_a_link_that_was_closed_on_purpose_makes_nobody_unreachable() -> None:
    node = FakeNode(Echo)
    node.link("b").down(closed=True)
    assert node.plugin.events[-1] == ("down", "b")


def test_data_wait_for_their_link() -> None:
    node = FakeNode(Echo)
    b = node.link("b").peer
    to = b._replace(node_id="c", address="c.sim:1885")
    assert node.send(to, b"x", 3)
    assert [link.node_id for link in node.links] == ["b"]
    assert node.sent[-1] == (to, b"x", 3)
    assert node.link("c").dialed
    with pytest.raises(SimulationError, match="use its down"):
        node.unreachable("c")
    assert node.send(node.peer, b"to itself") is SendResult.SELF


class Options(PluginConfig):
    limit: int


class Clumsy(TreeAlgorithm[Options]):
    """Does wrong whatever it does."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        if topic == "raise":
            raise LookupError(topic)
        return [(link, self.config.limit) for link in self.api.links]


def test_options_are_checked() -> None:
    with pytest.raises(PluginError, match="limit: Input should be"):
        FakeNode(Clumsy, {"limit": "none"})


def test_a_hook_that_raises_raises_in_the_test() -> None:
    node = FakeNode(Clumsy, {"limit": 9})
    link = node.link("b")
    with pytest.raises(LookupError):
        node.publish("raise")
    with pytest.raises(PluginError, match="QoS 9"):
        node.publish("t")
    with pytest.raises(PluginError, match="not bytes"):
        node.transfer(link, Publish(topic="t", payload="text"))  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="OverlayAlgorithm"):
        node.send(link.peer, b"x")
    with pytest.raises(SimulationError, match="no OverlayAlgorithm"):
        node.message("b", b"x")
    assert node.transferred == node.sent == []
    assert node.status is NodeStatus.RUNNING


class Sized(Filter):
    class Config(PluginConfig):
        size: int = 1


def test_wrong_options_are_named_as_by_the_live_node() -> None:
    with pytest.raises(PluginError, match=r"filter 'Sized': sise: unknown option \(size\?\)"):
        FakeNode(Sized, {"sise": 2})
    with pytest.raises(PluginError, match=r"algorithm 'SubscriptionFlooding': qqos: unknown option"):
        FakeNode(SubscriptionFlooding, {"qqos": 2})


def test_expiry_passes_with_time() -> None:
    node = FakeNode(PublicationFlooding)
    node.publish("t", b"x", retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 10})
    node.advance(4)
    (kept,) = node.retained("#")
    assert kept.properties[Property.MESSAGE_EXPIRY_INTERVAL] == 6


def test_the_examples_of_the_page_run() -> None:
    """Each block of the kit's page by itself, but for those that need pytest's fixtures."""
    page = (Path(testing.__file__).parent / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "page"})
