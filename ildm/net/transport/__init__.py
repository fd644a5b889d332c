"""How bytes come and go: listeners and dials, their transport found by the scheme of the address."""

from ildm.net.transport.listener import Listener, ListenError
from ildm.net.transport.schemes import TRANSPORTS, Transport

__all__ = ["TRANSPORTS", "ListenError", "Listener", "Transport"]
