"""Who has connected to a listener, from before its first byte to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.core.session import peer_of
from ildm.net.transport.proxy import header_v1, header_v2, tls_tlvs

if TYPE_CHECKING:
    import socket

    from ildm.net.transport.gate import AddressGate
    from ildm.net.transport.proxy import Place, ProxyHeader


class Arrival:
    """One connection of a client; see :class:`ildm.core.session.Origin`.

    Args:
        gate: bounds connections by address; None: nothing does.
        listener: label in metrics of where it has come.
    """

    __slots__ = ("_entered", "_gate", "_host", "_in_handshake", "_said", "_transport", "listener")

    def __init__(self, gate: AddressGate | None, listener: str = "") -> None:
        self.listener = listener
        self._gate = gate
        self._host = ""
        self._entered = False
        self._in_handshake = False
        self._said: ProxyHeader | None = None
        self._transport: Any = None

    def enter(self, host: str, said: ProxyHeader | None = None, handshake: bool = True) -> bool:
        """Before a session, and TLS: whether it may go on. ``said`` is what a trusted proxy has said."""
        self._said = said
        self._host = said.source[0] if said is not None and said.source is not None else host
        self._entered = self._gate is None or self._gate.enter(self._host, handshake)
        self._in_handshake = handshake and self._entered
        return self._entered

    def handshake_ended(self) -> None:
        """Well or not."""
        if self._in_handshake:
            self._in_handshake = False
            if self._gate is not None:
                self._gate.handshake_ended(self._host)

    def begin(self, transport: Any) -> str | None:
        self._transport = transport
        said = self._said
        name = transport.get_extra_info("peername")
        if said is not None and said.source is not None:
            host, port = said.source
            peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        else:
            peer = peer_of(transport, name)
        if self._entered:
            return peer
        if self._gate is not None and isinstance(name, tuple):
            self._host = name[0]
            if not self._gate.enter(self._host):
                return None
        self._entered = True
        return peer

    def resume(self, transport: Any) -> None:
        """As :meth:`begin` for a connection that another process has let in: it is never refused."""
        self._transport = transport
        self._entered = True
        name = transport.get_extra_info("peername")
        if self._gate is not None and isinstance(name, tuple):
            self._host = name[0]
            self._gate.resume(self._host)

    def authentication_failed(self) -> str | None:
        return None if self._gate is None else self._gate.authentication_failed(self._host)

    def is_blocked(self) -> bool:
        return self._gate is not None and self._gate.blocks(self._host)

    def end(self) -> None:
        self._transport = None
        self.handshake_ended()
        if self._entered:
            self._entered = False
            if self._gate is not None and self._host:
                self._gate.leave(self._host)

    def told(self, version: str, made: socket.socket) -> bytes:
        """What the broker is told of it on the connection ``made``; ``version``: ``v1`` or ``v2``."""
        said, transport = self._said, self._transport
        own = transport is None
        source = said.source if said is not None else None if own else _place(transport, "peername")
        destination = said.destination if said is not None else None if own else _place(transport, "sockname")
        if source is None or destination is None:
            return own_session(version, made)
        if version == "v1":
            return header_v1(source, destination)
        return header_v2(source, destination, self._tlvs())

    def _tlvs(self) -> bytes:
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if tls is None:
            return b"" if self._said is None else self._said.tlvs
        shown = (tls.getpeercert() or {}).get("subject", ())
        names = [value for part in shown for kind, value in part if kind == "commonName"]
        return tls_tlvs(tls.version() or "", names[0] if names else None, tls.selected_alpn_protocol())


def own_session(version: str, made: socket.socket) -> bytes:
    """What the broker is told of the node's own sessions, and of clients without an address.

    The header has the addresses of the connection itself, because Mosquitto 2.1 closes connections whose
    header says LOCAL or UNKNOWN.
    """
    header = header_v1 if version == "v1" else header_v2
    return header(made.getsockname(), made.getpeername())


def _place(transport: Any, which: str) -> Place | None:
    found = transport.get_extra_info(which)
    return (found[0], found[1]) if isinstance(found, tuple) else None
