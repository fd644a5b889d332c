"""Kinds of traffic over several ways, interleaved: CPU of each process, latency, the most that is borne.

What ``--traffic`` of `ildm_bench.micro.relay` and `ildm_bench.micro.link` runs. Every way carries the same
traffic at the same rate in each round, so the ratios count. ``whole`` is the CPU of all processes of a way
together, clients apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from ildm.testing.live.process import ManagedProcess
from ildm_bench.micro.measure import machine, median, run_ns
from ildm_bench.micro.traffic import KINDS, Kind
from ildm_bench.micro.traffic_load import Load, Pace, TrafficError

FLAT_OUT = 0
"""The rate that stands for as many as are borne."""
HARDER = ("gateways",)
"""The kinds of ``--traffic`` without a name."""
MOST_AT_ONCE = min(kind.frames for kind in KINDS.values())
"""As many as every publisher has packet identifiers for."""
TICKS = (0.00001, 1.0)
RATES = (2_000, 20_000, 100_000, FLAT_OUT)
SOCKETS = {"nodelay": (), "default": ("set_tcp_nodelay false",)}
"""Mosquitto's ``set_tcp_nodelay`` as lines of its configuration; by default it is off (Nagle's algorithm)."""
WARM_UP = 1.0
FEW = {50: 20, 99: 100}
"""Samples that a percentile needs; from fewer it is not given."""
BEHIND = 0.98
"""Share of the rate that has to come through for it to count as borne."""


@dataclass(frozen=True)
class Way:
    """Where publishers and subscribers connect to, and what carries their messages."""

    publish_port: int
    subscribe_port: int
    processes: Mapping[str, ManagedProcess]


@dataclass(frozen=True)
class Figures:
    """Of one way in one round."""

    rate: float
    """Deliveries a second."""
    cpu_us: Mapping[str, float]
    """Of each process for a delivery; sender and receiver too."""
    whole_us: float
    p50_ms: float | None
    p99_ms: float | None
    samples: int
    lag_p99_ms: float | None
    """How late the sender wrote."""
    lost: int


Opened = Callable[[str, str, int], AbstractContextManager[Way]]
"""Name of a way, sockets (see `SOCKETS`) and QoS -> the way, ready."""
Case = tuple[str, int, str, int]
"""Kind, QoS, sockets, rate."""


def arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options of this benchmark; answers their group, for a benchmark's own."""
    group = parser.add_argument_group("kinds of traffic, beside the load above")
    group.add_argument(
        "--traffic",
        nargs="*",
        type=_kind,
        metavar="KIND",
        help=f"measure these instead: {', '.join(KINDS)}, all; without a name {', '.join(HARDER)}",
    )
    group.add_argument(
        "--at-once",
        type=int,
        choices=range(MOST_AT_ONCE + 1),
        metavar=f"0-{MOST_AT_ONCE}",
        default=Pace.at_once,
        help="messages of one write; 0: one publisher alone joins all that are due",
    )
    group.add_argument(
        "--tick", type=_seconds, default=Pace.tick, help="seconds between two looks at what is due"
    )
    group.add_argument(
        "--rates",
        nargs="+",
        type=float,
        default=list(RATES),
        help="deliveries a second; 0: as many as are borne",
    )
    group.add_argument("--qualities", nargs="+", type=int, default=[0], choices=(0, 1), help="QoS")
    group.add_argument(
        "--sockets", nargs="+", default=["nodelay"], choices=[*SOCKETS], help="set_tcp_nodelay of Mosquitto"
    )
    group.add_argument("--json", type=Path, help="where all figures go")
    return group


