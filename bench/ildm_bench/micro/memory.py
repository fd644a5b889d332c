"""Memory of the node per idle client: real connections through one node before Mosquitto."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ildm.config import Config
from ildm.mqtt import Connect
from ildm.net.server import descriptors_for_clients
from ildm.testing.live.brokers import Mosquitto
from ildm_bench.micro.measure import machine, resident_bytes
from ildm_bench.micro.relay import relay, start

BATCH = 200
ACCEPTED = b"\x20\x02\0\0"
"""CONNACK (MQTT 3.2)."""


class Idle:
    """A client that connects, is accepted and stays."""

    def __init__(self, client_id: str, accepted: asyncio.Future[None]) -> None:
        self.client_id = client_id
        self.accepted = accepted

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.write(Connect(client_id=self.client_id, keep_alive=600).encode())

    def data_received(self, data: bytes) -> None:
        if self.accepted.done():
            return
        if data.startswith(ACCEPTED):
            self.accepted.set_result(None)
        else:
            self.accepted.set_exception(ConnectionError(f"{self.client_id} was refused: {data.hex(' ')}"))

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(ConnectionError(f"{self.client_id} was not accepted"))


async def connect(port: int, count: int, pid: int) -> tuple[int, int]:
    """Resident bytes of the node before and after ``count`` clients have connected."""
    loop = asyncio.get_running_loop()
    before = resident_bytes(pid)
    for start_ in range(0, count, BATCH):
        waiting = []
        for number in range(start_, min(count, start_ + BATCH)):
            client = Idle(f"idle-{number}", loop.create_future())
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
            waiting.append(client.accepted)
        await asyncio.gather(*waiting)
    await asyncio.sleep(1)
    return before, resident_bytes(pid)


def clients_possible(algorithm: str) -> int:
    """How many clients a node takes here, with two open files each; raises the limit where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the broker and the node inherit it
    config = Config.model_validate({"algorithm": None if algorithm == "none" else algorithm})
    possible = descriptors_for_clients(config, hard)
    return sys.maxsize if possible is None else possible


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--algorithm", choices=("none", "pf", "sf"), default="sf")
    options = parser.parse_args()
    possible = clients_possible(options.algorithm)
    if possible < options.clients:
        print(f"the limit of open files allows for {possible} clients", file=sys.stderr)
        options.clients = possible
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        node = start(stack, relay(directory, options.algorithm, broker))
        assert node.process is not None
        before, after = asyncio.run(connect(node.port, options.clients, node.process.pid))
    each = (after - before) / options.clients
    print(machine())
    print(f"{options.clients} idle clients, algorithm {options.algorithm}: {each / 1000:.1f} kB each")
    print(json.dumps({"clients": options.clients, "before": before, "after": after, "each": each}))


if __name__ == "__main__":
    main()
