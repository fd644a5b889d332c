"""Section ``limits``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ildm.config.section import IN_BYTES, IN_SECONDS, Bytes, Seconds, Section
from ildm.config.transports import Network
from ildm.mqtt import PacketLimits

CENTURY = 3_155_760_000.0


class LimitsConfig(Section):
    """Bounds of what local clients can make the node hold."""

    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """Connections; further ones are closed."""
    packet_size: Bytes = 16 << 20
    """Of the largest packet from a client."""
    connect_timeout: Seconds = 10.0
    """Time from the TCP connection until CONNECT is complete."""
    per_address: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Connections of clients from one address, or network of 64 bits of IPv6; so many may come at once."""
    connect_rate: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    """Connections a second from there, after those at once."""
    handshakes: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Those among them that have not finished TLS."""
    auth_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """CONNECTs from there, within ``auth_block``, that may be refused for who sends them: user, password, not
    authorized, banned. Then nobody is taken from there for as long. 0: any number."""
    auth_block: Seconds = 60.0
    """How long."""
    exempt: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Networks that these five are not for."""
    write_buffer: Annotated[int, IN_BYTES, Field(ge=4096, le=1 << 30)] = 256 << 10
    """Bytes waiting towards one peer before reading from the paired session pauses."""
    partial_bytes: Annotated[int, IN_BYTES, Field(ge=1024, le=1 << 40)] = 128 << 20
    """Large packets of all clients that are not complete yet and needed whole, such as those that cross."""
    properties: Annotated[int, Field(ge=1, le=2000)] = 1000
    """User properties of a packet; a message with more is relayed but does not cross."""
    properties_bytes: Annotated[int, IN_BYTES, Field(ge=1024, le=1 << 20)] = 64 << 10
    """Bytes of all properties of a packet."""
    filters_per_packet: Annotated[int, Field(ge=1, le=2000)] = 2000
    """Topic filters of a SUBSCRIBE or UNSUBSCRIBE; with more the client is closed."""
    topic_levels: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Levels of a filter that other sites are told of, or that is taken from them."""
    subscriptions_per_client: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """What is subscribed to beyond this and the next two bounds stays at the client's own broker."""
    subscription_bytes: Annotated[int, IN_BYTES, Field(ge=1024, le=1 << 40)] = 64 << 20
    """What the filters of one client may take in memory, about 800 bytes for one of one level."""
    all_subscription_bytes: Annotated[int, IN_BYTES, Field(ge=1024, le=1 << 40)] = 512 << 20
    """The same for all clients together."""
    persistent_sessions: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    """Sessions kept while their clients are away."""
    retained_messages: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Topics whose newest retained message is remembered to keep the sites alike."""
    retained_bytes: Bytes = 64 << 20
    """Bytes of the same."""
    retained_deletions: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Topics of which a deletion is remembered, apart from the values."""
    retained_deletion_bytes: Bytes = 64 << 20
    """Bytes of the same. A site away for longer than ``link.expiry`` may bring back what was deleted."""
    clock_skew: Annotated[
        float, IN_SECONDS, Field(gt=0, le=CENTURY, json_schema_extra={"unit": "seconds"})
    ] = CENTURY
    """Retained messages stamped further in the future are refused: a site whose clock is behind by more than
    this takes none of others that are newer."""
    route_cache: Annotated[int, Field(ge=1, le=10_000_000)] = 65_536
    """Topics per source whose route is remembered."""
    read_wait: Annotated[float, IN_SECONDS, Field(ge=0, le=0.01)] = 0.0003
    """Under load what has come waits for so long at most, so that more is read at once; 0: nothing waits."""
    hook_warn: Seconds = 0.05
    """A plugin's hook that takes longer, while which nothing else runs, is logged and counted."""
    decision_timeout: Seconds = 5.0
    """How long a filter may defer a decision; what the client sends meanwhile waits."""
    plugin_timers: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Timers of one plugin that wait to be called."""
    plugin_sessions: Annotated[int, Field(ge=1, le=10_000)] = 100
    """TCP connections one plugin has or makes."""
    plugin_offloads: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Pieces of work one plugin has handed over that are not done."""
    plugin_names: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Counters and gauges of one plugin."""
    plugin_log_rate: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Lines of the log a second that one plugin may write, and at once."""
    plugin_state_bytes: Bytes = 1 << 20
    """What one plugin may keep for the next start; an entry counts 300 bytes more than its key and value."""
    unsaved_bytes: Bytes = 64 << 20
    """State that waits to be written while the disk is slow or full."""
    will_grace: Annotated[float, IN_SECONDS, Field(ge=0, le=86400)] = 5.0
    """How long after a restart the wills of clients that have not come back are sent to other sites."""
    will_bytes: Bytes = 64 << 20
    """Wills of connected clients that are saved for that; a client whose will finds no room is served all the
    same."""
    unanswered_messages: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """A client's QoS 1 and 2 messages that wait for the broker's acknowledgement before reading from it
    pauses."""
    unanswered_bytes: Bytes = 8 << 20
    """Bytes of the same."""
    drain_rate: Annotated[float, Field(gt=0, le=1_000_000)] = 500.0
    """Clients a second that are sent away at the end, so that not all come to their next node at once."""
    drain_timeout: Seconds = 10.0
    """At the end, once all clients are sent away, until queues are given up."""

    @property
    def packet(self) -> PacketLimits:
        """What a packet of a client may hold."""
        return PacketLimits(self.properties, self.properties_bytes, self.filters_per_packet)
