"""Classes of messages on links (:mod:`ildm.core.transfer.classes`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ildm.config.errors import ConfigError
from ildm.config.section import AS_PART, Seconds, Section
from ildm.config.topics import check_crossing, check_filters
from ildm.core.transfer.classes import HIGHEST_PRIORITY, LOWEST_PRIORITY, MOST

if TYPE_CHECKING:
    from ildm.config.link import LinkConfig

MOST_FILTERS = 256
"""Filters of all classes of a link."""


class LinkClass(Section):
    """How messages on some topics wait for a link."""

    topics: list[str]
    """Topic filters, by the names at this site."""
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    """Of what waits the highest goes first; null: as the algorithm says, else 0."""
    deadline: Seconds | None = None
    """What leaves after so long a wait is counted."""
    expire: Seconds | None = None
    """What has waited for longer is let go when its turn comes, and counted: messages of QoS 0 alone."""
    expire_acknowledged: bool = False
    """``expire`` holds for messages of QoS 1 and 2, too."""
    conflate: Literal["last"] | None = None
    """``last``: of each topic only the newest message waits, of QoS 0 and retained ones alone."""
    conflate_acknowledged: bool = False
    """``conflate`` holds for all messages of QoS 1 and 2, too."""

    backlog: Literal["in_order", "after_live"] = "in_order"
    """``after_live``: what waited when the link came up goes after what is newer, also of one publisher and
    topic, at ``link.backlog``."""

    @field_validator("topics")
    @classmethod
    def _filters(cls, filters: list[str]) -> list[str]:
        check_filters(filters)
        check_crossing(filters)
        return filters

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.expire_acknowledged and self.expire is None:
            raise ValueError("expire_acknowledged: it is without effect where expire is null")
        if self.conflate_acknowledged and self.conflate is None:
            raise ValueError("conflate_acknowledged: it is without effect where conflate is null")
        if self.backlog == "after_live" and self.conflate is not None:
            raise ValueError(
                "backlog: after_live would send the older value last, and conflate wants the newest"
            )
        return self


def _bounded(classes: list[LinkClass]) -> list[LinkClass]:
    if len(classes) > MOST:
        raise ValueError(f"{len(classes)} classes, and at most {MOST} may be given")
    filters = sum(len(each.topics) for each in classes)
    if filters > MOST_FILTERS:
        raise ValueError(f"{filters} topic filters, and at most {MOST_FILTERS} may be given")
    return classes


BacklogPart = Annotated[float, AS_PART, Field(ge=0.01, le=0.9)]
LinkClassList = Annotated[list[LinkClass], AfterValidator(_bounded)]


def refuse_classes(link: LinkConfig, algorithm: str) -> None:
    """For an algorithm whose nodes send to each other over links made on demand.

    Raises:
        ConfigError: there are classes for links.
    """
    own = [(f"link.neighbors.{index}.classes", each.classes) for index, each in enumerate(link.neighbors)]
    for key, given in (("link.classes", link.classes), *own):
        if given:
            raise ConfigError(
                f"{key}: classes are for trees of links (pf, sf). What crosses in the overlay of algorithm "
                f"{algorithm} is its own data, which has no topic on the link"
            )
