"""Calls into plugins. A plugin that raises never harms the relay: it is logged, counted and passed over.

Nor can one that takes long hide: while a hook runs, nothing else does, so its time is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ildm.api import (
    Algorithm,
    Filter,
    Link,
    OverlayAlgorithm,
    Plugin,
    PluginConfig,
    PluginError,
    Session,
    Source,
    TreeAlgorithm,
)
from ildm.core.plugin.account import FAILURES, Account
from ildm.core.plugin.arguments import checked_ways, described
from ildm.core.plugin.filtering import FilterChain
from ildm.core.plugin.timers import Timers
from ildm.mqtt import PacketType, Publish

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.plugin.loading import PluginSpec
    from ildm.core.session import BaseSession

    Targets = tuple[tuple[Any, int, int], ...]
    """Links of this node, each with a QoS and a priority."""


INTERFACE = (Plugin, Algorithm, TreeAlgorithm, OverlayAlgorithm, Filter)
"""Classes whose hooks do nothing."""
OF_SESSIONS = ("on_session_established", "on_session_closed", "on_tcp_down")
"""Hooks that are called for each connection of a client, and of its broker session, or at its end."""


Answer = TypeVar("Answer")


class Loaded(Account):
    """One plugin at work, with what the node keeps and counts for it."""

    def __init__(
        self, spec: PluginSpec, kind: str, number: int, dispatch: Dispatch, limits: LimitsConfig
    ) -> None:
        super().__init__(limits)
        self.name = name = spec.name
        self.options = spec.config
        self.kind = kind
        """``algorithm`` or ``filter``."""
        self.key = f"{kind}/{name}" if number == 1 else f"{kind}/{name}/{number}"
        """What its state is saved under."""
        self.plugin: Plugin | None = None
        self.errors = 0
        self.calls = 0
        self.seconds = 0.0
        """In all calls together."""
        self.slow = 0
        """Calls that took longer than ``limits.hook_warn``."""
        self.sessions: set[BaseSession] = set()
        """Its own, also those that are only being made."""
        self.offloads = 0
        """Under way."""
        self.timers = Timers(
            dispatch.driver, self, lambda callback, arguments: dispatch.run(self, callback, arguments)
        )


class Dispatch:
    """Knows who wants what; everything nobody wants costs one test."""

    def __init__(self, driver: Driver, counters: Counters, hook_warn: float, decision_timeout: float) -> None:
        self.driver = driver
        self.hook_warn = hook_warn
        self.counters = counters
        self.loaded: list[Loaded] = []
        self.algorithm: Algorithm | None = None
        self.looks_at_links = False
        """Some plugin wants to see messages from neighbours."""
        self.asks_each = False
        """The algorithm decides on each message, not on topics."""
        self.asks_for_topics = False
        """The algorithm has an answer about topics, even where it is asked about each message."""
        self.reroutes = False
        """It says where goes what has lost its way."""
        self.reroutes_each = False
        """It says that of each message, not of topics."""
        self.takes_link_runs = True
        """Nobody looks at each message from neighbours."""
        self.follows_packets = False
        """Some plugin listens to packets."""
        self.follows_sessions = False
        """Some plugin has a hook for sessions that begin or end."""
        self.chain: FilterChain[Loaded] = FilterChain(driver, self._failed, self._returned, decision_timeout)
        self._algorithm: Loaded | None = None
        self._tree: TreeAlgorithm | None = None
        self._listeners: dict[tuple[Source, int], list[tuple[Loaded, Plugin]]] = {}
        self._hooks: dict[str, list[tuple[Loaded, Callable[..., None]]]] = {}
        self._waiting: deque[tuple[Source, Session, PacketType, bytes]] = deque()
        self._started = False

    def add(self, loaded: Loaded, plugin: Plugin) -> None:
        """Take a plugin into use; filters are called in the order of their addition."""
        loaded.plugin = plugin
        self.loaded.append(loaded)
        if isinstance(plugin, Algorithm):
            self.algorithm, self._algorithm = plugin, loaded
        if isinstance(plugin, TreeAlgorithm):
            self._tree = plugin
            self.reroutes_each = type(plugin).reroute_message is not TreeAlgorithm.reroute_message
            routes_each = type(plugin).route_message is not TreeAlgorithm.route_message
            self.asks_each = routes_each or self.reroutes_each  # else messages would be kept as runs
            self.asks_for_topics = type(plugin).route is not TreeAlgorithm.route
            own = type(plugin).reroute is not TreeAlgorithm.reroute
            self.reroutes = own or self.reroutes_each or self.asks_for_topics
        listens = type(plugin).mqtt_message_arrived is not Plugin.mqtt_message_arrived
        if isinstance(plugin, Filter):
            self.chain.add(loaded, plugin)
        for source, packet_type in plugin.wants:
            if listens:
                self._listeners.setdefault((source, packet_type), []).append((loaded, plugin))
        for name in (n for n in dir(plugin) if n.startswith("on_") and n != "on_error"):
            overridden = getattr(type(plugin), name, None)
            if overridden is not None and all(
                getattr(base, name, None) is not overridden for base in INTERFACE
            ):
                self._hooks.setdefault(name, []).append((loaded, getattr(plugin, name)))
        self.follows_packets = bool(self._listeners)
        self.follows_sessions = any(hook in self._hooks for hook in OF_SESSIONS)
        self.looks_at_links = bool(self.looked_at(Source.LINK))
        self.takes_link_runs = not (self.looks_at_links or self.asks_each)

    def looked_at(self, source: Source) -> frozenset[PacketType]:
        """Types of messages from a source which some plugin wants to see."""
        types = {PacketType(t) for s, t in self._listeners if s is source}
        if self.chain.filters(source):
            types.add(PacketType.PUBLISH)
        return frozenset(types)

    # calls ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tell every plugin that the node has started, before any other hook."""
        self._started = True
        self.call("on_ildm_start")
        for loaded in self.loaded:
            loaded.timers.start()

    def stop(self) -> None:
        """The node has stopped: no timer and no result of work reaches a plugin any more."""
        self._started = False
        for loaded in self.loaded:
            loaded.timers.stop()
            for session in list(loaded.sessions):
                session.close()

    def call(self, hook: str, *args: object) -> None:
        """Call a hook of every plugin that overrides it."""
        for loaded, method in self._hooks.get(hook, ()):
            began = self.driver.now()
            try:
                method(*args)
            except FAILURES as error:
                self._failed(loaded, hook, error)
            self._returned(loaded, hook, began)

    def session_established(self, session: Session) -> None:
        """Tell the plugins that have a hook for it."""
        if self.follows_sessions:
            self.call("on_session_established", session)

    def session_closed(self, session: Session, unexpected: Exception | None) -> None:
        """Tell the plugins that have a hook for it; ``unexpected`` is None after an end in order."""
        if not self.follows_sessions:
            return
        if unexpected is not None:
            self.call("on_tcp_down", session)
        self.call("on_session_closed", session)

    def interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        if changes:
            self.call("on_interest_changed", source, changes)

    def route(self, topic: str, retain: bool, source: Link | None) -> Targets:
        """The algorithm's answer about a topic, checked; nobody if it fails."""
        if self._tree is None:
            return ()
        return self._routed(source, self._tree.route, topic, retain, source)

    def reroute(self, topic: str, retain: bool, source: Link | None) -> Targets:
        """The algorithm's answer about what has lost its way."""
        assert self._tree is not None
        return self._routed(source, self._tree.reroute, topic, retain, source)

    def reroute_message(self, message: Publish, source: Link | None) -> Targets:
        """The algorithm's answer about one message that has lost its way, which it may keep and change."""
        assert self._tree is not None
        return self._routed(source, self._tree.reroute_message, message, source)

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Targets:
        """The algorithm's answer about one message, which it may keep and change."""
        assert self._tree is not None
        return self._routed(source, self._tree.route_message, message, source, turn)

    def _routed(self, source: Link | None, hook: Callable[..., Any], *args: object) -> Targets:
        assert self._algorithm is not None
        began = self.driver.now()
        try:
            ways: Any = checked_ways(hook(*args), self._is_own)
            return tuple(tuple(way) for way in ways if way.link.in_cooperation and way.link is not source)
        except FAILURES as error:
            self._failed(self._algorithm, _name(hook), error)
            return ()
        finally:
            self._returned(self._algorithm, _name(hook), began)

    def _is_own(self, link: Any) -> bool:
        return link.driver is self.driver

    def is_leaving(self) -> bool:
        """Whether the algorithm still has to take leave of other nodes."""
        if not isinstance(self.algorithm, OverlayAlgorithm):
            return False
        assert self._algorithm is not None
        try:
            return bool(self.ask("is_leaving"))
        except PluginError:  # logged and counted; the node stops without it
            return False
        except FAILURES as error:  # of an answer that is neither true nor false
            self._failed(self._algorithm, "is_leaving", error)
            return False

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether an overlay knows of what local clients want."""
        return self._is_ready("when_known", topic_filters, done)

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether the broker has what is retained elsewhere."""
        return self._is_ready("before_subscribe", topic_filters, done)

    def _is_ready(self, method: str, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """An overlay's answer; a failure makes nobody wait."""
        if not isinstance(self.algorithm, OverlayAlgorithm):
            return True
        assert self._algorithm is not None
        try:
            return bool(self.ask(method, topic_filters, done))
        except PluginError:  # logged and counted
            return True
        except FAILURES as error:  # of an answer that is neither true nor false
            self._failed(self._algorithm, method, error)
            return True

    def ask(self, method: str, *args: object) -> Any:
        """Call a method of the algorithm, which must be there.

        Raises:
            PluginError: it says that it cannot, or has failed, or the node has not started.
        """
        assert self._algorithm is not None
        if not self._started:
            raise PluginError("the node has not started")
        began = self.driver.now()
        try:
            return getattr(self.algorithm, method)(*args)
        except PluginError:
            raise
        except FAILURES as error:
            self._failed(self._algorithm, method, error)
            text = f"algorithm {self._algorithm.name} failed in {method}: {described(error)}"
            raise PluginError(text) from error
        finally:
            self._returned(self._algorithm, method, began)

    def checked(self, method: str, answer: object, kind: type[Answer]) -> Answer:
        """What the algorithm has answered, if it is of the right type.

        Raises:
            PluginError: it is not, which counts as a failure.
        """
        assert self._algorithm is not None
        if isinstance(answer, kind):
            return answer
        error = TypeError(f"answered {type(answer).__name__}, not {kind.__name__}")
        self._failed(self._algorithm, method, error)
        raise PluginError(f"algorithm {self._algorithm.name} failed in {method}: {error!r}")

    def arrived(self, source: Source, session: Session, type: PacketType, frame: bytes) -> None:
        """Note a message for its listeners; they are called by :meth:`deliver`, after relaying."""
        if self._listeners and (source, type) in self._listeners:
            self._waiting.append((source, session, type, frame))

    def deliver(self) -> None:
        """Call the listeners of the messages noted (thesis 5.2.2)."""
        while self._waiting:
            source, session, type, frame = self._waiting.popleft()
            for loaded, plugin in self._listeners[source, type]:
                began = self.driver.now()
                try:
                    plugin.mqtt_message_arrived(session, type, frame)
                except FAILURES as error:
                    self._failed(loaded, "mqtt_message_arrived", error)
                self._returned(loaded, "mqtt_message_arrived", began)

    def change_options(self, loaded: Loaded, options: PluginConfig) -> str | None:
        """Hand a plugin other options; why it has its former ones again, None if it took them."""
        assert loaded.plugin is not None
        loaded.plugin.config = options
        began = self.driver.now()
        try:
            loaded.plugin.on_config_changed()
        except FAILURES as error:
            loaded.plugin.config = loaded.options
            self._failed(loaded, "on_config_changed", error)
            return str(error) if isinstance(error, PluginError) else described(error)
        finally:
            self._returned(loaded, "on_config_changed", began)
        loaded.options = options
        return None

    def run(self, loaded: Loaded, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Call back a plugin, with its failure and its time counted as the plugin's."""
        began = self.driver.now()
        try:
            callback(*args)
        except FAILURES as error:
            self._failed(loaded, _name(callback), error)
        self._returned(loaded, _name(callback), began)

    def _returned(self, loaded: Loaded, where: str, began: float) -> None:
        took = self.driver.now() - began
        loaded.calls += 1
        loaded.seconds += took
        if took <= self.hook_warn:
            return
        loaded.slow += 1
        self.counters["plugin_slow_hooks"] += 1
        if _is_power_of_two(loaded.slow):
            self.driver.log(
                "warning",
                "plugin held up the node",
                plugin=loaded.name,
                hook=where,
                seconds=round(took, 3),
                times=loaded.slow,
            )

    def _failed(self, loaded: Loaded, where: str, error: BaseException) -> None:
        loaded.errors += 1
        self.counters["plugin_errors"] += 1
        if _is_power_of_two(loaded.errors):
            self.driver.log(
                "error",
                "plugin failed",
                plugin=loaded.name,
                hook=where,
                error=described(error),
                failures=loaded.errors,
                exc_info=error,
            )


def _is_power_of_two(times: int) -> bool:
    """One line for the 1st, 2nd, 4th, 8th ... time: it may happen with every message."""
    return times & (times - 1) == 0


def _name(callback: Callable[..., None]) -> str:
    return getattr(callback, "__name__", "callback")
