"""Options of OctopiA: the grid, which is the same at all nodes, what a node does, and all bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from ildm.mqtt import MqttError, validate_topic_filter
from ildm_algorithms.octopia.content.content import ANYTHING, ContentError, ContentFilter, Expression, parse
from ildm_algorithms.octopia.delivery.local import ContentConfig
from ildm_algorithms.octopia.grid.scot import Grid, GridError, Place

__all__ = ["OctopiaConfig"]


def _topic_filter(text: str) -> str:
    try:
        validate_topic_filter(text)
    except MqttError as error:
        raise ValueError(str(error)) from error
    if text.startswith("$"):
        raise ValueError("topics that begin with $ do not cross")
    return text


TopicFilter = Annotated[str, AfterValidator(_topic_filter)]


class Advertised(BaseModel):
    """An advertisement in two parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: TopicFilter
    where: str = ""
    """An expression; empty: every message on the topic."""


class OctopiaConfig(ContentConfig):
    """Options of the algorithm ``octopia``; times in seconds."""

    regions: list[str] = Field(min_length=1)
    """Edges ``a-b`` of the tree of regions that every cluster has; a single region stands for itself."""
    clusters: list[str] = Field(min_length=1)
    """Names of the clusters."""
    members: dict[str, str] = Field(min_length=1)
    """Where each node is: its id, and ``region/cluster``."""
    routing: Literal["spr", "idr"] = "spr"
    """``spr``: to each cluster over the link with its node of this region. ``idr``: around congested links
    over those of other regions, which breaks the order of a publisher's messages."""
    qos: Literal[0, 1, 2] = 2
    """Highest QoS between nodes. From 1 on a message is kept until all have acknowledged it."""

    advertise: list[Advertised | TopicFilter] = Field(default_factory=list)
    """What this node's clients publish. Other topics are advertised when they are first published to."""
    max_filters: int = Field(default=200_000, ge=1)
    """Filters, or advertisements, of one other node that are held; one with more counts as wanting all."""
    max_topics: int = Field(default=10_000, ge=1)
    """Topics advertised by themselves; the least recently used makes room."""
    publisher_idle: float = Field(default=3_600.0, gt=0)
    """A topic that nobody has published to for so long is advertised no more."""
    summary: int = Field(default=100, ge=0)
    """Filters that a cluster tells of an advertisement, so that only what matches crosses; with more of them
    all of it does. 0: always all of it, as in the paper."""

    tau: float = Field(default=10.0, gt=0)
    """IDR: a link is congested above that: ``queued * (1 + entered) / (1 + left)`` (Eq. 3)."""
    window: float = Field(default=0.05, gt=0)
    """Seconds in which what entered and left is counted."""

    hello_interval: float = Field(default=5.0, gt=0)
    """Between two HELLO to each node of the cluster and the region."""
    dead_after: float = Field(default=15.0, gt=0)
    """A node from which nothing was received for so long is taken for dead."""
    ack_timeout: float = Field(default=1.0, gt=0)
    """Until what is not acknowledged is sent again, at first; then what the node takes, on average."""
    timeout_min: float = Field(default=0.25, gt=0)
    timeout_max: float = Field(default=8.0, gt=0)
    cast_deadline: float = Field(default=30.0, gt=0)
    """A message that not all have acknowledged by then is offered to those who may have missed it."""
    pending_bytes: int = Field(default=128 * 1024 * 1024, ge=0)
    """Of messages that are not acknowledged; more are sent once, and offered to all they are for."""
    absence_period: float = Field(
        default=604_800.0, gt=0, validation_alias=AliasChoices("absence_period", "interest_period")
    )
    """A site that was away for less misses no message of QoS 1 or 2: for so long their nodes keep them. Where
    it is not set, ``link.expiry`` says it. Its former name is taken, too."""
    kept_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Of those; the oldest make room. A site that was away counts those that are gone (``missed``)."""
    offered_messages: int = Field(default=200_000, ge=0)
    """Numbers of messages offered to sites at once, and to be fetched from them; as many of each."""
    seen_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """For what has come, so that nothing is published twice in the local broker."""
    retained_answers: int = Field(default=10_000, ge=0)
    """Retained messages that a new content filter gets at most."""
    query_rate: float = Field(default=200.0, gt=0)
    """New content filters a second whose retained messages are looked for, after the first 16."""

    _grid: Grid = PrivateAttr()
    _advertised: tuple[ContentFilter, ...] = PrivateAttr()

    @model_validator(mode="after")
    def _made(self) -> Self:
        try:
            places = {node_id: Place.parse(text) for node_id, text in self.members.items()}
            self._grid = Grid(self.regions, self.clusters, places)
            names = self.names()
            self._advertised = tuple(self._content(one, names) for one in self.advertise)
        except (GridError, ContentError) as error:
            raise ValueError(str(error)) from error
        return self

    def _content(self, one: Advertised | str, names: Mapping[str, Expression]) -> ContentFilter:
        if isinstance(one, str):
            return ContentFilter(one)
        expression = parse(one.where, names, self.limits) if one.where else ANYTHING
        return ContentFilter(one.topic, expression)

    @property
    def grid(self) -> Grid:
        """Of all nodes."""
        return self._grid

    @property
    def advertised(self) -> tuple[ContentFilter, ...]:
        """What ``advertise`` says."""
        return self._advertised
