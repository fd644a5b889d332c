"""Mosquitto's own way to join brokers, for comparison: bridges that pass every topic on both ways."""

from __future__ import annotations

import socket
import time
import uuid

from ildm.mqtt import Connect, Framer, Publish, Subscribe, Subscription, Version, decode
from ildm.testing.live.process import ProcessError

_PAUSE = 0.05


def bridge_lines(near: str, far: str, address: str, qos: int) -> tuple[str, ...]:
    """Lines of the configuration of ``near`` for a bridge to ``far``."""
    return (
        f"connection {near}-{far}",
        f"address {address}",
        f"topic # both {qos}",
        # The far broker then knows a bridge from a client, and sends nothing back to where it came from.
        "try_private true",
        "notifications false",
        "cleansession true",
        "restart_timeout 1",
    )


def wait_crossing(source: tuple[str, int], target: tuple[str, int], seconds: float) -> None:
    """Publish at one broker again and again until a message comes out of the other.

    Raises:
        ProcessError: none did.
    """
    topic = f"ildm-bench/probe/{uuid.uuid4().hex}"
    framer = Framer()
    give_up = time.monotonic() + seconds
    with socket.create_connection(target, seconds) as listener, socket.create_connection(source) as speaker:
        wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=topic)])
        listener.sendall(_connect() + wanted.encode(Version.V311))
        listener.settimeout(_PAUSE)
        speaker.sendall(_connect())
        while time.monotonic() < give_up:
            speaker.sendall(Publish(topic=topic, payload=b"probe").encode(Version.V311))
            try:
                data = listener.recv(4096)
            except TimeoutError:
                continue
            if not data:
                break
            if any(isinstance(decode(frame, Version.V311), Publish) for frame in framer.feed(data)):
                return
    raise ProcessError(f"no message crosses from {source[0]}:{source[1]} to {target[0]}:{target[1]}")


def _connect() -> bytes:
    return Connect(client_id=f"probe-{uuid.uuid4().hex[:12]}", keep_alive=60).encode()
