"""The network between the processes of a run: each connection goes through a proxy that can be harmed.

`Network` says what is wrong between which two processes: a cut path (connections end, new ones too),
a held one, in one direction or both (nothing arrives any more, and nobody is told, as on a path that loses
every packet), a far or a slow one. Each `Proxy` listens before one process, and asks. They live in the event
loop of the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from ildm.mqtt import MqttError
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm_bench.testbed.delay_proxy import DelayLine, End, Rates, Traffic, source_of

Address = tuple[str, int]
Way = tuple[str, str]
"""A direction: from which process to which, such as ``node/a`` and ``broker/a``."""


class Network:
    """The state of all paths, by the names of the processes at their ends."""

    def __init__(self) -> None:
        self.traffic: Traffic = Counter()
        """Bytes that were sent."""
        self.rates: Rates = {}
        """Bytes a second of each connection; what is not named is as fast as it can be."""
        self.delays: dict[Way, float] = {}
        """Seconds that what is sent from now on is under way."""
        self.held: set[Way] = set()
        self._cut: set[frozenset[str]] = set()
        self._connections: dict[_Passing, None] = {}

    def cut(self, one: str, other: str) -> None:
        """End all connections between them, and new ones until `mend`."""
        self._cut.add(frozenset((one, other)))
        for end in self._between(one, other):
            end.abort()

    def hold(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Let nothing arrive at ``target`` until `mend`; nor at ``source``, unless ``one_way``."""
        self.held.add((source, target))
        if not one_way:
            self.held.add((target, source))

    def hold_one(self, one: str, other: str, which: int) -> None:
        """Let nothing arrive on one of the connections there are, counted from 0 as they were made, if there
        are so many, until `mend`."""
        made = [end for end in self._between(one, other) if isinstance(end, _Dialer)]
        for end in made[which : which + 1]:
            end.stuck = True
            if isinstance(end.far, _Passing):
                end.far.stuck = True

    def slow(self, one: str, other: str, rate: float) -> None:
        """Pass so many bytes a second each way, on each connection."""
        self.rates |= {(one, other): rate, (other, one): rate}

    def put_apart(self, one: str, other: str, seconds: float) -> None:
        """Delay what is sent, either way."""
        self.delays |= {(one, other): seconds, (other, one): seconds}

    def mend(self, one: str, other: str) -> None:
        """Take all harm back; what was held arrives now."""
        self._cut.discard(frozenset((one, other)))
        for way in ((one, other), (other, one)):
            self.held.discard(way)
            self.rates.pop(way, None)
            self.delays.pop(way, None)
        for end in self._between(one, other):
            end.stuck = False
            end.hand_on()

    def is_cut(self, way: Way) -> bool:
        """Whether no connection lives there."""
        return frozenset(way) in self._cut

    def add(self, end: _Passing) -> None:
        """A connection is there."""
        self._connections[end] = None

    def remove(self, end: _Passing) -> None:
        """It has ended."""
        self._connections.pop(end, None)

    def _between(self, one: str, other: str) -> list[_Passing]:
        return [end for end in self._connections if set(end.way) == {one, other}]


class Proxy:
    """Listens before one process, ``target``, where it may not listen yet.

    ``dialer`` is the only one who connects; None: nodes, who say in their first packet which they are.
    """

    def __init__(
        self, network: Network, target: str, to: Address, dialer: str | None, host: str = LOOPBACK
    ) -> None:
        self.network = network
        self.target = target
        self.to = to
        self.dialer = dialer
        self.address: Address = (host, free_port())
        self._ends: set[_Passing] = set()
        self._dialing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen from now on.

        Raises:
            OSError: the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Dialer(self), *self.address)

    async def close(self) -> None:
        """End all connections and listen no more."""
        if self._server is not None:
            self._server.close()
        for end in list(self._ends):
            end.abort()
        for task in list(self._dialing):
            task.cancel()
        await asyncio.gather(*self._dialing, return_exceptions=True)

    def dial(self, near: _Dialer) -> None:
        """Connect to the target for somebody whose ways are known."""
        task = asyncio.get_running_loop().create_task(self._dial(near), name=f"proxy of {self.target}")
        self._dialing.add(task)
        task.add_done_callback(self._dialing.discard)

    async def _dial(self, near: _Dialer) -> None:
        far = _Passing(self, near.way[::-1])
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, *self.to)
        except OSError:  # nobody listens there, which who dials learns by the end of the connection
            near.abort()
            return
        near.far = far
        far.far = near
        if self.network.is_cut(near.way) or near.ended:
            near.abort()
            far.abort()
        near.hand_on()

    def known(self, end: _Passing) -> None:
        """A connection at this proxy."""
        self._ends.add(end)
        self.network.add(end)

    def gone(self, end: _Passing) -> None:
        """It has ended."""
        self._ends.discard(end)
        self.network.remove(end)


class _Passing(End):
    """One end of a connection."""

    def __init__(self, proxy: Proxy, way: Way = ("", "")) -> None:
        super().__init__(DelayLine(0.0), proxy.network.traffic, proxy.network.rates)
        self.way = way
        self.ended = False
        self.stuck = False
        """Nothing is handed on, whatever becomes of other connections of this way."""
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.known(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._proxy.gone(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.line.delay = self._proxy.network.delays.get(self.way, 0.0)
        super().data_received(data)

    def hand_on(self) -> None:
        if self.way not in self._proxy.network.held and not self.stuck:
            super().hand_on()


class _Dialer(_Passing):
    """The end of who has dialled; perhaps it is not known yet who that is."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy)
        self._first: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._proxy.dialer is not None:
            self._found(self._proxy.dialer)

    def data_received(self, data: bytes) -> None:
        if self._first is None:
            super().data_received(data)
            return
        self._first += data
        try:
            source = source_of(self._first)
        except MqttError:
            self.abort()
            return
        if source is not None:
            self._found(f"node/{source}")

    def _found(self, source: str) -> None:
        first, self._first = self._first, None
        self.way = source, self._proxy.target
        if self._proxy.network.is_cut(self.way):
            self.abort()
            return
        self._proxy.dial(self)
        if first:
            super().data_received(first)
