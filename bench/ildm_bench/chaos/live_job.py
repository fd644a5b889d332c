"""One live run in a process of its own: ``python -m ildm_bench.chaos.live_job JOB.json``.

What came of it is the last line that it prints, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ildm_bench.chaos.history import History
from ildm_bench.chaos.live import run_live
from ildm_bench.chaos.schedule import Schedule


@dataclass(frozen=True)
class Job:
    """What to run, and where."""

    run: str
    schedule: str
    """Path of its file."""
    work: str
    """Directory for the files of the processes."""
    out: str
    """Directory of the history."""
    target: str
    host: str


@dataclass(frozen=True)
class Done:
    """What came of it."""

    run: str
    complete: bool
    events: int
    wrong: list[str]
    """See `ildm_bench.chaos.live.LiveRun`."""


async def run_job(job: Job) -> Done:
    """
    Raises:
        ProcessError, OSError, ScheduleError: it could not be run.
    """
    schedule = Schedule.load(Path(job.schedule))
    with History(job.run, Path(job.out), job.run) as history:
        done = await run_live(schedule, job.run, Path(job.work), history, target=job.target, host=job.host)
    return Done(job.run, done.about.complete, done.events, done.wrong)


def main() -> None:
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(json.dumps(asdict(asyncio.run(run_job(job)))))


if __name__ == "__main__":
    main()
