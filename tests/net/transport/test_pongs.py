"""What a WebSocket answers to control frames, by a transport whose buffer the test empties."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ildm.core.counters import Counters
from ildm.net.transport.websocket.connection import WebSocket, WebSocketOptions, WebSocketRules
from ildm.net.transport.websocket.frames import BINARY, CLOSE, PING, PONG, frame
from tests.net.transport.test_frames import masked
from tests.net.transport.test_websocket import request

HIGH = 1024


class Client:
    """At the other end of a connection: reads when it is told to."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.closed = False
        self.socket: WebSocket
        self._paused = False

    def write(self, data: bytes) -> None:
        self.waiting += data
        if len(self.waiting) > HIGH and not self._paused:
            self._paused = True
            self.socket.pause_writing()

    def read(self) -> bytes:
        """All that waits."""
        found, self.waiting = bytes(self.waiting), bytearray()
        if self._paused:
            self._paused = False
            self.socket.resume_writing()
        return found

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Arrival:
    listener = "ws"

    def begin(self, transport: object) -> str:
        return "client"

    def end(self) -> None:
        pass


class Session(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self, arrival: object) -> None:
        self.received = b""
        self.paused: list[bool] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)


@pytest.fixture
async def client() -> Client:
    """A connection that has become a WebSocket."""
    rules = WebSocketRules(Session, Counters(), WebSocketOptions("/mqtt", None, 1 << 20, 10.0))
    client = Client()
    arrival: Any = Arrival()
    client.socket = WebSocket(rules, arrival)
    client.socket.connection_made(client)
    client.socket.data_received(request())
    assert client.read().startswith(b"HTTP/1.1 101 ")
    return client


def ping(number: int) -> bytes:
    return masked(PING, number.to_bytes(125, "big"))


def pong(number: int) -> bytes:
    return frame(PONG, number.to_bytes(125, "big"))


async def test_each_ping_of_a_client_that_reads_is_answered(client: Client) -> None:
    for number in range(100):
        client.socket.data_received(ping(number))
        assert client.read() == pong(number)


async def test_the_newest_of_many_pings_waits_for_a_client_that_does_not_read(client: Client) -> None:
    for number in range(10_000):
        client.socket.data_received(ping(number))
    found = client.read()
    assert len(found) <= HIGH + len(pong(0))
    assert found == b"".join(pong(number) for number in range(len(found) // len(pong(0))))
    assert client.read() == pong(9_999)
    assert client.read() == b""
    client.socket.data_received(ping(10_000))
    assert client.read() == pong(10_000)


async def test_no_pong_is_added_to_what_the_session_has_written(client: Client) -> None:
    session = client.socket._session
    session.transport.write(bytes(HIGH))
    for number in range(100):
        client.socket.data_received(ping(number) + masked(BINARY, b"."))
    assert session.received == b"." * 100
    assert client.read() == frame(BINARY, bytes(HIGH))
    assert client.read() == pong(99)
    assert session.paused == [True, False]


async def test_a_close_comes_before_the_pong_that_waits_and_nothing_after_it(client: Client) -> None:
    client.socket._session.transport.write(bytes(HIGH))
    client.socket.data_received(ping(1) + masked(CLOSE, b"\x03\xe8"))
    assert client.closed
    assert client.read() == frame(BINARY, bytes(HIGH)) + frame(CLOSE, b"\x03\xe8")
    assert client.read() == b""


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", 1000),
        (b"\x03\xe9bye", 1001),
        ((4999).to_bytes(2, "big"), 4999),
        ((0).to_bytes(2, "big"), 1002),
        ((1005).to_bytes(2, "big"), 1002),
        (b"\x03\xe8\xff", 1007),
    ],
)
async def test_what_a_close_is_answered_with(client: Client, sent: bytes, code: int) -> None:
    client.socket.data_received(masked(CLOSE, sent))
    found = client.read()
    assert (found[0], found[2:4]) == (0x80 | CLOSE, code.to_bytes(2, "big"))
    assert client.closed
