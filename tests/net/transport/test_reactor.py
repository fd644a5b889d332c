"""Plain connections on the node's own epoll, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ildm.core.counters import Counters
from ildm.net.transport.reactor import Reactor
from ildm.net.transport.sockets import Place
from ildm.net.transport.stream import Stream
from ildm.net.transport.turns import Turns
from tests.support.ports import free_port

WAIT = 120.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not holds():  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0)


class Noted:
    """A protocol that notes what it is told."""

    def __init__(self) -> None:
        self.transport: Stream
        self.told: list[str] = []
        self.got = bytearray()
        self.half_open = False
        self.changed = asyncio.Event()
        self.raises = ""
        self.error: Exception | None = None

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()
        if what == self.raises:
            raise ValueError(f"in {what}")

    def connection_made(self, transport: Stream) -> None:
        self.transport = transport
        self._tell("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.got += data
        self._tell("data")

    def eof_received(self) -> bool:
        self._tell("eof")
        return self.half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._tell("lost")

    def pause_writing(self) -> None:
        self._tell("pause")

    def resume_writing(self) -> None:
        self._tell("resume")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def told_of(self, what: str) -> None:
        await self.until(lambda: what in self.told)


class Bench:
    """A reactor that listens, and plain sockets that connect to it."""

    def __init__(self, reactor: Reactor, listening: socket.socket, arrived: list[Noted]) -> None:
        self.reactor = reactor
        self.counters = Counters()
        self.listening = listening
        self.arrived = arrived
        self.loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []

    async def connect(self) -> tuple[socket.socket, Noted]:
        """The peer, and the protocol at this end."""
        before = len(self.arrived)
        far = socket.socket()
        far.setblocking(False)
        self._sockets.append(far)
        await self.loop.sock_connect(far, self.listening.getsockname())
        await until(lambda: len(self.arrived) > before and bool(self.arrived[before].told))
        return far, self.arrived[before]

    async def received(self, far: socket.socket, size: int) -> bytes:
        got = b""
        async with asyncio.timeout(WAIT):
            while len(got) < size:
                part = await self.loop.sock_recv(far, 1 << 20)
                if not part:
                    break
                got += part
        return got

    def end(self) -> None:
        for each in self._sockets:
            each.close()


@asynccontextmanager
async def bench(made: Callable[[], Noted] = Noted) -> AsyncIterator[Bench]:
    reactor = Reactor(asyncio.get_running_loop(), Turns(asyncio.get_running_loop().call_soon, Counters()))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    arrived: list[Noted] = []

    def arrive() -> Noted:
        arrived.append(made())
        return arrived[-1]

    here = Bench(reactor, listening, arrived)
    accepting = reactor.listen(listening, arrive, here.counters)
    try:
        yield here
    finally:
        accepting.close()
        here.end()
        reactor.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a coroutine function on each event loop."""
    runner: Any = uvloop.run if request.param == "uvloop" else asyncio.run
    return lambda work: runner(work())


Run = Callable[[Callable[[], Awaitable[None]]], None]


