"""Sockets of TCP and of the unix domain: bound to listen on, connected to dial."""

from __future__ import annotations

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.unix_socket import close_socket, listen_at, socket_inode

if TYPE_CHECKING:
    from ildm.address import Address
    from ildm.net.transport.inherited import Inherited

Factory = Callable[[], asyncio.Protocol]
Loop = asyncio.AbstractEventLoop
Connected = tuple[asyncio.Transport, asyncio.BaseProtocol]
BACKLOG = 1024
AT_ONCE = 4
"""Connections accepted in one turn of the loop. What they do until they end comes in later turns, a part in
each."""
PAUSE = 1.0
"""Seconds without accepting when a resource has run out."""
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
FAMILIES = (int(socket.AF_INET), int(socket.AF_INET6))
"""Numbers: members of an enumeration take longer to use than the rest of a dial."""


class Place(NamedTuple):
    """Of a socket, as ``connect`` takes it."""

    family: int
    name: str | tuple[str, int]


class Bound:
    """A socket to listen on."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def release(self) -> None:
        """Remove what would stay in the file system."""

    def again(self) -> Bound:
        """The same place once more: who connects comes to whichever of both accepts."""
        return Bound(self.socket.dup())


class _BoundFile(Bound):
    def __init__(self, sock: socket.socket, path: Path) -> None:
        super().__init__(sock)
        self._path = path
        self._inode = socket_inode(path)

    def again(self) -> Bound:
        return _BoundFile(self.socket.dup(), self._path)

    def release(self) -> None:
        if self._inode is not None:
            close_socket(self._path, self._inode)


class Sockets(ABC):
    """One family of sockets."""

    @abstractmethod
    async def bind(self, loop: Loop, address: Address, mode: int, inherited: Inherited) -> list[Bound]:
        """Take an address, without accepting anybody yet; of a host name each of its addresses.

        Args:
            mode: permissions of a unix socket.
            inherited: sockets that are taken in place of new ones.

        Raises:
            OSError: the address cannot be listened on.
        """

    @abstractmethod
    async def serve(self, loop: Loop, bound: Bound, factory: Factory) -> asyncio.Server:
        """Accept, with a protocol of ``factory`` for each connection."""

    @abstractmethod
    def dial(
        self, loop: Loop, factory: Factory, address: Address, **options: Any
    ) -> Coroutine[Any, Any, Connected]:
        """Connect; ``options`` are those of ``loop.create_connection``. Raises: OSError, ValueError."""

    @abstractmethod
    def place(self, address: Address) -> Place | None:
        """Where to connect to; None: it has to be asked for."""


class TcpSockets(Sockets):
    """IPv4 and IPv6."""

    async def bind(self, loop: Loop, address: Address, mode: int, inherited: Inherited) -> list[Bound]:
        found = await loop.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound: list[Bound] = []
        try:
            for family, kind, proto, _, place in dict.fromkeys(found):
                given = inherited.take(place) or inherited.borrow(place)
                if given is not None:
                    bound.append(Bound(given))
                    continue
                try:
                    made = socket.socket(family, kind, proto)
                except OSError:
                    continue  # this machine does not have the family; asyncio passes over it, too
                bound.append(Bound(made))
                made.setblocking(False)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(place)
        except BaseException:
            for each in bound:
                each.socket.close()
            raise
        if not bound:
            raise OSError(f"{address.host} has no address of a kind that this machine can use")
        return bound

    async def serve(self, loop: Loop, bound: Bound, factory: Factory) -> asyncio.Server:
        return await loop.create_server(factory, sock=bound.socket, backlog=BACKLOG)

    def dial(
        self, loop: Loop, factory: Factory, address: Address, **options: Any
    ) -> Coroutine[Any, Any, Connected]:
        return loop.create_connection(factory, address.host, address.port, **options)

    def place(self, address: Address) -> Place | None:
        family = _family_of(address.host)
        return None if family is None else Place(family, (address.host, address.port))


class UnixSockets(Sockets):
    """Sockets in this machine's file system."""

    async def bind(self, loop: Loop, address: Address, mode: int, inherited: Inherited) -> list[Bound]:
        given = inherited.take(address.host)
        if given is not None:
            return [Bound(given)]
        borrowed = inherited.borrow(address.host)
        if borrowed is not None:
            return [_BoundFile(borrowed, Path(address.host))]
        # it listens at once, or the next process would take it for a dead one's; who connects waits
        path = Path(address.host)
        return [_BoundFile(listen_at(path, mode, BACKLOG), path)]

    async def serve(self, loop: Loop, bound: Bound, factory: Factory) -> asyncio.Server:
        return await loop.create_unix_server(factory, sock=bound.socket, backlog=BACKLOG)

    def dial(
        self, loop: Loop, factory: Factory, address: Address, **options: Any
    ) -> Coroutine[Any, Any, Connected]:
        return loop.create_unix_connection(factory, address.host, **options)

    def place(self, address: Address) -> Place | None:
        return Place(int(socket.AF_UNIX), address.host)


@lru_cache(1024)
def _family_of(host: str) -> int | None:
    """Of an address in numbers."""
    for family in FAMILIES:
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


async def dialed(loop: Loop, address: Address) -> socket.socket:
    """A socket that is connected by TCP. Raises: OSError, that of all addresses of the host as asyncio's."""
    failed: list[OSError] = []
    for family, kind, proto, _, place in await loop.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        try:
            made = socket.socket(family, kind, proto)
        except OSError as error:  # this machine may not have the family
            failed.append(error)
            continue
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(made, place)
        except OSError as error:
            failed.append(error)
            made.close()
        except BaseException:
            made.close()
            raise
        else:
            return made
    if not failed:
        raise OSError(f"{address.host} has no address")
    if len({error.errno for error in failed}) == 1:
        raise failed[0]
    raise OSError(f"Multiple exceptions: {', '.join(map(str, failed))}")


TCP = TcpSockets()
UNIX = UnixSockets()
