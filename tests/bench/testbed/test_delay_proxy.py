"""The proxy between sites: nothing early, nothing out of order, nothing without bounds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.mqtt import Connect, MqttError, PingReq, Version
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.testbed import delay_proxy
from ildm_bench.testbed.delay_proxy import (
    GRAIN,
    QUEUE,
    RECEIVE_BUFFER,
    SMALLEST_QUEUE,
    DelayLine,
    Dialer,
    Ending,
    Gate,
    Piece,
    Rates,
    Traffic,
    listening,
    source_of,
)
from tests.support.examples import examples

HELLO = Connect(client_id="site-1/0", keep_alive=5, version=Version.V5).encode()


def test_what_is_on_its_way_arrives_after_the_delay() -> None:
    line = DelayLine(0.04)
    line.put(10.0, b"abc")
    line.put(10.01, Ending.CLOSED)
    assert (line.bytes, line.next) == (3, 10.04)
    assert line.take(10.039) == []
    assert line.take(10.0401) == [b"abc"]
    assert (line.bytes, line.take(10.051), line.next) == (0, [Ending.CLOSED], None)


def test_the_first_packet_waits_for_the_connection_and_nothing_overtakes_it() -> None:
    line = DelayLine(0.04)
    line.put(10.0, b"first", extra=0.08)
    line.put(10.01, b"second")
    assert line.take(10.1) == []
    assert line.take(10.12) == [b"first", b"second"]


def test_on_a_slow_way_bytes_leave_one_after_another() -> None:
    line = DelayLine(0.04)
    line.put(10.0, b"x" * 500, rate=1000)
    line.put(10.1, b"y" * 100, rate=1000)
    assert line.take(10.539) == []
    assert line.take(10.5401) == [b"x" * 500]
    assert line.next == pytest.approx(10.64)
    assert line.take(10.6401) == [b"y" * 100]
    line.put(20.0, b"z", rate=None)
    assert line.next == pytest.approx(20.04)


@examples(100)
@given(
    delay=st.floats(0, 1),
    pauses=st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), max_size=30),
)
def test_a_line_keeps_order_and_is_never_early(delay: float, pauses: list[tuple[float, float]]) -> None:
    line, now, put, taken = DelayLine(delay), 0.0, list[tuple[float, bytes]](), list[Piece]()
    for number, (before, after) in enumerate(pauses):
        now += before
        line.put(now, b"%d" % number)
        put.append((now, b"%d" % number))
        now += after
        taken += line.take(now)
        assert all(sent + delay <= now + GRAIN for sent, _ in put[: len(taken)])
        assert line.bytes == sum(len(data) for _, data in put[len(taken) :])
    taken += line.take(now + delay)
    assert taken == [data for _, data in put]


def test_who_dials_is_read_from_connect() -> None:
    assert [source_of(HELLO[:cut]) for cut in (0, 1, len(HELLO) - 1)] == [None, None, None]
    assert source_of(HELLO + b"more") == "site-1"
    assert source_of(PingReq().encode(Version.V5)) == ""
    with pytest.raises(MqttError):
        source_of(b"GET / HTTP/1.1\r\n" * 100)


class Far:
    """The node behind the gate: what came, and when."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.came.put((reader, writer))


@asynccontextmanager
async def gate(
    far: Far, delay: float, traffic: Traffic, rates: Rates | None = None
) -> AsyncIterator[tuple[str, int]]:
    """A gate of site-2, ``delay`` from site-1 and back, before a node; with rates a shaped one."""
    loop = asyncio.get_running_loop()
    behind = await asyncio.start_server(far.serve, LOOPBACK, 0)
    to = behind.sockets[0].getsockname()
    there = Gate("site-2", (LOOPBACK, 0), to, {"site-1": delay}, {"site-1": delay})
    shaped = rates is not None
    front = await loop.create_server(
        lambda: Dialer(there, traffic, rates, shaped=shaped), sock=listening((LOOPBACK, 0), shaped)
    )
    yield front.sockets[0].getsockname()
    front.close()
    behind.close()


