"""Everything the author of a plugin sees.

A *cooperation algorithm* decides which messages cross to which neighbour nodes; subclass
:class:`Algorithm`. A *filter* validates, drops or changes messages on their way; subclass
:class:`Filter`. Both are plain synchronous objects: time, chance and input/output are reached
through the :class:`NodeApi` handed to the constructor, so one and the same class runs in the live
node, in the simulator and in tests. A plugin is found by its entry point in the group
``ildm.algorithms`` or ``ildm.filters``.

The smallest algorithm, publication flooding, needs one method::

    class PublicationFlooding(Algorithm):
        def route(self, topic, retain, source):
            return [(link, 2) for link in self.api.links if link is not source]

An algorithm of topology ``any`` need not keep to neighbours: nodes have addresses (:class:`Peer`), and
:meth:`NodeApi.send` takes data of the algorithm's own to any node, over a link made on demand. With
``routes_messages`` it also spreads the local clients' messages itself, in whatever form it likes::

    class Gossip(Algorithm):
        topology = "any"
        routes_messages = True

        def on_publish(self, message, turn):
            for peer in self.known:
                self.api.send(peer, pack(message), turn)

        def on_message(self, sender, data):
            self.api.inject(unpack(data))

The five components of the thesis (Table 5.1) and where they are here:

================== ======================================================================
Session manager    ``NodeApi.create_session, close_session, send_message, get_paired_session``
Message listener   ``Plugin.mqtt_message_arrived`` for the types named in ``Plugin.wants``
Event listener     ``Plugin.on_tcp_down, on_recv_failure``
Status listener    ``Plugin.on_session_established, on_session_closed, on_ildm_start,
                   on_ildm_stop, on_ildm_add, on_ildm_remove``
Message generator  ``NodeApi.create_mqtt_message``
================== ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from ildm.mqtt import IldmError, PacketType, Property, Publish, Version

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "STAMP_PROPERTY",
    "Algorithm",
    "Filter",
    "Link",
    "NodeApi",
    "NodeStatus",
    "Peer",
    "Plugin",
    "PluginConfig",
    "PluginError",
    "Role",
    "Route",
    "Session",
    "SessionStatus",
    "Source",
    "Stamp",
    "Timer",
]


class PluginError(IldmError):
    """A plugin that cannot be loaded: unknown name or option, missing or unknown hook, wrong signature.

    Or a call of a plugin that cannot be carried out: a wrong argument, or not now.
    """


class SessionStatus(StrEnum):
    """Status of a session (thesis Fig. 5.3)."""

    CLOSED = "closed"
    ESTABLISHED = "established"
    TERMINATING = "terminating"


class NodeStatus(StrEnum):
    """Status of a node (thesis Fig. 5.4)."""

    STOPPED = "stopped"
    RUNNING = "running"
    ILDM_ADDING = "ildm_adding"
    ILDM_REMOVING = "ildm_removing"


class Role(StrEnum):
    """What stands at the far end of a session."""

    CLIENT = "client"
    """A local client."""
    BROKER = "broker"
    """The local broker; the session is paired with a local client's."""
    INJECTION = "injection"
    """The local broker; the session carries transferred messages."""
    LINK = "link"
    """A neighbour node."""
    PEER = "peer"
    """Whatever a plugin has connected to with :meth:`NodeApi.create_session`."""


class Source(Enum):
    """Where a message comes from; with a packet type it makes an entry of :attr:`Plugin.wants`."""

    CLIENT = Role.CLIENT
    BROKER = Role.BROKER
    LINK = Role.LINK
    PEER = Role.PEER


STAMP_PROPERTY = "ildm-retained"
"""User property of a stamp; its value is ``MILLISECONDS:NODE``, and ``:sync`` after it in a repetition."""


class Stamp(NamedTuple):
    """When and where a retained message entered the network; of two on a topic the greater is newer.

    A hybrid logical clock: milliseconds of Unix time, but always later than what the node had seen. Between
    nodes it travels in the user property :data:`STAMP_PROPERTY`.
    """

    time: int
    node: str

    def text(self, repeated: bool = False) -> str:
        """Value of the user property."""
        return f"{self.time}:{self.node}" + (":sync" if repeated else "")

    @classmethod
    def of(cls, message: Publish) -> Stamp | None:
        """The stamp a message carries."""
        for name, value in message.properties.get(Property.USER_PROPERTY, ()):
            if name == STAMP_PROPERTY:
                return cls.parse(value)[0]
        return None

    @classmethod
    def parse(cls, text: str) -> tuple[Stamp | None, bool]:
        """Value of the user property -> the stamp, None if it is none, and whether it is a repetition."""
        time, _, rest = text.partition(":")
        node, _, mark = rest.partition(":")
        if time.isascii() and time.isdecimal() and len(time) < 20 and node:
            return cls(int(time), node), mark == "sync"
        return None, False


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
        """Address of the far end, ``host:port``."""

    @property
    def client_id(self) -> str:
        """MQTT client identifier; empty while unknown."""

    @property
    def version(self) -> Version:
        """MQTT version of the messages on this session."""


