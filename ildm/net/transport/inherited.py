"""Sockets that listen already when the node starts: another program has made them and keeps them, too."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

Place = str | tuple[object, ...]
"""What a socket is bound to: as ``getsockname`` says it."""


class InheritedError(ValueError):
    """A descriptor cannot be listened on."""


class _Socket(NamedTuple):
    socket: socket.socket
    place: Place
    name: str


class Inherited:
    """Those of this process.

    They stay open to its end, so that an address is there again when a configuration names it anew.
    """

    def __init__(self) -> None:
        self._sockets: list[_Socket] = []
        self._taken: set[int] = set()
        self.lent: Callable[[Place], socket.socket | None] = lambda place: None
        """Those of the process before this one, each for one listener."""

    def add(self, descriptor: int, name: str = "") -> None:
        """Take a descriptor; ``name`` is what its maker calls it.

        Raises:
            InheritedError: it is no stream socket that listens.
        """
        try:
            os.set_inheritable(descriptor, False)
            made = socket.socket(fileno=descriptor)
            listens = made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise InheritedError(f"descriptor {descriptor} is no socket: {error.strerror}") from error
        families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        if not listens or made.type != socket.SOCK_STREAM or made.family not in families:
            raise InheritedError(f"descriptor {descriptor} is no stream socket that listens")
        made.setblocking(False)
        self._sockets.append(_Socket(made, _place(made), name))

    def take(self, place: Place) -> socket.socket | None:
        """The one at a place, which may be taken again and again; None: there is none."""
        wanted = place if isinstance(place, str) else place[:2]
        for each in self._sockets:
            if each.place == wanted:
                self._taken.add(each.socket.fileno())
                return each.socket.dup()
        return None

    def borrow(self, place: Place) -> socket.socket | None:
        """The one that the process before this one has listened on there; it is the caller's."""
        return self.lent(place if isinstance(place, str) else place[:2])

    def share(self) -> list[tuple[int, str]]:
        """Descriptors and names of all, for the next process."""
        return [(each.socket.fileno(), each.name) for each in self._sockets]

    @property
    def paths(self) -> list[str]:
        """Of the unix sockets among them."""
        return [each.place for each in self._sockets if isinstance(each.place, str)]

    @property
    def unused(self) -> list[str]:
        """Those that nobody has taken, for people."""
        return [
            f"{_text(each.place)} ({f'{each.name}, ' if each.name else ''}descriptor {each.socket.fileno()})"
            for each in self._sockets
            if each.socket.fileno() not in self._taken
        ]

    def close(self) -> None:
        for each in self._sockets:
            each.socket.close()


def _place(made: socket.socket) -> Place:
    """Without flow and scope of IPv6."""
    name = made.getsockname()
    return name[:2] if isinstance(name, tuple) else os.fsdecode(name)


def _text(place: Place) -> str:
    if isinstance(place, str):
        return f"unix:{place}"
    host, port = place
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
