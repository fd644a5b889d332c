"""How long a site is without an owner: a pair whose owner is killed, or made to stand still.

A client dials on and on from the signal on, and then publishes at QoS 1. ``accepted`` is the time until the
pair takes it, ``across`` the time until its message is at another site. The members change places each time.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.micro.measure import Column, heading, line, machine, median, options
from ildm_bench.micro.relay import start

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
PATIENCE = 60.0
REDIAL = 0.005


class Talker:
    """A client that waits for each answer. Raises: OSError, nobody takes it."""

    def __init__(self, address: tuple[str, int], client_id: str) -> None:
        self._framer = Framer()
        self._packets: list[Any] = []
        self.socket = socket.create_connection(address, 2.0)
        self.socket.settimeout(PATIENCE)
        self.send(Connect(client_id=client_id, keep_alive=600))
        if self.next(ConnAck).reason_code:
            raise ConnectionRefusedError("CONNACK refuses the client")

    def send(self, packet: Any) -> None:
        self.socket.sendall(packet.encode(Version.V311))

    def next(self, kind: type) -> Any:
        while True:
            for place, packet in enumerate(self._packets):
                if isinstance(packet, kind):
                    return self._packets.pop(place)
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the connection has ended")
            self._packets += [decode(frame, Version.V311) for frame in self._framer.feed(data)]


def member(directory: Path, name: str, broker: tuple[str, int], far: NodeProcess) -> NodeProcess:
    site = {"id": "near", "members": ["a", "b"], "member": name}
    extra = {"state_dir": str(directory / "state"), "site": site, "log": {"level": "error"}}
    link: dict[str, object] = {"neighbors": [far.link_address]}
    return NodeProcess(directory / name, broker, "sf", node_id="near", extra=extra, link=link)


def standing_by(node: NodeProcess) -> bool:
    status = node.status()
    return status is not None and status["status"] == "standby"


def measured(how: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until a client is accepted, and until its message is across; of each takeover."""
    accepted, across = [], []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        here = start(stack, Mosquitto(directory / "near-broker"))
        there = start(stack, Mosquitto(directory / "far-broker"))
        far = start(stack, NodeProcess(directory / "far", there.address, "sf", node_id="far"))
        owner, other = (member(directory, each, here.address, far) for each in "ab")
        other.document["listen"] = owner.document["listen"]  # one address for both
        other.document["link"]["listen"] = owner.document["link"]["listen"]
        other.port = owner.port
        stack.callback(owner.kill)
        stack.callback(other.kill)
        owner.start()
        other.launch()
        other.wait_until(partial(standing_by, other), "standby")
        reader = Talker(far.address, "reader")
        reader.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=1)]))
        reader.next(SubAck)
        for number in range(rounds):
            time.sleep(1.0)
            began = time.monotonic()
            assert owner.process is not None
            os.kill(owner.process.pid, SIGNALS[how])
            client = _dialed((LOOPBACK, owner.port), began)
            accepted.append(time.monotonic() - began)
            client.send(Publish(topic="t", payload=b"%d" % number, qos=1, packet_id=1))
            came = None
            while came is None or came.payload != b"%d" % number:
                came = reader.next(Publish)
                reader.send(PubAck(packet_id=came.packet_id))
            across.append(time.monotonic() - began)
            client.socket.close()
            owner.kill()
            owner.launch()
            owner, other = other, owner
            other.wait_until(partial(standing_by, other), "standby")
    return accepted, across


def _dialed(address: tuple[str, int], began: float) -> Talker:
    while True:
        try:
            return Talker(address, "client")
        except OSError:
            if time.monotonic() - began > PATIENCE:
                raise
            time.sleep(REDIAL)


def main() -> None:
    parser = options(__doc__, rounds=20)
    parser.add_argument("--signals", nargs="+", choices=SIGNALS, default=list(SIGNALS))
    given = parser.parse_args()
    print(machine())
    columns = [Column(each, 11, ".2f") for each in ("accepted s", "worst", "across s", "worst")]
    print(heading("signal", 8, columns))
    for how in given.signals:
        accepted, across = measured(how, given.rounds)
        print(
            line(how, 8, columns, [median(accepted), max(accepted), median(across), max(across)]), flush=True
        )


if __name__ == "__main__":
    main()
