"""One simulated node with its algorithm and local broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

from ildm.api import (
    Algorithm,
    Injections,
    Link,
    NodeApi,
    NodeStatus,
    OverlayAlgorithm,
    Peer,
    PluginConfig,
    PluginError,
    SendResult,
    Session,
    SessionStatus,
    Stamp,
    TreeAlgorithm,
    Unreachable,
)
from ildm.config import LimitsConfig, LinkConfig
from ildm.core.counters import Counters
from ildm.core.host.plugin_state import PluginState
from ildm.core.link.pauses import Pauses
from ildm.core.plugin.account import FAILURES, Account
from ildm.core.plugin.arguments import (
    as_result,
    check_callable,
    check_data,
    check_delay,
    check_frame,
    check_identity,
    check_message,
    check_overlay,
    check_pattern,
    check_transfer,
    checked_fields,
    checked_ways,
)
from ildm.core.status import NodeState
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.stamps import stamped
from ildm.mqtt import (
    Connect,
    PacketType,
    Properties,
    Publish,
    Version,
    create_message,
    decode,
    topic_matches,
    validate_topic_filter,
    validate_topic_name,
)
from ildm.testing.broker import LocalBroker
from ildm.testing.client import SimClient
from ildm.testing.keeping import Keeper, Keeping
from ildm.testing.kernel import Kernel, Timer
from ildm.testing.link import SimLink, data_arrived, message_arrived
from ildm.testing.network import FRAME, Network
from ildm.testing.plugins import FilterApi, Plugins, Run, saved_already
from ildm.testing.values import Cause, Delivery, SimulationError

if TYPE_CHECKING:
    from ildm.core.tables import Key, Row, Table
    from ildm.testing.link import Parcel

LIMITS = LimitsConfig()
LINK = LinkConfig()
Result = TypeVar("Result")


class Setting(Run, Protocol):
    """The world, as its nodes know it."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def network(self) -> Network: ...
    @property
    def on_delivery(self) -> Callable[[SimNode, Delivery], None] | None: ...


