"""Bugs planted into nodes (`ildm_bench.chaos.virtual.planted`), which run interpreted in this process."""

from __future__ import annotations

from pathlib import Path

from ildm_bench.chaos.history import History
from ildm_bench.chaos.virtual.hunt import Failure, batches, carry_out, carry_out_all
from ildm_bench.chaos.virtual.planted import PLANTS, planted

SCHEDULES = 256


def failure_with(name: str) -> Failure | None:
    """The first schedule in which something does not hold that the bug breaks."""
    plant = PLANTS[name]
    work = batches(SCHEDULES, 0, algorithm="sf", fault=plant.fault, scale=plant.scale, plant=name)
    for batch in work:
        for failure in carry_out_all(batch).failures:
            if failure.kinds & plant.breaks:
                return failure
    return None


def is_found(name: str) -> bool:
    return failure_with(name) is not None


def write(directory: Path) -> None:
    """A history of each bug, as a run of its name."""
    for name in PLANTS:
        failure = failure_with(name)
        assert failure is not None, name
        with planted(name):
            _, made = carry_out(failure.schedule, name)
        assert made.about is not None
        with History(name, directory) as history:
            for event in made.events:
                history.add(event)
            history.finish(made.about)
