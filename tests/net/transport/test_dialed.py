"""Connecting to a host that has several addresses."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from ildm.config import Address
from ildm.net.transport.sockets import dialed
from tests.support.ports import free_port


class Names:
    """An event loop that knows one host."""

    def __init__(self, *found: tuple[int, tuple[str, int]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._found = found
        self.sock_connect = self._loop.sock_connect

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 0, "", place) for family, place in self._found]


async def dial(*found: tuple[int, tuple[str, int]]) -> socket.socket:
    loop: Any = Names(*found)
    return await asyncio.wait_for(dialed(loop, Address("host", 1)), 120)


async def test_addresses_of_a_family_that_the_machine_does_not_have_are_passed_over() -> None:
    unknown = 255
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = listening.getsockname()
        with await dial((unknown, ("::1", 1)), (socket.AF_INET, there)) as made:
            assert made.getpeername() == there
    with pytest.raises(OSError, match="not supported"):
        await dial((unknown, ("::1", 1)))


async def test_what_each_address_has_failed_with_is_told() -> None:
    refusing = (socket.AF_INET, ("127.0.0.1", free_port()))
    with pytest.raises(ConnectionRefusedError):
        await dial(refusing, refusing)
    # the last alone would hide that somebody has refused
    with pytest.raises(OSError, match=rf"Errno {errno.ECONNREFUSED}.*Errno {errno.EAFNOSUPPORT}"):
        await dial(refusing, (255, ("::1", 1)))
    with pytest.raises(OSError, match="no address"):
        await dial()
