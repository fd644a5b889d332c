"""CPU quotas by cgroup, version 1 and 2: what makes a process of a big machine a small server.

The tree is ``NAME/SITE/broker`` and ``NAME/SITE/node``. A quota bounds a leaf or, shared, the whole site.
Processes are put in at their start, without a bound; it comes into force when all of the testbed is up.
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ildm.testing.live import reaper
from ildm.testing.live.reaper import SUPERVISOR, members

PERIOD_US = 10_000
"""Length of the periods that a quota is counted in: short, so that throttled processes stay responsive."""
_MIN_QUOTA_US = 1000
"""The kernel takes none below."""
_MAX_PERIOD_US = 1_000_000
MIN_CORES = _MIN_QUOTA_US / _MAX_PERIOD_US


def quota_us(cores: float) -> tuple[int, int]:
    """Quota and period in microseconds; a small quota gets a longer period."""
    period = min(_MAX_PERIOD_US, max(PERIOD_US, round(_MIN_QUOTA_US / cores)))
    return max(_MIN_QUOTA_US, round(cores * period)), period


class Cgroups(ABC):
    """The cgroups of one testbed, below one directory of a mounted hierarchy."""

    version: ClassVar[int]

    def __init__(self, above: Path, name: str) -> None:
        self.above = above
        self.directory = above / name

    def open(self) -> None:
        """Make the directory and see whether a quota can be set.

        Raises:
            OSError: this process may not, or the kernel has no quotas.
        """
        self._prepare()
        self.directory.mkdir()
        try:
            self.limit(self.directory, None)
        except OSError:
            self.directory.rmdir()
            raise

    def make(self, site: str, part: str) -> Path:
        """The cgroup of a process, without a bound."""
        parent = self.directory / site
        for path in (parent, parent / part):
            if not path.is_dir():
                self._control_children(path.parent)
                path.mkdir()
        return parent / part

    @abstractmethod
    def limit(self, cgroup: Path, cores: float | None) -> None:
        """Bound the CPU time of a cgroup; None takes the bound off."""

    @abstractmethod
    def limit_of(self, cgroup: Path) -> float | None:
        """The bound that is in force, in cores."""

    def throttling(self, cgroup: Path) -> dict[str, int]:
        """The kernel's count of periods, ``nr_periods``, and of those that were cut, ``nr_throttled``."""
        rows = (line.split() for line in (cgroup / "cpu.stat").read_text().splitlines())
        return {key: int(value) for key, value in rows if key.startswith("nr_")}

    @abstractmethod
    def _prepare(self) -> None:
        """Make ``above`` ready for children with quotas."""

    @abstractmethod
    def _control_children(self, cgroup: Path) -> None:
        """Let the children of a cgroup have quotas."""


class CgroupsV1(Cgroups):
    """The controller ``cpu`` in a hierarchy of its own."""

    version = 1

    def limit(self, cgroup: Path, cores: float | None) -> None:
        if cores is None:
            reaper.write(cgroup / "cpu.cfs_quota_us", "-1")
            return
        quota, period = quota_us(cores)
        reaper.write(cgroup / "cpu.cfs_period_us", str(period))
        reaper.write(cgroup / "cpu.cfs_quota_us", str(quota))

    def limit_of(self, cgroup: Path) -> float | None:
        quota = int((cgroup / "cpu.cfs_quota_us").read_text())
        return None if quota < 0 else quota / int((cgroup / "cpu.cfs_period_us").read_text())

    def _prepare(self) -> None:
        """Every directory has quotas."""

    def _control_children(self, cgroup: Path) -> None:
        """Every directory has quotas."""


class CgroupsV2(Cgroups):
    """The one hierarchy, in a subtree that this process may manage.

    A cgroup whose children have controllers may hold no processes itself, the root excepted. Where ours is in
    the way, all in it are moved to a leaf, ``NAME-supervisor``;
    `ildm.testing.live.reaper.release_supervisors` moves them back.
    """

    version = 2

    def limit(self, cgroup: Path, cores: float | None) -> None:
        quota, period = ("max", PERIOD_US) if cores is None else quota_us(cores)
        reaper.write(cgroup / "cpu.max", f"{quota} {period}")

    def limit_of(self, cgroup: Path) -> float | None:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)

    def _prepare(self) -> None:
        if "cpu" in (self.above / "cgroup.subtree_control").read_text().split():
            return
        try:
            self._control_children(self.above)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            supervisor = self.above / f"{self.directory.name}{SUPERVISOR}"
            supervisor.mkdir()
            while pids := members(self.above):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        reaper.write(supervisor / "cgroup.procs", str(pid))
            self._control_children(self.above)

    def _control_children(self, cgroup: Path) -> None:
        reaper.write(cgroup / "cgroup.subtree_control", "+cpu")


def find_cgroups(name: str, mounts: str | None = None, own: str | None = None) -> tuple[Cgroups | None, str]:
    """The cgroups for a testbed of that name, opened; None and why where there can be none.

    ``mounts`` and ``own`` are the texts of /proc/self/mounts and /proc/self/cgroup.
    """
    refusals = []
    for kind, above in places(mounts, own):
        found = kind(above, name)
        try:
            found.open()
        except OSError as error:
            refusals.append(f"{above}: {error.strerror or error}")
            continue
        return found, ""
    return None, "; ".join(refusals) or "the cpu controller is not mounted"


def places(mounts: str | None = None, own: str | None = None) -> list[tuple[type[Cgroups], Path]]:
    """Where cgroups with quotas may be made: below the root of the hierarchy, or below our own cgroup."""
    mounts = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths: Mapping[str, str] = {
        controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())
    }
    found: list[tuple[type[Cgroups], Path]] = []
    for line in mounts.splitlines():
        _, point, kind, options = line.split()[:4]
        root = Path(point)
        if kind == "cgroup" and "cpu" in options.split(","):
            mine = next((path for key, path in paths.items() if "cpu" in key.split(",")), "/")
            found += [(CgroupsV1, path) for path in _candidates(root, mine)]
        elif kind == "cgroup2":
            candidates = _candidates(root, paths.get("", "/"))
            found += [(CgroupsV2, path) for path in candidates if _has_cpu(path)]
    return found


def _candidates(root: Path, own: str) -> list[Path]:
    mine = root / own.lstrip("/")
    return [root] if mine == root or not mine.is_dir() else [root, mine]


def _has_cpu(cgroup: Path) -> bool:
    file = cgroup / "cgroup.controllers"
    return file.exists() and "cpu" in file.read_text().split()


def enter_command(cgroup: Path) -> tuple[str, ...]:
    """Words before a command line that put the process into the cgroup before it becomes the command."""
    return ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', os.fspath(cgroup / "cgroup.procs"))
