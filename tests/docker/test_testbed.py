"""Brokers and nodes started with the files of docker/ are healthy and behave as one broker."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ildm.admin.client import AdminClient
from ildm.mqtt import PingReq, PingResp
from tests.docker.files import BROKERS, DOCKER
from tests.docker.node_process import NodeProcess
from tests.docker.testbed import COMPOSED, LocalNode, broker_is_healthy
from tests.sites.client import Client, until
from tests.support.brokers import Broker, require_broker
from tests.support.ports import LOOPBACK, free_port

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """The four brokers, the slow ones started at once."""
    for name in BROKERS:
        require_broker(name)
    made = {name: COMPOSED[name](tmp_path_factory.mktemp(name)) for name in BROKERS}
    try:
        first, *others = made.values()
        first.start()  # alone: what watches over all brokers is made by the first one
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(broker.start) for broker in others]:
                started.result()
        yield made
    finally:
        for broker in made.values():
            broker.kill()


@pytest.fixture
def nodes(brokers: dict[str, Broker], tmp_path: Path) -> dict[str, LocalNode]:
    """The four nodes, configured and not running."""
    secret = tmp_path / "secrets/link-secret"
    subprocess.run([DOCKER / "new-secret", secret], check=True)
    made = {name: LocalNode(name, tmp_path / name, brokers[name].port, secret) for name in BROKERS}
    for node in made.values():
        node.write({name: other.link_port for name, other in made.items()})
    return made


@pytest.mark.parametrize("name", BROKERS)
def test_a_brokers_health_check_tells_whether_it_answers(name: str, brokers: dict[str, Broker]) -> None:
    assert broker_is_healthy(name, brokers[name].port), brokers[name].log()
    assert not broker_is_healthy(name, free_port())


def test_a_nodes_health_check_tells_whether_it_answers(nodes: dict[str, LocalNode], tmp_path: Path) -> None:
    node = nodes["mosquitto"]
    before = node.health_check()
    assert before.returncode == 1
    assert "no node runs" in before.stderr
    with NodeProcess(tmp_path, node.config):
        during = node.health_check()
        assert during.returncode == 0, during.stderr
        assert "mosquitto" in during.stdout
    assert node.health_check().returncode == 1


def test_a_node_without_its_broker_is_healthy(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of a test")
    node = LocalNode("mosquitto", tmp_path / "node", free_port(), secret)
    node.write({"mosquitto": node.link_port})
    with NodeProcess(tmp_path, node.config) as process:
        process.wait_for("broker unavailable")
        assert AdminClient(node.socket).status()["broker"]["connected"] is False
        assert node.health_check().returncode == 0


async def test_a_message_published_at_any_site_reaches_all_four(
    nodes: dict[str, LocalNode], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as running:
        for node in nodes.values():
            await asyncio.to_thread(running.enter_context, NodeProcess(tmp_path, node.config))
        admins = {name: AdminClient(node.socket) for name, node in nodes.items()}
        links = {"mosquitto": 2, "activemq": 1, "rabbitmq": 2, "moquette": 1}
        await until(
            lambda: all(admin.status()["links"]["active"] == links[name] for name, admin in admins.items()),
            "the links of the tree",
        )
        clients = {name: await connect(name, node.port) for name, node in nodes.items()}
        for client in clients.values():
            await client.subscribe(("demo/+", 1))
        await until(
            lambda: all(heard(admin) == links[name] for name, admin in admins.items()),
            "interest of all neighbours at all nodes",
        )
        for name, client in clients.items():
            await client.publish(f"demo/{name}", name.encode(), 1)
        for client in clients.values():
            received = await client.receive_all(len(BROKERS))
            assert sorted((message.topic, message.payload.decode()) for message in received) == sorted(
                (f"demo/{name}", name) for name in BROKERS
            )
            await client.disconnect()


def heard(admin: AdminClient) -> int:
    """Neighbours that a node knows to want ``demo/+``."""
    rows = admin.subscriptions().items
    return sum(row["filter"] == "demo/+" and row["source"].startswith("neighbor ") for row in rows)


async def connect(name: str, port: int) -> Client:
    client = await Client.connect((LOOPBACK, port))
    if name == "moquette":
        # It hangs up on a client whose next packet is too quick after CONNACK; PINGREQ does no harm.
        for _ in range(3):
            client.send(PingReq())
            await client.packet(PingResp)
    return client
