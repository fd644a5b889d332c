"""The TCP listener for programs that watch. It answers nothing else, so who may look can change nothing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from ildm.admin.metrics import watch_routes
from ildm.admin.not_http import LOGGER
from ildm.net.transport import Listener

if TYPE_CHECKING:
    from ildm.address import Address
    from ildm.admin.view import NodeView
    from ildm.core.counters import Counters
    from ildm.net.transport.inherited import Inherited

CONNECTIONS = 32
"""At a time; more are closed at once."""
LIFETIME = 10.0
"""Seconds a connection may last. Each carries one request, so that nobody holds one of the few for long."""


class MetricsServer:
    """Serves :func:`watch_routes` by TCP from :meth:`start` to :meth:`stop`.

    Args:
        counters: the node's.
        token: what is demanded as ``Authorization: Bearer TOKEN``; None: nothing.
        inherited: sockets that are taken in place of new ones.
    """

    def __init__(
        self,
        view: NodeView,
        address: Address,
        counters: Counters,
        token: str | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        self.view = view
        self.address = address
        self._counters = counters
        self._listener = Listener(address, "metrics.listen", lambda _: self._accept(), inherited=inherited)
        self._token: bytes | None = None
        self.demand(token)
        self._runner: web.AppRunner | None = None
        self.refused = 0
        """Connections beyond the bound."""

    def demand(self, token: str | None) -> None:
        """Demand another token from now on."""
        self._token = None if token is None else hashlib.sha256(token.encode()).digest()

    @property
    def connections(self) -> int:
        """That there are now."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    @property
    def port(self) -> int:
        return self._listener.port

    async def start(self) -> None:
        """Listen.

        Raises:
            ListenError: the address cannot be listened on.
        """
        app = web.Application(middlewares=[self._guarded], client_max_size=0)
        app.add_routes(watch_routes(self.view))
        runner = web.AppRunner(
            app, logger=LOGGER, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        self._runner = runner
        try:
            await runner.setup()
            await self._listener.open()
            await self._listener.serve()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close; without a start nothing happens."""
        self._listener.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _accept(self) -> asyncio.BaseProtocol:
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        if self.connections >= CONNECTIONS:
            self.refused += 1
            return _Refused()
        protocol = server()
        asyncio.get_running_loop().call_later(LIFETIME, protocol.force_close)
        return protocol

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self._token is not None and not self._known(request.headers.get("Authorization", "")):
            self._counters["metrics_requests_refused"] += 1
            answer: web.StreamResponse = web.Response(
                status=401, text="a token is needed\n", headers={"WWW-Authenticate": "Bearer"}
            )
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = web.Response(status=error.status, text=error.text)
        answer.force_close()
        return answer

    def _known(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        digest = hashlib.sha256(given.strip().encode(errors="replace")).digest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self._token or b"")


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()
