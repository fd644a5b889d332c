"""``ildm plugin reload`` on a live node, and what ``ildm algorithm`` shows of its plugins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.client import AdminClient
from ildm.admin.commands import plugin_reload
from ildm.admin.view import AdminError
from ildm.api import Filter, NodeApi, PluginConfig, Session, Source, TreeAlgorithm
from ildm.config import load_config
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.mqtt import PacketType
from ildm.net.run import NodeServer


class Opaque:
    """A type that has no JSON."""


class Options(PluginConfig):
    model_config = {**PluginConfig.model_config, "arbitrary_types_allowed": True}

    size: int = 1
    shape: Any = Opaque()


class Sizing(TreeAlgorithm[Options]):
    """Takes other sizes but 9."""

    def on_ildm_start(self) -> None:
        self.api.count("started")
        self.api.gauge("size", 0.5)
        self.api.call_later(1000, print)

    def on_config_changed(self) -> None:
        self.api.gauge("size", self.config.size)
        if self.config.size == 9:
            raise ValueError("nine")


class Bare(Filter):
    """Does not even keep what its constructor gets."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        """Nothing."""

    def filter(self, session: Session, message: bytes) -> bytes:
        return message


SPECS = PluginSpecs(PluginSpec("sizing", Sizing, Options()), [PluginSpec("bare", Bare, PluginConfig())])


def write(path: Path, size: object, more: str = "") -> None:
    path.write_text(
        "listen: 127.0.0.1:0\nlink: {listen: 127.0.0.1:0}\nlog: {level: error}\nfilters: [bare]\n"
        f"algorithm: {{name: sizing, size: {size}}}\n{more}"
    )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NodeServer]:
    source = tmp_path / "node.yaml"
    write(source, 1)
    made = NodeServer(load_config(source), SPECS, source)
    await made.start()
    yield made
    await made.stop()


async def ask(server: NodeServer, method: str) -> Any:
    client = AdminClient(server.config.admin_socket)
    if method == "plugin reload":
        return await asyncio.to_thread(plugin_reload, client)
    return await asyncio.to_thread(getattr(client, method))


async def test_options_are_read_again(server: NodeServer, tmp_path: Path) -> None:
    source = tmp_path / "node.yaml"
    write(source, 2, "limits: {clients: 10}\n")
    bare = {"kind": "filter", "name": "bare", "result": "unchanged", "options": [], "error": None}
    assert await ask(server, "plugin reload") == {
        "file": str(source),
        "plugins": [
            bare,
            {"kind": "algorithm", "name": "sizing", "result": "changed", "options": ["size"], "error": None},
        ],
        "not_applied": ["limits.clients"],
    }
    assert server.node.config.limits.clients != 10
    algorithm = await ask(server, "algorithm")
    assert (algorithm["options"]["size"], algorithm["gauges"]) == (2, {"size": 2.0})
    write(source, 9)
    with pytest.raises(AdminError) as refused:
        await ask(server, "plugin reload")
    assert str(refused.value).splitlines() == [
        "filter 'bare': unchanged",
        "algorithm 'sizing' has its former options: ValueError('nine')",
    ]
    assert (await ask(server, "algorithm"))["options"]["size"] == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("algorithm: [", "not YAML"),
        ("listen: 7\n", "listen: "),
        ("filters: [bare]\n", "that needs a restart"),
        ("filters: [bare]\nalgorithm: {name: sizing, size: x}\n", "algorithm 'sizing': size: "),
    ],
)
async def test_a_file_that_is_wrong_changes_nothing(
    server: NodeServer, tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "node.yaml").write_text(text)
    with pytest.raises(AdminError) as refused:
        await ask(server, "plugin reload")
    assert str(refused.value).startswith(str(tmp_path / "node.yaml"))
    assert complaint in str(refused.value)
    assert (await ask(server, "algorithm"))["options"]["size"] == 1


async def test_a_node_without_a_file_says_so(server: NodeServer) -> None:
    server.admin.view._source = None  # type: ignore[attr-defined]
    with pytest.raises(AdminError, match="not started with a configuration file"):
        await ask(server, "plugin reload")


async def test_what_is_shown_of_plugins(server: NodeServer) -> None:
    algorithm = await ask(server, "algorithm")
    seconds = algorithm.pop("seconds")
    assert 0 <= seconds < 10
    assert "Opaque" in algorithm.pop("options")["shape"]
    (bare,) = algorithm.pop("filters")
    assert algorithm == {
        "name": "sizing",
        "topology": "tree",
        "counters": {"started": 1},
        "gauges": {"size": 0.5},
        "errors": 0,
        "slow_hooks": 0,
        "calls": 1,
        "refused": {},
        "waiting": {"timers": 1, "sessions": 0, "offloads": 0},
    }
    del algorithm["topology"]
    nothing = {"options": {}, "counters": {}, "gauges": {}, "calls": 0, "seconds": 0}
    waiting = {"timers": 0, "sessions": 0, "offloads": 0}
    assert bare == {**algorithm, **nothing, "name": "bare", "waiting": waiting}
    server.node.dispatch.loaded[1].refuse("log", "")
    assert (await ask(server, "status"))["counters"]["plugin_refused"] == 1
