"""Free TCP ports on the loopback interface, those of the testbed."""

from __future__ import annotations

from ildm.testing.live.ports import LOOPBACK, free_port, is_free

__all__ = ["LOOPBACK", "free_port", "is_free"]
