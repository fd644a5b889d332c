"""The start node of a publisher in one segment: which key it is, and how long it is kept (STLA IV-D).

A machine without messages: events in, at most one order out; README.md has its table. And the choice itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from ildm_algorithms.tbps.keys.encoding import KeyFormatError, Segment, parse_key

if TYPE_CHECKING:
    from ildm_algorithms.overlay.keys import Ref

__all__ = ["RETRY", "Start", "StartCommand", "StartState", "nearest", "shared_layers"]

RETRY = 1.0
"""Seconds until the next search after one that has found nothing."""


class StartState(StrEnum):
    """What is known of the start node."""

    UNKNOWN = "unknown"
    SEARCHING = "searching"
    """None is known, and it is looked for."""
    KNOWN = "known"
    REFRESHING = "refreshing"
    """One is known and used, and it is looked whether another one is closer by now."""


class StartCommand(Enum):
    """What a publisher is to do."""

    SEARCH = "search"
    """Look up the place of a subscriber key of its own, and tell what is there."""


class Start:
    """The start node of one publisher in one segment; times in seconds."""

    __slots__ = ("_due", "_epoch", "_searching", "ref")

    def __init__(self) -> None:
        self.ref: Ref | None = None
        """Key of the start node, where a message begins; None: none is known."""
        self._searching = False
        self._due = 0.0
        self._epoch: object = None

    @property
    def state(self) -> StartState:
        if self.ref is None:
            return StartState.SEARCHING if self._searching else StartState.UNKNOWN
        return StartState.REFRESHING if self._searching else StartState.KNOWN

    def use(self, now: float, epoch: object) -> StartCommand | None:
        """A message is to be sent, soon or now. ``epoch``: of the publisher's status (RESUME begins one)."""
        if epoch != self._epoch:
            self._epoch = epoch
            self.ref = None
            self._due = now
        if self._searching or now < self._due:
            return None
        self._searching = True
        return StartCommand.SEARCH

    def found(self, ref: Ref | None, now: float, keep: float) -> None:
        """A search has answered: use what it has found for ``keep``. None: there was no subscriber."""
        self._searching = False
        self.ref = ref
        self._due = now + (RETRY if ref is None else keep)

    def failed(self, now: float) -> None:
        """A search had no answer. What was known before is used on."""
        self._searching = False
        self._due = now + RETRY

    def lost(self, ref: Ref, now: float) -> None:
        """A node that was used as start is suspected, or a message through it did not reach everybody."""
        if ref == self.ref:
            self.ref = None
            self._due = now


def shared_layers(one: Sequence[str], other: Sequence[str]) -> int:
    """In how many layers below the world two nodes are in the same cluster."""
    shared = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared


def nearest(segment: Segment, locality: Sequence[str], candidates: Iterable[Ref | None]) -> Ref | None:
    """The subscriber among the candidates that shares most layers with a publisher; of equals the first.

    Candidates are the neighbours of the place where the publisher would be if it subscribed. Two are
    enough: in a sorted list of paths the one with the longest common beginning is next to that place.
    """
    best: Ref | None = None
    most = -1
    for ref in candidates:
        if ref is None or ref.key not in segment.subscribers:
            continue  # another topic's key, or a publisher's
        try:
            shared = shared_layers(locality, parse_key(ref.key).locality)
        except KeyFormatError:
            continue  # of a node with other ideas of keys
        if shared > most:
            best, most = ref, shared
    return best
