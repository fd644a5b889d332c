"""A member with its sockets, as far as it serves clients without owning the site."""

from __future__ import annotations

import asyncio
import resource
import secrets
from functools import partial
from typing import TYPE_CHECKING

from ildm import __version__
from ildm.core.counters import Counters
from ildm.core.guests.node import GuestNode
from ildm.core.local.client_session import ClientSession
from ildm.log import get_logger
from ildm.net.descriptors import descriptors_for_clients
from ildm.net.driver import AsyncioDriver
from ildm.net.listeners import ClientListeners
from ildm.net.transport import Dialing, NodeTls, Turns, new_reactor
from ildm.net.transport.gate import AddressGate
from ildm.net.transport.inherited import Inherited, Place

if TYPE_CHECKING:
    import socket

    from ildm.config import Config
    from ildm.core.plugin.loading import PluginSpecs
    from ildm.net.transport.reactor import Reactor


class GuestServer:
    """Serves clients before and after this member owns the site; who is connected stays a guest."""

    def __init__(self, config: Config, plugins: PluginSpecs, inherited: Inherited) -> None:
        self.config = config
        self._plugins = plugins
        self._inherited = inherited
        self.counters = Counters()
        self.node: GuestNode
        self.gate: AddressGate
        self._driver: AsyncioDriver
        self._reactor: Reactor | None = None
        self._listeners: ClientListeners | None = None

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ListenError: an address cannot be listened on.
        """
        config, loop = self.config, asyncio.get_running_loop()
        tls = NodeTls(config, lambda: self.node.links.terms.keys)
        turns = Turns(loop.call_soon, self.counters)
        self._reactor = new_reactor(loop, turns, config.limits.read_wait)
        dialing = Dialing(config, tls, self._reactor, turns)
        self._driver = AsyncioDriver(loop, None, dialing)
        assert config.site.id is not None
        assert config.site.member is not None
        self.node = GuestNode(
            config,
            self._plugins,
            self._driver,
            node_id=config.site.id,
            member=config.site.member,
            life=secrets.token_hex(8),
            at=config.pair_address,
            counters=self.counters,
            release=__version__,
        )
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.node.admission.descriptors_for = descriptors_for_clients(config, files)
        self.gate = AddressGate(config.limits, loop.time, self.counters)
        self._listeners = ClientListeners(
            partial(ClientSession, self.node.local),
            self.gate,
            self.counters,
            self._inherited,
            self.node.timings.handshake,
            self._reactor,
            turns,
            self._driver.log,
        )
        await self._listeners.open(config, tls)
        self.node.start_serving()
        await self._listeners.serve()
        get_logger("ildm.pair").info("this member serves clients", listen=config.clients_text)

    def lend(self, place: Place) -> socket.socket | None:
        """Its socket that listens there, for the node that owns the site."""
        for listener in self._listeners or ():
            for sock in listener.sockets:
                name = sock.getsockname()
                if (name[:2] if isinstance(name, tuple) else name) == place:
                    return sock.dup()
        return None

    def succeeded(self) -> None:
        """The node that owns the site listens: take nobody more."""
        for listener in self._listeners or ():
            listener.retire(succeeded=True)
        self._listeners = None

    async def stop(self) -> None:
        """Send clients away in order, and give everything back."""
        if self._listeners is not None:
            self._listeners.close()
        drained = asyncio.Event()
        self.node.drain(drained.set)
        await drained.wait()
        await self._driver.close()
        if self._reactor is not None:
            self._reactor.close()
