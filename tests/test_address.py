from __future__ import annotations

import pytest

from ildm.address import SCHEMES, Address, parse_address
from ildm.net.transport import TRANSPORTS


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", Address("a", 1)),
        ("[::1]:1883", Address("::1", 1883)),
        ("mqtts://broker.example:8883", Address("broker.example", 8883, "mqtts")),
        ("wss://[::]:443", Address("::", 443, "wss")),
        ("unix:/run/mqtt.sock", Address("/run/mqtt.sock", 0, "unix")),
    ],
)
def test_an_address_is_written_as_it_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_plain_tcp_and_a_unix_path_have_a_longer_form() -> None:
    assert parse_address("mqtt://a:1") == Address("a", 1)
    assert parse_address("unix:///run/mqtt.sock") == Address("/run/mqtt.sock", 0, "unix")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://a:1", "expected one of mqtt, mqtts, ws, wss, unix before ://"),
        ("mqtts://a", "expected HOST:PORT"),
        ("mqtts://user@a:1", "expected HOST:PORT"),
        ("wss://a:1/mqtt", "expected HOST:PORT"),
        ("mqtts://::1:1", r"an IPv6 address is written \[ADDRESS\]:PORT"),
        ("unix:", "expected the path of a unix socket"),
        ("a:65536", "expected HOST:PORT with a port from 0 to 65535"),
    ],
)
def test_what_is_no_address(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_address(text)


def test_every_transport_is_that_of_a_known_scheme() -> None:
    assert set(TRANSPORTS) == set(SCHEMES)
    for scheme, transport in TRANSPORTS.items():
        address = Address("a", 1, scheme)
        assert (transport.tls, transport.websocket) == (address.has_tls, address.has_websocket)
