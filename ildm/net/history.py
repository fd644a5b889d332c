"""The latest events of a node, as in its log, for whoever looks when something has happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Any

from ildm.log import redact

KEPT = 1000
"""Events, and as many of clients: these are so many that they would push out the others."""
LONGEST = 200
"""Characters of a value."""


class History:
    """Keeps what was logged from ``info`` on, whatever the level of the log is."""

    def __init__(self) -> None:
        self._clients: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._others: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._number = 0

    def add(self, time: float, level: str, event: str, fields: Mapping[str, object]) -> None:
        """``time`` is Unix time."""
        if level == "debug":
            return
        self._number += 1
        kept = self._clients if "client_id" in fields else self._others
        shown = {key: _short(value) for key, value in fields.items()}
        kept.append({"number": self._number, "time": time, "level": level, "event": event, "fields": shown})

    def rows(self) -> list[dict[str, Any]]:
        """The newest first, values under keys that name a secret masked."""
        return list(self.newest())

    def newest(self) -> Iterator[dict[str, Any]]:
        """The same one by one; what is logged meanwhile is not among them."""
        found = list(
            merge(reversed(self._clients), reversed(self._others), key=itemgetter("number"), reverse=True)
        )
        return ({**row, "fields": redact(None, "", row["fields"])} for row in found)


def _short(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
