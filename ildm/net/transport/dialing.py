"""Connections which this node makes: to its broker, and to neighbours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ildm.core.session import CLOSE_TIMEOUT
from ildm.net.transport.arrival import own_session
from ildm.net.transport.schemes import TRANSPORTS
from ildm.net.transport.sockets import dialed

if TYPE_CHECKING:
    from ildm.config import Address, Config
    from ildm.core.local.client_session import ClientSession
    from ildm.net.transport.sockets import Connected, Factory
    from ildm.net.transport.tls import NodeTls


class NoTlsError(OSError):
    """The configuration does not say whom to trust there."""


class Dialing:
    """Dials by the transport of the address.

    Args:
        config: None: plain transports only.
    """

    def __init__(self, config: Config | None = None, tls: NodeTls | None = None) -> None:
        self._broker = None if config is None else config.broker
        self._tls = tls

    def follow(self, tls: NodeTls) -> None:
        """Dial with these contexts from now on."""
        self._tls = tls

    def connect(
        self,
        loop: asyncio.AbstractEventLoop,
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
        broker = self._broker
        if broker is None or broker.proxy == "none" or address not in broker.candidates:
            return transport.sockets.dial(loop, factory, address, **options)
        return self._connect_told(loop, factory, address, client, options)

    async def _connect_told(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Factory,
        address: Address,
        client: ClientSession | None,
        options: dict[str, Any],
    ) -> Connected:
        """Connect, and tell the broker by the PROXY protocol for whom."""
        broker = self._broker
        assert broker is not None
        origin = None if client is None else client.origin
        header = own_session(broker.proxy) if origin is None else origin.told(broker.proxy)
        made = await dialed(loop, address)
        try:
            await loop.sock_sendall(made, header)  # before TLS
            return await loop.create_connection(factory, sock=made, **options)
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
    return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
