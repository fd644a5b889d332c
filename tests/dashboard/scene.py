"""Sites with brokers, nodes in processes of their own, and clients that keep them busy."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho

from ildm.config import load_config
from ildm.net.dashboard.token import login_address
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK, free_port

PAUSE = 0.05


class Scene:
    """Sites in a star around the first; used as a context."""

    def __init__(self, directory: Path, names: list[str], algorithm: Any = "sf", **dashboard: Any) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._stop = threading.Event()
        self._clients: list[paho.Client] = []
        self.brokers = [Mosquitto(directory / f"broker-{name}") for name in names]
        self.nodes = [
            NodeProcess(
                directory / name,
                broker.address,
                algorithm,
                node_id=name,
                extra={
                    "dashboard": {"listen": f"{LOOPBACK}:{free_port()}", **dashboard},
                    "log": {"level": "info"},
                },
            )
            for name, broker in zip(names, self.brokers, strict=True)
        ]
        first = self.nodes[0]
        first.document["link"]["neighbors"] = [node.link_address for node in self.nodes[1:]]

    def __enter__(self) -> Scene:
        for process in [*self.brokers, *self.nodes]:
            self._stack.callback(process.kill)
            process.start()
        first = self.nodes[0]
        first.wait_linked(*self.nodes[1:])
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for client in self._clients:
            client.loop_stop()
            client.disconnect()
        self._stack.close()

    def address(self, index: int = 0) -> str:
        """Where to look at a node, with its token."""
        config = load_config(self.nodes[index].directory / "node.yaml")
        return login_address(config, config.dashboard_token.read_text().strip())

    def client(self, index: int, client_id: str, *filters: tuple[str, int]) -> paho.Client:
        made = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        ready = threading.Event()
        made.on_connect = lambda *_: (
            made.subscribe([(f, qos) for f, qos in filters]) if filters else ready.set()
        )
        made.on_subscribe = lambda *_: ready.set()
        host, port = self.nodes[index].address
        made.connect(host, port)
        made.loop_start()
        self._clients.append(made)
        assert ready.wait(20), f"{client_id} was not accepted"
        return made

    def keep_busy(self, index: int, client_id: str, topics: list[str], rate: float, qos: int = 1) -> None:
        """Publish about so many messages a second until the end."""
        client = self.client(index, client_id)
        chance = random.Random(client_id)

        def publish() -> None:
            owed = 0.0
            while not self._stop.wait(PAUSE):
                owed += rate * PAUSE * chance.uniform(0.6, 1.4)
                while owed >= 1:
                    owed -= 1
                    client.publish(chance.choice(topics), f"{chance.uniform(18, 24):.2f}", qos)

        thread = threading.Thread(target=publish, name=client_id, daemon=True)
        self._stack.callback(thread.join)
        thread.start()
