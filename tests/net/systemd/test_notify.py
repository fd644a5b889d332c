"""What systemd is told, over a real datagram socket in its place."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.config import Config
from ildm.net.systemd import Notifier, take_notifier, time_to_drain
from tests.net.test_run import Running, text
from tests.support.ports import free_port


class Manager:
    """Hears what a service says."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(30)

    def next(self, but: str = "WATCHDOG=1") -> dict[str, str]:
        """The next news that is another than that."""
        while True:
            said = self.socket.recv(4096).decode()
            if said != but:
                return dict(line.split("=", 1) for line in said.split("\n"))


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}")
    yield made
    made.socket.close()


@pytest.fixture
def running() -> Iterator[list[Running]]:
    made: list[Running] = []
    yield made
    for node in made:
        if node.process.poll() is None:
            node.process.kill()
            node.process.communicate()


def test_a_process_says_when_it_serves_reloads_lives_and_stops(
    tmp_path: Path, manager: Manager, running: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    before = time.monotonic_ns() // 1000
    node = Running(tmp_path, text(tmp_path, free_port(), 1))
    running.append(node)
    assert manager.next() == {"READY": "1", "STATUS": "serving"}
    node.wait_for("node started")
    for _ in range(3):
        assert manager.next(but="") == {"WATCHDOG": "1"}
    node.process.send_signal(signal.SIGHUP)
    reloading = manager.next()
    assert reloading["RELOADING"] == "1"
    assert before < int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.next() == {"READY": "1"}
    node.config.write_text("no configuration")
    node.process.send_signal(signal.SIGHUP)
    assert manager.next()["RELOADING"] == "1"
    assert manager.next() == {"READY": "1"}
    node.process.send_signal(signal.SIGTERM)
    stopping = manager.next()
    assert (stopping["STOPPING"], stopping["STATUS"]) == ("1", "draining")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) == 20_000_000
    assert node.end()[0] == 0


def test_a_loop_that_hangs_gives_no_sign_of_life(manager: Manager) -> None:
    async def hang() -> None:
        notifier = Notifier(manager.address, watchdog=0.02)
        notifier.ready()
        assert manager.next() == {"READY": "1", "STATUS": "serving"}
        assert manager.next(but="") == {"WATCHDOG": "1"}
        time.sleep(0.1)  # noqa: ASYNC251 - the loop is to hang
        notifier.close()

    asyncio.run(hang())
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.next(but="")


def test_what_is_meant_for_another_process_or_makes_no_sense_is_left() -> None:
    own = str(os.getpid())
    for environment, seconds in (
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": own}, 20.0),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ):
        environment["PATH"] = "/bin"
        assert take_notifier(environment).watchdog == seconds
        assert environment == {"PATH": "/bin"}, "those it starts are not told"


def test_a_manager_that_is_gone_is_told_of_once(
    tmp_path: Path, manager: Manager, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.socket.close()
    Path(manager.address).unlink(missing_ok=True)
    notifier = Notifier(manager.address)
    for _ in range(3):
        notifier.stopping(1.0)
    assert capsys.readouterr().err.count("systemd cannot be told how it goes") == 1


def test_the_time_that_is_asked_for_is_enough_for_all_clients() -> None:
    config = Config.model_validate({"limits": {"drain_rate": 100, "drain_timeout": 7}})
    assert time_to_drain(config, 5000) > 50 + 7
