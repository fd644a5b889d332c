"""Memory of the node per idle client: real connections through one node before Mosquitto."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ildm.config import Config
from ildm.net.descriptors import descriptors_for_clients
from ildm.testing.live.brokers import Mosquitto
from ildm_bench.clients import Bare
from ildm_bench.micro.measure import machine, options, pid_of, resident_bytes
from ildm_bench.micro.relay import relay, start

BATCH = 200


async def connect(port: int, count: int, pid: int) -> tuple[int, int]:
    """Resident bytes of the node before and after ``count`` clients have connected."""
    before = resident_bytes(pid)
    for start_ in range(0, count, BATCH):
        names = range(start_, min(count, start_ + BATCH))
        clients = [await Bare(f"idle-{number}", keep_alive=600).connect(port) for number in names]
        await asyncio.gather(*(client.ready for client in clients))
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
    parser = options(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--algorithm", choices=("none", "pf", "sf"), default="sf")
    given = parser.parse_args()
    possible = clients_possible(given.algorithm)
    if possible < given.clients:
        print(f"the limit of open files allows for {possible} clients", file=sys.stderr)
        given.clients = possible
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        node = start(stack, relay(directory, given.algorithm, broker))
        before, after = asyncio.run(connect(node.port, given.clients, pid_of(node)))
    each = (after - before) / given.clients
    print(machine())
    print(f"{given.clients} idle clients, algorithm {given.algorithm}: {each / 1000:.1f} kB each")
    print(json.dumps({"clients": given.clients, "before": before, "after": after, "each": each}))


if __name__ == "__main__":
    main()
