"""The configuration read again while a node runs: all of it is taken up, or nothing."""

from ildm.net.reload.errors import ReloadError
from ildm.net.reload.reloader import Reloader

__all__ = ["ReloadError", "Reloader"]
