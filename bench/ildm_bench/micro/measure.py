"""What the micro benchmarks share: options, timing in CPU seconds, use of processes, whether it was quiet."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import platform
import statistics
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ildm.testing.live.process import ManagedProcess
from ildm_bench.measure.quiet import Watch

TICKS = os.sysconf("SC_CLK_TCK")
MICRO = "ildm_bench.micro."
Way = TypeVar("Way")
Found = TypeVar("Found")


def machine() -> str:
    """One line about the machine, to stand beside every figure."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"


def cpu_per_call(call: Callable[[], object], seconds: float = 0.4, rounds: int = 5) -> float:
    """CPU seconds of one call: the best of ``rounds``, each of about ``seconds``."""
    calls = 1
    while True:
        start = time.process_time()
        for _ in range(calls):
            call()
        used = time.process_time() - start
        if used > 0.02:
            break
        calls *= 4
    calls = max(1, int(calls * seconds / rounds / used))
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - start) / calls)
    return best


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def run_ns(pid: int) -> int:
    """Nanoseconds for which the threads of a process that live have run: finer than its ticks of 10 ms."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats)


def pid_of(running: ManagedProcess) -> int:
    assert running.process is not None
    return running.process.pid


class Usage:
    """CPU seconds that processes use from now on."""

    def __init__(self, *pids: int) -> None:
        self._before = {pid: cpu_seconds(pid) for pid in pids}
        self._began = time.perf_counter()

    def used(self) -> list[float]:
        """Of each so far."""
        return [cpu_seconds(pid) - before for pid, before in self._before.items()]

    def passed(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._began


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def options(
    description: str | None, rounds: int | None = None, seconds: float | None = None
) -> ArgumentParser:
    """A parser, with the options that most benchmarks have where they have a default."""
    parser = ArgumentParser(description=description)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds)
    return parser


def in_turn(
    rounds: int,
    ways: Iterable[Way],
    measure: Callable[[Way], Found],
    say: Callable[[Found], str] | None = None,
) -> dict[Way, list[Found]]:
    """What is measured of each way; round by round, because machines drift."""
    results: dict[Way, list[Found]] = {way: [] for way in ways}
    for round_ in range(rounds):
        for way, found in results.items():
            found.append(measure(way))
            if say is not None:
                print(f"round {round_ + 1} {way}: {say(found[-1])}", file=sys.stderr, flush=True)
    return results


def apart(call: Callable[..., Found], *arguments: Any) -> Found:
    """The answer of a process of its own, which holds nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(call, *arguments).result()


class Column(NamedTuple):
    """Of a printed table."""

    heading: str
    width: int
    form: str
    """Of a number."""


def line(label: object, width: int, columns: Sequence[Column], values: Iterable[float | str | None]) -> str:
    """A line of a table; a text stays as it is, None is left empty."""
    cells = (
        "" if value is None else value if isinstance(value, str) else format(value, column.form)
        for column, value in zip(columns, values, strict=True)
    )
    parts = [f"{cell:>{column.width}}" for column, cell in zip(columns, cells, strict=True)]
    return " ".join([f"{label!s:{width}}", *parts]).rstrip()


def heading(label: str, width: int, columns: Sequence[Column]) -> str:
    return line(label, width, columns, [column.heading for column in columns])


def conditions(watch: Watch) -> str:
    """Whether what was measured under a watch counts, in a line: to stand beside every figure."""
    seen = watch.seen()
    if seen.reason:
        return f"VOID, not measured in quiet: {seen.reason}"
    return f"quiet: others used {seen.others:.2f} of a core, the host kept {seen.stolen:.2f}"


def _tell(watch: Watch) -> None:
    print(conditions(watch), file=sys.stderr)


def _is_benchmark() -> bool:
    """Whether this program is one of the micro benchmarks, ``python -m ildm_bench.micro.NAME``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(MICRO)


if _is_benchmark():
    # From here on, not in each benchmark: none can forget it. Children that generate load do not import this.
    atexit.register(_tell, Watch())
