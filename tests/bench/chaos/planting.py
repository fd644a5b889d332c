"""Bugs planted into nodes (`ildm_bench.chaos.virtual.planted`), which run interpreted in this process."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

from ildm_bench.chaos.history import History
from ildm_bench.chaos.virtual.hunt import Failure, batches, carry_out, carry_out_all
from ildm_bench.chaos.virtual.planted import PLANTS, planted

SCHEDULES = 256
SHOWN = {
    "acknowledged-before-written": 17,
    "acknowledged-while-blocked": 4,
    "fetched-again": 10,
    "forgotten-backlog": 32,
    "forgotten-by-a-rate": 16,
    "forgotten-filters": 6,
    "forgotten-for-good": 3,
    "forgotten-identities": 21,
    "forgotten-rest": 16,
    "forgotten-wills": 20,
    "forgotten-window": 12,
    "freed-with-its-first-part": 19,
    "half-of-a-batch": 3,
    "joined-before-the-word": 4,
    "kept-the-oldest": 196,
    "lost-at-compaction": 25,
    "never-told-of-tokens": 16,
    "retained-without-a-stamp": 9,
    "taken-unwritten": 24,
}
"""The first seed with which each bug has been found (else 0), so that it is tried first. Once schedules are
drawn in another way it is one of many: `python -m tests.bench.chaos.planting` tells those of then."""


def failure_with(name: str, seed: int | None = None) -> Failure | None:
    """The first schedule in which something does not hold that the bug breaks; ``seed``: tried before all."""
    plant = PLANTS[name]
    given = {"algorithm": plant.algorithm, "fault": plant.fault, "scale": plant.scale, "plant": name}
    first = () if seed is None else batches(1, seed, **given)
    for batch in chain(first, batches(SCHEDULES, 0, **given)):
        for failure in carry_out_all(batch).failures:
            if failure.kinds & plant.breaks:
                return failure
    return None


def serve() -> None:
    """Answer, for each name that is read, whether that bug is found."""
    for line in sys.stdin:
        name = line.strip()
        print(failure_with(name, SHOWN.get(name, 0)) is not None, flush=True)


def write(directory: Path) -> None:
    """A history of each bug, as a run of its name."""
    for name in PLANTS:
        failure = failure_with(name, SHOWN.get(name, 0))
        assert failure is not None, name
        with planted(name):
            _, made = carry_out(failure.schedule, name)
        assert made.about is not None
        with History(name, directory) as history:
            for event in made.events:
                history.add(event)
            history.finish(made.about)


if __name__ == "__main__":
    for each in sorted(PLANTS):
        found = failure_with(each)
        print(f"{each}: {None if found is None else found.schedule.seed}", flush=True)
