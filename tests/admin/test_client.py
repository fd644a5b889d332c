from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ildm.admin.client import AdminClient, NoNodeError, Page
from ildm.admin.unix_socket import open_socket
from ildm.admin.view import AdminError
from ildm.config import Address
from tests.admin.fake_node import FakeView


@contextmanager
def answering(path: Path, answer: bytes | None) -> Iterator[None]:
    """A server that is no node: it sends these bytes to one caller, or nothing at all."""
    listener = open_socket(path)
    listener.setblocking(True)
    done = threading.Event()

    def serve() -> None:
        caller, _ = listener.accept()
        with caller:
            caller.recv(65536)
            if answer is None:
                done.wait()
            else:
                caller.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        listener.close()


def test_reading(node: AdminClient, view: FakeView) -> None:
    assert node.status() == view.status()
    assert node.algorithm() == view.algorithm()
    assert node.neighbors() == Page(1, view.rows)
    assert node.clients(limit=1) == Page(2, view.clients()[:1])
    assert node.subscriptions() == Page(5, view.subscriptions())


def test_changing(node: AdminClient, view: FakeView) -> None:
    assert node.add_neighbor("[fe80::1]:7", save=False)["state"] == "connecting"
    assert node.remove_neighbor("[fe80::1]:7")["state"] == "removed"
    assert node.set_log_level("error") == {"level": "error"}
    assert view.calls == [
        ("add", Address("fe80::1", 7), False),
        ("remove", "[fe80::1]:7", True),
        ("level", "error"),
    ]


def test_stop_and_wait(node: AdminClient, socket_path: Path) -> None:
    assert node.stop() == {"stopping": True}
    node.wait_stopped(30)
    assert not socket_path.exists()


def test_a_node_that_does_not_stop(node: AdminClient) -> None:
    with pytest.raises(AdminError, match="still stopping after 0 s"):
        node.wait_stopped(0)


def test_the_text_of_the_node_is_the_error(node: AdminClient) -> None:
    with pytest.raises(AdminError, match=r"^nobody is not a neighbour$"):
        node.remove_neighbor("nobody")


@pytest.mark.parametrize("left_over", [False, True])
def test_no_node(socket_path: Path, left_over: bool) -> None:
    if left_over:
        open_socket(socket_path).close()
    text = f"no node runs with state directory {socket_path.parent}; start one with: ildm run --config FILE"
    with pytest.raises(NoNodeError) as caught:
        AdminClient(socket_path).status()
    assert str(caught.value) == text


def test_no_node_at_a_socket_of_another_name(tmp_path: Path) -> None:
    with pytest.raises(NoNodeError, match=rf"no node runs with admin socket {tmp_path}/x"):
        AdminClient(tmp_path / "x").status()


def test_somebody_elses_node(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # root, as which tests may run, is never refused by the kernel
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(AdminError, match="permission denied; the admin socket belongs to the user"):
        AdminClient(socket_path).status()


def test_a_path_too_long_for_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(AdminError, match="too long"):
        AdminClient(tmp_path / ("x" * 120)).status()


def test_nobody_answers(socket_path: Path) -> None:
    with answering(socket_path, None), pytest.raises(AdminError, match=r"did not answer within 0\.05 s"):
        AdminClient(socket_path, timeout=0.05).status()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
    ],
)
def test_no_node_but_something_else(socket_path: Path, answer: bytes) -> None:
    with answering(socket_path, answer), pytest.raises(AdminError, match=str(socket_path)) as caught:
        AdminClient(socket_path).status()
    assert "\n" not in str(caught.value)


def test_where_many_wait_to_be_taken_a_caller_waits_too(socket_path: Path) -> None:
    """The system then says that it is to try again, even to one that would wait."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        socket_path.parent.mkdir()
        listener.bind(str(socket_path))
        listener.listen(0)
        listener.settimeout(30)
        first.connect(str(socket_path))
        with pytest.raises(AdminError, match=r"did not answer within 0\.2 s"):
            AdminClient(socket_path, timeout=0.2).status()
        caller = threading.Thread(target=AdminClient(socket_path, timeout=30).stop)
        caller.start()
        listener.accept()[0].close()
        with listener.accept()[0] as taken:
            taken.settimeout(30)
            with taken.makefile("rb") as request:  # all of it: its head comes first, its body by itself
                assert request.readline().startswith(b"POST /v1/stop ")
                head = http.client.parse_headers(request)
                request.read(int(head["Content-Length"]))
            taken.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")
        caller.join(30)
        assert not caller.is_alive()
