"""What plugins get from the node: itself, its links, its sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ildm.api.values import Injections, NodeStatus, Peer, Role, SendResult, SessionStatus, Stamp
from ildm.mqtt import PacketType, Publish, Version

if TYPE_CHECKING:
    from random import Random

Result = TypeVar("Result")


class Session(Protocol):
    """One TCP connection with its meta-information (*SessionInfo* of thesis 5.2.1)."""

    @property
    def id(self) -> int:
        """Number of the session, unique in this run of the node."""

    @property
    def role(self) -> Role: ...

    @property
    def status(self) -> SessionStatus: ...

    @property
    def peer(self) -> str:
        """Address of the peer, ``host:port``."""

    @property
    def client_id(self) -> str:
        """MQTT client identifier; empty while unknown."""

    @property
    def version(self) -> Version:
        """MQTT version of the messages on this session."""


class Link(Protocol):
    """All sessions with one neighbour node, as long as the neighbour takes part in the cooperation."""

    @property
    def node_id(self) -> str:
        """Identifier of the neighbour."""

    @property
    def peer(self) -> Peer:
        """The neighbour with the address it advertises; that is empty if it cannot be dialed."""

    @property
    def dialed(self) -> bool:
        """This node has made the connection, not the neighbour."""

    @property
    def introducer(self) -> bool:
        """The configuration or the administrator of this node named the neighbour.

        An overlay takes it for its way in. Links made on demand, or by the neighbour, are none.
        """

    @property
    def wire(self) -> tuple[int, int]:
        """Lowest and highest version of the algorithm's own messages that the neighbour reads
        (:attr:`Algorithm.wire`). It gets what both know; data that others pass on for it may be older."""

    @property
    def sessions(self) -> Sequence[Session]: ...

    @property
    def queued(self) -> int:
        """Messages that wait in the link's queues because it is slow, full or down. What the operating
        system holds in its buffers, and what is under way, is not among them."""

    @property
    def queued_bytes(self) -> int:
        """Bytes of the same, as ``link.queue_bytes`` bounds them."""

    def __hash__(self) -> int:
        """Links may be keys."""

    @property
    def interest(self) -> Mapping[str, int]:
        """Filters which the neighbour has inter-subscribed to against this node, with their QoS."""

    @property
    def announced(self) -> Mapping[str, int]:
        """Filters which this node has inter-subscribed to against the neighbour, with their QoS."""

    def inter_subscribe(self, filters: Mapping[str, int]) -> None:
        """Inter-subscribe to ``filters`` (filter -> maximum QoS); remembered and repeated after an outage.

        Raises:
            PluginError: one of them is no filter or begins with ``$``, or its QoS is none; nothing of
                the call is done.
        """

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        """Withdraw filters inter-subscribed to before; unknown ones are ignored."""


class Via(NamedTuple):
    """One way of a message; a pair ``(link, qos)`` does as well."""

    link: Link
    qos: int = 2
    """The highest QoS (0-2) at which the message is to cross."""
    priority: int = 0
    """-8 to 7. Of what waits for the link the highest goes first, and the lowest is dropped first when the
    queue is full. The order of a publisher's messages is kept within one priority."""


