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

import argparse
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
from ildm.core.transfer.qos1 import acknowledgements
from ildm.mqtt import ConnAck, Connect, Framer, PacketType, PingResp, Publish, Version, decode_varint
from ildm.mqtt import decode as decode_packet
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import POLL
from ildm_bench.micro import link_ways, traffic_run
from ildm_bench.micro.measure import cpu_seconds, machine, median

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
            self._transport.write(acknowledgements(data[pos : run[0]], run[1])[1])
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
        message = Publish(topic=f"link/{number}", payload=os.urandom(payload))
        if window:
            message.qos, message.packet_id = 1, 1
        frame = message.encode(Version.V311)
        batch = frame * (window or BATCH // len(frame))
        if window:
            batch = with_ids(batch, len(frame), id_offset(frame), 1)
        while not stop.is_set():
            if not window and written - received.value > AHEAD:
                await asyncio.sleep(PAUSE)
                continue
            written += len(batch)
            writer.write(batch)
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
        counters = [context.Value("q", 0, lock=False) for _ in range(2)]
        ports = [free_port() for _ in counters]
        workers = [context.Process(target=sink, args=pair) for pair in zip(ports, counters, strict=True)]
        nodes: list[NodeProcess] = []
        for worker in workers:
            worker.start()
            stack.callback(worker.kill)
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
        pids = [node.process.pid for node in nodes if node.process is not None]
        before, began = (counters[1].value, [cpu_seconds(pid) for pid in pids]), time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - began
        messages = (counters[1].value - before[0]) / size
        cpu = [cpu_seconds(pid) - used for pid, used in zip(pids, before[1], strict=True)]
        stop.set()
    return {
        "rate": messages / passed,
        **{f"node_{index}": 1e6 * used / messages for index, used in enumerate(cpu)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1))
    parser.add_argument(
        "--window", type=int, nargs="+", default=[50], help="messages a publisher writes at once, QoS 1"
    )
    parser.add_argument("--spool", nargs="+", default=["process"], choices=("off", "process", "power"))
    parser.add_argument("--payload", type=int, default=32, help="bytes")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    traffic = traffic_run.arguments(parser)
    traffic.add_argument(
        "--delay", nargs="+", type=float, default=[], help="seconds; a link with this link.delay, too"
    )
    options = parser.parse_args()
    if options.traffic:
        delays = link_ways.ways(options.delay)

        def opened(way: str, sockets: str, qos: int) -> AbstractContextManager[traffic_run.Way]:
            return link_ways.opened(way, sockets, qos, delays[way])

        traffic_run.main(options, [*delays], opened)
        return
    windows = options.window if options.qos else [0]
    results: dict[Way, list[dict[str, float]]] = {
        way: [] for way in product(options.sessions, windows, options.spool)
    }
    for _ in range(options.rounds):
        for (sessions, window, spool), found in results.items():
            found.append(
                measure(sessions, options.publishers, options.payload, window, options.seconds, spool)
            )
    print(machine())
    print(
        f"{'sessions':>8} {'at once':>8} {'spool':>8} {'messages/s':>11} {'first node us':>14}"
        f" {'second node us':>15} {'ratio':>6} {'ratio':>6}"
    )
    for way, found in results.items():
        sessions, window, spool = way
        rate, first, second = (median([f[key] for f in found]) for key in ("rate", "node_0", "node_1"))
        print(
            f"{sessions:8} {window or 'QoS 0':>8} {spool:>8} {rate:11,.0f} {first:14.2f} {second:15.2f}"
            f" {_ratio(results, way, 'node_0')} {_ratio(results, way, 'node_1')}"
        )
    print(json.dumps([[*way, found] for way, found in results.items()]))


Way = tuple[int, int, str]
"""Sessions, messages at once (0: QoS 0), mode of the spool."""


def _ratio(results: dict[Way, list[dict[str, float]]], way: Way, key: str) -> str:
    """CPU of a node beside that of the first mode, round by round: the median."""
    sessions, window, _ = way
    first = next(found for other, found in results.items() if other[:2] == (sessions, window))
    return f"{median([f[key] / g[key] for f, g in zip(results[way], first, strict=True)]):6.2f}"


if __name__ == "__main__":
    main()
