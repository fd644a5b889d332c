"""Unix sockets: clients that connect by one, and a broker that listens on one."""

from __future__ import annotations

import stat
from pathlib import Path

from ildm.testing.live.brokers import Mosquitto
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import StartNode, running


def test_a_client_comes_by_a_unix_socket(start_node: StartNode, tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    node = start_node(listeners=[{"url": f"unix:{path}", "mode": "0660"}])
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with connected(str(path), 1, transport="unix") as client:
        echoes(client)
        (row,) = node.admin.clients().items
        assert row["peer"] == f"unix:{path}"
    node.stop()
    assert not path.exists()


def test_only_the_owner_may_connect_until_told_otherwise(start_node: StartNode, tmp_path: Path) -> None:
    start_node(listeners=[{"url": f"unix:{tmp_path / 'clients.sock'}"}])
    assert stat.S_IMODE((tmp_path / "clients.sock").stat().st_mode) == 0o600


def test_the_broker_listens_on_a_unix_socket(start_node: StartNode, tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with running(Mosquitto(tmp_path / "unix-broker", extra=[f"listener 0 {path}"])):
        node = start_node(algorithm="pf", broker={"address": f"unix:{path}"})
        status = node.status()
        assert status is not None
        assert status["broker"]["address"] == f"unix:{path}"
        with connected(*node.address) as client:
            echoes(client)
