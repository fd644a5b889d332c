"""What belongs to a client identifier, whether its client is connected or not."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

from ildm.mqtt import split_shared

if TYPE_CHECKING:
    from ildm.api import Stamp, Timer
    from ildm.core.local.rules import ClientRules
    from ildm.mqtt import Connect, Publish, Version

UNKNOWN = "$share//#"
"""Stands among a session's filters for those that the node does not know: other sites send it everything. No
client can subscribe to it, because the name of a share has a character at least (MQTT-4.8.2-1)."""


OLDER = ""
"""Key of the record that stands for sessions which the broker had before the node, while their clients are
away. No client has an empty identifier: its broker or the node gives it one."""


def interest_of(topic_filter: str) -> str | None:
    """The filter other sites must know of: without the share; None for ``$``-topics, which never cross."""
    if topic_filter == UNKNOWN:
        return "#"
    plain = split_shared(topic_filter)[1]
    return None if plain.startswith("$") else plain


class Client(Protocol):
    """A client's session, as what outlives it sees it."""

    id: int
    client_id: str
    peer: str
    version: Version
    connect: Connect | None
    taken_over_at: Stamp | None
    """Of its will, where another connection has taken the session over: what that one sets is newer."""

    def taken_over(self) -> None:
        """Another connection has taken the session over."""

    def follow(self, rules: ClientRules | None) -> None:
        """From now on these rules say what of its messages may cross."""

    def may_send(self, topic: str) -> bool:
        """Whether they let messages on a topic cross."""

    def publisher_index(self) -> int:
        """Its turn in the round-robin over sessions, kept for the order of its messages."""

    def unnamed(self, started: int) -> str:
        """The key of its record if nobody has given it a name; ``started``: when this process did, in ms."""

    def say_goodbye(self) -> None:
        """A DISCONNECT that waits goes to the broker now: something is to follow it."""


class ClientRecord:
    """What belongs to a client identifier rather than to a connection (MQTT's session state)."""

    __slots__ = (
        "expires_at",
        "expiry",
        "expiry_timer",
        "filter_bytes",
        "filters",
        "key",
        "qos2",
        "saved",
        "session",
        "told_over_limit",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.filters: dict[str, int] = {}
        self.filter_bytes = 0
        """What the filters take, about."""
        self.told_over_limit = False
        """The log has said that filters of this client stay at its broker."""
        self.qos2: dict[int, int | None] = {}
        """QoS 2 messages transferred and not yet released (MQTT-4.3.3-2): identifiers, and a digest."""
        self.session: Client | None = None
        self.saved = False
        """The store has rows of it: it is persistent."""
        self.expiry = 0
        """Session expiry interval in seconds; 0 ends the session with the connection."""
        self.expires_at: float | None = None
        self.expiry_timer: Timer | None = None

    @property
    def is_unknown(self) -> bool:
        """The broker may hold filters of the session that the node does not know."""
        return UNKNOWN in self.filters

    def has_transferred(self, message: Publish, topic: str) -> bool:
        """Whether a QoS 2 message is one that came before and was not released.

        Not by DUP alone: paho sends one again without it when it has tried twice to connect.
        """
        assert message.packet_id is not None
        if message.packet_id not in self.qos2:
            return False
        digest = self.qos2[message.packet_id]
        return message.dup if digest is None else digest == digest_of(topic, message.payload)

    def take_filters(self) -> ClientRecord:
        """A record of nothing but the filters, which this one has no more."""
        left = ClientRecord(self.key)
        left.filters, self.filters = self.filters, {}
        left.filter_bytes, self.filter_bytes = self.filter_bytes, 0
        left.saved = self.saved
        return left


def digest_of(topic: str, payload: bytes) -> int:
    """What tells a message from another one under the same packet identifier: CRC-32."""
    return zlib.crc32(payload, zlib.crc32(topic.encode(errors="surrogatepass")))
