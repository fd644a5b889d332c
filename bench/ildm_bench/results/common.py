"""What the results have in common: profiles, quiet, a testbed as target, rounds and their spread, pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from rich.console import Console

from ildm_bench.analysis.histogram import bucket, from_buckets, latency_of
from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.measure.figures import (
    Comparison,
    Course,
    Group,
    Histogram,
    Latency,
    Limit,
    RunFigures,
    Spread,
)
from ildm_bench.measure.limits import TRIES, Target, find_limit, measure, settle
from ildm_bench.measure.procedure import SearchConfig
from ildm_bench.measure.progress import Progress
from ildm_bench.measure.quiet import Disturbance, Gate, worst
from ildm_bench.measure.spread import PERCENTILES
from ildm_bench.micro.measure import machine
from ildm_bench.report import write_comparison
from ildm_bench.report.cli import COMPARISON
from ildm_bench.results.tables import KEY, Metric, Row, table
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

Found = dict[str, Any]
Sockets = Literal["nodelay", "default", "both"]
NODELAY: dict[Sockets, tuple[bool, ...]] = {"nodelay": (True,), "default": (False,), "both": (True, False)}
"""``set_tcp_nodelay`` of the brokers, for each choice of sockets."""
SAMPLES = 120
"""Messages of each l-client within the window: a 99th percentile needs 100."""
SCENARIOS = Path(__file__).parents[3] / "configs/bench"
SHARED_CORES = (
    "Publishers, nodes, brokers and subscribers share the cores of this one machine; the brokers' and nodes' "
    "share is what the quotas say, where there are any."
)


@dataclass(frozen=True)
class Profile:
    """How long the runs of a result are."""

    name: str
    seconds: float | None
    """Length of a run, its cut parts in proportion; None: as in the scenario, which is as in the papers."""
    full: bool
    """All measurements of the procedure instead of the monotonic short cut."""
    rounds: int
    """Of what is measured in turn."""


QUICK = Profile("quick", 8.0, full=False, rounds=3)
FULL = Profile("full", None, full=True, rounds=5)


def sampled(scenario: Scenario) -> Scenario:
    """The scenario with l-clients that publish often enough for percentiles in a short run."""
    window = scenario.duration - scenario.warm_up - scenario.cool_down
    longest = 1000 * window / SAMPLES
    topics = [
        topic.model_copy(update={"interval": min(topic.interval or longest, longest)})
        if topic.clients == "latency"
        else topic
        for topic in scenario.topics
    ]
    return scenario.model_copy(update={"topics": topics})


@dataclass
class Bench:
    """Where a result is worked out, and how; by default only what is measured in quiet counts."""

    out: Path
    profile: Profile
    console: Console
    gate: Gate = field(default_factory=lambda: Gate(lambda _: None))

    def scenario(self, name: str) -> Scenario:
        """A scenario of ``configs/bench``, of the profile's length."""
        scenario = load_scenario(SCENARIOS / f"{name}.yaml")
        return sampled(scenario.shortened(self.profile.seconds)) if self.profile.seconds else scenario

    def load(self, what: str, scenario: Scenario, target: Target, results: Path) -> str:
        """Put a load on while the machine is quiet; the name of the run.

        Raises:
            LoadError, QuietError: nothing was measured.
        """
        self.console.print(what)
        settle(target.processes)
        pids = [pid for _, pid in target.processes]
        for _ in range(TRIES):
            manifest = self.gate.measure(
                what, lambda: measure(scenario, target, results), lambda run: run.disturbance, pids
            )
            if manifest.generator.verdict != "void":
                break
            self.console.print(f"{what}: void, {manifest.generator.reason}")
        return manifest.run

    def client_rounds(
        self, name: str, label: str, spec: TestbedSpec, work: Callable[[Testbed], Coroutine[Any, Any, Found]]
    ) -> tuple[list[Found], Disturbance]:
        """What clients of this process find on a testbed in each round; with what others did in the worst.

        Goes on where it was interrupted: the file ``name``.json has what was found, which has to be JSON.

        Raises:
            QuietError: nothing was measured.
        """
        done = self.out / f"{name}.json"
        if not done.exists():
            rounds, disturbances = [], []
            with testbed(spec, self.out / "testbed", label) as (target, bed):
                own = [pid for _, pid in target.processes]
                for round_ in range(self.profile.rounds):
                    what = f"{label}, round {round_ + 1}"
                    self.console.print(what)
                    found, disturbance = self.gate.watched(what, lambda: asyncio.run(work(bed)), own)
                    rounds.append(found)
                    disturbances.append(disturbance)
            stored = {"rounds": rounds, "disturbance": worst(disturbances).model_dump()}
            done.write_text(json.dumps(stored))
        stored = json.loads(done.read_text())
        return stored["rounds"], Disturbance.model_validate(stored["disturbance"])

    def limit(
        self,
        name: str,
        label: str,
        scenario: Scenario,
        spec: TestbedSpec,
        *,
        start_ms: float,
        warm_up: float = 0.0,
        first_ms: float = 0.25,
        beyond: bool = False,
    ) -> Limit:
        """The limit of a testbed, found in each round; goes on where an interrupted search has ended.

        With ``beyond`` the clients of all sites but the first connect to the broker itself, not to the node
        before it: what is measured then is the way there, without the relay of what comes out.
        """
        directory = self.out / name
        done = directory / "limit.json"
        self.console.rule(label)
        if done.exists():
            limit = Limit.model_validate_json(done.read_text())
            self.console.print(f"found before: {done}")
            return limit
        config = SearchConfig(
            first_ms=first_ms, largest_ms=1024 * first_ms, full=self.profile.full, start_ms=start_ms
        )
        with testbed(spec, self.out / "testbed", label) as (target, bed):
            if beyond:
                here, *others = bed.servers
                target.addresses = [here.address, *(server.broker_address for server in others)]
            return find_limit(
                scenario,
                target,
                directory,
                config,
                warm_up=warm_up,
                progress=Progress(self.console, scenario.duration + scenario.drain),
                gate=self.gate,
                rounds=self.profile.rounds,
            )

    def limits(
        self, name: str, label: str, scenario: Scenario, spec: TestbedSpec, sockets: Sockets, **how: Any
    ) -> list[Limit]:
        """The limit with each setting of the brokers' sockets; ``how`` as for :meth:`limit`."""
        return [
            self.limit(
                name if nodelay else f"{name}-default-sockets",
                socket_label(label, nodelay),
                scenario,
                replace(spec, nodelay=nodelay),
                **how,
            )
            for nodelay in NODELAY[sockets]
        ]

    def publish(self, comparison: Comparison) -> Path:
        """Write the figures and the page."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / COMPARISON).write_text(comparison.model_dump_json(indent=1) + "\n")
        return write_comparison(comparison, self.out, void=self.gate.noisy)


@contextmanager
def testbed(spec: TestbedSpec, directory: Path, label: str) -> Iterator[tuple[Target, Testbed]]:
    """A testbed that stands, as target of the load: clients connect to what stands before each broker."""
    with Testbed(spec, directory) as bed:
        yield target_of(bed, label), bed


def target_of(bed: Testbed, label: str, addresses: Sequence[str] | None = None) -> Target:
    return Target(
        addresses=addresses or [server.address for server in bed.servers],
        label=label,
        names=[f"{label}/{server.name}" for server in bed.servers],
        processes=list(bed.processes),
        notes=list(bed.notes),
    )


def comparison(
    title: str,
    text: Sequence[str],
    metrics: Sequence[Metric],
    rows: Sequence[Row],
    *,
    groups: Sequence[Group] = (),
    courses: Sequence[Course] = (),
    sockets: Sockets = "nodelay",
    notes: Sequence[str] = (),
) -> Comparison:
    """A page: its text, with what holds for all figures of this machine, and the table.

    Runs are those of the rows, but where groups of limits are given. The first row is the reference.
    """
    settings = {
        True: "set_tcp_nodelay true",
        False: "*default sockets*: set_tcp_nodelay false, as Mosquitto comes, where small messages may wait",
    }
    of_sockets = "; ".join(settings[setting] for setting in NODELAY[sockets])
    runs = [] if groups else [row.run for row in rows if row.run is not None]
    first = groups[0].limits[0].label if groups else runs[0].label
    return Comparison(
        title=title,
        text="\n".join([*text, f"Sockets of Mosquitto: {of_sockets}.", SHARED_CORES, *notes, machine()]),
        groups=list(groups),
        runs=runs,
        courses=list(courses),
        table=table(rows, metrics),
        reference=first,
    )


def socket_label(label: str, nodelay: bool) -> str:
    return label if nodelay else f"{label}, default sockets"


def merged_latency(histogram: Histogram, parts: Sequence[Latency]) -> Latency:
    """Of all rounds together; ``histogram`` has their values."""
    mean_us = sum(part.mean * part.count for part in parts) / sum(part.count for part in parts)
    return latency_of(histogram, mean_us, max(part.max for part in parts))


def client_figures(
    label: str,
    rounds_ms: Sequence[Sequence[float]],
    expected: int,
    missing: int,
    interval_ms: float,
    disturbance: Disturbance,
    spread: Mapping[str, list[float]] | None = None,
) -> RunFigures:
    """What clients of `ildm_bench.clients` have seen, as a run for the page: latencies and losses.

    ``rounds_ms`` are the latencies of each round; ``spread`` has other figures of each.
    """
    parts = [_latency(each) for each in rounds_ms if each]
    histogram = _histogram([ms for each in rounds_ms for ms in each])
    found: Spread = {
        f"{KEY}.{name}": [value for part in parts if (value := getattr(part, name)) is not None]
        for name in PERCENTILES
    }
    return RunFigures(
        run=label,
        label=label,
        scenario="",
        interval_ms=interval_ms,
        seconds=0.0,
        sp_ratio=0.0,
        ingress=0.0,
        egress=0.0,
        ratio=1.0,
        under_limit=True,
        verdict="ok",
        reason="",
        expected=expected,
        missing=missing,
        loss_rate=missing / expected,
        losses=[],
        duplicates=0,
        order_violations=0,
        latency={KEY: merged_latency(histogram, parts)},
        histograms={KEY: histogram},
        per_second=[],
        processes=[],
        network={},
        machine=machine(),
        notes=[],
        disturbance=disturbance,
        spread={name: values for name, values in {**found, **(spread or {})}.items() if len(values) > 1},
    )


def _histogram(latencies_ms: Sequence[float]) -> Histogram:
    return from_buckets((bucket(round(ms * 1e6)), 1) for ms in latencies_ms)


def _latency(latencies_ms: Sequence[float]) -> Latency:
    return latency_of(_histogram(latencies_ms), 1000 * mean(latencies_ms), 1000 * max(latencies_ms))
