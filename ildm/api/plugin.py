"""What algorithms and filters have in common, and filters."""

from __future__ import annotations

from typing import ClassVar, Generic, get_args

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from ildm.api.node import NodeApi, Session
from ildm.api.values import Source
from ildm.mqtt import PacketType

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
    keeps it local, a raising ``filter`` lets it pass. While a hook runs the node
    does nothing else: one that takes longer than ``limits.hook_warn`` is logged and counted.
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


class Filter(Plugin[Options_co]):
    """A processing step in the path of PUBLISH messages; any number can be chained."""

    def filter(self, session: Session, message: bytes) -> bytes | None:
        """Return the PUBLISH to go on with: the same bytes, others, or None to drop it.

        Called for the sources in ``wants``. The sender of a dropped message gets the
        acknowledgement of its QoS (MQTT 5: with reason 0x99 where it is a QoS 1 or 2 publisher).
        A changed message keeps QoS and packet identifier; the node refuses other changes of those.
        """
        return message
