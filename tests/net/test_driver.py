"""The driver of a running node: what a dial reports when it cannot even begin."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
import uvloop

from ildm.api import Unreachable
from ildm.config import Address
from ildm.core.driver import NO_DESCRIPTOR
from ildm.net.driver import AsyncioDriver
from tests.support.ports import free_port


class Dialed:
    """Notes how a dial has ended."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.outcome.set_result("connected")
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self.why = why
        self.outcome.set_result(reason)


async def ended(address: Address) -> Dialed:
    driver = AsyncioDriver(asyncio.get_running_loop())
    endpoint = Dialed()
    driver.dial(address, endpoint, 10)  # type: ignore[arg-type]
    try:
        await asyncio.wait_for(endpoint.outcome, 120)
        return endpoint
    finally:
        await driver.close()


async def dialed(address: Address) -> str:
    return (await ended(address)).outcome.result()


@pytest.mark.parametrize("host", ["foo..bar", "a" * 70 + ".example", ".", "\udc80.example", "a\0b"])
async def test_a_host_name_that_cannot_be_one_is_a_failed_dial(host: str) -> None:
    dial = await ended(Address(host, 1885))
    assert dial.outcome.result() not in ("", "connected")
    assert dial.why is Unreachable.NO_ADDRESS


async def test_a_port_that_is_none_is_a_failed_dial() -> None:
    assert (await dialed(Address("127.0.0.1", 100_000))) != "connected"


async def test_two_dots_in_a_row_are_named() -> None:
    assert (await dialed(Address("foo..bar", 1885))).startswith("foo..bar is no host name")


async def test_a_closed_port_is_a_failed_dial_in_the_words_of_the_system() -> None:
    dial = await ended(Address("127.0.0.1", free_port()))
    assert dial.outcome.result() == "Connection refused"
    assert dial.why is Unreachable.REFUSED


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), Unreachable.NO_ANSWER),
        (OSError(errno.ECONNRESET, "Connection reset"), Unreachable.REFUSED),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Unreachable.NO_ADDRESS),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), Unreachable.NO_ANSWER),
        (OSError("Multiple exceptions: [Errno 111] ('::1'), [Errno 111] ('127.0.0.1')"), Unreachable.REFUSED),
        (OSError("Multiple exceptions: [Errno 113] ('::1'), [Errno 101] ('::2')"), Unreachable.NO_ANSWER),
    ],
)
async def test_what_a_failed_dial_says_of_the_far_end(
    monkeypatch: pytest.MonkeyPatch, error: OSError, why: Unreachable
) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    assert (await ended(Address("far.example", 1885))).why is why


async def test_a_dial_that_succeeds_reports_nothing_else() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await dialed(Address("127.0.0.1", port)) == "connected"


async def test_a_dial_without_an_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def never(*args: object, **options: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "create_connection", never)
    driver = AsyncioDriver(loop)
    endpoint = Dialed()
    driver.dial(Address("127.0.0.1", 1885), endpoint, 0.01)  # type: ignore[arg-type]
    assert await endpoint.outcome == "no answer from 127.0.0.1:1885 within 0.01 s"
    assert endpoint.why is Unreachable.NO_ANSWER


async def test_a_dial_under_way_ends_with_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    async def never(*args: object, **options: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "create_connection", never)
    driver = AsyncioDriver(loop)
    endpoint = Dialed()
    driver.dial(Address("127.0.0.1", 1885), endpoint, 1000)  # type: ignore[arg-type]
    await begun.wait()
    await driver.close()
    assert not endpoint.outcome.done()


async def test_a_dial_without_a_file_descriptor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    assert await dialed(Address("127.0.0.1", 1885)) == NO_DESCRIPTOR


async def test_a_dial_that_fails_at_once_is_told_a_turn_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_connection", fails)
    endpoint = Dialed()
    AsyncioDriver(loop).dial(Address("127.0.0.1", 1885), endpoint, 10)  # type: ignore[arg-type]
    assert not endpoint.outcome.done()  # whoever dials is not called within the call
    assert await endpoint.outcome == "Connection refused"


async def test_a_mistake_within_a_dial_is_for_the_event_loop_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise RuntimeError("a mistake")

    loop = asyncio.get_running_loop()
    told: asyncio.Future[dict[str, Any]] = loop.create_future()
    loop.set_exception_handler(lambda loop, context: told.set_result(context))
    monkeypatch.setattr(loop, "create_connection", fails)
    endpoint = Dialed()
    AsyncioDriver(loop).dial(Address("127.0.0.1", 1885), endpoint, 10)  # type: ignore[arg-type]
    assert str((await told)["exception"]) == "a mistake"
    assert not endpoint.outcome.done()


async def test_the_end_of_a_driver_ends_its_dials_before_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    ended: list[str] = []

    async def never(*args: object, **options: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    monkeypatch.setattr(loop, "create_connection", never)
    driver = AsyncioDriver(loop)
    for _ in range(3):
        driver.dial(Address("127.0.0.1", 1885), Dialed(), 1000)  # type: ignore[arg-type]
    await driver.close()
    assert ended == ["cleaned up"] * 3


def test_what_is_measured_within_an_iteration_of_the_loop_takes_time() -> None:
    """The time of uvloop stands still meanwhile, and has whole milliseconds."""

    async def measured() -> float:
        driver = AsyncioDriver(asyncio.get_running_loop())
        begun = driver.precise()
        sum(range(100))
        taken = driver.precise() - begun
        await driver.close()
        return taken

    assert uvloop.run(measured()) > 0
