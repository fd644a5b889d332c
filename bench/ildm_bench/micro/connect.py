"""What a connection costs: CONNECT, CONNACK, DISCONNECT and the end, in CPU of who relays it.

Clients direct to Mosquitto, through HAProxy, through the node without and with an algorithm, and with a line
in the log for each client, in turn; through HAProxy and the node by TLS 1.3, too, a whole handshake each with
a certificate of P-256. A storm of reconnections takes as long as this cost says.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from ildm.mqtt import Connect, Disconnect, Version
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess
from ildm_bench.micro.measure import Column, Usage, heading, in_turn, line, machine, median, options, pid_of
from ildm_bench.micro.relay import start
from ildm_bench.testbed.front import HaproxyProcess

WAYS = ("direct", "haproxy", "none", "sf", "logged", "haproxy-tls", "none-tls")
TLS = "-tls"
AT_ONCE = 50
COLUMNS = (
    Column("connections/s", 14, ",.0f"),
    Column("CPU us each", 12, ".0f"),
    Column("/haproxy", 9, ".2f"),
)
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


async def storm(port: int, count: int, tls: ssl.SSLContext | None = None) -> float:
    """So many clients come and go, some at a time; the seconds it took."""
    loop = asyncio.get_running_loop()
    name = None if tls is None else "localhost"
    names = iter(range(count))

    async def visits() -> None:
        for number in names:
            hello = Connect(client_id=f"visitor-{number}").encode()
            ended = loop.create_future()
            visitor = partial(Visitor, hello, ended)
            await loop.create_connection(visitor, "127.0.0.1", port, ssl=tls, server_hostname=name)
            await ended

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(visits())
    return time.perf_counter() - begun


def relay(directory: Path, way: str, broker: Mosquitto) -> ManagedProcess:
    """What stands before the broker."""
    pem = certificate(directory) if way.endswith(TLS) else None
    plain = way.removesuffix(TLS)
    if plain == "haproxy":
        return HaproxyProcess(directory / way, broker.address, pem=pem)
    extra: dict[str, Any] = {"log": {"level": "info" if way == "logged" else "error"}}
    algorithm = plain if plain in ("pf", "sf") else None
    node = NodeProcess(directory / way, broker.address, algorithm, extra=extra)
    if pem is not None:
        url = node.document.pop("listen")
        node.document["listeners"] = [{"url": f"mqtts://{url}", "tls": {"cert": str(pem), "key": str(pem)}}]
    return node


def certificate(directory: Path) -> Path:
    """A certificate and its key in one file."""
    pem = directory / "relay.pem"
    if not pem.exists():
        made = directory / "relay.key", directory / "relay.crt"
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        command = ["openssl", *words.split(), "-keyout", str(made[0]), "-out", str(made[1])]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        pem.write_text("".join(path.read_text() for path in made))
    return pem


def client_context(directory: Path) -> ssl.SSLContext:
    """Of clients that trust this certificate alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(certificate(directory))
    context.check_hostname = False
    return context


def main() -> None:
    parser = options(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=2000, help="connections in a round")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=[*WAYS, "pf"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        relays = {way: start(stack, relay(directory, way, broker)) for way in given.ways if way != "direct"}

        def measure(way: str) -> tuple[float, float]:
            target = relays.get(way, broker)
            tls = client_context(directory) if way.endswith(TLS) else None
            usage = Usage(pid_of(target))
            seconds = uvloop.run(storm(target.port, given.count, tls))
            return given.count / seconds, 1e6 * usage.used()[0] / given.count

        results = in_turn(given.rounds, given.ways, measure, lambda found: f"{found[1]:.0f} us")
    print(machine())
    print(heading("way", 12, COLUMNS))
    for way, rounds in results.items():
        # the ratio within each round, as the machine drifts from round to round
        beside = results.get("haproxy-tls" if way.endswith(TLS) else "haproxy", [])
        ratios = [own[1] / other[1] for own, other in zip(rounds, beside, strict=False) if other[1]]
        rate, cpu = (median(r[place] for r in rounds) for place in (0, 1))
        print(line(way, 12, COLUMNS, (rate, cpu, median(ratios) if ratios else None)))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
