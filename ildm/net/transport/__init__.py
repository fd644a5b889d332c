"""How bytes come and go: listeners and dials, their transport found by the scheme of the address."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from ildm.net.transport.dialing import Dialing
from ildm.net.transport.listener import Listener, ListenError
from ildm.net.transport.schemes import TRANSPORTS, Transport
from ildm.net.transport.tls import LiveContext, NodeTls, Renewal, uses_tls
from ildm.net.transport.turns import Turns
from ildm.net.transport.websocket import WebSocketOptions

if TYPE_CHECKING:
    import asyncio

    from ildm.net.transport.reactor import Reactor

__all__ = [
    "TRANSPORTS",
    "Dialing",
    "ListenError",
    "Listener",
    "LiveContext",
    "NodeTls",
    "Renewal",
    "Transport",
    "Turns",
    "WebSocketOptions",
    "new_reactor",
    "uses_tls",
]


def new_reactor(loop: asyncio.AbstractEventLoop, turns: Turns, read_wait: float) -> Reactor | None:
    """What carries plain connections; None where there is no epoll, that is but under Linux.

    ``read_wait``: seconds of a slot under load (:mod:`.slots`); 0: there are none.
    """
    if not hasattr(select, "epoll"):
        return None
    from ildm.net.transport.reactor import Reactor  # noqa: PLC0415 - it cannot be imported elsewhere
    from ildm.net.transport.slots import Slots  # noqa: PLC0415

    return Reactor(loop, turns, Slots(read_wait, turns.counters) if read_wait else None)
