"""The filters of local clients: which content they ask for, and on which topics they get it.

A client subscribes to ``ROOT/EXPRESSION/TOPIC FILTER`` as to any filter, in any MQTT version. It gets
matching messages on ``ROOT/EXPRESSION/TOPIC``, with the expression as the client has written it. Messages
that a client publishes below the root stay with its broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from ildm.api import PluginConfig
from ildm.mqtt import MqttError, Publish, split_shared, topic_matches, validate_topic_name
from ildm_algorithms.octopia.content.attributes import AttributeConfig
from ildm_algorithms.octopia.content.content import (
    ANYTHING,
    ContentError,
    ContentFilter,
    Expression,
    ExpressionLimits,
    parse,
    parse_names,
)
from ildm_algorithms.octopia.content.index import Attributes, ContentIndex
from ildm_algorithms.octopia.content.rules import AccessRule, refusal

__all__ = ["ContentConfig", "InterestChange", "LocalCopy", "LocalFilters", "NoAccess"]

PLAIN = ""
"""Stands for the expression of ordinary subscriptions; none has this text."""
_LONGEST_TOPIC = 65_535
"""Bytes (MQTT-1.5.4)."""


def _root(root: str) -> str:
    try:
        validate_topic_name(root)
    except MqttError as error:
        raise ValueError(f"{root!r} cannot begin a topic: {error}") from None
    if root.startswith("$") or root.endswith("/"):
        raise ValueError(f"{root!r} must not begin with $ (brokers refuse to publish there) or end with /")
    return root


class ContentConfig(PluginConfig):
    """What expressions are and may cost."""

    root: Annotated[str, AfterValidator(_root)] = "filter"
    """First level, or levels, of the filters that have an expression."""
    expressions: dict[str, str] = {}
    """Name -> expression, which may name those before it; the same at all sites, or clients get different
    messages by one name."""
    attributes: AttributeConfig = Field(default_factory=AttributeConfig)
    access: list[AccessRule] = []
    """Who may subscribe to what with an expression, asked at SUBSCRIBE; the first rule that applies decides,
    and what none applies to is allowed."""
    expression_length: int = Field(default=1024, ge=1, le=16_383)
    """Characters of an expression."""
    expression_predicates: int = Field(default=32, ge=1, le=1000)
    """Predicates of an expression, those of named ones in it included."""
    max_expressions: int = Field(default=100_000, ge=0)
    """Filters with an expression that local clients may have; further ones are refused."""
    max_client_expressions: int = Field(default=1_000, ge=0)
    """The same for one client; an equal filter counts for each client that has it."""
    refused_listed: int = Field(default=100, ge=1)
    """Refused filters that are listed, and remembered so that each is logged once."""

    @model_validator(mode="after")
    def _named(self) -> ContentConfig:
        try:
            self.names()
        except ContentError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def limits(self) -> ExpressionLimits:
        """Of one expression."""
        return ExpressionLimits(self.expression_length, self.expression_predicates)

    def names(self) -> dict[str, Expression]:
        """The named expressions."""
        return parse_names(self.expressions, self.limits)


class InterestChange(NamedTuple):
    """A change of what the clients of this node want."""

    filter: ContentFilter
    qos: int | None
    """The highest QoS of all that want it; None: nobody does any more."""


class LocalCopy(NamedTuple):
    """A copy for the local broker."""

    topic: str
    qos: int


class NoAccess(str):
    """Why a filter is refused, where it is the rules of access that refuse it."""

    __slots__ = ()


class _Asked(NamedTuple):
    """The content that an MQTT filter asks for."""

    filter: ContentFilter
    text: str
    """Of the expression, as the client has written it."""


class LocalFilters:
    """The filters granted to local clients, as content filters.

    Counters: ``expressions_refused`` (filters below the root that cannot be served: a wrong expression, no
    topic filter behind it, beyond a bound), ``topics_too_long`` (copies that would need a longer topic than
    MQTT has).

    Args:
        config: root, names, bounds.
        count: adds to a counter.
        log: logs an event.
    """

    def __init__(self, config: ContentConfig, count: Callable[[str], None], log: Callable[..., None]) -> None:
        self._config = config
        self._count = count
        self._log = log
        self._prefix = f"{config.root}/"
        self._names = config.names()
        self._asked: dict[str, _Asked] = {}
        """By MQTT filter, those with an expression."""
        self._index: ContentIndex[str] = ContentIndex()
        """Owners are the texts of expressions."""
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._logged: OrderedDict[str, None] = OrderedDict()

    @property
    def refused(self) -> Mapping[str, str]:
        """Filters that clients hold at the broker but that cannot be served -> why; the latest of them."""
        return MappingProxyType(self._refused)

    @property
    def expressions(self) -> int:
        """Filters with an expression."""
        return len(self._asked)

    def __iter__(self) -> Iterator[tuple[ContentFilter, int]]:
        """All that clients subscribe to, each filter once for each text of its expression, with that QoS."""
        for filter, _, qos in self._index:
            yield filter, qos

    def is_below_root(self, topic: str) -> bool:
        """Whether a topic, or a topic filter, is one of copies: it does not cross."""
        return topic.startswith(self._prefix)

    def has_expression(self, topic_filter: str) -> bool:
        """Whether a filter, with a share or without, has an expression: ``+`` and ``#`` are none."""
        plain = split_shared(topic_filter)[1]
        if not self.is_below_root(plain):
            return False
        return plain[len(self._prefix) :].partition("/")[0] not in ("+", "#")

    def admit(self, topic_filter: str, user: str | None = None, client_id: str = "") -> str | None:
        """Why a client's SUBSCRIBE to a filter is to be refused; None if it is not. Nothing changes."""
        _, topic_filter = split_shared(topic_filter)
        try:
            asked = self._understood(topic_filter)
        except ContentError as error:
            return self._refuse(topic_filter, str(error))
        if asked is None or not self._config.access:
            return None
        why = refusal(self._config.access, asked.filter.topic_filter, user, client_id)
        return None if why is None else self._refuse(topic_filter, NoAccess(why))

    def change(self, topic_filter: str, qos: int | None) -> InterestChange | None:
        """A filter is granted, has another QoS, or (None) is not granted any more.

        Of a shared subscription it is the filter without ``$share/GROUP/``. Answers the change of
        interest. None: other filters ask for the same, or the filter asks for nothing that crosses.
        """
        asked = self._forget(topic_filter) if qos is None else self._enter(topic_filter)
        if asked is None:
            return None
        before = self._highest(asked.filter)
        if qos is None:
            self._index.remove(asked.filter, asked.text)
        else:
            self._index.add(asked.filter, asked.text, qos)
        after = self._highest(asked.filter)
        return None if after == before else InterestChange(asked.filter, after)

    def copies(self, message: Publish, attributes: Attributes, include_plain: bool) -> list[LocalCopy]:
        """The copies of a message that local clients want, sorted by topic.

        Args:
            message: one that has crossed, or a local client's.
            attributes: gives its attributes, if they are needed.
            include_plain: also on its own topic; not at the node of its publisher, whose broker has it.
        """
        if self.is_below_root(message.topic):
            return []
        found = self._index.match(message.topic, attributes)
        if not include_plain:
            found.pop(PLAIN, None)
        return sorted(copy for text, qos in found.items() for copy in self._copy(message, text, qos))

    def copy(self, topic_filter: str, message: Publish, attributes: Attributes) -> LocalCopy | None:
        """The copy of a message that one filter with an expression asks for, as of a retained one."""
        asked = self._asked.get(topic_filter)
        if asked is None or self.is_below_root(message.topic):
            return None
        inner, expression = asked.filter
        if not topic_matches(inner, message.topic) or not expression.matches(attributes()):
            return None
        qos = self._index.qos(asked.filter, asked.text)
        assert qos is not None
        return next(self._copy(message, asked.text, qos), None)

    def _enter(self, topic_filter: str) -> _Asked | None:
        try:
            asked = self._understood(topic_filter)
        except ContentError as error:
            self._refused[topic_filter] = self._refuse(topic_filter, str(error))
            _bound(self._refused, self._config.refused_listed)
            return None
        if asked is None:
            return self._plain(topic_filter)
        self._asked[topic_filter] = asked
        return asked

    def _forget(self, topic_filter: str) -> _Asked | None:
        self._refused.pop(topic_filter, None)
        return self._asked.pop(topic_filter, None) or self._plain(topic_filter)

    def _plain(self, topic_filter: str) -> _Asked | None:
        """None: what is below the root, or reserved for the broker (MQTT 5, 4.7.2), does not cross."""
        if topic_filter.startswith("$") or self.is_below_root(topic_filter):
            return None
        return _Asked(ContentFilter(topic_filter, ANYTHING), PLAIN)

    def _copy(self, message: Publish, text: str, qos: int) -> Iterator[LocalCopy]:
        topic = message.topic if text == PLAIN else f"{self._prefix}{text}/{message.topic}"
        if len(topic.encode()) > _LONGEST_TOPIC:
            self._count("topics_too_long")
        else:
            yield LocalCopy(topic, min(qos, message.qos))

    def _highest(self, filter: ContentFilter) -> int | None:
        return max(self._index.owners(filter).values(), default=None)

    def _understood(self, topic_filter: str) -> _Asked | None:
        """The content that a filter asks for; None: no expression. ContentError: it cannot be served."""
        if not self.is_below_root(topic_filter):
            return None
        known = self._asked.get(topic_filter)
        if known is not None:
            return known
        text, _, inner = topic_filter[len(self._prefix) :].partition("/")
        if text in ("+", "#"):
            return None  # it asks for the copies of others, whatever they are
        form = f"{self._prefix}EXPRESSION/TOPIC FILTER"
        if not inner:
            raise ContentError(f"no topic filter follows the expression, as in {form}")
        if inner.startswith("$"):
            raise ContentError("topics that begin with $ do not cross")
        if self.is_below_root(inner):
            raise ContentError(f"what is below {self._config.root} does not cross")
        expression = parse(text, self._names, self._config.limits)
        if len(self._asked) >= self._config.max_expressions:
            raise ContentError(f"there are {self._config.max_expressions} filters with expressions already")
        return _Asked(ContentFilter(inner, expression), text)

    def _refuse(self, topic_filter: str, why: str) -> str:
        self._count("expressions_refused")
        if topic_filter not in self._logged:
            self._log("expression refused", filter=topic_filter, reason=why)
        self._logged[topic_filter] = None
        self._logged.move_to_end(topic_filter)
        _bound(self._logged, self._config.refused_listed)
        return why


def _bound(kept: OrderedDict[str, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
