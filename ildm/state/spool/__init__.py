"""The spool on disk: an append-only log in segments, which implements :mod:`ildm.core.spool`."""

from ildm.state.spool.disk import Disk, OsDisk
from ildm.state.spool.spool import FileSpool

__all__ = ["Disk", "FileSpool", "OsDisk"]
