"""What the results have in common: the two profiles, a testbed as target, pages and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console

from ildm_bench.analysis.histogram import bucket, from_buckets, quantile
from ildm_bench.figures import Comparison, Latency, Limit, RunFigures
from ildm_bench.limits import Target, find_limit
from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.micro.measure import machine
from ildm_bench.procedure import SearchConfig
from ildm_bench.progress import Progress
from ildm_bench.report import write_comparison
from ildm_bench.report.cli import COMPARISON
from ildm_bench.spread import words
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

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


@dataclass
class Bench:
    """Where a result is worked out, and how."""

    out: Path
    profile: Profile
    console: Console

    def scenario(self, name: str) -> Scenario:
        scenario = load_scenario(SCENARIOS / f"{name}.yaml")
        return scenario.shortened(self.profile.seconds) if self.profile.seconds else scenario

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
        """The limit of a testbed; goes on where an interrupted search has ended.

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
            )

    def publish(self, comparison: Comparison) -> Path:
        """Write the figures and the page."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / COMPARISON).write_text(comparison.model_dump_json(indent=1) + "\n")
        return write_comparison(comparison, self.out)


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


def cpu_by_role(figures: RunFigures) -> str:
    """CPU microseconds per delivery, summed over the processes of each role: ``broker 3.9, node 4.2``."""
    sums: dict[str, float] = {}
    for use in figures.processes:
        sums[use.role] = sums.get(use.role, 0.0) + use.cpu_us_per_delivery
    return ", ".join(f"{role} {total:.1f}" for role, total in sums.items())


def limit_row(limit: Limit, reference: Limit | None = None) -> list[str]:
    """Label, interval, ingress, egress, ratio to the reference, l-clients' latency, loss, CPU."""
    figures = limit.figures
    if figures is None or limit.interval_ms is None:
        return [limit.label, "no interval under the limit", "", "", "", "", "", ""]
    latency = figures.latency.get("latency.sent")
    ratio = ""
    if reference is not None and reference.figures is not None and reference.figures.egress:
        ratio = f"{figures.egress / reference.figures.egress:.2f}"
    bound = "" if limit.bounded_by == "target" else " (generator's)"
    return [
        limit.label,
        f"{limit.interval_ms:g} ms{bound}",
        f"{figures.ingress:,.0f}",
        f"{figures.egress:,.0f}",
        ratio,
        f"{words(latency.mean, scale=1e-3)} / {words(latency.p99, scale=1e-3)}" if latency else "",
        f"{figures.missing} of {figures.expected}",
        cpu_by_role(figures),
    ]


def client_figures(
    label: str, latencies_ms: Sequence[float], expected: int, missing: int, interval_ms: float
) -> RunFigures:
    """What clients of `ildm_bench.results.clients` have seen, as a run for the page: latencies and losses."""
    histogram = from_buckets((bucket(round(ms * 1e6)), 1) for ms in latencies_ms)
    p50, p95, p99, p999 = (quantile(histogram, share) / 1000 for share in (0.5, 0.95, 0.99, 0.999))
    latency = Latency(
        count=len(latencies_ms),
        mean=1000 * mean(latencies_ms),
        p50=p50,
        p95=p95,
        p99=p99,
        p999=p999,
        max=1000 * max(latencies_ms),
    )
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
        latency={"latency.sent": latency},
        histograms={"latency.sent": histogram},
        per_second=[],
        processes=[],
        network={},
        machine=machine(),
        notes=[],
    )


HEADING = [
    "",
    "limit",
    "ingress/s",
    "egress/s",
    "ratio",
    "latency ms, mean / p99",
    "lost",
    "CPU us per delivery",
]
