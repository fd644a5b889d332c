"""Proxies that are trusted to say where a connection comes from."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING

from ildm.net.transport.proxy import LONGEST_V2, ProxyError, ProxyHeader, parse

if TYPE_CHECKING:
    from ildm.config.transports import ProxyConfig


class Proxies:
    """Those of one listener. They have to say it; nobody else may."""

    def __init__(self, config: ProxyConfig) -> None:
        self._trusted = [ipaddress.ip_network(network) for network in config.trust]
        self._timeout = config.timeout

    def trusts(self, host: str) -> bool:
        """``host`` is an IP address, or empty."""
        try:
            ip = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self._trusted)

    async def header(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> ProxyHeader:
        """Take the header from the socket, and nothing that comes behind it.

        Raises:
            ProxyError: it begins with something else, or with nothing in time.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await _taken(loop, connection)
        except OSError as error:  # that of a time-out among them
            raise ProxyError("no header in time") from error


async def _taken(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> ProxyHeader:
    taken = b""
    while True:
        await _readable(loop, connection)
        # what has come may belong to TLS already: it is looked at first
        seen = taken + connection.recv(LONGEST_V2 - len(taken), socket.MSG_PEEK)
        if len(seen) == len(taken):
            raise ProxyError("ended before its header")
        found = parse(seen)
        rest = (len(seen) if found is None else found.size) - len(taken)
        taken += connection.recv(rest)
        if found is not None:
            return found


async def _readable(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, tell)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
