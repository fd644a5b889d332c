"""A configuration that cannot be taken up whole leaves everything as it was."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.api import Filter, Session, Source
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.mqtt import PacketType
from ildm.net.reload import ReloadError
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.reload.conftest import MakeRig, Rig
from tests.net.test_plugin_reload import SPECS, Options
from tests.net.transport.pki import Pki

CHANGED = {"limits": {"clients": 7}, "log": {"level": "warning"}}
"""What could be taken up, in the same file as what cannot."""


class Before:
    """All that a reload could have changed, to be compared with what is there after one."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.state = self._state()

    def _state(self) -> tuple[Any, ...]:
        server = self.rig.server
        listeners = [(each, each.port, each.key) for each in server.for_clients]
        plugins = [dict(each.options) for each in server.node.dispatch.loaded]
        neighbors = sorted(map(str, server.node.links.neighbors))
        timer = server.renewal
        dumped = server.config.model_dump_json()
        return dumped, listeners, plugins, neighbors, server.metrics, server.tls, timer, server.secrets

    def assert_the_same(self) -> None:
        assert self._state() == self.state
        assert self.rig.counted("config_reloads_refused") == 1
        assert self.rig.counted("config_reloads_applied") == 0


async def refused(rig: Rig, **changes: Any) -> str:
    before = Before(rig)
    with pytest.raises(ReloadError) as caught:
        await rig.reload(**changes)
    before.assert_the_same()
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node_id": "other"}, "node_id: node -> other"),
        ({"state_dir": "elsewhere"}, "/elsewhere"),
        ({"algorithm": "sf"}, "algorithm: null -> sf"),
        ({"link": {"sessions": 2}}, "link.sessions: 1 -> 2"),
        ({"link": {"queue_bytes": 1 << 20}}, "link.queue_bytes: 33554432 -> 1048576"),
        ({"broker": {"keep_alive": 60}}, "broker.keep_alive: 30 -> 60"),
        ({"spool": {"mode": "off"}}, "spool.mode: process -> off"),
        ({"admin": {"socket": "other.sock"}}, "admin.socket: null -> "),
    ],
)
async def test_what_needs_a_restart_is_named(rig: MakeRig, changes: dict[str, Any], said: str) -> None:
    node = await rig()
    text = await refused(node, **CHANGED, **changes)
    assert "nothing was changed, as this needs a restart:" in text
    assert said in text
    assert "limits.clients" not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limits": {"clients": 0}}, "limits.clients: Input should be greater than or equal to 1 (found 0)"),
        ({"limist": {}}, "limist: unknown key (limits?)"),
        ({"metrics": {"token_file": "missing"}}, "metrics.token_file: "),
        ({"filters": ["no-such"]}, "the plugins are none, and in the configuration filter 'no-such'"),
        ({"listeners": [{"url": "unix:none/at/all"}]}, "there is no directory"),
    ],
)
async def test_a_file_that_is_wrong(rig: MakeRig, changes: dict[str, Any], said: str) -> None:
    node = await rig()
    text = await refused(node, **{**CHANGED, **changes})
    assert str(node.source) in text
    assert "filters" in changes or said in text


async def test_a_file_that_is_gone(rig: MakeRig) -> None:
    node = await rig()
    before = Before(node)
    node.source.unlink()
    with pytest.raises(ReloadError, match="cannot be read: No such file"):
        await node.server.reloader.reload()
    before.assert_the_same()


@pytest.mark.parametrize("text", ["", "\n", "# all of it is a comment\n"])
async def test_a_file_that_is_empty(rig: MakeRig, text: str) -> None:
    node = await rig()
    before = Before(node)
    node.source.write_text(text)
    with pytest.raises(ReloadError) as caught:
        await node.server.reloader.reload()
    assert str(caught.value) == f"{node.source}: the file is empty: nothing was changed"
    before.assert_the_same()


async def test_a_port_that_is_taken(rig: MakeRig) -> None:
    """Those that were bound before it are given back."""
    node = await rig()
    free, metrics = free_port(), free_port()
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        listeners = [{"url": f"mqtt://{LOOPBACK}:{port}"} for port in (free, taken)]
        text = await refused(node, **CHANGED, listeners=listeners, metrics={"listen": metrics})
        assert text == f"listeners.1: cannot listen on {LOOPBACK}:{taken}: Address already in use"
        assert await node.refuses(free)
        assert await node.refuses(metrics)
        text = await refused_again(node, listeners=[], metrics={"listen": taken})
        assert text == f"metrics.listen: cannot listen on {LOOPBACK}:{taken}: Address already in use"
    assert not await node.refuses(node.port)


