"""One node for strangers to try: every transport for clients, links with a secret, narrow limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import running
from tests.net.transport.pki import Pki
from tests.support.programs import missing

SECRET = "a secret that nobody guesses"
NODE = "site-a"
PER_ADDRESS = 300
FILTERS = 500
"""Of one client, and of all together as many as memory allows."""


class Target(NamedTuple):
    """The node that is tried, and where it listens."""

    node: NodeProcess
    broker: Mosquitto
    plain: int
    tls: int
    websocket: int
    proxied: int
    """From 127.0.0.1, a header of the PROXY protocol is needed."""
    unproxied: int
    """A proxy elsewhere is trusted."""
    link: int

    def counted(self, name: str) -> int:
        return int(self.status["counters"].get(name, 0))

    @property
    def status(self) -> dict[str, Any]:
        status = self.node.status()
        assert status is not None, "it does not answer"
        return dict(status)


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """The authority that is trusted."""
    if reason := Pki.missing():
        missing(reason)
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    if reason := Mosquitto.available():
        missing(reason)
    with running(Mosquitto(tmp_path_factory.mktemp("mosquitto"))) as broker:
        yield broker


@contextmanager
def node_to_try(
    directory: Path,
    broker: Mosquitto,
    pki: Pki,
    node_id: str,
    patience: float = 10.0,
    kind: type[NodeProcess] = NodeProcess,
) -> Iterator[Target]:
    """``patience``: seconds that those who connect have at each stage.

    Two with one ``node_id`` at one broker take its sessions from each other.
    """
    tls, websocket, proxied, unproxied, link = (free_port() for _ in range(5))
    listeners = [
        {"url": f"mqtts://127.0.0.1:{tls}", "tls": pki.server()},
        {"url": f"ws://127.0.0.1:{websocket}"},
        {"url": f"mqtt://127.0.0.1:{proxied}", "proxy": {"trust": ["127.0.0.1"], "timeout": patience}},
        {"url": f"mqtt://127.0.0.1:{unproxied}", "proxy": {"trust": ["192.0.2.0/24"], "timeout": patience}},
    ]
    extra = {
        "listeners": listeners,
        "limits": {
            "connect_timeout": patience,
            "per_address": PER_ADDRESS,
            "connect_rate": 1_000_000,
            "exempt": [],
            "subscriptions_per_client": FILTERS,
        },
        "link": {"listen": f"127.0.0.1:{link}", "secret": SECRET, "connect_timeout": patience},
    }
    with running(kind(directory, broker.address, "pf", node_id=node_id, extra=extra)) as node:
        yield Target(node, broker, node.port, tls, websocket, proxied, unproxied, link)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, broker: Mosquitto, pki: Pki) -> Iterator[Target]:
    with node_to_try(tmp_path_factory.mktemp(NODE), broker, pki, NODE) as target:
        yield target
