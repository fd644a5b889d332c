"""Finding a limit for real: each interval that the search wants is a run of the load generator."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ildm_bench.load.coordinator import RunProgress, RunSpec, run_load
from ildm_bench.load.resources import cpu_seconds
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Limit, Point, RunFigures, bears
from ildm_bench.measure.limit_search import run_search
from ildm_bench.measure.manifest import Manifest, Process
from ildm_bench.measure.next_limit import NextLimit
from ildm_bench.measure.procedure import Search, SearchConfig, SearchHeader, limit_point
from ildm_bench.measure.progress import Progress
from ildm_bench.measure.quiet import Gate
from ildm_bench.measure.schema import FIGURES, ROLES, run_directory
from ildm_bench.measure.spread import middle_of

LIMIT = "limit.json"
JOURNAL = "search.jsonl"
QUIET = 0.1
"""Cores which the processes of the target may use together before the next run begins."""
TRIES = 3
"""Runs at one interval until the generator has met its target: a moment's disturbance decides nothing."""
SETTLE = 20.0
"""Seconds that they have to come to rest from the last one."""


@dataclass
class Target:
    """What the load goes to."""

    addresses: Sequence[str]
    """host:port of each site."""
    label: str
    names: Sequence[str] = ()
    """What stands for the addresses in the journal, where these change from sitting to sitting."""
    processes: Sequence[tuple[Process, int]] = ()
    notes: list[str] = field(default_factory=list)


@dataclass
class Generators:
    """The processes of the load generator."""

    workers: int = 1
    remote: Sequence[str] = ()
    secret: str = ""


