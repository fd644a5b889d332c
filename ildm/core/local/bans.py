"""Clients that an administrator keeps out: by client identifier, user name or address; saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ildm.core.tables import BANS
from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from ildm.core.calendar import Calendar
    from ildm.core.driver import Store
    from ildm.core.local.record import Client

Kind = Literal["client", "user", "address"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST = 10_000
"""Bans at a time."""


class TooManyBansError(IldmError):
    """There is no room for another ban."""


class Ban(NamedTuple):
    """Who, and until when by :meth:`Calendar.date`; None: until it is lifted."""

    kind: Kind
    name: str
    until: float | None


class Bans:
    """One per node. What a client says of itself is compared as its broker gets it, after filters."""

    def __init__(self, calendar: Calendar, store: Store) -> None:
        self.calendar = calendar
        self.store = store
        self._until: dict[tuple[Kind, str], float | None] = {}

    def restore(self) -> None:
        """Take up those of earlier incarnations that still hold."""
        for key, (until,) in self.store.load(BANS):
            kind, name = key
            if kind in KINDS and isinstance(name, str) and (until is None or isinstance(until, float)):
                self._until[kind, name] = until
            else:
                self.store.set_aside(BANS, key, "no ban")
        self._expire()

    def add(self, ban: Ban) -> None:
        """Keep somebody out from now on; a ban of the same is replaced.

        Raises:
            TooManyBansError: there are ``MOST`` already.
        """
        self._expire()
        key = ban.kind, ban.name
        if key not in self._until and len(self._until) >= MOST:
            raise TooManyBansError(f"there are {MOST:,} bans already")
        self._until[key] = ban.until
        self.store.put(BANS, key, (ban.until,))

    def lift(self, kind: Kind, name: str) -> bool:
        """Whether there was such a ban, which holds no more."""
        self._expire()
        if (kind, name) not in self._until:
            return False
        self._forget((kind, name))
        return True

    def __iter__(self) -> Iterator[Ban]:
        self._expire()
        return (Ban(kind, name, until) for (kind, name), until in self._until.items())

    def bars(self, session: Client) -> bool:
        """Whether a client, whose CONNECT has come, is kept out."""
        if not self._until:
            return False
        return any(self._holds(key) for key in _names(session))

    def _holds(self, key: tuple[Kind, str]) -> bool:
        if key not in self._until:
            return False
        until = self._until[key]
        return until is None or until > self.calendar.date()

    def _expire(self) -> None:
        for key in [key for key in self._until if not self._holds(key)]:
            self._forget(key)

    def _forget(self, key: tuple[Kind, str]) -> None:
        del self._until[key]
        self.store.put(BANS, key, None)


def _names(session: Client) -> Iterator[tuple[Kind, str]]:
    yield "client", session.client_id
    yield "address", session.peer.rpartition(":")[0].strip("[]")
    if session.connect is not None and session.connect.username is not None:
        yield "user", session.connect.username
