"""Bytes that a message takes between two sites, over a link with and without compression and over a bridge.

The bytes are those of TCP, both ways, counted by a proxy between the sites, from the first message until the
last has come out of the far broker: acknowledgements, identities and signs of life are among them. Messages
are those of :mod:`ildm_bench.micro.corpora`. The bridge is Mosquitto's. From 2.1 on it has topic aliases. For
an older one the column ``aliases`` is what they would leave: a property in the place of a topic that has been
there before.

``--cpu`` shows instead what a message costs the two nodes at a rate, with compression and without.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ildm.mqtt import Connect, Framer, PacketType, Publish, Subscribe, Subscription, Version
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.micro.corpora import CORPORA, Message, messages
from ildm_bench.micro.link_ways import BOOT, BRIDGE
from ildm_bench.micro.measure import Column, heading, in_turn, line, machine, median, options, pid_of, run_ns
from ildm_bench.micro.relay import ONE_ADDRESS, start
from ildm_bench.testbed.bridging import bridge_lines, wait_crossing

OFF = "off"
ALIAS = 3
"""Bytes of a topic alias."""
ARRIVAL = 20.0
"""Seconds until the last message has to be there."""
READ = 256 << 10
NO_MORE: Mapping[str, object] = {}
WAYS = (BRIDGE, OFF, "deflate", "zstd")


class CountingProxy:
    """Passes on what comes, both ways, in a thread of its own, and counts it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.bytes = 0
        self._target = target
        self._socket = socket.create_server((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._ended = asyncio.Event()

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accepted, sock=self._socket)
        await self._ended.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pass_on(reader, far_writer, out=True)),
                    asyncio.ensure_future(self._pass_on(far_reader, writer, out=False)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            writer.close()
            far_writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, out: bool
    ) -> None:
        """``out``: away from who has dialed."""
        while data := await reader.read(READ):
            self.bytes += len(data)
            writer.write(data)
            await writer.drain()


class Client:
    """A connection to a broker or node that is read in a thread of its own."""

    def __init__(self, address: tuple[str, int], name: str, topic_filter: str | None = None) -> None:
        self.received = 0
        """PUBLISH packets."""
        self._framer = Framer()
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(Connect(client_id=name, keep_alive=600).encode())
        if topic_filter is not None:
            wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=topic_filter)])
            self.socket.sendall(wanted.encode(Version.V311))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while data := self.socket.recv(READ):
            self.received += sum(frame[0] >> 4 == PacketType.PUBLISH for frame in self._framer.feed(data))

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.socket.close()


@dataclass(frozen=True)
class Sites:
    """Two sites and what is between them."""

    near: tuple[str, int]
    far: tuple[str, int]
    """The broker."""
    proxy: CountingProxy
    nodes: Sequence[NodeProcess] = ()


