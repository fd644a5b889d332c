"""What one link carries when nothing but the two nodes limits it.

Both brokers are sinks: they accept every client and count the PUBLISH bytes they get. A few publishers write
as fast as the far sink receives, so that nothing is dropped: at QoS 0 they are at most ``AHEAD`` bytes
ahead of it, at QoS 1 each writes a window of messages and waits for their acknowledgements, which both
brokers give. So the figure is messages per second from clients to the far broker, and CPU of the nodes for
each of them: relaying it into the own broker, transferring it, and injecting it at the other side.

``--spool off process power`` shows beside each other what it costs to keep the messages on disk, in rounds
that alternate; ``--window 1 50`` the same for messages that come alone and in runs. ``--traffic`` takes other
kinds of traffic (``ildm_bench.micro.traffic``) between real brokers, beside Mosquitto's bridge.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from ildm.core.frames import PUBLISH, id_offset, publish_run, with_ids
from ildm.core.transfer.batch import Batch
from ildm.mqtt import ConnAck, Connect, Framer, PacketType, PingResp, Publish, Version, decode_varint
from ildm.mqtt import decode as decode_packet
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import POLL
from ildm_bench.micro import link_ways, traffic_run
from ildm_bench.micro.measure import Column, Usage, heading, in_turn, line, machine, median, options, pid_of

BATCH = 64_000
"""Bytes that a publisher of QoS 0 writes at once."""
AHEAD = 2 << 20
"""Bytes of QoS 0 on their way between publishers and far sink: less than the queue of the link holds."""
PAUSE = 0.0005
"""Seconds until a publisher that is too far ahead looks again."""
INFLIGHT = 10_000
"""Messages of QoS 1 under way on a link: room for all that the publishers have."""


class Sink(asyncio.Protocol):
    """A broker that forgets: counts the bytes published to it and acknowledges what wants to be."""

    def __init__(self, received: Synchronized[int]) -> None:
        self._received = received
        self._framer = Framer(1 << 24)
        self._version: Version | None = None
        self._plain = False
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._plain:
            self._received.value += len(data)
            return
        if self._version is not None:
            data = self._runs(self._rest + data)
            if self._plain or not data:
                return
        for frame in self._framer.feed(data):
            kind = frame[0] >> 4
            if kind == PacketType.CONNECT:
                packet = decode_packet(frame, Version.V311)
                assert isinstance(packet, Connect)
                self._version = packet.version
                self._transport.write(ConnAck().encode(packet.version))
            elif kind == PacketType.PINGREQ:
                self._transport.write(PingResp().encode(Version.V311))

    def _runs(self, data: bytes) -> bytes:
        """Take the PUBLISH frames which the data begins with; answers what follows them."""
        self._rest = b""
        pos = 0
        while pos < len(data) and data[pos] >> 4 == PacketType.PUBLISH:
            if data[pos] == PUBLISH:
                self._plain = True  # QoS 0 has begun: from here on bytes are counted alone
                self._received.value += len(data) - pos
                return b""
            length = decode_varint(data, pos + 1)
            if length is None or sum(length) > len(data):
                self._rest = data[pos:]
                return b""
            v5 = self._version is Version.V5
            run = publish_run(data, pos, length[1], sum(length), v5)
            assert run is not None
            batch = Batch(data[pos : run[0]], (run[0] - pos) // run[1], run[1])
            self._transport.write(batch.acknowledgements(1)[1])
            self._received.value += run[0] - pos
            pos = run[0]
        return data[pos:]


def sink(port: int, received: Synchronized[int]) -> None:
    """Run one sink until killed."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Sink(received), LOOPBACK, port)
        await server.serve_forever()

    import uvloop  # noqa: PLC0415

    uvloop.run(serve())


def sinks(stack: ExitStack, count: int) -> tuple[list[int], list[Synchronized[int]]]:
    """So many sinks, which run as long as the stack is open: their ports, and what each has received."""
    context = multiprocessing.get_context("fork")
    ports = [free_port() for _ in range(count)]
    counters = [context.Value("q", 0, lock=False) for _ in ports]
    for place in zip(ports, counters, strict=True):
        process = context.Process(target=sink, args=place)
        process.start()
        stack.callback(process.kill)
    return ports, counters


def batch(topic: str, payload: bytes, qos: int, count: int) -> bytes:
    """So many messages alike of a client; with packet identifiers from 1 on at QoS 1."""
    frame = Publish(topic=topic, payload=payload, qos=qos, packet_id=1 if qos else None).encode(Version.V311)
    return with_ids(frame * count, len(frame), id_offset(frame), 1) if qos else frame * count


