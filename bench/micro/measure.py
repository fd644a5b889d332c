"""What the micro benchmarks share: timing in CPU seconds, processes and their CPU, free ports."""

from __future__ import annotations

import os
import platform
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs as long as the block, its output in a file."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_for_port(port: int, child: subprocess.Popen[bytes], log: Path, seconds: float = 15) -> None:
    """Wait until something listens on a loopback port.

    Raises:
        RuntimeError: the program has ended, or nothing listens in time; with the end of its output.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port}: {log.read_text()[-2000:]}")


def median(values: list[float]) -> float:
    return statistics.median(values)
