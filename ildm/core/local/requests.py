"""What a client has asked for and the broker has not answered, and how much of it a node keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ildm.mqtt import OverLimit, ProtocolViolation, ReasonCode, Subscription

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.local.record import ClientRecord

LEVEL_BYTES = 260
"""What a level of a filter takes at most in the tables that route by it."""
FILTER_BYTES = 500
"""What any filter takes besides."""
REQUEST_BYTES = 250
"""What a filter of a SUBSCRIBE or UNSUBSCRIBE takes until it is answered, besides its bytes."""

ALL_FILTERS = "limits.all_subscription_bytes"


def kept_bytes(topic_filter: str) -> int:
    """What a client's filter takes in memory, about: the filter itself, and its part in routing."""
    return FILTER_BYTES + len(topic_filter) + LEVEL_BYTES * (topic_filter.count("/") + 1)


class FilterBudget:
    """What the filters of all clients that other sites are told of may take."""

    def __init__(self, limits: LimitsConfig) -> None:
        self.limits = limits
        self.bytes = 0

    def refuses(self, record: ClientRecord, topic_filter: str) -> str | None:
        """The limit that a further filter of a client would exceed, by its key; None if it may be kept."""
        limits = self.limits
        if topic_filter.count("/") >= limits.topic_levels:
            return "limits.topic_levels"
        if len(record.filters) >= limits.subscriptions_per_client:
            return "limits.subscriptions_per_client"
        size = kept_bytes(topic_filter)
        if record.filter_bytes + size > limits.subscription_bytes:
            return "limits.subscription_bytes"
        if self.bytes + size > limits.all_subscription_bytes:
            return ALL_FILTERS
        return None

    def change(self, record: ClientRecord, topic_filter: str, sign: int) -> None:
        """A filter is kept from now on (1), or no more (-1)."""
        size = sign * kept_bytes(topic_filter)
        record.filter_bytes += size
        self.bytes += size

    def check(self, records: Iterable[ClientRecord]) -> None:
        """Count all again that is counted as it changes, with the records of all clients.

        Raises:
            AssertionError: it was counted wrong.
        """
        total = 0
        for record in records:
            size = sum(map(kept_bytes, record.filters))
            assert size == record.filter_bytes, f"filters of {size} bytes count {record.filter_bytes}"
            total += size
        assert total == self.bytes, f"filters of {total} bytes of all clients count {self.bytes}"


class Rejections(NamedTuple):
    """The entries of a SUBSCRIBE that filters have rejected, of which the broker does not know."""

    codes: Sequence[int | None]
    """For each entry its code in SUBACK; None: the broker's."""
    text: str
    """Reason string; empty: none."""

    def merged(self, codes: Sequence[int]) -> list[int]:
        """One code for each entry, where the broker has given ``codes``; it may give too few, or too many."""
        given = iter(codes)
        unanswered = int(ReasonCode.UNSPECIFIED_ERROR)
        return [next(given, unanswered) if code is None else code for code in self.codes]


class Requests:
    """SUBSCRIBE and UNSUBSCRIBE of one connection not yet acknowledged, by packet identifier."""

    __slots__ = ("_limit", "_rejections", "_requests", "bytes")

    def __init__(self, limit: int) -> None:
        self._requests: dict[int, tuple[list[Subscription] | list[str], int]] = {}
        self._rejections: dict[int, Rejections] | None = None
        self._limit = limit
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(
        self,
        packet_id: int,
        request: list[Subscription] | list[str],
        size: int,
        rejections: Rejections | None = None,
    ) -> None:
        """A request, whose packet has ``size`` bytes, goes to the broker; without what was rejected of it.

        Raises:
            ProtocolViolation: all packet identifiers are in use.
            OverLimit: more is waiting than a client may subscribe to at all.
        """
        if len(self._requests) >= 65535:
            raise ProtocolViolation("every packet identifier is in use", clause="MQTT-2.2.1-3")
        self.take(packet_id)
        size += REQUEST_BYTES * len(request)
        if self.bytes + size > self._limit:
            raise OverLimit("too much subscribed to that is not acknowledged", clause="MQTT-4.13.2")
        self.bytes += size
        self._requests[packet_id] = request, size
        if rejections is not None:
            if self._rejections is None:
                self._rejections = {}
            self._rejections[packet_id] = rejections

    def rejections(self, packet_id: int) -> Rejections | None:
        """What belongs into the answer to a request besides the broker's; to be asked before :meth:`take`."""
        return None if self._rejections is None else self._rejections.get(packet_id)

    def take(self, packet_id: int) -> list[Subscription] | list[str] | None:
        """What is answered now; None if there was no such request."""
        found = self._requests.pop(packet_id, None)
        if found is None:
            return None
        self.bytes -= found[1]
        if self._rejections is not None:
            self._rejections.pop(packet_id, None)
        return found[0]

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(size for _, size in self._requests.values())
        assert size == self.bytes, f"requests of {size} bytes count {self.bytes}"


def granted_filters(subscriptions: list[Subscription], reason_codes: list[int]) -> dict[str, int]:
    """Filters of a SUBSCRIBE which its SUBACK grants, with the QoS granted."""
    return {
        wanted.topic_filter: code
        for wanted, code in zip(subscriptions, reason_codes, strict=False)
        if code <= 2
    }
