"""The transports, by scheme. One is put together of sockets and of what lies on them; see the README."""

from __future__ import annotations

from typing import NamedTuple

from ildm.net.transport.sockets import TCP, UNIX, Sockets


class Transport(NamedTuple):
    """What a scheme stands for."""

    sockets: Sockets
    tls: bool = False
    websocket: bool = False


TRANSPORTS = {
    "mqtt": Transport(TCP),
    "mqtts": Transport(TCP, tls=True),
    "ws": Transport(TCP, websocket=True),
    "wss": Transport(TCP, tls=True, websocket=True),
    "unix": Transport(UNIX),
}
"""One for each of :data:`ildm.address.SCHEMES`."""
