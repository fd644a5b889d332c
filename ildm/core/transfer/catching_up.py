"""The part of a link's bytes that is for its backlog, while newer messages go first.

Messages of classes with ``backlog: after_live`` that waited when a link came up go after all others
(:data:`~ildm.core.transfer.classes.BEHIND`). Newer messages could keep them waiting for ever. So for each
byte of those the backlog is owed a part. It gets its bytes as soon as they make a :data:`QUANTUM`. What it
takes while nothing newer waits counts towards that, and never beyond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ildm.core.transfer.classes import BEHIND

if TYPE_CHECKING:
    from ildm.core.transfer.queue import Queue

QUANTUM: Final = 1500
"""Bytes."""


class CatchingUp:
    """Of one sender."""

    __slots__ = ("_granted", "_owed")

    def __init__(self) -> None:
        self._owed = 0.0
        """Bytes; below 0: the backlog has had more, as messages are not divided."""
        self._granted = False
        """It goes first until it has what it is owed."""

    def begin(self) -> None:
        """There is another connection, and perhaps another backlog."""
        self._owed = 0.0
        self._granted = False

    def sent(self, queue: Queue, share: float, size: int, behind: bool) -> None:
        """Bytes have left the queue; ``share``: the part of all that is for the backlog."""
        if not behind:
            self._granted = False
            self._owed += size * share / (1 - share)
            if self._owed >= QUANTUM:
                self._owed = min(self._owed, 2.0 * QUANTUM)
                self._granted = True
                queue.favour(BEHIND, int(self._owed))
        elif self._granted:
            self._owed -= size
        else:
            self._owed = min(self._owed, max(0.0, self._owed - size))