def mosquitto_version() -> tuple[int, ...]:
    said = subprocess.run(["mosquitto", "-h"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    return (0,) if found is None else tuple(int(number) for number in found.groups())


def has_aliases() -> bool:
    """Whether the bridge can use topic aliases."""
    return mosquitto_version() >= (2, 1)


@contextmanager
def opened(
    way: str,
    qos: int,
    delay: float,
    between: Callable[[tuple[str, int]], CountingProxy] = CountingProxy,
    near_link: Mapping[str, object] = NO_MORE,
) -> Iterator[Sites]:
    """A bridge, or a link with ``way`` as its ``link.compression``.

    Args:
        between: makes the proxy.
        near_link: more keys of the section ``link`` at the near site.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        far = start(stack, Mosquitto(directory / "far-broker", tuned=True))
        lines: tuple[str, ...] = ()
        if way == BRIDGE:
            proxy = stack.enter_context(between(far.address))
            lines = bridge_lines("near", "far", f"{LOOPBACK}:{proxy.port}", qos)
            if has_aliases():
                lines += ("bridge_protocol_version mqttv50", "bridge_max_topic_alias 1000")
        near = start(stack, Mosquitto(directory / "near-broker", tuned=True, extra=lines))
        if way == BRIDGE:
            wait_crossing(near.address, far.address, BOOT)
            yield Sites(near.address, far.address, proxy)
            return
        link: dict[str, object] = {"compression": way, "delay": delay}
        extra = {"log": {"level": "error"}, "limits": ONE_ADDRESS}
        there = NodeProcess(directory / "far", far.address, "pf", node_id="far", extra=extra, link=link)
        start(stack, there)
        assert there.link_address is not None
        host, _, port = there.link_address.rpartition(":")
        proxy = stack.enter_context(between((host, int(port))))
        link |= {"neighbors": [f"{LOOPBACK}:{proxy.port}"], **near_link}
        here = NodeProcess(directory / "near", near.address, "pf", node_id="near", extra=extra, link=link)
        start(stack, here).wait_linked(there)
        wait_crossing(here.address, far.address, BOOT)
        yield Sites(here.address, far.address, proxy, (here, there))


def publish(
    near: tuple[str, int],
    far: tuple[str, int],
    corpus: Sequence[Message],
    rate: float,
    qos: int,
    arrival: float = ARRIVAL,
) -> None:
    """At even times, and what is late as soon as may be; until all is at the far broker."""
    there, here = Client(far, "far", "#"), Client(near, "near")
    time.sleep(0.3)
    try:
        frames = [
            Publish(
                topic=topic, payload=payload, qos=qos, packet_id=number % 65_535 + 1 if qos else None
            ).encode(Version.V311)
            for number, (topic, payload) in enumerate(corpus)
        ]
        before, began, sent = there.received, time.perf_counter(), 0
        while sent < len(frames):
            due = min(len(frames), 1 + int((time.perf_counter() - began) * rate))
            if due > sent:
                here.socket.sendall(b"".join(frames[sent:due]))
                sent = due
            time.sleep(max(0.001, began + sent / rate - time.perf_counter()))
        give_up = time.monotonic() + arrival
        while there.received - before < len(frames):
            if time.monotonic() > give_up:
                missing = len(frames) - there.received + before
                raise TimeoutError(f"{missing} of {len(frames)} messages have not come")
            time.sleep(0.01)
    finally:
        here.close()
        there.close()


def bytes_of(sites: Sites, corpus: Sequence[Message], rate: float, qos: int) -> float:
    """Of a message."""
    before = sites.proxy.bytes
    publish(sites.near, sites.far, corpus, rate, qos)
    return (sites.proxy.bytes - before) / len(corpus)


def with_aliases(bridge: float, corpus: Sequence[Message]) -> float:
    """What topic aliases would leave of a bridge's bytes of a message."""
    topics = {topic for topic, _ in corpus}
    saved = sum(len(topic) for topic, _ in corpus) - sum(map(len, topics))
    return bridge - saved / len(corpus) + ALIAS + 1


def show_bytes(rates: Sequence[float], seconds: float, qos: int, delay: float, ways: Sequence[str]) -> None:
    found: dict[tuple[str, float], list[float]] = {}
    for way in ways:
        with opened(way, qos, delay) as sites:
            for corpus in CORPORA:
                for rate in rates:
                    chosen = messages(corpus, max(1, int(rate * seconds)))
                    found.setdefault((corpus, rate), []).append(bytes_of(sites, chosen, rate, qos))
    columns = [Column(way, 9, ".1f") for way in ways]
    columns.append(Column("aliases", 9, ".1f"))
    columns.extend(Column(f"/{way}", 9, ".2f") for way in ways[1:])
    print(heading("bytes of a message", 24, columns))
    for (corpus, rate), values in found.items():
        aliases = with_aliases(values[0], messages(corpus, max(1, int(rate * seconds))))
        ratios = [values[0] / value for value in values[1:]]
        print(
            line(f"{corpus}, {rate:g}/s", 24, columns, [*values, None if has_aliases() else aliases, *ratios])
        )


def cpu_of(way: str, rate: float, seconds: float, delay: float) -> tuple[float, float]:
    """Microseconds of CPU of the near and the far node for a message."""
    corpus = messages("readings", int(rate * seconds))
    with opened(way, 0, delay) as sites:
        publish(sites.near, sites.far, corpus[: int(rate)], rate, 0)
        before = [run_ns(pid_of(node)) for node in sites.nodes]
        publish(sites.near, sites.far, corpus, rate, 0)
        near, far = (
            (run_ns(pid_of(node)) - began) / 1e3 / len(corpus)
            for node, began in zip(sites.nodes, before, strict=True)
        )
        return near, far


def show_cpu(rate: float, seconds: float, delay: float, rounds: int, ways: Sequence[str]) -> None:
    found = in_turn(
        rounds, ways, lambda way: cpu_of(way, rate, seconds, delay), lambda cpu: f"{cpu[0]:.2f} {cpu[1]:.2f}"
    )
    columns = [Column("near us", 9, ".2f"), Column("far us", 9, ".2f")]
    print(heading(f"CPU of a message, {rate:g}/s", 28, columns))
    for way, values in found.items():
        print(line(way, 28, columns, [median(side) for side in zip(*values, strict=True)]))


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=5.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[10, 1000], help="messages a second")
    parser.add_argument("--qos", type=int, default=1, choices=[0, 1])
    parser.add_argument("--delay", type=float, default=0.0, help="link.delay in seconds")
    parser.add_argument("--cpu", type=float, metavar="RATE", help="show CPU at this rate instead")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    given = parser.parse_args()
    print(machine())
    if given.cpu:
        ways = [way for way in given.ways if way != BRIDGE]
        show_cpu(given.cpu, given.seconds, given.delay, given.rounds, ways)
    else:
        show_bytes(given.rates, given.seconds, given.qos, given.delay, given.ways)


if __name__ == "__main__":
    main()
