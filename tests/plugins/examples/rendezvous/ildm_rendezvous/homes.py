"""Where a topic is at home: highest random weight, also known as rendezvous hashing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

WIDE = ""
MOST = 10_000
"""So many homes are remembered."""


class Homes:
    """Of all living members the one whose id gives the greatest hash with the key is the home.

    So all who know the same members agree, and when a node comes or goes no other keys move than its own.
    """

    def __init__(self, alive: Callable[[], Sequence[str]], levels: int) -> None:
        self._alive = alive
        self._levels = levels
        self._known: dict[str, str] = {}

    def of(self, topic: str) -> str:
        """The home's id, for a topic or a filter; WIDE for a filter that matches topics of several."""
        key = "/".join(topic.split("/")[: self._levels])
        if "+" in key or "#" in key:
            return WIDE
        if key not in self._known:
            if len(self._known) >= MOST:
                self.forget()
            self._known[key] = max(self._alive(), key=lambda node_id: digest(f"{key}\0{node_id}".encode()))
        return self._known[key]

    def forget(self) -> None:
        """The members have changed."""
        self._known.clear()


def digest(text: bytes) -> bytes:
    """The same at all nodes, unlike ``hash``."""
    return blake2b(text, digest_size=8).digest()
