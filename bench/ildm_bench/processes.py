"""What the kernel tells of the CPU time of processes and of the machine (Linux: from /proc)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")


class ProcessTimes(NamedTuple):
    """CPU seconds of one process."""

    name: str
    parent: int
    own: float
    ended: float
    """Of children that have ended and were waited for."""


@dataclass(frozen=True)
class Snapshot:
    """CPU seconds at one moment; of those of the machine only differences count."""

    busy: float
    """Of all programs, without interrupts (`machine_cpu_seconds`)."""
    stolen: float
    """That the host of a virtual machine gave to something else (proc(5): steal)."""
    processes: Mapping[int, ProcessTimes]

    @classmethod
    def take(cls) -> Snapshot:
        busy, stolen = machine_cpu_seconds()
        return cls(busy, stolen, _all())

    def trees(self, roots: Iterable[int]) -> set[int]:
        """These processes with all their descendants."""
        children: dict[int, list[int]] = {}
        for pid, process in self.processes.items():
            children.setdefault(process.parent, []).append(pid)
        found = [pid for pid in dict.fromkeys(roots) if pid in self.processes]
        seen = set(found)
        for each in found:
            new = [child for child in children.get(each, ()) if child not in seen]
            found += new
            seen.update(new)
        return seen

    def used(self, pids: Iterable[int]) -> float:
        """CPU seconds of these together; what children that have ended used stays with their parents."""
        times = (self.processes[pid] for pid in pids if pid in self.processes)
        return sum(each.own + each.ended for each in times)


def machine_cpu_seconds() -> tuple[float, float]:
    """CPU seconds that all programs have used, but for a constant, and those that the machine was not given.

    From the time in which the processors had nothing to do, which the kernel measures. What it says of their
    work itself (proc(5): user, system) it guesses from what runs at each tick; processes whose quotas are
    filled up in step with the ticks then count for a fifth of a core more than they use.

    Time of interrupts is taken off: most of it is the network's for what is measured, a tenth of a core with
    five pairs of broker and node at their limit. Some kernels charge a process with it as well, so that this
    is less than what all processes have used.
    """
    first, *others = Path("/proc/stat").read_text().splitlines()
    processors = sum(line.startswith("cpu") for line in others)
    _user, _nice, _system, idle, wait, irq, softirq, steal = map(int, first.split()[1:9])
    passed = time.monotonic() * processors
    return passed - (idle + wait + irq + softirq + steal) / TICK, steal / TICK


def _all() -> dict[int, ProcessTimes]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (times := _times(entry)) is not None:
            found[int(entry)] = times
    return found


def _times(pid: str) -> ProcessTimes | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # it has ended
        return None
    end = stat.rindex(b")")
    fields = stat[end + 2 :].split()
    user, system, ended_user, ended_system = (int(field) / TICK for field in fields[11:15])
    name = stat[stat.index(b"(") + 1 : end].decode(errors="replace")
    return ProcessTimes(name, int(fields[1]), user + system, ended_user + ended_system)
