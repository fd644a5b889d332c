"""Addresses: a host and a port, or a URL that also says how to talk there."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

TLS_SCHEMES = frozenset(("mqtts", "wss"))
WEBSOCKET_SCHEMES = frozenset(("ws", "wss"))
SCHEMES = ("mqtt", "mqtts", "ws", "wss", "unix")
"""How to talk at an address; ``ildm.net.transport`` has a transport for each."""


class Address(NamedTuple):
    """Where somebody listens, and in which way."""

    host: str
    """Of scheme unix: the path of the socket."""
    port: int
    scheme: str = "mqtt"
    """One of ``SCHEMES``."""

    def __str__(self) -> str:
        """``HOST:PORT`` of plain TCP, else a URL; :func:`parse_address` reads either."""
        if self.scheme == "unix":
            return f"unix:{self.host}"
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return place if self.scheme == "mqtt" else f"{self.scheme}://{place}"

    @property
    def has_tls(self) -> bool:
        return self.scheme in TLS_SCHEMES

    @property
    def has_websocket(self) -> bool:
        return self.scheme in WEBSOCKET_SCHEMES

    @property
    def is_local(self) -> bool:
        """Nobody on another machine is there, or comes from there."""
        return self.scheme == "unix" or self.is_loopback

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Every address of the machine, as in 0.0.0.0: one to listen on, not one to dial."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_address(text: object) -> Address:
    """``host:port``, ``[ipv6]:port``, ``scheme://host:port`` or ``unix:/path``.

    Raises:
        ValueError: it is none of these; the text says what is wrong.
    """
    if isinstance(text, Address):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        raise ValueError(f"expected HOST:PORT, such as 127.0.0.1:{text}")
    if not isinstance(text, str):
        raise ValueError("expected one address as text, HOST:PORT")
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path or "\0" in path:
            raise ValueError(f"{text!r}: expected the path of a unix socket, unix:/PATH")
        return Address(path, 0, "unix")
    scheme, found, place = text.partition("://")
    if not found:
        scheme, place = "mqtt", text
    elif scheme not in SCHEMES:
        raise ValueError(f"{text!r}: expected one of {', '.join(SCHEMES)} before ://")
    host, colon, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address is written [ADDRESS]:PORT")
    wrong = found and set(host) & set("/@?#")
    if wrong or not colon or not host or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise ValueError(f"{text!r}: expected HOST:PORT with a port from 0 to 65535")
    return Address(host, int(port), scheme)
