"""Schedules that have failed once, and some drawn anew; bugs planted, which must be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm import compiled
from ildm_bench.chaos.schedule import Schedule
from ildm_bench.chaos.virtual.hunt import batches, carry_out, hunt
from ildm_bench.chaos.virtual.planted import PLANTS
from tests.bench.chaos import planting

PROJECT = Path(__file__).parents[3]
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_has_failed_holds(path: Path) -> None:
    schedule = Schedule.load(path)
    assert schedule.note
    result, _ = carry_out(schedule)
    assert not result.trouble
    assert [str(finding) for finding in result.failures] == []
    assert result.verdict.owed or any(operation.retain for operation in schedule.operations)


@pytest.mark.parametrize(
    ("algorithm", "fault", "mode", "runs"),
    [
        ("sf", "none", "process", 16),
        ("sf", "kill", "power", 16),
        ("sf", "kill-all", "process", 16),
        ("sf", "mixed", "process", 16),
        ("pf", "kill-all", "process", 16),
        ("pf", "kill", "process", 16),
        ("pf", "mixed", "process", 16),
        ("pf", "none", "process", 16),
        ("sg_tbps", "none", "process", 4),
        ("atm_tbps", "none", "process", 4),
        ("stla", "none", "process", 4),
        ("octopia", "none", "process", 4),
        ("sf", "lose-state", "process", 16),
        ("sf", "arrive", "process", 16),
        ("octopia", "arrive", "process", 8),
        ("sg_tbps", "lose-state", "process", 8),
        ("atm_tbps", "lose-state", "process", 4),
        ("stla", "lose-state", "process", 4),
        ("octopia", "lose-state", "process", 16),
        ("sf", "pair", "process", 16),
        ("pf", "pair", "power", 16),
        ("sg_tbps", "pair", "process", 4),
        ("octopia", "pair", "process", 4),
    ],
)
def test_schedules_hold(algorithm: str, fault: str, mode: str, runs: int) -> None:
    work = list(batches(runs, 2_000_000, algorithm=algorithm, fault=fault, mode=mode))
    tally = hunt(work)
    assert [(failure.schedule.seed, str(failure)) for failure in tally.failures] == []
    assert tally.schedules == runs
    assert tally.owed > runs


@pytest.fixture(scope="module")
def interpreted() -> Iterator[subprocess.Popen[str]]:
    """Looks for bugs, in nodes that run interpreted: compiled code calls its own past what replaces it."""
    code = f"from {planting.__name__} import serve; serve()"
    environment = os.environ | {compiled.SWITCH: "0"}
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield process


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_found(name: str, interpreted: subprocess.Popen[str]) -> None:
    assert interpreted.stdin is not None
    assert interpreted.stdout is not None
    print(name, file=interpreted.stdin, flush=True)
    assert interpreted.stdout.readline() == "True\n"
