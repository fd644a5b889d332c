"""Samples of processes, their children included, and of the kernel's counters."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ildm_bench.load import resources
from ildm_bench.load.resources import COUNTERS, Sampler, cpu_seconds
from ildm_bench.measure.manifest import Process
from ildm_bench.measure.schema import NETWORK, RESOURCES
from ildm_bench.processes import ProcessTimes, Snapshot, machine_cpu_seconds

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
HOLD = "print(1, flush=True); input()"

BURNT = 0.3 - 2 / resources.TICK
"""What the kernel tells of BURN at least: user and system time are each cut to whole ticks."""


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said that it is ready, and ends when its input does."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        yield child


def process(name: str) -> Process:
    return Process(name=name, role="broker", site=0)


def test_a_process_counts_together_with_its_children(tmp_path: Path) -> None:
    # neither shell becomes the command, as another follows it
    inner = f"{sys.executable} -c '{BURN}x = bytearray(50_000_000)\n{HOLD}'; true"
    tree = ["sh", "-c", f'sh -c "$0"; true', inner]  # noqa: F541
    with program(*tree) as child:
        used = cpu_seconds(child.pid)
        alone = resources._use(child.pid)
        sampler = Sampler([(process("tree"), child.pid)], 10**18)
        sampler.sample()
        before = time.monotonic_ns() + 10**18
        sampler.sample()
    assert used >= BURNT
    assert alone is not None
    assert alone[0] + alone[1] < 0.1
    assert alone[2] < 50_000_000
    sampler.write(tmp_path)
    table = pq.ParquetFile(tmp_path / "resources.parquet").read()
    assert table.schema.equals(RESOURCES)
    rows = table.to_pylist()
    assert [row["process"] for row in rows] == ["tree", "tree"]
    assert 10**18 < rows[0]["time_ns"] <= before <= rows[1]["time_ns"]
    for row in rows:
        assert row["user_s"] + row["system_s"] >= BURNT
        assert row["rss_bytes"] > 50_000_000
        assert row["threads"] >= 3
        assert row["voluntary_switches"] > 0
    assert not sampler.lost


def test_a_child_that_ends_takes_nothing_away() -> None:
    with program("sh", "-c", f"{sys.executable} -c '{BURN}'; echo; read x") as child:
        assert cpu_seconds(child.pid) >= BURNT


def test_seconds_and_switches_are_those_that_the_kernel_tells_the_process() -> None:
    before = resources._use(os.getpid())
    told = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = resources._use(os.getpid())
    assert before is not None
    assert after is not None
    tick = 2 * resources.TICK**-1
    assert before[0] - tick <= told.ru_utime + children.ru_utime <= after[0] + tick
    assert before[1] - tick <= told.ru_stime + children.ru_stime <= after[1] + tick
    # of threads that have ended the kernel still tells the process
    assert 0 < before[4] <= told.ru_nvcsw + after[4]
    assert after[2] // 1024 <= told.ru_maxrss + 1024


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_process_that_has_ended_is_lost(waited_for: bool) -> None:
    with program(sys.executable, "-c", HOLD) as child, program(sys.executable, "-c", HOLD) as other:
        sampler = Sampler([(process("ends"), child.pid), (process("stays"), other.pid)], 0)
        sampler.sample()
        assert not sampler.lost
        child.kill()
        if waited_for:
            child.wait()
        else:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        sampler.sample()
        assert sampler.lost == {"ends"}
        assert [row[1] for row in sampler._resources] == ["ends", "stays", "stays"]
    assert cpu_seconds(child.pid) == 0


def test_the_kernels_counters_count_what_is_sent(tmp_path: Path) -> None:
    sampler = Sampler([(process("self"), os.getpid())], 0)
    sampler.sample()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(5):
            with socket.create_connection(server.getsockname()) as client, server.accept()[0] as other:
                client.sendall(b"x")
                assert other.recv(1) == b"x"
    sampler.sample()
    sampler.write(tmp_path)
    table = pq.ParquetFile(tmp_path / "network.parquet").read()
    assert table.schema.equals(NETWORK)
    rows = table.to_pylist()
    assert {row["namespace"] for row in rows} == {"host"}
    names = {row["counter"] for row in rows}
    assert {"RetransSegs", "InSegs", "OutSegs", "ListenOverflows", "TCPToZeroWindowAdv"} <= names <= COUNTERS
    first, second = (
        {r["counter"]: r["value"] for r in rows if r["time_ns"] == at}
        for at in sorted({r["time_ns"] for r in rows})
    )
    assert set(first) == set(second) == names
    assert second["OutSegs"] >= first["OutSegs"] + 20
    assert all(second[name] >= first[name] for name in names)


def test_what_others_did_is_counted_within_the_window() -> None:
    sampler = Sampler([], 0)
    readings = [(0, 5.0, 1.0), (10**9, 8.0, 1.5), (3 * 10**9, 12.0, 2.5), (9 * 10**9, 99.0, 99.0)]
    sampler._snapshots = [(at, Snapshot(busy, stolen, {})) for at, busy, stolen in readings]
    found = sampler.disturbance(10**9, 3 * 10**9)
    assert (found.others, found.stolen) == (2.0, 0.5)
    assert sampler.disturbance(5 * 10**9, 6 * 10**9).quiet


def test_the_machine_has_used_what_this_program_has() -> None:
    before, begun = machine_cpu_seconds(), time.process_time()
    while time.process_time() < begun + 0.5:
        pass
    after = machine_cpu_seconds()
    assert after[0] - before[0] >= 0.3
    assert after[1] >= before[1] >= 0


def test_who_is_sampled_and_who_samples_are_no_others() -> None:
    sampler = Sampler([(process("broker"), 6)], 0)

    def at(seconds: float) -> Snapshot:
        pids = {os.getpid(): 1, 6: 1, 7: 6, 8: 1}
        times = {pid: ProcessTimes(f"p{pid}", parent, seconds, 0.0) for pid, parent in pids.items()}
        return Snapshot(4 * seconds, 0.0, times)

    sampler._snapshots = [(0, at(0.0)), (10**9, at(1.0))]
    found = sampler.disturbance(0, 10**9)
    assert (found.others, [busy.pid for busy in found.who]) == (1.0, [8])


def test_without_processes_the_files_are_empty(tmp_path: Path) -> None:
    Sampler([], 0).write(tmp_path)
    for name, schema in (("resources", RESOURCES), ("network", NETWORK)):
        table = pq.ParquetFile(tmp_path / f"{name}.parquet").read()
        assert table.schema.equals(schema)
        assert table.num_rows == 0
