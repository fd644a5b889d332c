"""The process that listens at an address is found by the kernel's tables."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.cli import app, prepared
from ildm_bench.listening import addresses, listener
from tests.support.brokers import Broker

QUICK = Path(__file__).parents[2] / "configs/bench/quick.yaml"
LISTEN = """import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
input()"""


@pytest.mark.parametrize(
    ("bound", "family", "asked"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1"),
        ("0.0.0.0", socket.AF_INET, "localhost"),
        ("::1", socket.AF_INET6, "::1"),
    ],
)
def test_this_process_listens(bound: str, family: socket.AddressFamily, asked: str) -> None:
    with socket.create_server((bound, 0), family=family) as server:
        port = server.getsockname()[1]
        assert listener(asked, port) == os.getpid()
    assert listener(asked, port) is None


def test_another_address_is_another_listener() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        assert listener("127.0.0.1", server.getsockname()[1]) is None
        assert listener("127.0.0.2", server.getsockname()[1]) == os.getpid()
    assert addresses("no-such-host.invalid") == set()


def test_another_process_listens() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert listener("127.0.0.1", int(child.stdout.readline())) == child.pid


def test_a_broker_is_found_without_its_id(mosquitto: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"{mosquitto.host}:{mosquitto.port}"
    _, target = prepared(QUICK, None, [address], None, "")
    assert mosquitto.process is not None
    ((process, pid),) = target.processes
    assert (pid, process.role, process.label) == (mosquitto.process.pid, "broker", "mosquitto")
    assert f"{address}: broker mosquitto ({pid})" in capsys.readouterr().err


def test_a_target_whose_process_is_not_seen_is_named() -> None:
    done = CliRunner().invoke(app, ["load", str(QUICK), "--target", "127.0.0.1:1"])
    assert "127.0.0.1:1: its process is not seen from here" in done.output
    assert "--pid" in done.output
