"""All places where clients connect to a node, and others in their place while it runs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from ildm.net.transport import Listener, WebSocketOptions
from ildm.net.transport.proxies import Proxies
from ildm.net.transport.websocket import FIXED_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ildm.config import Config, ListenerConfig
    from ildm.core.counters import Counters
    from ildm.core.timing import Timing
    from ildm.net.transport import NodeTls
    from ildm.net.transport.arrival import Arrival
    from ildm.net.transport.gate import AddressGate
    from ildm.net.transport.inherited import Inherited
    from ildm.net.transport.reactor import Reactor
    from ildm.net.transport.turns import Turns


class Settings(NamedTuple):
    """What a listener is made with, but for certificates, which can be changed in one that serves."""

    config: ListenerConfig
    """Without ``tls``."""
    websocket: WebSocketOptions | None


class Place(NamedTuple):
    """One of the configuration's listeners."""

    key: str
    listener: Listener
    settings: Settings


class Plan(NamedTuple):
    """Other places than now: all, those of them that are new, and those there now that are to go."""

    places: list[Place]
    new: list[Listener]
    left: list[Listener]
    succeeded: set[Listener]
    """Those of ``left`` whose sockets a new one has."""


class ClientListeners:
    """Those of a node.

    Args:
        session: makes what a connection talks with.
        gate: bounds connections by address.
        inherited: sockets that are taken in place of new ones.
        handshakes: where the time that TLS takes is observed.
        reactor: what carries connections without TLS.
        turns: in which the others go on.
        log: the node's.
    """

    def __init__(
        self,
        session: Callable[[Arrival], object],
        gate: AddressGate,
        counters: Counters,
        inherited: Inherited | None = None,
        handshakes: Timing | None = None,
        reactor: Reactor | None = None,
        turns: Turns | None = None,
        log: Callable[..., None] | None = None,
    ) -> None:
        self.gate = gate
        self._session = session
        self._counters = counters
        self._inherited = inherited
        self._handshakes = handshakes
        self._reactor = reactor
        self._turns = turns
        self._log = log
        self._places: list[Place] = []
        self._retired: list[Listener] = []

    def __iter__(self) -> Iterator[Listener]:
        return (place.listener for place in self._places)

    async def open(self, config: Config, tls: NodeTls, patience: float = 0.0) -> None:
        """Take all addresses; nobody is served yet. ``patience`` as in :meth:`Listener.open`.

        Raises:
            ListenError: one cannot be listened on.
        """
        for key, each in config.clients_at:
            settings = _settings(each, config)
            listener = self._made(key, settings, tls)
            self._places.append(Place(key, listener, settings))
            await listener.open(patience)

    async def serve(self) -> None:
        """Raises: ListenError."""
        for listener in self:
            await listener.serve()

    def close(self) -> None:
        """Take nobody more, and give up handshakes. Who is connected stays."""
        for listener in (*self, *self._retired):
            listener.close()

    async def plan(self, config: Config, tls: NodeTls, undo: AsyncExitStack) -> Plan:
        """Bind what is new, leave what is the same, and put successors where other settings are wanted.

        Raises:
            ListenError: an address cannot be listened on. ``undo`` gives back what was taken.
        """
        plan = Plan([], [], list(self), set())
        now = {place.listener: place.settings for place in self._places}
        for key, each in config.clients_at:
            settings = _settings(each, config)
            there = [one for one in plan.left if one.can_be_succeeded(each.url) and one not in plan.succeeded]
            same = next((one for one in there if now[one] == settings), None)
            if same is not None:
                plan.left.remove(same)
                plan.places.append(Place(key, same, settings))
                continue
            listener = self._made(key, settings, tls)
            if there:
                listener.succeed(there[0])
                plan.succeeded.add(there[0])
                undo.callback(listener.retire, succeeded=True)
            else:
                undo.callback(listener.close)
                await listener.open()
            plan.new.append(listener)
            plan.places.append(Place(key, listener, settings))
        return plan

    def take(self, plan: Plan, tls: NodeTls, gate: AddressGate) -> None:
        """The places of a plan are those of the node; its new listeners serve already."""
        self.gate = gate
        for place in plan.places:
            place.listener.follow(place.key, tls.listeners.get(place.key), gate)
        for former in plan.left:
            former.retire(succeeded=former in plan.succeeded)
        self._places = plan.places
        self._retired = [each for each in (*self._retired, *plan.left) if each.busy]

    def _made(self, key: str, settings: Settings, tls: NodeTls) -> Listener:
        config = settings.config
        return Listener(
            config.url,
            key,
            self._session,
            config.permissions,
            tls=tls.listeners.get(key),
            websocket=settings.websocket,
            gate=self.gate,
            proxies=None if config.proxy is None else Proxies(config.proxy),
            counters=self._counters,
            inherited=self._inherited,
            label=config.label,
            handshakes=self._handshakes,
            reactor=self._reactor,
            turns=self._turns,
            log=self._log,
        )


def _settings(listener: ListenerConfig, config: Config) -> Settings:
    limits = config.limits
    websocket = None
    if listener.url.has_websocket:
        # a packet may come in a frame with others, so what it holds is not bounded by this
        largest = limits.packet_size + FIXED_HEADER
        websocket = WebSocketOptions(listener.path, listener.origins, largest, limits.connect_timeout)
    return Settings(listener.model_copy(update={"tls": None}), websocket)
