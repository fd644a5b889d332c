"""The units are understood by systemd, confine the node, and let it do its work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ildm.config import load_config
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.systemd.unit import PAIR, SERVICE, SOCKET, UNITS, analyze, missing, rules, settings, values
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import running
from tests.net.transport.pki import Pki

CONFINED = Path(__file__).with_name("confined.py")
EXPOSED = 1.5
"""Of 10, the most that ``systemd-analyze security`` may find."""


@pytest.fixture(autouse=True)
def analyzer() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units beside each other, with a program that is there."""
    for unit in (SERVICE, PAIR, SOCKET):
        text = unit.read_text().replace("/usr/bin/ildm", sys.executable)
        (tmp_path / unit.name.replace("@", "@site")).write_text(text)
    return tmp_path


def test_systemd_understands_them(installed: Path) -> None:
    done = analyze("verify", "--man=no", *installed.glob("ildm*@site.*"))
    said = [line for line in done.stderr.splitlines() if "ildm" in line]
    assert (done.returncode, said) == (0, [])


def test_what_they_leave_open_is_little(installed: Path) -> None:
    done = analyze("security", "--offline=true", "--no-pager", installed / "ildm@site.service")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found.group(1)) <= EXPOSED, done.stdout


def test_members_of_a_pair_share_user_and_directory_and_come_back() -> None:
    alike = {"DynamicUser", "PrivateUsers", "ProcSubset"}  # of these a member could not end another one
    assert not alike & {key for key, _ in settings(PAIR)}
    assert values(PAIR, "User") == ["ildm"]
    assert values(PAIR, "Restart") == ["always"]
    assert not any("%i" in each for each in values(PAIR, "StateDirectory"))


def test_files_and_commands_they_name(tmp_path: Path) -> None:
    """The directory of the state and the socket that ``ExecReload`` asks are the configuration's."""
    path = tmp_path / "site.yaml"
    path.write_text("state_dir: /var/lib/ildm/site\n")
    (reload,) = values(SERVICE, "ExecReload")
    assert reload.replace("%i", "site").endswith(f"reload --socket {load_config(path).admin_socket}")
    assert values(SERVICE, "StateDirectory") == ["ildm/%i"]
    assert values(SERVICE, "ExecStart") == ["/usr/bin/ildm run --config /etc/ildm/%i.yaml"]
    assert [unit.name for unit in sorted(UNITS.glob("*@*"))] == [PAIR.name, SERVICE.name, SOCKET.name]


@pytest.fixture
def confined() -> tuple[str, ...]:
    return (sys.executable, str(CONFINED), json.dumps(rules(SERVICE)))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "Address family not supported"),
        ("import os; os.setpriority(os.PRIO_PROCESS, 0, 1)", "Operation not permitted"),
        ("import os; os.chroot('/')", "Operation not permitted"),
        ("import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)", "not permitted"),
    ],
)
def test_the_test_confines_as_systemd_does(confined: tuple[str, ...], code: str, error: str) -> None:
    done = subprocess.run(
        [*confined, sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert error in done.stderr


class Confined(NodeProcess):
    """``ildm run`` under what the unit allows."""

    before: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [*self.before, *map(str, super().command())]


def test_a_node_does_its_work_under_what_the_unit_allows(
    tmp_path: Path, confined: tuple[str, ...], pki: Pki
) -> None:
    """Over TCP, TLS and WebSocket, with links, spool, metrics; it reloads and drains."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    secure, web, metrics = free_port(), free_port(), free_port()
    shown = pki.server("unit")
    with running(Mosquitto(tmp_path / "mosquitto")) as broker:
        node = Confined(
            tmp_path / "node",
            broker.address,
            "sf",
            extra={
                "listeners": [
                    {"url": f"mqtts://localhost:{secure}", "tls": shown},
                    {"url": f"ws://127.0.0.1:{web}"},
                    {"url": f"unix:{tmp_path}/node.sock"},
                ],
                "spool": {"mode": "power"},
                "metrics": {"listen": metrics},
                "log": {"level": "info"},
            },
        )
        node.before = confined
        with running(node):
            for host, port, options in (
                ("127.0.0.1", node.port, {}),
                ("localhost", secure, {"tls": pki.trusting()}),
                ("127.0.0.1", web, {"transport": "websockets"}),
            ):
                with connected(host, port, **options) as client:
                    echoes(client)
            assert node.admin.reload()["changes"] == []
            node.stop()
            log = node.log()
    assert "node stopped" in log
    assert "not permitted" not in log
