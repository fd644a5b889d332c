"""The rest of the node, as far as the sessions of its clients need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ildm.api import Source
from ildm.core.local.actions import broker_wanted, client_actions
from ildm.core.local.answers import Answers
from ildm.mqtt import Version

if TYPE_CHECKING:
    from ildm.config import Config
    from ildm.core.broker.broker_choice import BrokerChoice
    from ildm.core.broker.injection import Injector
    from ildm.core.broker.loop_guard import LoopGuard
    from ildm.core.broker.reach import Reach
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.start_gate import StartGate
    from ildm.core.local.admission import Admission
    from ildm.core.local.bans import Bans
    from ildm.core.local.clients import ClientRegistry
    from ildm.core.local.partial import Partials
    from ildm.core.local.record import Client, ClientRecord
    from ildm.core.local.waits import Waits
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.session import BaseSession
    from ildm.core.timing import Timings
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.router import Router
    from ildm.mqtt import ConnAck, Connect, MqttError, PacketType


class ClientEvents(ABC):
    """What the node is told of its clients and their broker sessions, and asked for them."""

    @abstractmethod
    def client_accepted(self, session: Client) -> bool:
        """A client has connected by TCP; whether it may stay, at least until it is told why not."""

    @abstractmethod
    def client_connected(self, session: Client, connect: Connect, connack: ConnAck) -> ClientRecord:
        """The broker has accepted a client."""

    @abstractmethod
    def client_resumed(self, session: Client, record: ClientRecord) -> None:
        """A client that another process has served goes on here; see :mod:`.handover`."""

    @abstractmethod
    def client_gone(self, session: Client, exc: Exception | None) -> None:
        """A client's TCP connection has ended."""

    @abstractmethod
    def client_failed(self, session: BaseSession, error: MqttError) -> None:
        """A client has sent what the standard forbids, or more than a limit allows."""


class Refusal:
    """Of a node that refuses messages. While it does, each PUBLISH of MQTT 5 is looked at.

    Args:
        looked_at: types of packets which plugins want to see.
    """

    def __init__(self, custody: Custody, looked_at: frozenset[PacketType]) -> None:
        self.custody = custody
        self.actions = client_actions(Version.V5, routing=True, looked_at=looked_at, whole=True)


class ClientParts:
    """Handed to every client's session, so that nothing in this wing climbs up to the node."""

    def __init__(
        self,
        *,
        config: Config,
        driver: Driver,
        counters: Counters,
        timings: Timings,
        dispatch: Dispatch,
        router: Router,
        injector: Injector,
        custody: Custody | None,
        retained: RetainedStore,
        brokers: BrokerChoice,
        reach: Reach,
        loop_guard: LoopGuard,
        start_gate: StartGate,
        clients: ClientRegistry,
        partials: Partials,
        admission: Admission,
        bans: Bans,
        waits: Waits,
        has_overlay: bool,
        events: ClientEvents,
    ) -> None:
        self.config = config
        self.limits = config.limits
        self.packet_limits = config.limits.packet
        self.answers = Answers(config.limits)
        """Of all clients before MQTT 5."""
        self.driver = driver
        self.counters = counters
        self.timings = timings
        self.dispatch = dispatch
        self.router = router
        self.injector = injector
        self.custody = custody
        """What survives this node of messages that cross; None: nothing does."""
        self.retained = retained
        self.brokers = brokers
        self.reach = reach
        self.loop_guard = loop_guard
        self.start_gate = start_gate
        self.clients = clients
        self.partials = partials
        self.admission = admission
        self.bans = bans
        self.waits = waits
        self.has_overlay = has_overlay
        self.events = events
        self.transfers_acknowledged = router.active and config.link.transfer == "acknowledged"
        """A client's QoS 1 and 2 messages are transferred when the broker has taken them."""
        looked_at = dispatch.looked_at(Source.CLIENT)
        whole = has_overlay or dispatch.asks_each
        self.actions = {
            version: client_actions(version, routing=router.active, looked_at=looked_at, whole=whole)
            for version in Version
        }
        refuses = custody is not None and config.spool.full == "refuse"
        self.refusal = Refusal(custody, looked_at) if refuses and custody else None
        """How messages are refused that find the spool full; None: their senders wait."""
        self.broker_wanted = broker_wanted(dispatch.looked_at(Source.BROKER))
        # asked for each packet or connection, and the same as long as the node lives
        self._follows_packets = dispatch.follows_packets
        self._follows_sessions = dispatch.follows_sessions
        self.filters_clients = dispatch.chain.filters(Source.CLIENT)
        """Some filter decides about the messages of clients."""
        self.filters_broker = dispatch.chain.filters(Source.BROKER)
        """Some filter decides about the messages that clients get."""
        self.admits_clients = dispatch.chain.admits_clients
        """Some filter decides about a CONNECT."""

    def session_established(self, session: BaseSession) -> None:
        """Tell the plugins that have a hook for it."""
        if self._follows_sessions:
            self.dispatch.session_established(session)

    def session_closed(self, session: BaseSession, unexpected: Exception | None) -> None:
        """Tell the plugins that have a hook for it; ``unexpected`` is None after an end in order."""
        if self._follows_sessions:
            self.dispatch.session_closed(session, unexpected)

    def arrived(self, source: Source, session: BaseSession, type: PacketType, frame: bytes) -> None:
        """Note a packet for the plugins that listen; they are called by :meth:`deliver`, after relaying."""
        if self._follows_packets:
            self.dispatch.arrived(source, session, type, frame)

    def deliver(self) -> None:
        """Call the listeners of the packets noted."""
        if self._follows_packets:
            self.dispatch.deliver()

    def is_reserved(self, client_id: str) -> bool:
        """Whether it is the name of the node's own sessions, of which no filter is to know."""
        return client_id in self.injector.client_ids or self.loop_guard.is_own(client_id)
