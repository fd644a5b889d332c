"""`ildm run` as a process: start, errors at start, signals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from ildm.mqtt import ConnAck, Connect, Disconnect, Framer, Publish, Version, decode
from tests.support.ports import free_port


class Running:
    """A node process whose log is read line by line."""

    def __init__(self, directory: Path, text: str, terminal: str | None = None) -> None:
        """``terminal``: path of the one that it belongs to."""

        def prepare() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests run under nohup, too
            if terminal is not None:
                os.close(os.open(terminal, os.O_RDWR))  # the first one that a new session opens

        self.config = directory / "node.yaml"
        self.config.write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ildm", "run", "--config", str(self.config)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            bufsize=0,  # or select() would not see what readline() has taken in advance
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=prepare,
        )
        self.lines: list[str] = []

    def wait_for(self, event: str, seconds: float = 120) -> dict[str, object]:
        """The first log line with this event."""
        assert self.process.stderr is not None
        while True:
            ready, _, _ = select.select([self.process.stderr], [], [], seconds)
            line = self.process.stderr.readline().decode() if ready else ""
            if not line:
                raise AssertionError(f"no {event!r} in the log: {self.lines}")
            self.lines.append(line)
            if line.startswith("{"):
                record: dict[str, object] = json.loads(line)
                if record.get("event") == event:
                    return record

    def end(self) -> tuple[int, str]:
        """Wait for the end: exit status and the rest of the log."""
        _, rest = self.process.communicate(timeout=300)
        return self.process.returncode, "".join(self.lines) + rest.decode()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Running]]:
    made: list[Running] = []
    yield made
    for node in made:
        if node.process.poll() is None:
            node.process.kill()
            node.process.communicate()


def text(directory: Path, port: int, broker: int, more: str = "") -> str:
    return (
        f"state_dir: {directory}/state\nlisten: 127.0.0.1:{port}\n"
        f"broker: {{address: '127.0.0.1:{broker}'}}\nlink: {{listen: null}}\n{more}\n"
    )


def test_sigterm_drains_and_exits_0(tmp_path: Path, running: list[Running]) -> None:
    """A client of MQTT 5 is told, the broker gets a DISCONNECT in its name, so that no will is sent."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = Running(tmp_path, text(tmp_path, port, listener.getsockname()[1]))
        running.append(node)
        node.wait_for("node started")
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        client.sendall(Connect(client_id="c", version=Version.V5).encode())
        listener.settimeout(10)
        broker, _ = listener.accept()
        broker.settimeout(10)
        assert isinstance(decode(broker.recv(4096), Version.V5), Connect)
        broker.sendall(ConnAck(session_present=False, reason_code=0).encode(Version.V5))
        node.wait_for("client connected")
        node.process.send_signal(signal.SIGTERM)
        got = b""
        while data := client.recv(4096):
            got += data
        packets = [decode(frame, Version.V5) for frame in Framer().feed(got)]
        assert [type(packet) for packet in packets] == [ConnAck, Disconnect]
        assert isinstance(packets[1], Disconnect)
        assert packets[1].reason_code == 0x8B
        assert decode(broker.recv(4096), Version.V5) == Disconnect(reason_code=0)
        assert broker.recv(4096) == b""
        client.close()
        broker.close()
    status, log = node.end()
    assert status == 0, log
    assert "node stopped" in log


def test_the_end_of_its_terminal_drains_like_sigterm(tmp_path: Path, running: list[Running]) -> None:
    master, slave = pty.openpty()
    node = Running(tmp_path, text(tmp_path, free_port(), 1), os.ttyname(slave))
    running.append(node)
    node.wait_for("node started")
    os.close(slave)
    os.close(master)
    assert node.wait_for("signal: the node drains and stops")["signal"] == "SIGHUP"
    node.wait_for("node stopped")
    assert node.end()[0] == 0


def test_sighup_takes_the_file_up_and_a_wrong_one_changes_nothing(
    tmp_path: Path, running: list[Running]
) -> None:
    port, other = free_port(), free_port()
    node = Running(tmp_path, text(tmp_path, port, 1))
    running.append(node)
    node.wait_for("node started")
    more = f"listeners: [{{url: 'mqtt://127.0.0.1:{other}'}}]\nlog: {{level: "
    node.config.write_text(text(tmp_path, port, 1, more + "high}"))
    node.process.send_signal(signal.SIGHUP)
    (reason,) = cast("list[str]", node.wait_for("configuration not reloaded")["reasons"])
    assert reason.startswith(f"{node.config}: log.level: ")
    node.config.write_text(text(tmp_path, port, 1, more + "info}"))
    node.process.send_signal(signal.SIGHUP)
    there = f"127.0.0.1:{other}"
    assert node.wait_for("configuration reloaded")["changes"] == [f"+ listeners[{there}]: {there}"]
    for each in (port, other):
        socket.create_connection(("127.0.0.1", each), timeout=10).close()
    node.process.send_signal(signal.SIGTERM)
    node.wait_for("node stopped")
    assert node.end()[0] == 0


