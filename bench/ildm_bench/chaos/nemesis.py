"""Does to real processes and their network what a schedule says."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ildm.admin.view import AdminError
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ManagedProcess, ProcessError
from ildm_bench.chaos.pairs import ends_by_others
from ildm_bench.chaos.processes import IldmSites, Sites
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import Fault, Kind

UNABLE: dict[Kind, str] = {
    "power": "the machine itself would have to go",
    "clock": "no clock can be shifted for one process of this machine",
    "drift": "a run is too short for nodes to follow it",
    "flap": "a run is too short for nodes to follow it",
    "lose-state": "a node without state needs settings of its own",
    "arrive": "the nodes of a run are there before its clients",
    "deposed": "pause is the same to a pair (--target pair)",
    "both": "a pair loses its owner (--target pair)",
    "upgrade": "the nodes of a run are of one release",
    "downgrade": "the nodes of a run are of one release",
    "dns": "the nodes of a run are told their neighbours",
}
"""What only virtual time has, and why."""
AGAIN = 0.2
"""Seconds after which a process that has ended by itself is started again, as a supervisor would."""
_BLOCK = 1 << 16

Mend = Callable[[], Awaitable[None]]


class Nemesis:
    """The faults of one run."""

    def __init__(self, sites: Sites, recorder: Recorder) -> None:
        self.sites = sites
        self.recorder = recorder
        self.ended: list[str] = []
        """Processes that have ended although nobody had killed them, with their last words."""
        self.handed_over: Counter[str] = Counter()
        """Upgrades that were ``done``, and that have ``failed``, as where the node was killed amid one."""
        self._down: Counter[str] = Counter()
        """By process, how many faults keep it from running."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By process: it is being killed or started."""
        self._number = 0

    async def strike(self, fault: Fault) -> None:
        """Do it, wait, and take it back; returns when all is healed."""
        self._number += 1
        number = str(self._number)
        for target in fault.targets:
            self.recorder.struck(fault.kind, target, number)
        mends = await asyncio.gather(*(self._begin(fault, target) for target in fault.targets))
        await asyncio.sleep(fault.lasts)
        between = fault.value if fault.kind == "kill" else 0.0
        async with asyncio.TaskGroup() as tasks:
            for place, (mend, target) in enumerate(zip(mends, fault.targets, strict=True)):
                tasks.create_task(self._heal(mend, place * between), name=f"heal {target}")
        for target in fault.targets:
            self.recorder.note("nemesis", "heal", "info", topic=fault.kind, session=target, value=number)

    async def supervise(self) -> None:
        """Start again what ends by itself, until cancelled."""
        while True:
            for name, process in self.sites.processes.items():
                if not self._down[name] and not self._locks[name].locked() and not process.running:
                    if not ends_by_others(process):
                        self.ended.append(f"{name} ended by itself\n{process.log()[-2000:]}")
                    await self._launch(name)
            await asyncio.sleep(AGAIN)

    async def _heal(self, mend: Mend, after: float) -> None:
        await asyncio.sleep(after)
        await mend()

    async def _begin(self, fault: Fault, target: str) -> Mend:
        sites = self.sites
        match fault.kind:
            case "cut":
                ends = sites.ends(target)
                sites.network.cut(*ends)
                return self._mend(*ends)
            case "hold" | "hold-one-way":
                ends = sites.ends(target)
                sites.network.hold(*ends, one_way=fault.kind == "hold-one-way")
                return self._mend(*ends)
            case "hold-session":
                ends = sites.ends(target)
                sites.network.hold_one(*ends, int(fault.value))
                return self._mend(*ends)
            case "slow":
                ends = sites.ends(target)
                sites.network.put_apart(*ends, fault.value)
                return self._mend(*ends)
            case "pause":
                process = sites.process(target)
                self._signal(process, signal.SIGSTOP)
                return _later(self._signal, process, signal.SIGCONT)
            case "kill" | "tear" | "flip":
                await self._kill(target)
                if fault.kind == "tear":
                    tear(self._spool(target), int(fault.value))
                elif fault.kind == "flip":
                    flip(self._spool(target), fault.value)
                return partial(self._release, target)
            case "handover":
                return await self._hand_over(target)
            case "disk-full":
                return self._fill(target, int(fault.value))
            case "io-error":
                return self._limit(target, resource.RLIMIT_FSIZE, 0)
            case "descriptors":
                pid = _pid(sites.process(target))
                used = 0 if pid is None else len(os.listdir(f"/proc/{pid}/fd"))
                return self._limit(target, resource.RLIMIT_NOFILE, used)
            case _:
                raise ValueError(f"{fault.kind}: {UNABLE[fault.kind]}")

    def _mend(self, one: str, other: str) -> Mend:
        return _later(self.sites.network.mend, one, other)

    async def _hand_over(self, name: str) -> Mend:
        """``ildm upgrade``. Another fault may end both processes amid it."""
        process = self.sites.process(name)
        assert isinstance(process, NodeProcess)
        self._down[name] += 1  # nobody else is to start it while one process ends and the other works
        try:
            await asyncio.to_thread(process.upgrade)
        except (AdminError, OSError) as error:
            self.handed_over["failed"] += 1
            self.recorder.note("nemesis", "handover", "fail", session=name, detail={"error": str(error)})
        else:
            self.handed_over["done"] += 1
            self.recorder.began(name)  # its counters begin anew
            self.recorder.note("nemesis", "handover", "ok", session=name)
        return partial(self._release, name)

    async def _kill(self, name: str) -> None:
        self._down[name] += 1
        async with self._locks[name]:
            await asyncio.to_thread(self.sites.process(name).kill)

    async def _release(self, name: str) -> None:
        """A fault keeps it no longer; another one may."""
        self._down[name] -= 1
        if not self._down[name]:
            await self._launch(name)

    async def _launch(self, name: str) -> None:
        """Start it, and return when it answers. Its broker may be down, so it need not be ready."""
        process = self.sites.process(name)
        async with self._locks[name]:
            if self._down[name] or process.running:
                return
            await asyncio.to_thread(process.kill)  # of a group whose first process has ended, others may live
            self.recorder.began(name)
            await asyncio.to_thread(process.launch)
        await self._answering(name, process)

    async def _answering(self, name: str, process: ManagedProcess) -> None:
        answers = process.status if isinstance(process, NodeProcess) else process.ready
        give_up = asyncio.get_running_loop().time() + process.boot_timeout
        while process.running and not await asyncio.to_thread(answers):
            if asyncio.get_running_loop().time() > give_up:
                raise ProcessError(f"{name} does not answer\n{process.log()[-2000:]}")
            await asyncio.sleep(0.02)

    def _signal(self, process: ManagedProcess, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # another fault has killed it
            for pid in process.pids():
                os.kill(pid, number)

    def _limit(self, target: str, which: int, soft: int) -> Mend:
        """Lower a limit of a process; of one that another fault has killed there is nothing to lower."""
        pid = _pid(self.sites.process(target))
        if pid is None:
            return _later(lambda: None)
        before = resource.prlimit(pid, which)
        resource.prlimit(pid, which, (soft, before[1]))

        def restore() -> None:
            with contextlib.suppress(ProcessLookupError):  # a new one has its limits anew
                resource.prlimit(pid, which, before)

        return _later(restore)

    def _fill(self, target: str, left: int) -> Mend:
        """Fill the disk of a spool, but for some bytes."""
        disk = self._ildm.disks[target.partition("/")[2]]
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(_BLOCK)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - left))
        return _later(ballast.unlink)

    def _spool(self, target: str) -> Path:
        return self._ildm.spool_of(target.partition("/")[2])

    @property
    def _ildm(self) -> IldmSites:
        assert isinstance(self.sites, IldmSites)
        return self.sites


def _pid(process: ManagedProcess) -> int | None:
    """None: it does not run."""
    return process.pid


def _later(call: Callable[..., object], *arguments: object) -> Mend:
    async def mend() -> None:
        call(*arguments)

    return mend


def written(file: Path) -> int:
    """Bytes of a file up to the last that is not zero: segments are made at their full size."""
    return len(file.read_bytes().rstrip(b"\0"))


def segments(directory: Path) -> list[Path]:
    """The files of a spool, the oldest first."""
    files = [path for path in directory.glob("**/*") if path.is_file()]
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)


def tear(directory: Path, size: int) -> None:
    """Leave ``size`` bytes of a record behind the newest one, as if the write had been cut short."""
    for path in segments(directory)[-1:]:
        with path.open("r+b") as file:
            file.seek(written(path))
            file.write(b"\x7f" * size)


def flip(directory: Path, where: float) -> None:
    """Change one bit at this share of all that is written in a spool."""
    sizes = [(path, written(path)) for path in segments(directory)]
    place = int(where * sum(size for _, size in sizes))
    for path, size in sizes:
        if place < size:
            with path.open("r+b") as file:
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes((byte[0] ^ 0x10,)))
            return
        place -= size
