"""Sessions that the broker has and the node does not know, told by an administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.local.record import ClientRecord
from ildm.core.local.requests import FilterBudget
from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ildm.core.local.clients import ClientRegistry

MAX_SESSIONS = 100_000
MAX_FILTERS = 100_000
"""Of all sessions of an import."""
PART = 500
"""Filters that are taken before others have their turn, some milliseconds."""


class ImportRefusedError(IldmError):
    """The sessions cannot be taken; none of them was."""


class KnownSession(NamedTuple):
    """A session as the broker keeps it."""

    client_id: str
    filters: Mapping[str, int]
    """Filter -> QoS."""
    expiry: int
    """Session expiry interval in seconds."""


class SessionImport:
    """Gives sessions to the registry, some at a time, after all of them were found to fit."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._under_way = False

    def begin(self, sessions: Sequence[KnownSession], done: Callable[[], None]) -> None:
        """``done`` is called when all are taken.

        Raises:
            ImportRefusedError: they exceed a limit, or others are being taken.
        """
        if self._under_way:
            raise ImportRefusedError("another import is under way")
        self._check(sessions)
        self._under_way = True
        self._some(iter(sessions), done)

    def _check(self, sessions: Sequence[KnownSession]) -> None:
        clients = self._clients
        limits = clients.limits
        new = sum(session.client_id not in clients.records for session in sessions)
        if new > clients.room:
            raise ImportRefusedError(
                f"{new:,} sessions whose clients are away, {clients.room:,} left by"
                f" limits.persistent_sessions ({limits.persistent_sessions:,})"
            )
        budget = FilterBudget(limits)
        budget.bytes = clients.budget.bytes
        for session in sessions:
            fitting = ClientRecord(session.client_id)
            record = clients.records.get(session.client_id)
            if record is not None:
                fitting.filters, fitting.filter_bytes = dict(record.filters), record.filter_bytes
            for topic_filter, qos in session.filters.items():
                if topic_filter in fitting.filters:
                    continue
                limit = budget.refuses(fitting, topic_filter)
                if limit is not None:
                    raise ImportRefusedError(
                        f"client {session.client_id[:80]!r}, filter {topic_filter[:80]!r}: exceeds {limit}"
                    )
                fitting.filters[topic_filter] = qos
                budget.change(fitting, topic_filter, 1)

    def _some(self, left: Iterator[KnownSession], done: Callable[[], None]) -> None:
        taken = 0
        for session in left:
            self._clients.imported(*session)
            taken += 1 + len(session.filters)
            if taken >= PART:
                self._clients.driver.in_turn(lambda: self._some(left, done))
                return
        self._under_way = False
        done()
