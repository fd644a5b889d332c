"""A world in virtual time: nodes of the core, joined by pipes instead of sockets.

Only what surrounds the core is replaced: time, chance, TCP. Brokers are endpoints a test supplies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from ildm.config import Address, LookupConfig
from ildm.testing.virtual.pipe import SOCKET, Pipe

if TYPE_CHECKING:
    from ildm.testing.virtual.process import Process


class VirtualTimer:
    __slots__ = ("cancelled", "owner")

    def __init__(self, owner: Process | None = None) -> None:
        self.cancelled = False
        self.owner = owner

    def cancel(self) -> None:
        self.cancelled = True

    @property
    def due(self) -> bool:
        """Whether it will be called, sooner or later."""
        return not self.cancelled and (self.owner is None or not self.owner.dead)


_NOBODY = VirtualTimer()


class World:
    """Events in order of virtual time; equal times in the order they were made."""

    def __init__(self, seed: int = 0) -> None:
        self.time = 0.0
        self.random = Random(seed)
        self.listeners: dict[Address, Callable[[], Any]] = {}
        self.owners: dict[Address, Process] = {}
        """Whose process listens at an address, where that is a node's."""
        self.unreachable: set[Address] = set()
        """Where a dial gets no answer at all."""
        self.barred: set[tuple[str, Address]] = set()
        """The same for dials of one process, by its name."""
        self.latency = 0.001
        """Seconds from one end to the other, where a pipe or its address has none of its own."""
        self.latencies: dict[Address, float] = {}
        """The same for connections made to an address from then on."""
        self.names: Callable[[str, LookupConfig], list[Address] | BaseException] = lambda who, question: []
        """What DNS answers, by the name of the process that asks."""
        self.clocks: dict[str, float] = {}
        """Seconds that the wall clocks of machines are ahead, by name, as their next processes find them."""
        self.socket = SOCKET
        self.recording = True
        """Every pipe keeps all that was written into it."""
        self.events = 0
        """Events up to now, and bytes read: the work that was done, whatever the machine."""
        self.read = 0
        self.around_event: Callable[[Callable[[], None]], None] | None = None
        """Called with each event instead of it, as by who counts the work it does."""
        self.joined: Callable[[Pipe], None] = lambda pipe: None
        """Told of each connection, by the end of who has made it, before anybody writes."""
        self.pipes: dict[Pipe, None] = {}
        """All ends there are, in the order they were made."""
        self._events: list[tuple[float, int, VirtualTimer, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    def call_at(
        self,
        when: float,
        callback: Callable[..., None],
        *args: object,
        owner: Process | None = None,
    ) -> VirtualTimer:
        timer = VirtualTimer(owner)
        heappush(self._events, (when, next(self._order), timer, callback, args))
        return timer

    def put(
        self, when: float, timer: VirtualTimer, callback: Callable[..., None], args: tuple[object, ...]
    ) -> None:
        """An event of a timer there is."""
        heappush(self._events, (when, next(self._order), timer, callback, args))

    def arrive(self, when: float, callback: Callable[..., None], *args: object) -> None:
        """As :meth:`call_at`, for what nobody cancels and no process does."""
        heappush(self._events, (when, next(self._order), _NOBODY, callback, args))

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.time + seconds
        events, step = self._events, self._step
        while events and events[0][0] <= end:
            step()
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
        when, _, timer, callback, args = heappop(self._events)
        self.time = max(self.time, when)
        if timer.cancelled:
            return
        owner = timer.owner
        if owner is not None and (owner.dead or owner.paused):
            if not owner.dead:
                owner.held.append((timer, callback, args))
        else:
            self.events += 1
            if self.around_event is None:
                callback(*args)
            else:
                self.around_event(lambda: callback(*args))

    def listen(self, address: Address, factory: Callable[[], Any], owner: Process | None = None) -> None:
        self.listeners[address] = factory
        if owner is not None:
            self.owners[address] = owner

    def connect(
        self, address: Address, endpoint: Any, local: str = "caller", owner: Process | None = None
    ) -> Pipe:
        """Join an endpoint to whoever listens at an address, at once."""
        far = self.listeners[address]()
        near_pipe = Pipe(self, endpoint, str(address), owner)
        far_pipe = Pipe(self, far, f"{local}:1", self.owners.get(address))
        near_pipe.other, far_pipe.other = far_pipe, near_pipe
        near_pipe.latency = far_pipe.latency = self.latencies.get(address)
        self.pipes |= {near_pipe: None, far_pipe: None}
        self.joined(near_pipe)
        far.connection_made(far_pipe)
        endpoint.connection_made(near_pipe)
        return near_pipe

    def kill(self, process: Process, silent: bool = False) -> None:
        """End a process without a farewell.

        The system closes its sockets; ``silent``: the machine has gone with it, nobody hears of that.
        """
        process.dead = True
        for address in [address for address, owner in self.owners.items() if owner is process]:
            del self.owners[address], self.listeners[address]
        for pipe in [pipe for pipe in self.pipes if pipe.owner is process]:
            pipe.die(silent)

    def notice(self, process: Process) -> None:
        """Those that were connected to a process which ended silently hear of it, as by keep-alive."""
        for pipe in [pipe for pipe in self.pipes if pipe.other.owner is process]:
            pipe.reset()