def test_bytes_come_and_go_as_they_are(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            assert near.transport.get_extra_info("peername") == far.getsockname()
            assert near.transport.get_extra_info("sockname") == far.getpeername()
            assert near.transport.get_extra_info("ssl_object") is None
            for part in (b"a", b"bc", b"\0" * 300_000):
                await here.loop.sock_sendall(far, part)
            await near.until(lambda: len(near.got) == 300_003)
            assert near.got == b"abc" + b"\0" * 300_000
            near.transport.write(b"x")
            near.transport.write(b"")
            near.transport.write(b"yz")
            assert await here.received(far, 3) == b"xyz"
            assert near.transport.get_write_buffer_size() == 0

    run(main)


def test_who_takes_nothing_pauses_the_protocol_and_gets_all_in_the_end(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            near.transport.set_write_buffer_limits(high=100_000)
            sent = b""
            while "pause" not in near.told:
                part = os.urandom(70_000)
                sent += part
                near.transport.write(part)
            assert near.transport.get_write_buffer_size() > 100_000
            near.transport.write(b"more")  # what is written all the same waits, too
            sent += b"more"
            assert await here.received(far, len(sent)) == sent
            await near.told_of("resume")
            assert near.told == ["made", "pause", "resume"]
            assert near.transport.get_write_buffer_size() == 0

    run(main)


def test_what_waits_is_there_once(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            size = 64 << 20
            near.transport.write(bytes(size))
            tracemalloc.start()
            try:
                assert len(await here.loop.sock_recv(far, 1 << 20)) > 0
                got = 0
                while got < size // 4:
                    got += len(await here.loop.sock_recv(far, 1 << 20))
                assert tracemalloc.get_traced_memory()[1] < size // 4
            finally:
                tracemalloc.stop()

    run(main)


@pytest.mark.parametrize("waiting", [False, True])
def test_what_has_come_before_a_reset_is_told_also_when_a_write_hears_of_it_first(
    run: Run, waiting: bool
) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            while waiting and not near.transport.get_write_buffer_size():
                near.transport.write(bytes(70_000))
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            far.send(b"the reason")
            far.close()
            near.transport.write(b"to nobody")
            near.transport.write(b"more")
            await near.told_of("lost")
            assert near.got == b"the reason"
            assert near.told[-2:] == ["data", "lost"]
            assert isinstance(near.error, ConnectionResetError)

    run(main)


def test_who_is_not_read_is_lost_as_soon_as_nothing_can_be_sent(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            for paused in ("before", "after"):
                far, near = await here.connect()
                if paused == "before":
                    near.transport.pause_reading()
                far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                far.send(b"x")
                far.close()
                near.transport.write(b"to nobody")
                assert not near.transport.is_closing() or paused == "before"
                near.transport.pause_reading()
                assert near.transport.is_closing()
                await near.told_of("lost")
                assert near.told == ["made", "lost"]
                assert isinstance(near.error, ConnectionResetError)

    run(main)


def test_an_end_waits_for_what_was_written_a_forced_one_does_not(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            for forced in (False, True):
                far, near = await here.connect()
                sent = 0
                while not near.transport.get_write_buffer_size():
                    near.transport.write(bytes(70_000))
                    sent += 70_000
                near.transport.close()
                assert near.transport.is_closing()
                if forced:
                    near.transport.abort()
                assert "lost" not in near.told  # never within the call
                got = await here.received(far, sent + 1)
                assert len(got) < sent if forced else len(got) == sent
                await near.told_of("lost")
                near.transport.close()
                near.transport.abort()
                near.transport.write(b"to nobody")
                assert near.told.count("lost") == 1
                assert near.error is None
                assert near.transport.get_extra_info("socket") is None

    run(main)


def test_nothing_is_read_while_paused_also_when_the_far_end_has_gone(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            near.transport.pause_reading()
            await here.loop.sock_sendall(far, b"late")
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other, beside = await here.connect()
            await here.loop.sock_sendall(other, b"x")
            await beside.told_of("data")
            assert near.told == ["made"]
            near.transport.resume_reading()
            await near.told_of("data")
            near.transport.pause_reading()
            far.close()  # a reset
            await here.loop.sock_sendall(other, b"y")
            await beside.until(lambda: beside.got == b"xy")
            turns = 0
            for _ in range(50):  # the reactor has nothing to do: it is not told of the reset over and over
                turns += bool(here.reactor._epoll.poll(0))
                await asyncio.sleep(0)
            assert turns == 0
            near.transport.resume_reading()
            await near.told_of("lost")
            assert isinstance(near.error, ConnectionResetError)

    run(main)


def test_half_a_connection(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            near.half_open = True
            far.shutdown(socket.SHUT_WR)
            await near.told_of("eof")
            near.transport.write(b"still here")
            assert await here.received(far, 10) == b"still here"
            near.transport.write_eof()
            near.transport.write_eof()
            with pytest.raises(RuntimeError, match="write_eof"):
                near.transport.write(b"no more")
            assert await here.received(far, 1) == b""
            near.transport.close()
            await near.told_of("lost")
            assert near.told == ["made", "eof", "lost"]
            # what waits goes out before the end of writing
            far, near = await here.connect()
            sent = 0
            while not near.transport.get_write_buffer_size():
                near.transport.write(bytes(70_000))
                sent += 70_000
            near.transport.write_eof()
            assert len(await here.received(far, sent + 1)) == sent
            far.shutdown(socket.SHUT_WR)  # who does not ask for half a connection loses it
            await near.told_of("lost")
            assert near.told[-2:] == ["eof", "lost"]

    run(main)


@pytest.mark.parametrize("where", ["made", "data", "eof", "pause", "resume", "lost"])
def test_a_protocol_that_raises_ends_its_own_connection_only(run: Run, where: str) -> None:
    async def main() -> None:
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
        async with bench() as here:
            other, beside = await here.connect()

            def arrive() -> Noted:
                made = Noted()
                made.raises = where
                here.arrived.append(made)
                return made

            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            accepting = here.reactor.listen(listening, arrive, here.counters)
            here.listening = listening
            far, near = await here.connect()
            if where in ("data", "eof", "lost"):
                await here.loop.sock_sendall(far, b"x")
                far.close()
            elif where in ("pause", "resume"):
                near.transport.set_write_buffer_limits(high=0)
                sent = 0
                while near.told == ["made"]:
                    near.transport.write(bytes(70_000))
                    sent += 70_000
                await here.received(far, sent)
            await near.told_of("lost")
            await here.loop.sock_sendall(other, b"y")
            await beside.told_of("data")
            assert beside.told == ["made", "data"]
            assert [str(each["exception"]) for each in raised] == [f"in {where}"]
            accepting.close()

    run(main)


def test_what_has_ended_in_a_turn_is_told_nothing_more_in_it(run: Run) -> None:
    async def main() -> None:
        class Jealous(Noted):
            """Ends all others when it gets something, and connects anew."""

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                for other in everybody:
                    if other is not self:
                        other.transport.abort()
                for _ in range(20):  # their descriptors must not be in use again before the turn is over
                    fresh = socket.socket()
                    taken.append(fresh.fileno())
                    fresh.close()

        everybody: list[Noted] = []
        taken: list[int] = []
        async with bench(Jealous) as here:
            ends = [await here.connect() for _ in range(20)]
            everybody += [near for _, near in ends]
            descriptors = {near.transport.fd for near in everybody}
            for far, _ in ends:
                far.send(b"x")
            await until(lambda: sum("lost" in near.told for near in everybody) == 19)
            assert sum("data" in near.told for near in everybody) == 1
            assert not descriptors & set(taken)

    run(main)


def test_dials(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with bench() as here:
            outcomes: list[object] = []

            def made(stream: Stream | None, error: Exception | None) -> None:
                outcomes.append(error or stream)

            near = Noted()
            here.reactor.dial(Place(int(socket.AF_INET), here.listening.getsockname()), near, made)
            await near.told_of("made")
            near.transport.write(b"hello")
            await until(lambda: bool(here.arrived and here.arrived[0].got))
            assert outcomes == [near.transport]
            assert near.transport.get_extra_info("peername") == here.listening.getsockname()

            refused = Noted()
            here.reactor.dial(Place(int(socket.AF_INET), ("127.0.0.1", free_port())), refused, made)
            await until(lambda: len(outcomes) == 2)
            assert isinstance(outcomes[1], ConnectionRefusedError)
            assert refused.told == []

            given_up = here.reactor.dial(
                Place(int(socket.AF_INET), here.listening.getsockname()), refused, made
            )
            given_up.abort()
            given_up.abort()
            with pytest.raises(FileNotFoundError):
                here.reactor.dial(Place(int(socket.AF_UNIX), str(tmp_path / "nobody")), refused, made)
            with pytest.raises(OverflowError):
                here.reactor.dial(Place(int(socket.AF_INET), ("127.0.0.1", 100_000)), refused, made)
            for _ in range(20):
                await asyncio.sleep(0)
            assert refused.told == []
            assert len(outcomes) == 2

            path = str(tmp_path / "socket")
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            server: list[Noted] = []
            accepting = here.reactor.listen(
                listening, lambda: server.append(Noted()) or server[-1], here.counters
            )
            local = Noted()
            here.reactor.dial(Place(int(socket.AF_UNIX), path), local, made)
            await local.told_of("made")
            local.transport.write(b"by path")
            await until(lambda: bool(server and server[0].got))
            assert server[0].transport.get_extra_info("sockname") == path
            accepting.close()

    run(main)


def test_who_dials_and_raises_leaves_the_others_as_they_are(run: Run) -> None:
    async def main() -> None:
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))

        def made(stream: Stream | None, error: Exception | None) -> None:
            raise ValueError("in made")

        async with bench() as here:
            near = Noted()
            here.reactor.dial(Place(int(socket.AF_INET), here.listening.getsockname()), near, made)
            await near.told_of("made")
            await until(lambda: bool(raised))
            near.transport.abort()
            await near.told_of("lost")

    run(main)


class Exhausted(socket.socket):
    """Accepts nobody for once."""

    failures = [errno.EMFILE, errno.ECONNABORTED]

    def _accept(self) -> tuple[int, Any]:
        if self.failures:
            raise OSError(self.failures.pop(), "exhausted")
        return super()._accept()  # type: ignore[misc,no-any-return]


def test_who_connects_while_descriptors_are_used_up_is_accepted_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(Exhausted, "failures", [errno.EMFILE, errno.ECONNABORTED])
        async with bench() as here:
            here.listening = listening = Exhausted()
            listening.bind(("127.0.0.1", 0))
            accepting = here.reactor.listen(
                listening, lambda: here.arrived.append(Noted()) or here.arrived[-1], here.counters
            )
            await here.connect()
            assert here.counters["accept_failures"] == 1
            accepting.close()

    run(main)


def test_who_is_left_is_watched_no_more_and_all_others_are(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            pairs = [await here.connect() for _ in range(3)]
            (_, gone), (back_far, back), (far, near) = pairs
            here.reactor.leave([gone.transport, back.transport])
            fd, _, unsent = gone.transport.part()
            assert unsent == b""
            for each, _ in pairs:
                await here.loop.sock_sendall(each, b"more")
            await near.until(lambda: near.got == b"more")
            assert back.got == b""
            back.transport.follow()
            await back.until(lambda: back.got == b"more")
            last_far, last = await here.connect()  # the socket that listens is watched as well
            await here.loop.sock_sendall(last_far, b"last")
            await last.until(lambda: last.got == b"last")
            assert os.read(fd, 9) == b"more"
            os.close(fd)
            back_far.close()
            far.close()
            await back.told_of("lost")
            await near.told_of("lost")
            assert gone.told == ["made"]

    run(main)


def test_sockets_that_an_epoll_watches_already_wake_those_who_expect_them(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            far, near = await here.connect()
            ours, theirs = socket.socketpair()
            filled = select.epoll()
            filled.register(ours.fileno(), select.EPOLLIN)
            theirs.send(b"before")
            here.reactor.watch_by(filled)
            woken = asyncio.Event()
            here.reactor.expect(ours.fileno(), woken.set, is_watched=True)
            async with asyncio.timeout(WAIT):
                await woken.wait()
            stream = here.reactor.take(ours.detach(), noted := Noted(), int(theirs.family))
            stream.resume_reading()
            await noted.until(lambda: noted.got == b"before")
            await here.loop.sock_sendall(far, b"as ever")
            await near.until(lambda: near.got == b"as ever")
            theirs.close()
            await noted.told_of("lost")

    run(main)


def test_ending_a_reactor_ends_all_of_it(run: Run) -> None:
    async def main() -> None:
        async with bench() as here:
            ends = [await here.connect() for _ in range(200)]
            ends[0][1].transport.pause_reading()
            here.reactor.close()
            here.reactor.close()
            assert all(near.told[-1] == "lost" for _, near in ends)
            assert not here.reactor.watched

    run(main)
