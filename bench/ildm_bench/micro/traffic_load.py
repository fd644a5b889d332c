"""Sends and receives the traffic of `ildm_bench.micro.traffic`, in two processes of plain sockets.

The sender writes at a fixed rate whatever becomes of it (open loop), or keeps a window of messages under
way, for the most that is borne. `Pace` says how many messages a write has: those that come together are read
together. The receiver counts, acknowledges QoS 1 in chunks, and at a fixed rate keeps what it reads with the
time, from which latencies are worked out afterwards: of the last message of each write, from the tick in
which it was due.
"""

from __future__ import annotations

import math
import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ildm.core.frames import PUBLISH, PUBLISH_QOS_1
from ildm.mqtt import Connect, IldmError, Subscribe, Subscription, Version
from ildm_bench.micro.traffic import TIME, Frames, Kind

BURST = 20
"""Messages that one of several publishers writes at once when as many are sent as are borne, and joined."""
LOOK = 0.0005
"""Seconds until the sender looks again whether it may write."""
PATIENCE = 20.0
"""Seconds until a connection that makes no progress, or a process that does not answer, is given up."""
DRAIN = 3.0
"""Seconds without a message after which the rest counts as lost."""
READ = 1 << 18
_NS = 1_000_000_000


@dataclass(frozen=True)
class Pace:
    """How the messages of a rate are written."""

    at_once: int = 1
    """Messages of one write. 0: a publisher that is alone joins all that are due in a tick."""
    tick: float = 0.0002
    """Seconds between two looks at what is due."""

    def per_write(self, rate: float, alone: bool) -> int:
        """Messages of one write at a fixed rate."""
        return self.at_once or (max(1, math.ceil(rate * self.tick)) if alone else 1)

    def burst(self, window: int, alone: bool) -> int:
        """Messages of one write when as many are sent as are borne."""
        return self.at_once or (window // 4 if alone else BURST)


class TrafficError(IldmError, RuntimeError):
    """The traffic could not be sent or received as it was meant."""


@dataclass(frozen=True)
class Received:
    """What came of a load."""

    sent: int
    """Deliveries that were due for all that was sent."""
    lost: int
    """Of them; by their bytes, so an estimate where sizes differ."""
    latencies_us: NDArray[np.float64]
    """Of messages due within the window; none where messages were lost, as nobody knows which."""
    lag_us: NDArray[np.float64]
    """How late each write was."""


class Load:
    """A sender and a receiver, from connecting to the last message; a context manager."""

    def __init__(
        self, kind: Kind, qos: int, rate: float, ports: tuple[int, int], pace: Pace | None = None
    ) -> None:
        """``rate``: deliveries a second; 0 for as many as are borne. ``ports``: to publish, to subscribe."""
        publish_port, subscribe_port = ports
        self.kind = kind
        self.rate = rate
        self.pids: dict[str, int] = {}
        self._context = multiprocessing.get_context("fork")
        self._received: Synchronized[int] = self._context.Value("q", 0, lock=False)
        self._stop = [self._context.Value("b", 0, lock=False) for _ in range(2)]
        self._processes = [
            self._process(_receive, subscribe_port, kind, qos, rate > 0, self._received, self._stop[0]),
            self._process(
                _send,
                _Sending(publish_port, kind, qos, rate / kind.copies, pace or Pace()),
                self.deliveries,
                self._stop[1],
            ),
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """All connected and subscribed; the load begins."""
        with self._stack:
            for name, (process, pipe, _) in zip(("receiver", "sender"), self._processes, strict=True):
                process.start()
                self._stack.callback(process.join, PATIENCE)
                self._stack.callback(process.kill)
                self.pids[name] = process.pid or 0
                self._answer(pipe)
            self._processes[1][1].send("go")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def deliveries(self) -> int:
        """Messages received so far, by all subscribers."""
        return self._received.value

    def finish(self, begin_ns: int, end_ns: int) -> Received:
        """End the load and wait for what is under way; latencies are those of messages due in the window."""
        (_, receiver, _), (_, sender, _) = self._processes
        self._stop[1].value = 1
        sent, lag = self._answer(sender)
        due = sent * self.kind.copies
        before, give_up = -1, 0.0
        while (got := self.deliveries()) < due:
            if got != before:
                before, give_up = got, time.monotonic() + DRAIN
            elif time.monotonic() > give_up:
                break
            time.sleep(0.01)
        sender.send("done")
        self._stop[0].value = 1
        receiver.send((begin_ns, end_ns))
        latencies = self._answer(receiver)
        if latencies is None and got == due:
            raise TrafficError(f"{self.kind.name}: messages came in another order than they were sent")
        return Received(due, due - got, np.empty(0) if latencies is None else latencies, lag)

    def _process(self, run: Callable[..., None], *arguments: Any) -> tuple[Any, Connection, Connection]:
        ours, theirs = self._context.Pipe()
        return self._context.Process(target=_guarded, args=(run, theirs, *arguments)), ours, theirs

    def _answer(self, pipe: Connection) -> Any:
        if not pipe.poll(PATIENCE * 3):
            raise TrafficError(f"{self.kind.name}: the sender or receiver does not answer")
        answer = pipe.recv()
        if isinstance(answer, str):
            raise TrafficError(f"{self.kind.name}: {answer}")
        return answer


def _guarded(run: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    try:
        run(pipe, *arguments)
    except (OSError, IldmError) as error:
        with suppress(BrokenPipeError):
            pipe.send(f"{run.__name__.strip('_')}: {type(error).__name__}: {error}")


@dataclass
class _Publisher:
    socket: socket.socket
    frames: Frames
    written: int = 0
    acknowledged: int = 0
    """Bytes of PUBACK."""

    def write(self, count: int, stamp: int) -> None:
        self.socket.sendall(self.frames.part(self.written, count, stamp))
        self.written += count

    def room(self, qos: int) -> int:
        """Messages until a packet identifier would be taken twice."""
        return self.frames.count - self.written + self.acknowledged // 4 if qos else self.frames.count


@dataclass(frozen=True)
class _Sending:
    """What a sender has to send, and where to."""

    port: int
    kind: Kind
    qos: int
    rate: float
    """Messages published a second; 0: as many as are borne."""
    pace: Pace


class _Sender:
    """The publishers of a kind, taken in turn."""

    def __init__(self, sending: _Sending, stop: Synchronized[int]) -> None:
        self.kind = kind = sending.kind
        self.qos = qos = sending.qos
        self._rate = sending.rate
        self._pace = sending.pace
        self._tick_ns = int(sending.pace.tick * _NS)
        self._turn = 0
        self.sent = 0
        self.lag: list[int] = []
        self._stop = stop
        self._publishers = [
            _Publisher(_connected(sending.port, f"p{number}"), frames)
            for number, frames in enumerate(kind.publisher_frames(qos))
        ]
        self._epoll = select.epoll()
        self._by_fd = {publisher.socket.fileno(): publisher for publisher in self._publishers}
        for fd in self._by_fd if qos else ():
            self._epoll.register(fd, select.EPOLLIN)

    def paced(self) -> None:
        """At the rate until told to stop."""
        began = time.perf_counter_ns()
        per_write = self._pace.per_write(self._rate, len(self._publishers) == 1)
        while not self._stop.value:
            now = time.perf_counter_ns()
            tick = (now - began) // self._tick_ns * self._tick_ns
            due = int(self._rate * tick / _NS)  # what is due since then has the next tick's time
            while self.sent < due and self._write(min(per_write, due - self.sent), began):
                pass
            self.acknowledged()
            next_tick = began + tick + self._tick_ns
            time.sleep(max(0, next_tick - time.perf_counter_ns()) / _NS)

    def _write(self, count: int, began: int) -> bool:
        """Whether it could write; not while a publisher waits for acknowledgements of all it may send."""
        publisher = self._publishers[self._turn % len(self._publishers)]
        if publisher.room(self.qos) < count:
            self.acknowledged()
            if publisher.room(self.qos) < count:
                return False
        stamp = began + -(-int((self.sent + count) / self._rate * _NS) // self._tick_ns) * self._tick_ns
        self.lag.append(time.perf_counter_ns() - stamp)
        publisher.write(count, stamp)
        self._turn += 1
        self.sent += count
        return True

    def flat_out(self, deliveries: Callable[[], int]) -> None:
        """As many as are borne, until told to stop."""
        burst = self._pace.burst(self.kind.window, len(self._publishers) == 1)
        while not self._stop.value:
            self.acknowledged()
            room = self.kind.window - self.sent + deliveries() // self.kind.copies
            wrote = False
            for _ in range(min(room // burst, len(self._publishers))):
                publisher = self._publishers[self._turn % len(self._publishers)]
                self._turn += 1
                if publisher.room(self.qos) >= burst:
                    publisher.write(burst, 0)
                    self.sent += burst
                    wrote = True
            if not wrote:
                time.sleep(LOOK)

    def acknowledged(self) -> None:
        """Read what has been acknowledged."""
        for fd, _ in self._epoll.poll(0):
            publisher = self._by_fd[fd]
            data = publisher.socket.recv(READ)
            if not data:
                raise TrafficError("the connection of a publisher was closed")
            publisher.acknowledged += len(data)


def _send(
    pipe: Connection, sending: _Sending, deliveries: Callable[[], int], stop: Synchronized[int]
) -> None:
    sender = _Sender(sending, stop)
    pipe.send(())
    pipe.recv()
    if sending.rate:
        sender.paced()
    else:
        sender.flat_out(deliveries)
    pipe.send((sender.sent, np.array(sender.lag) / 1e3))
    # Closed while acknowledgements come in, a connection is reset, and the broker drops what it has not read.
    while not pipe.poll(LOOK):
        sender.acknowledged()


@dataclass
class _Subscriber:
    socket: socket.socket
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    """When each was read."""
    length: int = 0
    """Bytes read."""
    messages: int = 0
    """Complete in them."""
    begun: bytes = b""
    """Of a frame that is not complete."""
    frames: int = 0
    """Acknowledged before that."""


def _receive(
    pipe: Connection,
    port: int,
    kind: Kind,
    qos: int,
    keep: bool,
    received: Synchronized[int],
    stop: Synchronized[int],
) -> None:
    frames = kind.subscriber_frames(qos)
    subscribers = {}
    epoll = select.epoll()
    for number in range(kind.groups * kind.subscribers):
        connection = _connected(port, f"s{number}")
        wanted = Subscription(topic_filter=kind.topic_filter(number % kind.groups), qos=qos)
        connection.sendall(Subscribe(packet_id=1, subscriptions=[wanted]).encode(Version.V311))
        _read_exactly(connection, 5, "SUBACK")
        epoll.register(connection.fileno(), select.EPOLLIN)
        subscribers[connection.fileno()] = _Subscriber(connection)
    pipe.send(())
    total = 0
    while not stop.value:
        for fd, _ in epoll.poll(0.05):
            subscriber = subscribers[fd]
            data = subscriber.socket.recv(READ)
            if not data:
                raise TrafficError("the connection of a subscriber was closed")
            if keep:
                subscriber.chunks.append((time.perf_counter_ns(), data))
            subscriber.length += len(data)
            messages = frames.whole(subscriber.length)
            total += messages - subscriber.messages
            subscriber.messages = messages
            if qos:
                _acknowledge(subscriber, data, frames)
        received.value = total
    begin, end = pipe.recv()
    pipe.send(_latencies([s.chunks for s in subscribers.values()], frames, qos, begin, end))


def _acknowledge(subscriber: _Subscriber, data: bytes, frames: Frames) -> None:
    """Answer the frames of QoS 1 that are complete now."""
    data = subscriber.begun + data
    at = int(frames.begin(np.array([subscriber.frames]))[0])
    numbers = np.arange(subscriber.frames, frames.whole(at + len(data)))
    subscriber.begun = data
    if not numbers.size:
        return
    starts = frames.begin(numbers) - at
    octets = np.frombuffer(data, np.uint8)
    if (octets[starts] != PUBLISH_QOS_1).any():
        raise TrafficError("messages of QoS 1 came in another order than they were sent, or with DUP")
    ids = starts + frames.ids[numbers % frames.count]
    answer = np.empty((numbers.size, 4), np.uint8)
    answer[:, 0], answer[:, 1], answer[:, 2], answer[:, 3] = 0x40, 2, octets[ids], octets[ids + 1]
    subscriber.socket.sendall(answer.tobytes())
    subscriber.frames += numbers.size
    subscriber.begun = data[int(frames.begin(numbers[-1:] + 1)[0]) - at :]


def _latencies(
    streams: Sequence[Sequence[tuple[int, bytes]]], frames: Frames, qos: int, begin: int, end: int
) -> NDArray[np.float64] | None:
    """Microseconds from due to read of the messages with a time within the window.

    None where what came is not what was sent, one after the other.
    """
    found = [np.empty(0)]
    for chunks in streams:
        if not chunks:
            continue
        octets = np.frombuffer(b"".join(data for _, data in chunks), np.uint8)
        numbers = np.arange(frames.whole(octets.size))
        starts = frames.begin(numbers)
        if (octets[starts] != (PUBLISH_QOS_1 if qos else PUBLISH)).any():
            return None
        places = (starts + frames.payloads[numbers % frames.count])[:, None] + np.arange(TIME.size)
        due = octets[places].view("<i8").ravel()
        read = np.cumsum([len(data) for _, data in chunks])
        which = np.searchsorted(read, frames.begin(numbers + 1))
        times = np.array([when for when, _ in chunks])[which]
        wanted = (due >= begin) & (due < end)
        found.append((times[wanted] - due[wanted]) / 1e3)
    return np.concatenate(found)


def _connected(port: int, client_id: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(Connect(client_id=client_id, keep_alive=0).encode())
    _read_exactly(connection, 4, "CONNACK")
    return connection


def _read_exactly(connection: socket.socket, count: int, what: str) -> None:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise TrafficError(f"no {what}: the connection was closed")
        data += more
    if data[-1] > 2:
        raise TrafficError(f"{what} refuses with {data[-1]:#x}")
