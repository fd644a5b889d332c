"""The plugins of a simulated node that look at packets, and filters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ildm.api import Algorithm, Filter, Plugin, PluginConfig, Session, Source
from ildm.config import LimitsConfig, PluginChoice
from ildm.core.host.plugin_state import PluginState
from ildm.core.plugin.account import OTHER, Account
from ildm.core.plugin.arguments import checked_fields
from ildm.core.plugin.checking import check_plugin
from ildm.core.plugin.filtering import FilterChain
from ildm.core.plugin.loading import checked_options
from ildm.mqtt import Connect, Packet, PacketType, Version
from ildm.testing.keeping import Disk, Keeper, Keeping

if TYPE_CHECKING:
    from ildm.api import NodeApi, Timer
    from ildm.mqtt import Properties, Publish
    from ildm.testing.kernel import Kernel
    from ildm.testing.values import Cause


class Run(Protocol):
    """The world, as plugins and clients of its nodes know it."""

    @property
    def disk(self) -> Disk | None: ...
    @property
    def logs(self) -> deque[tuple[float, str, str, Mapping[str, object]]]: ...
    @property
    def saved(self) -> dict[str, dict[str, bytes]]: ...
    @property
    def session_ids(self) -> Iterator[int]: ...
    def seed_of(self, node_id: str) -> str: ...


class Place(Protocol):
    """A node, as its plugins and clients know it."""

    @property
    def node_id(self) -> str: ...
    @property
    def world(self) -> Run: ...
    @property
    def kernel(self) -> Kernel: ...
    @property
    def account(self) -> Account: ...
    @property
    def counters(self) -> MutableMapping[str, int]: ...
    @property
    def plugins(self) -> Plugins | None: ...
    def api_for(self, name: str) -> NodeApi: ...
    def if_alive(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None: ...
    def lost(self, why: str, messages: int = 1) -> None: ...
    def check_alive(self) -> None: ...
    def message_of(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None
    ) -> Publish: ...
    def enter(self, message: Publish, publisher: int | None, cause: Cause) -> None: ...
    def granted(self, topic_filter: str, qos: int, client: str) -> None: ...
    def withdrawn(self, topic_filter: str, client: str) -> bool: ...
    def forget(self, client: str) -> None: ...


class FilterSpec(NamedTuple):
    """A filter of a world: its class and its checked options."""

    plugin: type[Filter]
    config: PluginConfig

    @classmethod
    def of(cls, plugin: type[Filter], options: Mapping[str, Any] | None) -> FilterSpec:
        """Check both.

        Raises:
            PluginError: the class breaks the interface, or its ``Config`` does not take the options.
        """
        check_plugin(plugin.__name__, plugin, Filter)
        choice = PluginChoice(name=plugin.__name__, options={} if options is None else dict(options))
        return cls(plugin, checked_options(choice, plugin, "filter"))


def looks(algorithm: type[Algorithm]) -> bool:
    """Whether an algorithm is to be shown packets or sessions, or decides about them."""
    return bool(
        algorithm.wants
        or issubclass(algorithm, Filter)
        or algorithm.on_session_established is not Plugin.on_session_established
        or algorithm.on_session_closed is not Plugin.on_session_closed
    )


class Owner(NamedTuple):
    """A plugin as the chain of filters knows it."""

    name: str


class FilterApi(Keeper):
    """The node as one of its filters has it: what it counts, logs and keeps, and its chance, are its own."""

    def __init__(self, node: Place, name: str) -> None:
        self._node = node
        self._name = name
        self._account = Account(node.account.limits)
        self._state: PluginState | None = None
        disk = node.world.disk
        self._keeping = Keeping(disk, f"{node.node_id}/{name}")
        self.random = Random(f"{node.world.seed_of(node.node_id)}/{name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def count(self, name: str, by: int = 1) -> None:
        self._account.count(name, by)
        shown = name if name in self._account.counters else OTHER
        self._node.counters[f"{self._name}.{shown}"] += by

    def gauge(self, name: str, value: float) -> None:
        self._account.gauge(name, value)
        shown = name if name in self._account.gauges else OTHER
        self._node.account.gauges[f"{self._name}.{shown}"] = self._account.gauges[shown]

    def log(self, event: str, **fields: object) -> None:
        fields = checked_fields(event, fields)
        if self._account.may_log(self._node.kernel.now):
            fields.update(self._account.take_left_out(), plugin=self._name)
            self._node.world.logs.append((self._node.kernel.now, self._node.node_id, event, fields))

    @property
    def state(self) -> MutableMapping[str, bytes]:
        if self._state is None:
            entries = self._node.world.saved.setdefault(f"{self._node.node_id}/{self._name}", {})
            self._state = PluginState(self._account, entries, saved_already)
        return self._state


def saved_already(key: str, value: bytes | None) -> None:
    """What a plugin keeps is in the world's hands at once."""


class _Clock:
    """Virtual time for the chain of filters; a dead node decides no more."""

    def __init__(self, node: Place) -> None:
        self._node = node

    def now(self) -> float:
        return self._node.kernel.now

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self._node.kernel.post(0.0, self._node.if_alive, callback, args)

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        return self._node.kernel.schedule(delay, self._node.if_alive, callback, args)


class Plugins:
    """The filters of a node and its algorithm, as far as they look at packets.

    Attributes:
        filters: in the order they are asked; an algorithm that is a filter, too, is asked after them.
    """

    def __init__(
        self, node: Place, algorithm: Algorithm, specs: Sequence[FilterSpec], limits: LimitsConfig
    ) -> None:
        self._node = node
        self.chain: FilterChain[Owner] = FilterChain(
            _Clock(node), self._failed, _returned, limits.decision_timeout
        )
        self._listeners: dict[tuple[Source, PacketType], list[Plugin]] = {}
        self.filters: list[Filter] = []
        for plugin, config in specs:
            made = plugin(node.api_for(plugin.__name__), config)
            self.filters.append(made)
            self._take(made)
        self._all: list[Plugin] = [*self.filters, algorithm]
        self._take(algorithm)

    def _take(self, plugin: Plugin) -> None:
        if isinstance(plugin, Filter):
            self.chain.add(Owner(type(plugin).__name__), plugin)
        if type(plugin).mqtt_message_arrived is not Plugin.mqtt_message_arrived:
            for key in plugin.wants:
                self._listeners.setdefault(key, []).append(plugin)

    def looks_at(self, source: Source, type: PacketType) -> bool:
        """Whether a packet has to be made at all."""
        if (source, type) in self._listeners:
            return True
        return type is PacketType.PUBLISH and self.chain.filters(source)

    def show(self, source: Source, session: Session, type: PacketType, packet: Packet | bytes) -> None:
        """Call those who want to see a packet."""
        listeners = self._listeners.get((source, type))
        if listeners is None:
            return
        if not isinstance(packet, bytes):
            version = session.version
            packet = packet.encode() if isinstance(packet, Connect) else packet.encode(Version(version))
        for plugin in listeners:
            plugin.mqtt_message_arrived(session, type, packet)

    def call(self, hook: str, *args: object) -> None:
        """Call a hook of all plugins, the algorithm last."""
        for plugin in self._all:
            getattr(plugin, hook)(*args)

    def _failed(self, owner: Owner, hook: str, error: BaseException) -> None:
        """A failure ends the run, as that of any hook. A decision that did not come in time is none."""
        if not isinstance(error, TimeoutError):
            raise error
        self._node.lost("undecided")


def _returned(owner: Owner, hook: str, began: float) -> None:
    """The simulator takes no time for hooks."""
