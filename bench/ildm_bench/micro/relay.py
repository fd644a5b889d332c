"""Relay throughput and CPU: clients direct to Mosquitto, through HAProxy, through the node.

The scenario is the papers' (5 topics x 10 publishers and 10 subscribers, 32 bytes, QoS 0). The ways
are interleaved round by round, because machines drift. Publishers, subscribers, relay and broker
share the machine's cores, so the ratios count, not the rates. ``--hooks`` compares what the hooks of plugins
cost instead: none, each kind (``ildm_bench.micro.hooks``), and all at once. An installed plugin is a way,
``--ways haproxy none algorithm:NAME 'filter:{name: NAME, OPTION: VALUE}'``. ``--traffic`` takes other kinds
of traffic (``ildm_bench.micro.traffic``) at fixed rates, with latencies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess
from ildm_bench.micro import traffic_run
from ildm_bench.micro.hooks import HOOKS, choice, install
from ildm_bench.micro.load import put_on
from ildm_bench.micro.measure import Column, Usage, heading, in_turn, line, machine, median, options, pid_of
from ildm_bench.micro.traffic_run import SOCKETS
from ildm_bench.testbed.front import HaproxyProcess

WAYS = ("direct", "haproxy", "none", "pf", "sf")
HOOK_WAYS = ("haproxy", "none", *HOOKS)
TRAFFIC_WAYS = ("direct", "haproxy", "none", "sf")
ONE_ADDRESS = {"exempt": ["127.0.0.0/8"]}
"""Limits of a node whose clients are all at one address."""
Started = TypeVar("Started", bound=ManagedProcess)


def start(stack: ExitStack, process: Started) -> Started:
    """Start a process that runs as long as the stack is open."""
    stack.callback(process.kill)
    process.start()
    return process


class HookedNode(NodeProcess):
    """A node that finds the plugins of :mod:`ildm_bench.micro.hooks`."""

    def __init__(self, directory: Path, broker: tuple[str, int], way: str) -> None:
        chosen = choice(way)
        super().__init__(
            directory,
            broker,
            chosen["algorithm"],
            extra={"filters": chosen["filters"], "log": {"level": "info"}},
        )
        self.plugins = directory / "plugins"
        install(self.plugins)

    def environment(self) -> Mapping[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join((str(self.plugins), *filter(None, [os.environ.get("PYTHONPATH")])))
        }


def relay(directory: Path, way: str, broker: Mosquitto) -> ManagedProcess:
    """What stands before the broker."""
    if way == "haproxy":
        return HaproxyProcess(directory / way, broker.address)
    if way in HOOKS:
        return HookedNode(directory / way, broker.address, way)
    extra: dict[str, Any] = {"log": {"level": "error"}, "limits": ONE_ADDRESS}
    kind, colon, plugin = way.partition(":")
    algorithm = None if way == "none" else way
    if colon:
        chosen = yaml.safe_load(plugin)
        algorithm = chosen if kind == "algorithm" else None
        extra["filters"] = [chosen] if kind == "filter" else []
    return NodeProcess(directory / re.sub(r"\W", "-", way), broker.address, algorithm, extra=extra)


def way_of(text: str) -> str:
    """A way of the command line.

    Raises:
        ArgumentTypeError: it is none.
    """
    if text in {*WAYS, *HOOK_WAYS} or text.startswith(("algorithm:", "filter:")):
        return text
    known = ", ".join(sorted({*WAYS, *HOOK_WAYS}))
    raise argparse.ArgumentTypeError(f"{text}: expected one of {known}, algorithm:PLUGIN, filter:PLUGIN")


@contextmanager
def opened(way: str, sockets: str, qos: int) -> Iterator[traffic_run.Way]:
    """A broker and what stands before it, for `traffic_run`; the QoS makes no difference."""
    del qos
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        broker = start(stack, Mosquitto(Path(name) / "broker", tuned=True, extra=SOCKETS[sockets]))
        processes: dict[str, ManagedProcess] = {"broker": broker}
        port = broker.port
        if way != "direct":
            processes["relay"] = start(stack, relay(Path(name), way, broker))
            port = processes["relay"].port
        yield traffic_run.Way(port, port, processes)


def load(port: int, seconds: float, pids: Sequence[int]) -> dict[str, float]:
    """One run of the load; adds the CPU seconds of broker, relay (if there is one) and load meanwhile."""
    usage = Usage()
    used: list[float] = []

    def begin(pid: int) -> None:
        nonlocal usage
        usage = Usage(*pids, pid)

    result = put_on(port, begin, lambda: used.extend(usage.used()), seconds=seconds)
    roles = ("broker", "relay", "load") if len(pids) == 2 else ("broker", "load")
    return result | {f"cpu_{role}": cpu for role, cpu in zip(roles, used, strict=True)}


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=4.0)
    parser.add_argument("--ways", nargs="+", type=way_of, metavar="WAY", help=", ".join((*WAYS, *HOOKS)))
    parser.add_argument("--hooks", action="store_true", help=f"the ways {', '.join(HOOK_WAYS)}")
    traffic_run.arguments(parser)
    given = parser.parse_args()
    if given.traffic is not None:
        traffic_run.main(given, given.ways or TRAFFIC_WAYS, opened)
        return
    ways = given.ways or (HOOK_WAYS if given.hooks else WAYS)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        relays = {way: start(stack, relay(directory, way, broker)) for way in ways if way != "direct"}

        def measure(way: str) -> dict[str, float]:
            path = [broker, relays[way]] if way in relays else [broker]
            return load(path[-1].port, given.seconds, [pid_of(each) for each in path])

        results = in_turn(given.rounds, ways, measure, lambda found: f"{found['egress']:,.0f}/s")
    report(results)


COLUMNS = (
    Column("egress/s", 10, ",.0f"),
    Column("/haproxy", 9, ".2f"),
    Column("relay us/msg", 13, ".2f"),
    Column("/haproxy", 9, ".2f"),
    Column("us/PUBLISH", 11, ".2f"),
    Column("broker us/msg", 14, ".2f"),
)


def report(results: dict[str, list[dict[str, float]]]) -> None:
    """Medians over the rounds, beside HAProxy's: per message delivered, and per message published."""

    def us(way: str, process: str, per: str = "egress") -> float:
        """CPU of a process for each message; none without the process."""
        rounds = results[way]
        return median(1e6 * r.get(f"cpu_{process}", 0.0) / (r[per] * r["seconds"]) for r in rounds)

    print(machine())
    print(heading("way", 8, COLUMNS))
    haproxy = us("haproxy", "relay") if "haproxy" in results else 0.0
    for way, rounds in results.items():
        # the ratio within each round, as the machine drifts from round to round
        pairs = zip(rounds, results.get("haproxy", rounds), strict=True)
        values = (
            median(r["egress"] for r in rounds),
            median(own["egress"] / other["egress"] for own, other in pairs),
            us(way, "relay"),
            us(way, "relay") / haproxy if haproxy else 0.0,
            us(way, "relay", "ingress"),
            us(way, "broker"),
        )
        print(line(way, 8, COLUMNS, values))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
