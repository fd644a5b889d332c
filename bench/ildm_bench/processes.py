"""What the kernel tells of the CPU time of processes and of the machine (Linux: from /proc)."""

from __future__ import annotations

import os
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
    """CPU seconds at one moment; those of the machine are since it began."""

    busy: float
    """Of all programs, without interrupts."""
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
    """CPU seconds that all programs on the machine have used since it began, and those it was not given.

    Time of interrupts is in neither: no process is charged with it, and most of it is the network's for what
    is measured, a tenth of a core with five pairs of broker and node at their limit.
    """
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _wait, _irq, _softirq, steal = map(int, fields[1:9])
    return (user + nice + system) / TICK, steal / TICK


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
