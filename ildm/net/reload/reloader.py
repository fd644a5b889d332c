"""Reads the configuration of a running node again and takes it up, whole or not at all.

Everything that can fail comes first: the file, its checks, secrets, certificates, sockets to bind, plugins
that are to take other options. Then comes what cannot fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import PluginError
from ildm.config import ConfigError, load_config
from ildm.core.host.reloading import wanted_options
from ildm.core.plugin.loading import check_reachable
from ildm.core.tables import NEIGHBORS
from ildm.log import configure_logging, get_logger
from ildm.net.metrics import MetricsServer
from ildm.net.otlp import Collector
from ildm.net.reload.difference import Change, differences
from ildm.net.reload.errors import ReloadError
from ildm.net.reload.live import is_live
from ildm.net.reload.settings import KEYS, Secrets, read_secrets, take_up
from ildm.net.spool_view import only_here
from ildm.net.transport import ListenError, NodeTls
from ildm.preflight import Finding, examine
from ildm.regular import open_regular, read_regular
from ildm.text import reason

if TYPE_CHECKING:
    from pathlib import Path

    from ildm.address import Address
    from ildm.config import Config
    from ildm.net.server import NodeServer
    from ildm.net.transport.inherited import Inherited
    from ildm.net.transport.tls import Keys

NEEDS_A_RESTART = "needs a restart"


class Read(NamedTuple):
    """What a file and those which it names say."""

    config: Config
    secrets: Secrets
    tls: NodeTls
    collector: Collector | None
    warnings: list[Finding]
    empty: bool
    """No key stands in the file."""


class Reloader:
    """One for a node; what is asked for meanwhile waits for its turn."""

    def __init__(self, server: NodeServer) -> None:
        self._server = server
        self._turn = asyncio.Lock()
        self.watch: Callable[[bool], None] = lambda under_way: None
        """Told when the file begins to be read again, and when that has ended, well or not."""
        self._asked = False
        self._task: asyncio.Task[None] | None = None

    async def reload(self, dry_run: bool = False) -> dict[str, Any]:
        """Take up the file the node was started with.

        Args:
            dry_run: only say what would be done, and what speaks against it as far as that shows before.

        Returns:
            ``file, dry_run, changes`` (lines) and ``warnings`` (lines).

        Raises:
            ReloadError: the node goes on with what it had, whatever the reason.
        """
        async with self._turn:
            return await self._counted(dry_run)

    def ask(self) -> None:
        """The same for whoever waits for no answer: it is in the log."""
        if not self._asked:  # who waits already will read what the file holds now
            self._asked = True
            self._task = asyncio.get_running_loop().create_task(self._answered(), name="reload")

    async def _answered(self) -> None:
        async with self._turn:
            self._asked = False
            try:
                await self._counted(dry_run=False)
            except ReloadError:
                pass  # said already
            except Exception:
                get_logger("ildm").exception("configuration not reloaded, by an error of this node")

    async def _counted(self, dry_run: bool) -> dict[str, Any]:
        counters, driver = self._server.node.counters, self._server.driver
        if not dry_run:
            self.watch(True)
        try:
            answer = await self._reload(dry_run)
        except ReloadError as refused:
            if not dry_run:
                counters["config_reloads_refused"] += 1
                driver.log("error", "configuration not reloaded", reasons=list(refused.reasons))
            raise
        finally:
            if not dry_run:
                self.watch(False)
        if not dry_run:
            counters["config_reloads_applied"] += 1
            driver.log("info", "configuration reloaded", file=answer["file"], changes=answer["changes"])
            for found in answer["warnings"]:
                driver.log("warning", "configuration", problem=found)
        return answer

    async def _reload(self, dry_run: bool) -> dict[str, Any]:
        server = self._server
        source = server.source
        if source is None:
            raise ReloadError("this node was not started with a configuration file")
        self._refuse_at_the_end()
        given = server.inherited, server.plugins.has_overlay, server.tls.keys
        read = await asyncio.to_thread(_read, source, *given)
        changes = [*differences(server.config, read.config), *self._contents(read)]
        if changes and read.empty:  # all defaults; more likely it is just being written
            raise ReloadError(f"{source}: the file is empty: nothing was changed")
        self._refuse_what_is_not_live(source, changes)
        self._check_plugins(source, read.config)
        self._check_neighbors(read.config)
        await self._apply(read, dry_run=dry_run)
        return {
            "file": str(source),
            "dry_run": dry_run,
            "changes": [str(change) for change in changes],
            "warnings": [f"{found.key}: {found.text}" for found in read.warnings],
        }

    def _refuse_at_the_end(self) -> None:
        if self._server.stop_requested.is_set() or not self._server.node.accepting:
            raise ReloadError("the node is stopping")

    # what speaks against it ---------------------------------------------------------------------

    def _contents(self, read: Read) -> list[Change]:
        """Files that say something else under the same name."""
        before, after = self._server.config, read.config
        found = []
        for key, old, new in zip(KEYS, self._server.secrets, read.secrets, strict=True):
            section, name = key.split(".")
            path = getattr(getattr(after, section), name)
            if old != new and path is not None and path == getattr(getattr(before, section), name):
                found.append(Change(key, key, "the secret it held", "the one it holds now"))
        shown = {each.key: each for each in self._server.tls}
        for each in read.tls:
            former = shown.pop(each.key, None)
            if former is not None and former.is_older_than(each):
                path = "listeners" if each.key.startswith("listeners.") else each.key
                found.append(Change(each.key, path, "the certificates in use", "those in its files now"))
        return found

    def _refuse_what_is_not_live(self, source: Path, changes: list[Change]) -> None:
        fixed = [change for change in changes if not is_live(change.path)]
        if fixed:
            raise ReloadError(
                f"{source}: nothing was changed, as this {NEEDS_A_RESTART}:", *(f"  {each}" for each in fixed)
            )

    def _check_plugins(self, source: Path, config: Config) -> None:
        try:
            check_reachable(config, self._server.plugins)
            wanted = wanted_options(self._server.node.dispatch, config)
        except (ConfigError, PluginError) as error:
            raise ReloadError(f"{source}: {error}") from error
        fixed = [
            f"{source}: {each.loaded.kind} {each.loaded.name!r} cannot change {', '.join(each.names)} while "
            f"it is at work: that {NEEDS_A_RESTART}"
            for each in wanted
            if each.names and not each.possible
        ]
        if fixed:
            raise ReloadError(*fixed)

    def _check_neighbors(self, config: Config) -> None:
        """No message is thrown away because of a line that is missing in a file."""
        added, removed = self._neighbors(config)
        links = self._server.node.links
        room = config.link.max_neighbors - len(links.neighbors) + len(removed)
        if len(added) > room:
            raise ReloadError(f"link.neighbors: {len(added)} more than link.max_neighbors has room for")
        for address in removed:
            waiting = only_here(self._server.node, links.find(str(address))[1])
            if waiting.messages:
                raise ReloadError(
                    f"link.neighbors: messages for {address} that nobody else may have would be thrown away "
                    f"({waiting.messages:,}); to do so: ildm neighbor remove --force {address}"
                )

    def _neighbors(self, config: Config) -> tuple[list[Address], list[Address]]:
        """Those to add and those to remove: lines that have come or gone, whatever was said at run time.

        One which has to be another node, or to show another certificate, is both: its link is made anew.
        """
        if not self._server.node.router.active:
            return [], []
        before = {each.url: each for each in self._server.config.link.neighbors}
        after = {each.url: each for each in config.link.neighbors}
        there = self._server.node.links.neighbors
        changed = [
            url
            for url, each in after.items()
            if url in before and (each.id, each.pin) != (before[url].id, before[url].pin)
        ]
        added = [url for url in after if url not in before and (url not in there or there[url].found)]
        removed = [
            url for url in (*before, *changed) if (url not in after or url in changed) and url in there
        ]
        return [*added, *changed], list(dict.fromkeys(removed))

    # taking it up -------------------------------------------------------------------------------

    async def _apply(self, read: Read, *, dry_run: bool) -> None:
        """All up to the last line of the block can fail, and leaves the node as it was then."""
        server, config, for_clients = self._server, read.config, self._server.for_clients
        assert for_clients is not None  # the node has started
        async with AsyncExitStack() as undo:
            try:
                plan = await for_clients.plan(config, read.tls, undo)
                if dry_run:
                    return
                metrics = await self._metrics(read, undo)
                self._change_plugins(config, undo)
                for listener in plan.new:
                    await listener.serve()
            except ListenError as error:
                raise ReloadError(str(error)) from error
            self._refuse_at_the_end()  # there was time for that, and for messages to come
            self._check_neighbors(config)
            undo.pop_all()
        added, removed = self._neighbors(config)
        exempt = server.config.limits.exempt
        if config.log != server.config.log:
            configure_logging(config.log.level, config.log.format)
        take_up(server.config, config)
        server.secrets = read.secrets
        server.node.broker.password = read.secrets.broker_password
        server.node.links.change_secret(read.secrets.link_secret)
        gate = for_clients.gate
        gate = gate if exempt == config.limits.exempt else gate.renewed()
        for_clients.take(plan, read.tls, gate)
        server.view.gate = gate
        server.follow(read.tls)
        server.bound_clients()
        server.node.settings_changed()
        server.store.limit = config.limits.unsaved_bytes
        for address in removed:
            server.node.links.remove(str(address))
        for address in added:
            server.node.links.add(address, False)
        for address in (*removed, *added):  # what was said at run time is older
            server.store.put(NEIGHBORS, (str(address),), None)
        await server.export_to(read.collector)
        former, server.metrics = server.metrics, metrics
        if metrics is not None:
            metrics.demand(read.secrets.metrics_token)
        if former is not None and former is not metrics:
            await former.stop()

    async def _metrics(self, read: Read, undo: AsyncExitStack) -> MetricsServer | None:
        """The one there is, or one on another address, which serves already."""
        now, wanted = self._server.metrics, read.config.metrics.listen
        if wanted is None or (now is not None and now.address == wanted):
            return now if wanted is not None else None
        server = self._server
        made = MetricsServer(
            server.view, wanted, server.node.counters, read.secrets.metrics_token, server.inherited
        )
        await made.start()
        undo.push_async_callback(made.stop)
        return made

    def _change_plugins(self, config: Config, undo: AsyncExitStack) -> None:
        dispatch = self._server.node.dispatch
        for each in wanted_options(dispatch, config):
            if not each.names:
                continue
            former = each.loaded.options
            problem = dispatch.change_options(each.loaded, each.options)
            if problem is not None:
                raise ReloadError(f"{each.loaded.kind} {each.loaded.name!r}: {problem}")
            undo.callback(dispatch.change_options, each.loaded, former)


def _read(source: Path, inherited: Inherited, has_overlay: bool, keys: Keys) -> Read:
    """Blocks. Raises: ReloadError."""
    try:
        os.close(open_regular(source))  # of a running node: what waits for a writer would hold up all reloads
        config = load_config(source)
        lines = map(str.strip, read_regular(source).decode().splitlines())
        secrets = read_secrets(config)
        tls = NodeTls(config, keys)
        collector = Collector.of(config.trace)
        findings = examine(config, thorough=False, given=inherited.paths, has_overlay=has_overlay)
    except OSError as error:  # gone since
        raise ReloadError(f"{source}: cannot be read: {reason(error)}") from error
    except ConfigError as error:
        raise ReloadError(*(_named(source, line) for line in str(error).splitlines())) from error
    fatal = [_named(source, f"{found.key}: {found.text}") for found in findings if found.fatal]
    if fatal:
        raise ReloadError(*fatal)
    return Read(
        config,
        secrets,
        tls,
        collector,
        findings,
        empty=all(not each or each.startswith("#") for each in lines),
    )


def _named(source: Path, line: str) -> str:
    return line if line.startswith(str(source)) else f"{source}: {line}"
