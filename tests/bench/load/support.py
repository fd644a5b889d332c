"""What the tests of the load generator share: scenarios, targets that misbehave, a reader of its logs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ildm.mqtt import Packet, Version, decode
from ildm.testing.virtual.broker import Broker
from ildm_bench.load.coordinator import RunProgress, RunSpec, run_load
from ildm_bench.load.payload import LAYOUT, MAGIC
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.schema import RECEIVE, SEND, run_directory
from ildm_bench.processes import Snapshot

LOOPBACK = "127.0.0.1"


def scenario(**changes: Any) -> Scenario:
    """One second, one topic of two publishers and a subscriber."""
    given: dict[str, Any] = {
        "name": "test",
        "duration": 1.0,
        "warm_up": 0.2,
        "cool_down": 0.2,
        "drain": 20.0,
        "interval": 100.0,
        "topics": [{"name": "t", "publishers": 2, "subscribers": 1}],
    }
    return Scenario.model_validate(given | changes)


async def load(results: Path, targets: Sequence[str], load: Scenario, **options: Any) -> Manifest:
    """Run it; what it leaves is in `results`."""
    return await run_load(RunSpec(load, targets, results, **options))


def address(server: tuple[str, int]) -> str:
    return f"{server[0]}:{server[1]}"


def message(seq: int = 0, size: int = 32, topic: int = 0, publisher: int = 0) -> bytes:
    """The payload of a message of the load."""
    return LAYOUT.pack(MAGIC, topic, publisher, seq, 10 * seq, 10 * seq + 1).ljust(size, b"\0")


def generator_processes() -> list[int]:
    """Ids of the local workers that this process has started."""
    own = os.getpid()
    children = [pid for pid, process in Snapshot.take().processes.items() if process.parent == own]
    return [pid for pid in children if b"ildm_bench.load.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


class During:
    """To be given as `progress`: does each of `actions` once, when the run is that many seconds old."""

    def __init__(self, *actions: tuple[float, Callable[[], None]]) -> None:
        self.left = list(actions)

    def __call__(self, progress: RunProgress) -> None:
        while self.left and progress.passed > self.left[0][0]:
            self.left.pop(0)[1]()


def stop(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def go_on(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def target(talk: Talk) -> AsyncIterator[str]:
    """A server that says to each client what `talk` says, and closes; gives its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        yield address(server.sockets[0].getsockname())


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection; what is sent on the second at once has come to the first at once."""
    with socket.create_server((LOOPBACK, 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


async def read_packet(reader: asyncio.StreamReader, version: Version = Version.V311) -> Packet:
    """One packet from a client."""
    data = await reader.readexactly(2)
    length = shift = 0
    while data[-1] & 0x80:
        data += await reader.readexactly(1)
    for byte in data[1:]:
        length |= (byte & 0x7F) << shift
        shift += 7
    return decode(data + await reader.readexactly(length), version)


class WatchedBroker(Broker):
    """A broker in this process whose connections can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.happened = asyncio.Event()

    def flush(self) -> None:
        """Each connection does so when something has come, or it has ended."""
        super().flush()
        self.happened.set()

    def _protocol(self) -> Any:
        return self.connection()  # duck-typed

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when that is so; TimeoutError after a minute."""
        async with asyncio.timeout(120):
            while not condition():
                self.happened.clear()
                await self.happened.wait()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve; gives the address."""
        server = await asyncio.get_running_loop().create_server(self._protocol, LOOPBACK, 0)
        async with server:
            yield address(server.sockets[0].getsockname())


Rows = list[dict[str, Any]]


def read_log(directory: Path, role: str) -> Rows:
    """All rows of a role, whose files must have the schema of `ildm_bench.measure.schema`."""
    rows: Rows = []
    for path in sorted((directory / f"role={role}").glob("*.parquet")):
        table = pq.ParquetFile(path).read()
        assert table.schema.equals({"send": SEND, "receive": RECEIVE}[role]), path
        rows += table.to_pylist()
    return rows


