"""Many live runs: some at a time, each in a process and at an address of its own, each checked at its end."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ildm.testing.live.ports import LOOPBACK
from ildm.testing.live.process import reaper
from ildm_bench.chaos.check import check_directories
from ildm_bench.chaos.live_job import Done, Job
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.processes import release_disks
from ildm_bench.chaos.schedule import Schedule

LONGEST = 300.0
"""Seconds that a run may take beyond its schedule; what is not over then hangs."""
_LAST_WORDS = 2000


@dataclass(frozen=True)
class Planned:
    """One run that is to be."""

    run: str
    schedule: Schedule
    target: str = "ildm"


@dataclass
class Finished:
    """One that is over."""

    planned: Planned
    outcome: Outcome | None
    """What the check says; None where it could not be run."""
    wrong: list[str] = field(default_factory=list)
    complete: bool = False
    kept: Path | None = None
    """Where the files of its processes are, kept where it is to be looked at."""

    @property
    def good(self) -> bool:
        """Whether there is nothing to be looked at."""
        return self.outcome is not None and self.outcome.holds() and self.complete and not self.wrong


class LiveRuns:
    """Runs, in ``directory``: histories, schedules, and below ``kept`` the files of runs to be looked at."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self.directory = directory.absolute()
        self.jobs = jobs
        self._hosts: queue.SimpleQueue[str] = queue.SimpleQueue()
        for slot in range(jobs):
            self._hosts.put(_host(slot))
        self._children: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ending = False

    def run(self, planned: Iterable[Planned]) -> Iterator[Finished]:
        """Run all; each is given when it is over, in whatever order. Ending early ends what runs."""
        waiting = iter(planned)
        under_way: set[Future[Finished]] = set()
        with ThreadPoolExecutor(self.jobs) as pool, self._ended():
            while True:
                while len(under_way) < self.jobs and (plan := next(waiting, None)) is not None:
                    under_way.add(pool.submit(self._one, plan))
                if not under_way:
                    return
                over, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in over:
                    yield future.result()

    def _one(self, planned: Planned) -> Finished:
        work = self.directory / "work" / planned.run
        remove(work)
        out = work / "out"
        out.mkdir(parents=True)
        schedule = self.directory / f"schedule-{planned.run}.json"
        planned.schedule.save(schedule)
        host = self._hosts.get()
        try:
            job = Job(planned.run, str(schedule), str(work), str(out), planned.target, host)
            done = self._job(job, work, planned.schedule.seconds + LONGEST)
        finally:
            release_disks(work)
            self._hosts.put(host)
        return self._judged(planned, done, work)

    def _job(self, job: Job, work: Path, longest: float) -> Done | str:
        """What came of it, or the last words of a process that could not."""
        path = work / "job.json"
        path.write_text(json.dumps(asdict(job)), encoding="utf-8")
        with (work / "errors.log").open("w+", encoding="utf-8") as errors:
            command = [sys.executable, "-m", "ildm_bench.chaos.live_job", str(path)]
            with self._lock:
                if self._ending:
                    return "ended"
                child = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
                )
                self._children.add(child)
            reaper().watch(child.pid)
            try:
                output, _ = child.communicate(timeout=longest)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return f"not over after {longest:.0f} s"
            finally:
                reaper().forget(child.pid)
                self._children.discard(child)
            if child.returncode:
                errors.seek(0)
                return errors.read()[-_LAST_WORDS:].strip() or f"ended with status {child.returncode}"
        return Done(**json.loads(output.splitlines()[-1]))

    def _judged(self, planned: Planned, done: Done | str, work: Path) -> Finished:
        out = work / "out"
        if isinstance(done, str):
            finished = Finished(planned, None, [done])
        else:
            outcome = check_directories([out])
            finished = Finished(planned, outcome, done.wrong, done.complete)
            for path in out.glob("*.parquet"):
                path.replace(self.directory / path.name)
        if finished.good:
            remove(work)
        else:
            finished.kept = self.directory / "kept" / planned.run
            finished.kept.parent.mkdir(exist_ok=True)
            remove(finished.kept)
            work.replace(finished.kept)
        return finished

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Behind the block nothing runs any more."""
        try:
            yield
        finally:
            with self._lock:
                self._ending = True
                children = list(self._children)
            for child in children:
                child.terminate()


def _host(slot: int) -> str:
    """A loopback address for one run at a time, so that no two take ports from each other."""
    return f"127.77.{slot + 1}.1" if sys.platform == "linux" else LOOPBACK


def remove(directory: Path) -> None:
    """A directory of a run, if it is there; disks that an ended run has left in it as well."""
    release_disks(directory)
    shutil.rmtree(directory, ignore_errors=True)
