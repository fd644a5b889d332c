"""One plugin in a unit test: the node around it, which does nothing by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ildm.api import (
    Algorithm,
    Filter,
    NodeApi,
    Peer,
    Plugin,
    PluginError,
    Role,
    Source,
    TreeAlgorithm,
    Unreachable,
)
from ildm.core.plugin.arguments import check_data, check_filters, check_message
from ildm.core.plugin.filtering import Awaited, Rejected
from ildm.mqtt import Connect, Publish, Subscribe, Subscription, Version, decode
from ildm.testing.broker import RecordingBroker
from ildm.testing.link import SimLink, data_arrived, hear, message_arrived
from ildm.testing.looking import LookingNode
from ildm.testing.network import Network
from ildm.testing.node import SimNode, peer_of
from ildm.testing.values import SimSession, SimulationError
from ildm.testing.world import PluginWorld

P = TypeVar("P", bound=Plugin)


class KeepLocal(TreeAlgorithm):
    """Routes no message: a node with it is alone with its clients."""


class Transferred(NamedTuple):
    """A message that has left over a link."""

    link: SimLink
    message: Publish
    turn: int
    priority: int


class Sent(NamedTuple):
    """Data that have left for the algorithm of another node."""

    to: Peer
    data: bytes
    turn: int


class FakeLink(SimLink):
    """A link with a neighbour that is not there: the test speaks for it.

    Implements :class:`ildm.api.Link`; :attr:`announced` shows what the plugin has inter-subscribed to.
    """

    __slots__ = ("_full", "_queued")

    def __init__(self, here: SimNode, peer: Peer, dialed: bool, introducer: bool, sessions: int) -> None:
        super().__init__(here, peer, dialed, introducer, sessions)
        self._queued = (0, 0)
        self._full = False

    @property
    def queued(self) -> int:
        return self._queued[0]

    @property
    def queued_bytes(self) -> int:
        return self._queued[1]

    @property
    def full(self) -> bool:
        return self._full

    def queue(self, messages: int, size: int = 0, full: bool = False) -> None:
        """So many messages wait for the neighbour, of so many bytes.

        While the queue is ``full`` nothing more is taken; when it is no longer, and something was refused,
        :meth:`Algorithm.on_writable` is called.
        """
        self.check_up()
        self._queued, self._full = (messages, size), full
        if self.refused and not full:
            self.refused = False
            self.writable()

    def hear(self, changes: Mapping[str, int | None]) -> None:
        """The neighbour inter-subscribes to filters with their QoS; None takes a filter back."""
        self.check_up()
        check_filters({topic_filter: 0 if qos is None else qos for topic_filter, qos in changes.items()})
        hear(self, dict(changes))

    def down(self, closed: bool = False, reason: Unreachable = Unreachable.LOST) -> None:
        """The neighbour leaves.

        Args:
            closed: the link was closed on purpose, so an overlay is not told that the node is unreachable.
            reason: what it is told otherwise.
        """
        self.check_up()
        del self.here.by_id[self.node_id]
        self.here.link_lost(self, None if closed else reason)

    def check_up(self) -> None:
        if not self.up:
            raise SimulationError(f"{self!r} has left")


class FakeNode(LookingNode, Generic[P]):
    """A node with one plugin and no network: what leaves it is kept, what comes is the test's to say::

        node = FakeNode(SubscriptionFlooding)
        link = node.link("b")
        node.subscribe("alarm/#", qos=1)
        assert link.announced == {"alarm/#": 1}
        link.hear({"t": 0})  # what the neighbour inter-subscribes to
        node.publish("t", b"x")
        assert [(t.link, t.message.topic) for t in node.transferred] == [(link, "t")]

    It is the plugin's :class:`ildm.api.NodeApi`, with local clients as in :class:`SimNode`: ``subscribe``,
    ``unsubscribe``, ``publish``, and what they got in ``deliveries``. Wrong arguments raise as in the live
    node. A hook that raises raises in the test. The node has started when it is made.

    Args:
        plugin: the class of an algorithm, or of a filter.
        options: of the plugin, checked by its ``Config``.
        seed: of :attr:`NodeApi.random`.

    Attributes:
        plugin: the plugin.
        transferred: messages that have left over links, whether by ``route`` or by ``transfer``, in order.
            With 10,000 in it and :attr:`sent` nothing more is taken until the test removes some.
        sent: data that have left for other nodes (:meth:`NodeApi.send`), in order. As far as the plugin can
            tell they wait until :meth:`link` makes the link or :meth:`unreachable` ends it.
        counters: of the plugin.
    """

    def __init__(
        self, plugin: type[P], options: Mapping[str, Any] | None = None, node_id: str = "node", seed: int = 0
    ) -> None:
        if issubclass(plugin, Algorithm):
            world = PluginWorld(plugin, options, seed, spool=True)
        elif issubclass(plugin, Filter):
            world = PluginWorld(KeepLocal, seed=seed, filters=[(plugin, options)], spool=True)
        else:
            raise PluginError(f"{plugin!r} is neither an algorithm nor a filter")
        world.network = _Out(world.network, self)
        self.transferred: list[Transferred] = []
        self.sent: list[Sent] = []
        super().__init__(world, node_id, world.algorithm, world.configure(), world.filters)
        world.nodes[node_id] = self
        made = self.plugins.filters[0] if self.plugins.filters else self.algorithm
        assert isinstance(made, plugin)
        self.plugin: P = made
        self.broker: RecordingBroker = RecordingBroker()
        self.start()

    def api_for(self, name: str) -> NodeApi:
        return self  # what a filter counts and logs is not mixed with anything here

    @property
    def injected(self) -> list[Publish]:
        """What the node has published in the local broker: of neighbours, and of the plugin."""
        return self.broker.injected

    @property
    def logged(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        """Events that the plugin has logged, with their fields."""
        return [(event, fields) for _, _, event, fields in self.world.logs]

    def link(self, node_id: str, dialed: bool = True, introducer: bool = False) -> FakeLink:
        """A neighbour joins, so :meth:`Algorithm.on_link_up` is called."""
        link = self.by_id.get(node_id) or self.make_link(peer_of(node_id), dialed)
        assert isinstance(link, FakeLink)
        if link.up:
            raise SimulationError(f"{link!r} is up already")
        link.introducer = introducer
        link.up = True
        self.link_up(link)
        return link

    def arrive(self, link: FakeLink, message: Publish, turn: int = 0) -> None:
        """A neighbour sends a message; a retained one should have a stamp, as between nodes."""
        link.check_up()
        check_message(message)
        # a copy, as the node takes the stamp off its own
        message_arrived(link, replace(message, properties=dict(message.properties)), turn)

    def message(self, sender: str | Peer, data: bytes, turn: int = 0) -> None:
        """Data arrive which the algorithm of another node has sent, so ``on_message`` is called."""
        peer = peer_of(sender) if isinstance(sender, str) else sender
        check_data(peer, data, turn)
        if self.overlay is None:
            raise SimulationError(f"{self.algorithm!r} is no OverlayAlgorithm")
        data_arrived(self.by_id.get(peer.node_id) or self._stray(peer), data, turn)

    def unreachable(self, node_id: str, reason: Unreachable = Unreachable.REFUSED) -> None:
        """A node that data was sent to cannot be reached."""
        if self.overlay is None:
            raise SimulationError(f"{self.algorithm!r} is no OverlayAlgorithm")
        link = self.by_id.get(node_id)
        if link is not None and link.up:
            raise SimulationError(f"{link!r} is up: use its down()")
        self.by_id.pop(node_id, None)
        self.overlay.on_unreachable(node_id, reason)

    def advance(self, seconds: float) -> None:
        """Let time pass; timers that are due fire."""
        self.kernel.run(self.kernel.now + seconds)

    def stop(self) -> None:
        """The node begins to stop: :meth:`Plugin.on_ildm_stop` is called."""
        self.tell("on_ildm_stop")

    # decisions of a filter --------------------------------------------------------------------

    def filter(
        self, message: Publish, source: Source = Source.CLIENT, version: Version = Version.V5
    ) -> Publish | Rejected:
        """What becomes of a message; if the decision is deferred, time passes until it has come.

        It goes nowhere: to see what a client is told let one publish it (:meth:`client`).

        Args:
            source: CLIENT, LINK, or BROKER for what the local broker sends to a client.
            version: of the session it comes over; that of a link is always MQTT 5.
        """
        if message.qos and message.packet_id is None:
            message = replace(message, packet_id=1)
        session = self._session(source, version)
        answer = self._decision(self.plugins.chain.message(source, session, message.encode(session.version)))
        if isinstance(answer, Rejected):
            return answer
        passed = decode(answer, session.version)
        assert isinstance(passed, Publish)
        return passed

    @overload
    def admit(self, packet: Connect) -> Connect | Rejected: ...
    @overload
    def admit(
        self, packet: Subscribe, version: Version = Version.V5
    ) -> Sequence[Subscription | Rejected]: ...
    def admit(
        self, packet: Connect | Subscribe, version: Version = Version.V5
    ) -> Connect | Rejected | Sequence[Subscription | Rejected]:
        """What becomes of a client, or of each entry of its SUBSCRIBE; time passes as in :meth:`filter`."""
        if isinstance(packet, Connect):
            session = self._session(Source.CLIENT, packet.version)
            session.client_id = packet.client_id
            packet.encode()
            client: Connect | Rejected = self._decision(self.plugins.chain.client(session, packet))
            return client
        packet.encode(version)
        session = self._session(Source.CLIENT, version)
        entries: Sequence[Subscription | Rejected] = self._decision(
            self.plugins.chain.subscriptions(session, packet)
        )
        return entries

    def _session(self, source: Source, version: Version) -> SimSession:
        role: Role = source.value
        of = Version.V5 if source is Source.LINK else version
        session = SimSession(next(self.world.session_ids), role, f"{role}.sim:1883", of)
        session.client_id = str(role)
        return session

    def _decision(self, answer: Any) -> Any:
        if not isinstance(answer, Awaited):
            return answer
        told: list[Any] = []
        answer.then(told.append)
        while not told:
            self.kernel.run(max_events=1)
        return told[0]

    # what the node asks of itself -------------------------------------------------------------

    def make_link(self, peer: Peer, dialed: bool) -> FakeLink:
        link = self.by_id[peer.node_id] = self._stray(peer, dialed)
        return link

    def _stray(self, peer: Peer, dialed: bool = False) -> FakeLink:
        return FakeLink(self, peer, dialed, introducer=False, sessions=1)


class _Out(Network):
    """Keeps what would be carried."""

    def __init__(self, like: Network, node: FakeNode[Any]) -> None:
        super().__init__(like.kernel, like.model, like.any_topology)
        self.node = node

    def full(self, link: SimLink) -> bool:
        assert isinstance(link, FakeLink)
        kept = len(self.node.transferred) + len(self.node.sent)
        full = link.full or kept >= self.model.queue_messages
        link.refused = link.refused or full
        return full

    def carry(
        self,
        link: SimLink,
        turn: int,
        kind: str,
        size: int,
        receive: Callable[..., None],
        *args: Any,
        priority: int = 0,
    ) -> bool:
        self.sent[kind] += 1
        self.bytes[kind] += size
        first = args[0]
        if isinstance(first, Publish):
            self.node.transferred.append(Transferred(link, first, turn, priority))
        elif isinstance(first, bytes):
            self.node.sent.append(Sent(link.peer, first, turn))
        return True

    def dial(self, here: SimNode, to: Peer) -> SimLink:
        return here.make_link(to, dialed=True)
