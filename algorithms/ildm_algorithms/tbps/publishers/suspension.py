"""Carries the signals of `publisher.py` between the publishers of a segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.mqtt import IldmError
from ildm_algorithms.tbps.keys.encoding import Role, Segment
from ildm_algorithms.tbps.messages import Ask, Report, Signal, Statuses, decode_payload
from ildm_algorithms.tbps.publishers.publisher import (
    UNKNOWN,
    Command,
    Left,
    PublisherCommand,
    PublisherState,
    Status,
)

if TYPE_CHECKING:
    from ildm.api import NodeApi, Peer
    from ildm_algorithms.overlay.graph import SkipGraph
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.tbps.keys.segments import Member, Segments
    from ildm_algorithms.tbps.publishers.surveys import Surveys

__all__ = ["FIRST_CHECK", "Suspension"]

FIRST_CHECK = 1.0
"""Seconds after joining when a publisher first asks its neighbour: a signal may have overtaken it."""
ASK_BATCH = 100
"""Segments in one question."""


class Suspension:
    """All publishers of this node: neighbours and signals in, signals out."""

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        segments: Segments,
        surveys: Surveys,
        interval: float,
        resumed: Callable[[Member], None],
        count: Callable[[str], None],
    ) -> None:
        self.api = api
        self.graph = graph
        self.segments = segments
        self.surveys = surveys
        self.interval = interval
        self.count = count
        self._fresh: list[Member] = []
        self.resumed = resumed
        """An own publisher that has not sent something is not suspended any more."""

    def start(self) -> None:
        """Begin to make sure of the statuses now and then."""
        self._later()

    def _later(self) -> None:
        # spread out, lest all nodes ask at once
        self.api.call_later(self.interval * (0.5 + self.api.random.random()), self._tick)

    def _tick(self) -> None:
        self._later()
        self.surveys.tick()
        self._check([member for member in self.segments.members.values() if _publishes(member)])

    # events -----------------------------------------------------------------------------------

    def joined(self, member: Member, left: Ref | None, status: bytes) -> None:
        """An own publisher key is in the graph."""
        if member.segment.is_aggregate:
            member.publisher.joined(Left.SUBSCRIBER, None)  # never suspended as a whole
            self.surveys.joined(member)
            return
        received = self._read_status(member.segment, status) if status else None
        publisher = member.publisher
        self._obey(member, publisher.joined(_side(member.segment, left), received))
        if not publisher.rendezvous:
            self._check_soon(member)

    def _check_soon(self, member: Member) -> None:
        if not self._fresh:
            self.api.call_later(FIRST_CHECK, self._check_fresh)
        self._fresh.append(member)

    def neighbor_changed(self, member: Member) -> None:
        """The level 0 neighbour of an own publisher key is another one."""
        if _publishes(member):
            left = self._left(member)
            self._obey(member, member.publisher.neighbor_changed(_side(member.segment, left)))

    def status_for(self, member: Member, joining: Ref) -> bytes:
        """What rides on the acknowledgement to a publisher that joins right of an own one."""
        publisher = member.publisher
        if not _publishes(member) or joining.key not in member.segment.publishers:
            return b""
        return Statuses([(member.segment, publisher.status)]).encode()

    def signalled(self, signal: Signal, sender: Peer | None = None) -> None:
        """A status was announced to all publishers of a segment, or sent to this one alone."""
        member = self.segments.get(signal.segment)
        if member is None or self.segments.publisher(signal.segment) is None:
            self.count("signals_not_concerned")
            return
        self.count("signals")
        publisher = member.publisher
        before = publisher.suspended
        self._obey(member, publisher.signalled(signal.status))
        if sender is None or not _publishes(member) or publisher.suspended == before:
            return
        levels = self.graph.neighbors(member.keys[Role.PUBLISHER])
        right = levels[0][1] if levels else None
        if right is None or right.peer != sender or right.key not in member.segment.publishers:
            return
        if not publisher.rendezvous:
            # Handed over, but two graphs have become one, and the left neighbour of who was the other's
            # rendezvous point is none either. The one there is has to judge.
            self._report(member, publisher.status)

    def asked(self, sender: Peer, ask: Ask) -> None:
        """Another publisher, on the right of an own one, wants to know the status."""
        entries = []
        for segment in ask.segments:
            publisher = self.segments.publisher(segment)
            if publisher is not None and publisher.state is not PublisherState.JOINING:
                entries.append((segment, publisher.status))
        if entries:
            self.graph.tell(sender, Statuses(entries).encode())

    def answered(self, statuses: Statuses) -> None:
        for segment, status in statuses.entries:
            member = self.segments.get(segment)
            if member is not None and self.segments.publisher(segment) is not None:
                self._obey(member, member.publisher.answered(status))
                if status.epoch == UNKNOWN and member.publisher.epoch == UNKNOWN and _publishes(member):
                    self._check_soon(member)  # the neighbour is as new as this one

    def reported(self, sender: Peer, report: Report) -> None:
        """This node ought to be the rendezvous point of a segment with a conflict (both inconsistencies)."""
        member = self.segments.get(report.segment)
        if member is None or not member.publisher.rendezvous:
            self.count("reports_astray")  # the reporter will ask again
            return
        self.count("reports")
        self._obey(member, member.publisher.reported(report.status), sender)

    def unreached(self, member: Member) -> None:
        """A message of an own publisher has met no subscriber at all."""
        publisher = member.publisher
        if publisher.state is PublisherState.ACTIVE and not member.subscribed and not publisher.rendezvous:
            self._report(member, publisher.status)

    def hinted(self, segment: Segment) -> None:
        """A new subscriber of a segment has spoken up."""
        member = self.segments.get(segment)
        if member is not None and self.segments.publisher(segment) is not None:
            self._obey(member, member.publisher.hinted())

    # commands ---------------------------------------------------------------------------------

    def _obey(self, member: Member, command: Command | None, reporter: Peer | None = None) -> None:
        if member.skipped is not None and member.active:
            self.resumed(member)
        if command is None:
            return
        signal = Signal(member.segment, command.status).encode()
        match command.order:
            case PublisherCommand.ANNOUNCE:
                self.count("resumes" if not command.status.suspended else "suspends")
                self.graph.cast(member.segment.publishers, signal, reliable=True)
            case PublisherCommand.HAND_OVER:
                left = self._left(member)
                if left is not None:
                    self.count("handovers")
                    self.graph.tell(left.peer, signal)
                # that one may know more: this one may have been rendezvous point by a mistake of its tables
                self._check_soon(member)
            case PublisherCommand.CORRECT:
                assert reporter is not None
                self.count("corrections")
                self.graph.tell(reporter, signal)
            case PublisherCommand.REPORT:
                self._report(member, command.status)
            case PublisherCommand.ASK:
                left = self._left(member)
                if left is not None:
                    self.graph.tell(left.peer, Ask([member.segment]).encode())

    def _report(self, member: Member, status: Status) -> None:
        """Find the rendezvous point, the right neighbour of the last key before all publishers."""
        self.count("conflicts")
        segment = member.segment

        def found(_: Ref | None, right: Ref | None, hops: int) -> None:
            if right is None or right.key not in segment.publishers:
                self.count("rendezvous_not_found")
            elif right.peer.node_id == self.api.node_id:
                self.reported(self.api.peer, Report(segment, status))
            else:
                self.graph.tell(right.peer, Report(segment, status).encode())

        self.graph.lookup(segment.publishers.low, found)

    def _check_fresh(self) -> None:
        members, self._fresh = self._fresh, []
        members = [m for m in members if self.segments.get(m.segment) is m and _publishes(m)]
        for member in members:
            member.publisher.used = True
        self._check(members)

    def _check(self, members: list[Member]) -> None:
        """Judge where this node is the rendezvous point, else ask; one message to each neighbour."""
        questions: dict[Peer, list[Segment]] = {}
        for member in members:
            # the hook tells of every change; to look again costs nothing and mends a hook missed
            left = self._left(member)
            self._obey(member, member.publisher.neighbor_changed(_side(member.segment, left)))
            command = member.publisher.ticked()
            if command is not None and command.order is PublisherCommand.ASK and left is not None:
                questions.setdefault(left.peer, []).append(member.segment)
            else:
                self._obey(member, command)
        for peer, segments in questions.items():
            for at in range(0, len(segments), ASK_BATCH):
                self.count("questions")
                self.graph.tell(peer, Ask(segments[at : at + ASK_BATCH]).encode())

    def _left(self, member: Member) -> Ref | None:
        levels = self.graph.neighbors(member.keys[Role.PUBLISHER])
        return levels[0][0] if levels else None

    def _read_status(self, segment: Segment, data: bytes) -> Status | None:
        try:
            payload = decode_payload(data)
        except IldmError:
            # the neighbour is asked soon anyway
            self.count("malformed")
            return None
        if isinstance(payload, Statuses):
            for named, status in payload.entries:
                if named == segment:
                    return status
        return None


def _publishes(member: Member) -> bool:
    """A publisher of one segment; aggregates have ``Surveys``."""
    return member.publisher.state is not PublisherState.JOINING and not member.segment.is_aggregate


def _side(segment: Segment, left: Ref | None) -> Left:
    if left is None:
        return Left.OTHER
    if left.key in segment.publishers:
        return Left.PUBLISHER
    return Left.SUBSCRIBER if left.key in segment.subscribers else Left.OTHER
