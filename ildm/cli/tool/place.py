"""Where ``ildm pub`` and ``ildm sub`` connect, and over which transport."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from ildm.address import Address, parse_address
from ildm.mqtt import IldmError
from ildm.text import reason

WEBSOCKET_PATH = "/mqtt"


class Place(NamedTuple):
    """An address and what it takes to talk there."""

    address: Address
    path: str = WEBSOCKET_PATH
    """Of the WebSocket request."""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.address}{self.path if self.address.has_websocket else ''}"


def parse_place(url: str) -> Place:
    """Of an address as configurations have it, or a ws or wss URL with a path.

    Raises:
        ValueError: it is neither; the text says what is wrong.
    """
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    if slash and scheme in ("ws", "wss"):
        address = parse_address(f"{scheme}://{place}")
        return Place(address, f"/{path}")
    return Place(parse_address(url))


def client_context(cafile: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """For a client that trusts ``cafile``, or the system's authorities where there is none.

    Raises:
        IldmError: a file cannot be used; the text names it.
    """
    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:  # as is SSLError
        raise IldmError(f"{cafile}: {_unusable(error)}") from error
    if cert is None and key is None:
        return context
    if cert is None or key is None:
        raise IldmError("--cert and --key belong together")
    try:
        # A password would be asked for on the terminal, where nobody may be.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        raise IldmError(f"{cert}, {key}: {_unusable(error)}") from error
    return context


def _unusable(error: OSError) -> str:
    return "no usable PEM file" if isinstance(error, ssl.SSLError) else reason(error)
