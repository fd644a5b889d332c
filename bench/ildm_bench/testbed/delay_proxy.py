"""Distance between sites without the kernel's help: a proxy that hands on late what nodes tell each other.

One process for all links. It listens at one port for each site; that is the address which the others are
told. A node that dials says who it is in its first packet (the client identifier of CONNECT is
``NODE/SESSION``). From then on all bytes of the connection arrive as much later as the two sites are apart,
in order, each way with a delay of its own. The round trip that a TCP connection takes to be made is added to
the first packet.

Delays are kept to half a millisecond on an idle machine; less than that is handed on at once. What is on its
way is bounded: from `WINDOW` bytes on nothing more is read, so a connection carries ``WINDOW / delay`` at
most. Nothing runs while nothing is on its way.

A link may be slow, too, and become so while it is used (`DelayProxy.slow`): each direction then passes so
many bytes a second on, one after another, and holds no more than `QUEUE` seconds of them, so that the rest
waits at the node that sends. For that the kernel's buffers have to be small, which `shaped` asks for.

The configuration is a JSON file: ``shaped``; ``sites``, a list of `Gate`; and ``status``, ``[host, port]``
where whoever connects sends a line, a JSON list of ``[source, target, rate]`` to be put into the `Rates`
(null: out of them), and is told the `Traffic`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ildm.mqtt import Connect, MqttError, PacketTooLarge, Version, decode, decode_varint
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import HERE, ManagedProcess, Placement
from ildm_bench.testbed.distance import Distances

WINDOW = 4 << 20
"""Bytes of one direction of a connection that may be on their way."""
GRAIN = 0.0005
"""Seconds that something may arrive early: the event loop's timers fire up to a millisecond late."""
FIRST_PACKET = 64 << 10
"""Bytes of the largest CONNECT."""
PATIENCE = 10.0
"""Seconds that CONNECT may take to come."""
QUEUE = 0.1
"""Seconds that something may wait for its turn on a slow way before nothing more is read."""
SMALLEST_QUEUE = 4 << 10
"""Bytes that may wait however slow it is."""
SEGMENT = 1460
"""Bytes of a TCP segment as on Ethernet: the kernel sizes what a sender may have written by it."""
RECEIVE_BUFFER = 16 << 10
"""Bytes that a shaped proxy leaves to the kernel to receive ahead."""


class Ending(Enum):
    """What comes behind the last data."""

    CLOSED = "closed"
    RESET = "reset"


Piece = bytes | Ending


