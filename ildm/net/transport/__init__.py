"""How bytes come and go: listeners and dials, their transport found by the scheme of the address."""

from ildm.net.transport.dialing import Dialing
from ildm.net.transport.listener import Listener, ListenError
from ildm.net.transport.schemes import TRANSPORTS, Transport
from ildm.net.transport.tls import LiveContext, NodeTls, Renewal, uses_tls
from ildm.net.transport.websocket import WebSocketOptions

__all__ = [
    "TRANSPORTS",
    "Dialing",
    "ListenError",
    "Listener",
    "LiveContext",
    "NodeTls",
    "Renewal",
    "Transport",
    "WebSocketOptions",
    "uses_tls",
]
