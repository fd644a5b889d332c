"""Neighbours changed at run time, over restarts, with real sockets; the brokers are not needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ildm import __version__
from ildm.admin.view import AdminError
from ildm.config import parse_address, parse_config
from ildm.core.link.versions import PROTOCOLS
from ildm.net.neighbors_view import OLDER, mixed_releases
from ildm.net.run import NodeServer
from ildm.net.view import LiveView
from tests.support.ports import free_port


class Nodes:
    """Nodes by name; one that is started again has the same ports and state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, NodeServer] = {}
        self.ports: dict[str, int] = {}

    async def start(self, name: str, neighbors: list[Any] | None = None, **link: Any) -> LiveView:
        port = self.ports.setdefault(name, free_port())
        document = {
            "node_id": name,
            "state_dir": name,
            "listen": f"127.0.0.1:{free_port()}",
            "broker": {"address": f"127.0.0.1:{free_port()}"},
            "algorithm": "sf",
            "link": {
                "listen": f"127.0.0.1:{port}",
                "neighbors": neighbors or [],
                "settle": 0.02,
                "reconnect_min": 0.05,
                "reconnect_max": 0.2,
                **link,
            },
        }
        server = NodeServer(parse_config(document, "test", self.directory))
        await server.start()
        self.running[name] = server
        return LiveView(server.node, server.store, server.request_stop)

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for name in list(made.running):
        await made.stop(name)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - what is waited for is in plain data
            await asyncio.sleep(0.01)


def states(view: LiveView) -> list[tuple[str | None, str, bool]]:
    return [(row["node_id"], row["state"], row["saved"]) for row in view.neighbors()]


async def test_an_added_neighbour_survives_a_restart_and_a_removed_one_does_not(nodes: Nodes) -> None:
    a, b = await nodes.start("a"), await nodes.start("b")
    row = b.add_neighbor(parse_address(nodes.address("a")), save=True)
    assert row["state"] == "connecting"
    await until(lambda: states(b) == [("a", "active", True)])
    await until(lambda: states(a) == [("b", "active", False)])
    assert a.neighbors()[0]["direction"] == "in"
    await nodes.stop("b")
    b = await nodes.start("b")
    await until(lambda: states(b) == [("a", "active", True)])
    assert b.remove_neighbor("a", save=True, force=False) == {
        "address": nodes.address("a"),
        "node_id": "a",
        "state": "removed",
        "thrown_away": {"messages": 0, "bytes": 0, "oldest": None},
    }
    assert states(b) == []
    await until(lambda: states(a) == [])
    await nodes.stop("b")
    assert states(await nodes.start("b")) == []


async def test_not_saved(nodes: Nodes) -> None:
    await nodes.start("a")
    b = await nodes.start("b")
    b.add_neighbor(parse_address(nodes.address("a")), save=False)
    await until(lambda: states(b) == [("a", "active", False)])
    await nodes.stop("b")
    assert states(await nodes.start("b")) == []


async def test_a_configured_neighbour_removed_at_run_time_stays_away(nodes: Nodes) -> None:
    await nodes.start("a")
    configured = [nodes.address("a")]
    b = await nodes.start("b", configured)
    await until(lambda: states(b) == [("a", "active", False)])
    b.remove_neighbor(nodes.address("a"), save=True, force=False)
    await nodes.stop("b")
    b = await nodes.start("b", configured)
    assert states(b) == []
    b.add_neighbor(parse_address(nodes.address("a")), save=True)
    await until(lambda: states(b) == [("a", "active", True)])


async def test_errors_say_what_is_wrong(nodes: Nodes) -> None:
    b = await nodes.start("b", max_neighbors=1)
    with pytest.raises(AdminError, match=r"127\.0\.0\.1:9 is not a neighbour"):
        b.remove_neighbor("127.0.0.1:9", save=True, force=False)
    b.add_neighbor(parse_address(f"127.0.0.1:{free_port()}"), save=False)
    row = b.neighbors()[0]
    with pytest.raises(AdminError, match="is already a neighbour"):
        b.add_neighbor(parse_address(row["address"]), save=False)
    with pytest.raises(AdminError, match="max_neighbors"):
        b.add_neighbor(parse_address("127.0.0.1:9"), save=False)
    await until(lambda: b.neighbors()[0]["state"] == "down")
    assert b.neighbors()[0]["reason"] == "Connection refused"


async def test_two_nodes_with_different_secrets_tell_why(nodes: Nodes) -> None:
    await nodes.start("a", secret="one")
    b = await nodes.start("b", secret="two")
    b.add_neighbor(parse_address(nodes.address("a")), save=False)
    await until(lambda: b.neighbors()[0]["state"] == "refused")
    assert b.neighbors()[0]["reason"] == "wrong link secret"


async def test_only_the_node_that_is_named_may_answer(nodes: Nodes) -> None:
    await nodes.start("b")
    a = await nodes.start("a", [{"url": nodes.address("b"), "id": "c"}])
    await until(lambda: "b answers at this address, not c" in (a.neighbors()[0]["reason"] or ""))
    assert a.neighbors()[0]["state"] == "refused"
    await nodes.stop("a")
    a = await nodes.start("a", [{"url": nodes.address("b"), "id": "b"}])
    await until(lambda: [row["state"] for row in a.neighbors()] == ["active"])


async def test_many_sessions_come_back_after_a_restart_of_the_neighbour(nodes: Nodes) -> None:
    await nodes.start("a", sessions=4)
    b = await nodes.start("b", [nodes.address("a")], sessions=4)
    await until(lambda: b.neighbors()[0]["sessions"] == {"open": 4, "of": 4})
    await nodes.stop("a")
    await until(lambda: b.neighbors()[0]["state"] == "down")
    await nodes.start("a", sessions=4)
    await until(lambda: b.neighbors()[0]["sessions"] == {"open": 4, "of": 4})
    await until(lambda: b.neighbors()[0]["state"] == "active")


@pytest.mark.parametrize("disabled", [[], ["weights"]])
async def test_what_is_spoken_with_neighbours_is_told(nodes: Nodes, disabled: list[str]) -> None:
    a = await nodes.start("a", features={"disabled": disabled})
    b = await nodes.start("b", [nodes.address("a")])
    await until(lambda: states(b) == [("a", "active", False)] and states(a) == [("b", "active", False)])
    assert spoken(a) == spoken(b)
    ((release, protocol, features),) = spoken(a)
    assert (release, protocol) == (__version__, PROTOCOLS.high)
    assert ("weights" in features) is not bool(disabled)
    expected = {"release": release, "protocol": protocol, "features": features, "neighbors": 1}
    assert a.status()["releases"] == b.status()["releases"] == [expected]
    assert mixed_releases(a.node) is None
    (link,) = a.node.links.links.values()
    assert link.hello is not None
    link.hello = replace(link.hello, release="")
    assert mixed_releases(a.node) == f"{OLDER}: 1, {__version__}: 1"


def spoken(view: LiveView) -> list[tuple[str, int, list[str]]]:
    return [(row["release"], row["protocol"], row["features"]) for row in view.neighbors()]
