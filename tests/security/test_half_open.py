"""Connections that get stuck at any stage, saying nothing or a byte now and then, end; others are served."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path

import pytest

from ildm.core.link.handshake import DialerHandshake, Terms
from ildm.core.link.hello import NONCE, Hello, link_key
from ildm.mqtt import Connect
from ildm.net.transport.proxy import header_v1
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from tests.net.transport.client import WAIT, connected, echoes
from tests.net.transport.conftest import until
from tests.net.transport.pki import Pki
from tests.security.conftest import SECRET, Target, node_to_try

PATIENCE = 3.0
"""Seconds that the node gives those who connect, at each stage."""
EACH = 8
"""Connections stuck at each stage in each way; one address has no more than 64 handshakes at a time."""
CONNECT = Connect(client_id="x" * 2000).encode()
UPGRADE = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 2000
SWITCH = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
PROXY = b"\r\n\r\n\0\r\nQUIT\n" + b"\x21\x11\x08\x00" + bytes(2000)
"""A header of version 2 that is long, as its trusted fields may be."""
FRAME = b"\x82\xfe" + len(CONNECT).to_bytes(2, "big") + bytes(4) + CONNECT
"""The same CONNECT in a WebSocket, masked by zeros."""


AS_USERS_DO = """
import sys
from ildm.net.transport import listener
listener.HANDSHAKE_TIMEOUT = {patience}
from ildm.cli import main
sys.exit(main())
"""


class Impatient(NodeProcess):
    """A node whose patience with TLS, which no key sets, is short, too."""

    def command(self) -> Sequence[str | Path]:
        *_, run, config, path = super().command()
        return [sys.executable, "-c", AS_USERS_DO.format(patience=PATIENCE), run, config, path]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, broker: Mosquitto, pki: Pki) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("impatient")
    with node_to_try(directory, broker, pki, "impatient", PATIENCE, Impatient) as target:
        yield target


def client_hello() -> bytes:
    """The first that a client of TLS says, followed by what is none."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    # a record may be as long as that, and it is not over before
    return b"\x16\x03\x01\x40\x00" + outgoing.read()[5:].ljust(2000, b"\0")


def hello() -> bytes:
    """The first that a neighbour says; what it would have to prove after that does not come."""
    terms = Terms("site-z", link_key(SECRET), 10, 100, 1 << 20)
    said = Hello("site-z", 1, "pf", 1, 0, "t", address="x" * 250)
    return DialerHandshake(terms, said, bytes(NONCE), lambda _: None).start()


async def stuck(port: int, first: bytes, then: bytes, tls: ssl.SSLContext | None = None) -> None:
    """Say the first part at once, then byte after byte, until the node ends it."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    try:
        writer.write(first)
        dripping = asyncio.create_task(drip(writer, then))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await reader.read(4096):
                pass
        dripping.cancel()
    finally:
        writer.transport.abort()


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Ten times as fast as a byte a second, as the node is three times as impatient as usual."""
    for byte in data:
        await asyncio.sleep(0.1)
        if writer.is_closing():
            return
        writer.write(bytes([byte]))


async def test_who_gets_stuck_is_sent_away_at_every_stage_while_others_are_served(
    impatient: Target, pki: Pki
) -> None:
    target = impatient
    assert len(CONNECT) / 10 > WAIT + PATIENCE, "who drips does not come to an end by itself"
    connect, first = CONNECT[:10], CONNECT[10:]
    tls = pki.trusting()
    stages = {
        "TCP": stuck_ways(target.plain, b"", CONNECT),
        "CONNECT": stuck_ways(target.plain, connect, first),
        "PROXY": stuck_ways(target.proxied, b"", PROXY),
        "amid PROXY": stuck_ways(target.proxied, PROXY[:20], PROXY[20:]),
        "CONNECT after PROXY": stuck_ways(
            target.proxied, header_v1(("192.0.2.1", 1), ("192.0.2.2", 2)) + connect, first
        ),
        "TLS": stuck_ways(target.tls, b"", client_hello()),
        "ClientHello": stuck_ways(target.tls, client_hello()[:50], client_hello()[50:]),
        "CONNECT over TLS": stuck_ways(target.tls, connect, first, tls),
        "upgrade": stuck_ways(target.websocket, UPGRADE[:30], UPGRADE[30:]),
        "CONNECT in a WebSocket": stuck_ways(target.websocket, SWITCH + FRAME[:20], FRAME[20:]),
        "link": stuck_ways(target.link, b"", hello()),
        "hello": stuck_ways(target.link, hello()[:40], hello()[40:]),
        "proof": stuck_ways(target.link, hello(), b"\xf0" + b"\xff" * 2000),
    }
    tasks = {
        asyncio.create_task(way): f"{stage}, {how}"
        for stage, ways in stages.items()
        for how, several in ways.items()
        for way in several
    }
    await asyncio.to_thread(served, target.plain)
    done, open_still = await asyncio.wait(tasks, timeout=WAIT)
    for task in open_still:
        task.cancel()
    assert sorted({tasks[task] for task in open_still}) == []
    assert [task.exception() for task in done if task.exception()] == []
    await asyncio.to_thread(until, lambda: target.status["clients"] == 0)
    assert not target.node.links_up(1)
    assert target.counted("connect_timeouts") >= 6 * EACH
    assert target.counted("tls_handshakes_failed") >= 4 * EACH
    assert target.counted("proxy_headers_refused") >= 4 * EACH


def served(port: int) -> None:
    with connected("127.0.0.1", port) as client:
        echoes(client, "half/open")


def stuck_ways(
    port: int, first: bytes, then: bytes, tls: ssl.SSLContext | None = None
) -> dict[str, list[Coroutine[None, None, None]]]:
    silent = [stuck(port, first, b"", tls) for _ in range(EACH)]
    return {"silent": silent, "byte after byte": [stuck(port, first, then, tls) for _ in range(EACH)]}
