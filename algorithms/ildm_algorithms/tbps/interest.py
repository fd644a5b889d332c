"""What local clients want, and what a node does about it: keys, questions, SUBACKs that wait."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.pacing import Pace
from ildm_algorithms.tbps.advertising import Advertising
from ildm_algorithms.tbps.keys.encoding import segment_of_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ildm.api import NodeApi
    from ildm.mqtt import FilterTable
    from ildm_algorithms.tbps.keys.segments import Segments
    from ildm_algorithms.tbps.missed import Missing
    from ildm_algorithms.tbps.retained.queries import RetainedQueries

__all__ = ["FETCHED", "TRIAL", "TRIALS", "Interest"]

CHANGES = 10_000
"""Changes a second that are looked at."""
FETCHED = 100
"""Filters of one SUBSCRIBE that wait for retained messages; a client with more does not."""
TRIALS = 10_000
"""Filters of all clients that do, or have not been granted, at most."""
TRIAL = 10.0
"""Seconds until one that is not granted is taken back."""


class Interest:
    """The filters of local clients.

    Args:
        filters: changed here alone; other parts look there what clients subscribe to.
    """

    def __init__(
        self,
        api: NodeApi,
        filters: FilterTable[None],
        segments: Segments,
        retained: RetainedQueries,
        missing: Missing,
    ) -> None:
        self.api = api
        self.filters = filters
        self.segments = segments
        self.retained = retained
        self.missing = missing
        self.advertising = Advertising(api, missing.known, api.count)
        self._changes = Pace(api, CHANGES)
        self._trials: dict[str, object] = {}
        """Filters that a client is about to subscribe to."""

    def changed(self, changes: Mapping[str, int | None]) -> None:
        """Filters are subscribed to at a QoS, or (None) no more. The first changes are made at once,
        thousands in their turns, those of one filter in their order."""
        for topic_filter, qos in changes.items():
            if topic_filter.startswith("$"):
                continue  # what the standard reserves for the broker stays with it (4.7.2)
            # which of them have outlived a restart shows in when they come, not by when it is their turn
            since = None if qos is None else self.missing.interest_since(topic_filter)
            fresh = not self.missing.restores
            self._changes.add(partial(self._change, topic_filter, qos, since, fresh))

    def _change(
        self, topic_filter: str, qos: int | None, since: tuple[float, float] | None, fresh: bool
    ) -> bool:
        segment = segment_of_filter(topic_filter)
        if qos is None:
            if self.filters.remove(topic_filter, None):
                self.advertising.end(topic_filter)
                self.missing.unsubscribed(topic_filter)
                self.segments.unsubscribe(segment, topic_filter)
                self.retained.unsubscribed(topic_filter)
            return True
        if self.filters.add(topic_filter, None, qos):
            self.missing.subscribed(topic_filter, since)
        known = self.segments.get(segment)
        if known is None or topic_filter not in known.filters:
            self.advertising.begin(topic_filter, fresh)
        member = self.segments.subscribe(segment, topic_filter)
        if member.subscribed:
            self.retained.ask(member)
        return True

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Become a subscriber on trial, and give the local broker what others have retained."""
        new = [name for name in topic_filters if name not in self.api.local_interest]
        if not new or len(new) > FETCHED or self.retained.behind or len(self._trials) > TRIALS:
            return True
        self.changed(dict.fromkeys(new, 0))
        trial = object()
        self._trials.update(dict.fromkeys(new, trial))
        self.api.call_later(TRIAL, self._trial_over, new, trial)
        return self.when_known(new, done)

    def _trial_over(self, topic_filters: Sequence[str], trial: object) -> None:
        """The broker has granted them, or has refused them, or the client has gone before that."""
        ended = [name for name in topic_filters if self._trials.get(name) is trial]
        for name in ended:
            del self._trials[name]
        self.changed({name: None for name in ended if name not in self.api.local_interest})

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether all publishers, wherever they are, know of these filters of local clients."""
        if not self._changes.waiting:
            return self.advertising.wait(topic_filters, done)
        self._changes.add(partial(self._wait_known, topic_filters, done))
        return False

    def _wait_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        if self.advertising.wait(topic_filters, done):
            done()
        return False
