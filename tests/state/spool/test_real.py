"""The real disk: a process killed while it writes, a thread that syncs, a file system that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.state.spool.lives import Settings, numbers, read_all, record, to
from tests.state.spool.real import Loop, open_real

CHILD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from tests.state.spool.lives import Settings, record, to
    from tests.state.spool.real import Loop, open_real
    loop = Loop()
    spool = open_real(Path(sys.argv[1]), Settings(sys.argv[2], 1 << 26, 1 << 16), loop)
    spool.snapshot = bytes
    number = int(sys.argv[3])
    while True:
        for _ in range(number % 7 + 1):
            number += 1
            lsn = spool.append(record(number, 1 + number % 3), to("a"))
        spool.commit()
        loop.run_until(lambda: spool.durable >= lsn)
        sys.stdout.write("%d\\n" % number)
        sys.stdout.flush()
""")


@pytest.mark.parametrize("mode", ["process", "power"])
def test_kill_9_loses_nothing_that_was_durable(tmp_path: Path, mode: str) -> None:
    directory = tmp_path / "spool"
    told = 0
    for round_ in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), mode, str(told)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(20 + 17 * round_):
            told = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split("\n")
        child.wait()
        # the last line may have been cut by the kill; what the pipe has whole, was durable
        told = max([told, *(int(line) for line in rest[:-1])])
        spool = open_real(directory, Settings(bytes=1 << 26, segment_bytes=1 << 16))
        found = {number for number, _ in numbers(read_all(spool, "a", 1 << 20))}
        assert set(range(1, told + 1)) <= found
        told = max(found)
        spool.close()


def test_power_syncs_in_a_thread(tmp_path: Path) -> None:
    loop = Loop()
    spool = open_real(tmp_path, Settings("power", 1 << 20, 1 << 16), loop)
    told: list[int] = []
    spool.on_durable = lambda: told.append(spool.durable)
    for number in range(200):
        lsn = spool.append(record(number), to("a"))
        spool.commit()
    assert told == []
    loop.run_until(lambda: spool.durable >= lsn)
    assert told == sorted(told)
    assert len(told) < 200
    spool.close()
    again = open_real(tmp_path, Settings("power", 1 << 20, 1 << 16))
    assert len(read_all(again, "a")) == 200
    again.close()


FULL = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tests.state.spool.lives import Settings, record, to, numbers, read_all
    from tests.state.spool.real import Loop, open_real
    loop = Loop()
    settings = Settings("process", 1 << 26, 1 << 16)
    spool = open_real(Path(sys.argv[1]), settings, loop)
    spool.snapshot = bytes
    count = 0
    while not spool.full:
        count += 1
        spool.append(record(count, 1, 1000), to("a"))
        spool.commit()
    assert spool.failure is None and spool.durable == spool.last
    assert 700 < count < 1024, count
    while spool.failure is None:
        count += 1
        spool.append(record(count, 1, 1000), to("a"))
        spool.commit()
    durable = spool.durable
    consumer = spool.consumer("a")
    for stored in consumer.read(300_000):
        consumer.free(stored.lsn, 0, 1)
    freed = spool.counters["spool_freed"]
    loop.run_until(lambda: spool.failure is None and not spool.full)
    spool.commit()
    spool.close()
    found = [number for number, _ in numbers(read_all(open_real(Path(sys.argv[1]), settings), "a", 1 << 20))]
    assert found == list(range(freed + 1, count + 1)), (freed, count, found[:3], found[-3:])
""")


SMALL = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tests.state.spool.lives import Settings, record, to, read_all
    from tests.state.spool.real import Loop, open_real
    loop = Loop()
    spool = open_real(Path(sys.argv[1]), Settings("process", 1 << 26, 1 << 24), loop)
    spool.snapshot = bytes
    assert spool.failure is None, spool.failure
    consumer = spool.consumer("a")
    for _ in range(3):
        count = 0
        while not spool.full:
            count += 1
            spool.append(record(count, 1, 1000), to("a"))
            spool.commit()
        assert spool.failure is None and count > 1000, (spool.failure, count)
        for stored in consumer.read(1 << 30):
            consumer.free(stored.lsn, 0, 1)
        loop.run_until(lambda: not spool.full)
        assert spool.failure is None
""")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts a tmpfs")
@pytest.mark.parametrize(("size", "script"), [("1m", FULL), ("3m", SMALL)])
def test_a_file_system_of_a_few_mebibytes(tmp_path: Path, size: str, script: str) -> None:
    mounted = f'mount -t tmpfs -o size={size} tmpfs "{tmp_path}"'
    command = f'{mounted} && exec "{sys.executable}" -c "$0" "{tmp_path}/spool"'
    entered = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    if entered.returncode:
        pytest.skip("no namespaces here")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, script], check=False, capture_output=True, text=True
    )
    if "mount:" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