def test_ildm_reload_says_what_has_changed_and_fails_where_nothing_has(
    tmp_path: Path, running: list[Running]
) -> None:
    port = free_port()
    node = Running(tmp_path, text(tmp_path, port, 1))
    running.append(node)
    node.wait_for("node started")

    def reload(more: str, *options: str) -> tuple[int, str]:
        node.config.write_text(text(tmp_path, port, 1, more))
        command = [sys.executable, "-m", "ildm", "reload", "--config", str(node.config), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    changed = "  limits.clients: 100000 -> 7\n"
    assert reload("limits: {clients: 7}", "--dry-run") == (0, f"{node.config}: would change\n{changed}")
    assert reload("limits: {clients: 7}") == (0, f"{node.config}: changed\n{changed}")
    assert reload("limits: {clients: 7}") == (0, f"{node.config}: as before\n")
    status, said = reload("limits: {clients: 8}\nnode_id: other")
    assert status == 1
    assert said.endswith("needs a restart:\nildm:   node_id: null -> other\n")


def test_under_nohup_it_outlives_the_terminal(tmp_path: Path, running: list[Running]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = Running(tmp_path, text(tmp_path, free_port(), 1))
    finally:
        signal.signal(signal.SIGHUP, before)
    running.append(node)
    node.wait_for("node started")
    node.process.send_signal(signal.SIGHUP)
    node.process.send_signal(signal.SIGTERM)
    assert node.wait_for("signal: the node drains and stops")["signal"] == "SIGTERM"
    assert node.end()[0] == 0


def test_a_second_signal_ends_the_drain(tmp_path: Path, running: list[Running]) -> None:
    """The drain waits for a client that does not read what its broker has sent."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        more = "limits: {drain_timeout: 3600}"
        node = Running(tmp_path, text(tmp_path, port, listener.getsockname()[1], more))
        running.append(node)
        node.wait_for("node started")
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        client.sendall(Connect(client_id="c", version=Version.V5).encode())
        listener.settimeout(10)
        broker, _ = listener.accept()
        broker.settimeout(10)
        broker.recv(4096)
        broker.sendall(ConnAck(session_present=False, reason_code=0).encode(Version.V5))
        node.wait_for("client connected")
        message = Publish(topic="t", payload=bytes(60_000)).encode(Version.V5)
        broker.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:  # until nobody takes any more
                broker.sendall(message)
        node.process.send_signal(signal.SIGTERM)
        node.wait_for("node stopping")
        node.process.send_signal(signal.SIGINT)
        assert node.wait_for("another signal: the node ends at once")["signal"] == "SIGINT"
        assert node.wait_for("drain timed out")["clients"] == 1
        assert node.end()[0] == 1
        client.close()
        broker.close()


def test_a_port_in_use_is_named(tmp_path: Path, running: list[Running]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Running(tmp_path, text(tmp_path, port, 1))
        running.append(node)
        status, log = node.end()
    assert status == 1
    assert f"listen: cannot listen on 127.0.0.1:{port}" in log
    assert "Traceback" not in log


def test_a_state_directory_in_use_is_named(tmp_path: Path, running: list[Running]) -> None:
    first = Running(tmp_path, text(tmp_path, free_port(), 1))
    running.append(first)
    first.wait_for("node started")
    second = Running(tmp_path, text(tmp_path, free_port(), 1))
    running.append(second)
    status, log = second.end()
    assert status == 2
    assert "is in use by a running node" in log
    assert "Traceback" not in log


def test_a_bad_configuration_exits_2_before_anything_starts(tmp_path: Path, running: list[Running]) -> None:
    node = Running(tmp_path, text(tmp_path, free_port(), 1, "limts: {}"))
    running.append(node)
    status, log = node.end()
    assert status == 2
    assert "limts: unknown key" in log
    assert not (tmp_path / "state").exists()


def test_a_broker_that_is_the_node_itself_is_refused(tmp_path: Path, running: list[Running]) -> None:
    port = free_port()
    config = text(tmp_path, port, port).replace(
        "broker: {address: '127.0.0.1", "broker: {address: 'localhost"
    )
    node = Running(tmp_path, config)
    running.append(node)
    status, log = node.end()
    assert status == 2
    assert f"broker.address: localhost:{port} leads back to this node (listen: 127.0.0.1:{port})" in log


def test_the_node_keeps_its_identity(tmp_path: Path, running: list[Running]) -> None:
    seen = []
    for _ in range(2):
        node = Running(tmp_path, text(tmp_path, free_port(), 1))
        running.append(node)
        seen.append(node.wait_for("node started")["node_id"])
        node.process.send_signal(signal.SIGINT)
        assert node.end()[0] == 0
    assert seen[0] == seen[1]


def test_the_secret_is_in_neither_log_nor_process_list(tmp_path: Path, running: list[Running]) -> None:
    more = "algorithm: sf\nlog: {level: debug}\n"
    config = text(tmp_path, free_port(), 1, more).replace(
        "link: {listen: null}", f"link: {{listen: '127.0.0.1:{free_port()}', secret: hunter2}}"
    )
    node = Running(tmp_path, config)
    running.append(node)
    node.wait_for("broker unavailable")
    assert b"hunter2" not in Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
    node.process.send_signal(signal.SIGTERM)
    status, log = node.end()
    assert status == 0
    assert "hunter2" not in log