def main(options: argparse.Namespace, ways: Sequence[str], opened: Opened) -> None:
    """Measure what the options say over these ways, the first of which the others are held against."""
    kinds = [*KINDS] if "all" in options.traffic else options.traffic or HARDER
    pace = Pace(options.at_once, options.tick)
    found: dict[Case, dict[str, list[Figures | None]]] = {}
    for kind, qos, sockets in product(kinds, options.qualities, options.sockets):
        for rate in options.rates:
            found[kind, qos, sockets, int(rate)] = {way: [] for way in ways}
        for round_ in range(options.rounds):
            for way in ways:
                with opened(way, sockets, qos) as path:
                    for rate in options.rates:
                        figures = _measured(KINDS[kind], qos, rate, path, options.seconds, way, pace)
                        found[kind, qos, sockets, int(rate)][way].append(figures)
                        said = "failed" if figures is None else f"{figures.whole_us:.1f} us"
                        print(
                            f"round {round_ + 1} {kind} QoS {qos} {rate:g}/s {way}: {said}", file=sys.stderr
                        )
    print(f"{machine()}; messages of one write: {pace.at_once or 'joined'}, tick {pace.tick * 1e3:g} ms")
    print(table(found))
    if options.json is not None:
        rows = [
            {"case": case, "way": way, "rounds": [figures and asdict(figures) for figures in rounds]}
            for case, of_ways in found.items()
            for way, rounds in of_ways.items()
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _seconds(text: str) -> float:
    value = float(text)
    if not TICKS[0] <= value <= TICKS[1]:
        raise argparse.ArgumentTypeError(f"{text}: expected {TICKS[0]:g} to {TICKS[1]:g} s")
    return value


def _kind(text: str) -> str:
    if text not in {*KINDS, "all"}:
        raise argparse.ArgumentTypeError(f"{text}: expected one of {', '.join(KINDS)}, all")
    return text


def _measured(
    kind: Kind, qos: int, rate: float, way: Way, seconds: float, name: str, pace: Pace
) -> Figures | None:
    """Figures, or None, said on standard error, where the traffic did not come through as it was sent."""
    try:
        return measure(kind, qos, rate, way, seconds, pace=pace)
    except TrafficError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def measure(
    kind: Kind,
    qos: int,
    rate: float,
    way: Way,
    seconds: float,
    warm_up: float = WARM_UP,
    pace: Pace | None = None,
) -> Figures:
    """Put a kind of traffic on a way for so many seconds.

    Raises:
        TrafficError: a connection ended, or messages came in disorder.
    """
    with Load(kind, qos, rate, (way.publish_port, way.subscribe_port), pace) as load:
        pids = {name: process.process.pid for name, process in way.processes.items() if process.process}
        pids |= load.pids
        time.sleep(warm_up)
        begin, before = time.perf_counter_ns(), {name: run_ns(pid) for name, pid in pids.items()}
        count = load.deliveries()
        time.sleep(seconds)
        end, after = time.perf_counter_ns(), {name: run_ns(pid) for name, pid in pids.items()}
        count = load.deliveries() - count
        received = load.finish(begin, end)
    cpu = {name: (after[name] - before[name]) / 1e3 / max(1, count) for name in pids}
    return Figures(
        rate=count / (end - begin) * 1e9,
        cpu_us=cpu,
        whole_us=sum(cpu[name] for name in way.processes),
        p50_ms=percentile(received.latencies_us, 50),
        p99_ms=percentile(received.latencies_us, 99),
        samples=received.latencies_us.size,
        lag_p99_ms=percentile(received.lag_us, 99),
        lost=received.lost,
    )


def percentile(values_us: np.ndarray, percent: int) -> float | None:
    """In milliseconds; None of too few values."""
    return float(np.percentile(values_us, percent)) / 1e3 if values_us.size >= FEW[percent] else None


def table(found: Mapping[Case, Mapping[str, Sequence[Figures | None]]]) -> str:
    """A line for each case and way: medians over the rounds, and the least and the most of ``whole``."""
    lines = [
        f"{'traffic':12} {'QoS':>3} {'sockets':>8} {'asked/s':>8} {'way':12} {'borne/s':>9} {'whole us':>9} "
        f"{'of rounds':>13} {'/first':>6} {'p50 ms':>8} {'p99 ms':>8} {'samples':>8} {'lag p99':>8} "
        f"{'lost':>6}  us of each process"
    ]
    for (kind, qos, sockets, rate), of_ways in found.items():
        anchor = next(iter(of_ways.values()))
        for way, rounds in of_ways.items():
            asked = f"{rate:,}" if rate else "most"
            head = f"{kind:12} {qos:3} {sockets:>8} {asked:>8} {way:12} "
            good = [figures for figures in rounds if figures is not None]
            if not good:
                lines.append(f"{head}failed")
                continue
            borne = median([figures.rate for figures in good])
            whole = [figures.whole_us for figures in good]
            # against what the first way used, or at full rate carried, in the same round
            ratios = [
                own.whole_us / other.whole_us if rate else own.rate / other.rate
                for own, other in zip(rounds, anchor, strict=True)
                if own is not None and other is not None
            ]
            ratio = f"{median(ratios):6.2f}" if ratios else f"{'':6}"
            each = ", ".join(
                f"{name} {median([figures.cpu_us[name] for figures in good]):.2f}" for name in good[0].cpu_us
            )
            behind = "*" if rate and borne < BEHIND * rate else " "
            lines.append(
                f"{head}{borne:9,.0f}{behind}{median(whole):8.2f} {min(whole):6.2f}-{max(whole):<6.2f} "
                f"{ratio} {_middle([f.p50_ms for f in good])} {_middle([f.p99_ms for f in good])} "
                f"{sum(f.samples for f in good):8} {_middle([f.lag_p99_ms for f in good])} "
                f"{sum(f.lost for f in good):6}  {each}"
            )
    lines.append("/first: CPU beside that of the first way; at most/s the rate beside its. *: not borne")
    return "\n".join(lines)


def _middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):8.2f}" if known else f"{'':8}"
