"""Sockets that listen already when the node starts, as systemd hands them on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.config import load_config
from ildm.net.run import NodeServer
from ildm.net.systemd import take_sockets
from ildm.net.transport import ListenError
from ildm.net.transport.inherited import Inherited, InheritedError
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import running

MOST_CLIENTS = 64
"""Of which all come to the same one of two processes once in 2 ** 63 times."""


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        yield made


ACTIVATE = """
import fcntl, os, sys
given = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in sys.argv[1].split(",")]
for place, descriptor in enumerate(given):
    os.dup2(descriptor, 3 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes a command with these descriptors from the third on, as systemd does."""


@contextmanager
def activated(config: Path, *given: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    descriptors = [each.fileno() for each in given]
    command = [sys.executable, "-c", ACTIVATE, ",".join(map(str, descriptors))]
    command += [sys.executable, "-m", "ildm", "run", "--config", str(config)]
    process = subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL)
    try:
        yield process
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_process_serves_on_what_it_was_given_and_so_does_the_next_one(
    tmp_path: Path, listening: socket.socket
) -> None:
    """Nobody waits for the node to listen: who connects before it does, or while none runs, is served."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    config, path, port = tmp_path / "node.yaml", tmp_path / "given.sock", listening.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as unix, running(Mosquitto(tmp_path / "mosquitto")) as broker:
        unix.bind(str(path))
        unix.listen()
        document = {
            "listen": f"{LOOPBACK}:{port}",
            "listeners": [{"url": f"unix:{path}"}],
            "broker": {"address": "{}:{}".format(*broker.address)},
            "link": {"listen": None},
        }
        config.write_text(yaml.safe_dump(document))
        with activated(config, listening, unix):
            with connected(LOOPBACK, port) as client:
                echoes(client)
            with connected(str(path), 1, transport="unix") as client:
                echoes(client)
        assert path.exists()
        with socket.create_connection((LOOPBACK, port), timeout=30) as waiting:
            waiting.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
            with activated(config, listening, unix):
                assert waiting.recv(4) == b"\x20\x02\0\0"


def wait_for(node: AdminClient) -> None:
    """Until it answers."""
    give_up = time.monotonic() + 120
    while True:
        try:
            node.status()
        except AdminError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return


def test_several_processes_share_a_port(tmp_path: Path) -> None:
    """With a socket each, as systemd makes with ReusePort=yes; who comes is at one of them, and all meet at
    the broker."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    port = free_port()
    with ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(tmp_path / "mosquitto")))
        nodes = []
        for name in ("one", "other"):
            sock = stack.enter_context(socket.create_server((LOOPBACK, port), reuse_port=True))
            document = {
                "node_id": name,
                "state_dir": str(tmp_path / name),
                "listen": f"{LOOPBACK}:{port}",
                "broker": {"address": "{}:{}".format(*broker.address)},
                "link": {"listen": None},
            }
            config = tmp_path / f"{name}.yaml"
            config.write_text(yaml.safe_dump(document))
            stack.enter_context(activated(config, sock))
            nodes.append(AdminClient(tmp_path / name / "admin.sock"))

        def clients_of_each() -> list[int]:
            return [node.status()["clients"] for node in nodes]

        for node in nodes:
            wait_for(node)
        first = stack.enter_context(connected(LOOPBACK, port))
        echoes(first)
        others = []
        for _ in range(MOST_CLIENTS):  # of which the kernel gives each process about a half
            others.append(stack.enter_context(connected(LOOPBACK, port)))
            if all(clients_of_each()):
                break
        else:
            pytest.fail(f"of {MOST_CLIENTS} clients none came to one of the processes: {clients_of_each()}")
        others[-1].subscribe("from/another")
        first.publish("from/another", b"process")
        assert others[-1].next() == ("from/another", b"process")


async def test_one_that_no_listener_is_for_is_named(tmp_path: Path, listening: socket.socket) -> None:
    given = Inherited()
    given.add(os.dup(listening.fileno()), "extra")
    source = tmp_path / "node.yaml"
    source.write_text(yaml.safe_dump({"listen": f"{LOOPBACK}:{free_port()}", "link": {"listen": None}}))
    server = NodeServer(load_config(source), None, source, given)
    port = listening.getsockname()[1]
    with pytest.raises(ListenError, match=rf"listens on {LOOPBACK}:{port} \(extra, descriptor \d+\)"):
        await server.start()
    given.close()


async def test_a_listener_goes_and_comes_again_at_a_socket_that_was_given(
    tmp_path: Path, listening: socket.socket
) -> None:
    given = Inherited()
    given.add(os.dup(listening.fileno()))
    port, other = listening.getsockname()[1], free_port()
    source = tmp_path / "node.yaml"

    def write(*ports: int) -> None:
        urls = [{"url": f"mqtt://{LOOPBACK}:{each}"} for each in ports]
        source.write_text(yaml.safe_dump({"listeners": urls, "link": {"listen": None}}))

    write(port)
    server = NodeServer(load_config(source), None, source, given)
    await server.start()
    try:
        assert server.ports == [port]
        write(other)
        await server.reloader.reload()
        assert server.ports == [other]
        write(port, other)
        await server.reloader.reload()
        assert server.ports == [port, other]
    finally:
        await server.stop()
        given.close()


def test_what_is_no_socket_that_listens_is_refused(tmp_path: Path) -> None:
    with socket.socket() as bound, (tmp_path / "file").open("w") as file:
        bound.bind((LOOPBACK, 0))
        with pytest.raises(InheritedError, match="no stream socket that listens"):
            Inherited().add(os.dup(bound.fileno()))
        with pytest.raises(InheritedError, match="is no socket"):
            Inherited().add(os.dup(file.fileno()))


@pytest.mark.parametrize("number", ["", "-1", "many", "1025", "9" * 30])
def test_a_number_that_makes_no_sense(number: str) -> None:
    with pytest.raises(ListenError, match="expected a number from 0 to 1024"):
        take_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number})


def test_sockets_of_another_process_are_not_taken() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    assert take_sockets(environment).unused == []
    assert environment == {}


def test_ildm_says_what_is_wrong_and_ends(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(f"listen: {LOOPBACK}:{free_port()}\nlink: {{listen: null}}\n")
    command = (
        f'LISTEN_PID=$$ LISTEN_FDS=1 exec "{sys.executable}" -m ildm run --config "{config}" 3</dev/null'
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "ildm: LISTEN_FDS: descriptor 3 is no socket" in done.stderr
