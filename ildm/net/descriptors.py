"""How many clients a process has file descriptors for."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from ildm.core.local.admission import TOLD_AT_ONCE

if TYPE_CHECKING:
    from ildm.config import Config

OWN_DESCRIPTORS = 64
"""What the process needs besides connections: sockets to listen on, the state, the log, the administrator."""


def descriptors_for_clients(config: Config, files: int) -> int | None:
    """How many clients a process with so many file descriptors can relay: each takes two.

    Some are kept for sessions with neighbours and with the broker, the administrator and the state, but
    never more than half of all. None: as many as there are.
    """
    if files == resource.RLIM_INFINITY:
        return None
    own = OWN_DESCRIPTORS + TOLD_AT_ONCE + 2 * config.link.sessions
    if config.algorithm is not None:
        own += (
            2 * config.link.max_neighbors * config.link.sessions
        )  # in both directions until one is given up
    return (files - min(own, files // 2)) // 2
