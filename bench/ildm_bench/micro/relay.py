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
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess
from ildm_bench.micro import traffic_run
from ildm_bench.micro.hooks import HOOKS, choice, install
from ildm_bench.micro.measure import cpu_seconds, machine, median
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


def load(port: int, seconds: float, pids: list[int]) -> dict[str, float]:
    """One run of the load; adds the CPU seconds of each process while it was measured."""
    command = [sys.executable, "-m", "ildm_bench.micro.load", "--port", str(port), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before: list[float] = []
        after: list[float] = []
        result: dict[str, float] = {}
        for line in child.stdout:
            if line == "measuring\n":
                before = [cpu_seconds(pid) for pid in [*pids, child.pid]]
            elif line == "measured\n":
                after = [cpu_seconds(pid) for pid in [*pids, child.pid]]
            else:
                result = json.loads(line)
    if not result:
        raise RuntimeError("the load generator failed")
    for name, start_, end in zip(
        ("broker", "relay", "load")[-len(after) :] if len(after) == 3 else ("broker", "load"),
        before,
        after,
        strict=True,
    ):
        result[f"cpu_{name}"] = end - start_
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ways", nargs="+", type=way_of, metavar="WAY", help=", ".join((*WAYS, *HOOKS)))
    parser.add_argument("--hooks", action="store_true", help=f"the ways {', '.join(HOOK_WAYS)}")
    traffic_run.arguments(parser)
    options = parser.parse_args()
    if options.traffic:
        traffic_run.main(options, options.ways or TRAFFIC_WAYS, opened)
        return
    options.ways = options.ways or (HOOK_WAYS if options.hooks else WAYS)
    results: dict[str, list[dict[str, float]]] = {way: [] for way in options.ways}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        relays = {way: start(stack, relay(directory, way, broker)) for way in options.ways if way != "direct"}
        for round_ in range(options.rounds):
            for way in options.ways:
                path = [broker, relays[way]] if way in relays else [broker]
                pids = [child.process.pid for child in path if child.process is not None]
                results[way].append(load(path[-1].port, options.seconds, pids))
                print(f"round {round_ + 1} {way}: {results[way][-1]['egress']:,.0f}/s", file=sys.stderr)
    report(results)


def report(results: dict[str, list[dict[str, float]]]) -> None:
    """Medians over the rounds, beside HAProxy's: per message delivered, and per message published."""
    print(machine())
    print(
        f"{'way':8} {'egress/s':>10} {'/haproxy':>9} {'relay us/msg':>13} "
        f"{'/haproxy':>9} {'us/PUBLISH':>11} {'broker us/msg':>14}"
    )
    egress = {way: median([r["egress"] for r in rounds]) for way, rounds in results.items()}
    cpu = {
        way: median(
            [1e6 * r["cpu_relay"] / (r["egress"] * r["seconds"]) for r in rounds if "cpu_relay" in r] or [0.0]
        )
        for way, rounds in results.items()
    }
    for way, rounds in results.items():
        broker = median([1e6 * r["cpu_broker"] / (r["egress"] * r["seconds"]) for r in rounds])
        # the ratio within each round, as the machine drifts from round to round
        pairs = zip(rounds, results.get("haproxy", rounds), strict=True)
        ratio = median([a["egress"] / b["egress"] for a, b in pairs])
        share = cpu[way] / cpu["haproxy"] if cpu.get("haproxy") else 0.0
        published = median([1e6 * r.get("cpu_relay", 0.0) / (r["ingress"] * r["seconds"]) for r in rounds])
        print(
            f"{way:8} {egress[way]:10,.0f} {ratio:9.2f} {cpu[way]:13.2f} {share:9.2f} {published:11.2f} "
            f"{broker:14.2f}"
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
