"""What algorithms and filters have in common, and filters."""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, get_args

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from ildm.api.node import NodeApi, Session
from ildm.api.values import Deferred, Reject, Source
from ildm.mqtt import Connect, PacketType, Subscribe, Subscription

VERSION = 1
"""Version of this interface. Within one nothing is taken away or changes its meaning."""


class PluginConfig(BaseModel):
    """Base of a plugin's options: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Options_co = TypeVar("Options_co", bound=PluginConfig, default=PluginConfig, covariant=True)


class Plugin(Generic[Options_co]):
    """What algorithms and filters have in common. Override only what is needed.

    Hooks nobody overrides cost nothing. A hook that raises is logged with the plugin's name and
    counted; the message it was called for goes on as if the hook had not been there: a raising ``route``
    keeps it local, a raising ``filter`` lets it pass (see :attr:`Filter.on_error`). While a hook runs the
    node does nothing else: one that takes longer than ``limits.hook_warn`` is logged and counted;
    :meth:`NodeApi.offload` is for what takes long.
    """

    api_version: ClassVar[int] = 1
    """The version of this interface that the plugin was written for; a node that does not have it says so
    instead of loading the plugin."""
    Config: ClassVar[type[PluginConfig]] = PluginConfig
    """The class of its options; set by ``class Mine(TreeAlgorithm[MyOptions])``."""
    wants: ClassVar[frozenset[tuple[Source, PacketType]]] = frozenset()
    """Messages to be shown to the plugin; all others are relayed without a call (cut-through)."""

    def __init__(self, api: NodeApi, config: Options_co) -> None:
        self.api = api
        self.config = config

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if "Config" not in vars(cls) and isinstance(argument, type):
                    cls.Config = argument

    # message listener -------------------------------------------------------------------------

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        """A wanted message has arrived (*mqttMessageArrived*).

        ``message`` are its bytes as they were relayed: behind the filters, if there are any. Called after
        that; nothing it does changes what becomes of the message. A retained one has no stamp.
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

    def on_config_changed(self) -> None:
        """``self.config`` holds other options than before (``ildm plugin reload``).

        Plugins that do not override it keep their options until the node starts again. One that raises
        gets the former options back, and the administrator the error.
        """


OnError = Literal["pass", "reject"]


class Filter(Plugin[Options_co]):
    """Decides what may pass: messages, subscriptions, clients. Any number can be chained.

    The filters of the configuration are asked in its order, each about what the one before has let pass. An
    algorithm that decides, too, inherits from both classes and is asked last.
    """

    on_error: ClassVar[OnError] = "pass"
    """What becomes of a packet when the filter raises, answers nonsense, or has not decided in time."""

    def filter(
        self, session: Session, message: bytes
    ) -> bytes | Reject | Deferred[bytes | Reject | None] | None:
        """Return the PUBLISH to go on with: the same bytes or others; or reject it (None: without a reason).

        Called for the sources in ``wants``. Topic aliases are spelled out. A changed message keeps QoS and
        packet identifier; the node refuses other changes of those. Whoever sent a rejected message gets the
        acknowledgement of its QoS, a client of MQTT 5 with the reason; with a reason that is no failure, such
        as ``SUCCESS``, it does not learn of it. Only what clients send may be deferred.
        """
        return message

    def admit_subscription(
        self, session: Session, subscription: Subscription, packet: Subscribe
    ) -> Subscription | Reject | Deferred[Subscription | Reject]:
        """Return what is to be subscribed to in the place of one entry of a client's SUBSCRIBE, or reject it.

        Its options may change, its filter must not: UNSUBSCRIBE would not find it. The broker gets what was
        admitted; the client gets one SUBACK with the broker's reason codes and the filter's. ``packet`` is
        the whole packet, with its user properties. Every entry is asked about, also of shared subscriptions.
        """
        return subscription

    def admit_client(
        self, session: Session, packet: Connect
    ) -> Connect | Reject | Deferred[Connect | Reject]:
        """Return the CONNECT that the broker is to get, or reject the client with a CONNACK.

        Anything but the MQTT version may be changed, such as user name and password. A client of MQTT 5 is
        told of another identifier in the place of an empty one, and of another keep alive or session expiry.
        """
        return packet
