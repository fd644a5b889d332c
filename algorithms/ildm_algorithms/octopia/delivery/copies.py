"""Copies of a message for the local broker: one for each topic under which local filters want it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ildm.api import STAMP_PROPERTY
from ildm.mqtt import Property, Publish
from ildm_algorithms.exchange.repeated import inject_known

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.delivery.carried import Carried, Reader
    from ildm_algorithms.octopia.delivery.local import LocalFilters

__all__ = ["LocalCopies"]


class LocalCopies:
    """Injects copies into the local broker."""

    def __init__(
        self, api: NodeApi, local: LocalFilters, reader: Reader, count: Callable[[str], None]
    ) -> None:
        self.api = api
        self.local = local
        self.reader = reader
        self.count = count

    def published(self, carried: Carried) -> None:
        """A local client has published; the broker itself serves those who want the topic."""
        self._inject_all(self._copies(carried, include_plain=False))

    def arrived(self, carried: Carried, identity: tuple[str, int]) -> None:
        """A message has come from another node; a retained one itself is injected, too."""
        message = carried.publish
        copies = self._copies(carried, include_plain=not message.retain)
        if message.retain:
            copies.append(message)
        self._inject_all(copies, identity)

    def retained(self, message: Publish) -> None:
        """A retained message has come from a node that had a newer one."""
        self.count("injected")
        inject_known(self.api, message)
        if message.payload:
            attributes = partial(self.reader, message)
            for topic, qos in self.local.copies(message, attributes, include_plain=False):
                self._inject(_live(message, topic, qos))

    def held(self, topic_filter: str, message: Publish) -> bool:
        """Give a retained message to a content filter that is new, if it matches; whether it does."""
        found = self.local.copy(topic_filter, message, partial(self.reader, message))
        if found is not None:
            self._inject(_live(message, *found))
        return found is not None

    def _copies(self, carried: Carried, include_plain: bool) -> list[Publish]:
        return [
            _live(carried.publish, topic, qos)
            for topic, qos in self.local.copies(carried.publish, carried.attributes, include_plain)
        ]

    def _inject_all(self, copies: list[Publish], identity: tuple[str, int] | None = None) -> None:
        copies.sort(key=lambda copy: copy.qos > 0)
        for copy in copies:
            # the last one tells that all have been
            self._inject(copy, identity if copy is copies[-1] and copy.qos else None)

    def _inject(self, message: Publish, identity: tuple[str, int] | None = None) -> None:
        self.count("injected")
        self.api.inject(message, identity)


def _live(message: Publish, topic: str, qos: int) -> Publish:
    """An ordinary message for live subscribers."""
    properties = dict(message.properties)
    users = [pair for pair in properties.pop(Property.USER_PROPERTY, ()) if pair[0] != STAMP_PROPERTY]
    if users:
        properties[Property.USER_PROPERTY] = users
    return replace(
        message, topic=topic, qos=qos, retain=False, packet_id=1 if qos else None, properties=properties
    )
