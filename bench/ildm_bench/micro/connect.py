"""What a connection costs: CONNECT, CONNACK, DISCONNECT and the end, in CPU of who relays it.

Clients direct to Mosquitto, through HAProxy, through the node without and with an algorithm, and with a line
in the log for each client, in turn. A storm of reconnections takes as long as this cost says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from ildm.mqtt import Connect, Disconnect, Version
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess
from ildm_bench.micro.measure import cpu_seconds, machine, median
from ildm_bench.micro.relay import start
from ildm_bench.testbed.front import HaproxyProcess

WAYS = ("direct", "haproxy", "none", "sf", "logged")
AT_ONCE = 50
LEAVE = Disconnect().encode(Version.V311)


class Visitor(asyncio.Protocol):
    """A client that leaves as soon as it is accepted, and tells when the connection has ended."""

    def __init__(self, hello: bytes, ended: asyncio.Future[None]) -> None:
        self.hello = hello
        self.ended = ended
        self.accepted = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self.hello)

    def data_received(self, data: bytes) -> None:
        self.accepted = data == b"\x20\x02\0\0"
        self.transport.write(LEAVE)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.accepted:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc or ConnectionError("not accepted"))


async def storm(port: int, count: int) -> float:
    """So many clients come and go, some at a time; the seconds it took."""
    loop = asyncio.get_running_loop()
    names = iter(range(count))

    async def visits() -> None:
        for number in names:
            hello = Connect(client_id=f"visitor-{number}").encode()
            ended = loop.create_future()
            await loop.create_connection(lambda h=hello, e=ended: Visitor(h, e), "127.0.0.1", port)  # type: ignore[misc]
            await ended

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(visits())
    return time.perf_counter() - begun


def relay(directory: Path, way: str, broker: Mosquitto) -> ManagedProcess:
    """What stands before the broker."""
    if way == "haproxy":
        return HaproxyProcess(directory / way, broker.address)
    level = "info" if way == "logged" else "error"
    algorithm = way if way in ("pf", "sf") else None
    return NodeProcess(directory / way, broker.address, algorithm, extra={"log": {"level": level}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=2000, help="connections in a round")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=[*WAYS, "pf"])
    options = parser.parse_args()
    results: dict[str, list[tuple[float, float]]] = {way: [] for way in options.ways}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        relays = {way: start(stack, relay(directory, way, broker)) for way in options.ways if way != "direct"}
        for round_ in range(options.rounds):
            for way in options.ways:
                target = relays.get(way, broker)
                assert target.process is not None
                before = cpu_seconds(target.process.pid)
                seconds = uvloop.run(storm(target.port, options.count))
                cpu = 1e6 * (cpu_seconds(target.process.pid) - before) / options.count
                results[way].append((options.count / seconds, cpu))
                print(f"round {round_ + 1} {way}: {cpu:.0f} us", file=sys.stderr)
    print(machine())
    print(f"{'way':8} {'connections/s':>14} {'CPU us each':>12}")
    for way, rounds in results.items():
        print(f"{way:8} {median([r[0] for r in rounds]):14,.0f} {median([r[1] for r in rounds]):12.0f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
