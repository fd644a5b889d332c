"""Finding a limit for real: each interval that the search wants is a run of the load generator."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ildm_bench.figures import LIMIT_RATIO, Limit, Point, RunFigures
from ildm_bench.limit_search import run_search
from ildm_bench.load.coordinator import RunProgress, RunSpec, run_load
from ildm_bench.load.resources import cpu_seconds
from ildm_bench.load.scenario import Scenario
from ildm_bench.manifest import Manifest, Process
from ildm_bench.procedure import Search, SearchConfig, SearchHeader, limit_point
from ildm_bench.progress import Progress
from ildm_bench.schema import FIGURES, ROLES, run_directory

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
    return Point(
        interval_ms=manifest.interval_ms,
        ingress=summary.ingress,
        egress=summary.egress,
        ratio=summary.ratio,
        verdict=verdict,
        under_limit=verdict == "ok" and summary.ratio >= LIMIT_RATIO,
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
    master: str = "local[*]",
) -> Limit:
    """Search for the limit of a target in a directory of its own, and work out the figures at it.

    Args:
        directory: the runs, the journal of the search and ``limit.json`` go there.
        warm_up: seconds of load before the first measurement, for brokers that compile themselves.
        keep_logs: keep the logs of all runs, not only of the one at the limit.

    Raises:
        LoadError: a run failed as such.
        SearchError: the directory holds another search.
    """
    config = config or SearchConfig()
    search = Search(SearchHeader.of(scenario, target.names or target.addresses, config, target.label))
    directory.mkdir(parents=True, exist_ok=True)
    warm = warm_up

    def one(interval_ms: float) -> Point:
        nonlocal warm
        if warm:
            shortened = scenario.shortened(warm)
            run = measure(shortened, target, directory, config.start_ms or interval_ms, generators).run
            shutil.rmtree(run_directory(directory, run))
            warm = 0.0
        for _ in range(TRIES):
            settle(target.processes)
            point = point_of(measure(scenario, target, directory, interval_ms, generators))
            if point.verdict != "void":
                break
            drop_logs(directory, point.run)
        # what cannot be the limit is of no further use, and a search leaves gigabytes
        if not keep_logs and not point.under_limit:
            drop_logs(directory, point.run)
        return point

    seconds = scenario.duration + scenario.drain
    limit = run_search(search, one, directory / JOURNAL, progress or Progress(seconds=seconds))
    best = limit_point(limit)
    if not keep_logs:
        for point in limit.points:
            if best is None or point.run != best.run:
                drop_logs(directory, point.run)
    if best is not None:
        from ildm_bench.analysis.pipeline import analyse, write_figures  # noqa: PLC0415 - a load needs no Spark
        from ildm_bench.analysis.session import spark_session  # noqa: PLC0415

        path = run_directory(directory, best.run) / FIGURES
        if path.exists():  # the search had been finished before
            figures = RunFigures.model_validate_json(path.read_text())
        else:
            (figures,) = analyse(spark_session(master, quick=True), directory, [best.run])
            write_figures([figures], directory)
        limit = limit.model_copy(update={"figures": figures})
    (directory / LIMIT).write_text(limit.model_dump_json(indent=1) + "\n")
    return limit


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
