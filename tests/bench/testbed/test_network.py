"""Namespaces for real where the machine has them; what a refusal looks like everywhere."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.testing.live.ports import free_port
from ildm.testing.live.reaper import INTERFACE, base36, clear_up, interface_prefix, namespaces
from ildm_bench.testbed import network as module
from ildm_bench.testbed.leftovers import give_up_name, new_name
from ildm_bench.testbed.network import BENCHMARK_NETWORKS, Network, NetworkError

SERVE = "import socket, sys\ns = socket.create_server((sys.argv[1], int(sys.argv[2])))\nprint(flush=True)\n"
ANSWER = SERVE + "for _ in range(2): s.accept()[0].sendall(b'here')"
ASK = (
    "import socket, sys\n"
    "c = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
    "print(c.recv(4).decode(), c.getsockname()[0])\n"
)


def attempt(name: str) -> tuple[Network | None, str]:
    """A network of two sites, or why there is none."""
    try:
        network = Network(name, 2)
        network.open()
    except NetworkError as error:
        return None, str(error)
    return network, ""


def impaired(network: Network) -> str:
    """Delay and loss as the kernel shows them, or its refusal."""
    try:
        network.impair(7.5, 0.01)
    except NetworkError as error:
        return str(error)
    command = [*network.enter_command(1), "tc", "qdisc", "show", "dev", "links"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def opened() -> Iterator[Network | None]:
    """A network of two sites; None where the machine refuses, which it has then said."""
    name = new_name()
    network, refusal = attempt(name)
    assert (network is None) == refusal.startswith("ip ")
    yield network
    assert clear_up({"network": [name]}) == []
    give_up_name(name)
    assert namespaces(name) == []
    assert not [entry for entry in os.listdir("/sys/class/net") if entry.startswith(interface_prefix(name))]


def test_sites_reach_each_other_and_this_machine_reaches_them(opened: Network | None) -> None:
    if opened is None:
        return  # said by the fixture
    port = str(free_port())
    server = [*opened.enter_command(0), sys.executable, "-S", "-c", ANSWER, "0.0.0.0", port]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with socket.create_connection((opened.client_host(0), int(port))) as client:
            assert client.recv(4) == b"here"
        far = [*opened.enter_command(1), sys.executable, "-S", "-c", ASK, opened.link_host(0), port]
        told = subprocess.run(far, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["here", opened.link_host(1)]


def test_addresses_are_from_the_benchmark_range(opened: Network | None) -> None:
    if opened is None:
        return  # said by the fixture
    assert opened.clients.subnet_of(BENCHMARK_NETWORKS)  # type: ignore[arg-type]
    assert opened.links.subnet_of(BENCHMARK_NETWORKS)  # type: ignore[arg-type]
    other = Network("ildm-bench-1-1", 1)
    assert not {other.clients, other.links} & {opened.clients, opened.links}


def test_delay_is_set_or_the_refusal_says_what_is_missing(opened: Network | None) -> None:
    if opened is None:
        return  # said by the fixture
    told = impaired(opened)
    assert re.search(r"netem .*limit 1000000 delay 7\.5ms loss 1(\.0)?%", told)
    assert told.startswith(("tc qdisc add dev links root netem", "qdisc netem"))


def test_a_machine_without_ip_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NetworkError, match="apt-get install iproute2"):
        Network("ildm-bench-1-1", 1)


def test_a_refusal_has_the_words_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 2, "", "RTNETLINK answers: Operation not permitted\n")
    monkeypatch.setattr(module.shutil, "which", lambda _name: "/sbin/ip")
    monkeypatch.setattr(module.subprocess, "run", lambda *_args, **_options: refused)
    with pytest.raises(NetworkError, match=r"^ip -json.*: RTNETLINK answers: Operation not permitted$"):
        Network("ildm-bench-1-1", 1)


@pytest.mark.parametrize("number", [0, 1, 35, 36, 4194304])
def test_base_36_can_be_read_back(number: int) -> None:
    assert int(base36(number), 36) == number


def test_interface_names_fit_and_lead_back_to_the_testbed() -> None:
    prefix = interface_prefix("ildm-bench-4194304-35")
    name = f"{prefix}L{base36(999)}"
    assert len(name) <= 15
    found = INTERFACE.match(name)
    assert found is not None
    assert (int(found[1], 36), int(found[2], 36)) == (4194304, 35)
