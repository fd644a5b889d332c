"""A client as people use it, over whatever transport: paho in a thread of its own."""

from __future__ import annotations

import queue
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

WAIT = 120.0
"""Seconds, of which only a failure takes all."""


class PahoClient:
    """Connected and subscribed by its first use."""

    def __init__(
        self,
        transport: Any = "tcp",
        tls: ssl.SSLContext | None = None,
        client_id: str = "",
        protocol: Any = paho.MQTTv311,
    ) -> None:
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, transport=transport, protocol=protocol
        )
        if tls is not None:
            self.paho.tls_set_context(tls)
        self.answers: queue.Queue[Any] = queue.Queue()
        self.received: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.lost: queue.Queue[Any] = queue.Queue()
        self.paho.on_connect = lambda client, data, flags, code, properties: self.answers.put(code)
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.answers.put(codes[0])
        self.paho.on_message = lambda client, data, message: self.received.put(
            (message.topic, message.payload)
        )
        self.paho.on_disconnect = lambda client, data, flags, code, properties: self.lost.put(code)

    def connect(self, host: str, port: int) -> Any:
        """The reason code of the answer."""
        self.paho.connect(host, port, 60)
        self.paho.loop_start()
        return self.answers.get(timeout=WAIT)

    def subscribe(self, topic_filter: str, qos: int = 1) -> Any:
        self.paho.subscribe(topic_filter, qos)
        return self.answers.get(timeout=WAIT)

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """Until the broker has it."""
        self.paho.publish(topic, payload, qos).wait_for_publish(WAIT)

    def next(self) -> tuple[str, bytes]:
        return self.received.get(timeout=WAIT)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@contextmanager
def connected(host: str, port: int, **options: Any) -> Iterator[PahoClient]:
    """A client that the broker has accepted."""
    client = PahoClient(**options)
    try:
        assert client.connect(host, port) == 0
        yield client
    finally:
        client.close()


def echoes(client: PahoClient, topic: str = "echo/topic", sizes: tuple[int, ...] = (0, 5, 70_000)) -> None:
    """What it publishes comes back, whole and in order."""
    client.subscribe(topic, 2)
    payloads = [bytes([size % 251]) * size for size in sizes]
    for qos, payload in enumerate(payloads):
        client.publish(topic, payload, min(qos, 2))
    assert [client.next() for _ in payloads] == [(topic, payload) for payload in payloads]