def measure(
    scenario: Scenario,
    target: Target,
    results: Path,
    interval_ms: float | None = None,
    generators: Generators | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> Manifest:
    """One run.

    Raises:
        LoadError: the load could not be put on.
    """
    generators = generators or Generators()
    spec = RunSpec(
        scenario=scenario,
        targets=target.addresses,
        results=results,
        interval_ms=interval_ms,
        label=target.label,
        workers=generators.workers,
        remote=generators.remote,
        secret=generators.secret,
        processes=target.processes,
        notes=list(target.notes),
        progress=progress,
    )
    return asyncio.run(run_load(spec))


def point_of(manifest: Manifest) -> Point:
    """The run as a measurement of a search, by what the generator counted."""
    summary, verdict = manifest.summary, manifest.generator.verdict
    due = summary.ingress * manifest.scenario.sp_ratio
    waiting = summary.queued / due if due else 0.0
    return Point(
        interval_ms=manifest.interval_ms,
        ingress=summary.ingress,
        egress=summary.egress,
        ratio=summary.ratio,
        verdict=verdict,
        under_limit=verdict == "ok" and bears(summary.ratio, waiting),
        queued_seconds=waiting,
        disturbed=manifest.disturbance.reason,
        run=manifest.run,
    )


def find_limit(
    scenario: Scenario,
    target: Target,
    directory: Path,
    config: SearchConfig | None = None,
    *,
    generators: Generators | None = None,
    warm_up: float = 0.0,
    keep_logs: bool = False,
    progress: Progress | None = None,
    gate: Gate | None = None,
    rounds: int = 1,
    master: str = "local[*]",
) -> Limit:
    """Search for the limit of a target in a directory of its own, and work out the figures at it.

    Args:
        directory: the runs, the journal of the search and ``limit.json`` go there.
        warm_up: seconds of load before the first measurement, for brokers that compile themselves.
        keep_logs: keep the logs of all runs, not only of those at the limit.
        gate: what was not measured in quiet is measured again; without one the limit says that it is void.
        rounds: limits to find, the second and later ones from where the first was (`NextLimit`); the result
            is the one in the middle, with the spread of all.

    Raises:
        LoadError: a run failed as such.
        SearchError: the directory holds another search.
        QuietError: the gate has not let a measurement pass.
    """
    config = config or SearchConfig()
    names = target.names or target.addresses
    directory.mkdir(parents=True, exist_ok=True)
    progress = progress or Progress(seconds=scenario.duration + scenario.drain)
    measured = _Measured(scenario, target, directory, generators, gate, keep_logs)
    measured.warm_up, measured.warm_up_ms = warm_up, config.start_ms
    found: list[Limit] = []
    for round_ in range(rounds):
        search: Search | NextLimit = Search(SearchHeader.of(scenario, names, config, target.label))
        if round_:
            near = config.model_copy(update={"start_ms": found[0].interval_ms})
            search = NextLimit(SearchHeader.of(scenario, names, near, target.label))
        limit = run_search(search, measured.point, directory / journal_name(round_), progress)
        found.append(measured.with_figures(limit, master))
        if found[0].interval_ms is None:
            break
    limit = middle_of(found)
    (directory / LIMIT).write_text(limit.model_dump_json(indent=1) + "\n")
    return limit


def journal_name(round_: int) -> str:
    return JOURNAL if not round_ else f"search-{round_ + 1}.jsonl"


class _Measured:
    """Runs of the load against one target, as points of a search."""

    def __init__(
        self,
        scenario: Scenario,
        target: Target,
        directory: Path,
        generators: Generators | None,
        gate: Gate | None,
        keep_logs: bool,
    ) -> None:
        self._scenario = scenario
        self._target = target
        self._directory = directory
        self._generators = generators
        self._gate = gate or Gate(lambda _: None, noisy=True)
        self._keep_logs = keep_logs
        self.warm_up = 0.0
        """Seconds, at this interval or that of the first measurement."""
        self.warm_up_ms: float | None = None

    def point(self, interval_ms: float) -> Point:
        """Measure until the generator has met its target, if it does."""
        if self.warm_up:
            scenario, self.warm_up = self._scenario.shortened(self.warm_up), 0.0
            interval = self.warm_up_ms or interval_ms
            run = measure(scenario, self._target, self._directory, interval, self._generators).run
            shutil.rmtree(run_directory(self._directory, run))
        own = [pid for _, pid in self._target.processes]
        for _ in range(TRIES):
            manifest = self._gate.measure(
                f"{interval_ms:g} ms", lambda: self._run(interval_ms), lambda run: run.disturbance, own
            )
            point = point_of(manifest)
            if point.verdict != "void":
                break
            drop_logs(self._directory, point.run)
        # what cannot be the limit is of no further use, and a search leaves gigabytes
        if not self._keep_logs and not point.under_limit:
            drop_logs(self._directory, point.run)
        return point

    def _run(self, interval_ms: float) -> Manifest:
        settle(self._target.processes)
        manifest = measure(self._scenario, self._target, self._directory, interval_ms, self._generators)
        if not manifest.disturbance.quiet and not self._gate.noisy:
            drop_logs(self._directory, manifest.run)
        return manifest

    def with_figures(self, limit: Limit, master: str) -> Limit:
        """The limit with the figures of its run, the only one whose logs stay."""
        best = limit_point(limit)
        if not self._keep_logs:
            for point in limit.points:
                if best is None or point.run != best.run:
                    drop_logs(self._directory, point.run)
        if best is None:
            return limit
        from ildm_bench.analysis.pipeline import analyse, write_figures  # noqa: PLC0415 - a load needs no Spark
        from ildm_bench.analysis.session import spark_session  # noqa: PLC0415

        path = run_directory(self._directory, best.run) / FIGURES
        if path.exists():  # the search had been finished before
            figures = RunFigures.model_validate_json(path.read_text())
        else:
            (figures,) = analyse(spark_session(master, quick=True), self._directory, [best.run])
            write_figures([figures], self._directory)
        return limit.model_copy(update={"figures": figures})


def drop_logs(directory: Path, run: str) -> None:
    """Remove the rows of a run; manifest and samples stay."""
    for role in ROLES:
        shutil.rmtree(run_directory(directory, run) / f"role={role}", ignore_errors=True)


def settle(
    processes: Sequence[tuple[Process, int]],
    seconds: float = SETTLE,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until the target has come to rest; False if it has not within the time."""
    step = 0.25
    before = sum(cpu_seconds(pid) for _, pid in processes)
    for _ in range(round(seconds / step)):
        sleep(step)
        now = sum(cpu_seconds(pid) for _, pid in processes)
        if now - before <= QUIET * step:
            return True
        before = now
    return False
