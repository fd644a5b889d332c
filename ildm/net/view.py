"""What the admin API shows and does: the live node as plain data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ildm import __version__
from ildm.admin.view import AdminError, UnknownError
from ildm.api import MessageTrace, OverlayAlgorithm, OverlayView, PluginError
from ildm.config import ConfigError, load_config
from ildm.core.counters import Tally
from ildm.core.host.reloading import CHANGED, SAME, differing_keys, reload_options
from ildm.core.link.clocks import concerns
from ildm.core.link.watching import Asked
from ildm.core.local.session_import import SessionImport
from ildm.core.tables import NEIGHBORS
from ildm.log import set_log_level
from ildm.mqtt import IldmError
from ildm.net.clients_view import (
    VERSIONS,
    ban,
    bans,
    client_rows,
    filters_of,
    import_sessions,
    kick,
    lift,
    retained_page,
    sources,
    subscription_row,
)
from ildm.net.figures import scrape
from ildm.net.health import Health
from ildm.net.history import History
from ildm.net.internals import internals
from ildm.net.kept_view import kept_rows
from ildm.net.neighbors_view import mixed_releases, neighbor_row, neighbor_rows, refused_rows, release_rows
from ildm.net.plugin_view import plugin_rows
from ildm.net.reload.errors import ReloadError
from ildm.net.reload.settings import take_up_options
from ildm.net.rules_view import rule_rows
from ildm.net.spool_view import drop_spooled, only_here, spool_row, spooled_rows, state_row
from ildm.net.traces_view import hop_rows, trace_row
from ildm.net.watches import MessageTraces

if TYPE_CHECKING:
    from pathlib import Path

    from ildm.admin.exposition import Family
    from ildm.config import Address, Config
    from ildm.core.local.bans import Kind
    from ildm.core.node import Node
    from ildm.core.pair.states import Member
    from ildm.net.lag import LagWatch
    from ildm.net.transport.gate import AddressGate
    from ildm.net.transport.tls import LiveContext
    from ildm.state.store import StateStore

DROPPED = ("injection_dropped_", "link_dropped_", "spool_dropped_", "transfer_dropped_")
"""How counters of messages begin that were to cross and did not."""
Answer = TypeVar("Answer")
Reload = Callable[[bool], Awaitable[dict[str, Any]]]
"""Reads the configuration again; True: only says what would change."""
Upgrade = Callable[[str | None, float], Awaitable[dict[str, Any]]]
"""Lets another process take the node over: its interpreter, and seconds until it has to be ready."""


class LiveView:
    """Implements :class:`ildm.admin.view.NodeView`."""

    def __init__(
        self,
        node: Node,
        store: StateStore,
        stop: Callable[[], None],
        source: Path | None = None,
        lag: LagWatch | None = None,
        history: History | None = None,
        gate: AddressGate | None = None,
        reload: Reload | None = None,
        certificates: Callable[[], Iterable[LiveContext]] = tuple,
        member: Member | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        self.node = node
        self.store = store
        self._stop = stop
        self._source = source
        self._lag = lag
        self.history = History() if history is None else history
        self.gate = gate
        self._reload = reload
        self._upgrade = upgrade
        self.certificates = certificates
        """Those that the node shows now."""
        self.member = member
        self.health = Health(node)
        self.traces = MessageTraces(node)
        self._session_import = SessionImport(node.clients)

    def status(self) -> dict[str, Any]:
        node = self.node
        config = node.config
        states = [row["state"] for row in self.neighbors()]
        version = node.injector.version
        since = node.brokers.since
        missed = self.health.broker_missed
        return {
            "node_id": node.node_id,
            "version": __version__,
            "algorithm": node.algorithm_name,
            "filters": [choice.name for choice in config.filters],
            "status": node.state.status.value,
            "uptime": node.driver.wall() - node.started_at,
            "listen": config.clients_text,
            "link_listen": str(config.link.listen) if config.link.listen and node.router.active else None,
            "broker": {
                "address": str(node.broker_address),
                "addresses": [str(address) for address in node.brokers.addresses],
                "failovers": node.brokers.failovers,
                "in_use_for": None if since is None else node.driver.now() - since,
                "protocol": VERSIONS.get(version) if version is not None else None,
                "connected": missed is None,
                "reason": missed or node.injector.last_refusal,
                "contested": node.injector.contested,
                "unmended": node.injector.auditor.unseen,
                "shared_with": node.injector.same_broker.shared_with,
                "sharing_unknown": node.injector.same_broker.unheard,
            },
            "pair": None if self.member is None else self.member.row(),
            "clients": len(node.sessions),
            "clients_wait_for": node.links.start_gate.waiting_for,
            "persistent_sessions": node.clients.persistent,
            "sessions_unknown": node.clients.unknown,
            "sessions_adopted_for": node.clients.adopts_for,
            "links": {
                **{state: states.count(state) for state in ("active", "blocked", "down", "refused")},
                "on_demand": sum(link.on_demand for link in node.links.cooperation.active),
            },
            "releases": release_rows(node),
            "queues": self._queues(),
            "state": {
                "waiting_rows": self.store.waiting_rows,
                "waiting_bytes": self.store.waiting_bytes,
                "failure": self.store.failure,
            },
            "spool": state_row(self.node),
            "clock": self.warnings(),
            "counters": self._counters(),
        }

    def internals(self) -> dict[str, Any]:
        return internals(self.node, self.store)

    def warnings(self) -> list[str]:
        return list(concerns(self.node.links.links.values(), self.node.config.limits.clock_skew))

    def problems(self, done: Callable[[list[str]], None]) -> None:
        self.health.problems(done)

    def metrics(self, done: Callable[[list[Family]], None]) -> None:
        def broker_known(reason: str | None) -> None:
            up = reason is None
            self.health.problems(
                lambda problems: done(list(scrape(self, self._lag, __version__, not problems, up)))
            )

        self.health.broker(broker_known)

    def _queues(self) -> dict[str, Any]:
        node = self.node
        links = node.links.links.values()
        counters = node.counters
        return {
            "injection": {
                "messages": node.injector.queued_messages,
                "bytes": sum(sender.queued_bytes for sender in node.injector.senders),
            },
            "links": {
                "messages": sum(link.queued for link in links),
                "bytes": sum(link.queued_bytes for link in links),
            },
            "dropped": sum(number for name, number in counters.items() if name.startswith(DROPPED)),
        }

    def node_counters(self) -> Tally:
        """The node's own, which are declared."""
        counters = Tally(self.node.counters | self.store.counters)
        for session in self.node.sessions:  # these are added when a session ends
            if session.relay.messages_in:
                counters["messages_in"] += session.relay.messages_in
            if session.paired is not None and session.paired.messages_out:
                counters["messages_out"] += session.paired.messages_out
        for loaded in self.node.dispatch.loaded:
            if loaded.refused:
                counters["plugin_refused"] += sum(loaded.refused.values())
        return counters

    def _counters(self) -> dict[str, int]:
        """The node's, and those of its plugins as ``PLUGIN.NAME``."""
        counters = self.node_counters()
        for loaded in self.node.dispatch.loaded:
            for name, value in loaded.counters.items():
                key = f"{loaded.name}.{name}"
                counters[key] += value  # one filter may stand in the chain twice
        return counters

    def neighbors(self) -> list[dict[str, Any]]:
        return neighbor_rows(self.node)

    def refused_neighbors(self) -> list[dict[str, Any]]:
        return refused_rows(self.node)

    def clients(self) -> list[dict[str, Any]]:
        return client_rows(self.node)

    def import_sessions(self, sessions: list[dict[str, Any]], done: Callable[[dict[str, Any]], None]) -> None:
        import_sessions(self.node, self._session_import, sessions, done)

    def end_adoption(self) -> dict[str, Any]:
        if not self.node.clients.end_adoption():
            raise UnknownError("no sessions are being adopted")
        return {"unknown": self.node.clients.unknown}

    def kick(self, client_id: str) -> dict[str, Any]:
        return kick(self.node, client_id)

    def rules(self) -> list[dict[str, Any]]:
        return rule_rows(self.node)

    def bans(self) -> list[dict[str, Any]]:
        return bans(self.node, self.gate)

    def ban(self, kind: Kind, name: str, seconds: float | None) -> dict[str, Any]:
        return ban(self.node, kind, name, seconds)

    def lift_ban(self, kind: Kind, name: str) -> dict[str, Any]:
        return lift(self.node, self.gate, kind, name)

    def events(self) -> list[dict[str, Any]]:
        return self.history.rows()

    def retained(self, topic_filter: str, limit: int, offset: int) -> dict[str, Any]:
        return retained_page(self.node, topic_filter, limit, offset)

    def subscriptions(self) -> list[dict[str, Any]]:
        return [
            subscription_row(source, topic_filter, qos)
            for source in sources(self.node)
            for topic_filter, qos in filters_of(source).items()
        ]

    def algorithm(self) -> dict[str, Any]:
        return plugin_rows(self.node)

    def overlay(self) -> OverlayView:
        found = self._ask("overlay")
        if found is None:
            raise AdminError(f"algorithm {self.node.algorithm_name} has nothing to show of an overlay now")
        view: OverlayView = self._checked("overlay", found, OverlayView)
        mixed = mixed_releases(self.node)
        return view if mixed is None else view.model_copy(update={"facts": {**view.facts, "releases": mixed}})

    def trace(self, topic: str, done: Callable[[dict[str, Any] | AdminError], None]) -> None:
        if topic.startswith("$"):
            raise AdminError(f"{topic!r} stays with its broker: topics that begin with $ do not cross")

        def found(answer: object) -> None:
            try:
                done(trace_row(self._checked("trace", answer, MessageTrace)))
            except AdminError as error:
                done(error)

        self._ask("trace", topic, found)

    def follow(self, topic: str, done: Callable[[dict[str, Any] | AdminError], None]) -> None:
        node = self.node
        if node.has_overlay or topic.startswith("$"):
            self.trace(topic, done)
        elif node.algorithm_name is None:
            raise AdminError("this node runs without an algorithm: nothing crosses")
        elif node.dispatch.asks_each:
            raise AdminError(
                f"algorithm {node.algorithm_name} decides on each message: the topic alone says nothing"
            )
        else:
            node.links.cooperation.tracing.follow(
                topic, lambda hops: done({"topic": topic, "hops": hop_rows(hops)})
            )

    def watch(self, topic_filter: str, seconds: float, messages: int, one_in: int) -> dict[str, Any]:
        return self.traces.begin(Asked([topic_filter], seconds, messages, one_in))

    def watched(self, name: str) -> dict[str, Any]:
        return self.traces.find(name)

    def unwatch(self, name: str) -> dict[str, Any]:
        return self.traces.end(name)

    def kept(self, topic: str, client_id: str) -> list[dict[str, Any]]:
        return kept_rows(self.node, topic, client_id)

    def _ask(self, method: str, *args: object) -> Any:
        dispatch = self.node.dispatch
        algorithm = dispatch.algorithm
        if algorithm is None:
            raise AdminError("this node runs without an algorithm and has no overlay")
        if not isinstance(algorithm, OverlayAlgorithm) or (
            getattr(type(algorithm), method) is getattr(OverlayAlgorithm, method)
        ):
            what = "has no overlay" if method == "overlay" else "cannot trace messages"
            raise AdminError(f"algorithm {self.node.algorithm_name} {what}")
        try:
            return dispatch.ask(method, *args)
        except PluginError as error:
            raise AdminError(str(error)) from error

    def _checked(self, method: str, answer: object, kind: type[Answer]) -> Answer:
        try:
            return self.node.dispatch.checked(method, answer, kind)
        except PluginError as error:
            raise AdminError(str(error)) from error

    def add_neighbor(self, address: Address, save: bool) -> dict[str, Any]:
        if not self.node.router.active:
            raise AdminError("this node runs without an algorithm and has no links")
        try:
            neighbor = self.node.links.add(address, save)
        except IldmError as error:
            raise AdminError(str(error)) from error
        if save:
            self.store.put(NEIGHBORS, (str(address),), (1,))
        return neighbor_row(self.node, neighbor)

    def remove_neighbor(self, target: str, save: bool, force: bool) -> dict[str, Any]:
        try:
            _, link = self.node.links.find(target)
        except IldmError as error:
            raise UnknownError(str(error)) from error
        waiting = only_here(self.node, link)
        if waiting.messages and not force:
            raise AdminError(
                f"{waiting.messages:,} messages for {target} that nobody else may have would be thrown away"
            )
        address, node_id = self.node.links.remove(target)
        if save and address is not None:
            self.store.put(NEIGHBORS, (str(address),), (0,))
        return {
            "address": None if address is None else str(address),
            "node_id": node_id,
            "state": "removed",
            "thrown_away": waiting._asdict(),
        }

    def spool(self) -> dict[str, Any]:
        return spool_row(self.node)

    def spooled(self, receiver: str, after: int, limit: int) -> dict[str, Any]:
        return {"items": spooled_rows(self.node, receiver, after, limit)}

    def drop_spooled(self, receiver: str) -> dict[str, Any]:
        return drop_spooled(self.node, receiver)

    def when_saved(self, done: Callable[[str | None], None]) -> None:
        self.store.when_written(
            lambda written: done(None if written else self.store.failure or "not written")
        )

    def read_config(self) -> Config:
        if self._source is None:
            raise AdminError("this node was not started with a configuration file")
        try:
            return load_config(self._source)
        except ConfigError as error:
            raise AdminError(str(error)) from error

    def reload_plugins(self, config: Config) -> dict[str, Any]:
        try:
            plugins = reload_options(self.node.dispatch, config)
        except PluginError as error:
            raise AdminError(f"{self._source}: {error}") from error
        at_work = {(each.kind, each.name) for each in plugins}
        others = {(each.kind, each.name) for each in plugins if each.result not in (CHANGED, SAME)}
        take_up_options(self.node.config, config, at_work - others)
        return {
            "file": str(self._source),
            "plugins": [each._asdict() for each in plugins],
            "not_applied": differing_keys(self.node.config, config),
        }

    async def reload(self, dry_run: bool) -> dict[str, Any]:
        if self._reload is None:
            raise AdminError("this node cannot read its configuration again")
        try:
            return await self._reload(dry_run)
        except ReloadError as refused:
            raise AdminError(str(refused)) from refused

    async def upgrade(self, python: str | None, seconds: float) -> dict[str, Any]:
        if self._upgrade is None:
            raise AdminError("this node cannot be upgraded")
        return await self._upgrade(python, seconds)

    def set_log_level(self, level: str) -> None:
        set_log_level(level)

    def stop(self) -> None:
        self._stop()