Route = Iterable[tuple[Link, int] | Via]
"""Where a message goes besides the local broker."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class NodeApi(Protocol):
    """What a node offers to its plugins.

    An argument that is wrong, such as a payload that is text, raises :class:`PluginError` at once: later
    on it would end sessions that serve others.
    """

    @property
    def node_id(self) -> str: ...

    @property
    def peer(self) -> Peer:
        """This node, as others reach it."""

    @property
    def status(self) -> NodeStatus: ...

    @property
    def links(self) -> Sequence[Link]:
        """Links that are part of the cooperation now; a blocked or removed one is not among them."""

    @property
    def expiry(self) -> float:
        """Seconds for which a site may be away without missing a message of QoS 1 or 2 (``link.expiry``)."""

    @property
    def local_interest(self) -> Mapping[str, int]:
        """Filters granted to local clients (and to persistent sessions while away), with maximum QoS.

        Of a shared subscription ``$share/GROUP/FILTER`` it is ``FILTER``.
        """

    @property
    def state(self) -> MutableMapping[str, bytes]:
        """What the plugin wants to find again after a restart; complete from the constructor on.

        Written soon, not at once; bounded by ``limits.plugin_state_bytes``.

        Raises:
            PluginError: on a change that goes beyond the bound, or a key or value of another type.
        """

    @property
    def random(self) -> Random:
        """The only source of chance a plugin may use."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall(self) -> float:
        """Unix time in seconds, for what outlives the process or is compared between nodes."""

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        """Call ``callback(*args)`` after ``delay`` seconds, never within this call.

        Of callbacks due at the same time the one asked for first comes first; a cancelled one never does.
        None comes before :meth:`Plugin.on_ildm_start` or after the node has stopped.

        Raises:
            PluginError: ``limits.plugin_timers`` are waiting already.
        """

    def offload(self, work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> None:
        """Let ``work()`` run beside the node, and call ``done`` with its result, or what it raised.

        For what takes long or blocks: a look-up, a large document. ``work`` runs in a thread, and must not
        touch the plugin or this interface; ``done`` is called like any hook, unless the node has stopped. In
        the simulator ``work`` runs at once and ``done`` is called later in virtual time.

        Raises:
            PluginError: ``limits.plugin_offloads`` are under way or wait.
        """

    def create_session(self, host: str, port: int) -> Session:
        """Begin a TCP connection (*createSession*).

        The session is CLOSED until :meth:`Plugin.on_session_established`; if it cannot be
        established, :meth:`Plugin.on_tcp_down` follows.

        Raises:
            PluginError: the plugin has ``limits.plugin_sessions`` already.
        """

    def close_session(self, session: Session) -> None:
        """Terminate a session (*closeSession*); what was sent before still goes out.

        One that is not established yet is not heard of again.
        """

    def send_message(self, session: Session, message: bytes) -> bool:
        """Send whole MQTT messages (*sendMessage*).

        False: the session is not established, is full or, of a client or its broker session, in the middle
        of a packet that is relayed.

        Raises:
            PluginError: the session is the node's own, with a neighbour or for :meth:`inject`; or the message
                for a client or its broker session is not whole packets of its version.
        """

    def get_paired_session(self, session: Session) -> Session | None:
        """The broker session of a client session and the reverse (*getPairedSession*)."""

    def create_mqtt_message(self, type: PacketType, version: Version = Version.V5, **params: Any) -> bytes:
        """Build a message (*createMqttMessage*); parameters are the fields of the packet classes.

        Raises:
            EncodeError: an unknown or missing parameter, or a packet the standard forbids.
        """

    def transfer(self, link: Link, message: Publish, turn: int = 0, priority: int = 0) -> bool:
        """Send one PUBLISH over a link, for what :meth:`TreeAlgorithm.route` cannot express, such as a delay.

        The far node takes it as if its ``route`` had been answered there: into its broker, and on. What is
        sent with the same turn and priority stays in order. A QoS 1 or 2 message is this node's from here on:
        nobody's acknowledgement waits for it. Its message expiry begins with the call: who has kept a message
        for some time reduces it (MQTT-3.3.2-6).

        Returns:
            False: the queue is full (:meth:`Algorithm.on_writable` tells when it is not), or the link has
            left; nothing was taken, and that is counted.

        Raises:
            PluginError: a wrong argument; also a retained message without its stamp, as
                :meth:`TreeAlgorithm.route_message` and :meth:`retained` give it: without one the sites would
                not agree on which of two is newer.
        """

    def send(self, to: Peer, data: bytes, turn: int = 0) -> SendResult:
        """Send data to the algorithm of another node, over a link made on demand (:class:`OverlayAlgorithm`).

        It arrives at :meth:`OverlayAlgorithm.on_message` at most once; the order holds among data of one
        ``turn``, which picks the session. If the node cannot be reached, or the link to it is lost,
        :meth:`OverlayAlgorithm.on_unreachable` follows and what was queued is dropped and counted. A node
        that could not be reached is dialed again after a pause only, which grows (``link.reconnect_min`` to
        ``link.reconnect_max``, at most ``link.connect_timeout``); what is sent to it meanwhile, or was while
        it was dialed in vain, waits for that, or for a connection from it.

        Raises:
            PluginError: a wrong argument, or the algorithm is no :class:`OverlayAlgorithm`.
        """

    def retained(self, topic_filter: str) -> Sequence[Publish]:
        """Retained messages remembered at this node whose topics match, the oldest first.

        Each carries its stamp, marked as a repetition, and deletions (with an empty payload) are among
        them. Message expiry is what is left of it.
        """

    def retained_topics(self) -> Iterator[tuple[str, Stamp]]:
        """Topics of all that :meth:`retained` knows, each with the stamp of its message, in no order.

        There may be very many: whoever looks at them goes on with the iterator in later calls. What comes or
        goes in between may be among them or not.
        """

    def inject(self, message: Publish, identity: tuple[str, int] | None = None) -> bool:
        """Publish a message into the local broker through the node's own sessions.

        A retained message with a node's stamp is judged first: if the node knows a newer one on its
        topic it goes to live subscribers only, without the retain flag; if it is a repetition, or the
        very one the node has, that is older, it is not published at all. A repetition that is not published
        does not count for its ``identity``: what it repeats still is, when it comes. An unstamped one is
        published as it is, and what the node remembers of its topic is forgotten.

        With a spool (``spool.mode``) one of QoS 1 or 2 is on disk before anything that is sent after this
        call leaves the node, and until the broker has it: also if the node is killed in between.

        Args:
            identity: who the message is, wherever it comes along: its origin, and its number there, from 1
                to 2**64 - 2. Of one origin they grow, as a rule. For messages of QoS 1 and 2.

        Returns:
            False: a message of this identity was injected before, in this incarnation of the node or an
                earlier one; nothing was done. Without a spool that is never known.
        """

    def inject_frame(self, frame: bytes, identity: tuple[str, int] | None = None) -> bool:
        """The same for a PUBLISH of MQTT 5 in its encoded form.

        One of QoS 0 or 1 with neither flags nor properties is passed on as it is, which costs a fraction.

        Raises:
            PluginError: it is not one whole PUBLISH that :meth:`inject` would take.
        """

    def has_injected(self, origin: str, number: int) -> bool | None:
        """Whether a message of this identity was injected, in this incarnation of the node or an earlier one.

        None: that is not known. There is no spool, or it is longer ago than ``spool.identities`` can tell.
        """

    @property
    def injections(self) -> Injections:
        """How many messages :meth:`inject` and :meth:`inject_frame` were given, and how many are safe: the
        broker has them, or the spool.

        Without a spool what waits for the broker is lost with the node, so an algorithm that can get it again
        after a restart looks here before it notes in :attr:`state` that something has come.
        """

    def keep(self, data: bytes) -> int | None:
        """Keep data in the node's spool until :meth:`unkeep`, through all incarnations of the node.

        What is kept while :meth:`OverlayAlgorithm.on_publish` is called is durable, as ``spool.mode`` has it,
        before the client gets its acknowledgement; nothing that is sent afterwards leaves the node before it
        is written, unless it cannot be (:meth:`when_kept`). The bound is that of the spool, ``spool.bytes``:
        beyond it clients are made to wait.

        Returns:
            A number, which counts up through all incarnations; None: the node has no spool.
        """

    def unkeep(self, number: int) -> None:
        """Forget what was kept; a number that is not known, or not any more, is ignored."""

    def when_kept(self, callback: Callable[[], None]) -> None:
        """Call back once all is durable that was kept so far, in the order of asking; perhaps at once.

        While the spool cannot be written what is sent goes nevertheless, or the others would take the node
        for dead. So what must not be seen before it is kept, as its client would send it again under another
        number if the node is killed now, is sent from here. Without a spool that is at once.
        """

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """What earlier incarnations have kept, with the numbers, the oldest first; to be asked for once, when
        the node has started.

        Missing is what was unkept, and what the node was told to drop or cannot read any more, which it
        counts and names in its log.
        """

    def routes_changed(self) -> None:
        """Forget the results of :meth:`TreeAlgorithm.route`; to be called when an answer would differ."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of this plugin, shown by ``ildm algorithm``; a name has at most 100 characters.

        Of more than ``limits.plugin_names`` counters and gauges the rest goes into one called ``other``.
        """

    def gauge(self, name: str, value: float) -> None:
        """Set a value that goes up and down, shown beside the counters; a finite number."""

    def log(self, event: str, **fields: object) -> None:
        """Log one event at level info; long values are cut.

        More than ``limits.plugin_log_rate`` a second are counted instead, and the next line says how many.
        """
