"""Relay throughput and CPU: clients direct to Mosquitto, through HAProxy, through the node.

The scenario is the papers' (5 topics x 10 publishers and 10 subscribers, 32 bytes, QoS 0). The ways
are interleaved round by round, because machines drift. Publishers, subscribers, relay and broker
share the machine's cores, so the ratios count, not the rates.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.micro.measure import cpu_seconds, free_port, machine, median, process, wait_for_port

WAYS = ("direct", "haproxy", "none", "pf", "sf")

MOSQUITTO = """listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
persistence false
"""
HAPROXY = """global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  maxconn 30000
listen mqtt
  bind 127.0.0.1:{port}
  server broker 127.0.0.1:{broker}
"""
NODE = """node_id: bench-{way}
state_dir: {directory}/state-{way}
listen: 127.0.0.1:{port}
broker: {{address: "127.0.0.1:{broker}"}}
algorithm: {algorithm}
link: {{listen: null}}
log: {{level: error}}
"""


def start(stack: ExitStack, directory: Path, way: str, broker: int) -> tuple[int, int]:
    """Start what stands before the broker; its port and process id."""
    port = free_port()
    config = directory / f"{way}.conf"
    if way == "haproxy":
        config.write_text(HAPROXY.format(port=port, broker=broker))
        command = [shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(config)]
    else:
        algorithm = "null" if way == "none" else way
        config.write_text(
            NODE.format(way=way, directory=directory, port=port, broker=broker, algorithm=algorithm)
        )
        command = [sys.executable, "-m", "ildm.cli", "run", "--config", str(config)]
    log = directory / f"{way}.log"
    child = stack.enter_context(process(command, log))
    wait_for_port(port, child, log)
    return port, child.pid


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
        broker = free_port()
        (directory / "mosquitto.conf").write_text(MOSQUITTO.format(port=broker))
        log = directory / "mosquitto.log"
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        child = stack.enter_context(process([program, "-c", str(directory / "mosquitto.conf")], log))
        wait_for_port(broker, child, log)
        targets = {
            way: (broker, None) if way == "direct" else start(stack, directory, way, broker)
            for way in options.ways
        }
        for round_ in range(options.rounds):
            for way, (port, pid) in targets.items():
                pids = [child.pid] if pid is None else [child.pid, pid]
                results[way].append(load(port, options.seconds, pids))
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
