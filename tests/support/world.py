"""A world in virtual time: nodes of the core, joined by pipes instead of sockets.

Only what surrounds the core is replaced: time, chance, TCP. Brokers are endpoints a test supplies.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from ildm.config import Address, Config
from ildm.core.driver import SavedSession
from ildm.core.link.session import LinkSession
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.plugin.loading import PluginSpec, PluginSpecs


class VirtualTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """Events in order of virtual time; equal times in the order they were made."""

    def __init__(self, seed: int = 0) -> None:
        self.time = 0.0
        self.random = Random(seed)
        self.listeners: dict[Address, Callable[[], Any]] = {}
        self.latency = 0.001
        self._events: list[tuple[float, int, VirtualTimer, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    def call_at(self, when: float, callback: Callable[..., None], *args: object) -> VirtualTimer:
        timer = VirtualTimer()
        heapq.heappush(self._events, (when, next(self._order), timer, callback, args))
        return timer

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.time + seconds
        while self._events and self._events[0][0] <= end:
            when, _, timer, callback, args = heapq.heappop(self._events)
            self.time = max(self.time, when)
            if not timer.cancelled:
                callback(*args)
        self.time = end

    def listen(self, address: Address, factory: Callable[[], Any]) -> None:
        self.listeners[address] = factory

    def connect(self, address: Address, endpoint: Any, local: str = "caller") -> Pipe:
        """Join an endpoint to whoever listens at an address, at once."""
        far = self.listeners[address]()
        near_pipe, far_pipe = Pipe(self, endpoint, str(address)), Pipe(self, far, f"{local}:1")
        near_pipe.other, far_pipe.other = far_pipe, near_pipe
        far.connection_made(far_pipe)
        endpoint.connection_made(near_pipe)
        return near_pipe


class Pipe:
    """One end of a connection; has the methods of an asyncio transport."""

    def __init__(self, world: World, endpoint: Any, peer: str) -> None:
        self.world = world
        self.endpoint = endpoint
        self.peer = peer
        self.other: Pipe
        self.closed = False
        self.reading = True
        self.waiting: list[bytes] = []
        self.written = bytearray()
        self.cut = False
        """Nothing arrives any more in either direction, as on a broken network path."""

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if self.closed:
            return
        self.written += data
        self.world.call_at(self.world.time + self.world.latency, self.other._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.closed or self.cut or self.other.cut:
            return
        if self.reading:
            self.endpoint.data_received(data)
        else:
            self.waiting.append(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.world.call_at(self.world.time + self.world.latency, self._lost, None)
            self.world.call_at(self.world.time + self.world.latency, self.other._peer_closed)

    def abort(self) -> None:
        self.close()

    def _peer_closed(self) -> None:
        if not self.closed and not self.cut and not self.other.cut:
            self.closed = True
            self._lost(None)

    def _lost(self, exc: Exception | None) -> None:
        if self.endpoint is not None:
            endpoint, self.endpoint = self.endpoint, None
            endpoint.connection_lost(exc)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        waiting, self.waiting = self.waiting, []
        for data in waiting:
            self.world.call_at(self.world.time, self._arrive, data)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        host, _, port = self.peer.rpartition(":")
        return (host, int(port)) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class WorldDriver:
    """The driver of one node in a world."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.logged: list[tuple[str, str, dict[str, object]]] = []

    def now(self) -> float:
        return self.world.time

    def wall(self) -> float:
        return 1_700_000_000.0 + self.world.time

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def call_soon(self, callback: Callable[..., None], *args: object) -> object:
        return self.world.call_at(self.world.time, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> VirtualTimer:
        return self.world.call_at(self.world.time + delay, callback, *args)

    def dial(self, address: Address, endpoint: Any, timeout: float) -> None:
        def connect() -> None:
            if address in self.world.listeners:
                self.world.connect(address, endpoint, self.name)
            else:
                endpoint.dial_failed(f"{address}: connection refused")

        self.world.call_at(self.world.time + self.world.latency, connect)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logged.append((level, event, fields))


class MemoryStore:
    """A store that survives as long as the test keeps it."""

    def __init__(self) -> None:
        self.saved: dict[str, SavedSession] = {}
        self.neighbors: dict[Address, bool] = {}
        self.saved_retained: dict[str, tuple[bytes, float | None]] = {}

    def sessions(self) -> Mapping[str, SavedSession]:
        return dict(self.saved)

    def save_session(self, client_id: str, session: SavedSession | None) -> None:
        if session is None:
            self.saved.pop(client_id, None)
        else:
            self.saved[client_id] = session

    def retained(self) -> list[tuple[bytes, float | None]]:
        return list(self.saved_retained.values())

    def save_retained(self, topic: str, frame: bytes | None, expires_at: float | None) -> None:
        self.saved_retained.pop(topic, None)
        if frame is not None:
            self.saved_retained[topic] = (frame, expires_at)

    def save_neighbor(self, address: Address, wanted: bool) -> None:
        self.neighbors[address] = wanted


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
    node = Node(
        Config.model_validate(document),
        specs,
        WorldDriver(world, name),
        store or MemoryStore(),
        node_id=node_id or name,
        link_secret=secret,
    )
    world.listen(Address(name, 1), lambda: ClientSession(node))
    world.listen(Address(name, 2), lambda: LinkSession(node.links, None, 0))
    return node
