"""The ``topic`` lines of a bridge as rules of a link: their names, and the order in which they decide.

Mosquitto subscribes to all its lines and takes a topic with the QoS of the subscription that it finds first;
the first line with prefixes renames it. A link takes the first rule that matches for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ildm.config import TopicRule
from ildm.mqtt import intersection


def whole_levels(local: str, pattern: str, remote: str) -> tuple[str, str, str]:
    """The same names with prefixes of whole levels.

    Raises:
        ValueError: names change within a level, or begin with ``$``.
    """
    if not pattern:  # one topic, under another name
        local, _, here = local.rpartition("/")
        remote, _, there = remote.rpartition("/")
        if here != there or not here:
            raise ValueError("names change by whole levels at their beginning only")
        pattern = here
        local, remote = (prefix + "/" if prefix else "" for prefix in (local, remote))
    elif not all(prefix.endswith("/") for prefix in (local, remote) if prefix):
        # the prefix goes on into the first level of the pattern
        head, slash, rest = pattern.partition("/")
        if slash and rest and not set(head) & set("+#"):
            local, pattern, remote = f"{local}{head}/", rest, f"{remote}{head}/"
    if any(name.startswith("$") for name in (pattern, local, remote)):
        raise ValueError("topics that begin with $ do not cross")
    return local, pattern, remote


def in_order(rules: Sequence[TopicRule]) -> list[TopicRule]:
    """The rules so that the first that matches a topic is the one that Mosquitto takes."""
    found: list[TopicRule] = []
    for rule in rules:
        before = (place for place, other in enumerate(found) if _precedes(rule, other))
        found.insert(next(before, len(found)), rule)
    return found


def share(first: TopicRule, second: TopicRule) -> Iterator[bool]:
    """For each direction in which both are for some topics: whether both give them the same names."""
    for one, other in _sources(first, second):
        common = intersection(one.names, other.names)
        if common is not None:
            yield one.image(common) == other.image(common)


def _precedes(rule: TopicRule, other: TopicRule) -> bool:
    if next(share(rule, other), None) is None:
        return False  # they have no topic in common
    if _renames(rule) is not _renames(other):
        return _renames(rule)
    return not _renames(rule) and _search_order(rule) < _search_order(other)


def _search_order(rule: TopicRule) -> list[int]:
    """How Mosquitto looks for subscriptions: at each level for its name first, then ``+``, then ``#``."""
    return [("+", "#").index(level) + 1 if level in ("+", "#") else 0 for level in rule.filters[0].split("/")]


def _renames(rule: TopicRule) -> bool:
    return bool(rule.local or rule.remote)


class _Side:
    """The names of a rule where its messages come from."""

    def __init__(self, rule: TopicRule, source: str, image: str) -> None:
        self.names = source + rule.filters[0]
        self._source = source
        self._image = image

    def image(self, names: str) -> str:
        return self._image + names[len(self._source) :]


def _sources(first: TopicRule, second: TopicRule) -> list[tuple[_Side, _Side]]:
    """Both rules in each direction that they share."""
    found = []
    for direction in ("out", "in"):
        if all(rule.direction in (direction, "both") for rule in (first, second)):
            out = direction == "out"
            one, other = (
                _Side(rule, *((rule.local, rule.remote) if out else (rule.remote, rule.local)))
                for rule in (first, second)
            )
            found.append((one, other))
    return found