class DelayLine:
    """What is on its way in one direction; times in seconds of any clock."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.bytes = 0
        self._pieces: deque[tuple[float, Piece]] = deque()
        self._sent_at = 0.0
        """When the last byte so far leaves, where it is slow."""

    def put(self, now: float, piece: Piece, extra: float = 0.0, rate: float | None = None) -> None:
        """Send it on its way, ``extra`` seconds later than usual; it overtakes nothing.

        ``rate`` is in bytes a second; None: all at once.
        """
        leaves = now
        if rate is not None:
            leaves = self._sent_at = max(now, self._sent_at) + _size(piece) / rate
        due = leaves + self.delay + extra
        if self._pieces:
            due = max(due, self._pieces[-1][0])
        self._pieces.append((due, piece))
        self.bytes += _size(piece)

    def take(self, now: float) -> list[Piece]:
        """What has arrived by now."""
        arrived = []
        while self._pieces and self._pieces[0][0] <= now + GRAIN:
            piece = self._pieces.popleft()[1]
            self.bytes -= _size(piece)
            arrived.append(piece)
        return arrived

    @property
    def next(self) -> float | None:
        """When the next piece arrives; None: nothing is on its way."""
        return self._pieces[0][0] if self._pieces else None


class Gate(NamedTuple):
    """Where others reach one site. Delays in seconds, one way, by the name of the other site."""

    name: str
    listen: tuple[str, int]
    to: tuple[str, int]
    towards: dict[str, float]
    back: dict[str, float]


Traffic = Counter[tuple[str, str]]
"""Bytes from one site to another."""
Rates = dict[tuple[str, str], float]
"""Bytes a second from one site to another, of each connection; what is not named is as fast as it can be."""


class End(asyncio.Protocol):
    """One end of a connection through the proxy. What it reads goes to ``far``, over ``line``."""

    def __init__(self, line: DelayLine, traffic: Traffic, rates: Rates | None = None) -> None:
        self.line = line
        self.far: End | None = None
        self.way = ("", "")
        """From which site to which it reads."""
        self._loop = asyncio.get_running_loop()
        self._traffic = traffic
        self._rates: Rates = {} if rates is None else rates
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._reading = True
        self._writable = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.send(data)

    def eof_received(self) -> bool:
        self._end(Ending.CLOSED)
        return True  # what comes from the peer still goes out, until that closes, too

    def connection_lost(self, error: Exception | None) -> None:
        self._end(Ending.CLOSED if error is None else Ending.RESET)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self.far is not None:
            self.far.hand_on()

    def send(self, piece: Piece, extra: float = 0.0) -> None:
        """Put something on its way."""
        self.line.put(self._loop.time(), piece, extra, self._rates.get(self.way))
        self._traffic[self.way] += _size(piece)
        if self._reading and self.line.bytes >= self._window() and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        self.hand_on()

    def hand_on(self) -> None:
        """Write to the peer what has arrived for it, and come back for the rest."""
        far = self.far
        if far is None or far._transport is None or not far._writable:
            return  # the peer calls when it is there, and can take it
        for piece in self.line.take(self._loop.time()):
            if piece is Ending.CLOSED:
                far._transport.close()
            elif piece is Ending.RESET:
                far._transport.abort()
            elif not far._transport.is_closing():
                far._transport.write(piece)
        if not self._reading and self.line.bytes < self._window():
            self._reading = True
            if self._transport is not None and not self._ended:
                self._transport.resume_reading()
        due = self.line.next
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due - GRAIN, self._timed)

    def abort(self) -> None:
        """End the connection at once, with a reset."""
        if self._transport is not None:
            self._transport.abort()

    def _window(self) -> float:
        rate = self._rates.get(self.way)
        return WINDOW if rate is None else max(SMALLEST_QUEUE, rate * (QUEUE + self.line.delay))

    def _timed(self) -> None:
        self._timer = None
        self.hand_on()

    def _end(self, how: Ending) -> None:
        if not self._ended:
            self._ended = True
            self.send(how)


class Dialer(End):
    """The end of a node that dials; at first it is not known which."""

    def __init__(
        self, gate: Gate, traffic: Traffic, rates: Rates | None = None, *, shaped: bool = False
    ) -> None:
        super().__init__(DelayLine(0.0), traffic, rates)
        self._shaped = shaped
        self.gate = gate
        self._first = b""
        self._limit = self._loop.call_later(PATIENCE, self._give_up, "no CONNECT")
        self._dialing: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self._dialing is not None:
            self.send(data)
            return
        self._first += data
        try:
            source = source_of(self._first)
        except MqttError as error:
            self._give_up(str(error))
            return
        if source in self.gate.towards:
            self._limit.cancel()
            self._open(source)
        elif source is not None:
            self._give_up(f"{source!r} is no site")

    def connection_lost(self, error: Exception | None) -> None:
        self._limit.cancel()
        super().connection_lost(error)

    def _open(self, source: str) -> None:
        gate = self.gate
        self.way = source, gate.name
        self.line.delay = gate.towards[source]
        self.send(self._first, self.line.delay + gate.back[source])
        far = End(DelayLine(gate.back[source]), self._traffic, self._rates)
        far.way = gate.name, source
        far.far = self
        self._dialing = self._loop.create_task(self._dial(far), name=f"{source} to {gate.name}")

    async def _dial(self, far: End) -> None:
        try:
            if self._shaped:
                await self._loop.create_connection(lambda: far, sock=await _shaped_connection(self.gate.to))
            else:
                await self._loop.create_connection(lambda: far, *self.gate.to)
        except OSError as error:
            self._give_up(str(error))
            return
        self.far = far
        self.hand_on()

    def _give_up(self, why: str) -> None:
        print(f"{self.way[0] or 'somebody'} to {self.gate.name}: {why}", file=sys.stderr, flush=True)
        self.abort()


def source_of(data: bytes) -> str | None:
    """The node whose link connection begins with these bytes; None as long as they are too few.

    Raises:
        MqttError: they are something else.
    """
    length = decode_varint(data, 1)
    if length is None:
        return None
    end = sum(length)
    if end > FIRST_PACKET:
        raise PacketTooLarge(f"first packet of {end} bytes", clause="MQTT-3.1.2-24")
    if len(data) < end:
        return None
    packet = decode(data[:end], Version.V5)
    return packet.client_id.rpartition("/")[0] if isinstance(packet, Connect) else ""


def _shaped_socket() -> socket.socket:
    """One whose peer can have little under way."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setblocking(False)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
    return found