async def test_bytes_cross_both_ways_as_late_as_the_sites_are_apart() -> None:
    far, traffic, loop = Far(), Traffic(), asyncio.get_running_loop()
    async with asyncio.timeout(120), gate(far, 0.05, traffic) as address:
        reader, writer = await asyncio.open_connection(*address)
        began = loop.time()
        for start in range(0, len(HELLO), 7):
            writer.write(HELLO[start : start + 7])
        there, back = await far.came.get()
        assert await there.readexactly(len(HELLO)) == HELLO
        assert loop.time() - began >= 3 * 0.05 - GRAIN
        began = loop.time()
        back.write(b"welcome")
        assert await reader.readexactly(7) == b"welcome"
        assert loop.time() - began >= 0.05 - GRAIN
        writer.close()
        assert await there.read() == b""
        back.close()
    assert traffic == Counter({("site-1", "site-2"): len(HELLO), ("site-2", "site-1"): 7})


async def test_what_is_on_its_way_is_bounded_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of 10 kB and 2 MB: reading stops and goes on, and not a byte is lost or out of place."""
    monkeypatch.setattr(delay_proxy, "WINDOW", 10_000)
    most = 0
    put = DelayLine.put

    def watched(
        line: DelayLine, now: float, piece: Piece, extra: float = 0.0, rate: float | None = None
    ) -> None:
        nonlocal most
        put(line, now, piece, extra, rate)
        most = max(most, line.bytes)

    monkeypatch.setattr(DelayLine, "put", watched)
    data = bytes(range(256)) * 8192
    far, loop = Far(), asyncio.get_running_loop()
    async with asyncio.timeout(120), gate(far, 0.001, Traffic()) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(HELLO + data)
        there, back = await far.came.get()
        writing = loop.create_task(writer.drain())
        assert await there.readexactly(len(HELLO) + len(data)) == HELLO + data
        await writing
        writer.close()
        assert await there.read() == b""
        back.close()
    assert most < 10_000 + 256 * 1024 + 1  # and what asyncio reads at once


async def test_a_slow_link_leaves_what_it_cannot_take_to_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 kB/s until it is made fast again: then all is there at once, in order."""
    most = 0
    put = DelayLine.put

    def watched(
        line: DelayLine, now: float, piece: Piece, extra: float = 0.0, rate: float | None = None
    ) -> None:
        nonlocal most
        put(line, now, piece, extra, rate)
        most = max(most, line.bytes if rate is not None else 0)

    monkeypatch.setattr(DelayLine, "put", watched)
    data = bytes(range(256)) * 8192
    far, rates, loop = Far(), {("site-1", "site-2"): 100_000.0}, asyncio.get_running_loop()
    async with asyncio.timeout(120), gate(far, 0.0, Traffic(), rates) as address:
        _, writer = await asyncio.open_connection(*address)
        began = loop.time()
        writer.write(HELLO + data)
        there, back = await far.came.get()
        first = await there.readexactly(len(HELLO) + 50_000)
        assert loop.time() - began >= 0.5 - GRAIN
        assert most < 100_000 * QUEUE + SMALLEST_QUEUE + 4 * RECEIVE_BUFFER
        rates.clear()
        assert first + await there.readexactly(len(data) - 50_000) == HELLO + data
        writer.close()
        assert await there.read() == b""
        back.close()


@pytest.mark.parametrize("first", [PingReq().encode(Version.V5), HELLO.replace(b"site-1", b"site-9")])
async def test_a_stranger_is_not_let_through(first: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    far = Far()
    async with asyncio.timeout(120), gate(far, 0.0, Traffic()) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(first)
        assert await reader.read() == b""
        writer.close()
    assert far.came.empty()
    assert "to site-2: " in capsys.readouterr().err
