"""Relay throughput and CPU: clients direct to Mosquitto, through HAProxy, through the node.

The scenario is the papers' (5 topics x 10 publishers and 10 subscribers, 32 bytes, QoS 0). The ways
are interleaved round by round, because machines drift. Publishers, subscribers, relay and broker
share the machine's cores, so the ratios count, not the rates.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from bench.micro.measure import cpu_seconds, machine, median
from bench.testbed.front import HaproxyProcess, NodeProcess
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.process import ManagedProcess

WAYS = ("direct", "haproxy", "none", "pf", "sf")
Started = TypeVar("Started", bound=ManagedProcess)


def start(stack: ExitStack, process: Started) -> Started:
    """Start a process that runs as long as the stack is open."""
    stack.callback(process.kill)
    process.start()
    return process


def relay(directory: Path, way: str, broker: Mosquitto) -> ManagedProcess:
    """What stands before the broker."""
    if way == "haproxy":
        return HaproxyProcess(directory / way, broker.address)
    return NodeProcess(
        directory / way, broker.address, None if way == "none" else way, extra={"log": {"level": "error"}}
    )


def load(port: int, seconds: float, pids: list[int]) -> dict[str, float]:
    """One run of the load; adds the CPU seconds of each process while it was measured."""
    command = [sys.executable, "-m", "bench.micro.load", "--port", str(port), "--seconds", str(seconds)]
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
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
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
    """Medians over the rounds, beside HAProxy's."""
    print(machine())
    print(
        f"{'way':8} {'egress/s':>10} {'/haproxy':>9} {'relay us/msg':>13} "
        f"{'/haproxy':>9} {'broker us/msg':>14}"
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
        print(f"{way:8} {egress[way]:10,.0f} {ratio:9.2f} {cpu[way]:13.2f} {share:9.2f} {broker:14.2f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
