"""What simulated nodes keep through their incarnations, as a spool would: at once, and without bounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from ildm.core.plugin.arguments import check_bytes, check_callable

__all__ = ["Disk", "Keeper", "Keeping"]


class Disk:
    """What outlives the nodes of a world, by the name of a node or of one of its plugins."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[int, bytes]] = {}
        self.injected: dict[str, set[tuple[str, int]]] = {}
        """Identities of messages."""
        self.numbers = itertools.count(1)


class Keeping:
    """One plugin's part of :class:`ildm.api.NodeApi`, for one incarnation of its node.

    Without a disk nothing is kept, and no injection known.
    """

    __slots__ = ("_before", "_disk", "_injected", "_kept")

    def __init__(self, disk: Disk | None, name: str) -> None:
        self._disk = disk
        self._kept: dict[int, bytes] = {}
        self._injected: set[tuple[str, int]] = set()
        if disk is not None:
            self._kept = disk.kept.setdefault(name, self._kept)
            self._injected = disk.injected.setdefault(name, self._injected)
        self._before = list(self._kept)
        """Numbers that earlier incarnations have left."""

    def keep(self, data: bytes) -> int | None:
        check_bytes(data, "data")
        if self._disk is None:
            return None
        number = next(self._disk.numbers)
        self._kept[number] = data
        return number

    def unkeep(self, number: int) -> None:
        self._kept.pop(number, None)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        while self._before:
            number = self._before.pop(0)
            if number in self._kept:
                yield number, self._kept[number]

    def enter(self, identity: tuple[str, int] | None) -> bool:
        """A message is about to be injected; False: it was."""
        if identity is None or self._disk is None:
            return True
        before = len(self._injected)
        self._injected.add(identity)
        return len(self._injected) > before

    def has_injected(self, origin: str, number: int) -> bool | None:
        return None if self._disk is None else (origin, number) in self._injected


class Keeper:
    """The calls of :class:`ildm.api.NodeApi` that a `Keeping` answers."""

    __slots__ = ()
    _keeping: Keeping

    def keep(self, data: bytes) -> int | None:
        return self._keeping.keep(data)

    def unkeep(self, number: int) -> None:
        self._keeping.unkeep(number)

    def when_kept(self, callback: Callable[[], None]) -> None:
        check_callable(callback)
        callback()

    def kept(self) -> Iterator[tuple[int, bytes]]:
        return self._keeping.kept()