class _Clock:
    """The driver and store of :class:`Retained`: virtual time is wall-clock time as well."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def now(self) -> float:
        return self.kernel.now

    wall = now

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        """Nothing outlives a run."""


class _NodeTimer(Timer):
    """One that its node counts while it waits."""

    __slots__ = ("node",)

    def __init__(self, node: SimNode, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        super().__init__(node.kernel, node.fire, (callback, args))
        self.node = node
        node.timers += 1

    def cancel(self) -> None:
        if self.callback is not None:
            self.node.timers -= 1
            super().cancel()


class SimNode(Keeper):
    """A node; implements :class:`ildm.api.NodeApi` for one algorithm, and stands for its local clients.

    Attributes:
        clients: local clients whose packets are made one by one, by their identifier.
        plugins: those which look at packets; None: nobody does.
        deliveries: what local clients got, in order, unless the world has ``on_delivery``.
        counters: of the algorithm (:meth:`count`).
        timers: of the algorithm that wait.
        offloads: of the algorithm whose results are still to come.
        by_id: links by the neighbour's id, also those not up yet.
        configured: ids of neighbours that this node was told to link with.
    """

    plugins: Plugins | None = None
    __slots__ = (
        "_injections",
        "_keeping",
        "_pauses",
        "_random",
        "_retained",
        "_state",
        "_turn",
        "account",
        "algorithm",
        "alive",
        "asks_each",
        "broker",
        "busy_until",
        "by_id",
        "clients",
        "configured",
        "counters",
        "deliveries",
        "has_failed",
        "kernel",
        "last_parcel",
        "life",
        "local_interest",
        "network",
        "node_id",
        "offloads",
        "overlay",
        "peer",
        "ranked",
        "sends_until",
        "silent",
        "timers",
        "tree",
        "world",
    )

    def __init__(
        self, world: Setting, node_id: str, algorithm: type[Algorithm], config: PluginConfig
    ) -> None:
        self._injections = 0
        self.world = world
        self.kernel: Kernel = world.kernel
        self.network: Network = world.network
        self.node_id = node_id
        self.peer = peer_of(node_id)
        self.life = NodeState()
        self.alive = True
        self.silent = False
        self.by_id: dict[str, SimLink] = {}
        self.configured: dict[str, None] = {}
        self.local_interest: dict[str, int] = {}
        self.broker = LocalBroker()
        self.deliveries: list[Delivery] = []
        self.account = Account(LIMITS)
        self.counters = self.account.counters
        self.timers = 0
        self.offloads = 0
        self._state: PluginState | None = None
        self._keeping = Keeping(world.disk, node_id)
        self.busy_until = 0.0
        self.sends_until = 0.0
        self.has_failed = False
        """Some node could not be reached from here."""
        self._pauses: Pauses | None = None
        self.last_parcel: Parcel | None = None
        """Of all that it has sent the one that departs last."""
        self.ranked = False
        """Some message had another priority than 0."""
        self._random: Random | None = None
        self._retained: RetainedStore | None = None
        self._turn = -1
        self.clients: dict[str, SimClient] = {}
        self.algorithm = made = algorithm(self, config)
        self.tree = made if isinstance(made, TreeAlgorithm) else None
        self.asks_each = (
            self.tree is not None and type(self.tree).route_message is not TreeAlgorithm.route_message
        )
        self.overlay = made if isinstance(made, OverlayAlgorithm) else None

    def __repr__(self) -> str:
        return f"<node {self.node_id}>"

    # local clients ----------------------------------------------------------------------------

    def client(self, client_id: str, version: Version = Version.V5, **connect: Any) -> SimClient:
        """A local client that is connected; if it is not yet, with these fields of its CONNECT.

        Its calls are packets. The other methods here are for clients that nobody looks at closely; where a
        plugin looks at packets they are sent by such a client, too, of MQTT 5.
        """
        known = self.clients.get(client_id)
        if known is not None and known.session.status is SessionStatus.CLOSED:
            known = None
        if known is not None and known.node is self:
            return known
        self.check_alive()
        if known is None or connect:
            packet = Connect(client_id=client_id, version=version, **connect)
        else:
            packet = known.connect  # of the node's last incarnation, and back
        made = self.clients[client_id] = SimClient(self, packet)
        return made

    def subscribe(self, topic_filter: str, qos: int = 0, client: str = "client") -> None:
        """A local client's subscription is granted; it gets the retained messages that match."""
        self.check_alive()
        validate_topic_filter(topic_filter)
        self.granted(topic_filter, qos, client)

    def granted(self, topic_filter: str, qos: int, client: str) -> None:
        """The local broker has granted a subscription."""
        plain = self.broker.subscribe(topic_filter, qos, client)
        if plain is topic_filter:  # no retained messages for a shared subscription (MQTT 5, 4.8.2)
            for topic, message in list(self.broker.retained.items()):
                if topic_matches(topic_filter, topic):
                    self._hand(message, client, min(qos, message.qos), True)
        self._interest_changed(plain)

    def unsubscribe(self, topic_filter: str, client: str = "client") -> None:
        """A local client withdraws a filter."""
        self.check_alive()
        if not self.withdrawn(topic_filter, client):
            raise SimulationError(f"{client} at {self.node_id} has no subscription {topic_filter!r}")

    def withdrawn(self, topic_filter: str, client: str) -> bool:
        """A client takes a filter back; False: it had none such."""
        plain = self.broker.unsubscribe(topic_filter, client)
        if plain is None:
            return False
        self._interest_changed(plain)
        return True

    def forget(self, client: str) -> None:
        """The local broker forgets a client's subscriptions."""
        for topic_filter in self.broker.subscriptions(client):
            self.withdrawn(topic_filter, client)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        publisher: int | None = None,
        client: str = "client",
    ) -> None:
        """A local client publishes.

        Args:
            publisher: its turn in the round-robin; None: each message takes the next one.
        """
        self.check_alive()
        message = self.message_of(topic, payload, qos, retain, properties)
        self.enter(message, publisher, Cause(self.node_id, self.kernel.now, 0))

    def message_of(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None
    ) -> Publish:
        """A client's message.

        Raises:
            MqttError: it cannot be published on such a topic.
        """
        validate_topic_name(topic)
        return Publish(
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            packet_id=1 if qos else None,
            properties={} if properties is None else dict(properties),
        )

    def enter(self, message: Publish, publisher: int | None, cause: Cause) -> None:
        """A local client's message has come to the broker, and is the algorithm's."""
        if publisher is None:
            self._turn = publisher = (self._turn + 1) & 0xFFFF
        before, self.network.cause = self.network.cause, cause
        try:
            self._deliver(message, self.broker.publish(message))
            if not message.topic.startswith("$"):
                if message.retain:
                    message = stamped(message, self.memory.entered(message))
                if self.overlay is not None:
                    self.overlay.on_publish(message, publisher)
                else:
                    self._route(message, None, publisher)
        finally:
            self.network.cause = before

    def lost(self, why: str, messages: int = 1) -> None:
        """Count messages that a client does not get or the node does not take."""
        self.network.lost[why] += messages

    def check_alive(self) -> None:
        if not self.alive:
            raise SimulationError(f"node {self.node_id} is dead")

    def _interest_changed(self, topic_filter: str) -> None:
        maximum = self.broker.maximum(topic_filter)
        if self.local_interest.get(topic_filter) == maximum:
            return
        if maximum is None:
            del self.local_interest[topic_filter]
        else:
            self.local_interest[topic_filter] = maximum
        self.algorithm.on_interest_changed(None, {topic_filter: maximum})

    def _deliver(self, message: Publish, receivers: Mapping[str, int]) -> None:
        """Hand a message that the local broker has now to its clients."""
        for client, qos in receivers.items():
            # MQTT-3.3.1-12: the retain flag is for what was stored before the subscription
            self._hand(message, client, min(qos, message.qos), False)

    def _hand(self, message: Publish, client: str, qos: int, retain: bool) -> None:
        cause = None if retain else self.network.cause
        origin, sent, hops = (None, None, None) if cause is None else cause
        delivery = Delivery(
            self.kernel.now, message.topic, message.payload, qos, retain, client, origin, sent, hops
        )
        if self.world.on_delivery is None:
            self.deliveries.append(delivery)
        else:
            self.world.on_delivery(self, delivery)

    # messages over links of a tree ------------------------------------------------------------

    def _route(self, message: Publish, source: SimLink | None, turn: int) -> None:
        if self.tree is None:
            return
        if self.asks_each:
            answers = self.tree.route_message(message.copy(), source, turn)
        else:
            answers = self.tree.route(message.topic, message.retain, source)
        for link, wanted, priority in checked_ways(answers, self._is_own):
            assert isinstance(link, SimLink)
            if link is source or not link.up:
                continue
            # a retained message keeps its QoS: the far broker serves it to later subscribers with it
            qos = message.qos if message.retain else min(message.qos, wanted)
            self._transfer(link, message, qos, turn, priority)

    def _is_own(self, link: Link) -> bool:
        if not isinstance(link, SimLink) or link.here is not self:
            raise SimulationError(f"route() of {self.node_id} answered {link!r}")
        return True

    def _transfer(self, link: SimLink, message: Publish, qos: int, turn: int, priority: int = 0) -> None:
        # a copy, as the far node takes the stamp off its own
        copy = Publish(
            topic=message.topic,
            payload=message.payload,
            qos=qos,
            retain=message.retain,
            packet_id=1 if qos else None,
            properties=dict(message.properties),
        )
        self.network.carry(link, turn, "publish", _size(copy), message_arrived, copy, turn, priority=priority)

    def arrived(self, link: SimLink, message: Publish, turn: int) -> None:
        """A message has come over a link: to the local broker and on."""
        remote: Publish | None = message
        if message.retain:
            message, remote, _ = self.memory.merge(message)
        if remote is not None:
            self._into_broker(message)
            self._route(remote, link, turn)

    @property
    def memory(self) -> RetainedStore:
        """The retained messages this node remembers; made when first needed."""
        if self._retained is None:
            clock: Any = _Clock(self.kernel)
            self._retained = RetainedStore(clock, self.node_id, LIMITS, Counters(), clock, LINK.expiry)
        return self._retained

    # NodeApi ----------------------------------------------------------------------------------

    @property
    def status(self) -> NodeStatus:
        return self.life.status

    @property
    def links(self) -> Sequence[Link]:
        return [link for link in self.by_id.values() if link.up]

    @property
    def expiry(self) -> float:
        return LINK.expiry

    @property
    def pauses(self) -> Pauses:
        """Nodes that could not be reached; made when first needed."""
        if self._pauses is None:
            model = self.network.model
            longest = min(model.reconnect_max, model.connect_timeout)
            self._pauses = Pauses(self.network.jitter, model.reconnect_min, longest)
        return self._pauses

    @property
    def random(self) -> Random:
        if self._random is None:  # most nodes of a large run never ask
            self._random = Random(self.world.seed_of(self.node_id))
        return self._random

    def now(self) -> float:
        return self.kernel.now

    def wall(self) -> float:
        return self.kernel.now

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        check_delay(delay)
        check_callable(callback)
        limit = LIMITS.plugin_timers
        if self.timers >= limit:
            raise self.account.refuse("timers", f"{limit} timers are waiting (limits.plugin_timers)")
        timer = _NodeTimer(self, callback, args)
        self.kernel.enter(delay, timer)
        return timer

    def fire(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.timers -= 1
        if self.alive:
            callback(*args)

    def if_alive(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        """What a dead node does no more."""
        if self.alive:
            callback(*args)

    def offload(self, work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> None:
        """The work is done at once, in no time."""
        check_callable(work)
        check_callable(done)
        if self.offloads >= LIMITS.plugin_offloads:
            raise self.account.refuse("offloads", "work under way (limits.plugin_offloads)")
        self.offloads += 1
        result: Any
        try:
            result = work()
        except FAILURES as error:
            result = as_result(error)
        self.kernel.post(0.0, self._finished, done, result)

    def _finished(self, done: Callable[[Any], None], result: Any) -> None:
        self.offloads -= 1
        if self.alive:
            done(result)

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        check_overlay(self.network.any_topology)
        check_data(to, data, turn)
        if to.node_id == self.node_id:
            self.network.lost["not sendable"] += 1
            return SendResult.SELF
        size = len(data) + FRAME
        if size > self.network.model.packet_size:
            self.network.lost["not sendable"] += 1
            return SendResult.TOO_LARGE
        link = self.by_id.get(to.node_id)
        if link is None:
            if self.has_failed and not self.pauses.has_room(to.node_id, self.kernel.now):
                self.network.lost["queue"] += 1
                return SendResult.FULL
            link = self.network.dial(self, to)
        elif link.paused:
            link.peer = to  # it may have moved
        classify = self.network.classify
        kind = "data" if classify is None else classify(data)
        if self.network.full(link):
            self.network.lost["queue"] += 1
            return SendResult.FULL
        lane = turn % self.network.model.sessions
        self.network.carry(link, turn, kind, size, data_arrived, data, lane)
        return SendResult.OK

    def retained(self, topic_filter: str) -> Sequence[Publish]:
        check_pattern(topic_filter)
        if self._retained is None:
            return []
        return list(self._retained.matching(topic_filter))

    def retained_topics(self) -> Iterator[tuple[str, Stamp]]:
        return iter(()) if self._retained is None else self._retained.stamps()

    def inject(self, message: Publish, identity: tuple[str, int] | None = None) -> bool:
        check_message(message)
        check_identity(identity)
        if identity is not None and message.retain and self.memory.is_old_repetition(message):
            return True
        if not self._keeping.enter(identity):
            return False
        if message.retain:
            merged = self.memory.merge_injected(message)
            if merged is None:
                return True
            message = merged
        self._into_broker(message)
        return True

    def inject_frame(self, frame: bytes, identity: tuple[str, int] | None = None) -> bool:
        message = check_frame(frame)
        if message is not None:
            return self.inject(message, identity)
        check_identity(identity)
        if not self._keeping.enter(identity):
            return False
        plain = decode(frame, Version.V5)
        assert isinstance(plain, Publish)
        self._into_broker(plain)
        return True

    def has_injected(self, origin: str, number: int) -> bool | None:
        check_identity((origin, number))
        return self._keeping.has_injected(origin, number)

    def _into_broker(self, message: Publish) -> None:
        self._injections += 1
        self._deliver(message, self.broker.inject(message))

    @property
    def injections(self) -> Injections:
        """The broker takes all at once."""
        return Injections(self._injections, self._injections)

    def transfer(self, link: Link, message: Publish, turn: int = 0, priority: int = 0) -> bool:
        check_transfer(message, turn, priority)
        if not isinstance(link, SimLink) or link.here is not self:
            raise PluginError(f"{link!r} is not a link of this node")
        if not link.up:
            self.network.lost["link"] += 1
            return False
        if self.network.full(link):
            self.network.lost["queue"] += 1
            return False
        self._transfer(link, message.copy(), message.qos, turn, priority)
        return True

    def routes_changed(self) -> None:
        """Nothing to forget: the simulator asks each time."""

    def count(self, name: str, by: int = 1) -> None:
        self.account.count(name, by)

    def gauge(self, name: str, value: float) -> None:
        self.account.gauge(name, value)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Of the algorithm."""
        return self.account.gauges

    @property
    def state(self) -> MutableMapping[str, bytes]:
        if self._state is None:  # most nodes of a large run have none
            entries = self.world.saved.setdefault(self.node_id, {})
            self._state = PluginState(self.account, entries, saved_already)
        return self._state

    def log(self, event: str, **fields: object) -> None:
        fields = checked_fields(event, fields)
        if not self.account.may_log(self.kernel.now):
            return
        fields.update(self.account.take_left_out())
        self.world.logs.append((self.kernel.now, self.node_id, event, fields))

    def create_mqtt_message(self, type: PacketType, version: Version = Version.V5, **params: Any) -> bytes:
        return create_message(type, version, **params)

    def create_session(self, host: str, port: int) -> NoReturn:
        raise SimulationError("the simulator has no TCP connections to other programs")

    def close_session(self, session: Session) -> NoReturn:
        raise SimulationError("the simulator has no TCP connections to other programs")

    def send_message(self, session: Session, message: bytes) -> NoReturn:
        raise SimulationError("the simulator has no TCP connections to other programs")

    def get_paired_session(self, session: Session) -> Session | None:
        for client in self.clients.values():
            if session is client.session:
                return client.paired
            if session is client.paired:
                return client.session
        return None

    # called by the world and the network ------------------------------------------------------

    def inherit(self, last: SimNode) -> None:
        """Take over what the last incarnation has left."""
        self.broker = last.broker
        self.clients = last.clients
        self.local_interest = last.local_interest
        self._retained = last._retained

    def start(self) -> None:
        self.life.start()
        self.tell("on_ildm_start")
        if self.local_interest:  # of sessions that were there before
            self.algorithm.on_interest_changed(None, dict(self.local_interest))

    def change_begins(self, change: str, neighbor: Peer) -> None:
        """A neighbour is being added (``add``) or removed (``remove``)."""
        self.life.begin(change)
        host, _, port = neighbor.address.rpartition(":")
        self.tell("on_ildm_add" if change == "add" else "on_ildm_remove", host, int(port))

    def tell(self, hook: str, *args: object) -> None:
        """Call a hook that filters have as well."""
        if self.plugins is None:
            getattr(self.algorithm, hook)(*args)
        else:
            self.plugins.call(hook, *args)

    def api_for(self, name: str) -> NodeApi:
        """The node as a filter has it."""
        api: Any = FilterApi(self, name)
        return cast(NodeApi, api)

    def make_link(self, peer: Peer, dialed: bool) -> SimLink:
        """A new link, not up yet."""
        introducer = peer.node_id in self.configured
        link = SimLink(self, peer, dialed, introducer, self.network.model.sessions)
        self.by_id[peer.node_id] = link
        return link

    def connect(self, peer: Peer) -> None:
        """Link with a neighbour this node was told of, unless there is a link."""
        if self.alive and peer.node_id in self.configured and peer.node_id not in self.by_id:
            self.network.dial(self, peer)

    def link_up(self, link: SimLink) -> None:
        """A link can be used; in a tree the ends tell each other the retained messages they remember."""
        if not link.introducer and link.back is not None and link.back.introducer:
            self.change_begins("add", link.peer)  # the neighbour was told to, and so is here
        self.life.done("add")
        self.algorithm.on_link_up(link)
        if self.network.any_topology or self._retained is None or link.back is None:
            return
        buckets = link.back.here.memory.view().buckets()
        for topic in self._retained.view().topics_that_differ(buckets):
            found = self._retained.repetition(topic)
            if found is not None:
                self._transfer(link, found[0], found[0].qos, 0)

    def link_lost(self, link: SimLink, why: Unreachable | None) -> None:
        """A link of this node is no more; without a reason it was closed on purpose."""
        was_up, link.up = link.up, False
        if link.introducer:
            self.life.done("add")
        if was_up:
            self.algorithm.on_link_down(link)
        if self.overlay is not None and why is not None and (was_up or link.dialed):
            self.overlay.on_unreachable(link.node_id, why)

    def die(self, silent: bool) -> None:
        """No hook is called any more."""
        self.alive = False
        self.silent = silent
        self.life.stop()


def peer_of(node_id: str) -> Peer:
    """The address that nodes in virtual time have."""
    return Peer(node_id, f"{node_id}.sim:1885")


def _size(message: Publish) -> int:
    """Bytes of a message as an MQTT 5 frame."""
    if message.properties:
        return len(message.encode(Version.V5))
    body = 2 + len(message.topic.encode()) + (2 if message.qos else 0) + 1 + len(message.payload)
    return 1 + (1 if body < 128 else 2 if body < 16_384 else 3 if body < 2_097_152 else 4) + body
