"""Options that all topic-based algorithms have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ildm.api import PluginConfig
from ildm_algorithms.overlay.config import OverlayConfig

__all__ = ["Place", "TbpsConfig"]

Place = Annotated[str, Field(min_length=1)]
"""Name of a region or site."""


class TbpsConfig(PluginConfig):
    """How a node takes part in topics, and the bounds of that; times in seconds."""

    qos: Literal[0, 1, 2] = 2
    """Highest QoS between nodes. From 1 on a message is kept until every subtree has acknowledged it."""
    publisher_idle: float = Field(default=300.0, gt=0)
    """A node leaves a topic as publisher when its clients have not published to it for so long."""
    max_topics: int = Field(default=1_000, ge=0)
    """Topics a node publishes to with keys of their own; others go through aggregates."""
    siblings: int = Field(default=16, ge=0)
    """Topics with keys of their own below one prefix; further ones go through an aggregate of the prefix."""
    max_aggregates: int = Field(default=64, ge=1)
    """Prefixes a node publishes below through one key each; more become one of a shorter prefix."""
    max_interest: int = Field(default=10_000, ge=0)
    """Segments with subscribers that an aggregate knows; if there are more, it sends to all."""
    hot: int = Field(default=256, ge=0)
    """A topic gets keys of its own when an aggregate has sent so many messages to subscribers of it.
    0: never."""
    hot_topics: int = Field(default=10_000, ge=0)
    """Topics whose messages are counted for that."""
    told_topics: int = Field(default=250_000, ge=0)
    """Topics remembered for which all that may hold an older retained message know of the one from here."""
    key_wait: float = Field(default=3.0, ge=0)
    """Messages wait for the keys of their topics at most so long, then they go out without."""
    waiting_messages: int = Field(default=10_000, ge=0)
    """Messages that wait so; further ones go out at once."""
    waiting_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    interest_period: float = Field(default=300.0, gt=0)
    """After graphs have become one, a site asks once more for all messages of so long. Of older ones it asks
    for those that it has not been offered. The pauses between such questions grow to a fifth of it."""
    absence_period: float = Field(default=604_800.0, gt=0)
    """A site that was away for less misses no message of QoS 1 or 2: for so long publishers keep them. Where
    it is not set, ``link.expiry`` says it."""
    kept_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Of those; the oldest make room. What nobody is known to want gets an eighth of it, not more. A
    site that comes back counts those that are gone by then (``missed``)."""
    offered_messages: int = Field(default=300_000, ge=0)
    """Numbers of messages that sites may have missed: to be offered to those who ask, to be offered to all of
    a segment, and to be fetched here; as many of each. One node takes no more of them than it leaves to
    others: half, if it is the first."""
    seen_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """For what has come, so that nothing is published twice in the local broker: at best 2 bytes a message
    (one origin, all its messages), at worst 512."""
    remembered_filters: int = Field(default=10_000, ge=0)
    """Local filters of which it is remembered through a crash since when they are subscribed to, 16 bytes
    each in the state of the node (``limits.plugin_state_bytes``)."""
    remembered_origins: int = Field(default=1_000, ge=0)
    """Nodes of which the number of the last message is remembered through a crash; about 50 bytes each."""
    order_wait: float = Field(default=0.2, ge=0)
    """A message that has overtaken an earlier one of its publisher and topic waits for that so long at most.
    0: not at all."""
    order_bytes: int = Field(default=4 * 1024 * 1024, ge=0)
    """Of messages that wait so; more do not."""
    order_streams: int = Field(default=65_536, ge=1)
    """Publishers' topics whose order is kept, of local publishers and of others."""
    wished_topics: int = Field(default=10_000, ge=1)
    """Topics of messages that have come of which it is remembered whether local clients want them."""
    status_interval: float = Field(default=15.0, gt=0)
    """How often, on average, publishers make sure of being suspended or not."""
    probe_interval: float = Field(default=30.0, gt=0)
    """How often configured neighbours are asked whether they are in the same overlay."""
    retained_interval: float = Field(default=600.0, ge=0)
    """How often, on average, a node repeats the retained messages that have entered at it, for those who
    have missed them. 0: never."""
    retained_answers: int = Field(default=10_000, ge=1)
    """Retained messages a node sends in answer to one query at most."""
    joins: int = Field(default=64, ge=1)
    """Keys that enter or leave the overlay at once; others wait. Keys of subscribers, those of publishers and
    those that leave take turns."""
    join_rate: float = Field(default=500.0, gt=0)
    """Keys a second that begin to, after the first 16: local clients do not wait for them."""
    query_rate: float = Field(default=200.0, gt=0)
    """Searches a second for the retained messages of new filters, after the first 16."""
    locality: tuple[Place, ...] = ()
    """Path of sites from the largest to the smallest: nodes close to each other are so in the graph."""
    overlay: OverlayConfig = Field(default_factory=OverlayConfig)
