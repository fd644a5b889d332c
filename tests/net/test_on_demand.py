"""Links made on demand between nodes with real sockets; brokers are not needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.view import AdminError
from ildm.api import (
    Algorithm,
    Link,
    MessageTrace,
    NodeApi,
    OverlayAlgorithm,
    OverlayView,
    Peer,
    PluginConfig,
    PluginError,
    SendResult,
    TracedTree,
    TreeNode,
    Unreachable,
)
from ildm.config import ConfigError, parse_config
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.net.run import NodeServer
from ildm.net.traces_view import DEEPEST, trace_row
from ildm.net.view import LiveView
from tests.support.ports import LOOPBACK, free_port


class Talker(OverlayAlgorithm):
    """Puts what it hears, and of whom, into queues which a test can wait for."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.unreachable: asyncio.Queue[tuple[str, Unreachable]] = asyncio.Queue()
        self.links: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.then: Callable[[], object] = lambda: None
        self.shown: Any = OverlayView(node=api.node_id)

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.heard.put_nowait((sender.node_id, data))

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.unreachable.put_nowait((node_id, reason))
        self.then()

    def on_link_up(self, link: Link) -> None:
        self.links.put_nowait(("up", link.node_id))

    def on_link_down(self, link: Link) -> None:
        self.links.put_nowait(("down", link.node_id))

    def overlay(self) -> OverlayView | None:
        return self.shown

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        if topic == "bad":
            raise ValueError("out of order")
        if topic == "early":
            raise PluginError("not yet")
        done({} if topic == "other type" else MessageTrace(topic=topic))  # type: ignore[arg-type]


class Mute(OverlayAlgorithm):
    """Says nothing."""


