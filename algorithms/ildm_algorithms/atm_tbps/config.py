"""Options of the algorithm ``atm_tbps``."""

from __future__ import annotations

from pydantic import Field

from ildm_algorithms.tbps import TbpsConfig

__all__ = ["AtmTbpsConfig"]


class AtmTbpsConfig(TbpsConfig):
    """How large tables are, and how they are filled; times in seconds. The paper gives none."""

    entries: int = Field(default=60, ge=0, le=10_000)
    """Entries of each key's table at most (L). A topic whose subscribers all find room gets each message in
    one hop, a larger one in few. The neighbours are among them, and are kept even where they alone are more.
    So neighbours that do not subscribe take some of the room."""
    explore_after: float = Field(default=1.0, gt=0)
    """When a key looks for others of its topic after it has joined, and between two messages of one topic
    that do so on their way."""
    explore_interval: float = Field(default=5.0, ge=0)
    """How often a key whose table has room looks for others anywhere; up to 16 times as long while that
    brings nothing new. 0: never."""
    refresh_interval: float = Field(default=30.0, gt=0)
    """How often a key makes itself known to those around it, and they to it."""
    explorations: int = Field(default=64, ge=1)
    """Keys of this node that explore within ``explore_after`` at most; others follow later."""
    former_tables: int = Field(default=1_000, ge=0)
    """Keys that have left whose tables are kept for ``refresh_interval``, should they come back. 0: none."""
