"""Run one node in a process of its own, until a signal or the admin API stops it."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ildm.config import Config, ConfigError
from ildm.core.plugin.loading import load_plugins
from ildm.core.trial import try_plugins
from ildm.log import configure_logging, get_logger
from ildm.net.allocator import keep_freed_memory
from ildm.net.descriptors import descriptors_for_clients
from ildm.net.reload.settings import read_secrets
from ildm.net.server import NodeServer
from ildm.net.standby import Standby
from ildm.net.systemd import for_the_next, take_notifier, take_sockets, time_to_drain
from ildm.net.transport import ListenError, uses_tls
from ildm.preflight import examine

if TYPE_CHECKING:
    from pathlib import Path

    from ildm.net.handover.estate import Estate
    from ildm.net.handover.taking import Predecessor

COLLECT_AFTER = (2_000, 10, 100)
"""When the collector of cycles runs on the youngest objects, the younger ones, all of them: after so many
made and not freed, then after so many runs of the kind before. It takes up to a microsecond for each object,
and nobody is served meanwhile."""


def run_node(
    config: Config,
    *,
    source: Path | None = None,
    started: Callable[[], None] | None = None,
    before: Predecessor | None = None,
) -> int:
    """Run a node until a signal or the admin API stops it, or another process has taken it over; returns the
    exit status. ``before`` is the process whose clients this one takes over.

    SIGTERM and SIGINT drain; a second one ends the drain, and the status is 1. SIGHUP takes up the
    configuration as ``ildm reload`` does; it drains where there is a terminal, which is gone then, or no
    ``source``, which is the file of the configuration.

    Raises:
        ConfigError: something named in the configuration cannot be used.
        ListenError: an address cannot be listened on.
    """
    configure_logging(config.log.level, config.log.format)
    _raise_file_limit()
    if uses_tls(config):
        keep_freed_memory()
    environment = for_the_next(os.environ)
    notifier, inherited = take_notifier(os.environ), take_sockets(os.environ)
    plugins = load_plugins(config)
    given = inherited.paths if before is None else [each.url.host for _, each in config.clients_at]
    findings = examine(config, thorough=False, given=given, has_overlay=plugins.has_overlay)
    if fatal := [f"{found.key}: {found.text}" for found in findings if found.fatal]:
        raise ConfigError("\n".join(fatal))
    for found in findings:
        get_logger("ildm").warning("configuration", key=found.key, problem=found.text)

    status = 0
    estate: Estate | None = None
    if before is not None:
        if config.site.members:
            raise ConfigError("site.members: an upgrade cannot make a member of a pair of the node")
        read_secrets(config)
        try_plugins(config, plugins)

    async def main() -> None:
        nonlocal estate
        signalled = False
        if before is not None:
            gc.disable()  # it would look at all clients; the server enables it when they are served
            estate = before.ready(config, inherited)
        server = NodeServer(config, plugins, source, inherited, estate=estate, environment=environment)
        server.reloader.watch = notifier.reloading

        def reread() -> None:
            if server.renewal is not None:  # else it is just being read
                server.reloader.ask()

        def end(number: signal.Signals) -> None:
            nonlocal status, signalled
            signalled = True
            if not server.stop_requested.is_set():
                get_logger("ildm").info("signal: the node drains and stops", signal=number.name)
                server.request_stop()
            elif server.draining:
                get_logger("ildm").warning("another signal: the node ends at once", signal=number.name)
                status = 1
                server.hurry()

        def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            server.failed(loop, context)  # of the node that there is by then

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup wants it to outlive that
            if source is None or _has_terminal():
                loop.add_signal_handler(signal.SIGHUP, end, signal.SIGHUP)
            else:
                loop.add_signal_handler(signal.SIGHUP, reread)
        standby = None
        if config.site.members:
            standby = Standby(config, inherited, server.stop_requested, plugins)
        if standby is not None:
            server.claim = await standby.claim(partial(notifier.ready, "standing by"))
            if server.claim is None:
                await standby.close()
                return
            notifier.opening()
            if standby.guests is not None:
                inherited.lent = standby.guests.lend
                server.counters = standby.guests.counters
        await server.start()
        if standby is not None and standby.guests is not None:
            inherited.lent = lambda place: None
            standby.guests.succeeded()
        estate = None
        loop.set_exception_handler(failed)
        possible = server.node.admission.descriptors_for
        if possible is not None and possible < config.limits.clients:
            log = get_logger("ildm")
            # who has not asked for so many need not be warned
            tell = log.warning if "clients" in config.limits.model_fields_set else log.info
            tell(
                "the limit of open files is below what limits.clients may need",
                open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                clients_possible=possible,
            )
        if started is not None:
            started()
        notifier.ready()
        if before is None:  # else clients are served, who are not to wait for the collector
            # what is there now stays: the collector need not look at it again with each generation
            gc.collect()
            gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        await server.stop_requested.wait()
        while (upgrade := server.upgrade) is not None and upgrade.leaving:
            await upgrade.ended.wait()
            if upgrade.taken:
                notifier.succeeded_by(upgrade.pid)
                if signalled:
                    os.kill(upgrade.pid, signal.SIGTERM)
                await server.stop_admin()
                return
            former = server
            server = NodeServer(
                former.config, plugins, source, inherited, estate=upgrade.estate, environment=environment
            )
            server.reloader.watch = notifier.reloading
            await former.stop_admin()
            await server.start()
            if not signalled:
                await server.stop_requested.wait()
        notifier.stopping(time_to_drain(server.config, len(server.node.sessions)))
        if standby is not None:
            await standby.close()
        await server.stop()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())
    notifier.close()
    inherited.close()
    return status


def _has_terminal() -> bool:
    """Whether this process belongs to a terminal, whose end is told by SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


def _raise_file_limit() -> None:
    """Use as many file descriptors as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["ConfigError", "ListenError", "NodeServer", "descriptors_for_clients", "run_node"]