class Peer(NamedTuple):
    """A node as others reach it."""

    node_id: str
    address: str
    """``HOST:PORT`` of its link listener, as the node advertises it (``link.advertise``)."""


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
    def sessions(self) -> Sequence[Session]: ...

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


Route = Iterable[tuple[Link, int]]
"""Where a PUBLISH goes: links, each with the highest QoS (0-2) at which the message is to cross."""


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
    def local_interest(self) -> Mapping[str, int]:
        """Filters granted to local clients (and to persistent sessions while away), with maximum QoS."""

    @property
    def random(self) -> Random:
        """The only source of chance an algorithm may use."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        """Call ``callback(*args)`` after ``delay`` seconds, never within this call.

        Of callbacks due at the same time the one asked for first comes first; a cancelled one never does.
        """

    def create_session(self, host: str, port: int) -> Session:
        """Begin a TCP connection (*createSession*).

        The session is CLOSED until :meth:`Plugin.on_session_established`; if it cannot be
        established, :meth:`Plugin.on_tcp_down` follows.
        """

    def close_session(self, session: Session) -> None:
        """Terminate a session (*closeSession*); what was sent before still goes out.

        One that is not established yet is not heard of again.
        """

    def send_message(self, session: Session, message: bytes) -> bool:
        """Send whole MQTT messages (*sendMessage*); False if the session is not established or full."""

    def get_paired_session(self, session: Session) -> Session | None:
        """The broker session of a client session and the reverse (*getPairedSession*)."""

    def create_mqtt_message(self, type: PacketType, version: Version = Version.V5, **params: Any) -> bytes:
        """Build a message (*createMqttMessage*); parameters are the fields of the packet classes."""

    def transfer(self, link: Link, message: Publish) -> None:
        """Send one PUBLISH over a link; for algorithms that do not use :meth:`Algorithm.route`.

        A retained message should carry its stamp, as :meth:`retained` gives it: without one nobody can
        tell whether it is newer than another. Over a link that has left it is dropped and counted.
        """

    def send(self, to: Peer, data: bytes, turn: int = 0) -> bool:
        """Send data to the algorithm of another node, over a link made on demand (topology ``any``).

        It arrives at :meth:`Algorithm.on_message` at most once; the order holds among data of one
        ``turn``, which picks the session. False: the bounded queue is full (or ``data`` larger than
        ``link.packet_size``, or ``to`` this very node) and the data was dropped and counted. If the
        node cannot be reached, or the link to it is lost, :meth:`Algorithm.on_unreachable` follows and
        what was queued is dropped and counted.
        """

    def retained(self, topic_filter: str) -> Sequence[Publish]:
        """Retained messages remembered at this node whose topics match, the oldest first.

        Each carries its stamp, marked as a repetition, and deletions (with an empty payload) are among
        them. Message expiry is what is left of it.
        """

    def inject(self, message: Publish) -> None:
        """Publish a message into the local broker through the node's own sessions.

        A retained message with a node's stamp is judged first: if the node knows a newer one on its
        topic it goes to live subscribers only, without the retain flag; if it is a repetition, or the
        very one the node has, that is older, it is not published at all. An unstamped one is published
        as it is, and what the node remembers of its topic is forgotten.
        """

    def routes_changed(self) -> None:
        """Forget the results of :meth:`Algorithm.route`; to be called when an answer would differ."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of this plugin, shown by ``ildm status``."""

    def log(self, event: str, **fields: object) -> None:
        """Log one event at level info."""


class PluginConfig(BaseModel):
    """Base of a plugin's options: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Plugin:
    """What algorithms and filters have in common. Override only what is needed.

    Hooks nobody overrides cost nothing. A hook that raises is logged with the plugin's name and
    counted; the message it was called for goes on as if the hook had not been there: a raising ``route``
    keeps it local, a raising ``filter`` lets it pass. While a hook runs the node does nothing else: one
    that takes longer than ``limits.hook_warn`` is logged and counted.
    """

    Config: ClassVar[type[PluginConfig]] = PluginConfig
    wants: ClassVar[frozenset[tuple[Source, PacketType]]] = frozenset()
    """Messages to be shown to the plugin; all others are relayed without a call (cut-through)."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        self.api = api
        self.config = config

    # message listener -------------------------------------------------------------------------

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        """A wanted message has arrived (*mqttMessageArrived*); ``message`` are its original bytes.

        Called after the message was relayed; the return value is ignored.
        """

    # event listener ---------------------------------------------------------------------------

    def on_tcp_down(self, session: Session) -> None:
        """A TCP connection ended unexpectedly or could not be made (*onTcpDown*)."""

    def on_recv_failure(self, session: Session, exception: Exception) -> None:
        """What was received on a session could not be understood (*onRecvFailure*)."""

    # status listener --------------------------------------------------------------------------

    def on_session_established(self, session: Session) -> None:
        """A session has become ESTABLISHED (*onSessionEstablished*)."""

    def on_session_closed(self, session: Session) -> None:
        """A session has become CLOSED (*onSessionClosed*)."""

    def on_ildm_start(self) -> None:
        """The node has started; the counterpart of *onIldmStop*, and the first hook of all.

        Its status is RUNNING, its address (:attr:`NodeApi.peer`) final, and the retained messages of
        an earlier run are known; there are no links, no sessions and no interest of local clients yet:
        those of persistent sessions follow with :meth:`Algorithm.on_interest_changed`.
        """

    def on_ildm_stop(self) -> None:
        """The node is about to stop (*onIldmStop*)."""

    def on_ildm_add(self, host: str, port: int) -> None:
        """The node begins to add a neighbour (*onIldmAdd*); its sessions are opened by the node."""

    def on_ildm_remove(self, host: str, port: int) -> None:
        """The node begins to remove a neighbour (*onIldmRemove*); its links are closed by the node."""