def check_logs(results: Path, manifest: Manifest) -> tuple[Rows, Rows]:
    """Check what logs of a run that lost nothing must fulfil; gives the rows sent and received."""
    directory = run_directory(results, manifest.run)
    assert Manifest.read(directory) == manifest
    sent, received = read_log(directory, "send"), read_log(directory, "receive")
    clients = manifest.clients
    slack = sum(worker.clock_error_ns + abs(worker.clock_drift_ns) for worker in manifest.workers)

    by_publisher: dict[int, Rows] = defaultdict(list)
    for row in sent:
        by_publisher[row["publisher"]].append(row)
    assert set(by_publisher) == {n for n, client in enumerate(clients) if client.publisher}
    for publisher, rows in by_publisher.items():
        topic = manifest.scenario.topics[clients[publisher].topic]
        interval = round((topic.interval or manifest.interval_ms) * 1e6)
        assert len(rows) == max(1, (manifest.ended_ns - manifest.began_ns) // interval)
        assert [row["seq"] for row in rows] == list(range(len(rows)))
        assert {row["topic"] for row in rows} == {clients[publisher].topic}
        first = rows[0]["intended_ns"]
        assert manifest.began_ns <= first < manifest.began_ns + interval
        assert [row["intended_ns"] for row in rows] == [first + k * interval for k in range(len(rows))]
        assert all(row["sent_ns"] >= row["intended_ns"] for row in rows)
        stamps = [row["sent_ns"] for row in rows]
        assert stamps == sorted(stamps)

    of_sender = {(row["publisher"], row["seq"]): row for row in sent}
    by_subscriber: dict[int, Rows] = defaultdict(list)
    for row in received:
        by_subscriber[row["subscriber"]].append(row)
        assert {key: row[key] for key in SEND.names} == of_sender[row["publisher"], row["seq"]]
        assert row["received_ns"] >= row["sent_ns"] - slack
    assert set(by_subscriber) == {n for n, client in enumerate(clients) if not client.publisher}
    for subscriber, rows in by_subscriber.items():
        rows.sort(key=lambda row: int(row["arrival"]))
        assert [row["arrival"] for row in rows] == list(range(len(rows)))
        times = [row["received_ns"] for row in rows]
        assert times == sorted(times)
        topic_index = clients[subscriber].topic
        due = {key for key, row in of_sender.items() if row["topic"] == topic_index}
        assert {(row["publisher"], row["seq"]) for row in rows} == due
        last: dict[int, int] = {}
        for row in rows:
            assert row["seq"] == last.get(row["publisher"], -1) + 1
            last[row["publisher"]] = row["seq"]

    throughput = {n for n, t in enumerate(manifest.scenario.topics) if t.clients == "throughput"}
    summary = manifest.summary
    assert summary.received == summary.expected == sum(row["topic"] in throughput for row in received)
    begin, end = manifest.window_begin_ns, manifest.window_end_ns
    in_window = [row for row in sent if row["topic"] in throughput and begin <= row["sent_ns"] < end]
    assert manifest.generator.sent == len(in_window)
    assert summary.ingress == len(in_window) / manifest.seconds
    arrived = [row for row in received if row["topic"] in throughput and begin <= row["received_ns"] < end]
    assert summary.egress == len(arrived) / manifest.seconds
    return sent, received


def check_judgement(manifest: Manifest) -> None:
    """A run that nothing was done to: ok, or void on a machine that was busy meanwhile."""
    generator = manifest.generator
    late = generator.late - generator.blocked
    assert generator.verdict == ("void" if late > 0.01 * generator.intended else "ok")
    assert bool(generator.reason) == (generator.verdict != "ok")
    assert 0 <= generator.lag_p50_us <= generator.lag_p99_us <= generator.lag_max_us
