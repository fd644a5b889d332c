"""Runs that something is done to: what is said of them, and that none hangs."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ildm_bench.load.connection import LoadError
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.manifest import Process
from ildm_bench.measure.schema import run_directory
from tests.bench.load.support import (
    During,
    address,
    generator_processes,
    go_on,
    load,
    read_log,
    scenario,
    stop,
)
from tests.support.brokers import Broker


async def test_a_broker_that_dies_has_refused_the_load(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    """Two runs at a time; the second samples the broker, whose end then is the reason."""
    broker = broker_factory("mosquitto")
    assert broker.process is not None
    process, begun = broker.process, set()

    def end(run: str) -> None:
        begun.add(run)
        if len(begun) == 2:
            process.kill()

    def asked(name: str) -> Scenario:
        return scenario(duration=2, drain=0, topics=[{"name": name, "publishers": 4, "subscribers": 2}])

    targets = [address(broker.address)]
    first, second = await asyncio.gather(
        load(tmp_path, targets, asked("a"), progress=During((0.3, lambda: end("a")))),
        load(
            tmp_path,
            targets,
            asked("b"),
            processes=[(Process(name="broker-0", role="broker", site=0), process.pid)],
            progress=During((0.3, lambda: end("b"))),
        ),
    )
    assert first.generator.verdict == second.generator.verdict == "refused"
    assert "lost their connection: " in first.generator.reason
    assert second.generator.reason == "ended during the run: broker-0"
    for manifest in (first, second):
        assert manifest.summary.received < 4 * 20 * 2
        sent = read_log(run_directory(tmp_path, manifest.run), "send")
        assert 0 < len(sent) < 4 * 20


async def test_a_broker_that_stops_reading_has_refused_the_load(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = broker_factory("mosquitto")
    assert broker.process is not None
    pid = broker.process.pid
    manifest = await load(
        tmp_path,
        [address(broker.address)],
        scenario(
            duration=4,
            drain=0,
            payload=1 << 20,
            interval=50,
            topics=[{"name": "t", "publishers": 1, "subscribers": 0}],
        ),
        progress=During((0.0, lambda: stop(pid))),
    )
    go_on(pid)
    generator = manifest.generator
    assert generator.verdict == "refused"
    assert generator.reason.endswith("of the messages were not taken in time")
    assert generator.sent < generator.intended
    assert generator.blocked > 0.01 * generator.intended
    assert generator.late - generator.blocked <= 0.01 * generator.intended


async def test_a_generator_that_stands_still_makes_the_run_void(
    mosquitto: Broker, topic_root: str, tmp_path: Path
) -> None:
    manifest = await load(
        tmp_path,
        [address(mosquitto.address)],
        scenario(duration=1.5, interval=20, topics=[{"name": topic_root, "publishers": 4, "subscribers": 1}]),
        progress=During(
            (0.3, lambda: stop(*generator_processes())), (0.9, lambda: go_on(*generator_processes()))
        ),
    )
    generator = manifest.generator
    assert generator.verdict == "void"
    assert generator.reason.endswith("of its messages late; 1 % is allowed")
    assert generator.blocked == 0
    assert generator.late > 0.01 * generator.intended
    assert generator.lag_max_us > 100_000
    # what was late was sent nevertheless
    assert len(read_log(run_directory(tmp_path, manifest.run), "send")) == 4 * 75


async def test_a_generator_process_that_is_killed_is_named(
    mosquitto: Broker, topic_root: str, tmp_path: Path
) -> None:
    def kill() -> None:
        os.kill(generator_processes()[-1], signal.SIGKILL)

    asked = scenario(duration=60, topics=[{"name": topic_root, "publishers": 2, "subscribers": 1}])
    with pytest.raises(LoadError, match="the connection with the generator's process worker-1 has ended"):
        await load(tmp_path, [address(mosquitto.address)], asked, workers=2, progress=During((0.1, kill)))
    assert not generator_processes()


async def test_a_disk_that_fills_up_ends_the_run_with_the_name_of_the_file(
    mosquitto: Broker, topic_root: str, tmp_path: Path
) -> None:
    def fill() -> None:
        for pid in generator_processes():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, 100))

    asked = scenario(drain=0, topics=[{"name": topic_root, "publishers": 2, "subscribers": 1}])
    with pytest.raises(LoadError, match=r"role=receive/worker-0\.parquet: .*File too large"):
        await load(tmp_path, [address(mosquitto.address)], asked, progress=During((0.1, fill)))
    assert not generator_processes()