async def refused_again(rig: Rig, **changes: Any) -> str:
    with pytest.raises(ReloadError) as caught:
        await rig.reload(**changes)
    return str(caught.value)


async def test_a_certificate_that_cannot_be_used(rig: MakeRig, pki: Pki, tmp_path: Path) -> None:
    """In a file of the same name, or another one; the listener without TLS is not replaced either."""
    shown = pki.server("sound")
    cert = tmp_path / "node.crt"
    shutil.copy(shown["cert"], cert)
    listener = {"url": f"mqtts://{LOOPBACK}:0", "tls": {**shown, "cert": str(cert)}}
    node = await rig(listeners=[listener])
    cert.write_text("garbage")
    text = await refused(node, **CHANGED)
    assert f"listeners.0.tls.cert: {cert} holds no certificate in PEM form" in text
    other = pki.server("another")
    node.document["listeners"] = [{**listener, "tls": {**shown, "key": other["key"]}}]
    assert "is not the key of the certificate" in await refused_again(node)


@pytest.mark.parametrize(
    ("size", "said"),
    [(9, "algorithm 'sizing': ValueError('nine')"), ("many", "size")],
)
async def test_options_that_a_plugin_does_not_take(rig: MakeRig, size: object, said: str) -> None:
    algorithm, link = {"name": "sizing", "size": 1}, {"listen": f"{LOOPBACK}:0"}
    node = await rig(plugins=SPECS, algorithm=algorithm, filters=["bare"], link=link)
    listeners = [{"url": f"mqtt://{LOOPBACK}:{free_port()}"}]
    text = await refused(node, **CHANGED, algorithm={"size": size}, listeners=listeners)
    assert said in text
    assert node.server.node.dispatch.loaded[-1].options == SPECS.algorithm.config  # type: ignore[union-attr]


async def test_a_plugin_that_cannot_change_its_options(rig: MakeRig) -> None:
    class Fixed(Filter[Options]):
        wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

        def filter(self, session: Session, message: bytes) -> bytes:
            return message

    specs = PluginSpecs(None, [PluginSpec("fixed", Fixed, Options())])
    node = await rig(plugins=specs, filters=["fixed"])
    text = await refused(node, **CHANGED, filters=[{"name": "fixed", "size": 3}])
    assert text.endswith("filter 'fixed' cannot change size while it is at work: that needs a restart")


async def test_by_the_admin_api_the_reasons_are_the_answer(rig: MakeRig) -> None:
    node = await rig()
    before = Before(node)
    node.write(link={"sessions": 2}, limits={"clients": 7})
    client = AdminClient(node.server.config.admin_socket)
    with pytest.raises(AdminError, match=r"restart:\n  link\.sessions: 1 -> 2$"):
        await asyncio.to_thread(client.reload)
    before.assert_the_same()


async def test_a_dry_run_changes_and_counts_nothing(rig: MakeRig) -> None:
    node = await rig()
    before, port = Before(node), free_port()
    node.write(**CHANGED, listeners=[{"url": f"mqtt://{LOOPBACK}:{port}", "name": "more"}])
    client = AdminClient(node.server.config.admin_socket)
    answer = await asyncio.to_thread(client.reload, True)
    assert answer == {
        "file": str(node.source),
        "dry_run": True,
        "changes": [
            f"+ listeners[more]: {LOOPBACK}:{port}",
            "limits.clients: 100000 -> 7",
            "log.level: error -> warning",
        ],
        "warnings": [],
    }
    assert await node.refuses(port)
    node.write(limits={"clients": 0})
    with pytest.raises(AdminError, match=r"limits\.clients"):
        await asyncio.to_thread(client.reload, True)
    assert before.state == Before(node).state
    assert node.counted("config_reloads_refused") == node.counted("config_reloads_applied") == 0


async def test_a_node_without_a_file_has_none_to_read(rig: MakeRig) -> None:
    node = await rig()
    node.server.source = None
    assert await refused(node) == "this node was not started with a configuration file"


async def test_a_node_that_stops_takes_nothing_up(rig: MakeRig) -> None:
    node = await rig()
    node.server.request_stop()
    assert await refused(node, **CHANGED) == "the node is stopping"
