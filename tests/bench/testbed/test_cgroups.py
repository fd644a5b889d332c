"""Quotas: version 1 for real where the machine has it, version 2 on a tree that imitates it."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.testing.live.reaper import SUPERVISOR, members, release_supervisors, remove_cgroup
from ildm_bench.testbed.cgroups import (
    Cgroups,
    CgroupsV1,
    CgroupsV2,
    enter_command,
    find_cgroups,
    places,
    quota_us,
)
from ildm_bench.testbed.leftovers import give_up_name, new_name


@pytest.fixture
def real() -> Iterator[Cgroups | None]:
    """Cgroups of this machine; None where it refuses, which is a path of its own below."""
    name = new_name()
    found, why = find_cgroups(name)
    assert (found is None) == bool(why)
    yield found
    if found is not None:
        remove_cgroup(found.directory)
        release_supervisors(found.above)
    give_up_name(name)


@pytest.mark.parametrize(
    ("cores", "quota", "period"),
    [(0.15, 1500, 10_000), (1.0, 10_000, 10_000), (4.0, 40_000, 10_000), (0.1, 1000, 10_000)],
)
def test_a_quota_counts_in_periods_of_ten_milliseconds(cores: float, quota: int, period: int) -> None:
    assert quota_us(cores) == (quota, period)


@pytest.mark.parametrize("cores", [0.001, 0.005, 0.05, 0.099])
def test_a_small_quota_gets_longer_periods(cores: float) -> None:
    quota, period = quota_us(cores)
    assert quota >= 1000
    assert period <= 1_000_000
    assert quota / period == pytest.approx(cores, rel=0.01)


def test_a_busy_process_is_held_at_its_quota(real: Cgroups | None) -> None:
    """It burns 40 ms of CPU time with 15 % of a core: at 1.5 ms in each period it is cut in most of them."""
    if real is None:
        return  # that the machine refuses was said by the fixture
    leaf = real.make("site-0", "broker")
    real.limit(leaf, 0.15)
    assert real.limit_of(leaf) == 0.15
    before = real.throttling(leaf)["nr_throttled"]
    script = "import time\nwhile time.process_time() < 0.04: pass\nprint(open('/proc/self/cgroup').read())"
    done = subprocess.run(
        [*enter_command(leaf), sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert f"/{real.directory.name}/site-0/broker" in done.stdout
    assert real.throttling(leaf)["nr_throttled"] - before >= 10
    real.limit(leaf, None)
    assert real.limit_of(leaf) is None


def test_what_is_in_a_cgroup_is_killed_with_it(real: Cgroups | None) -> None:
    if real is None:
        return
    leaf = real.make("site-0", "front")
    command = [*enter_command(leaf), "/bin/sh", "-c", "sleep 1000 & echo; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert len(members(leaf)) == 2
        remove_cgroup(real.directory)
        assert child.wait() != 0
    assert not real.directory.exists()


class TreeOfV2:
    """Imitates the kernel: a process is in one cgroup, and one with processes cannot control its children."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.own = root / "user.slice/session.scope"
        self.own.mkdir(parents=True)
        for cgroup in (root, self.own):
            (cgroup / "cgroup.controllers").write_text("cpu memory\n")
            (cgroup / "cgroup.subtree_control").write_text("\n")
            (cgroup / "cgroup.procs").write_text("")
        self.read_only: set[Path] = set()
        monkeypatch.setattr("ildm.testing.live.reaper.write", self.write)
        monkeypatch.setattr(Path, "rmdir", lambda path: shutil.rmtree(path))  # a cgroup's files go with it

    @property
    def mounts(self) -> str:
        return f"tmpfs / tmpfs rw 0 0\ncgroup2 {self.root} cgroup2 rw,nsdelegate 0 0\n"

    def write(self, file: Path, text: str) -> None:
        if file.parent in self.read_only or file.parent.parent in self.read_only:
            raise PermissionError(errno.EACCES, "Permission denied")
        if file.name == "cgroup.procs":
            for other in self.root.rglob("cgroup.procs"):
                other.write_text("\n".join(pid for pid in other.read_text().split() if pid != text))
            text = file.read_text() + f"\n{text}" if file.exists() else text
        elif file.name == "cgroup.subtree_control":
            if text == "+cpu" and members(file.parent):
                raise OSError(errno.EBUSY, "Device or resource busy")
            text = "cpu" if text == "+cpu" else ""
        file.write_text(text)

    def find(self, name: str) -> tuple[Cgroups | None, str]:
        return find_cgroups(name, self.mounts, "0::/user.slice/session.scope\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TreeOfV2:
    return TreeOfV2(tmp_path / "unified", monkeypatch)


def test_version_2_bounds_sites_below_the_root(tree: TreeOfV2) -> None:
    found, why = tree.find("ildm-bench-7-1")
    assert isinstance(found, CgroupsV2)
    assert why == ""
    leaf = found.make("site-0", "broker")
    assert leaf == tree.root / "ildm-bench-7-1/site-0/broker"
    for above in (tree.root, leaf.parent.parent, leaf.parent):
        assert (above / "cgroup.subtree_control").read_text() == "cpu"
    found.limit(leaf, 0.15)
    assert (leaf / "cpu.max").read_text() == "1500 10000"
    assert found.limit_of(leaf) == 0.15
    found.limit(leaf, None)
    assert (leaf / "cpu.max").read_text() == "max 10000"
    assert found.limit_of(leaf) is None
    (leaf / "cpu.stat").write_text("usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 3\n")
    assert found.throttling(leaf) == {"nr_periods": 9, "nr_throttled": 7}


def test_version_2_in_a_delegated_subtree_makes_room_and_gives_it_back(tree: TreeOfV2) -> None:
    tree.read_only.add(tree.root)
    (tree.own / "cgroup.procs").write_text("100\n101\n")
    found, why = tree.find("ildm-bench-7-1")
    assert (found is not None, why) == (True, "")
    assert found is not None
    assert found.above == tree.own
    supervisor = tree.own / f"ildm-bench-7-1{SUPERVISOR}"
    assert (members(tree.own), sorted(members(supervisor))) == ([], [100, 101])
    release_supervisors(tree.own)
    assert sorted(members(supervisor)) == [100, 101]  # the testbed is still there
    remove_cgroup(found.directory)
    release_supervisors(tree.own)
    assert sorted(members(tree.own)) == [100, 101]
    assert not supervisor.exists()
    assert (tree.own / "cgroup.subtree_control").read_text() == ""


def test_a_second_testbed_shares_the_subtree_of_the_first(tree: TreeOfV2) -> None:
    tree.read_only.add(tree.root)
    (tree.own / "cgroup.procs").write_text("100\n")
    first, _ = tree.find("ildm-bench-7-1")
    second, _ = tree.find("ildm-bench-8-1")
    assert first is not None
    assert second is not None
    remove_cgroup(first.directory)
    release_supervisors(tree.own)
    assert members(tree.own) == []
    remove_cgroup(second.directory)
    release_supervisors(tree.own)
    assert members(tree.own) == [100]


def test_without_a_right_to_cgroups_it_says_why(tree: TreeOfV2) -> None:
    tree.read_only |= {tree.root, tree.own}
    found, why = tree.find("ildm-bench-7-1")
    assert found is None
    assert why == f"{tree.root}: Permission denied; {tree.own}: Permission denied"
    assert list(tree.root.rglob("ildm-bench*")) == []


def test_without_a_cpu_controller_it_says_so(tree: TreeOfV2) -> None:
    for cgroup in (tree.root, tree.own):
        (cgroup / "cgroup.controllers").write_text("memory\n")
    assert tree.find("ildm-bench-7-1") == (None, "the cpu controller is not mounted")


def test_version_1_is_found_by_its_controller(tmp_path: Path) -> None:
    mounts = (
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
        f"cgroup {tmp_path}/cpu cgroup rw,nosuid,cpu,cpuacct 0 0\n"
    )
    (tmp_path / "cpu/jobs").mkdir(parents=True)
    assert places(mounts, "4:cpu,cpuacct:/jobs\n2:memory:/\n") == [
        (CgroupsV1, tmp_path / "cpu"),
        (CgroupsV1, tmp_path / "cpu/jobs"),
    ]
