"""A place where others connect to this node."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ildm.core.counters import Counters
from ildm.core.local.admission import LOG_EVERY
from ildm.core.session import CLOSE_TIMEOUT
from ildm.mqtt import IldmError
from ildm.net.transport.arrival import Arrival
from ildm.net.transport.dialing import tls_reason
from ildm.net.transport.inherited import Inherited
from ildm.net.transport.paced import Paced
from ildm.net.transport.proxies import Proxies
from ildm.net.transport.proxy import ProxyError, ProxyHeader
from ildm.net.transport.schemes import TRANSPORTS
from ildm.net.transport.sockets import AT_ONCE, BACKLOG, EXHAUSTED, PAUSE
from ildm.net.transport.websocket import WebSocket, WebSocketOptions, WebSocketRules

if TYPE_CHECKING:
    from ildm.address import Address
    from ildm.core.timing import Timing
    from ildm.net.transport.gate import AddressGate
    from ildm.net.transport.reactor import Accepting, Reactor
    from ildm.net.transport.sockets import Bound
    from ildm.net.transport.tls import LiveContext
    from ildm.net.transport.turns import Turns

HANDSHAKE_TIMEOUT = 10.0
"""Seconds for TLS."""
AGAIN = 0.01
"""Seconds between two attempts to take an address that is in use."""
UNDER_WAY = 2048
"""Connections of one listener before their session has begun; further ones are closed."""


class ListenError(IldmError):
    """An address cannot be listened on."""


class Listener:
    """Listens on one address, which may be several sockets.

    Args:
        key: where the address stands in the configuration; for errors.
        factory: makes what a connection talks with; it has the methods of ``asyncio.Protocol``, and tells the
            arrival of its beginning and its end.
        mode: permissions of a unix socket.
        tls: of the transports that need it.
        websocket: the same.
        gate: bounds connections by address.
        proxies: who has to say by the PROXY protocol where a connection comes from.
        counters: the node's.
        label: of the listener, in metrics.
        handshakes: where the time that TLS takes is observed.
        inherited: sockets that are taken in place of new ones.
        reactor: what carries connections where nothing comes before the session; None: the event loop.
        turns: in which connections of the event loop go on; None: they are read whole.
        log: the node's, as :meth:`ildm.core.driver.Driver.log`.
    """

    def __init__(
        self,
        address: Address,
        key: str,
        factory: Callable[[Arrival], object],
        mode: int = 0o600,
        *,
        tls: LiveContext | None = None,
        websocket: WebSocketOptions | None = None,
        gate: AddressGate | None = None,
        proxies: Proxies | None = None,
        counters: Counters | None = None,
        inherited: Inherited | None = None,
        label: str = "",
        handshakes: Timing | None = None,
        reactor: Reactor | None = None,
        turns: Turns | None = None,
        log: Callable[..., None] | None = None,
        refused: Callable[[str, str], None] = lambda host, why: None,
    ) -> None:
        self.address = address
        self.key = key
        self.counters = Counters() if counters is None else counters
        if websocket is not None:
            rules = WebSocketRules(factory, self.counters, websocket)
            self._make: Callable[[Arrival], asyncio.Protocol] = lambda arrival: WebSocket(rules, arrival)
        else:
            self._make = cast("Callable[[Arrival], asyncio.Protocol]", factory)
        self._label = label
        self._handshakes = handshakes
        self._gate = gate
        self._proxies = proxies
        self._reactor = reactor
        self._turns = turns
        self._log = log
        self._tell_refused = refused
        self._quiet_until: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        """By what the log says of connections that were refused."""
        """Proxies refused since the log has said so."""
        self._mode = mode
        self._inherited = Inherited() if inherited is None else inherited
        self._tls = tls
        self._sockets = TRANSPORTS[address.scheme].sockets
        self._bound: list[Bound] = []
        self._servers: list[asyncio.Server | Accepting | Acceptor] = []
        self._retired: list[Acceptor] = []

    def follow(self, key: str, tls: LiveContext | None, gate: AddressGate | None) -> None:
        """Serve whoever connects from now on with these, under another key perhaps."""
        self.key, self._tls, self._gate = key, tls, gate

    def can_be_succeeded(self, address: Address) -> bool:
        """Whether one that is to listen there could :meth:`succeed` this one: the scheme may be another."""
        same = (self.address.host, self.address.port) == (address.host, address.port)
        return same and TRANSPORTS[address.scheme].sockets is self._sockets

    def succeed(self, other: Listener) -> None:
        """Take the sockets of another listener on the same address, in place of :meth:`open`; both serve
        until that one is to :meth:`retire`."""
        self._bound = [bound.again() for bound in other._bound]

    @property
    def sockets(self) -> list[socket.socket]:
        """Those which are bound; empty once closed."""
        return [bound.socket for bound in self._bound]

    @property
    def busy(self) -> bool:
        """Somebody is in the handshake."""
        acceptors = (each for each in self._servers if isinstance(each, Acceptor))
        return any(acceptor.busy for acceptor in (*acceptors, *self._retired))

    @property
    def port(self) -> int:
        """The port that is listened on, also where the system has chosen it; 0 of a unix socket."""
        place = self._bound[0].socket.getsockname() if self._bound else None
        return place[1] if isinstance(place, tuple) else 0

    async def open(self, patience: float = 0.0) -> None:
        """Take the address; nobody is served yet.

        ``patience``: seconds for which it may still be in use, by a process that is just ending.

        Raises:
            ListenError: that cannot be done; it names the key.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            try:
                self._bound = await self._sockets.bind(loop, self.address, self._mode, self._inherited)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or loop.time() >= until:
                    raise self._cannot(error) from error
                await asyncio.sleep(AGAIN)
            else:
                return

    async def serve(self) -> None:
        """Serve whoever connects.

        Raises:
            ListenError: another process has begun to listen on the address meanwhile.
        """
        loop = asyncio.get_running_loop()
        try:
            for bound in self._bound:
                if self._tls is not None or self._proxies is not None:
                    self._servers.append(Acceptor(self, loop, bound.socket))
                elif self._reactor is not None:
                    self._servers.append(self._reactor.listen(bound.socket, self._plain, self.counters))
                else:
                    self._servers.append(
                        await self._sockets.serve(loop, bound, lambda: self._paced(self._plain()))
                    )
        except OSError as error:
            raise self._cannot(error) from error

    def _plain(self) -> asyncio.Protocol:
        return self._make(Arrival(self._gate, self._label))

    def _paced(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        return protocol if self._turns is None else Paced(protocol, self._turns)

    async def establish(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, host: str) -> None:
        """Do all that comes before the session: the PROXY protocol, the gate, TLS."""
        arrival = Arrival(self._gate, self._label)
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            said = await self._said(loop, connection, host)
            if arrival.enter(host, said, handshake=self._tls is not None):
                begun = loop.time()
                await loop.connect_accepted_socket(
                    lambda: self._paced(self._make(arrival)), connection, **self._tls_options()
                )
                arrival.handshake_ended()
                if self._handshakes is not None and self._tls is not None:
                    self._handshakes.observe(loop.time() - begun)
                return
        except ProxyError as error:
            self.counters["proxy_headers_refused"] += 1
            self._refused("no PROXY header from a trusted address", host, str(error), loop.time())
        except OSError as error:
            self.counters["tls_handshakes_failed"] += 1
            why = tls_reason(error) if isinstance(error, ssl.SSLError) else str(error) or type(error).__name__
            self._refused("the TLS handshake has failed", host, why, loop.time())
        except asyncio.CancelledError:
            arrival.end()
            connection.close()
            raise
        arrival.end()
        connection.close()

    def _refused(self, what: str, host: str, why: str, now: float) -> None:
        """The log has one line for all strangers' faults of a kind within some seconds, about the newest."""
        self._tell_refused(host, why)
        self._unlogged[what] = self._unlogged.get(what, 0) + 1
        if self._log is None or now < self._quiet_until.get(what, now):
            return
        self._quiet_until[what] = now + LOG_EVERY
        self._log(
            "info",
            f"connection refused: {what}",
            listener=self._label or self.key,
            peer=host,
            reason=why,
            refused=self._unlogged.pop(what),
        )

    async def _said(
        self, loop: asyncio.AbstractEventLoop, connection: socket.socket, host: str
    ) -> ProxyHeader | None:
        if self._proxies is None or not self._proxies.trusts(host):
            return None
        return await self._proxies.header(loop, connection)

    def _tls_options(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls.context,
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT,
            "ssl_shutdown_timeout": CLOSE_TIMEOUT,
        }

    def _cannot(self, error: OSError) -> ListenError:
        return ListenError(f"{self.key}: cannot listen on {self.address}: {error.strerror or error}")

    def hold(self) -> None:
        """Take nobody more, until another process listens on the same sockets: who connects waits."""
        for server in self._servers:
            if isinstance(server, asyncio.Server):
                server.close()
            else:
                server.hold()

    def retire(self, *, succeeded: bool) -> None:
        """Take nobody more. Who is connected stays, and who is in the handshake gets to its end.

        Args:
            succeeded: another one goes on at the same place.
        """
        if not succeeded:
            for bound in self._bound:
                bound.release()
        for server in self._servers:
            if isinstance(server, Acceptor):
                server.retire()
                self._retired.append(server)
            else:
                server.close()
        for bound in self._bound[len(self._servers) :]:
            bound.socket.close()
        self._bound = []
        self._servers = []

    def close(self) -> None:
        """Take nobody more, and give up the handshakes under way. Those who are connected stay."""
        for bound in self._bound:
            bound.release()
        for server in (*self._servers, *self._retired):
            server.close()
        for bound in self._bound[len(self._servers) :]:
            bound.socket.close()
        self._bound = []
        self._servers = []
        self._retired = []


class Acceptor:
    """Accepts by hand where something comes before the session's first byte.

    TLS begins with the context of that moment, so that a new certificate needs no new socket.
    """

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        """Raises: OSError, as ``listen`` does."""
        self._listener = listener
        self._loop = loop
        self._listening = listening
        self._counters = listener.counters
        self._under_way: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        listening.listen(BACKLOG)
        loop.add_reader(listening, self._accept)

    def hold(self) -> None:
        """Accept nobody for now."""
        self._loop.remove_reader(self._listening)
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None

    def retire(self) -> None:
        """Accept no more; the handshakes under way go on."""
        self._loop.remove_reader(self._listening)
        if self._resume is not None:
            self._resume.cancel()
        self._listening.close()

    @property
    def busy(self) -> bool:
        """Handshakes are under way."""
        return bool(self._under_way)

    def close(self) -> None:
        """Accept no more, and give up the handshakes under way."""
        if self._listening.fileno() >= 0:
            self.retire()
        for task in list(self._under_way):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._counters["accept_failures"] += 1
                    self._loop.remove_reader(self._listening)
                    self._resume = self._loop.call_later(PAUSE, self._go_on)
                    return
                continue  # that connection has ended meanwhile (accept(2))
            if len(self._under_way) >= UNDER_WAY:
                self._counters["tls_handshakes_refused"] += 1
                connection.close()
                continue
            host = address[0] if isinstance(address, tuple) else ""
            task = self._loop.create_task(self._listener.establish(self._loop, connection, host))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._listening, self._accept)
