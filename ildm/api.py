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

The five components of the thesis (Table 5.1) and where they are here:

================== ======================================================================
Session manager    ``NodeApi.create_session, close_session, send_message, get_paired_session``
Message listener   ``Plugin.mqtt_message_arrived`` for the types named in ``Plugin.wants``
Event listener     ``Plugin.on_tcp_down, on_recv_failure``
Status listener    ``Plugin.on_session_established, on_session_closed, on_ildm_stop,
                   on_ildm_add, on_ildm_remove``
Message generator  ``NodeApi.create_mqtt_message``
================== ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from ildm.mqtt import IldmError, PacketType, Publish, Version

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "Algorithm",
    "Filter",
    "Link",
    "NodeApi",
    "NodeStatus",
    "Plugin",
    "PluginConfig",
    "PluginError",
    "Role",
    "Route",
    "Session",
    "SessionStatus",
    "Source",
    "Timer",
]


class PluginError(IldmError):
    """A plugin that cannot be loaded: unknown name or option, missing or unknown hook, wrong signature."""


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


class Link(Protocol):
    """All sessions with one neighbour node, as long as the neighbour takes part in the cooperation."""

    @property
    def node_id(self) -> str:
        """Identifier of the neighbour."""

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
        """Inter-subscribe to ``filters`` (filter -> maximum QoS); remembered and repeated after an outage."""

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        """Withdraw filters inter-subscribed to before; unknown ones are ignored."""


Route = Iterable[tuple[Link, int]]
"""Where a PUBLISH goes: links, each with the highest QoS (0-2) at which the message is to cross."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class NodeApi(Protocol):
    """What a node offers to its plugins."""

    @property
    def node_id(self) -> str: ...

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
        """Call ``callback(*args)`` after ``delay`` seconds."""

    def create_session(self, host: str, port: int) -> Session:
        """Begin a TCP connection (*createSession*).

        The session is CLOSED until :meth:`Plugin.on_session_established`; if it cannot be
        established, :meth:`Plugin.on_tcp_down` follows.
        """

    def close_session(self, session: Session) -> None:
        """Terminate a session (*closeSession*); what was sent before still goes out."""

    def send_message(self, session: Session, message: bytes) -> bool:
        """Send whole MQTT messages (*sendMessage*); False if the session is not established or full."""

    def get_paired_session(self, session: Session) -> Session | None:
        """The broker session of a client session and the reverse (*getPairedSession*)."""

    def create_mqtt_message(self, type: PacketType, version: Version = Version.V5, **params: Any) -> bytes:
        """Build a message (*createMqttMessage*); parameters are the fields of the packet classes."""

    def transfer(self, link: Link, message: Publish) -> None:
        """Send one PUBLISH over a link; for algorithms that do not use :meth:`Algorithm.route`."""

    def inject(self, message: Publish) -> None:
        """Publish a message into the local broker through the node's own sessions."""

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
    counted; the message it was called for goes on as if the hook had not been there.
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

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        """Where a PUBLISH on ``topic`` goes besides the local broker.

        ``source`` is the link it came over, or None for a local client's (or its will). The node
        remembers the answer for each topic and source until :meth:`NodeApi.routes_changed`.
        """
        return ()

    def on_link_up(self, link: Link) -> None:
        """A neighbour has joined the cooperation; ``link`` is among :attr:`NodeApi.links` now."""

    def on_link_down(self, link: Link) -> None:
        """A neighbour has left: removed, blocked to break a cycle, or away for too long.

        A short outage is not reported: the node queues what is routed to the link meanwhile.
        """

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Interest of local clients (``source`` None, after a successful SUBACK) or of a neighbour changed.

        ``changes`` maps each filter to its maximum QoS now, or to None if nobody there wants it.
        """


class Filter(Plugin):
    """A processing step in the path of PUBLISH messages; any number can be chained."""

    def filter(self, session: Session, message: bytes) -> bytes | None:
        """Return the PUBLISH to go on with: the same bytes, others, or None to drop it.

        Called for the sources in ``wants``. The sender of a dropped message gets the
        acknowledgement of its QoS (MQTT 5: with reason 0x99 where it is a QoS 1 or 2 publisher).
        A changed message keeps QoS and packet identifier; the node refuses other changes of those.
        """
        return message
