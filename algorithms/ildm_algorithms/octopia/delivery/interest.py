"""Changes of what local clients want, made in shares: thousands at once do not hold up the clients."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ildm_algorithms.octopia.content.content import ContentFilter

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.delivery.local import LocalFilters
    from ildm_algorithms.octopia.delivery.missed import Missing
    from ildm_algorithms.octopia.delivery.retained import RetainedSync
    from ildm_algorithms.octopia.tables.holders import Holders
    from ildm_algorithms.octopia.tables.replicas import Replicas

__all__ = ["CHANGES", "Interest"]

CHANGES = 20
"""Changes that are made at once; clients at work meanwhile wait for them."""


class Interest:
    """Makes content filters of the MQTT filters of local clients, and tells all parts that need to know."""

    def __init__(
        self,
        api: NodeApi,
        local: LocalFilters,
        holders: Holders,
        replicas: Replicas,
        missing: Missing,
        retained: RetainedSync,
    ) -> None:
        self.api = api
        self.local = local
        self.holders = holders
        self.replicas = replicas
        self.missing = missing
        self.retained = retained
        self._changes: dict[str, int | None] = {}

    def __len__(self) -> int:
        """Changes that wait for their turn."""
        return len(self._changes)

    def change(self, changes: Mapping[str, int | None]) -> None:
        """Local clients want these filters with this QoS, or (None) do not want them any more."""
        waiting = bool(self._changes)
        for topic_filter, qos in changes.items():
            if not topic_filter.startswith("$"):  # what the standard reserves for the broker stays with it
                self._changes.pop(topic_filter, None)
                self._changes[topic_filter] = qos
        if not waiting:
            self._change_some()

    def _change_some(self) -> None:
        some = list(islice(self._changes.items(), CHANGES))
        changed: dict[ContentFilter, int | None] = {}
        for topic_filter, qos in some:
            del self._changes[topic_filter]
            change = self.local.change(topic_filter, qos)
            if qos is None:
                self.holders.unsubscribed(topic_filter)
            elif self.local.is_below_root(topic_filter):
                self.retained.ask(topic_filter)
            if change is not None:
                changed[change.filter] = change.qos
        added = {content: qos for content, qos in changed.items() if qos is not None}
        removed = [content for content, qos in changed.items() if qos is None]
        for content in added:
            self.missing.subscribed(content)
        for content in removed:
            self.missing.unsubscribed(content)
        if changed:
            self.replicas.change(added, removed)
        if self._changes:
            self.api.call_later(0.0, self._change_some)
