"""The nodes behind a link in the tree of active links, and whether they have moved to another link."""

from __future__ import annotations

from collections.abc import Set

UNMARKED: tuple[int, frozenset[str]] = 0, frozenset()


class Subtree:
    """The nodes that the messages in a link's consumers are for."""

    __slots__ = ("mark", "moved", "nodes", "reroute_pending")

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        """Ids of the nodes behind the link, now or when it was last part of the tree."""
        self.moved: set[str] = set()
        """Ids of those that have come behind another link since, while :attr:`reroute_pending`."""
        self.reroute_pending = False
        """Some nodes are reached on another path by now: the messages in the consumers are rerouted
        (:mod:`ildm.core.transfer.rerouting`) before anything is sent."""

        self.mark: tuple[int, Set[str]] = UNMARKED
        """Of these nodes nothing is in the consumers when all up to this LSN has gone."""

    def replace(self, here: Set[str], moved: Set[str]) -> bool:
        """``here`` are behind the link, ``moved`` are behind another one. Answers whether that is news."""
        if not moved and here <= self.nodes:
            return False
        self.nodes = (self.nodes - moved) | here
        self.moved = (self.moved | moved) - here if self.reroute_pending else set()
        return True

    def rerouted(self) -> None:
        """Nothing is to be rerouted (any more)."""
        self.reroute_pending = False
        self.moved.clear()

    def clear(self) -> None:
        """The link has left the tree."""
        self.rerouted()
        self.nodes.clear()
