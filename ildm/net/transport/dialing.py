"""Connections which this node makes: to its broker, and to neighbours."""

from __future__ import annotations

import ssl
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from ildm.core.session import CLOSE_TIMEOUT
from ildm.net.transport.arrival import own_session
from ildm.net.transport.paced import Paced
from ildm.net.transport.schemes import TRANSPORTS
from ildm.net.transport.sockets import dialed
from ildm.net.transport.turns import pace_of

if TYPE_CHECKING:
    import asyncio
    import socket

    from ildm.config import Address, Config
    from ildm.core.local.client_session import ClientSession
    from ildm.net.transport.reactor import Reactor
    from ildm.net.transport.sockets import Connected, Factory, Loop, Place
    from ildm.net.transport.tls import Context, NodeTls
    from ildm.net.transport.turns import Turns


OF_SECRETS = {"binder does not verify": "the neighbour has another link secret"}
"""Text for people of what OpenSSL says where keys are made of the link secret."""


class NotSharedError(ssl.SSLError):
    """Where keys are made of the link secret: the neighbour's end of the connection is often seen before an
    alert that tells why."""

    reason = "the neighbour has ended the handshake: it has another link secret, or certificates"


class NoTlsError(OSError):
    """The configuration does not say whom to trust there."""


class Dialing:
    """Dials by the transport of the address.

    Args:
        config: None: plain transports only.
        reactor: what carries connections without TLS; None: the event loop.
        turns: in which those of the event loop go on; None: they are read whole.
    """

    def __init__(
        self,
        config: Config | None = None,
        tls: NodeTls | None = None,
        reactor: Reactor | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.reactor = reactor
        self.turns = turns
        self._broker = None if config is None else config.broker
        self._tls = tls

    def follow(self, tls: NodeTls) -> None:
        """Dial with these contexts from now on."""
        self._tls = tls

    def place(self, address: Address) -> Place | None:
        """Where the reactor can connect to at once; None: by :meth:`connect`, as more has to be done."""
        transport = TRANSPORTS[address.scheme]
        if self.reactor is None or transport.tls or self._tells(address):
            return None
        return transport.sockets.place(address)

    def _tells(self, address: Address) -> bool:
        """The PROXY protocol is spoken there."""
        broker = self._broker
        return broker is not None and broker.proxy != "none" and address in broker.candidates

    def connect(
        self,
        loop: Loop,
        factory: Factory,
        address: Address,
        limit: float,
        client: ClientSession | None = None,
    ) -> Coroutine[Any, Any, Connected]:
        """Connect; ``limit`` is what all of it may take, in seconds.

        Args:
            client: whom the connection is for, as the PROXY protocol tells the broker; None: the node.

        Raises:
            OSError: nobody is there, or TLS says that it is somebody else (``ssl.SSLError``).
            ValueError: the host is no host name.
        """
        transport = TRANSPORTS[address.scheme]
        options = self._options(address, limit) if transport.tls else {}
        former = None if self._tls is None else self._tls.link_former
        if former is not None and options and options["ssl"].psk:
            return self._connect_shared(loop, factory, address, options, former)
        if self._tells(address):
            return self._connect_told(loop, factory, address, client, options)
        if self.reactor is not None and not transport.tls:
            return self._connect_asked(loop, factory, address)
        return transport.sockets.dial(loop, self._paced(factory, client), address, **options)

    async def _connect_shared(
        self, loop: Loop, factory: Factory, address: Address, options: dict[str, Any], former: Context
    ) -> Connected:
        """Connect by the link secret, and by the one before it to who has not been given the new one yet."""
        dial = TRANSPORTS[address.scheme].sockets.dial
        assert self._tls is not None
        contexts = [options["ssl"], former][: len(self._tls.keys())]
        for context in contexts:
            try:
                return await dial(loop, self._paced(factory, None), address, **options | {"ssl": context})
            except (
                ssl.SSLError,
                ConnectionResetError,
                BrokenPipeError,
            ):  # rather than an alert
                continue
        raise NotSharedError

    async def _connect_asked(self, loop: Loop, factory: Factory, address: Address) -> Connected:
        """Connect to a host whose address has to be asked for."""
        return self._taken(await dialed(loop, address), factory)

    def _paced(self, factory: Factory, client: ClientSession | None) -> Factory:
        turns = self.turns
        return factory if turns is None else lambda: Paced(factory(), turns, pace_of(client))

    def _taken(self, sock: socket.socket, factory: Factory) -> Connected:
        assert self.reactor is not None
        protocol = factory()
        return cast("asyncio.Transport", self.reactor.adopt(sock, protocol)), protocol

    async def _connect_told(
        self,
        loop: Loop,
        factory: Factory,
        address: Address,
        client: ClientSession | None,
        options: dict[str, Any],
    ) -> Connected:
        """Connect, and tell the broker by the PROXY protocol for whom."""
        broker = self._broker
        assert broker is not None
        origin = None if client is None else client.origin
        made = await dialed(loop, address)
        try:
            header = own_session(broker.proxy, made) if origin is None else origin.told(broker.proxy, made)
            await loop.sock_sendall(made, header)  # before TLS
            if self.reactor is not None and not options:
                return self._taken(made, factory)
            return await loop.create_connection(self._paced(factory, client), sock=made, **options)
        except BaseException:
            made.close()
            raise

    def _options(self, address: Address, limit: float) -> dict[str, Any]:
        tls, broker = self._tls, self._broker
        of_broker = broker is not None and address in broker.candidates
        if tls is not None and broker is not None and broker.tls is not None and of_broker:
            used, name = tls.broker, broker.tls.server_name or address.host
        else:
            used, name = None if tls is None else tls.link_out, address.host
        if used is None:
            raise NoTlsError("there is no link.tls that says which certificates to show and to trust")
        return {
            "ssl": used.context,
            "server_hostname": name,
            "ssl_handshake_timeout": limit,
            "ssl_shutdown_timeout": CLOSE_TIMEOUT,
        }


def tls_reason(error: ssl.SSLError) -> str:
    """What went wrong, in few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the certificate is not accepted: {error.verify_message}"
    said = (error.reason or str(error)).replace("_", " ").lower()
    return f"TLS: {OF_SECRETS.get(said, said)}"
