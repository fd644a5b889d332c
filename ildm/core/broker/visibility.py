"""Which retained messages the broker shows the node's account: what its silence about a topic proves.

A value of the same parent (all levels of the topic but the last) proves that the account may read there.
Names of topics would take any room, so hashes of them are remembered.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

TRIALS = 10_000
"""Parents that are tried, or looked at again, at once."""
LOOKS: Final = 3
"""Times, a second or two apart, that a value is looked for again before its parent counts as hidden."""
MARKS = 100_000
"""Parents, and topics, that are remembered."""


class Unshown(Enum):
    """What it means that the broker has shown nothing on a topic."""

    MISSING = "the broker has no value"
    HIDDEN = "the account may not read there"
    BUSY = "the broker has a value and may show it later"
    UNKNOWN = "nothing: a value is to be tried"


class Visibility:
    """One per node; a new connection to the broker makes :meth:`forget` necessary."""

    def __init__(self) -> None:
        self._shown: set[int] = set()
        """Topics that the broker has shown."""
        self._readable: set[int] = set()
        """Their parents."""
        self._blind: set[int] = set()
        """Parents of which it has shown nothing although it had been given values."""
        self._trials: dict[int, str] = {}
        """Of parents the topic of the value that was injected to see whether the broker shows it."""
        self._looks: dict[int, int] = {}
        """Parent -> how often a value was not shown that the broker has got."""

    def forget(self) -> None:
        """The broker has come back: its rules may have changed."""
        self._shown.clear()
        self._trials.clear()
        self._looks.clear()

    def has_shown(self, topic: str) -> bool:
        return hash(topic) in self._shown

    def is_readable(self, topic: str) -> bool:
        """The broker has shown a value of the parent."""
        return parent_of(topic) in self._readable

    def is_known(self, topic: str) -> bool:
        """Whether it is known if the parent is readable, or there is no room to remember it."""
        parent = parent_of(topic)
        return parent in self._readable or parent in self._blind or len(self._readable) >= MARKS

    def shown(self, topic: str) -> bool:
        """The broker has shown a message; whether now nothing is known to be hidden."""
        _mark(self._shown, hash(topic))
        parent = parent_of(topic)
        if parent in self._readable:
            return False
        _mark(self._readable, parent)
        self._end_trial(parent)
        self._blind.discard(parent)
        return not self._blind

    def hidden(self, topic: str) -> None:
        """The broker has a value on a topic and does not show it."""
        parent = parent_of(topic)
        if parent not in self._readable:
            _mark(self._blind, parent)
            self._end_trial(parent)

    def denied(self, topic: str) -> None:
        """The broker has refused the subscription."""
        _mark(self._blind, parent_of(topic))

    def unshown(self, topic: str, was_given: bool) -> Unshown:
        """What it means that nothing was shown. ``was_given``: the broker has taken a value of the node's."""
        parent = parent_of(topic)
        if parent in self._readable:
            return Unshown.MISSING
        if parent in self._blind or len(self._blind) >= MARKS:
            return Unshown.HIDDEN
        if self._trials.get(parent) != topic and not was_given:
            return Unshown.UNKNOWN
        looks = self._looks.get(parent, 0)
        if looks == LOOKS or len(self._looks) == TRIALS:
            self.hidden(topic)
            return Unshown.HIDDEN
        self._looks[parent] = looks + 1
        return Unshown.BUSY

    def may_try(self, topic: str) -> bool:
        """Whether a value of the parent may be injected to see if it is shown: one at a time."""
        return parent_of(topic) not in self._trials and len(self._trials) < TRIALS

    def tried(self, topic: str) -> None:
        self._trials[parent_of(topic)] = topic

    def _end_trial(self, parent: int) -> None:
        self._trials.pop(parent, None)
        self._looks.pop(parent, None)


def parent_of(topic: str) -> int:
    """What stands for all levels but the last."""
    return hash(topic.rpartition("/")[:2])


def _mark(marks: set[int], mark: int) -> None:
    if len(marks) < MARKS:
        marks.add(mark)
