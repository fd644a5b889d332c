"""Clients over WebSocket: paho's and aiohttp's, and those that do it wrong."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from ildm.mqtt import Connect, PingReq, Version
from ildm.testing.live.ports import free_port
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import StartNode, until
from tests.net.transport.pki import Pki

CONNACK = b"\x20\x02\0\0"
HEADERS = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "other, mqtt",
}


def listening(start_node: StartNode, tls: Mapping[str, str] | None = None, **more: Any) -> tuple[Any, int]:
    port, limits = free_port(), more.pop("limits", {})
    scheme = "ws" if tls is None else "wss"
    listener = {"url": f"{scheme}://127.0.0.1:{port}", "tls": tls, **more}
    return start_node(listeners=[listener], limits=limits), port


def answered(port: int, request: bytes) -> bytes:
    """All that comes back."""
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request)
        found = bytearray()
        while piece := client.recv(4096):
            found += piece
            if b"101 Switching" in found:
                break
        return bytes(found)


def request(path: str = "/mqtt", **changes: str | None) -> bytes:
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in {**HEADERS, **named}.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize("secured", [False, True])
def test_paho_by_websocket(start_node: StartNode, pki: Pki, secured: bool) -> None:
    _, port = listening(start_node, pki.server() if secured else None)
    tls = pki.trusting() if secured else None
    with connected("localhost", port, transport="websockets", tls=tls) as client:
        echoes(client, sizes=(0, 5, 125, 126, 70_000, 300_000))


async def test_packets_in_pieces_pings_and_a_close(start_node: StartNode) -> None:
    _, port = listening(start_node)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"http://127.0.0.1:{port}/mqtt?a=b", protocols=["mqtt"], autoping=False) as client,
    ):
        assert client.protocol == "mqtt"
        for byte in Connect(client_id="c").encode():
            await client.send_bytes(bytes([byte]))
            await client.send_bytes(b"")
        assert (await client.receive(30)).data == CONNACK
        await client.ping(b"are you there")
        answer = await client.receive(30)
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"are you there")
        await client.send_bytes(PingReq().encode(Version.V311) * 3)
        found = b""
        while len(found) < 6:
            found += (await client.receive(30)).data
        assert found == b"\xd0\0" * 3
        await client.close(code=1001)
        assert client.close_code == 1001  # echoed


async def test_text_is_refused(start_node: StartNode) -> None:
    node, port = listening(start_node)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"http://127.0.0.1:{port}/mqtt", protocols=["mqtt"]) as client,
    ):
        await client.send_str("hello")
        assert (await client.receive(30)).type is aiohttp.WSMsgType.CLOSE
        assert client.close_code == 1003
    status = node.status()
    assert status["counters"]["websocket_errors"] == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(), 101),
        (request("/mqtt?token=x"), 101),
        (request(Sec_WebSocket_Protocol="mqttv3.1"), 101),
        (request(Origin="https://panel.example.org"), 101),
        (request().replace(b"other, mqtt", b"other\r\nSec-WebSocket-Protocol: mqtt"), 101),
        (request("/other"), 404),
        (request(Origin="https://evil.example.org"), 403),
        (request(Upgrade=None), 426),
        (request(Connection="close"), 426),
        (request(Sec_WebSocket_Version="8"), 426),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Sec_WebSocket_Protocol=None), 400),
        (request(Sec_WebSocket_Protocol="soap"), 400),
        (request(Host=None), 400),
        (request().replace(b"\r\n\r\n", b"\r\nHost: two\r\n\r\n"), 400),
        (request().replace(b"GET", b"POST"), 400),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
        (request(X_Long="x" * 9000), 431),
        (b"\x10\x0c\0\4MQTT\4\0\0\0\0\0\r\n\r\n", 400),
    ],
)
def test_who_may_become_a_websocket(websockets_at: int, sent: bytes, status: int) -> None:
    assert answered(websockets_at, sent).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.fixture
def websockets_at(start_node: StartNode) -> int:
    return listening(start_node, origins=["https://panel.example.org"])[1]


def test_a_request_that_never_ends_is_given_up(start_node: StartNode) -> None:
    node, port = listening(start_node, limits={"connect_timeout": 0.1})
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request()[:-2])
        with contextlib.suppress(ConnectionResetError):  # it is cut off rather than closed
            assert client.recv(1) == b""
    until(lambda: node.status()["counters"].get("websocket_refused") == 1)


def test_a_frame_longer_than_any_packet_may_be_is_refused(start_node: StartNode) -> None:
    _, port = listening(start_node, limits={"packet_size": 1024})
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request() + b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask")
        found = b""
        while piece := client.recv(4096):
            found += piece
    assert b"\x88" in found
    assert (1009).to_bytes(2, "big") in found
