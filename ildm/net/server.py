"""A node with its sockets: what it consists of, in which order it starts and stops."""

from __future__ import annotations

import asyncio
import gc
import resource
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm import __version__, compiled
from ildm.admin.server import AdminServer
from ildm.config import Config, ConfigError, parse_address
from ildm.core.counters import Counters
from ildm.core.guests.hosting import Host, HostSession
from ildm.core.link.session import LinkSession
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.plugin.loading import load_plugins
from ildm.core.tables import NEIGHBORS
from ildm.log import get_logger
from ildm.net.dashboard.server import DashboardServer
from ildm.net.dashboard.token import take_token
from ildm.net.descriptors import descriptors_for_clients
from ildm.net.driver import AsyncioDriver
from ildm.net.handover.giving import Upgrade, UpgradeError
from ildm.net.lag import LagWatch
from ildm.net.listeners import ClientListeners
from ildm.net.metrics import MetricsServer
from ildm.net.otlp import Collector, Exporter
from ildm.net.reload import Reloader
from ildm.net.reload.settings import Secrets, own, read_secrets
from ildm.net.transport import Dialing, Listener, ListenError, NodeTls, Renewal, Turns, new_reactor
from ildm.net.transport.gate import AddressGate
from ildm.net.transport.inherited import Inherited
from ildm.net.view import LiveView
from ildm.state.spool import FileSpool, OsDisk
from ildm.state.store import StateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ildm.config import Address
    from ildm.core.plugin.loading import PluginSpecs
    from ildm.net.handover.estate import Estate
    from ildm.net.standby import Claim
    from ildm.net.transport.reactor import Reactor

FORMER_OWNER = 2.0
"""Seconds that the former owner of a site has to give up its addresses, after the state directory."""


