"""A member of a pair that does not own the site: it waits, and tells those who ask that it does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from ildm import __version__
from ildm.admin import families as metrics
from ildm.admin.exposition import Sample
from ildm.admin.server import AdminServer
from ildm.admin.view import AdminError
from ildm.config import ConfigError
from ildm.core.counters import Counters
from ildm.core.pair.states import Member, MemberEvent
from ildm.core.pair.word import LOOKS, SilenceWatch
from ildm.core.plugin.loading import load_plugins
from ildm.log import get_logger, set_log_level
from ildm.net.clients_view import client_rows, kick
from ildm.net.figures import counted, pair_figures
from ildm.net.guests import GuestServer
from ildm.net.metrics import MetricsServer
from ildm.net.reload.settings import read_secrets
from ildm.net.spool_view import OFF
from ildm.state.owner import OwnerFile, OwnerLock

if TYPE_CHECKING:
    from ildm.admin.exposition import Family
    from ildm.admin.view import NodeView
    from ildm.config import Config
    from ildm.core.plugin.loading import PluginSpecs
    from ildm.net.transport.inherited import Inherited

_log = get_logger("ildm.pair")


class Claim:
    """The right to be the node of a site, of a member that has it.

    Args:
        member: in state CLAIMING.
        lock: held; the store gives it back.
    """

    def __init__(self, member: Member, lock: OwnerLock) -> None:
        self.member = member
        self.lock = lock

    def opened(self, epoch: int) -> None:
        """Spool and store are open, under the epoch of this claim."""
        self.lock.epoch = self.member.epoch = epoch
        self.member.owner, self.member.spared = self.member.name, None
        self.member.step(MemberEvent.OPENED)
        _log.info("this member owns the site", member=self.member.name, epoch=epoch)


class Standby:
    """Waits for the lock of the state directory. Meanwhile it serves administrators, and clients with
    ``site.serve: all``.

    Args:
        plugins: those of the configuration; None: they are loaded if they are needed.
        stopped: set when this member is to end.
    """

    def __init__(
        self,
        config: Config,
        inherited: Inherited,
        stopped: asyncio.Event,
        plugins: PluginSpecs | None = None,
    ) -> None:
        assert config.site.member is not None  # the configuration has said so
        self.config = config
        self.member = Member(config.site.member)
        self._inherited = inherited
        self._stopped = stopped
        self._lock = OwnerLock(config.state_dir, self.member.name, config.site.claim_after, log_line)
        self._owner = OwnerFile(config.state_dir)
        self._closing: list[asyncio.Task[None]] = []
        self._plugins = plugins
        self.guests: GuestServer | None = None
        """What serves clients that have come before this member owned the site."""

    async def claim(self, waits: Callable[[], None] = lambda: None) -> Claim | None:
        """Wait until the site is this member's; ``waits`` is called once there is an owner to wait for.

        Returns:
            None: the member was told to stop before.

        Raises:
            ConfigError: the state directory cannot be used, or a socket of the administrator cannot.
        """
        try:
            if not self._lock.take():
                self.member.step(MemberEvent.REFUSED)
                await self._wait(waits)
            if self._stopped.is_set():
                self._lock.release()
                self.member.step(MemberEvent.ENDED)
                return None
            self.member.step(MemberEvent.LOCKED)
            self._lock.speak()
        except OSError as error:
            self._lock.release()
            raise ConfigError(f"state_dir: {self.config.state_dir}: {error.strerror or error}") from error
        except BaseException:
            self._lock.release()
            raise
        return Claim(self.member, self._lock)

    async def close(self) -> None:
        """Send the clients of the time as a standby away, and wait until the administrator's sockets of then
        are closed."""
        guests, self.guests = self.guests, None
        if guests is not None:
            await guests.stop()
        for task in self._closing:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _wait(self, waits: Callable[[], None]) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        counters = Counters()
        if config.site.serve == "all":
            plugins = load_plugins(config) if self._plugins is None else self._plugins
            self.guests = GuestServer(config, plugins, self._inherited)
            await self.guests.start()
            outbox = self.guests.node.outbox
            self.member.unconfirmed = lambda: outbox.bytes
        view = cast("NodeView", StandbyView(config, self.member, self._stopped.set, self.guests))
        admin = AdminServer(view, config.admin_socket, config.admin, counters)
        servers: list[AdminServer | MetricsServer] = [admin]
        try:
            await admin.start()
            if config.metrics.listen is not None:
                token = read_secrets(config).metrics_token
                watched = MetricsServer(view, config.metrics.listen, counters, token, self._inherited)
                servers.append(watched)
                await watched.start()
            _log.info("this member stands by", member=self.member.name, state_dir=str(config.state_dir))
            freed = asyncio.Event()
            failure: list[str] = []

            def done(why: str | None) -> None:
                """In the thread that waits."""
                if why is not None:
                    failure.append(why)
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(freed.set)

            self._lock.wait(done)
            waits()
            await self._watch(freed)
            if failure:
                raise ConfigError(f"state_dir: {config.state_dir} cannot be locked: {failure[0]}")
        finally:
            for server in servers:  # their sockets are given up at once, for the node; the rest takes longer
                self._closing.append(loop.create_task(server.stop()))
            await asyncio.sleep(0)

    async def _watch(self, freed: asyncio.Event) -> None:
        """Look after the owner until the lock is free, or this member is to stop."""
        claim_after = self.config.site.claim_after
        watch = SilenceWatch(claim_after, time.monotonic())
        ends = [asyncio.ensure_future(each.wait()) for each in (freed, self._stopped)]
        try:
            while True:
                self._look(watch)
                ended, _ = await asyncio.wait(
                    ends, timeout=claim_after / LOOKS, return_when=asyncio.FIRST_COMPLETED
                )
                if ended:
                    return
        finally:
            for each in ends:
                each.cancel()

    def _look(self, watch: SilenceWatch) -> None:
        member, word = self.member, self._owner.word()
        if watch.look(word, time.monotonic()):
            if word is not None:
                member.owner, member.epoch = word.member, word.epoch
            member.spared = None
            member.step(MemberEvent.HEARD)
        elif watch.silent:
            watch.begin()
            before = member.spared
            if not member.step(MemberEvent.SILENT):
                member.spared = (
                    "it was told to end and has not: its disk hangs, or it is process 1 of its container"
                )
            elif self.config.site.fence == "wait":
                member.spared = "site.fence is wait"
            else:
                _log.warning("the owner is silent: it is ended", owner=member.owner, epoch=member.epoch)
                member.spared = self._owner.end(word)
            if member.spared is not None:
                member.step(MemberEvent.SPARED)
                if member.spared != before:
                    _log.error("the owner is silent and stays", owner=member.owner, reason=member.spared)


class StandbyView:
    """Answers administrators; what needs a node that serves is refused. A part of
    :class:`ildm.admin.view.NodeView`."""

    def __init__(
        self, config: Config, member: Member, stop: Callable[[], None], guests: GuestServer | None = None
    ) -> None:
        self._config = config
        self._member = member
        self._guests = guests
        self._started_at = time.time()
        self.stop = stop
        self.set_log_level = set_log_level

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._refuse

    def _refuse(self, *_: object, **__: object) -> Any:
        raise AdminError(self._why)

    def clients(self) -> list[dict[str, Any]]:
        return self._refuse() if self._guests is None else client_rows(self._guests.node)

    def kick(self, client_id: str) -> dict[str, Any]:
        return self._refuse() if self._guests is None else kick(self._guests.node, client_id)

    async def reload(self, dry_run: bool) -> Any:
        return self._refuse(dry_run)

    @property
    def _why(self) -> str:
        owner = self._member.owner or "another process"
        return f"member {self._member.name} stands by: {owner} owns the site"

    def status(self) -> dict[str, Any]:
        config = self._config
        none = {"messages": 0, "bytes": 0}
        return {
            "node_id": config.node_id,
            "version": __version__,
            "algorithm": config.algorithm.name if config.algorithm is not None else None,
            "filters": [choice.name for choice in config.filters],
            "status": "standby",
            "uptime": time.time() - self._started_at,
            "listen": None if self._guests is None else config.clients_text,
            "link_listen": None,
            "broker": {
                "address": str(config.broker.candidates[0]),
                "addresses": [str(address) for address in config.broker.candidates],
                "failovers": 0,
                "in_use_for": None,
                "protocol": None,
                "connected": False,
                "reason": "this member stands by",
                "contested": None,
                "unmended": None,
                "shared_with": [],
                "sharing_unknown": None,
            },
            "pair": self._member.row(),
            "clients": 0 if self._guests is None else len(self._guests.node.sessions),
            "clients_wait_for": [],
            "persistent_sessions": 0,
            "sessions_unknown": 0,
            "sessions_adopted_for": None,
            "links": {"active": 0, "blocked": 0, "down": 0, "refused": 0, "on_demand": 0},
            "releases": [],
            "queues": {"injection": none, "links": none, "dropped": 0},
            "state": {"waiting_rows": 0, "waiting_bytes": 0, "failure": None},
            "spool": {**OFF, "mode": config.spool.mode},
            "clock": [],
            "counters": {} if self._guests is None else dict(self._guests.counters),
        }

    def problems(self, done: Callable[[list[str]], None]) -> None:
        member = self._member
        why = [] if member.spared is None else [f"the owner is silent and stays: {member.spared}"]
        done([self._why, *why])

    def warnings(self) -> list[str]:
        return []

    def metrics(self, done: Callable[[list[Family]], None]) -> None:
        done(list(self._families()))

    def _families(self) -> Iterator[Family]:
        algorithm = self._config.algorithm
        name = algorithm.name if algorithm is not None else "none"
        yield metrics.BUILD, [Sample((__version__, name), 1)]
        yield metrics.START, [Sample((), self._started_at)]
        yield metrics.READY, [Sample((), 0)]
        yield from pair_figures(self._member)
        yield from counted({} if self._guests is None else self._guests.counters)


def log_line(level: str, event: str, **fields: object) -> None:
    getattr(_log, level)(event, **fields)