class Nodes:
    """Nodes by name; one that is started again has the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, NodeServer] = {}
        self.ports: dict[str, int] = {}

    async def start(self, name: str, algorithm: type[Algorithm] = Talker, **link: Any) -> Talker:
        port = self.ports.setdefault(name, free_port())
        document = {
            "node_id": name,
            "state_dir": name,
            "listen": f"{LOOPBACK}:{free_port()}",
            "broker": {"address": f"{LOOPBACK}:{free_port()}"},
            "algorithm": "talker",
            "link": {
                "listen": f"{LOOPBACK}:{port}",
                "reconnect_min": 0.02,
                "reconnect_max": 0.1,
                **link,
            },
            "limits": {"drain_timeout": 0.5},
            "log": {"level": "error"},
        }
        specs = PluginSpecs(PluginSpec("talker", algorithm, algorithm.Config()), [])
        server = NodeServer(parse_config(document, "test", self.directory), specs)
        await server.start()
        self.running[name] = server
        plugin = server.node.dispatch.algorithm
        assert isinstance(plugin, Algorithm)
        return plugin  # type: ignore[return-value]  # Mute is only looked at from outside

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()

    def view(self, name: str) -> LiveView:
        server = self.running[name]
        return LiveView(server.node, server.store, server.request_stop)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for name in list(made.running):
        await made.stop(name)


async def exchange(here: Talker, there: Talker) -> None:
    """One message each way."""
    assert here.api.send(there.api.peer, b"to")
    assert await there.heard.get() == (here.api.node_id, b"to")
    assert there.api.send(here.api.peer, b"fro")
    assert await here.heard.get() == (there.api.node_id, b"fro")


@pytest.mark.parametrize("sessions", [1, 3])
async def test_three_nodes_send_to_each_other_in_order(nodes: Nodes, sessions: int) -> None:
    three = [await nodes.start(name, sessions=sessions) for name in "abc"]
    for number in range(300):
        for one in three:
            for other in three:
                if one is not other:
                    assert one.api.send(other.api.peer, b"%d" % number, turn=number % 3)
        if number % 50 == 0:
            await asyncio.sleep(0)
    for one in three:
        heard = [await one.heard.get() for _ in range(600)]
        for sender in {"a", "b", "c"} - {one.api.node_id}:
            numbers = [int(data) for name, data in heard if name == sender]
            assert sorted(numbers) == list(range(300))
            for turn in range(3):
                assert [n for n in numbers if n % 3 == turn] == list(range(turn, 300, 3))
        assert one.unreachable.empty()
        assert len(one.api.links) == 2


async def test_both_dial_at_once_again_and_again(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    for _ in range(20):
        for number in range(3):
            a.api.send(b.api.peer, b"a%d" % number)
            b.api.send(a.api.peer, b"b%d" % number)
            await asyncio.sleep(0)
        assert [await b.heard.get() for _ in range(3)] == [("a", b"a%d" % n) for n in range(3)]
        assert [await a.heard.get() for _ in range(3)] == [("b", b"b%d" % n) for n in range(3)]
        assert (len(a.api.links), len(b.api.links)) == (1, 1)
        nodes.running["a"].node.links.remove("b")
        for talker, far in ((a, "b"), (b, "a")):
            assert [await talker.links.get(), await talker.links.get()] == [("up", far), ("down", far)]
            assert talker.unreachable.empty()


async def test_a_node_that_restarts_is_reported_and_reached_again(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    await exchange(a, b)
    await nodes.stop("b")
    assert (await a.unreachable.get())[0] == "b"
    a.api.send(b.api.peer, b"nobody there")
    assert (await a.unreachable.get())[0] == "b"
    b = await nodes.start("b")
    await exchange(a, b)


async def test_a_node_that_is_killed_is_reported_at_once(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    await exchange(a, b)
    nodes.running["b"].kill()
    assert (await a.unreachable.get())[0] == "b"
    assert not a.api.links
    await nodes.stop("b")
    b = await nodes.start("b")
    await exchange(b, a)


async def test_an_unused_link_is_closed_and_made_again(nodes: Nodes) -> None:
    a, b = await nodes.start("a", idle=0.1), await nodes.start("b", idle=0.1)
    for _ in range(3):
        await exchange(a, b)
        for talker, far in ((a, "b"), (b, "a")):
            assert await talker.links.get() == ("up", far)
            assert await talker.links.get() == ("down", far)
    assert a.unreachable.empty()
    assert b.unreachable.empty()
    assert nodes.running["a"].node.counters["algorithm_dropped_unreachable"] == 0


async def test_a_configured_link_is_not_closed(nodes: Nodes) -> None:
    a = await nodes.start("a", idle=0.05)
    b = await nodes.start("b", idle=0.05, neighbors=[a.api.peer.address])
    c = await nodes.start("c", idle=0.05)
    assert await a.links.get() == ("up", "b")
    for _ in range(2):  # each time long enough for the other to be closed
        await exchange(a, c)
        assert [await c.links.get(), await c.links.get()] == [("up", "a"), ("down", "a")]
        assert [await a.links.get(), await a.links.get()] == [("up", "c"), ("down", "c")]
    assert [(link.node_id, link.introducer) for link in b.api.links] == [("a", True)]
    assert [(row["node_id"], row["on_demand"], row["state"]) for row in nodes.view("a").neighbors()] == [
        ("b", False, "active")
    ]


async def test_a_wrong_secret(nodes: Nodes) -> None:
    a, b = await nodes.start("a", secret="one"), await nodes.start("b", secret="two")
    a.api.send(b.api.peer, b"x")
    assert (await a.unreachable.get())[0] == "b"
    assert b.heard.empty()
    assert nodes.running["b"].node.counters["links_refused_secret"] == 1


async def test_another_node_at_the_address(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    a.api.send(Peer("c", b.api.peer.address), b"x")
    assert (await a.unreachable.get())[0] == "c"
    await exchange(a, b)


async def test_a_hook_that_sends_again_costs_one_dial_each_time(nodes: Nodes) -> None:
    a = await nodes.start("a")
    nobody = Peer("x", f"{LOOPBACK}:{free_port()}")
    a.then = lambda: a.api.send(nobody, b"again")
    a.api.send(nobody, b"first")
    began = a.api.now()
    for _ in range(5):
        assert await a.unreachable.get() == ("x", Unreachable.REFUSED)
    assert a.api.now() - began > 0.01 + 0.02 + 0.04 + 0.05
    assert nodes.running["a"].node.counters["on_demand_dials"] == 5


async def test_an_address_where_nobody_answers(nodes: Nodes) -> None:
    a = await nodes.start("a", connect_timeout=0.1, queue_messages=10)
    silent = await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0)
    port = silent.sockets[0].getsockname()[1]
    sent = [a.api.send(Peer("x", f"{LOOPBACK}:{port}"), b"x") for _ in range(15)]
    assert sent == [SendResult.OK] * 10 + [SendResult.FULL] * 5
    assert (await a.unreachable.get())[0] == "x"
    counters = nodes.running["a"].node.counters
    assert counters["algorithm_dropped_full"] == 5
    assert counters["algorithm_dropped_unreachable"] == 10
    silent.close()


async def test_a_node_that_does_not_read_fills_the_queue_and_no_more(nodes: Nodes) -> None:
    a, b = await nodes.start("a", queue_bytes=1 << 20), await nodes.start("b")
    await exchange(a, b)
    far = nodes.running["b"].node.links.links["a"]
    far.open_sessions[0].pause("test")
    sent = 0
    while a.api.send(b.api.peer, bytes(100_000)):
        sent += 1
        await asyncio.sleep(0)
    assert nodes.running["a"].node.links.links["b"].queued_bytes <= 1 << 20
    far.open_sessions[0].resume("test")
    for _ in range(sent):
        assert await b.heard.get() == ("a", bytes(100_000))


async def test_a_free_port_is_advertised_as_what_it_is(nodes: Nodes) -> None:
    a = await nodes.start("a", listen=f"{LOOPBACK}:0")
    assert a.api.peer == Peer("a", f"{LOOPBACK}:{nodes.running['a'].ports[1]}")
    await exchange(await nodes.start("b"), a)


async def test_a_wildcard_address_needs_one_to_advertise(nodes: Nodes) -> None:
    port = free_port()
    everywhere: dict[str, Any] = {"listen": f"0.0.0.0:{port}", "allow_without_secret": True}
    with pytest.raises(ConfigError, match=r"link\.advertise: algorithm talker needs it"):
        await nodes.start("a", **everywhere)
    a = await nodes.start("a", **everywhere, advertise=f"{LOOPBACK}:{port}")
    await exchange(await nodes.start("b"), a)


async def test_what_the_administrator_sees(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    await exchange(a, b)
    for name, far, direction in (("a", b, "out"), ("b", a, "in")):
        (row,) = nodes.view(name).neighbors()
        assert (row["node_id"], row["address"]) == far.api.peer
        assert (row["state"], row["direction"], row["on_demand"]) == ("active", direction, True)
        assert (row["transferred_out"], row["transferred_in"]) == (1, 1)
        status = nodes.view(name).status()
        assert status["links"] == {"active": 1, "blocked": 0, "down": 0, "refused": 0, "on_demand": 1}
        assert (status["counters"]["algorithm_in"], status["counters"]["algorithm_out"]) == (1, 1)
    assert nodes.view("a").status()["counters"]["on_demand_dials"] == 1


def test_a_trace_becomes_json_however_deep_its_trees_are() -> None:
    tree = TreeNode(node="n999", keys=["k"])
    for number in reversed(range(999)):
        tree = TreeNode(node=f"n{number}", depth=number, children=[tree, TreeNode(node="leaf")])
    traced = [TracedTree(name="t", tree=tree, facts={"suspended": False}), TracedTree(name="u")]
    row = json.loads(json.dumps(trace_row(MessageTrace(topic="t", trees=traced, nodes=999))))
    assert (row["topic"], row["nodes"], row["complete"]) == ("t", 999, True)
    deep, empty = row["trees"]
    assert empty == {"name": "u", "tree": None, "facts": {}}
    assert deep["facts"] == {"suspended": False, "shown to depth": DEEPEST}
    here, depth = deep["tree"], 0
    while here["children"]:
        assert [child["node"] for child in here["children"]] == [f"n{depth + 1}", "leaf"]
        here, depth = here["children"][0], depth + 1
    assert (here["node"], depth) == (f"n{DEEPEST}", DEEPEST)


async def test_the_overlay_of_a_node(nodes: Nodes) -> None:
    talker = await nodes.start("a")
    await nodes.start("b", Mute)
    view = nodes.view("a")
    assert view.overlay() == OverlayView(node="a")
    talker.shown = None
    with pytest.raises(AdminError, match="nothing to show of an overlay now"):
        view.overlay()
    found: list[dict[str, Any] | AdminError] = []
    view.trace("t", found.append)
    assert found == [
        {"topic": "t", "trees": [], "nodes": 0, "messages": 0, "depth": 0, "complete": True},
    ]
    with pytest.raises(AdminError, match="algorithm talker failed in trace: ValueError"):
        view.trace("bad", found.append)
    with pytest.raises(AdminError, match=r"^not yet$"):
        view.trace("early", found.append)
    assert view.algorithm()["errors"] == 1
    talker.shown = {"node": "a"}
    with pytest.raises(AdminError, match=r"failed in overlay: .*answered dict, not OverlayView"):
        view.overlay()
    view.trace("other type", found.append)
    assert isinstance(found[1], AdminError)
    assert "answered dict, not MessageTrace" in str(found[1])
    assert view.algorithm()["errors"] == 3
    with pytest.raises(AdminError, match="do not cross"):
        view.trace("$SYS/x", found.append)
    with pytest.raises(AdminError, match="algorithm talker has no overlay"):
        nodes.view("b").overlay()
    with pytest.raises(AdminError, match="algorithm talker cannot trace messages"):
        nodes.view("b").trace("t", found.append)
