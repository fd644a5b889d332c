"""Suspending and resuming at one publisher of one segment (thesis 3.2.1, Figures 3.4 to 3.6).

A machine without time or messages: events in, at most one command out. See README.md for its table.

The publisher whose left neighbour at level 0 is no publisher of the segment is the *rendezvous point*. It
alone sees whether there are subscribers, namely whether that neighbour is one. Each change it sees begins a
new *epoch*; a signal of an older epoch never wins over what a newer one has said.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

__all__ = ["UNKNOWN", "Command", "Epoch", "Left", "Publisher", "PublisherCommand", "PublisherState", "Status"]


LAST = (1 << 64) - 1
"""Greatest number of an epoch, as it travels; only a node in error, or worse, comes to it."""


class Epoch(NamedTuple):
    """When a status was decided, and by which rendezvous point; the greater one is newer."""

    number: int
    node_id: str


class Status(NamedTuple):
    """What publishers of a segment tell each other."""

    epoch: Epoch
    suspended: bool


UNKNOWN = Epoch(0, "")


class PublisherState(StrEnum):
    """State of a publisher in its segment."""

    JOINING = "joining"
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Left(Enum):
    """What the left neighbour at level 0 is."""

    PUBLISHER = "publisher"
    """Of the same segment: this node is not the rendezvous point."""
    SUBSCRIBER = "subscriber"
    """Of the same segment: there are subscribers."""
    OTHER = "other"
    """Of another segment, or nobody: there are no subscribers."""


class PublisherCommand(Enum):
    """What a command asks for."""

    ANNOUNCE = "announce"
    """Send the status to all publishers of the segment."""
    HAND_OVER = "hand over"
    """Send the status to the left neighbour: it is the rendezvous point now."""
    CORRECT = "correct"
    """Send the status to the publisher that reported another one."""
    ASK = "ask"
    """Ask the left neighbour for its status."""
    REPORT = "report"
    """Send the status, which is in conflict with the neighbour's, to the rendezvous point."""


class Command(NamedTuple):
    """An order and the status to send."""

    order: PublisherCommand
    status: Status


class Publisher:
    """One publisher of one segment."""

    __slots__ = ("_hinted", "_joined", "_left", "_node_id", "epoch", "suspended", "used")

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._joined = False
        self._hinted = False
        """A subscriber has spoken up while this one joined."""
        self._left = Left.PUBLISHER
        self.epoch = UNKNOWN
        self.suspended = False
        self.used = False
        """Something was published, or is in doubt, since the neighbour last answered."""

    @property
    def state(self) -> PublisherState:
        if not self._joined:
            return PublisherState.JOINING
        return PublisherState.SUSPENDED if self.suspended else PublisherState.ACTIVE

    @property
    def rendezvous(self) -> bool:
        """Whether this is the rendezvous point of the segment."""
        return self._joined and self._left is not Left.PUBLISHER

    @property
    def status(self) -> Status:
        return Status(self.epoch, self.suspended)

    def joined(self, left: Left, status: Status | None) -> Command | None:
        """The key is in the graph (thesis Fig. 3.6); ``status`` rode on the acknowledgement, if any.

        Without a status of the neighbour's, then or since, the publisher is active. A message in vain is
        better than one that is missing.
        """
        self._joined = True
        self._left = left
        hinted, self._hinted = self._hinted, False
        if left is Left.PUBLISHER:
            if status is not None and status.epoch >= self.epoch:
                self.epoch, self.suspended = status
            if hinted:  # the status may have been sent before the subscriber spoke up
                self.suspended = False
            return None
        self._begin(left is not Left.SUBSCRIBER and not hinted)
        # Nobody else needs to receive it: a rendezvous point before this one hands over what it knows.
        return None

    def neighbor_changed(self, left: Left) -> Command | None:
        """The left neighbour at level 0 is another one now (passive detection, Figures 3.4 and 3.5)."""
        was_rendezvous = self.rendezvous
        self._left = left
        if was_rendezvous and left is Left.PUBLISHER:
            return Command(PublisherCommand.HAND_OVER, self.status)
        return self._judge()

    def signalled(self, status: Status) -> Command | None:
        """SUSPEND or RESUME has come, or the status which a former rendezvous point hands over."""
        if status.epoch < self.epoch:
            return None
        self.epoch, self.suspended = status
        return self._judge()

    def ticked(self) -> Command | None:
        """Time to make sure of the status: cure of what lost signals leave behind.

        The thesis lets suspended publishers ask. Publishers that publish ask, too. In the thesis their
        messages pass the rendezvous point, which is not on the way here.
        """
        if not self._joined:
            return None
        if self.rendezvous:
            return self._judge()
        return Command(PublisherCommand.ASK, self.status) if self.suspended or self.used else None

    def answered(self, status: Status) -> Command | None:
        """The left neighbour has sent its status."""
        if not self._joined or self.rendezvous:
            return None
        self.used = False
        mine = self.status
        if status.epoch > mine.epoch:
            self.epoch, self.suspended = status
        return Command(PublisherCommand.REPORT, mine) if status.suspended != mine.suspended else None

    def reported(self, status: Status) -> Command | None:
        """A publisher is in conflict with its neighbour, or its message has met no subscriber."""
        if not self.rendezvous:
            return None
        command = self._judge()
        if command is not None or status == self.status:
            return command
        if status.epoch > self.epoch:
            self.epoch = Epoch(status.epoch.number, "")
            self._begin(self.suspended)
            return Command(PublisherCommand.ANNOUNCE, self.status)
        # Others may suspend as wrongly as the reporter does; who publishes in vain reports itself.
        return Command(PublisherCommand.CORRECT if self.suspended else PublisherCommand.ANNOUNCE, self.status)

    def hinted(self) -> Command | None:
        """A subscriber has spoken up; from now on no message shall be missed.

        Its SUBACK waits for no more than that. So the rendezvous point takes its word for it where the
        subscriber, which has just joined, is not its neighbour yet.
        """
        if not self._joined:
            self._hinted = True
        elif not self.rendezvous:
            self.suspended = False
        elif self.suspended:
            self._begin(False)
            return Command(PublisherCommand.ANNOUNCE, self.status)
        return None

    def _judge(self) -> Command | None:
        if not self.rendezvous or self.suspended == (self._left is not Left.SUBSCRIBER):
            return None
        self._begin(not self.suspended)
        return Command(PublisherCommand.ANNOUNCE, self.status)

    def _begin(self, suspended: bool) -> None:
        self.epoch = Epoch(min(self.epoch.number + 1, LAST), self._node_id)
        self.suspended = suspended
