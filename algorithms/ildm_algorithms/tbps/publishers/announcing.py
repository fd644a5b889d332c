"""What goes to aggregates of other nodes, many at a time: their ranges are the same for many topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ildm_algorithms.tbps.publishers.surveys import pieces

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Range

__all__ = ["Announcer"]

SOON = 0.02
"""Seconds between two portions, for more to come that goes the same way."""
PORTION = 64
"""Casts in one portion."""


class _Payload(Protocol):
    def encode(self) -> bytes: ...


class _Item:
    """One text on its way to several ranges."""

    __slots__ = ("complete", "done", "open", "text")

    def __init__(self, text: bytes, ranges: int, done: Callable[[bool], None]) -> None:
        self.text = text
        self.open = ranges
        self.complete = True
        self.done = done


class Announcer:
    """Texts for the same range travel in one reliable cast; many casts are spread over time."""

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        make: Callable[[list[bytes]], _Payload],
        counter: str,
        count: Callable[[str], None],
    ) -> None:
        self.api = api
        self.graph = graph
        self.make = make
        """The message that carries several texts."""
        self.counter = counter
        self.count = count
        self._ranges: dict[Range, list[_Item]] = {}
        self._scheduled = False
        self._next = 0.0
        """When the next portion may go."""

    def add(self, text: bytes, ranges: Iterable[Range], done: Callable[[bool], None]) -> None:
        """Cast ``text`` to ``ranges``; ``done`` gets whether it has reached everybody in all of them."""
        ranges = list(ranges)
        item = _Item(text, len(ranges), done)
        for target in ranges:
            self._ranges.setdefault(target, []).append(item)
        if not ranges:
            done(True)
        elif not self._scheduled:
            # A SUBACK waits for the first: it takes along what comes in the same moment.
            self._scheduled = True
            self.api.call_later(max(0.0, self._next - self.api.now()), self._portion)

    def _portion(self) -> None:
        sent = 0
        while self._ranges and sent < PORTION:
            target = next(iter(self._ranges))
            items = self._ranges.pop(target)
            size = next(pieces(item.text for item in items))
            if size < len(items):
                self._ranges[target] = items[size:]
            self._cast(target, items[:size])
            sent += 1
        self._next = self.api.now() + SOON
        self._scheduled = bool(self._ranges)
        if self._scheduled:
            self.api.call_later(SOON, self._portion)

    def _cast(self, target: Range, items: list[_Item]) -> None:
        def done(result: CastResult) -> None:
            for item in items:
                item.open -= 1
                item.complete = item.complete and result.complete
                if not item.open:
                    item.done(item.complete)

        self.count(self.counter)
        self.graph.cast(target, self.make([item.text for item in items]).encode(), reliable=True, done=done)