class NodeServer:
    """A node with its sockets; for tests and programs that run one in their own event loop."""

    def __init__(
        self,
        config: Config,
        plugins: PluginSpecs | None = None,
        source: Path | None = None,
        inherited: Inherited | None = None,
        claim: Claim | None = None,
        estate: Estate | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``source`` is the file of the configuration, to be read again while the node runs; ``inherited``
        sockets are listened on in place of new ones; ``claim`` is that of a member of a pair; ``estate`` is
        what the process before has left, and ``environment`` what a next one is told beside this one's."""
        self.config = own(config)
        self.source = source
        self.inherited = Inherited() if inherited is None else inherited
        self.claim = claim
        self.counters: Counters | None = None
        """Set before the start: those of this process until now."""
        self.plugins = load_plugins(config) if plugins is None else plugins
        self.stop_requested = asyncio.Event()
        self.draining = False
        self.for_clients: ClientListeners | None = None
        self.for_neighbors: list[Listener] = []
        self.driver: AsyncioDriver
        self.store: StateStore
        self.spool: FileSpool | None = None
        self.secrets: Secrets
        self.tls: NodeTls
        self.dialing: Dialing
        self.reactor: Reactor | None = None
        """What carries connections without TLS."""
        self.renewal: Renewal | None = None
        """What takes up certificates that change."""
        self.host: Host | None = None
        """Of clients at the other members; None: these serve nobody."""
        self._for_members: Listener | None = None
        self.reloader = Reloader(self)
        self.view: LiveView
        self.node: Node
        self.admin: AdminServer | None = None
        self.metrics: MetricsServer | None = None
        self.dashboard: DashboardServer | None = None
        self.exporter: Exporter | None = None
        """Of traces, to a collector."""
        self._lag: LagWatch | None = None
        self.environment: Mapping[str, str] = {} if environment is None else environment
        self.upgrade: Upgrade | None = None
        """Under way, or the one that has ended this node."""
        self._estate = estate

    async def start(self) -> None:
        """Listen and begin to work.

        Raises:
            ConfigError: the state directory or a secret file cannot be used.
            ListenError: an address cannot be listened on.
        """
        counters = Counters() if self.counters is None else self.counters
        estate = self._estate
        if estate is not None:
            self.inherited.lent = estate.find
        turns = self._make_ground(counters)
        try:
            self._make_node(counters)
            gate = AddressGate(self.config.limits, asyncio.get_running_loop().time, counters)
            self._make_view(gate)
            await self.export_to(Collector.of(self.config.trace))
            self.admin = AdminServer(self.view, self.config.admin_socket, self.config.admin, counters)
            await self.admin.start()
            await self._listen_for_clients(gate, counters, turns)
            await self._listen_for_people(counters)
            await self._listen_for_neighbors(counters, turns)
            if estate is not None:
                self.inherited.lent = lambda place: None
                estate.close_listening()
            if self.inherited.unused:
                raise ListenError(
                    f"nothing in the configuration listens on {', '.join(self.inherited.unused)}, which this "
                    "process was given to listen on"
                )
        except BaseException:
            await self._close()
            raise
        await self._begin(counters)

    def _make_ground(self, counters: Counters) -> Turns:
        """What the node stands on: certificates, connections, the clock, the store."""
        config, loop = self.config, asyncio.get_running_loop()
        self.secrets = read_secrets(config)
        self.tls = NodeTls(config, lambda: self.node.links.terms.keys)
        turns = Turns(loop.call_soon, counters)
        self.reactor = new_reactor(loop, turns, config.limits.read_wait)
        self.dialing = Dialing(config, self.tls, self.reactor, turns)
        self.driver = AsyncioDriver(loop, config.link.most_unsent, self.dialing)
        self.store = StateStore(
            config.state_dir,
            loop.call_later,
            loop.call_soon_threadsafe,
            self.driver.log,
            config.limits.unsaved_bytes,
            None if self.claim is None else self.claim.lock,
        )
        return turns

    def _make_node(self, counters: Counters) -> None:
        config = self.config
        if config.algorithm is not None and config.spool.mode != "off":
            self.spool = self._open_spool(counters)
            synced = config.spool.mode == "power"
            self.store.keep_journal(self.spool, synced=synced, close=self.spool.close)
        self.node = Node(
            config,
            self.plugins,
            self.driver,
            self.store,
            node_id=config.node_id or self._identity(),
            broker_password=self.secrets.broker_password,
            link_secret=self.secrets.link_secret,
            spool=self.spool,
            counters=counters,
            release=__version__,
            epoch=0 if self.claim is None or self.spool is None else self.spool.epoch,
        )
        self.bound_clients()

    def _make_view(self, gate: AddressGate) -> None:
        self._lag = LagWatch(asyncio.get_running_loop())
        self._lag.start()
        self.view = LiveView(
            self.node,
            self.store,
            self.request_stop,
            self.source,
            self._lag,
            self.driver.history,
            gate,
            self.reloader.reload,
            lambda: self.tls,
            None if self.claim is None else self.claim.member,
            self.give_clients,
        )

    async def _listen_for_clients(self, gate: AddressGate, counters: Counters, turns: Turns) -> None:
        """Take their addresses; nobody is let in yet."""
        self.for_clients = ClientListeners(
            partial(ClientSession, self.node.local),
            gate,
            counters,
            self.inherited,
            self.node.timings.handshake,
            self.reactor,
            turns,
            self.driver.log,
        )
        await self.for_clients.open(self.config, self.tls, self._patience)

    async def _listen_for_people(self, counters: Counters) -> None:
        """Serve metrics and the dashboard, where they are wanted."""
        config = self.config
        if config.metrics.listen is not None:
            self.metrics = MetricsServer(
                self.view, config.metrics.listen, counters, self.secrets.metrics_token, self.inherited
            )
            await self.metrics.start()
        if config.dashboard.listen is not None:
            token, made = take_token(config.dashboard_token)
            if made:
                get_logger("ildm").info("token of the dashboard made", file=str(config.dashboard_token))
            pages = DashboardServer(
                self.view, config.dashboard, token, counters, self.tls.dashboard, self.inherited
            )
            self.dashboard = pages
            await pages.start(self._patience)

    async def _listen_for_neighbors(self, counters: Counters, turns: Turns) -> None:
        """Take their address, if the algorithm has any; nobody is let in yet."""
        address = self.config.link.listen
        if address is None or not self.node.router.active:
            return
        manager = self.node.links
        listener = Listener(
            address,
            "link.listen",
            lambda _: LinkSession(manager, None, 0),
            tls=self.tls.link_in if address.has_tls else None,
            counters=counters,
            inherited=self.inherited,
            reactor=self.reactor,
            turns=turns,
            log=self.driver.log,
            refused=lambda host, why: manager.turned_away.note(host, "", "tls", why),
        )
        self.for_neighbors.append(listener)
        await listener.open(self._patience)
        manager.listening_at(listener.port)
        for sock in listener.sockets:
            self.driver.bound_unsent(sock)

    async def _listen_for_members(self, host: Host) -> None:
        self._for_members = Listener(
            self.config.pair_address, "site.serve", lambda _: HostSession(host), reactor=self.reactor
        )
        await self._for_members.open()
        await self._for_members.serve()

    async def _begin(self, counters: Counters) -> None:
        config = self.config
        estate, self._estate = self._estate, None
        if estate is not None:
            gc.disable()  # until all clients are here: so many objects are made, and none is to be freed
        resume: Callable[[], None] | None = None
        if estate is not None:
            resume = partial(estate.restore, self)
        elif self.claim is not None and config.site.serve == "all":
            self.host = host = Host(self.node, config.site.members)
            self.claim.member.guests = lambda: len(host.guests)
            resume = self.host.restore
        self.node.start(self._neighbors(), new_state=self.store.is_new, resume=resume)
        if estate is not None:
            estate.took()
            estate.go_on(self)
        for listener in self.for_neighbors:  # plugins have heard of the start before anyone connects
            await listener.serve()
        if estate is not None:
            await estate.wake_all()  # before others connect with their identifiers
            gc.freeze()
            gc.enable()
        assert self.for_clients is not None
        await self.for_clients.serve()
        if self.claim is not None:
            counters["pair_claims"] += 1
            self.claim.opened(self.node.epoch)
        if self.host is not None:
            await self._listen_for_members(self.host)
        self.renewal = Renewal(self.tls, self.driver, counters)
        get_logger("ildm").info(
            "node started",
            node_id=self.node.node_id,
            listen=config.clients_text,
            broker=", ".join(map(str, config.broker.candidates)),
            algorithm=self.node.algorithm_name,
            link_listen=str(config.link.listen) if config.link.listen and self.node.router.active else None,
            admin=str(config.admin_socket),
            form=compiled.form(),
        )

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of this node has ended a connection, or a call of a timer: it is counted and logged."""
        self.node.counters["internal_errors"] += 1
        loop.default_exception_handler(context)

    def request_stop(self) -> None:
        """Ask whoever runs this server to :meth:`stop` it."""
        self.stop_requested.set()

    def hurry(self) -> None:
        """End a drain that is under way: what is still queued is given up."""
        self.node.drain_deadline = self.driver.now()

    async def stop(self) -> None:
        """Drain, stop and give everything back."""
        if self.upgrade is not None:
            self.upgrade.give_up()
        get_logger("ildm").info("node stopping", clients=len(self.node.sessions))
        assert self.for_clients is not None  # start made them
        self.for_clients.close()  # only those: neighbours may come for what waits for them
        drained = asyncio.Event()
        self.draining = True
        if self.host is not None:
            self.host.stop()
        self.node.drain(drained.set)
        await drained.wait()
        self.draining = False
        await self._close()
        get_logger("ildm").info("node stopped")

    # an upgrade ----------------------------------------------------------------------------------

    async def give_clients(self, python: str | None, seconds: float) -> dict[str, Any]:
        """Let another process take this node over, and end; see :mod:`ildm.net.handover`.

        Raises:
            UpgradeError: the node goes on in this process.
        """
        if self.upgrade is not None:
            raise UpgradeError("another upgrade is under way")
        self.upgrade = upgrade = Upgrade(self, python, seconds)
        try:
            return await upgrade.run()
        finally:
            if upgrade.estate is None:
                self.upgrade = None
            else:
                self.request_stop()

    async def stop_serving_people(self) -> None:
        """Give back what is not handed over: the sockets of metrics, the dashboard and the administrator."""
        if self.admin is not None:
            self.admin.retire()
        if self.metrics is not None:
            await self.metrics.stop()
        if self.dashboard is not None:
            await self.dashboard.stop()
        if self.exporter is not None:
            await self.exporter.stop()
        self.metrics = self.dashboard = self.exporter = None

    def part(self) -> Callable[[], None]:
        """End the node, whose clients were taken from it; answers what closes the state, in any thread."""
        assert self.for_clients is not None
        for listener in self._listeners:
            listener.retire(succeeded=True)
        self.node.part()
        return self.store.end()

    async def give_back(self) -> None:
        """The rest, but for the administrator, who waits for an answer."""
        if self._lag is not None:
            self._lag.stop()
        if self.renewal is not None:
            self.renewal.stop()
        await self.driver.close()
        if self.reactor is not None:
            self.reactor.close()

    async def stop_admin(self) -> None:
        """Answer the administrator, and end."""
        if self.admin is not None:
            await self.admin.stop()

    def kill(self) -> None:
        """End without any good-bye, as a crash would; for tests."""
        self._close_listeners()
        self.node.dispatch.stop()
        for client in list(self.node.sessions):
            client.abort()
        self.node.links.stop(farewell=False)

    def _close_listeners(self) -> None:
        if self.for_clients is not None:
            self.for_clients.close()
        for listener in self.for_neighbors:
            listener.close()
        if self._for_members is not None:
            self._for_members.close()

    async def _close(self) -> None:
        self._close_listeners()
        if self._lag is not None:
            self._lag.stop()
        if self.metrics is not None:
            await self.metrics.stop()
        if self.dashboard is not None:
            await self.dashboard.stop()
        if self.exporter is not None:
            await self.exporter.stop()
        await self.driver.close()
        if self.reactor is not None:
            self.reactor.close()
        await asyncio.to_thread(self.store.end())  # it waits for the disk
        if self.renewal is not None:
            self.renewal.stop()
        if self.admin is not None:
            await self.admin.stop()  # last: who waits for the socket to go may start a node at once

    def _open_spool(self, counters: Counters) -> FileSpool:
        loop, directory = asyncio.get_running_loop(), self.config.spool_directory
        try:
            return FileSpool(
                OsDisk(directory, loop.call_soon_threadsafe),
                self.config.spool,
                wall=self.driver.wall,
                call_later=self.driver.call_later,
                log=self.driver.log,
                expiry=self.config.link.expiry,
                counters=counters,
            )
        except OSError as error:
            key = "state_dir" if self.config.spool.directory is None else "spool.directory"
            raise ConfigError(f"{key}: cannot use {directory}: {error.strerror or error}") from error

    async def export_to(self, collector: Collector | None) -> None:
        """Send traces there from now on; None: nowhere."""
        if collector is not None and self.exporter is not None:
            self.exporter.collector = collector
            return
        former, self.exporter = self.exporter, None
        self.view.traces.ended = None
        if collector is not None:
            self.exporter = Exporter(collector, self.node.counters)
            self.view.traces.ended = self.exporter.export
        if former is not None:
            await former.stop()

    def bound_clients(self) -> None:
        """Take no more clients than there are file descriptors for."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.node.admission.descriptors_for = descriptors_for_clients(self.config, files)

    def follow(self, tls: NodeTls) -> None:
        """Use other certificates with neighbours and the broker from now on."""
        self.tls = tls
        self.dialing.follow(tls)
        for listener in self.for_neighbors:
            listener.follow(listener.key, tls.link_in if listener.address.has_tls else None, None)
        if self.dashboard is not None:
            self.dashboard.follow(tls.dashboard)
        if self.renewal is not None:
            self.renewal.stop()
        self.renewal = Renewal(tls, self.driver, self.node.counters)

    @property
    def _patience(self) -> float:
        """Seconds for which addresses may still be in use: the kernel closes a process's files one by one."""
        return 0.0 if self.claim is None else FORMER_OWNER

    @property
    def ports(self) -> list[int]:
        """Ports listened on: clients first, then links; 0 for a unix socket."""
        return [listener.port for listener in self._listeners]

    @property
    def _listeners(self) -> list[Listener]:
        assert self.for_clients is not None
        return [*self.for_clients, *self.for_neighbors]

    def _identity(self) -> str:
        found = self.store.meta("node_id")
        if found is None:
            found = secrets.token_hex(4)
            self.store.set_meta("node_id", found)
        return found

    def _neighbors(self) -> dict[Address, bool]:
        neighbors = dict.fromkeys(self.config.link.addresses, False)
        for key, (wanted,) in self.store.load(NEIGHBORS):
            try:
                address = parse_address(key[0])
            except ValueError as error:
                self.store.set_aside(NEIGHBORS, key, str(error))
                continue
            if wanted:
                neighbors[address] = True
            elif neighbors.pop(address, None) is not None:
                get_logger("ildm").warning(
                    "a neighbour of the configuration was removed at run time", address=str(address)
                )
        return neighbors
