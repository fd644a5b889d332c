"""Distance between sites without the kernel's help: a proxy that hands on late what nodes tell each other.

One process for all links. It listens at one port for each site; that is the address which the others are
told. A node that dials says who it is in its first packet (the client identifier of CONNECT is
``NODE/SESSION``). From then on all bytes of the connection arrive as much later as the two sites are apart,
in order, each way with a delay of its own. The round trip that a TCP connection takes to be made is added to
the first packet.

Delays are kept to half a millisecond on an idle machine; less than that is handed on at once. What is on its
way is bounded: from `WINDOW` bytes on nothing more is read, so a connection carries ``WINDOW / delay`` at
most. Nothing runs while nothing is on its way.

The configuration is a JSON file: ``status``, ``[host, port]`` where whoever connects is told the traffic
(`Traffic`), and ``sites``, a list of `Gate`.
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

from bench.testbed.distance import Distances
from ildm.mqtt import Connect, MqttError, PacketTooLarge, Version, decode, decode_varint
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import HERE, ManagedProcess, Placement

WINDOW = 4 << 20
"""Bytes of one direction of a connection that may be on their way."""
GRAIN = 0.0005
"""Seconds that something may arrive early: the event loop's timers fire up to a millisecond late."""
FIRST_PACKET = 64 << 10
"""Bytes of the largest CONNECT."""
PATIENCE = 10.0
"""Seconds that CONNECT may take to come."""


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

    def put(self, now: float, piece: Piece, extra: float = 0.0) -> None:
        """Send it on its way, ``extra`` seconds later than usual; it overtakes nothing."""
        due = now + self.delay + extra
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


class End(asyncio.Protocol):
    """One end of a connection through the proxy. What it reads goes to ``far``, over ``line``."""

    def __init__(self, line: DelayLine, traffic: Traffic) -> None:
        self.line = line
        self.far: End | None = None
        self.way = ("", "")
        """From which site to which it reads."""
        self._loop = asyncio.get_running_loop()
        self._traffic = traffic
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._writable = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.send(data)

    def eof_received(self) -> bool:
        self._end(Ending.CLOSED)
        return True  # what comes from the far end still goes out, until that closes, too

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
        self.line.put(self._loop.time(), piece, extra)
        self._traffic[self.way] += _size(piece)
        if self.line.bytes >= WINDOW and self._transport is not None:
            self._transport.pause_reading()
        self.hand_on()

    def hand_on(self) -> None:
        """Write at the far end what has arrived there, and come back for the rest."""
        far = self.far
        if far is None or far._transport is None or not far._writable:
            return  # the far end calls when it is there, and can take it
        was_full = self.line.bytes >= WINDOW
        for piece in self.line.take(self._loop.time()):
            if piece is Ending.CLOSED:
                far._transport.close()
            elif piece is Ending.RESET:
                far._transport.abort()
            elif not far._transport.is_closing():
                far._transport.write(piece)
        if was_full and self.line.bytes < WINDOW and self._transport is not None and not self._ended:
            self._transport.resume_reading()
        due = self.line.next
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due - GRAIN, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self.hand_on()

    def _end(self, how: Ending) -> None:
        if not self._ended:
            self._ended = True
            self.send(how)


class Dialer(End):
    """The end of a node that dials; at first it is not known which."""

    def __init__(self, gate: Gate, traffic: Traffic) -> None:
        super().__init__(DelayLine(0.0), traffic)
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
        far = End(DelayLine(gate.back[source]), self._traffic)
        far.way = gate.name, source
        far.far = self
        self._dialing = self._loop.create_task(self._dial(far), name=f"{source} to {gate.name}")

    async def _dial(self, far: End) -> None:
        try:
            await self._loop.create_connection(lambda: far, *self.gate.to)
        except OSError as error:
            self._give_up(str(error))
            return
        self.far = far
        self.hand_on()

    def _give_up(self, why: str) -> None:
        print(f"{self.way[0] or 'somebody'} to {self.gate.name}: {why}", file=sys.stderr, flush=True)
        if self._transport is not None:
            self._transport.abort()


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


async def serve(gates: Sequence[Gate], status: tuple[str, int]) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    traffic: Traffic = Counter()

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps([[*way, count] for way, count in sorted(traffic.items())]).encode())
        writer.close()

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with ExitStack() as stack:
        for gate in gates:
            server = await loop.create_server(partial(Dialer, gate, traffic), *gate.listen)
            stack.callback(server.close)
        stack.callback((await asyncio.start_server(tell, *status)).close)
        await ended.wait()


class DelayProxy(ManagedProcess):
    """The process for sites whose nodes are called ``site-0``, ``site-1`` and so on."""

    name = "delay"

    def __init__(self, directory: Path, distances: Distances, *, place: Placement = HERE) -> None:
        super().__init__(directory, place)
        self.distances = distances
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
        path.write_text(json.dumps({"status": self.address, "sites": [gate._asdict() for gate in gates]}))
        return [sys.executable, "-m", "bench.testbed.delay_proxy", path]

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
        with socket.create_connection(self.address, 5.0) as connection, connection.makefile("rb") as file:
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
    asyncio.run(serve(gates, (host, port)))


if __name__ == "__main__":
    main()
