"""Rules for what crosses links (:mod:`ildm.core.transfer.rules`), leaves a site, and what clients publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from ildm.address import Address, parse_address
from ildm.config.classes import BacklogPart, LinkClassList
from ildm.config.errors import ConfigError
from ildm.config.rate import RateConfig
from ildm.config.section import Section
from ildm.config.topics import check_crossing, check_filters
from ildm.config.transports import Fingerprint, LinkAddress
from ildm.core.transfer.rules import MAX_FILTERS, MAX_PREFIX, MAX_RULES, flaw
from ildm.mqtt import MqttError, validate_topic_name

if TYPE_CHECKING:
    from ildm.config.link import LinkConfig


class FilterRule(Section):
    """Filters that are either allowed or denied."""

    allow: list[str] | None = None
    """Topic filters that may cross; give these or ``deny``."""
    deny: list[str] | None = None
    """Topic filters that may not."""

    @field_validator("allow", "deny")
    @classmethod
    def _filters(cls, filters: list[str] | None) -> list[str] | None:
        if filters is not None:
            check_filters(filters, cls.example)
        return filters

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.allow is None) is (self.deny is None):
            raise ValueError("give either allow or deny")
        return self

    @classmethod
    def example(cls, topic_filter: str) -> str:
        """What a filter as configured may become, to be judged in its place."""
        return topic_filter

    @property
    def allows(self) -> bool:
        return self.allow is not None

    @property
    def filters(self) -> list[str]:
        return self.allow or self.deny or []


class CrossingRule(FilterRule):
    """Whether messages on some topics may cross, and in which direction."""

    direction: Literal["in", "out", "both"] = "both"
    """``out``: from this node."""
    qos: Literal[0, 1, 2] = 2
    """The most with which they cross, retained ones, too."""

    @field_validator("allow", "deny")
    @classmethod
    def _crossing(cls, filters: list[str] | None) -> list[str] | None:
        check_crossing(filters or ())
        return filters

    @model_validator(mode="after")
    def _denied_without_qos(self) -> Self:
        if self.deny is not None and "qos" in self.model_fields_set:
            raise ValueError("what is denied has no qos")
        if self.deny is not None and "compress" in self.model_fields_set:
            raise ValueError("what is denied is not compressed")
        return self


class SiteRule(CrossingRule):
    """Whether messages on some topics may leave the site, or enter it."""

    @property
    def local(self) -> str:
        """A topic has one name at all sites of an overlay."""
        return ""

    @property
    def remote(self) -> str:
        return ""

    @property
    def compress(self) -> bool:
        return True


class TopicRule(CrossingRule):
    """Whether messages on some topics may cross a link, in which direction, and under which name."""

    allow: list[str] | None = None
    """Topic filters: what follows ``local`` here, and ``remote`` at the neighbour."""
    local: str = ""
    """How the topics begin at this site: whole levels, with the ``/`` at the end."""
    remote: str = ""
    """How they begin at the neighbour."""
    compress: bool = True
    """false: a link that is compressed carries these messages, and what goes with them, as they are."""

    @field_validator("local", "remote")
    @classmethod
    def _prefix(cls, prefix: str) -> str:
        if not prefix:
            return prefix
        if not prefix.endswith("/"):
            raise ValueError(f"{prefix!r}: a prefix is whole levels, with a / at the end")
        if prefix.startswith("$"):
            raise ValueError(f"{prefix!r}: topics that begin with $ do not cross")
        if len(prefix.encode()) > MAX_PREFIX:
            raise ValueError(f"{prefix[:40]!r}...: longer than {MAX_PREFIX} bytes")
        try:
            validate_topic_name(prefix)
        except MqttError as error:
            raise ValueError(f"{prefix!r} cannot begin a topic: {error}") from None
        return prefix


AnyRule = TypeVar("AnyRule", SiteRule, TopicRule)


def _sound(rules: list[AnyRule]) -> list[AnyRule]:
    if sum(len(rule.filters) for rule in rules) > MAX_FILTERS:
        raise ValueError(f"more than {MAX_FILTERS} filters")
    size = sum(len((rule.local + rule.remote + f).encode()) for rule in rules for f in rule.filters)
    if size > MAX_RULES:
        raise ValueError(f"more than {MAX_RULES} bytes of filters and prefixes")
    found = flaw(rules)
    if found is not None:
        raise ValueError(found)
    return rules


SiteRules = Annotated[list[SiteRule], AfterValidator(_sound)]
TopicRules = Annotated[list[TopicRule], AfterValidator(_sound)]


NodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class NeighborConfig(Section):
    """A neighbour that is dialed. Its address alone stands for `{url: ADDRESS}`."""

    url: LinkAddress
    """`HOST:PORT` or `mqtts://HOST:PORT`."""
    id: NodeId | None = None
    """Its `node_id`: another node that answers there is refused."""
    pin: Fingerprint | None = None
    """SHA-256 of its certificate, whichever side has dialed, in place of the name that stands in it."""
    rules: TopicRules | None = None
    """What may cross the link with it, in place of `link.rules`, whichever side has dialed."""
    classes: LinkClassList | None = None
    """How messages wait for it, in place of `link.classes`, whichever side has dialed."""
    rate: RateConfig | None = None
    """Bytes a second on the link with it, in place of `link.rate`."""
    backlog: BacklogPart | None = None
    """Part of the link's bytes for what goes after newer messages, in place of `link.backlog`."""
    cost: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Steps that the link weighs more in the choice of the tree, as a metered one; four stand for twice the
    delay."""

    @model_validator(mode="after")
    def _identified(self) -> Self:
        for key in ("pin", "rules", "classes"):
            if getattr(self, key) is not None and self.id is None:
                raise ValueError(f"{key}: for whom it is has to stand in id")
        if self.pin is not None and not self.url.has_tls:
            raise ValueError(f"pin is without effect with {self.url}: write mqtts://")
        return self

    @model_serializer(mode="wrap")
    def _shortest(self, whole: SerializerFunctionWrapHandler) -> Any:
        """As it would be written: the address alone where there is nothing else."""
        more = {key: value for key, value in whole(self).items() if value is not None}
        return more if len(more) > 1 else more["url"]


def _neighbor(value: object) -> object:
    return {"url": parse_address(value)} if isinstance(value, str | Address) else value


DialedNeighbor = Annotated[NeighborConfig, BeforeValidator(_neighbor)]


class NeighborRules(Section):
    """The rules for one neighbour."""

    id: NodeId
    """Its ``node_id``; whichever side has dialed."""
    rules: TopicRules
    """In place of ``link.rules``."""


def _once(each: list[NeighborRules]) -> list[NeighborRules]:
    ids = [one.id for one in each]
    twice = next((node for node in ids if ids.count(node) > 1), None)
    if twice is not None:
        raise ValueError(f"there are two with the id {twice}")
    return each


RulesOfNeighbors = Annotated[list[NeighborRules], AfterValidator(_once)]


class PublishRule(FilterRule):
    """Whether messages on some topics may cross to other sites; see :mod:`ildm.core.local.rules`."""

    allow: list[str] | None = None
    """Topic filters; ``%u`` and ``%c`` stand for the user name and the client identifier."""
    user: str | None = None
    """User names it is for, with ``*``, ``?`` and ``[...]`` as in file names; null: every client."""
    client_id: str | None = None
    """Client identifiers it is for, likewise."""

    @classmethod
    def example(cls, topic_filter: str) -> str:
        return topic_filter.replace("%u", "u").replace("%c", "c")


def refuse_rules(link: LinkConfig, algorithm: str) -> None:
    """For an algorithm whose nodes send to each other over links made on demand.

    Raises:
        ConfigError: there are rules for links.
    """
    own = [(f"link.neighbors.{index}.rules", each.rules) for index, each in enumerate(link.neighbors)]
    for key, given in (("link.rules", link.rules), ("link.neighbor_rules", link.neighbor_rules), *own):
        if given:
            raise ConfigError(
                f"{key}: rules are for trees of links (pf, sf). In the overlay of algorithm {algorithm} a "
                "topic has one name at all sites, and what crosses takes links of the moment; publish says "
                "what clients may send to other sites, site.rules what leaves this one and enters it"
            )
