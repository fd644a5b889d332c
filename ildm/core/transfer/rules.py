"""Rules for what crosses a link: allow, deny, the most QoS, and other names by prefix.

They act at the edge of the link. All within the node has *local* names: clients, the algorithm, queues,
the spool, what is remembered of retained messages. On the link stand *wire* names, those of the neighbour.
What is written gets its wire name as it is written, what is read its local one as it is read.

A rule is for the names that its prefix and one of its filters, put together, match, but for the prefix
without anything after it. Of each direction the first rule that matches decides: by the local name of what
goes out, by the wire name of what comes in. What no rule matches is denied. Names that begin with ``$`` are
never made.

Interest goes the other way than the messages and is translated likewise: of a filter that is wanted goes to
the neighbour what it has in common with each rule for what comes in. Two filters have one filter in common or
nothing, so that is one filter for each filter of a rule at most. What is denied within an allowed filter
cannot be cut out of it, as MQTT has no filter for that; the edge denies it message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from ildm.core.frames import renamed
from ildm.mqtt import MalformedPacket, covers, intersection, topic_matches

MAX_FILTERS = 256
"""Filters of all rules of a link."""
MAX_RULES = 64 << 10
"""Bytes of them, each with its prefixes: neighbours tell each other."""
MAX_PREFIX = 1024
"""Bytes of a prefix."""
MAX_TOPIC = 65_535
"""Bytes of a topic name (MQTT-1.5.4)."""
REMEMBERED = 4096
"""Topics of a direction whose verdict is remembered."""
REMEMBERED_TOPIC = 512
"""Bytes of such a topic."""


class Rule(Protocol):
    """As configured; see :class:`ildm.config.TopicRule`."""

    @property
    def allows(self) -> bool: ...
    @property
    def filters(self) -> Sequence[str]: ...
    @property
    def direction(self) -> Literal["in", "out", "both"]: ...
    @property
    def qos(self) -> int: ...
    @property
    def local(self) -> str: ...
    @property
    def remote(self) -> str: ...
    @property
    def compress(self) -> bool: ...


class Term(NamedTuple):
    """One filter of a rule, for one direction: names go from the *source* to the *image*."""

    allows: bool
    qos: int
    source: str
    """Filter of names as they come."""
    source_prefix: str
    image: str
    """Filter of names as they go on."""
    image_prefix: str
    rule: int = 0
    """Place of its rule among all."""
    compress: bool = True

    def matches(self, name: str) -> bool:
        return _below(name, self.source_prefix) and topic_matches(self.source, name)

    def decides(self, topic_filter: str) -> bool:
        """It matches all names of a filter."""
        prefix = self.source_prefix
        # PREFIX/# has the name PREFIX, too, which is not below it
        return (
            _below(topic_filter, prefix)
            and not (prefix and topic_filter == prefix + "#")
            and covers(self.source, topic_filter)
        )

    def source_of(self, common: str) -> str:
        """The source of a filter that is part of the image."""
        return self.source_prefix + common[len(self.image_prefix) :]

    @property
    def shift(self) -> tuple[str, str]:
        """What becomes of the beginning of a name, without levels that stay as they are."""
        source, image = self.source_prefix.split("/"), self.image_prefix.split("/")
        while len(source) > 1 and len(image) > 1 and source[-2] == image[-2]:
            del source[-2], image[-2]
        return "/".join(source), "/".join(image)


class RuleVerdict(NamedTuple):
    """Under which name messages on a topic go on, and with which QoS at most."""

    name: str
    qos: int
    topic: bytes
    changed: bool
    compress: bool
    """They may be part of a compressed stream."""


class Hits:
    """How many messages each rule of a set has decided about, by direction; last those that none matched.

    What is denied towards a neighbour is not sent to the link at all: it counts once for each topic, as long
    as its route is remembered.
    """

    __slots__ = ("incoming", "outgoing")

    def __init__(self, rules: int) -> None:
        self.outgoing = [0] * (rules + 1)
        self.incoming = [0] * (rules + 1)


class Side:
    """The rules for one direction.

    Args:
        flushed: called when the memory of verdicts was full.
        hits: where it is counted what they decide about, see :class:`Hits`.
    """

    __slots__ = ("_flushed", "_hits", "_verdicts", "answer_growth", "growth", "terms")

    def __init__(
        self, terms: Sequence[Term], flushed: Callable[[], None] = lambda: None, hits: list[int] | None = None
    ) -> None:
        self.terms = tuple(terms)
        self._hits = [0] * (max((term.rule for term in terms), default=0) + 2) if hits is None else hits
        allowed = [(term.source_prefix, term.image_prefix) for term in terms if term.allows]
        self.growth = max((_growth(source, image) for source, image in allowed), default=0)
        """Bytes by which a frame may grow."""
        self.answer_growth = max((_growth(image, source) for source, image in allowed), default=0)
        """The same by a response topic that goes the other way."""
        self._verdicts: dict[bytes, tuple[RuleVerdict | None, int]] = {}
        self._flushed = flushed

    def find(self, topic: bytes) -> RuleVerdict | None:
        """What is to become of messages on a topic; None: they are denied.

        Raises:
            MalformedPacket: the bytes are not UTF-8.
        """
        return self._verdict(topic)[0]

    def decide(self, topic: bytes, count: int = 1) -> RuleVerdict | None:
        """The same for so many messages that are there. Raises: as :meth:`find`."""
        way, rule = self._verdict(topic)
        self._hits[rule] += count
        return way

    def rule_of(self, topic: bytes) -> int:
        """The place of the rule that decides; -1: none matches. Raises: as :meth:`find`."""
        return self._verdict(topic)[1]

    def _verdict(self, topic: bytes) -> tuple[RuleVerdict | None, int]:
        """With the place of the rule that decides; -1: none does."""
        try:
            return self._verdicts[topic]
        except KeyError:
            verdict = self._find(topic)
            if len(topic) <= REMEMBERED_TOPIC:
                if len(self._verdicts) >= REMEMBERED:
                    self._verdicts.clear()
                    self._flushed()
                self._verdicts[topic] = verdict
            return verdict

    def _find(self, topic: bytes) -> tuple[RuleVerdict | None, int]:
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            raise MalformedPacket("topic name is not UTF-8", clause="MQTT-1.5.4-1") from None
        term = next((term for term in self.terms if term.matches(name)), None)
        if term is None or name.startswith("$"):
            return None, -1
        image = term.image_prefix + name[len(term.source_prefix) :]
        encoded = image.encode()
        if not term.allows or image.startswith("$") or len(encoded) > MAX_TOPIC:
            return None, term.rule
        return RuleVerdict(image, term.qos, encoded, image != name, term.compress), term.rule

    def sources(self, topic_filter: str) -> dict[str, int]:
        """Filters, with their QoS at most, of all names whose images a filter matches; of some more, where
        what is denied cannot be cut out."""
        found: dict[str, int] = {}
        for place, term in enumerate(self.terms):
            common = intersection(topic_filter, term.image) if term.allows else None
            if common is None or not _below(common, term.image_prefix):
                continue
            source = term.source_of(common)
            if source.startswith("$") or len(source.encode()) > MAX_TOPIC:
                continue
            if _decided(self.terms[:place], source):
                continue
            found[source] = max(term.qos, found.get(source, 0))
        return found

    def images(self, topic_filter: str) -> list[str]:
        """Filters of what names become that a filter matches; of some more, where some are denied."""
        found: dict[str, None] = {}
        for term in self.terms:
            common = intersection(topic_filter, term.source) if term.allows else None
            if common is not None and _below(common, term.source_prefix):
                found[term.image_prefix + common[len(term.source_prefix) :]] = None
        return list(found)

    def source(self, name: str) -> str | None:
        """The name that becomes this one, None if there is none, or more than one."""
        found = [source for source in self.sources(name) if self.find(source.encode()) is not None]
        return found[0] if len(found) == 1 else None

    def run(self, topic: bytes, frames: bytes, size: int) -> tuple[RuleVerdict, bytes, int] | None:
        """A run of MQTT 5 frames as it goes on, with the size of one; None: denied."""
        way = self.decide(topic, len(frames) // size)
        if way is None:
            return None
        if not way.changed:
            return way, frames, size
        return (way, *renamed(frames, size, way.topic))


class LinkRules:
    """The rules of one link.

    Args:
        flushed: called when the memory of verdicts was full.
        hits: shared by all links with these rules.
    """

    __slots__ = ("hits", "incoming", "outgoing")

    def __init__(
        self, rules: Sequence[Rule], flushed: Callable[[], None] = lambda: None, hits: Hits | None = None
    ) -> None:
        self.hits = hits = Hits(len(rules)) if hits is None else hits
        self.outgoing = Side(_terms(rules, "out"), flushed, hits.outgoing)
        """Local names to wire names."""
        self.incoming = Side(_terms(rules, "in"), flushed, hits.incoming)
        """Wire names to local names."""

    def lowers(self, topic: bytes) -> bool:
        """Whether what comes on a wire topic is taken at QoS 1, though its handshake may be that of QoS 2."""
        way = self.incoming.find(topic)
        return way is not None and way.qos == 1

    def interest(self, topic_filter: str) -> Mapping[str, int]:
        """What the neighbour is asked for where local names are wanted: wire filters, each with the most
        QoS."""
        return self.incoming.sources(topic_filter)

    def received(self, topic_filter: str) -> Mapping[str, int]:
        """What local names the neighbour wants that asks for a wire filter."""
        return self.outgoing.sources(topic_filter)

    def filters_there(self, filters: Iterable[str]) -> list[str]:
        """What messages of either direction are called there that match filters here."""
        return [
            made
            for each in filters
            for made in dict.fromkeys((*self.outgoing.images(each), *self.incoming.sources(each)))
        ]

    def filters_here(self, filters: Iterable[str]) -> list[str]:
        """What they are called here that match filters there."""
        return [
            made
            for each in filters
            for made in dict.fromkeys((*self.incoming.images(each), *self.outgoing.sources(each)))
        ]

    def wire(self, topic: str) -> str | None:
        """How a local topic is called on the link, in whatever direction; None: it does not cross."""
        way = self.outgoing.find(topic.encode())
        return way.name if way is not None else self.incoming.source(topic)

    def answer_wire(self, topic: str) -> str:
        """The wire name of a response topic: what is published to it there is to come back as ``topic``."""
        return self.incoming.source(topic) or topic

    def answer_local(self, topic: str) -> str:
        """The local name of a response topic: what is published to it here is to go back as ``topic``."""
        return self.outgoing.source(topic) or topic


def flaw(rules: Sequence[Rule]) -> str | None:
    """Why rules cannot be used, None if they can: two topics would get the same name."""
    if rules and not any(rule.allows for rule in rules):
        return "no rule allows anything, so nothing crosses: end with {allow: ['#']} to let the rest cross"
    for direction in ("out", "in"):
        terms = _terms(rules, direction)
        for place, one in enumerate(terms):
            for before, other in enumerate(terms[:place]):
                common = _collision(one, other)
                if common is None or _decided(terms[:place], one.source_of(common)):
                    continue
                if not _decided(terms[:before], other.source_of(common)):
                    return (
                        f"{other.source!r} and {one.source!r} both become {common!r} ({direction}): "
                        "different topics would have one name"
                    )
    return None


def _collision(one: Term, other: Term) -> str | None:
    """What different names become under both."""
    if not (one.allows and other.allows) or one.shift == other.shift:
        return None
    common = intersection(one.image, other.image)
    below = common is not None and _below(common, one.image_prefix) and _below(common, other.image_prefix)
    return common if below else None


def _decided(terms: Sequence[Term], topic_filter: str) -> bool:
    return any(term.decides(topic_filter) for term in terms)


def remaps(rules: Sequence[Rule]) -> bool:
    """Whether some topics cross under another name."""
    return any(rule.allows and rule.local != rule.remote for rule in rules)


def _terms(rules: Sequence[Rule], direction: str) -> list[Term]:
    found = []
    for place, rule in enumerate(rules):
        if rule.direction not in (direction, "both"):
            continue
        prefixes = rule.local, rule.remote
        source, image = prefixes if direction == "out" else prefixes[::-1]
        found += [
            Term(rule.allows, rule.qos, source + f, source, image + f, image, place, rule.compress)
            for f in rule.filters
        ]
    return found


def _below(name: str, prefix: str) -> bool:
    return len(name) > len(prefix) and name.startswith(prefix)


def _growth(prefix: str, other: str) -> int:
    more = len(other.encode()) - len(prefix.encode())
    return more + 3 if more > 0 else 0  # a length may take up to three bytes more
