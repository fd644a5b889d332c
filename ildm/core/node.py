"""A node: its clients, its broker, its links and its plugins, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ildm.api import Algorithm, OverlayAlgorithm, PluginError, Stamp, TreeAlgorithm
from ildm.config import refuse_site_rules
from ildm.core.broker.broker_choice import BrokerChoice
from ildm.core.broker.injection import Injector
from ildm.core.broker.loop_guard import LoopGuard
from ildm.core.broker.parts import BrokerParts
from ildm.core.broker.reach import Reach
from ildm.core.calendar import Calendar
from ildm.core.counters import Counters
from ildm.core.host.node_api import PluginApi
from ildm.core.host.parts import HostParts
from ildm.core.host.plugin_state import saved_states
from ildm.core.link.compression import Compression
from ildm.core.link.link_store import LinkStore
from ildm.core.link.manager import LinkManager
from ildm.core.link.parts import LinkParts
from ildm.core.link.versions import FIRST, PROTOCOLS, Range
from ildm.core.local.admission import Admission
from ildm.core.local.bans import Bans
from ildm.core.local.client_session import ClientSession
from ildm.core.local.client_state import ClientState
from ildm.core.local.clients import ClientRegistry
from ildm.core.local.partial import Partials
from ildm.core.local.parts import ClientEvents, ClientParts
from ildm.core.local.record import Client, ClientRecord, digest_of
from ildm.core.local.rules import PublishRules
from ildm.core.local.site_rules import SiteRules
from ildm.core.local.waits import Waits
from ildm.core.plugin.account import FAILURES
from ildm.core.plugin.arguments import described
from ildm.core.plugin.checking import kind_of
from ildm.core.plugin.dispatch import Dispatch, Loaded
from ildm.core.status import NodeState
from ildm.core.timing import Timings
from ildm.core.transfer.contention import ABSENCE
from ildm.core.transfer.custody import Custody
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.router import Router
from ildm.mqtt import ConnAck, Connect, MqttError, OverLimit, Publish

if TYPE_CHECKING:
    from ildm.config import Address, Config
    from ildm.core.driver import Driver, Store
    from ildm.core.plugin.loading import PluginSpec, PluginSpecs
    from ildm.core.session import BaseSession
    from ildm.core.spool import Spool


MOVE_OFF_EVERY = 0.1
"""Seconds between two lots of clients that are sent away at the end, about: each lot is a whole number."""
DRAIN_LOOK = 0.02
"""Seconds between two looks at whether a drain has ended: sessions gone, queues flushed."""


class Node(ClientEvents):
    """One node of the interworking layer; everything it does to the world goes through its driver."""

    def __init__(
        self,
        config: Config,
        plugins: PluginSpecs,
        driver: Driver,
        store: Store,
        *,
        node_id: str,
        broker_password: str | None = None,
        link_secret: str | None = None,
        spool: Spool | None = None,
        counters: Counters | None = None,
        release: str = "",
        protocols: Range = PROTOCOLS,
        epoch: int = 0,
    ) -> None:
        """``epoch`` is that of the claim of a member of a pair; 0: this node is in none."""
        self.config = config
        self.epoch = epoch
        self.release, self.protocols = release, protocols
        self.driver = driver
        self.store = store
        self.node_id = node_id
        self.calendar = Calendar(driver, store)
        self.boot = int(driver.wall() * 1000)
        self.brokers = BrokerChoice(
            config.broker.candidates,
            driver.now,
            config.broker.connect_timeout,
            self._try_next_broker,
            self._broker_changed,
        )
        self.counters = Counters() if counters is None else counters
        self.timings = Timings()
        self.limits = config.limits
        self.admission = Admission(driver, config.limits, self.counters)
        self.partials = Partials(config.limits.partial_bytes, self.counters)
        self.state = NodeState()
        self.started_at = driver.wall()
        self.sessions: set[ClientSession] = set()
        self.algorithm_name = plugins.algorithm.name if plugins.algorithm else None
        self.custody: Custody | None = None
        """What survives this node of messages that cross; None: nothing does."""
        if spool is not None and plugins.algorithm is not None:
            self.custody = Custody(driver, spool, self.counters, config.spool, node_id, self.calendar)
        chosen: type[Any] = plugins.algorithm.plugin if plugins.algorithm else TreeAlgorithm
        self.has_overlay = issubclass(chosen, OverlayAlgorithm)
        self.wire = chosen.wire if issubclass(chosen, Algorithm) else FIRST
        limits = config.limits
        self.dispatch = Dispatch(driver, self.counters, limits.hook_warn, limits.decision_timeout)
        expiry = config.link.expiry
        self.retained = RetainedStore(
            driver, node_id, config.limits, self.counters, store, expiry, self.calendar
        )
        connect_timeout = config.broker.connect_timeout
        self.reach = self._reach()
        self.loop_guard = LoopGuard(driver, self.brokers, connect_timeout, self.counters, self.reach)
        self.broker = self._broker_parts(broker_password, plugins.algorithm is not None)
        self.injector = Injector(self.broker)
        self.router = self._router()
        self.clients = self._client_registry(plugins.algorithm is not None)
        self.router.local_interest = self.clients.interest.maximum
        refuse_site_rules(config.site, has_overlay=self.has_overlay)
        self.site_rules = SiteRules(self.clients.interest.maximum, self._verdicts_flushed)
        self._follow_site_rules()
        self.clients.session_ended = self.retained.releases.gone
        self.clients.session_away = self._client_away
        self.bans = Bans(self.calendar, store)
        self.links = LinkManager(self._link_parts(), link_secret)
        self._resumed: dict[str, int | None] = {}
        """What clients want that another process has served, until the algorithm is told."""
        self.accepting = True
        self.drain_deadline = 0.0
        self._make_plugins(plugins)
        self.local = self._client_parts()

    def _reach(self) -> Reach:
        """What is known of whether the broker is there."""
        return Reach(
            self.driver,
            self.counters,
            self.dispatch,
            self.brokers,
            lambda: self.injector.broker_is_there(),  # noqa: PLW0108 - it is not there yet
            self.admission.out_of_descriptors,
        )

    def _router(self) -> Router:
        """Where messages go."""
        return Router(
            self.driver,
            self.dispatch,
            self.counters,
            self.config.limits.route_cache,
            self.config.link.round_robin,
            self.retained,
            self.injector,
            self.has_overlay,
            self.custody,
        )

    def _client_registry(self, cooperates: bool) -> ClientRegistry:
        """The clients of this site."""
        return ClientRegistry(
            self.driver,
            self.store,
            self.config.limits,
            self.counters,
            self._interest_changed,
            self._publish_will,
            PublishRules(self.config.publish),
            cooperates,
            self.custody is not None,
            self.config.broker.unknown_sessions == "everything",
            self.calendar,
        )

    def _broker_parts(self, password: str | None, cooperates: bool) -> BrokerParts:
        """What the node's own talk with the broker needs of the rest."""
        return BrokerParts(
            node_id=self.node_id,
            config=self.config,
            driver=self.driver,
            store=self.store,
            counters=self.counters,
            dispatch=self.dispatch,
            brokers=self.brokers,
            reach=self.reach,
            retained=self.retained,
            custody=self.custody,
            password=password,
            cooperates=cooperates,  # the router gets to know the algorithm later
            events=self,
        )

    def _link_parts(self) -> LinkParts:
        """What links need of the rest."""
        return LinkParts(
            node_id=self.node_id,
            boot=self.boot,
            algorithm=self.algorithm_name or "",
            wire=self.wire,
            release=self.release,
            protocols=self.protocols,
            has_overlay=self.has_overlay,
            driver=self.driver,
            config=self.config.link,
            limits=self.config.limits,
            counters=self.counters,
            dispatch=self.dispatch,
            router=self.router,
            retained=self.retained,
            injector=self.injector,
            events=self,
            memory=None if self.has_overlay else LinkStore(self.store, self.algorithm_name or ""),
            custody=self.custody,
            compression=Compression(self.config.link, self.counters),
            epoch=self.epoch,
        )

    def _host_parts(self) -> HostParts:
        """What plugins are handed."""
        return HostParts(
            node_id=self.node_id,
            config=self.config,
            driver=self.driver,
            store=self.store,
            counters=self.counters,
            state=self.state,
            dispatch=self.dispatch,
            custody=self.custody,
            retained=self.retained,
            router=self.router,
            injector=self.injector,
            links=self.links,
            site_rules=self.site_rules,
        )

    def _client_waits(self, kind: type[Waits] = Waits) -> Waits:
        """What clients wait for beside their broker."""
        return kind(
            config=self.config.link,
            driver=self.driver,
            store=self.store,
            counters=self.counters,
            dispatch=self.dispatch,
            router=self.router,
            injector=self.injector,
            custody=self.custody,
            links=self.links,
            site_rules=self.site_rules,
        )

    def _client_parts(self) -> ClientParts:
        """What the sessions of clients need of the rest."""
        return ClientParts(
            config=self.config,
            driver=self.driver,
            counters=self.counters,
            timings=self.timings,
            dispatch=self.dispatch,
            router=self.router,
            injector=self.injector,
            custody=self.custody,
            retained=self.retained,
            brokers=self.brokers,
            reach=self.reach,
            loop_guard=self.loop_guard,
            start_gate=self.links.start_gate,
            clients=self.clients,
            partials=self.partials,
            admission=self.admission,
            bans=self.bans,
            waits=self._client_waits(),
            has_overlay=self.has_overlay,
            events=self,
        )

    def _make_plugins(self, plugins: PluginSpecs) -> None:
        """Filters in their order, then the algorithm."""
        chosen_plugins = [*plugins.filters, *([plugins.algorithm] if plugins.algorithm else [])]
        states = saved_states(self.store) if chosen_plugins else {}
        host = self._host_parts()
        for spec in chosen_plugins:
            self._make(spec, host, states)

    def _make(self, spec: PluginSpec, host: HostParts, states: Mapping[str, dict[str, bytes]]) -> None:
        kind = kind_of(spec.plugin)
        number = 1 + sum((each.kind, each.name) == (kind, spec.name) for each in self.dispatch.loaded)
        loaded = Loaded(spec, kind, number, self.dispatch, self.config.limits)
        try:
            plugin = spec.plugin(PluginApi(host, loaded, states.get(loaded.key, {})), spec.config)
            self.dispatch.add(loaded, plugin)
        except PluginError as error:  # it says what is wrong in its own words
            raise PluginError(f"{kind} {spec.name!r}: {error}") from error
        except FAILURES as error:  # whatever a stranger's constructor raises
            raise PluginError(f"{kind} {spec.name!r} cannot be made: {described(error)}") from error

    def start(
        self,
        neighbors: Mapping[Address, bool],
        *,
        new_state: bool = False,
        resume: Callable[[], None] | None = None,
    ) -> None:
        """Begin to work: what is remembered, plugins, injection sessions, links.

        Args:
            new_state: nothing was saved here before.
            resume: brings clients that another process has served, before links tell what they want.
        """
        self.state.start()
        self.calendar.start()
        if self.router.active:
            self.retained.restore()
        self.dispatch.start()
        self.bans.restore()
        self.clients.restore()
        if resume is not None:
            resume()
            self.clients.all_resumed(self._resumed)
            self._resumed = {}
        if self.router.active:
            self._await_releases()
            if new_state:
                self._meet_older_sessions()
                if self.custody is not None:
                    self.custody.begun_anew = True
            self.injector.start()
            self.links.start_gate.want_all = self.clients.want_all
            self.links.start(neighbors)

    def _meet_older_sessions(self) -> None:
        """The broker may have sessions whose clients are away, and of which this node has no record."""
        seconds = int(self.config.broker.adopt_sessions)
        if seconds:
            self.clients.adopt(seconds)
            self.driver.log(
                "info",
                "the state is new: all topics of other sites cross, for sessions that the broker had before",
                seconds=seconds,
                ends_earlier_by="ildm sessions adopted",
            )
        else:
            self.injector.asks_for_sessions = True
            self.driver.log(
                "info",
                "the state is new: sessions that the broker had before get no topics of other sites while"
                " their clients are away",
                remedy="ildm sessions import, or broker.adopt_sessions",
            )

    def settings_changed(self) -> None:
        """What :attr:`config` holds has changed under way: what was copied of it is taken anew."""
        limits = self.config.limits
        self.local.packet_limits = limits.packet
        self.partials.limit = limits.partial_bytes
        self.dispatch.hook_warn = limits.hook_warn
        self.dispatch.chain.timeout = limits.decision_timeout
        self.router.routes.size = limits.route_cache
        self.clients.follow_rules(PublishRules(self.config.publish))
        self._follow_site_rules()
        self.links.settings_changed()
        self.brokers.replace(self.config.broker.candidates)

    # the end ----------------------------------------------------------------------------------

    def drain(self, finished: Callable[[], None]) -> None:
        """Stop in order: no new clients, clients moved off, queues flushed up to a time limit.

        Who cannot wait for that sets :attr:`drain_deadline` to an earlier time.
        """
        self.accepting = False
        self.dispatch.call("on_ildm_stop")
        limits, leaving = self.config.limits, list(self.sessions)
        self.drain_deadline = self.driver.now() + len(leaving) / limits.drain_rate + limits.drain_timeout
        self._move_off(leaving)

        def check() -> None:
            late = self.driver.now() >= self.drain_deadline
            at_rest = self.links.idle and self.injector.idle and not self.dispatch.is_leaving()
            if not late and (self.sessions or not at_rest):
                self.driver.call_later(DRAIN_LOOK, check)
                return
            if late:
                self.driver.log(
                    "warning",
                    "drain timed out",
                    clients=len(self.sessions),
                    queued_links=sum(link.queued for link in self.links.links.values()),
                    queued_injection=self.injector.queued_messages,
                )
            for session in list(self.sessions):
                session.abort()
            self._stop_parts()
            finished()

        check()

    def send_away(self, leaving: list[ClientSession]) -> None:
        """End these clients in order, at ``limits.drain_rate``."""
        self._move_off(leaving)

    def part(self) -> None:
        """End without a word to clients, which another process goes on with.

        Links and the node's own sessions at the broker are made anew there.
        """
        self.accepting = False
        self._stop_parts()

    def _stop_parts(self) -> None:
        """End all that no client is part of, and count what it still had to send."""
        for link in self.links.links.values():
            self._given_up(link.give_up(), neighbor=link.node_id)
        self._given_up(self.links.cooperation.rerouting.give_up(), neighbor="no path")
        self._given_up(self.injector.give_up(), broker=str(self.broker_address))
        self.calendar.stop()
        self.clients.stop()
        self.links.stop()
        self.injector.stop()
        self.loop_guard.stop()
        self.dispatch.stop()
        self.state.stop()

    def _move_off(self, leaving: list[ClientSession]) -> None:
        """Send clients away, some now and the others bit by bit, at ``limits.drain_rate``."""
        rate = self.config.limits.drain_rate
        at_once = max(1, round(rate * MOVE_OFF_EVERY))
        for session in leaving[-at_once:]:
            if session in self.sessions:
                session.move_off()
        del leaving[-at_once:]
        if leaving:
            self.driver.call_later(at_once / rate, self._move_off, leaving)

    def _given_up(self, messages: int, **receiver: str) -> None:
        if messages:
            self.driver.log("warning", "messages lost at the end of the node", messages=messages, **receiver)

    # clients ----------------------------------------------------------------------------------

    def client_accepted(self, session: Client) -> bool:
        """A client has connected by TCP; whether it may stay, at least until it is told why not."""
        assert isinstance(session, ClientSession)
        if not self.accepting:
            self.counters["connections_refused"] += 1
            return False
        limit = self.admission.refuses(len(self.sessions))
        if limit is not None:
            return self.admission.refused(session, limit)
        self.sessions.add(session)
        self.local.session_established(session)
        return True

    def client_connected(self, session: Client, connect: Connect, connack: ConnAck) -> ClientRecord:
        """The broker has accepted a client."""
        assert isinstance(session, ClientSession)
        record = self.clients.connected(session, connect, connack)
        self.counters["clients_connected"] += 1
        self.driver.log("info", "client connected", client_id=session.client_id, peer=session.peer)
        return record

    def client_comes(
        self, key: str, expiry: int, filters: Mapping[str, int], qos2: Iterable[tuple[int, int | None]]
    ) -> ClientRecord:
        """A client that another process has served is going on here: :meth:`client_resumed` follows."""
        return self.clients.comes(key, expiry, filters, dict(qos2), self._resumed)

    def client_resumed(self, session: Client, record: ClientRecord) -> None:
        """A client that another process has served goes on here."""
        assert isinstance(session, ClientSession)
        self.sessions.add(session)
        self.local.session_established(session)
        if session.paired is not None:
            self.local.session_established(session.paired)
        self.counters["clients_handed_over"] += 1
        self.clients.resumed(session, record)

    def client_gone(self, session: Client, exc: Exception | None) -> None:
        """A client's TCP connection has ended."""
        assert isinstance(session, ClientSession)
        self.admission.being_told.discard(session)
        if session not in self.sessions:
            return
        self.sessions.discard(session)
        if session.relay.messages_in:
            self.counters["messages_in"] += session.relay.messages_in
        if session.paired is not None and session.paired.messages_out:
            self.counters["messages_out"] += session.paired.messages_out
        clean, record = session.relay.clean, session.publishing.record
        unexpected = None if clean else exc or ConnectionError("closed without DISCONNECT")
        self.local.session_closed(session, unexpected)
        if record is not None and session.connect is not None:
            self.clients.disconnected(session, record, session.connect, clean)
            self.driver.log(
                "info",
                "client disconnected",
                client_id=session.client_id,
                peer=session.peer,
                clean=clean,
            )
        elif session.state is not ClientState.ENDED:
            self.driver.log("info", "client closed before it was accepted", peer=session.peer)

    def client_failed(self, session: BaseSession, error: MqttError) -> None:
        """A client has sent what the standard forbids, or more than a limit allows."""
        self.counters["packets_over_limit" if isinstance(error, OverLimit) else "malformed"] += 1
        self.driver.log(
            "warning",
            "client broke the protocol",
            client_id=session.client_id,
            peer=session.peer,
            clause=error.clause,
            error=str(error),
        )
        self.dispatch.call("on_recv_failure", session, error)

    # broker -----------------------------------------------------------------------------------

    @property
    def broker_address(self) -> Address:
        """Where the broker is dialed."""
        return self.brokers.current

    def _try_next_broker(self) -> None:
        self.injector.broker_moved()

    def _broker_changed(self, before: Address) -> None:
        """Another address was reached: whoever is still at the one before goes, in order if it is only not
        configured any more."""
        left = [session for session in self.sessions if session.paired and session.paired.address == before]
        told = {"broker": str(self.broker_address), "before": str(before), "clients_ended": len(left)}
        if before not in self.brokers.addresses:
            self.driver.log("info", "broker moved: another address is configured", **told)
            self._move_off(left)
            return
        self.counters["broker_failovers"] += 1
        self.driver.log("warning", "broker failover: another address is used", **told)
        for session in left:
            if session.paired is not None:
                session.paired.abort()

    def left_will(self, topic: str, payload: bytes) -> bool:
        """Whether a client of this node has left such a will."""
        return self.clients.wills.is_left(topic, payload)

    def value_found(self, value: Publish) -> None:
        """A retained message of the broker's has prevailed: the other sites get it."""
        self.router.publish(value, 0, None)

    # sessions and changes: the status and event listeners ---------------------------------------

    # changes: the event listener -----------------------------------------------------------------

    def change_begins(self, change: str, address: Address) -> None:
        """Adding (``add``) or removing (``remove``) a neighbour begins (thesis Fig. 5.4)."""
        self.state.begin(change)
        hook = "on_ildm_add" if change == "add" else "on_ildm_remove"
        self.dispatch.call(hook, address.host, address.port)

    def change_done(self, change: str) -> None:
        self.state.done(change)

    # what crosses -----------------------------------------------------------------------------

    def _interest_changed(self, changes: Mapping[str, int | None]) -> None:
        self.router.routes.invalidate()
        self.dispatch.interest_changed(None, self.site_rules.allowed(changes))

    def _follow_site_rules(self) -> None:
        changes = self.site_rules.follow(self.config.site.rules)
        self.router.site_rules = self.site_rules.verdicts
        if changes:
            self.dispatch.interest_changed(None, changes)

    def _verdicts_flushed(self) -> None:
        self.counters["link_rules_flushes"] += 1

    def _await_releases(self) -> None:
        """Clients of an earlier incarnation may come back and release retained messages of QoS 2."""
        unreleased = {key: record.qos2 for key, record in self.clients.records.items() if record.qos2}
        if not unreleased:
            return
        topics = {digest_of(topic, payload): topic for topic, payload in self.retained.own()}
        for key, digests in unreleased.items():
            for packet_id, digest in digests.items():
                if digest in topics:
                    self.retained.releases.sent(key, packet_id, topics[digest])
            self._client_away(key)

    def _client_away(self, key: str) -> None:
        if self.retained.releases.any_of(key):
            self.driver.call_later(ABSENCE, self.retained.releases.overdue, key)

    def _publish_will(self, message: Publish, turn: int, restored: bool, stamp: Stamp | None) -> None:
        """Send a will to the neighbours; local clients get it from the broker (thesis 5.3.3)."""
        if self.router.active and self.state.status.value != "stopped":
            self.counters["wills"] += 1
            known = self.retained.newest(message.topic)
            if stamp is not None and known is not None and known > stamp:
                stamp = None  # it comes behind what is newer: the broker judges which of them lasts
            self.router.publish(message, turn, None, stamp)
            if message.retain:
                # the broker may have discarded it, or been given another node's value meanwhile
                self.injector.auditor.will_sent(message.topic, restored)
