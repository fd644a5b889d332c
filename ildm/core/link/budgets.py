"""How many bytes a second links carry: what this node allows, and what a neighbour wants to get.

A neighbour says its wish in ``$ildm/budget``, before anything else on a connection and whenever it changes:
JSON ``{"rate": bytes a second, "burst": bytes}``. The rate 0 says that it has none. The wish holds for the
connection, and the smaller of it and of ``link.rate.out`` counts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ildm.config.rate import LEAST_BURST
from ildm.config.section import HIGHEST_RATE, LOWEST_RATE
from ildm.core.link.control import BUDGET, send_control
from ildm.core.transfer.budget import Budget
from ildm.mqtt import MalformedPacket

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts

FEATURE: Final = "budget"
SLACK: Final = 1.0
"""Seconds of the rate that may be under way beyond two round trips."""
UNKNOWN: Final = 1.0
"""Seconds that a round trip is taken for until it was measured."""
LARGEST: Final = 200
"""Bytes of a wish."""


class Limit(NamedTuple):
    """Bytes a second, and bytes at once."""

    rate: int
    burst: int


def encoded(wish: Limit | None) -> bytes:
    rate, burst = (0, 0) if wish is None else wish
    return b'{"rate":%d,"burst":%d}' % (rate, burst)


def decoded(payload: bytes) -> Limit | None:
    """A neighbour's wish; None: it has none.

    Raises:
        MalformedPacket: no node says that.
    """
    try:
        if len(payload) > LARGEST:
            raise ValueError
        said = json.loads(payload)
        rate, burst = said["rate"], said["burst"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise MalformedPacket("malformed message about a budget", clause="MQTT-4.13") from None
    if type(rate) is not int or type(burst) is not int:
        raise MalformedPacket("a budget that is no whole number of bytes", clause="MQTT-4.13")
    if rate == 0:
        return None
    if not (LOWEST_RATE <= rate <= HIGHEST_RATE and LEAST_BURST <= burst <= 60 * HIGHEST_RATE):
        raise MalformedPacket(f"a budget of {rate} bytes a second and {burst} at once", clause="MQTT-4.13")
    return Limit(rate, burst)


class Budgets:
    """Of all links of a node."""

    def __init__(self, parts: LinkParts) -> None:
        self.parts = parts
        self.driver = parts.driver

    def connected(self, link: NeighborLink) -> None:
        """There is a new connection. The last wish holds until the neighbour is ready for messages."""
        link.told_wish = None
        link.wish_is_new = False
        self.follow(link)

    def ready(self, link: NeighborLink) -> None:
        """A neighbour is ready for messages: it has said its wish by now, if it has one."""
        if link.wish is not None and not link.wish_is_new:
            link.wish = None
            self.follow(link)

    def came(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour says its wish. Raises: MalformedPacket."""
        link.wish = decoded(payload)
        link.wish_is_new = True
        self.follow(link)

    def follow(self, link: NeighborLink) -> None:
        """Let the rates hold that are configured and wished for now."""
        config = self.parts.config.rate_of(link.node_id, link.address if link.dialed else None)
        own = None if config.out is None else Limit(config.out, config.burst_of(config.out))
        wanted = None if config.in_ is None else Limit(config.in_, config.burst_of(config.in_))
        if wanted != link.told_wish and FEATURE in link.features and link.control is not None:
            link.told_wish = wanted
            send_control(link, BUDGET, encoded(wanted))
        given = [limit for limit in (own, link.wish) if limit is not None]
        self._limit(link, Limit(*map(min, zip(*given, strict=True))) if given else None)

    def _limit(self, link: NeighborLink, limit: Limit | None) -> None:
        budget = link.budget
        if limit is None:
            if budget is None:
                return
            link.budget = None
        elif budget is None:
            link.budget = Budget(self.driver.now(), *limit, len(link.senders))
        else:
            budget.limit(self.driver.now(), *limit, len(link.senders))
        if link.budget is not budget:
            for sender in link.senders:
                sender.wire.limit(link.budget)
        for sender in link.senders:
            if sender.wire.pacer is not None:
                self.driver.call_soon(sender.wire.pacer.look)
        for session in link.open_sessions:
            session.follow_budget()

    def measured(self, link: NeighborLink) -> None:
        """The round-trip time of a link may be another one, which bounds what is under way."""
        if link.budget is not None:
            for session in link.open_sessions:
                session.follow_window()


def window_bytes(link: NeighborLink, ratio: float) -> int:
    """What may be under way on a session of a link with a budget: more would wait in the network.

    Args:
        ratio: bytes before compression for each byte behind it.
    """
    assert link.budget is not None
    rtt = link.round_trip.value
    return max(1, int(link.budget.rate * ratio * (2 * (UNKNOWN if rtt is None else rtt) + SLACK)))
