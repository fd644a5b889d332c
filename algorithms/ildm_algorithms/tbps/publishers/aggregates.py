"""What an aggregate knows of the subscribers below its prefix.

A machine without time or messages, like that of `publisher.py`: events in, at most one command out. The
README of `tbps` has its table.

The left neighbour of a publisher's key tells whether its one topic has subscribers. That of an aggregate's
does not: below its prefix there are many topics, and publishers of them. So an aggregate *asks*, once it is
in the graph, which segments below have subscribers. From then on the first subscriber of each segment tells
by itself. Its key was there before the question, and a subscriber tells after its key is there: whichever was
first, one of both finds the other.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, StrEnum
from typing import NamedTuple

__all__ = ["Aggregate", "AggregateCommand", "Command", "Knowledge"]


class Knowledge(StrEnum):
    """State of an aggregate."""

    JOINING = "joining"
    ASKING = "asking"
    """For the first time: messages wait."""
    UNSURE = "unsure"
    """Answers may be under way, or some nodes were not reached: messages go to all segments."""
    KNOWING = "knowing"
    """Messages go to the segments that are known to have subscribers."""


class AggregateCommand(Enum):
    """What a command asks for."""

    ASK = "ask"
    """Ask all below the prefix which segments have subscribers."""
    AWAIT = "await"
    """Say so (:meth:`Aggregate.waited`) when answers can no longer be under way."""
    PROBE = "probe"
    """Look whether segments still have subscribers."""


class Command(NamedTuple):
    """An order, and the codes of the segments it is about."""

    order: AggregateCommand
    codes: tuple[bytes, ...] = ()


PROBES = 64
"""Segments looked at in one status interval at most."""
ASK_EVERY = 4
"""Status intervals between two questions, for what got lost on the way."""


class Aggregate:
    """One node as publisher of any number of topics below one prefix.

    At most ``limit`` segments with subscribers are known; if there are more, messages go to all.
    """

    __slots__ = (
        "_asked_at",
        "_complete",
        "_doubtful",
        "_events",
        "_limit",
        "_overflow",
        "_subscribed",
        "_ticks",
        "_used",
        "state",
    )

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.state = Knowledge.JOINING
        self._subscribed: dict[bytes, int] = {}
        """Code of a segment with subscribers -> number of the event that said so last."""
        self._events = 0
        self._asked_at = 0
        """Number of the last event before the last question."""
        self._complete = False
        """The last question has reached everybody."""
        self._overflow = False
        self._doubtful: dict[bytes, None] = {}
        """Segments to be probed: used, or not mentioned in the last answers."""
        self._used = False
        """Something was published since the last question."""
        self._ticks = 0

    @property
    def codes(self) -> frozenset[bytes]:
        """Segments known to have subscribers."""
        return frozenset(self._subscribed)

    @property
    def everywhere(self) -> bool:
        """Messages go to all segments below: too many have subscribers, or it is not known which."""
        return self._overflow or self.state is not Knowledge.KNOWING

    def facts(self) -> dict[str, str | int | bool]:
        """For people."""
        return {
            "knowledge": self.state.value,
            "segments with subscribers": len(self._subscribed),
            "sends everywhere": self.everywhere,
        }

    @property
    def moment(self) -> int:
        """Now, for :meth:`unsubscribed`."""
        return self._events

    def knows(self, code: bytes) -> bool:
        """Whether a segment below the prefix is known to have subscribers."""
        return code in self._subscribed

    def sends_to(self, code: bytes) -> bool:
        """Whether a message would go to a segment below the prefix."""
        return code in self._subscribed or self.everywhere

    def wants(self, code: bytes) -> bool:
        """Whether a message goes to a segment below the prefix now."""
        self._used = True
        if code in self._subscribed:
            self._doubtful[code] = None
        return self.sends_to(code)

    def joined(self) -> Command | None:
        """The key is in the graph."""
        if self.state is not Knowledge.JOINING:
            return None
        self.state = Knowledge.ASKING
        return self._ask()

    def left(self) -> None:
        """The key has left the graph, though topics go through the aggregate: nobody tells it anything."""
        self.state = Knowledge.JOINING

    def subscribed(self, codes: Collection[bytes]) -> None:
        """Segments below have subscribers; none: more of them than can be sent."""
        self._events += 1
        for code in codes:
            self._subscribed.pop(code, None)
            self._subscribed[code] = self._events
        if not codes or len(self._subscribed) > self._limit:
            self._overflow = True
            while len(self._subscribed) > self._limit:
                del self._subscribed[next(iter(self._subscribed))]

    def asked(self, complete: bool) -> Command | None:
        """The question has reached everybody below, or not."""
        if self.state is Knowledge.JOINING:
            return None
        self._complete = complete
        if self.state is Knowledge.ASKING:
            self.state = Knowledge.UNSURE
        return Command(AggregateCommand.AWAIT)

    def waited(self) -> Command | None:
        """No answer to the last question can be under way any more."""
        if self.state is Knowledge.JOINING:
            return None
        if not self._complete:
            return self._ask()
        self.state = Knowledge.KNOWING
        for code, event in self._subscribed.items():
            if event <= self._asked_at:
                self._doubtful[code] = None
        return None

    def unsubscribed(self, code: bytes, moment: int) -> None:
        """What was sent at ``moment`` into a segment has met no subscriber."""
        if self._subscribed.get(code, moment + 1) <= moment:
            del self._subscribed[code]

    def merged(self) -> Command | None:
        """The graph has become one with another, whose subscribers have not announced themselves here."""
        if self.state is not Knowledge.KNOWING:
            return None
        self.state = Knowledge.UNSURE
        return self._ask()

    def ticked(self) -> Command | None:
        """Time to make sure of what is known, if it is used."""
        if self.state is not Knowledge.KNOWING or not self._used:
            return None
        self._ticks += 1
        if self._ticks % ASK_EVERY == 0:
            return self._ask()
        codes = [code for code in self._doubtful if code in self._subscribed][:PROBES]
        if len(codes) < PROBES:
            self._doubtful.clear()
        for code in codes:
            self._doubtful.pop(code, None)
        return Command(AggregateCommand.PROBE, tuple(codes)) if codes else None

    def _ask(self) -> Command:
        self._used = False
        self._asked_at = self._events
        if self._overflow:
            # the answers name all that have subscribers, perhaps fewer
            self._overflow = False
            self._subscribed.clear()
            if self.state is Knowledge.KNOWING:
                self.state = Knowledge.UNSURE
        return Command(AggregateCommand.ASK)