async def _shaped_connection(address: tuple[str, int]) -> socket.socket:
    connection = _shaped_socket()
    try:
        await asyncio.get_running_loop().sock_connect(connection, address)
    except OSError:
        connection.close()
        raise
    return connection


def listening(address: tuple[str, int], shaped: bool) -> socket.socket:
    """A socket for a gate, bound to its address."""
    if not shaped:
        return socket.create_server(address)
    found = _shaped_socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(address)
    return found


async def serve(gates: Sequence[Gate], status: tuple[str, int], *, shaped: bool = False) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    traffic: Traffic = Counter()
    rates: Rates = {}

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for source, target, rate in json.loads(await reader.readline()):
            rates.pop((source, target), None)
            if rate is not None:
                rates[source, target] = rate
        writer.write(json.dumps([[*way, count] for way, count in sorted(traffic.items())]).encode())
        writer.close()

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with ExitStack() as stack:
        for gate in gates:
            make = partial(Dialer, gate, traffic, rates, shaped=shaped)
            server = await loop.create_server(make, sock=listening(gate.listen, shaped))
            stack.callback(server.close)
        stack.callback((await asyncio.start_server(tell, *status)).close)
        await ended.wait()


class DelayProxy(ManagedProcess):
    """The process for sites whose nodes are called ``site-0``, ``site-1`` and so on."""

    name = "delay"

    def __init__(
        self, directory: Path, distances: Distances, *, shaped: bool = False, place: Placement = HERE
    ) -> None:
        super().__init__(directory, place)
        self.distances = distances
        self.shaped = shaped
        """Small buffers, so that a sender notices soon that a link is slow."""
        self.targets: list[str] = []
        """``host:port`` where the nodes listen, in the order of the sites; to be set before the start."""
        self._ports = [free_port() for _ in distances.names]

    def address_of(self, site: int) -> str:
        """``host:port`` that the others are to be told of a site."""
        return f"{LOOPBACK}:{self._ports[site]}"

    def command(self) -> Sequence[str | Path]:
        delays = self.distances.delays_ms
        gates = [
            Gate(
                name=f"site-{site}",
                listen=(LOOPBACK, self._ports[site]),
                to=_pair(target),
                towards={f"site-{other}": row[site] / 1000 for other, row in enumerate(delays)},
                back={f"site-{other}": delay / 1000 for other, delay in enumerate(delays[site])},
            )
            for site, target in enumerate(self.targets)
        ]
        path = self.directory / "delay.json"
        document = {
            "status": self.address,
            "shaped": self.shaped,
            "sites": [gate._asdict() for gate in gates],
        }
        path.write_text(json.dumps(document))
        return [sys.executable, "-m", "ildm_bench.testbed.delay_proxy", path]

    def ready(self) -> bool:
        try:
            self.traffic()
        except OSError:
            return False
        return True

    def traffic(self) -> Traffic:
        """What has crossed so far.

        Raises:
            OSError: it does not run.
        """
        return self._ask([])

    def slow(self, one: int, other: int, rate: float | None) -> None:
        """Let each connection between two sites pass ``rate`` bytes a second each way, from now on.

        What is on its way already is not held up. None: as fast as it can be.

        Raises:
            OSError: it does not run.
        """
        names = f"site-{one}", f"site-{other}"
        self._ask([(*names, rate), (*names[::-1], rate)])

    def _ask(self, changes: Sequence[tuple[str, str, float | None]]) -> Traffic:
        with socket.create_connection(self.address, 5.0) as connection, connection.makefile("rb") as file:
            connection.sendall(json.dumps(changes).encode() + b"\n")
            return Counter({(source, target): count for source, target, count in json.loads(file.read())})


def _size(piece: Piece) -> int:
    return 0 if isinstance(piece, Ending) else len(piece)


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    gates = [
        Gate(site["name"], tuple(site["listen"]), tuple(site["to"]), site["towards"], site["back"])
        for site in document["sites"]
    ]
    host, port = document["status"]
    asyncio.run(serve(gates, (host, port), shaped=document["shaped"]))


if __name__ == "__main__":
    main()
