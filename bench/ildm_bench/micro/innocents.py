"""What an innocent client notices of others that flood its broker, or the node before it.

Its round trip (a message of QoS 1 to itself, one after the other) and the answer time of the node's admin
API are measured without an attack and under each of ``ildm_bench.micro.attack``, at the broker alone and at
the node. The attackers share the machine's cores with all else, so the ratio of the broker alone stands
beside. The processor time of broker and node within a round trip tells how much other work came before the
innocent's, however busy the machine is. Attackers of kind ``interest`` are neighbours of the node. The broker
alone has none.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.mqtt import Connect, Framer, Packet, PubAck, Publish, Subscribe, Subscription, Version, decode
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm_bench.micro.attack import ALGORITHM, FLOODS, LINK_KIND, attacked
from ildm_bench.micro.measure import Column, Usage, heading, in_turn, line, machine, median, options, pid_of
from ildm_bench.micro.relay import start

WAYS = ("broker", "node")
QUIET = "none"
"""In place of an attack."""
PAUSE = 0.002
"""Seconds between two round trips."""
ADMIN_PAUSE = 0.1
PATIENCE = 30.0
"""Seconds for one answer: more is a failure."""
LINK_PEERS = 4
"""Attackers that are neighbours."""
SETTLING = 1.0
"""Seconds of an attack before round trips count."""
TOPIC = "innocent/round"
COLUMNS = (
    Column("round trips", 12, ",.0f"),
    Column("p50 ms", 9, ".2f"),
    Column("p99 ms", 9, ".2f"),
    Column("worst ms", 9, ".1f"),
    Column("p50 ratio", 10, ".1f"),
    Column("p99 ratio", 10, ".1f"),
    Column("CPU broker", 11, ".2f"),
    Column("p99", 8, ".2f"),
    Column("CPU node", 9, ".2f"),
    Column("p99", 8, ".2f"),
    Column("admin p50", 10, ".1f"),
    Column("worst ms", 9, ".1f"),
    Column("node busy", 10, ".2f"),
)
Figures = dict[str, float]


class Case(NamedTuple):
    """What is attacked, and how."""

    way: str
    kind: str


def processor_time(pid: int) -> float:
    """Seconds that a process has run until now, to the nanosecond (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class Innocent:
    """A client that sends itself one message after the other. Use as a context manager."""

    def __init__(self, port: int, topic: str = TOPIC) -> None:
        self._topic = topic
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._framer = Framer(1 << 20)
        self._packets: list[Packet] = []
        self._number = 0
        self._socket.sendall(Connect(client_id="innocent", keep_alive=0).encode())
        self._next()
        wanted = [Subscription(topic_filter=topic, qos=1)]
        self._send(Subscribe(packet_id=1, subscriptions=wanted))
        self._next()

    def __enter__(self) -> Innocent:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def round_trip(self) -> float:
        """Seconds until a message has come back.

        Raises:
            TimeoutError: it has not within `PATIENCE`.
            ConnectionError: it was closed.
        """
        self._number = self._number % 65535 + 1
        payload = b"%d" % self._number
        begun = time.perf_counter()
        self._send(Publish(topic=self._topic, payload=payload, qos=1, packet_id=self._number))
        back = None
        acknowledged = False
        while back is None or not acknowledged:
            packet = self._next()
            if isinstance(packet, Publish):
                assert packet.packet_id is not None
                self._send(PubAck(packet_id=packet.packet_id))
                if packet.payload == payload:
                    back = time.perf_counter() - begun
            elif isinstance(packet, PubAck):
                acknowledged = True
        return back

    def next_message(self) -> Publish:
        """The next message that comes. Raises: TimeoutError, ConnectionError."""
        while not isinstance(packet := self._next(), Publish):
            pass
        return packet

    def _send(self, packet: Packet) -> None:
        self._socket.sendall(packet.encode(Version.V311))

    def _next(self) -> Packet:
        while not self._packets:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the innocent client was closed")
            self._packets = [decode(frame, Version.V311) for frame in self._framer.feed(data)]
        return self._packets.pop(0)


@contextmanager
def asked(admin: AdminClient, answers: list[float]) -> Iterator[None]:
    """The admin API is asked meanwhile, by a thread; the seconds that each answer takes are added."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(ADMIN_PAUSE):
            begun = time.perf_counter()
            try:
                admin.status()
            except AdminError:
                answers.append(PATIENCE)
            else:
                answers.append(time.perf_counter() - begun)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2 * PATIENCE)


def noticed(case: Case, seconds: float, clients: int, crossing: bool = False) -> Figures:
    """Round trips of an innocent client and answers of the admin API, in ms, in one case.

    Args:
        crossing: another site wants what the attackers publish.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        broker = start(stack, Mosquitto(directory / "broker", tuned=True))
        port = broker.port
        node: NodeProcess | None = None
        if case.way == "node":
            node = start(stack, NodeProcess(directory / "node", broker.address, ALGORITHM))
            port = node.port
            if crossing:
                far_broker = start(stack, Mosquitto(directory / "far-broker", tuned=True))
                link = {"neighbors": [node.link_address]}
                far = NodeProcess(directory / "far", far_broker.address, ALGORITHM, node_id="far", link=link)
                stack.enter_context(_wants(start(stack, far).port, "flood/#"))
                far.wait_linked(node)
        attacked_port = port
        if case.kind == LINK_KIND:
            assert node is not None, "a broker has no neighbours"
            assert node.link_address is not None
            attacked_port, clients = int(node.link_address.rpartition(":")[2]), LINK_PEERS
        answers: list[float] = []
        quiet = case.kind == QUIET
        attack = nullcontext() if quiet else attacked(attacked_port, case.kind, clients)
        with Innocent(port) as innocent, attack:
            pids = [pid_of(each) for each in (broker, node) if each is not None]
            _round_trips(innocent, min(SETTLING, seconds), pids)
            usage = Usage(*pids)
            with nullcontext() if node is None else asked(AdminClient(node.admin_socket, PATIENCE), answers):
                rows = _round_trips(innocent, seconds, pids)
            used = usage.used()
            passed = usage.passed()
    taken = list(zip(*rows, strict=True))
    found = {"round_trips": float(len(rows)), **_spread(taken[0], ""), **_spread(taken[1], "broker_cpu_")}
    if node is not None:
        found |= {**_spread(taken[2], "node_cpu_"), **_spread(answers, "admin_"), "busy": used[1] / passed}
    return found


@contextmanager
def _wants(port: int, topic_filter: str) -> Iterator[None]:
    """A client that wants something and does not read it: what it is sent its broker drops."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(Connect(client_id="wants", keep_alive=0).encode())
        client.recv(4)
        wanted = [Subscription(topic_filter=topic_filter, qos=0)]
        client.sendall(Subscribe(packet_id=1, subscriptions=wanted).encode(Version.V311))
        client.recv(5)
        yield


def _round_trips(innocent: Innocent, seconds: float, pids: Sequence[int]) -> list[list[float]]:
    """How long each took, and how long these processes ran meanwhile; at least one round trip."""
    rows: list[list[float]] = []
    end = time.perf_counter() + seconds
    while not rows or time.perf_counter() < end:
        before = [processor_time(pid) for pid in pids]
        taken = innocent.round_trip()
        rows.append([taken, *(processor_time(pid) - was for pid, was in zip(pids, before, strict=True))])
        time.sleep(PAUSE)
    return rows


def _spread(seconds: Sequence[float], prefix: str) -> Figures:
    """Milliseconds: median, 99th percentile and worst."""
    ordered = sorted(seconds)
    names = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "worst": len(ordered) - 1}
    return {prefix + name: 1e3 * ordered[place] for name, place in names.items() if ordered}


def report(results: dict[Case, list[Figures]]) -> None:
    """A table of medians over the rounds; ratios are to the same way without an attack."""
    print(heading("attack, way", 20, COLUMNS))
    for case, rounds in results.items():
        found = {name: median(each[name] for each in rounds) for name in rounds[0]}
        quiet = results.get(Case(case.way, QUIET), [])
        ratios = [
            found[name] / median(each[name] for each in quiet) if quiet else None for name in ("p50", "p99")
        ]
        shown: list[Any] = [found[name] for name in ("round_trips", "p50", "p99", "worst")] + ratios
        parts = ("broker_cpu_p50", "broker_cpu_p99", "node_cpu_p50", "node_cpu_p99")
        shown += [found.get(name) for name in (*parts, "admin_p50", "admin_worst", "busy")]
        print(line(f"{case.kind}, {case.way}", 20, COLUMNS, shown))
    print(json.dumps([[*case, rounds] for case, rounds in results.items()]))


def main() -> None:
    parser = options(__doc__, rounds=1, seconds=8.0)
    parser.add_argument("--attacks", nargs="+", default=list(FLOODS), choices=list(FLOODS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--clients", type=int, default=100, help="that attack")
    parser.add_argument("--crossing", action="store_true", help="another site wants what they publish")
    given = parser.parse_args()
    print(machine())
    cases = [
        Case(way, kind)
        for kind in (QUIET, *given.attacks)
        for way in given.ways
        if way == "node" or kind != LINK_KIND
    ]
    results = in_turn(
        given.rounds,
        cases,
        lambda case: noticed(case, given.seconds, given.clients, given.crossing),
        lambda found: f"p50 {found['p50']:.2f}, p99 {found['p99']:.2f} ms",
    )
    report(results)


if __name__ == "__main__":
    main()
