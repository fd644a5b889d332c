"""Whether a machine was quiet: what others use is told apart from what takes part, and is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ildm_bench.measure import quiet
from ildm_bench.measure.quiet import Busy, Disturbance, QuietError, Watch, between, wait_until_quiet, worst
from ildm_bench.micro.measure import conditions
from ildm_bench.processes import ProcessTimes, Snapshot

BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"
NOISY = Disturbance(others=0.9, stolen=0.0, who=[Busy(name="pytest", pid=7, cores=0.8)])


def snapshot(busy: float, stolen: float = 0.0, **processes: tuple[int, int, float, float]) -> Snapshot:
    """Each process by its name: its id, its parent's, CPU seconds of its own and of ended children."""
    times = {
        pid: ProcessTimes(name, parent, own, ended) for name, (pid, parent, own, ended) in processes.items()
    }
    return Snapshot(busy, stolen, times)


def test_others_are_all_but_who_takes_part_with_children() -> None:
    before = snapshot(10.0, 1.0, bench=(5, 1, 2.0, 0.0), broker=(6, 1, 1.0, 0.0), shell=(9, 1, 0.5, 0.0))
    after = snapshot(
        16.0,
        1.6,
        bench=(5, 1, 3.0, 0.0),
        broker=(6, 1, 1.5, 0.5),
        load=(7, 5, 2.0, 0.0),
        shell=(9, 1, 0.5, 1.0),
    )
    seen = between(before, after, 2.0, [5, 6])
    # 6 seconds of CPU, of which bench 1, its child 2, the broker and its ended child 1: the rest is others'
    assert seen.others == pytest.approx(1.0)
    assert seen.stolen == pytest.approx(0.3)
    assert seen.who == [Busy(name="shell", pid=9, cores=0.5)]
    assert "shell (9) 0.50" in seen.reason
    assert "the host kept 0.30 of a core" in seen.reason


def test_others_are_seen_by_their_own_time_or_by_that_of_the_machine() -> None:
    before = snapshot(10.0, bench=(5, 1, 2.0, 0.0), shell=(9, 1, 0.5, 0.0), hidden=(8, 9, 7.0, 0.0))
    after = snapshot(11.0, bench=(5, 1, 2.5, 0.0), shell=(9, 1, 1.2, 0.0))
    # less than both have used, as interrupts are taken off it; nobody has waited for the one that has ended
    assert between(before, after, 1.0, [5]).others == pytest.approx(0.5)
    alive = snapshot(11.0, bench=(5, 1, 2.5, 0.0), shell=(9, 1, 1.2, 0.0), hidden=(8, 9, 7.1, 0.0))
    assert between(before, alive, 1.0, [5]).others == pytest.approx(0.8)


def test_a_child_that_ends_leaves_only_what_it_used_meanwhile() -> None:
    before = snapshot(10.0, pytest=(5, 1, 1.0, 0.0), case=(6, 5, 4.0, 0.0))
    after = snapshot(11.0, pytest=(5, 1, 1.0, 4.5))
    assert [str(busy) for busy in between(before, after, 1.0, []).who] == ["pytest (5) 0.50"]


@pytest.mark.parametrize(
    ("others", "stolen", "quiet"),
    [(0.0, 0.0, True), (0.15, 0.1, True), (0.16, 0.0, False), (0.0, 0.11, False)],
)
def test_bounds(others: float, stolen: float, quiet: bool) -> None:
    seen = Disturbance(others=others, stolen=stolen)
    assert seen.quiet is quiet
    assert bool(seen.reason) is not quiet


def test_the_worst_of_several() -> None:
    assert worst([]).quiet
    found = worst([Disturbance(others=0.1, stolen=0.2), NOISY, Disturbance()])
    assert (found.others, found.stolen, found.who) == (0.9, 0.2, NOISY.who)


def test_a_real_process_is_named_unless_it_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "NAMED", 100_000)
    before, began = Snapshot.take(), time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", BURN.format(0.3) + "print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        after, seconds = Snapshot.take(), time.monotonic() - began
    seen = between(before, after, seconds, [])
    (burner,) = [busy for busy in seen.who if busy.pid == child.pid]
    assert burner.cores * seconds >= 0.25
    assert seen.others * seconds >= 0.25
    beside = between(before, after, seconds, [child.pid])
    assert child.pid not in [busy.pid for busy in beside.who]
    assert (seen.others - beside.others) * seconds == pytest.approx(
        after.used([child.pid]) - before.used([child.pid]), abs=0.01
    )
    assert child.pid in after.trees([os.getpid()])


def test_this_program_and_its_children_are_no_others() -> None:
    watch = Watch()
    subprocess.run([sys.executable, "-c", BURN.format(0.1)], check=True, timeout=300)
    assert os.getpid() not in [busy.pid for busy in watch.seen().who]


def test_waiting_says_who_is_busy_and_ends() -> None:
    looks = iter([NOISY, NOISY, Disturbance()])
    said: list[str] = []
    wait_until_quiet(60.0, said.append, look=lambda: next(looks))
    assert len(said) == 2, "who is busy is not said at each look"
    assert "pytest (7) 0.80" in said[0]
    assert said[1].startswith("quiet after")


def test_a_quiet_machine_is_not_waited_for() -> None:
    said: list[str] = []
    wait_until_quiet(0.0, said.append, look=Disturbance)
    assert said == []


def test_waiting_has_an_end() -> None:
    with pytest.raises(QuietError, match=r"not become quiet in 0 s: other programs used 0.90 .*pytest"):
        wait_until_quiet(0.0, lambda _: None, look=lambda: NOISY)


def test_micro_benchmarks_say_whether_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(watch, "seen", lambda: NOISY)
    assert conditions(watch).startswith("VOID, not measured in quiet: other programs used 0.90")
    monkeypatch.setattr(watch, "seen", Disturbance)
    assert conditions(watch).startswith("quiet: ")
    done = subprocess.run(
        [sys.executable, "-m", "ildm_bench.micro.hooks"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "", "what is no benchmark says nothing"
    done = subprocess.run(
        [sys.executable, "-m", "ildm_bench.micro.frames", "--help"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(("quiet: ", "VOID, "))
