"""Who pretends to be a proxy, and proxies that say what is none: nobody is taken for somebody else."""

from __future__ import annotations

import contextlib
import socket

import pytest

from ildm.mqtt import Connect
from ildm.net.transport.proxy import SIGNATURE, header_v1, header_v2
from tests.net.transport.client import WAIT
from tests.net.transport.conftest import until
from tests.security.conftest import PER_ADDRESS, Target

ANNA, HERE = ("192.0.2.7", 40_000), ("198.51.100.1", 1883)
CONNECT = Connect(client_id="forged").encode()
PLACES = header_v2(ANNA, HERE)[16:]
TLS = b"\x20\x00\x08" + b"\x07\0\0\0\0" + b"\x22\x00\x00"
"""What a proxy says of a client's TLS, with a name of no letters: whole."""


def v2(body: bytes, length: int | None = None, command: int = 0x21, family: int = 0x11) -> bytes:
    size = len(body) if length is None else length
    return SIGNATURE + bytes([command, family]) + size.to_bytes(2, "big") + body


def answer(port: int, data: bytes, *, end: bool = False) -> bytes:
    """All that comes back; ``end``: nothing more will be sent."""
    with socket.create_connection(("127.0.0.1", port), WAIT) as stranger:
        found = b""
        with contextlib.suppress(ConnectionError):
            stranger.sendall(data)
            if end:
                stranger.shutdown(socket.SHUT_WR)
            found = stranger.recv(4)
        return found


@pytest.mark.parametrize("forged", [header_v1(ANNA, HERE), header_v2(ANNA, HERE), header_v2(ANNA, HERE, TLS)])
@pytest.mark.parametrize("which", ["plain", "unproxied"])
def test_a_header_from_an_address_that_is_not_trusted_is_no_mqtt(
    target: Target, forged: bytes, which: str
) -> None:
    malformed = target.counted("malformed")
    assert answer(getattr(target, which), forged + CONNECT) == b""
    assert target.counted("malformed") == malformed + 1


def test_what_a_trusted_proxy_says_holds(target: Target) -> None:
    assert answer(target.proxied, header_v2(ANNA, HERE, TLS) + CONNECT) == b"\x20\x02\0\0"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(v2(PLACES + TLS, len(PLACES) + len(TLS) - 1), id="length within a TLV"),
        pytest.param(v2(PLACES + b"\x20\x00\xff" + TLS[3:]), id="TLV longer than the header"),
        pytest.param(v2(PLACES + b"\x20\xff\xff"), id="TLV of 65,535 bytes that are not there"),
        pytest.param(v2(PLACES + TLS + b"\x20\x00"), id="half a TLV at the end"),
        pytest.param(v2(PLACES[:-1]), id="addresses cut"),
        pytest.param(v2(PLACES, family=0x21), id="addresses of IPv4 said to be of IPv6"),
        pytest.param(v2(PLACES, length=0xFFFF), id="65,535 bytes announced"),
        pytest.param(v2(PLACES, command=0x31), id="version 3"),
        pytest.param(v2(PLACES, command=0x2F), id="a command that is none"),
        pytest.param(header_v1(ANNA, HERE).replace(b"\r\n", b" x\r\n"), id="a word too many"),
        pytest.param(header_v1(ANNA, HERE).replace(b"192.0.2.7", b"192.0.2.777"), id="no address"),
        pytest.param(b"PROXY TCP4 " + b"1" * 200, id="a line without end"),
        pytest.param(b"", id="no header"),
    ],
)
def test_a_header_with_wrong_lengths_ends_the_connection(target: Target, said: bytes) -> None:
    refused = target.counted("proxy_headers_refused")
    assert answer(target.proxied, said + CONNECT) == b""
    assert target.counted("proxy_headers_refused") == refused + 1


def test_a_header_that_is_cut_at_any_byte_ends_the_connection(target: Target) -> None:
    whole = [header_v1(ANNA, HERE), header_v2(ANNA, HERE, TLS)]
    cut = [header[:at] for header in whole for at in range(len(header))]
    refused = target.counted("proxy_headers_refused")
    assert {answer(target.proxied, begun, end=True) for begun in cut} == {b""}
    until(lambda: target.counted("proxy_headers_refused") == refused + len(cut))


def test_the_clients_address_is_bounded_and_not_the_proxys(target: Target) -> None:
    """Without TLS there is no handshake, so all that an address may have may come at once."""
    held = []
    try:
        for number in range(PER_ADDRESS + 1):
            connection = socket.create_connection(("127.0.0.1", target.proxied), WAIT)
            held.append(connection)
            connection.sendall(header_v2(("192.0.2.50", 1), HERE) + Connect(client_id=f"of{number}").encode())
        answers = []
        for connection in held:
            try:
                answers.append(connection.recv(4))
            except ConnectionError:
                answers.append(b"")
        assert answers.count(b"\x20\x02\0\0") == PER_ADDRESS
    finally:
        for connection in held:
            connection.close()
    until(lambda: target.status["clients"] == 0)
