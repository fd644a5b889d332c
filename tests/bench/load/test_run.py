"""Whole runs against real brokers: logs, manifest, and what other clients see of the load."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ildm_bench.load import payload
from ildm_bench.load.connection import LoadError
from ildm_bench.load.scenario import load_scenario
from ildm_bench.measure.manifest import Process
from ildm_bench.measure.schema import NETWORK, RESOURCES, run_directory
from tests.bench.load.support import (
    During,
    address,
    check_judgement,
    check_logs,
    generator_processes,
    load,
    scenario,
)
from tests.support.brokers import Broker, PahoClient
from tests.support.ports import free_port

LINES = 7


def _program(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _records(payloads: list[bytes]) -> Counter[tuple[int, int]]:
    """Publisher and number of each message, which must be one of the load."""
    joined = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), len(payloads[0]))
    records = payload.decode(joined)
    assert (records["magic"] == payload.MAGIC).all()
    return Counter(zip(records["publisher"].tolist(), records["seq"].tolist(), strict=True))


async def test_other_clients_see_the_load_as_the_logs_tell_it(
    mosquitto: Broker, topic_root: str, tmp_path: Path
) -> None:
    """Two workers and l-clients; beside them mosquitto_sub, paho, and a mosquitto_pub of foreign lines."""
    host, port = mosquitto.address
    program = ["-h", host, "-p", str(port)]
    asked = scenario(
        interval=50.0,
        topics=[
            {"name": f"{topic_root}/t", "publishers": 3, "subscribers": 2},
            {"name": f"{topic_root}/mixed", "publishers": 1, "subscribers": 1},
            {
                "name": f"{topic_root}/l",
                "clients": "latency",
                "interval": 200,
                "publishers": 2,
                "subscribers": 1,
            },
        ],
    )
    total = 3 * 20
    wanted = ["-t", f"{topic_root}/t", "-t", f"{topic_root}/ready", "-C", str(total + 1), "-F", "%x"]

    def publish_lines() -> None:
        lines = "".join(f"line {n} of somebody else\n" for n in range(LINES))
        command = ["mosquitto_pub", *program, "-t", f"{topic_root}/mixed", "-l"]
        subprocess.run(command, input=lines, text=True, check=True)

    assert mosquitto.process is not None
    sampled = [(Process(name="broker-0", role="broker", site=0), mosquitto.process.pid)]
    with PahoClient(mosquitto.address) as paho:
        paho.publish(f"{topic_root}/ready", b"ready", qos=1, retain=True)
        with _program("mosquitto_sub", *program, *wanted) as sub:
            assert sub.stdout is not None
            assert bytes.fromhex(sub.stdout.readline()) == b"ready"
            paho.subscribe((f"{topic_root}/t", 0), (f"{topic_root}/l", 0))
            manifest = await load(
                tmp_path,
                [address(mosquitto.address)],
                asked,
                workers=2,
                processes=sampled,
                progress=During((0.1, publish_lines)),
                label="a label",
                notes=["a note"],
            )
            lines, _ = sub.communicate(timeout=300)
        seen = [paho.receive() for _ in range(total + 2 * 5)]
        paho.publish(f"{topic_root}/ready", b"", retain=True)
    sent, received = check_logs(tmp_path, manifest)
    check_judgement(manifest)

    of_topic = [Counter((r["publisher"], r["seq"]) for r in sent if r["topic"] == n) for n in range(3)]
    assert [each.total() for each in of_topic] == [total, 20, 10]
    assert _records([bytes.fromhex(line) for line in lines.split()]) == of_topic[0]
    for index, name in ((0, "t"), (2, "l")):
        own = [bytes(m.payload) for m in seen if m.topic == f"{topic_root}/{name}"]
        assert _records(own) == of_topic[index]
    assert manifest.notes[:1] == ["a note"]
    assert f"{LINES} packets received that are no message of this load" in manifest.notes
    assert len(received) == 2 * total + 20 + 10

    assert [worker.name for worker in manifest.workers] == ["worker-0", "worker-1", "latency"]
    assert Counter(client.worker for client in manifest.clients) == {
        "worker-0": 4,
        "worker-1": 3,
        "latency": 3,
    }
    assert all(worker.cpu_seconds > 0 for worker in manifest.workers)
    assert manifest.summary.expected == 2 * total + 20
    assert manifest.label == "a label"
    assert manifest.scenario == asked

    directory = run_directory(tmp_path, manifest.run)
    resources = pq.ParquetFile(directory / "resources.parquet").read()
    network = pq.ParquetFile(directory / "network.parquet").read()
    assert resources.schema.equals(RESOURCES)
    assert network.schema.equals(NETWORK)
    names = [process.name for process in manifest.processes]
    assert names == ["broker-0", "worker-0", "worker-1", "latency"]
    rows = resources.to_pylist()
    assert Counter(row["process"] for row in rows).keys() == set(names)
    times = sorted({row["time_ns"] for row in rows})
    assert times[-1] >= manifest.window_end_ns
    assert sum(manifest.window_begin_ns <= at for at in times) >= 2
    for name in names:
        used = [row["user_s"] + row["system_s"] for row in rows if row["process"] == name]
        assert used == sorted(used)
    assert {"RetransSegs", "OutSegs"} <= set(network["counter"].to_pylist())


async def test_qos_1_and_2_and_mqtt_5(mosquitto: Broker, topic_root: str, tmp_path: Path) -> None:
    """Three runs at a time, so that they take no longer than one.

    Ctrl-C, which a terminal sends to the workers as well, is for the coordinator: the load goes on.
    """

    def interrupt() -> None:
        for pid in generator_processes():
            os.kill(pid, signal.SIGINT)

    changes: list[dict[str, Any]] = [
        {"qos": 1, "protocol": "5", "payload": 1000, "read_every": 0},
        {"qos": 2, "payload": 32, "send_every": 0},
        {"qos": 0, "protocol": "5", "payload": 1000},
    ]
    manifests = await asyncio.gather(
        *(
            load(
                tmp_path,
                [address(mosquitto.address)],
                scenario(topics=[{"name": f"{topic_root}/{n}", "publishers": 3, "subscribers": 2}], **change),
                interval_ms=50,
                progress=During((0.3, interrupt)),
            )
            for n, change in enumerate(changes)
        )
    )
    for manifest in manifests:
        sent, received = check_logs(tmp_path, manifest)
        check_judgement(manifest)
        assert (len(sent), len(received)) == (60, 120)
        assert manifest.interval_ms == 50


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("name", ["gateway", "gateway-10k", "devices", "fan-in", "fan-out"])
async def test_mixed_traffic_is_sent_and_received_whole(
    mosquitto: Broker, topic_root: str, tmp_path: Path, name: str, qos: int
) -> None:
    """The scenarios that come along, with fewer clients and messages; both sites at one broker."""
    asked = load_scenario(Path(__file__).parents[3] / "configs/bench" / f"{name}.yaml")
    topics = [
        topic.model_copy(
            update={
                "name": f"{topic_root}/{topic.name}",
                "publishers": [min(count, 40) for count in asked.counts(topic, "publishers")],
                "subscribers": [min(count, 40) for count in asked.counts(topic, "subscribers")],
            }
        )
        for topic in asked.topics
    ]
    shorter = {"duration": 1.0, "warm_up": 0.2, "cool_down": 0.2, "drain": 20.0, "topics": topics, "qos": qos}
    publishers = sum(asked.counts(topics[0], "publishers"))
    manifest = await load(
        tmp_path,
        [address(mosquitto.address)] * 2,
        asked.model_copy(update=shorter),
        interval_ms=100 if publishers > 1 else 10 if name == "fan-out" else 1,
    )
    sent, received = check_logs(tmp_path, manifest)
    check_judgement(manifest)
    assert len(sent) == {"gateway": 1000, "fan-out": 100}.get(name.removesuffix("-10k"), 400) + 2 * 50
    assert len(received) == len(sent) + (39 * 100 if name == "fan-out" else 0)


async def test_a_smaller_qos_than_asked_for_is_an_error(
    shared_broker: Callable[..., Broker], topic_root: str, tmp_path: Path
) -> None:
    broker = shared_broker("rabbitmq")
    asked = scenario(qos=2, topics=[{"name": topic_root, "publishers": 1, "subscribers": 1}])
    with pytest.raises(LoadError, match=f"grants QoS 1 of 2 for '{topic_root}'"):
        await load(tmp_path, [address(broker.address)], asked)
    assert not generator_processes()


async def test_a_target_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(LoadError, match=f"cannot connect to {re.escape(nobody)}: .*refused"):
        await load(tmp_path, [nobody], scenario())
    assert not generator_processes()


async def test_the_number_of_targets_must_be_that_of_the_sites(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="scenario test has 1 sites, 2 targets given"):
        await load(tmp_path, ["h:1", "h:2"], scenario())
    assert not os.listdir(tmp_path)


async def test_results_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadError, match="file/run="):
        await load(tmp_path / "file", ["h:1"], scenario())