def publishers(
    port: int, count: int, payload: int, window: int, received: Synchronized[int], stop: Any
) -> None:
    """``count`` publishers of a topic each that write as fast as they may, until ``stop`` is set.

    With a ``window`` they publish at QoS 1, so many messages at a time. ``received``: bytes at the far sink.
    """
    written = 0

    async def one(number: int) -> None:
        nonlocal written
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(Connect(client_id=f"fast-{number}", keep_alive=0).encode())
        await reader.readexactly(4)
        topic, data = f"link/{number}", os.urandom(payload)
        messages = window or BATCH // len(batch(topic, data, 0, 1))
        burst = batch(topic, data, int(window > 0), messages)
        while not stop.is_set():
            if not window and written - received.value > AHEAD:
                await asyncio.sleep(PAUSE)
                continue
            written += len(burst)
            writer.write(burst)
            await writer.drain()
            if window:
                await reader.readexactly(4 * window)
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(count)))

    import uvloop  # noqa: PLC0415

    uvloop.run(all_of_them())


def measure(
    sessions: int, count: int, payload: int, window: int, seconds: float, spool: str
) -> dict[str, float]:
    """Messages per second, and CPU microseconds of each node per message."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        ports, counters = sinks(stack, 2)
        nodes: list[NodeProcess] = []
        time.sleep(0.3)
        link = {
            "sessions": sessions,
            "overflow": "block",
            "queue_bytes": 4 << 20,
            "queue_messages": 1_000_000,
            "inflight": INFLIGHT,
        }
        for index, port in enumerate(ports):
            node = NodeProcess(
                Path(name) / f"node-{index}",
                (LOOPBACK, port),
                "pf",
                node_id=f"node-{index}",
                link=link,
                extra={"spool": {"mode": spool}},
            )
            if nodes:
                node.document["link"]["neighbors"] = [nodes[0].link_address]
            node.start()
            stack.callback(node.kill)
            nodes.append(node)
        while not nodes[0].links_up(1):
            time.sleep(POLL)
        load = context.Process(
            target=publishers, args=(nodes[0].port, count, payload, window, counters[1], stop)
        )
        load.start()
        stack.callback(load.kill)
        time.sleep(1.0)
        size = len(Publish(topic="link/0", payload=bytes(payload)).encode(Version.V5)) + 2 * bool(window)
        before, usage = counters[1].value, Usage(*map(pid_of, nodes))
        time.sleep(seconds)
        passed = usage.passed()
        messages = (counters[1].value - before) / size
        cpu = usage.used()
        stop.set()
    return {
        "rate": messages / passed,
        **{f"node_{index}": 1e6 * used / messages for index, used in enumerate(cpu)},
    }


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=4.0)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1))
    parser.add_argument(
        "--window", type=int, nargs="+", default=[50], help="messages a publisher writes at once, QoS 1"
    )
    parser.add_argument("--spool", nargs="+", default=["process"], choices=("off", "process", "power"))
    parser.add_argument("--payload", type=int, default=32, help="bytes")
    traffic = traffic_run.arguments(parser)
    traffic.add_argument(
        "--delay", nargs="+", type=float, default=[], help="seconds; a link with this link.delay, too"
    )
    traffic.add_argument(
        "--read-wait", nargs="+", type=float, default=[], help="seconds; the same for limits.read_wait"
    )
    given = parser.parse_args()
    if given.traffic is not None:
        ways = link_ways.ways(given.delay, given.read_wait)

        def opened(way: str, sockets: str, qos: int) -> AbstractContextManager[traffic_run.Way]:
            return link_ways.opened(way, sockets, qos, ways[way])

        traffic_run.main(given, [*ways], opened)
        return

    def measured(way: Way) -> dict[str, float]:
        sessions, window, spool = way
        return measure(sessions, given.publishers, given.payload, window, given.seconds, spool)

    windows = given.window if given.qos else [0]
    results = in_turn(given.rounds, product(given.sessions, windows, given.spool), measured)
    print(machine())
    print(heading("sessions", 8, COLUMNS))
    for way, found in results.items():
        sessions, window, spool = way
        figures = [median(each[key] for each in found) for key in ("rate", "node_0", "node_1")]
        ratios = [_ratio(results, way, key) for key in ("node_0", "node_1")]
        print(line(f"{sessions:8}", 8, COLUMNS, [str(window or "QoS 0"), spool, *figures, *ratios]))
    print(json.dumps([[*way, found] for way, found in results.items()]))


COLUMNS = (
    Column("at once", 8, ""),
    Column("spool", 8, ""),
    Column("messages/s", 11, ",.0f"),
    Column("first node us", 14, ".2f"),
    Column("second node us", 15, ".2f"),
    Column("ratio", 6, ".2f"),
    Column("ratio", 6, ".2f"),
)


Way = tuple[int, int, str]
"""Sessions, messages at once (0: QoS 0), mode of the spool."""


def _ratio(results: dict[Way, list[dict[str, float]]], way: Way, key: str) -> float:
    """CPU of a node beside that of the first mode, round by round: the median."""
    sessions, window, _ = way
    first = next(found for other, found in results.items() if other[:2] == (sessions, window))
    return median(f[key] / g[key] for f, g in zip(results[way], first, strict=True))


if __name__ == "__main__":
    main()
