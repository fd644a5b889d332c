"""Many schedules in virtual time, a batch of them in one process, each with sites of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from ildm_bench.chaos.drawing import DELAYS, RINGED, SHARED, Scale, draw, draw_setting, ringed
from ildm_bench.chaos.history import History, Run
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.schedule import Schedule
from ildm_bench.chaos.verdict import Finding, Verdict
from ildm_bench.chaos.virtual.planted import planted
from ildm_bench.chaos.virtual.run import Result, Warm

PATIENCE = 120
"""Seconds that one schedule may take of the processor; then it is taken to go on without end."""

TOGETHER = 4 * SHARED
"""Schedules in a batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Schedules that one process carries out: those of ``seeds``."""

    algorithm: str
    seeds: range
    fault: str = "mixed"
    scale: Scale | None = None
    """Of all of them, instead of the usual ones."""
    sites: int | None = None
    brokers: tuple[str, ...] = ()
    mode: str = "process"
    plant: str = ""
    """A bug to be found; see `ildm_bench.chaos.virtual.planted`."""
    queries: bool = False
    """Make an outcome of the histories as well."""

    def schedule(self, seed: int) -> Schedule:
        moves = self.fault in DELAYS
        sites = self.sites or (RINGED if moves else None)
        setting = draw_setting(
            seed // SHARED, self.algorithm, sites=sites, brokers=self.brokers, mode=self.mode
        )
        if moves:
            setting = ringed(setting)
        return draw(seed, self.algorithm, fault=self.fault, scale=self.scale, setting=setting)


class Failure(NamedTuple):
    """A schedule in which something promised did not hold."""

    schedule: Schedule
    findings: list[Finding]
    trouble: str

    @property
    def kinds(self) -> frozenset[str]:
        """Names of the invariants."""
        names = {finding.invariant for finding in self.findings}
        return frozenset(names | {"raised"} if self.trouble else names)

    def __str__(self) -> str:
        """For people: what it was at first."""
        words = [str(finding) for finding in self.findings[:3]]
        if len(self.findings) > 3:
            words.append(f"and {len(self.findings) - 3} more")
        if self.trouble:
            words.append(self.trouble.strip().rpartition("\n")[2])
        return "; ".join(words)


@dataclass
class Tally:
    """What has come of schedules."""

    schedules: int = 0
    owed: int = 0
    virtual: float = 0.0
    """Seconds of virtual time."""
    spent: float = 0.0
    """Seconds of processors."""
    apart: Counter[str] = field(default_factory=Counter)
    """Findings that do not count against the nodes, by invariant and cause."""
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, schedule: Schedule, result: Result) -> None:
        """What has come of one."""
        self.schedules += 1
        self.owed += result.verdict.owed
        self.virtual += result.about.seconds
        ours = set(result.failures)
        self.apart.update(f"{f.invariant} ({f.cause})" for f in result.verdict.findings if f not in ours)
        self.reached += result.reached
        if result.failed:
            self.failures.append(Failure(schedule, result.failures, result.trouble))

    def __iadd__(self, other: Tally) -> Tally:
        self.schedules += other.schedules
        self.owed += other.owed
        self.virtual += other.virtual
        self.spent += other.spent
        self.apart += other.apart
        self.reached += other.reached
        self.failures += other.failures
        self.outcomes += other.outcomes
        return self


def carry_out(schedule: Schedule, run: str = "0") -> tuple[Result, History]:
    """One schedule, alone."""
    return Warm(schedule.setting).run(schedule, run)


def failure_of(schedule: Schedule) -> Failure | None:
    """What of it fails, in a process of its own; None if all holds."""
    [(result, _)] = _apart([schedule], ["0"], whole=False)
    return Failure(schedule, result.failures, result.trouble) if result.failed else None


def carry_out_all(batch: Batch) -> Tally:
    """The schedules of a batch, one after the other."""
    began = _spent()
    tally = Tally()
    histories: list[History] = []
    schedules = [batch.schedule(seed) for seed in batch.seeds]
    runs = [f"{batch.algorithm}-{batch.mode}-{batch.fault}-{seed}" for seed in batch.seeds]
    with planted(batch.plant) if batch.plant else nullcontext():
        Warm(schedules[0].setting)  # what all use is imported, and seen by the interpreter, before the fork
        while schedules:
            done = 0
            for result, history in _apart(schedules, runs, batch.queries):
                tally.add(schedules[done], result)
                if history is not None:
                    histories.append(history)
                done += 1
            del schedules[:done], runs[:done]
    if histories:
        from ildm_bench.chaos.check import check_histories  # noqa: PLC0415 - slow to import

        tally.outcomes.append(check_histories(histories))
    tally.spent = _spent() - began
    return tally


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _apart(
    schedules: list[Schedule], runs: list[str], whole: bool
) -> Iterator[tuple[Result, History | None]]:
    """What comes of schedules that are carried out in a process of their own, one after the other; ``whole``:
    and the histories. The one with which that process ends, or does not, is the last to be answered.

    A process for each would be cleaner, and takes longer than a schedule: nearly all pages are written to, if
    only by counts of references, and so copied.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                _serve(schedules, runs, whole, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    answered = 0
    with os.fdopen(reading, "rb") as pipe:
        try:
            while answered < len(schedules):
                yield pickle.load(pipe)
                answered += 1
        except (EOFError, pickle.UnpicklingError):  # it has ended, perhaps while it wrote
            pass
    _, status = os.waitpid(pid, 0)
    if answered < len(schedules):
        signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        why = f"took over {PATIENCE} s" if signal_number == signal.SIGVTALRM else f"ended by status {status}"
        yield Result(Verdict([], 0), Run(""), Counter(), why), None


def _serve(schedules: list[Schedule], runs: list[str], whole: bool, pipe: BinaryIO) -> None:
    """Carry out schedules; ends the process by a signal when one takes too long."""
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    gc.disable()
    gc.freeze()  # what was there before is not looked at again and again
    for schedule, run in zip(schedules, runs, strict=True):
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        result, history = carry_out(schedule, run)
        pickle.dump((result, history if whole else None), pipe)
        pipe.flush()
        gc.collect()  # at the same points of all schedules, and the next one gets memory that is at hand


def batches(runs: int, seed: int, **given: Any) -> Iterator[Batch]:
    """Of so many schedules, from a seed on."""
    end = seed + runs
    while seed < end:
        upper = min(end, (seed // TOGETHER + 1) * TOGETHER)
        yield Batch(seeds=range(seed, upper), **given)
        seed = upper


def hunt(work: list[Batch], jobs: int = 1, told: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """All batches, on so many processes; ``told`` is called with what each has come to."""
    total = Tally()
    if jobs == 1:
        for batch in work:
            tally = carry_out_all(batch)
            told(tally)
            total += tally
        return total
    # strings hash alike in all processes, so that what failed in one does so in another
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        for tally in pool.imap_unordered(carry_out_all, work):
            told(tally)
            total += tally
    return total
