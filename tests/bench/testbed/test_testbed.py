"""Testbeds of real brokers and nodes: they come up joined, and nothing of them stays."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ildm.config import ConfigError
from ildm.mqtt import IldmError
from ildm.testing.live.process import ProcessError
from ildm.testing.live.reaper import members
from ildm_bench.testbed import network, testbed
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.leftovers import remove_leftovers
from ildm_bench.testbed.machine import abilities
from ildm_bench.testbed.spec import Quota, SpecError, TestbedSpec
from ildm_bench.testbed.testbed import Server, Testbed
from tests.bench.testbed.traces import traces
from tests.support.brokers import PahoClient, require_broker
from tests.support.ports import free_port

PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _mosquitto() -> None:
    require_broker("mosquitto")


@contextmanager
def running(spec: TestbedSpec, directory: Path) -> Iterator[Testbed]:
    """A testbed that has to be gone without a trace at the end."""
    with Testbed(spec, directory) as bed:
        name = bed.name
        yield bed
        pids = [entry.pid for entry in bed.processes]
    assert traces(name) == []
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def exchange(publisher: Server, subscriber: Server) -> None:
    """One message from a client of one site to a client of another."""
    ends = [server.front or server.broker for server in (subscriber, publisher)]
    with PahoClient(ends[0].address) as there, PahoClient(ends[1].address) as here:
        there.subscribe(("greeting", 1))
        for _ in range(200):
            here.publish("greeting", b"hello", 1)
            try:
                assert there.receive(0.1).payload == b"hello"
            except queue.Empty:  # interest is still on its way, and what comes before it is lost
                continue
            return
        pytest.fail("no message crosses")


def test_five_pairs_in_a_row_carry_a_message_from_end_to_end(tmp_path: Path) -> None:
    spec = TestbedSpec(["mosquitto"] * 5, algorithm="pf")
    with running(spec, tmp_path) as bed:
        assert bed.notes == []
        assert [server.name for server in bed.servers] == [f"site-{index}" for index in range(5)]
        exchange(bed.servers[0], bed.servers[4])
        records = [entry.process for entry in bed.processes]
        assert [record.name for record in records[:2]] == ["broker-0", "node-0"]
        assert [(record.role, record.site, record.label) for record in records[-2:]] == [
            ("broker", 4, "mosquitto"),
            ("node", 4, "pf"),
        ]
        assert {record.quota for record in records} == {None}
        degrees = [server.node.status()["links"]["active"] for server in bed.servers if server.node]  # type: ignore[index]
        assert degrees == [1, 2, 2, 2, 1]
        bed.check()
        bed.servers[2].broker.kill()
        with pytest.raises(ProcessError, match="site-2: mosquitto has ended"):
            bed.check()


def test_isolated_sites_with_shared_quotas_and_delay(tmp_path: Path) -> None:
    """What the machine refuses is in the notes, and the rest works without it."""
    spec = TestbedSpec(
        ["mosquitto"] * 3,
        algorithm="sf",
        topology="star",
        sessions=2,
        quota=Quota(0.5, "shared"),
        delay_ms=1.0,
        isolate=True,
        node_extra={"link": {"keep_alive": 7}},
    )
    can = {ability.name: ability.there for ability in abilities()}
    with running(spec, tmp_path) as bed:
        refused = [note.split(":")[0] for note in bed.notes]
        assert ("no CPU quotas" in refused) != can["CPU quotas"]
        assert ("no network namespaces, and so neither delay nor loss" in refused) != can[
            "network namespaces"
        ]
        assert ("no delay and loss between sites" in refused) == (
            can["network namespaces"] and not can["delay and loss"]
        )
        assert bed.distance is None  # it does not reach into namespaces
        node = bed.servers[1].node
        assert node is not None
        config = tmp_path / "site-1/node/node.yaml"
        assert "keep_alive: 7" in config.read_text()
        assert {path.stat().st_mode & 0o777 for path in (config, tmp_path / "secret")} == {0o600}
        assert (tmp_path / "secret").read_text().strip() not in config.read_text()
        if can["network namespaces"]:
            assert len({server.namespace for server in bed.servers}) == 3
            assert {server.broker.host for server in bed.servers}.isdisjoint({"127.0.0.1"})
        if can["CPU quotas"]:
            assert {entry.process.quota for entry in bed.processes} == {0.5}
            assert set(bed.throttling()) == {"site-0", "site-1", "site-2"}
        exchange(bed.servers[1], bed.servers[2])


@pytest.mark.parametrize("algorithm", ["sf", "sg_tbps"])
def test_a_proxy_keeps_three_sites_apart(tmp_path: Path, algorithm: str) -> None:
    """Links go through it, those of the configuration and those made on demand."""
    distances = Distances.by_regions({"eu": 2, "asia": 1}, 1, 20)
    with running(TestbedSpec(["mosquitto"] * 3, algorithm=algorithm, distances=distances), tmp_path) as bed:
        exchange(bed.servers[0], bed.servers[2])
        assert bed.distance is not None
        ways = {way for way, count in bed.distance.traffic().items() if count}
        assert {("site-1", "site-2"), ("site-2", "site-1")} <= ways
        assert [entry.process.name for entry in bed.processes][-1] == "delay"
        bed.check()
        bed.distance.kill()
        with pytest.raises(ProcessError, match="between the sites: delay has ended"):
            bed.check()


def test_a_delay_that_the_kernel_refuses_is_made_by_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: network.Network, delay_ms: float, loss: float) -> None:
        raise network.NetworkError("Specified qdisc kind is unknown.")

    monkeypatch.setattr(network.Network, "open", lambda self: None)
    monkeypatch.setattr(network.Network, "impair", refuse)
    with running(TestbedSpec(["mosquitto"] * 2, algorithm="pf", delay_ms=5), tmp_path) as bed:
        assert bed.notes == [
            "a proxy delays between sites, as the kernel does not: Specified qdisc kind is unknown."
        ]
        assert bed.distance is not None
        assert bed.distance.distances.delays_ms == ((0, 5), (5, 0))
        exchange(bed.servers[0], bed.servers[1])


def test_haproxy_with_a_quota_each(tmp_path: Path) -> None:
    spec = TestbedSpec(["mosquitto"], front="haproxy", quota=Quota(0.4, node_cores=0.2))
    with running(spec, tmp_path) as bed:
        exchange(bed.servers[0], bed.servers[0])
        assert bed.servers[0].address != bed.servers[0].broker_address
        assert [entry.process.name for entry in bed.processes] == ["broker-0", "haproxy-0"]
        if bed.notes:
            assert bed.notes[0].startswith("no CPU quotas: ")
            return
        assert [entry.process.quota for entry in bed.processes] == [0.4, 0.2]
        assert bed._cgroups is not None
        for part, entry, cores in zip(("broker", "front"), bed.processes, (0.4, 0.2), strict=True):
            leaf = bed._cgroups.directory / "site-0" / part
            assert entry.pid in members(leaf)
            assert bed._cgroups.limit_of(leaf) == cores


@pytest.mark.parametrize("isolate", [False, True])
def test_mosquittos_bridges_in_a_row(tmp_path: Path, isolate: bool) -> None:
    spec = TestbedSpec(["mosquitto"] * 3, bridge=True, isolate=isolate)
    with running(spec, tmp_path) as bed:
        exchange(bed.servers[0], bed.servers[2])
        exchange(bed.servers[2], bed.servers[0])


def test_a_machine_that_refuses_everything_runs_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: network.Network) -> None:
        raise network.NetworkError("ip link add: Operation not permitted")

    monkeypatch.setattr(
        testbed, "find_cgroups", lambda _name: (None, "/sys/fs/cgroup: Read-only file system")
    )
    monkeypatch.setattr(network.Network, "open", refuse)
    spec = TestbedSpec(["mosquitto"] * 2, bridge=True, quota=Quota(0.2), delay_ms=5, loss=0.1)
    with running(spec, tmp_path) as bed:
        assert bed.notes == [
            "no CPU quotas: /sys/fs/cgroup: Read-only file system",
            "no network namespaces, and so neither delay nor loss: ip link add: Operation not permitted",
        ]
        assert {server.broker.host for server in bed.servers} == {"127.0.0.1"}
        assert {entry.process.quota for entry in bed.processes} == {None}
        assert bed.quota_text() == "none"
        exchange(bed.servers[0], bed.servers[1])


def test_what_does_not_come_up_leaves_nothing(tmp_path: Path) -> None:
    with socket_in_use() as port:
        spec = TestbedSpec(["mosquitto"], node_extra={"listen": f"127.0.0.1:{port}"}, isolate=False)
        bed = Testbed(spec, tmp_path)
        with pytest.raises(ProcessError, match=f"site-0 ended with status(.|\n)*{port}"):
            bed.up()
    assert bed.name == ""
    assert not [server for server in bed.servers if server.broker.running]


def test_a_testbed_can_come_up_again(tmp_path: Path) -> None:
    bed = Testbed(TestbedSpec(["mosquitto"], front="none"), tmp_path)
    for _ in range(2):
        with bed:
            assert bed.servers[0].address == bed.servers[0].broker_address
            exchange(bed.servers[0], bed.servers[0])
            with pytest.raises(ProcessError, match="up already"):
                bed.up()
    bed.down()


@contextmanager
def socket_in_use() -> Iterator[int]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


FAR = Distances.by_regions({"eu": 1, "us": 1}, 0, 40)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"brokers": []}, "brokers: 0 sites"),
        ({"brokers": ["mosquitto", "hivemq"]}, "brokers: 'hivemq' is none of mosquitto, rabbitmq"),
        ({"front": "nginx"}, "front: 'nginx' is none of node, haproxy, none"),
        ({"topology": "ring"}, "topology: 'ring' is none of row, star, tree, mesh"),
        ({"delay_ms": -1}, "delay: -1 ms"),
        ({"loss": 1.0}, "loss: 1 "),
        ({"bridge": True, "brokers": ["mosquitto", "amqtt"]}, "bridge: Mosquitto's bridges"),
        ({"algorithm": "sf", "front": "haproxy"}, "algorithm: sf needs front node, not haproxy"),
        ({"algorithm": "pf", "bridge": True}, "algorithm: pf needs front node, not bridges"),
        ({"algorithm": "pf", "distances": FAR}, "delay matrix: it has 2 sites, not 1"),
        ({"brokers": ["amqtt"] * 2, "distances": FAR}, "delay matrix: it is for what nodes with"),
        ({"brokers": ["amqtt"] * 2, "algorithm": "pf", "loss": 0.1, "distances": FAR}, "not together with"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        TestbedSpec(**{"brokers": ["mosquitto"], **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cores": 0}, "quota: 0 cores"),
        ({"cores": -0.5}, "quota: -0.5 cores"),
        ({"cores": float("nan")}, "quota: nan cores"),
        ({"cores": 1, "node_cores": 0}, "quota of the node: 0 cores"),
        ({"cores": 1, "node_cores": 1, "model": "shared"}, "broker and node share one"),
        ({"cores": 1, "model": "total"}, "quota model: 'total' is none of per-process, shared"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Quota(**options)  # type: ignore[arg-type]


def test_the_nodes_settings_are_checked_before_anything_starts(tmp_path: Path) -> None:
    for extra, algorithm, said in (
        ({"link": {"session": 2}}, "pf", "link.session: unknown key"),
        ({}, "nonsense", "'nonsense' is not installed"),
        ({"link": {"sessions": 65}}, None, "link.sessions"),
    ):
        with pytest.raises(IldmError, match=said) as refusal:
            Testbed(TestbedSpec(["mosquitto"], algorithm=algorithm, node_extra=extra), tmp_path)
        assert isinstance(refusal.value, ConfigError) or algorithm == "nonsense"
    assert list(tmp_path.iterdir()) == []


def test_topologies_are_trees() -> None:
    def edges(topology: str, sites: int) -> list[tuple[int, int]]:
        return TestbedSpec(["mosquitto"] * sites, topology=topology).edges  # type: ignore[arg-type]

    assert edges("row", 4) == [(0, 1), (1, 2), (2, 3)]
    assert edges("star", 4) == [(0, 1), (0, 2), (0, 3)]
    assert edges("tree", 7) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert edges("row", 1) == []


SCRIPT = """
import pathlib, sys
from ildm.testing.live.process import reaper
from ildm_bench.testbed.spec import Quota, TestbedSpec
from ildm_bench.testbed.testbed import Testbed
spec = TestbedSpec(["mosquitto"], front="none", quota=Quota(0.5), isolate=True)
with Testbed(spec) as bed:
    print(bed.name, reaper().pid, *(entry.pid for entry in bed.processes), flush=True)
    sys.stdin.read()