class Algorithm(Plugin):
    """A cooperation algorithm."""

    topology: ClassVar[Literal["tree", "any"]] = "tree"
    """``tree``: the node keeps links that would close a cycle blocked. ``any``: all links are used."""
    routes_messages: ClassVar[bool] = False
    """True: each PUBLISH of a local client, and each will, goes to :meth:`on_publish`; :meth:`route` is
    not asked."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        """Where a PUBLISH on ``topic`` goes besides the local broker.

        ``source`` is the link it came over, or None for a local client's (or its will). The node
        remembers the answer for each topic and source until :meth:`NodeApi.routes_changed` or until links
        or interest change; a retained message is asked about each time. Links that have left, and the
        source, are passed over; an answer with a QoS that is none counts as a failure.
        """
        return ()

    def on_publish(self, message: Publish, turn: int) -> None:
        """A local client's PUBLISH (or will), to be spread; its local broker has it already.

        Topics that begin with ``$`` are not shown. A retained message carries the node's stamp in its
        user properties; pass it on whole. ``turn`` is the publisher's in the round-robin over sessions
        (thesis 5.4.1): what is sent with the same turn stays in order.
        """

    def on_message(self, sender: str, data: bytes) -> None:
        """Data which the algorithm of node ``sender`` sent with :meth:`NodeApi.send`."""

    def on_unreachable(self, node_id: str) -> None:
        """A node that data was sent to cannot be reached, or the link with a node was lost."""

    def is_leaving(self) -> bool:
        """Whether something is still to be said to other nodes after :meth:`on_ildm_stop`.

        The node goes on until then, for ``limits.drain_timeout`` at most.
        """
        return False

    def on_link_up(self, link: Link) -> None:
        """A neighbour has joined the cooperation; ``link`` is among :attr:`NodeApi.links` now.

        With topology ``any`` also for links made on demand, by either side, and once more when such a
        link becomes that of a neighbour the administrator has named (:attr:`Link.introducer`).
        """

    def on_link_down(self, link: Link) -> None:
        """A neighbour has left: removed, blocked to break a cycle, or away for too long.

        A short outage is not reported: the node queues what is routed to the link meanwhile. With
        topology ``any`` there is no such grace: a lost link is down at once.
        """

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Interest of local clients (``source`` None, after a successful SUBACK) or of a neighbour changed.

        ``changes`` maps each filter to its maximum QoS now, or to None if nobody there wants it.
        """

    def overlay(self) -> Mapping[str, Any]:
        """The overlay as this node sees it, for ``ildm overlay``; empty where there is none.

        JSON-able: ``node``, ``members`` (number of nodes, if known), ``keys`` and ``counters`` (name ->
        number). Each key has ``key``, ``role`` and ``status`` as text, ``levels``: from level 0 the left
        and right neighbour as text or None, ``rendezvous``, ``suspended`` (None where it does not
        apply) and ``epoch``.
        """
        return {}

    def trace(self, topic: str, done: Callable[[Mapping[str, Any]], None]) -> None:
        """Find the tree which a message on ``topic`` would take now, without delivering anything.

        ``done`` is called once, at once or later, with a JSON-able answer: ``topic``, the totals
        ``nodes``, ``messages`` and ``depth``, and ``segments``, each with its name ``segment``,
        ``suspended`` and ``tree``: ``node``, ``keys`` (texts), ``depth`` and ``children``, or None. It is
        empty where there is no overlay.

        Raises:
            PluginError: it is not possible now; the text is for people.
        """
        done({})


class Filter(Plugin):
    """A processing step in the path of PUBLISH messages; any number can be chained."""

    def filter(self, session: Session, message: bytes) -> bytes | None:
        """Return the PUBLISH to go on with: the same bytes, others, or None to drop it.

        Called for the sources in ``wants``. The sender of a dropped message gets the
        acknowledgement of its QoS (MQTT 5: with reason 0x99 where it is a QoS 1 or 2 publisher).
        A changed message keeps QoS and packet identifier; the node refuses other changes of those.
        """
        return message
