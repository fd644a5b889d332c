"""Leads what other nodes send to the part that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.mqtt import IldmError
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.tbps.keys.encoding import segment_of_filter
from ildm_algorithms.tbps.messages import (
    Answer,
    Ask,
    Filters,
    Heard,
    Late,
    Lost,
    Merged,
    Missed,
    Needed,
    Newer,
    Offer,
    Offered,
    Query,
    Report,
    Signal,
    Statuses,
    Survey,
    Want,
    decode_payload,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import NodeApi, Peer
    from ildm_algorithms.overlay.graph import Arrival
    from ildm_algorithms.tbps.forgotten import Forgotten
    from ildm_algorithms.tbps.inbox import Inbox
    from ildm_algorithms.tbps.merges import Merges
    from ildm_algorithms.tbps.missed import Missing
    from ildm_algorithms.tbps.offers import Offers
    from ildm_algorithms.tbps.publishers.outbox import Outbox
    from ildm_algorithms.tbps.publishers.suspension import Suspension
    from ildm_algorithms.tbps.retained.queries import RetainedQueries

__all__ = ["Dispatch", "Guard"]

OWN_TOO = (b"Q", b"I", b"V")
"""Kinds of casts that mean something to the node that has sent them: :class:`Query`, `Filters`, `Survey`."""


class Guard:
    """Calls what may fail because another node is in error: that is counted and does no harm here."""

    def __init__(self, api: NodeApi) -> None:
        self._api = api

    def __call__(self, take: Callable[..., None], *args: object) -> None:
        try:
            take(*args)
        except IldmError as error:
            self._api.count("malformed")
            self._api.log("dropped what another node sent", error=str(error))


class Dispatch:
    """What casts and single nodes bring."""

    def __init__(
        self,
        node_id: str,
        guard: Guard,
        *,
        inbox: Inbox,
        outbox: Outbox,
        suspension: Suspension,
        retained: RetainedQueries,
        missing: Missing,
        offers: Offers,
        merges: Merges,
        forgotten: Forgotten,
    ) -> None:
        self.node_id = node_id
        self.guard = guard
        self.inbox = inbox
        self.outbox = outbox
        self.suspension = suspension
        self.surveys = suspension.surveys
        self.retained = retained
        self.missing = missing
        self.offers = offers
        self.merges = merges
        self.forgotten = forgotten

    def delivered(self, arrival: Arrival) -> None:
        """A cast has reached own keys; what this node has cast itself it knows."""
        if arrival.origin.node_id != self.node_id:
            self.guard(self._take_cast, arrival)
        elif arrival.payload[:1] in OWN_TOO:
            self.guard(self._take_own, arrival)

    def received(self, sender: Peer, payload: bytes) -> None:
        """Another node has sent something to this one alone."""
        self.guard(self._take_tell, sender, payload)

    def _take_own(self, arrival: Arrival) -> None:
        """A subscriber here is news for an aggregate here, and may answer it for all of its segment."""
        match decode_payload(arrival.payload):
            case Query(topic_filter):
                self.surveys.announced(arrival.keys, [topic_filter])
            case Filters(topic_filters):
                self.surveys.announced(arrival.keys, map(bytes.decode, topic_filters))
            case Survey() as survey:
                self.surveys.surveyed(arrival.origin, arrival.keys, survey)

    def _take_cast(self, arrival: Arrival) -> None:
        payload = decode_payload(arrival.payload)
        if isinstance(payload, Message):  # nearly always
            self.inbox.take(arrival.origin.node_id, payload)
            return
        match payload:
            case Signal() as signal:
                self.suspension.signalled(signal)
            case Query(topic_filter):
                self._queried(arrival, [topic_filter])
            case Filters(topic_filters):
                self._queried(arrival, [topic_filter.decode() for topic_filter in topic_filters])
            case Survey() as survey:
                self.surveys.surveyed(arrival.origin, arrival.keys, survey)
            case Needed(segments):
                self.surveys.needed(arrival.keys, segments)
            case Newer() as newer:
                for message in self.retained.newer(newer):
                    self.outbox.superseded(message.topic)
            case Merged(again):
                self.merges.announced(again)
            case Missed() as missed:
                if missed.heard is not None:
                    self.forgotten.hold(arrival.origin.node_id)
                self.offers.asked(arrival.origin, missed, arrival.age)
            case Offer() as offer:
                self.missing.offered(arrival.origin, offer)
            case other:
                raise IldmError(f"{type(other).__name__} is not for casting")

    def _queried(self, arrival: Arrival, topic_filters: list[str]) -> None:
        self.surveys.announced(arrival.keys, topic_filters)
        for topic_filter in topic_filters:
            segment = segment_of_filter(topic_filter)
            self.suspension.hinted(segment)
            self.retained.queried(arrival.origin, arrival.keys, topic_filter)
            member = self.retained.segments.get(segment)
            if member is not None:
                self.offers.resumed(member)

    def _take_tell(self, sender: Peer, payload: bytes) -> None:
        match decode_payload(payload):
            case Signal() as signal:
                self.suspension.signalled(signal, sender)
            case Ask() as ask:
                self.suspension.asked(sender, ask)
            case Statuses() as statuses:
                self.suspension.answered(statuses)
            case Report() as report:
                self.suspension.reported(sender, report)
            case Query(topic_filter):
                self.retained.asked(sender, topic_filter)
            case Answer() as answer:
                self.retained.answered(answer)
            case Offer() as offer:
                self.missing.offered(sender, offer)
            case Offered(question, number):
                self.missing.offered_all(sender, question, number)
            case Want() as want:
                self.offers.wanted(sender, want)
            case Late() as late:
                self.missing.arrived(sender, late)
            case Lost() as lost:
                self.forgotten.on_lost(sender, lost)
            case Heard() as heard:
                self.forgotten.on_heard(sender, heard)
            case other:
                raise IldmError(f"{type(other).__name__} is for casting")
