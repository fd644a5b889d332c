"""A world in virtual time: nodes of the core, joined by pipes instead of sockets.

Only what surrounds the core is replaced: time, chance, TCP. Brokers are endpoints a test supplies. A pipe
has what flow control rests on: a write buffer with marks, socket buffers of a size, readers that pause.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from ildm.api import Unreachable
from ildm.config import Address, Config
from ildm.core.link.session import LinkSession
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.core.tables import Key, Row, Table

SOCKET = 128 << 10
"""Bytes in the socket buffers of both ends and on the wire, per direction."""
READ = 256 << 10
"""Bytes handed over in one read, as asyncio does it."""
FIN, RESET = b"", None
"""What else arrives on a connection, besides bytes."""


class VirtualTimer:
    __slots__ = ("cancelled", "owner")

    def __init__(self, owner: WorldDriver | None = None) -> None:
        self.cancelled = False
        self.owner = owner

    def cancel(self) -> None:
        self.cancelled = True

    @property
    def due(self) -> bool:
        return not self.cancelled and (self.owner is None or not self.owner.dead)


class World:
    """Events in order of virtual time; equal times in the order they were made."""

    def __init__(self, seed: int = 0) -> None:
        self.time = 0.0
        self.random = Random(seed)
        self.listeners: dict[Address, Callable[[], Any]] = {}
        self.owners: dict[Address, WorldDriver] = {}
        """Whose process listens at an address, where that is a node's."""
        self.unreachable: set[Address] = set()
        """Where a dial gets no answer at all."""
        self.latency = 0.001
        """Seconds from one end to the other, where a pipe or its address has none of its own."""
        self.latencies: dict[Address, float] = {}
        """The same for connections made to an address from then on."""
        self.socket = SOCKET
        self.recording = True
        """Every pipe keeps all that was written into it."""
        self.events = 0
        """Events up to now, and bytes read: the work that was done, whatever the machine."""
        self.read = 0
        self.around_event: Callable[[Callable[[], None]], None] | None = None
        """Called with each event instead of it, as by who counts the work it does."""
        self.pipes: set[Pipe] = set()
        self._events: list[tuple[float, int, VirtualTimer, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    def call_at(
        self,
        when: float,
        callback: Callable[..., None],
        *args: object,
        owner: WorldDriver | None = None,
    ) -> VirtualTimer:
        timer = VirtualTimer(owner)
        heapq.heappush(self._events, (when, next(self._order), timer, callback, args))
        return timer

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.time + seconds
        while self._events and self._events[0][0] <= end:
            self._step()
        self.time = max(self.time, end)  # a callback may have taken longer

    def run_until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let virtual time pass until a condition holds, ``limit`` seconds at most; whether it holds."""
        end = self.time + limit
        while not condition():
            if not self._events or self._events[0][0] > end:
                self.time = end
                return condition()
            self._step()
        return True

    def _step(self) -> None:
        when, _, timer, callback, args = heapq.heappop(self._events)
        self.time = max(self.time, when)
        if timer.due:
            self.events += 1
            if self.around_event is None:
                callback(*args)
            else:
                self.around_event(lambda: callback(*args))

    def listen(self, address: Address, factory: Callable[[], Any], owner: WorldDriver | None = None) -> None:
        self.listeners[address] = factory
        if owner is not None:
            self.owners[address] = owner

    def connect(
        self, address: Address, endpoint: Any, local: str = "caller", owner: WorldDriver | None = None
    ) -> Pipe:
        """Join an endpoint to whoever listens at an address, at once."""
        far = self.listeners[address]()
        near_pipe = Pipe(self, endpoint, str(address), owner)
        far_pipe = Pipe(self, far, f"{local}:1", self.owners.get(address))
        near_pipe.other, far_pipe.other = far_pipe, near_pipe
        near_pipe.latency = far_pipe.latency = self.latencies.get(address)
        self.pipes |= {near_pipe, far_pipe}
        far.connection_made(far_pipe)
        endpoint.connection_made(near_pipe)
        return near_pipe

    def kill(self, driver: WorldDriver, silent: bool = False) -> None:
        """End a node's process without a farewell.

        The system closes its sockets; ``silent``: the machine has gone with it, nobody hears of that.
        """
        driver.dead = True
        for address in [address for address, owner in self.owners.items() if owner is driver]:
            del self.owners[address], self.listeners[address]
        for pipe in [pipe for pipe in self.pipes if pipe.owner is driver]:
            pipe.die(silent)


class Pipe:
    """One end of a connection; has the methods of an asyncio transport.

    What is written goes through the write buffer of this end (unbounded, with marks), the socket buffers
    (bounded: ``world.socket``) and, after the latency, is read at the other end unless that has paused.
    """

    def __init__(self, world: World, endpoint: Any, peer: str, owner: WorldDriver | None = None) -> None:
        self.world = world
        self.endpoint = endpoint
        self.peer = peer
        self.owner = owner
        self.other: Pipe
        self.latency: float | None = None
        self.closed = False
        """Closed here, or by the other end and noticed here."""
        self.reading = True
        self.read_rate: float | None = None
        """Bytes a second this end reads at most."""
        self.written = bytearray()
        self.sent = 0
        """Bytes written, recorded or not."""
        self.buffered = 0
        """Bytes in the write buffer."""
        self._buffer: deque[bytes] = deque()
        self._high, self._low = 64 << 10, 16 << 10
        self._write_paused = False
        self._pumping = False
        self._under_way = 0
        self._last_arrival = 0.0
        self._shut = False  # the socket is closed
        self._fin_due = False  # when what is in the write buffer has gone out
        self._fin_sent = False
        self._cut = False
        self._mute = False
        self._wire: list[bytes | None] = []  # lost on a broken path, and sent again when it is mended
        self._inbox: deque[bytes] = deque()  # in the socket buffer
        self._read_due = False
        self._reset = False

    # what a test does to the network --------------------------------------------------------------

    @property
    def cut(self) -> bool:
        """Nothing arrives any more in either direction, as on a broken network path."""
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self._cut = cut
        self._mended()

    @property
    def mute(self) -> bool:
        """Nothing sent at this end arrives any more; the other direction works."""
        return self._mute

    @mute.setter
    def mute(self, mute: bool) -> None:
        self._mute = mute
        self._mended()

    def reset(self) -> None:
        """Break the connection, noticed at both ends at once; what was under way is lost."""
        for end in (self, self.other):
            end._fail(ConnectionResetError("Connection reset by peer"))

    def die(self, silent: bool = False) -> None:
        """The process at this end has ended: its endpoint hears of nothing any more."""
        if silent:
            self.cut = True
        self.endpoint = None
        self.abort()

    # writing --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        if self.closed or not data:
            return
        if self._reset:
            self._fail(ConnectionResetError("Connection reset by peer"))
            return
        data = bytes(data)
        self.sent += len(data)
        if self.world.recording:
            self.written += data
        room = self.world.socket - self._under_way
        if not self._buffer and room > 0:
            self._send(data[:room])
            data = data[room:]
        if data:
            self._buffer.append(data)
            self.buffered += len(data)
            if self.buffered > self._high and not self._write_paused:
                self._write_paused = True
                self.endpoint.pause_writing()

    def write_eof(self) -> None:
        """Say that nothing more will be written, and read on."""
        self._fin_due = True
        self._finish()

    def _finish(self) -> None:
        if self._fin_due and not self._buffer and not self._fin_sent:
            self._fin_sent = True
            self._send(FIN)

    def _send(self, item: bytes | None) -> None:
        self._under_way += len(item or b"")
        latency = self.world.latency if self.latency is None else self.latency
        self._last_arrival = max(self._last_arrival, self.world.time + latency)
        self.world.call_at(self._last_arrival, self.other._arrive, item)

    def _taken(self, size: int) -> None:
        self._under_way -= size
        if self._buffer and not self._pumping:
            self._pumping = True
            self.world.call_at(self.world.time, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        room = self.world.socket - self._under_way
        if room > 0 and self._buffer:
            data = self._buffer.popleft()
            if self._buffer and len(data) < room:
                parts, size = [data], len(data)
                while self._buffer and size < room:
                    parts.append(self._buffer.popleft())
                    size += len(parts[-1])
                data = b"".join(parts)
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self.buffered -= len(data)
            self._send(data)
        if self._write_paused and self.buffered <= self._low and self.endpoint is not None:
            self._write_paused = False
            self.endpoint.resume_writing()
        self._finish()
        if self.closed and not self._buffer:
            self._close_socket()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 << 10 if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.buffered

    # reading --------------------------------------------------------------------------------------

    @property
    def _path_broken(self) -> bool:
        return self._cut or self.other._cut or self.other._mute

    def _mended(self) -> None:
        for end in (self, self.other):
            if not end._path_broken:
                wire, end._wire = end._wire, []
                for item in wire:
                    self.world.call_at(self.world.time, end._arrive, item)

    def _arrive(self, item: bytes | None) -> None:
        if self._path_broken:
            self._wire.append(item)
        elif item is RESET:
            self._inbox.clear()
            self._reset = True
            if self.reading or self._buffer:  # who does neither does not notice
                self._fail(ConnectionResetError("Connection reset by peer"))
        elif not self._shut:
            self._inbox.append(item)
            self._read()
        elif item:  # a closed socket
            self._send(RESET)

    def _read(self) -> None:
        if self._read_due or not self.reading or self.closed or not self._inbox:
            return
        data = self._inbox.popleft()
        if not data:
            self._eof()
            return
        limit = READ if self.read_rate is None else min(READ, max(1, int(self.read_rate / 10)))
        if len(data) < limit and self._inbox:
            parts, size = [data], len(data)
            while self._inbox and self._inbox[0] and size < limit:
                parts.append(self._inbox.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        if len(data) > limit:
            self._inbox.appendleft(data[limit:])
            data = data[:limit]
        self.world.read += len(data)
        self.other._taken(len(data))
        if self._inbox or self.read_rate is not None:
            self._read_soon(0.0 if self.read_rate is None else len(data) / self.read_rate)
        self.endpoint.data_received(data)

    def _read_soon(self, delay: float = 0.0) -> None:
        if not self._read_due:
            self._read_due = True
            self.world.call_at(self.world.time + delay, self._read_now)

    def _read_now(self) -> None:
        self._read_due = False
        self._read()

    def _eof(self) -> None:
        if not self.endpoint.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        if self._reset:
            self.world.call_at(self.world.time, self._fail, ConnectionResetError("Connection reset by peer"))
        elif self._inbox:
            self._read_soon()

    # ending ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Read no more, and end the connection when what was written has gone out."""
        if not self.closed:
            self.closed = True
            if not self._buffer:
                self._close_socket()

    def abort(self) -> None:
        """End the connection at once; what is in the write buffer is lost."""
        self.closed = True
        self._buffer.clear()
        self.buffered = 0
        self._close_socket()

    def _close_socket(self) -> None:
        if self._shut:
            return
        self._shut = True
        if not self._fin_sent:
            self._send(RESET if any(self._inbox) else FIN)
        self._inbox.clear()
        self.world.call_at(self.world.time, self._lost, None)

    def _fail(self, exc: Exception) -> None:
        self.closed = self._shut = True
        self._buffer.clear()
        self.buffered = 0
        self._inbox.clear()
        self._lost(exc)

    def _lost(self, exc: Exception | None) -> None:
        self.world.pipes.discard(self)
        if self.endpoint is not None:
            endpoint, self.endpoint = self.endpoint, None
            endpoint.connection_lost(exc)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        host, _, port = self.peer.rpartition(":")
        return (host, int(port)) if name == "peername" else default


class WorldDriver:
    """The driver of one node in a world."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.logged: list[tuple[str, str, dict[str, object]]] = []
        self.dead = False
        """Its process has ended: nothing it asked for happens any more."""

    def now(self) -> float:
        return self.world.time

    def wall(self) -> float:
        return 1_700_000_000.0 + self.world.time

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def call_soon(self, callback: Callable[..., None], *args: object) -> object:
        return self.world.call_at(self.world.time, callback, *args, owner=self)

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> VirtualTimer:
        return self.world.call_at(self.world.time + delay, callback, *args, owner=self)

    def dial(self, address: Address, endpoint: Any, timeout: float) -> None:
        world = self.world

        def connect() -> None:
            if address in world.listeners:
                world.connect(address, endpoint, self.name, self)
            else:
                endpoint.dial_failed(f"{address}: connection refused", Unreachable.REFUSED)

        if address in world.unreachable:
            reason = f"no answer from {address} within {timeout:g} s"
            self.call_later(timeout, endpoint.dial_failed, reason)
        else:
            latency = world.latencies.get(address, world.latency)
            world.call_at(world.time + latency, connect, owner=self)

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except BaseException as error:
            result = error
        self.call_soon(done, result)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logged.append((level, event, fields))


class MemoryStore:
    """A store that survives as long as the test keeps it."""

    def __init__(self) -> None:
        self.tables: dict[Table, dict[Key, Row]] = {}
        self.damaged: list[tuple[Table, Key, str]] = []

    def rows(self, table: Table) -> dict[Key, Row]:
        """The rows of a table, to look at or to change."""
        return self.tables.setdefault(table, {})

    def copy(self) -> MemoryStore:
        """The same rows, which no longer change: what a node that is killed now would find."""
        other = MemoryStore()
        other.tables = {table: dict(rows) for table, rows in self.tables.items()}
        return other

    def load(self, table: Table) -> list[tuple[Key, Row]]:
        return list(self.rows(table).items())

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        self.damaged.append((table, key, reason))
        self.put(table, key, None)

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        self.rows(table).pop(key, None)
        if row is not None:
            self.rows(table)[key] = row

    def when_written(self, callback: Callable[[bool], None]) -> None:
        callback(True)


def plugin_specs(
    name: str | None, plugin: Any = None, filters: list[tuple[str, Any]] | None = None
) -> PluginSpecs:
    """Specs of classes with their default options."""
    algorithm = None if name is None else PluginSpec(name, plugin, plugin.Config())
    return PluginSpecs(algorithm, [PluginSpec(n, cls, cls.Config()) for n, cls in filters or []])


def make_node(
    world: World,
    name: str,
    specs: PluginSpecs,
    *,
    store: MemoryStore | None = None,
    secret: str | None = None,
    node_id: str | None = None,
    **settings: Any,
) -> Node:
    """A node that listens at ``name``:1 for clients and ``name``:2 for links; its broker is ``name``:3."""
    document: dict[str, Any] = {"listen": f"{name}:1", "broker": {"address": f"{name}:3"}}
    document["link"] = {"listen": None, **settings.pop("link", {})}
    document.update(settings)
    driver = WorldDriver(world, name)
    node = Node(
        Config.model_validate(document),
        specs,
        driver,
        store or MemoryStore(),
        node_id=node_id or name,
        link_secret=secret,
    )
    world.listen(Address(name, 1), lambda: ClientSession(node), driver)
    world.listen(Address(name, 2), lambda: LinkSession(node.links, None, 0), driver)
    return node
