"""What the micro benchmarks share: timing in CPU seconds, use of processes, whether it was quiet."""

from __future__ import annotations

import atexit
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ildm_bench.measure.quiet import Watch

TICKS = os.sysconf("SC_CLK_TCK")
MICRO = "ildm_bench.micro."


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


def median(values: list[float]) -> float:
    return statistics.median(values)


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
