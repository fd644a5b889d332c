"""One other node: whether it can be reached, and how. README.md has the table of states."""

from __future__ import annotations

from enum import StrEnum

from ildm_algorithms.overlay.peers import Estimate

__all__ = ["Contact", "ContactState"]


class ContactState(StrEnum):
    """How a member can be reached."""

    UNKNOWN = "unknown"
    """Nothing was received from it or about it."""
    UP = "up"
    SUSPECT = "suspect"
    """Its link was lost, and a HELLO is on its way to see why."""
    RELAYED = "relayed"
    """Not by a direct link, but by way of another node that hears it."""
    DOWN = "down"


class Contact:
    """One member. Times are those of the node's clock; a *beat* is the number of a round of HELLO.

    Attributes:
        incarnation: the newest known; 0: none is.
        received_at: when something came from it itself.
        beat: number of its last HELLO.
        lost_beat: the same when it was lost: later ones, which others hear, show that it lives.
        reports: its last HELLO as others have received it: beat and time.
        absent: nodes of its cluster that it has lost sight of.
        sent_news: the newest news that was sent to it.
        refused: why it is not spoken with.
    """

    __slots__ = (
        "absent",
        "address",
        "beat",
        "clusters",
        "incarnation",
        "lost_beat",
        "news",
        "node_id",
        "number",
        "received_at",
        "refused",
        "reports",
        "round_trip",
        "sent_news",
        "state",
    )

    def __init__(self, node_id: str, number: int) -> None:
        self.node_id = node_id
        self.number = number
        self.address = ""
        self.state = ContactState.UNKNOWN
        self.incarnation = 0
        self.received_at = 0.0
        self.beat = 0
        self.lost_beat = 0
        self.reports: dict[str, tuple[int, float]] = {}
        self.clusters: frozenset[int] = frozenset()
        self.absent: frozenset[str] = frozenset()
        self.sent_news = 0
        self.news = 0
        self.refused: str | None = None
        self.round_trip = Estimate()

    @property
    def alive(self) -> bool:
        """Whether it is counted among the nodes that messages go to."""
        return self.state in (ContactState.UP, ContactState.SUSPECT, ContactState.RELAYED)

    def hello(self, direct: bool, beat: int, now: float) -> None:
        """A HELLO has come from it, over its link or by way of another."""
        self.beat = max(self.beat, beat)
        self.received_at = now
        if direct:
            self.state = ContactState.UP
        elif self.state in (ContactState.UNKNOWN, ContactState.DOWN):
            self.state = ContactState.RELAYED

    def data(self, now: float) -> None:
        """Anything else has come over its link."""
        self.received_at = now
        if self.state is ContactState.SUSPECT:
            self.state = ContactState.UP

    def restarted(self, incarnation: int) -> None:
        """It has started anew, which is the end of what it was."""
        self.incarnation = incarnation
        self.beat = self.lost_beat = 0
        self.reports.clear()
        self.sent_news = 0
        self.refused = None
        if self.alive:
            self._down()

    def lost(self, certain: bool) -> None:
        """Its link was lost; ``certain``: it cannot be reached at all."""
        self.sent_news = 0
        if self.state is ContactState.UP and not certain:
            self.state = ContactState.SUSPECT
        elif self.state in (ContactState.UP, ContactState.SUSPECT):
            self._down()

    def silent(self) -> None:
        """Nothing has come from it for too long."""
        if self.alive:
            self._down()

    def said_bye(self) -> None:
        self.silent()

    def reported(self, by: str, beat: int, now: float) -> None:
        """Another node hears it."""
        self.reports[by] = beat, now

    def relay(self, usable: set[str], since: float) -> str | None:
        """Which of some nodes has received its HELLO, after it was lost here and not before ``since``."""
        found = [
            by
            for by, (beat, at) in self.reports.items()
            # the round of HELLO in which it was lost may have reached others and not this node
            if by in usable and at >= since and beat > self.lost_beat + 1
        ]
        return min(found, default=None)

    def relayed(self, possible: bool) -> None:
        """Whether another node hears it, by what is known now."""
        if possible and self.state is ContactState.DOWN:
            self.state = ContactState.RELAYED
        elif not possible and self.state is ContactState.RELAYED:
            self.state = ContactState.DOWN

    def _down(self) -> None:
        self.state = ContactState.DOWN
        self.lost_beat = max([self.beat, *(beat for beat, _ in self.reports.values())])
        self.reports.clear()
