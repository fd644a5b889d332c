"""The latest events of a node, as in its log, for whoever looks when something has happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Any, Final

from ildm.log import redact

KEPT: Final = 1000
"""Events, and as many of clients: these are so many that they would push out the others."""
LONGEST: Final = 200
"""Characters of a value."""
Kept = tuple[int, float, str, str, dict[str, Any]]
"""Number, time, level, event and fields."""


class History:
    """Keeps what was logged from ``info`` on, whatever the level of the log is."""

    def __init__(self) -> None:
        self._clients: deque[Kept] = deque(maxlen=KEPT)
        self._others: deque[Kept] = deque(maxlen=KEPT)
        self._number = 0

    def add(self, time: float, level: str, event: str, fields: dict[str, Any]) -> None:
        """``time`` is Unix time; ``fields`` are kept and not to be changed any more."""
        if level == "debug":
            return
        self._number += 1
        kept = self._clients if "client_id" in fields else self._others
        for value in fields.values():
            if not (len(value) <= LONGEST if isinstance(value, str) else _is_plain(value)):
                fields = {key: _short(value) for key, value in fields.items()}
                break
        # A row is made when somebody looks: two are kept for each connection, and few are looked at.
        kept.append((self._number, time, level, event, fields))

    def rows(self) -> list[dict[str, Any]]:
        """The newest first, values under keys that name a secret masked."""
        return list(self.newest())

    def newest(self) -> Iterator[dict[str, Any]]:
        """The same one by one; what is logged meanwhile is not among them."""
        found = merge(reversed(self._clients), reversed(self._others), key=itemgetter(0), reverse=True)
        return map(_row, list(found))


def _row(kept: Kept) -> dict[str, Any]:
    number, time, level, event, fields = kept
    shown = redact(None, "", dict(fields))
    return {"number": number, "time": time, "level": level, "event": event, "fields": shown}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (int, float))


def _short(value: object) -> object:
    if _is_plain(value):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