"""


@contextmanager
def victim() -> Iterator[tuple[subprocess.Popen[bytes], str, int, list[int]]]:
    """A process with a testbed: itself, the testbed's name, the reaper, descriptors of all others."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        name, reaper, *pids = owner.stdout.readline().decode().split()
        watched = [os.pidfd_open(int(pid)) for pid in [reaper, *pids]]
        try:
            yield owner, name, int(reaper), watched
        finally:
            owner.kill()
            for descriptor in watched:
                os.close(descriptor)


def wait_ended(descriptors: list[int]) -> None:
    """Wait for the end of processes (their descriptors are readable then)."""
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(30_000)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_leaves_nothing(number: signal.Signals) -> None:
    with victim() as (owner, name, _, watched):
        assert traces(name) != []
        owner.send_signal(number)
        owner.wait()
        wait_ended(watched)
        assert traces(name) == []


def test_what_a_killed_reaper_leaves_is_removed_by_the_next_testbed() -> None:
    with victim() as (owner, name, reaper, watched):
        assert name not in remove_leftovers()  # it lives
        os.kill(reaper, signal.SIGKILL)
        owner.kill()
        owner.wait()
        assert traces(name) != []
        assert name in remove_leftovers()
        wait_ended(watched)
        assert traces(name) == []
        assert name not in remove_leftovers()


def test_the_ports_of_a_testbed_are_free_ones(tmp_path: Path) -> None:
    with running(TestbedSpec(["mosquitto"] * 2, front="none"), tmp_path) as bed:
        assert len({server.broker.port for server in bed.servers} | {free_port()}) == 3
