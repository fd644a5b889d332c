"""A packet of which only a part has come: relayed as it comes, or held until it is whole.

A large PUBLISH goes on to the broker byte by byte, as if the node were not there: a client that takes
longer for it than its keep alive lives on, and nobody's memory holds it, but for the copy that is
collected where it has to cross. All such copies together are bounded; at the bound the packet that was
begun first gives way, since it is the one that has been incomplete for longest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.mqtt import MqttError, OverLimit

if TYPE_CHECKING:
    from ildm.core.counters import Counters

SMALL = 4096
"""Bytes up to which a packet is held whatever it is, which is cheaper, and not counted."""


class Partials:
    """What the large incomplete packets of all clients take together, in bytes."""

    def __init__(self, limit: int, counters: Counters) -> None:
        self.limit = limit
        self.counters = counters
        self.bytes = 0
        self._begun: dict[Partial, None] = {}  # in the order of their beginning

    def grow(self, partial: Partial, size: int) -> None:
        """More is kept of a packet.

        Raises:
            OverLimit: no room, and ``partial`` itself is next to give way and cannot be relayed in part.
        """
        self._begun.setdefault(partial)
        self.bytes += size
        partial.kept += size
        while self.bytes > self.limit:
            oldest = next(iter(self._begun))
            self.forget(oldest)
            if oldest.relayed:
                self.counters["transfer_dropped_partial"] += 1
                oldest.stop_copying()
                continue
            error = OverLimit("no room for the parts of a packet", clause="MQTT-4.13.2")
            if oldest is partial:
                raise error
            if oldest.give_up is not None:
                oldest.give_up(error)

    def forget(self, partial: Partial) -> None:
        if partial in self._begun:
            del self._begun[partial]
            self.bytes -= partial.kept
            partial.kept = 0

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(partial.kept for partial in self._begun)
        assert size == self.bytes, f"incomplete packets of {size} bytes count {self.bytes}"


class Partial:
    """The incomplete packet at the end of what one client has sent."""

    __slots__ = ("_all", "_parts", "give_up", "given_up", "kept", "missing", "relayed")

    def __init__(self, all: Partials) -> None:
        self._all = all
        self._parts: list[bytes] | None = None
        self.give_up: Callable[[MqttError], None] | None = None
        """Of a packet that is held: what to do when there is no room for it."""
        self.missing = 0
        """Bytes it lacks at least; 0 when there is none."""
        self.relayed = False
        """What has come of it is with the broker already, and so will be what comes."""
        self.given_up = False
        """It was wanted, but there was no room to copy it."""
        self.kept = 0

    def hold(self, part: bytes, missing: int, give_up: Callable[[MqttError], None]) -> None:
        """Keep what has come until the packet is whole.

        Args:
            give_up: called when there is no room for it any more.

        Raises:
            OverLimit: there is none.
        """
        self._parts = [part]
        self.give_up = give_up
        self.missing = missing
        self.relayed = False
        if len(part) + missing > SMALL:
            self._all.grow(self, len(part))

    def join(self, data: bytes) -> bytes | None:
        """A held packet with what has come now, and what follows it; None if it still is incomplete.

        Raises:
            OverLimit: no room for it.
        """
        assert self._parts is not None
        self._parts.append(data)
        self.missing -= len(data)
        if self.missing > 0:
            if self.kept:
                self._all.grow(self, len(data))
            return None
        joined = b"".join(self._parts)
        self.clear()
        return joined

    def relay(self, part: bytes, missing: int, copy: bool) -> None:
        """The packet is relayed as it comes; with ``copy`` it is wanted when it is whole."""
        self.missing = missing
        self.relayed = True
        self.given_up = False
        self._parts = [part] if copy else None
        if copy:
            self._all.grow(self, len(part))

    def take(self, data: bytes) -> int:
        """How many bytes at the beginning of ``data`` belong to the packet that is being relayed."""
        size = min(self.missing, len(data))
        self.missing -= size
        if self._parts is not None:
            self._parts.append(data if size == len(data) else data[:size])
            self._all.grow(self, size)
        return size

    def whole(self) -> bytes | None:
        """The copy of a packet that has been relayed; None if there is none."""
        frame = None if self._parts is None else b"".join(self._parts)
        self.clear()
        return frame

    def stop_copying(self) -> None:
        self.given_up = True
        self._parts = None

    def clear(self) -> None:
        self._all.forget(self)
        self._parts = None
        self.give_up = None
        self.missing = 0
        self.relayed = False
