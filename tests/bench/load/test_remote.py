"""Workers on other machines: here in processes of their own, on loopback and with a secret."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.cli import app
from ildm_bench.load.connection import LoadError
from ildm_bench.load.worker import SECRET_VARIABLE
from ildm_bench.measure.schema import log_file, run_directory
from tests.bench.load.support import (
    During,
    WatchedBroker,
    address,
    check_judgement,
    check_logs,
    generator_processes,
    load,
    scenario,
)
from tests.support.brokers import Broker

SECRET = "only for these tests"
COORDINATOR = """
import asyncio, sys
from pathlib import Path
from ildm_bench.load.coordinator import RunSpec, run_load
from ildm_bench.load.scenario import Scenario

load = Scenario.model_validate_json(sys.argv[1])
_, _, target, results, worker, secret = sys.argv
asyncio.run(run_load(RunSpec(load, [target], Path(results), remote=[worker], secret=secret)))
"""


class Worker:
    """A process of ``ildm-bench worker``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.stderr = process.stderr
        said = re.fullmatch(r"worker on (127\.0\.0\.1:\d+)\n", line := self.stderr.readline())
        assert said, line
        self.address = said[1]


@contextmanager
def listening_workers(count: int = 1) -> Iterator[list[Worker]]:
    """Workers that listen, and are ended afterwards."""
    command = [sys.executable, "-m", "ildm_bench.cli", "worker", "--listen", "127.0.0.1:0"]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    stderr=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    env=os.environ | {SECRET_VARIABLE: SECRET},
                )
            )
            for _ in range(count)
        ]
        for process in processes:
            stack.callback(process.kill)
        yield [Worker(process) for process in processes]


async def test_remote_workers_share_the_load_and_send_their_logs(
    mosquitto: Broker, topic_root: str, tmp_path: Path
) -> None:
    asked = scenario(
        topics=[
            {"name": f"{topic_root}/t", "publishers": 3, "subscribers": 2},
            {
                "name": f"{topic_root}/l",
                "clients": "latency",
                "interval": 100,
                "publishers": 1,
                "subscribers": 1,
            },
        ]
    )
    targets = [address(mosquitto.address)]
    with listening_workers(2) as workers:
        remote = [worker.address for worker in workers]
        with pytest.raises(LoadError, match=f"worker {remote[0]} has another secret"):
            await load(tmp_path, targets, asked, remote=remote, secret="another")
        assert "has another secret" in workers[0].stderr.readline()
        manifest = await load(tmp_path, targets, asked, remote=remote, secret=SECRET)
    sent, received = check_logs(tmp_path, manifest)
    check_judgement(manifest)
    assert (len(sent), len(received)) == (3 * 10 + 10, 2 * 30 + 10)
    directory = run_directory(tmp_path, manifest.run)
    assert [worker.name for worker in manifest.workers] == ["worker-0", "worker-1", "latency"]
    for role in ("send", "receive"):
        assert all(log_file(directory, role, worker.name).exists() for worker in manifest.workers)
    *away, here = manifest.workers
    assert (here.clock_error_ns, here.clock_drift_ns) == (0, 0)
    for worker in away:
        # the same clock in truth, so what was measured is the error alone
        assert abs(worker.clock_offset_ns - here.clock_offset_ns) <= worker.clock_error_ns
        assert worker.clock_error_ns > 0
    assert [process.name for process in manifest.processes] == ["latency"]


async def test_a_worker_ends_its_clients_when_the_coordinator_dies(tmp_path: Path) -> None:
    """And until then it is busy; afterwards it serves the next."""
    broker = WatchedBroker()
    asked = scenario(drain=0, topics=[{"name": "t", "publishers": 3, "subscribers": 2}])
    long = asked.model_copy(update={"duration": 600.0})
    with listening_workers() as (worker,):
        async with broker.listening() as target:
            arguments = [long.model_dump_json(), target, str(tmp_path), worker.address, SECRET]
            coordinator = await asyncio.create_subprocess_exec(sys.executable, "-c", COORDINATOR, *arguments)
            await broker.until(lambda: len(broker.published) > 3)
            assert len(broker.connections) == 5
            with pytest.raises(LoadError, match=f"the worker at {worker.address} is busy with another run"):
                await load(tmp_path, [target], asked, remote=[worker.address], secret=SECRET)
            assert len(broker.connections) == 5
            coordinator.kill()
            await coordinator.wait()
            await broker.until(lambda: not broker.connections)
            manifest = await load(tmp_path, [target], asked, remote=[worker.address], secret=SECRET)
            await broker.until(lambda: not broker.connections)
    assert manifest.generator.intended == 3 * 6
    check_judgement(manifest)


async def test_a_remote_worker_that_dies_is_named(tmp_path: Path) -> None:
    broker = WatchedBroker()
    asked = scenario(duration=60)
    with listening_workers() as (worker,):
        during = During((0.1, worker.process.kill))
        async with broker.listening() as target:
            with pytest.raises(LoadError, match=f"the connection with worker {worker.address} has ended"):
                await load(tmp_path, [target], asked, remote=[worker.address], secret=SECRET, progress=during)
            await broker.until(lambda: not broker.connections)


async def test_a_worker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"worker 127\.0\.0\.1:1: "):
        await load(tmp_path, ["h:1"], scenario(), remote=["127.0.0.1:1"])
    assert not generator_processes()


@pytest.mark.parametrize("where", ["0.0.0.0:0", ":0", "192.0.2.1:5", "[::]:0"])
def test_beyond_loopback_a_worker_needs_a_secret(where: str) -> None:
    result = CliRunner().invoke(app, ["worker", "--listen", where], env={SECRET_VARIABLE: ""})
    assert result.exit_code == 2
    assert SECRET_VARIABLE in result.output
