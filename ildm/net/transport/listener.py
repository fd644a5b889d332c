"""A place where others connect to this node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ildm.mqtt import IldmError
from ildm.net.transport.schemes import TRANSPORTS

if TYPE_CHECKING:
    import socket

    from ildm.address import Address
    from ildm.net.transport.sockets import Bound, Factory


class ListenError(IldmError):
    """An address cannot be listened on."""


class Listener:
    """Listens on one address, which may be several sockets.

    Args:
        key: where the address stands in the configuration; for errors.
        factory: makes what a connection talks with; it has the methods of ``asyncio.Protocol``.
        mode: permissions of a unix socket.
    """

    def __init__(self, address: Address, key: str, factory: Callable[[], object], mode: int = 0o600) -> None:
        self.address = address
        self.key = key
        self._factory = cast("Factory", factory)
        self._mode = mode
        self._sockets = TRANSPORTS[address.scheme].sockets
        self._bound: list[Bound] = []
        self._servers: list[asyncio.Server] = []

    @property
    def sockets(self) -> list[socket.socket]:
        """Those which are bound; empty once closed."""
        return [bound.socket for bound in self._bound]

    @property
    def port(self) -> int:
        """The port that is listened on, also where the system has chosen it; 0 of a unix socket."""
        place = self._bound[0].socket.getsockname() if self._bound else None
        return place[1] if isinstance(place, tuple) else 0

    async def open(self) -> None:
        """Take the address; nobody is served yet.

        Raises:
            ListenError: that cannot be done; it names the key.
        """
        loop = asyncio.get_running_loop()
        try:
            self._bound = await self._sockets.bind(loop, self.address, self._mode)
        except OSError as error:
            raise ListenError(
                f"{self.key}: cannot listen on {self.address}: {error.strerror or error}"
            ) from error

    async def serve(self) -> None:
        """Serve whoever connects.

        Raises:
            ListenError: another process has begun to listen on the address meanwhile.
        """
        loop = asyncio.get_running_loop()
        try:
            for bound in self._bound:
                self._servers.append(await self._sockets.serve(loop, bound, self._factory))
        except OSError as error:
            raise ListenError(
                f"{self.key}: cannot listen on {self.address}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Take nobody more. Those who are connected stay."""
        for bound in self._bound:
            bound.release()
        for server in self._servers:
            server.close()
        for bound in self._bound[len(self._servers) :]:
            bound.socket.close()
        self._bound = []
        self._servers = []
