"""What the processes use and what the kernel counts, sampled beside the load (Linux: from /proc)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ildm_bench.measure.manifest import Process
from ildm_bench.measure.quiet import Disturbance, between
from ildm_bench.measure.schema import NETWORK, RESOURCES
from ildm_bench.processes import TICK, Snapshot

PAGE = os.sysconf("SC_PAGE_SIZE")
COUNTERS = frozenset(
    {
        # retransmission
        "RetransSegs",
        "TCPTimeouts",
        "TCPLostRetransmit",
        "TCPFastRetrans",
        "TCPLossProbes",
        "TCPSynRetrans",
        # a receiver that does not keep up
        "TCPFromZeroWindowAdv",
        "TCPToZeroWindowAdv",
        "TCPWantZeroWindowAdv",
        "TCPRcvCollapsed",
        "PruneCalled",
        "TCPRcvQDrop",
        "TCPBacklogDrop",
        "ListenOverflows",
        "ListenDrops",
        # volume
        "InSegs",
        "OutSegs",
        "OutRsts",
    }
)
"""The kernel's counters (tcp(7), nstat(8)) for the bottlenecks of thesis 5.5.5."""


class Sampler:
    """Takes samples when told; a process counts together with its children."""

    def __init__(self, processes: Sequence[tuple[Process, int]], offset_ns: int) -> None:
        """``processes`` with their ids; ``offset_ns`` is added to the monotonic clock."""
        self._processes = list(processes)
        self._offset_ns = offset_ns
        self._resources: list[tuple[object, ...]] = []
        self._network: list[tuple[object, ...]] = []
        self._snapshots: list[tuple[int, Snapshot]] = []
        self.lost: set[str] = set()
        """Processes that have ended."""
        self._namespaces = self._find_namespaces()

    def _find_namespaces(self) -> dict[str, int]:
        """Name of each network namespace and a process in it."""
        own = os.readlink("/proc/self/ns/net") if Path("/proc/self/ns/net").exists() else ""
        found = {"host": os.getpid()}
        links = {own: "host"}
        for process, pid in self._processes:
            try:
                link = os.readlink(f"/proc/{pid}/ns/net")
            except OSError:
                continue
            if link not in links:
                links[link] = f"site-{process.site}"
                found[links[link]] = pid
        return found

    def sample(self) -> None:
        """Take one sample of everything."""
        now = time.monotonic_ns() + self._offset_ns
        snapshot = Snapshot.take()
        self._snapshots.append((now, snapshot))
        for process, pid in self._processes:
            totals = [0.0, 0.0, 0, 0, 0, 0]
            alive = False
            for each in snapshot.trees([pid]):
                values = _use(each)
                if values is not None:
                    alive = alive or (each == pid and values[3] > 0)
                    totals = [a + b for a, b in zip(totals, values, strict=True)]
            if not alive:
                self.lost.add(process.name)
                continue
            self._resources.append((now, process.name, *totals))
        for name, pid in self._namespaces.items():
            for counter, value in _counters(pid).items():
                self._network.append((now, name, counter, value))

    def disturbance(self, begin_ns: int, end_ns: int) -> Disturbance:
        """What programs did between two times that are neither sampled nor this one."""
        inside = [sample for sample in self._snapshots if begin_ns <= sample[0] <= end_ns + int(1e9)]
        if len(inside) < 2:
            return Disturbance()
        (first, before), (last, after) = inside[0], inside[-1]
        own = [os.getpid(), *(pid for _, pid in self._processes)]
        return between(before, after, (last - first) / 1e9, own)

    def write(self, directory: Path) -> None:
        """Write both files of samples."""
        for name, rows, schema in (
            ("resources", self._resources, RESOURCES),
            ("network", self._network, NETWORK),
        ):
            columns = list(zip(*rows, strict=True)) or [()] * len(schema)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            pq.write_table(pa.Table.from_arrays(arrays, schema=schema), directory / f"{name}.parquet")


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process and its children have used; 0 if it has gone."""
    snapshot = Snapshot.take()
    return snapshot.used(snapshot.trees([pid]))


def _use(pid: int) -> tuple[float, float, int, int, int, int] | None:
    """User and system seconds, resident bytes, threads, voluntary and involuntary switches.

    The seconds include those of children that have ended, so that their end takes nothing away. No threads
    are left of a process that has ended and that its parent has not yet waited for.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    voluntary = involuntary = 0
    for task in tasks:
        try:
            status = Path(f"/proc/{pid}/task/{task}/status").read_text()
        except OSError:
            continue  # a thread that has ended since
        for line in status.splitlines()[-8:]:  # newer kernels have more lines behind these
            name, _, value = line.partition(":")
            if name == "voluntary_ctxt_switches":
                voluntary += int(value)
            elif name == "nonvoluntary_ctxt_switches":
                involuntary += int(value)
    user, system, ended_user, ended_system = (int(field) / TICK for field in fields[11:15])
    threads = 0 if fields[0] in (b"Z", b"X") else len(tasks)
    resident = int(fields[21]) * PAGE
    return user + ended_user, system + ended_system, resident, threads, voluntary, involuntary


def _counters(pid: int) -> dict[str, int]:
    """The kernel's TCP counters of the network namespace a process is in."""
    found: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
        except OSError:
            continue
        for heading, values in zip(lines[::2], lines[1::2], strict=False):
            if heading.startswith(("Tcp:", "TcpExt:")):
                pairs = zip(heading.split()[1:], values.split()[1:], strict=False)
                found.update({key: int(value) for key, value in pairs if key in COUNTERS})
    return found
