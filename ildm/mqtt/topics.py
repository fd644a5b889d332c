"""Topic names and topic filters: matching and covering (MQTT 5, 4.7 and 4.8.2).

Every function takes text that is already valid (MQTT-4.7.1-1, -2, 4.7.3): validation is another
module's. Nothing here recurses, so filters of 65,536 levels (65,535 slashes) are safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

SHARE_PREFIX = "$share/"
"""Start of the filter of a shared subscription (MQTT-4.8.2-1)."""

LONGER_TWINS = {"#": "+/#", "/#": "/+/#"}
"""The only two distinct pairs of filters that match the same topics, shorter -> longer.

``#`` includes the parent level, but a topic has at least one level and one character (MQTT-4.7.3-1).
Elsewhere ``x/+/#`` asks for one level more than ``x/#``.
"""


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether ``topic_filter`` matches the topic name ``topic``.

    ``+`` stands for exactly one level, also an empty one (4.7.1.3); ``#`` for any number of levels
    and the parent level (4.7.1.2); a leading wildcard matches no topic starting with ``$`` (MQTT-4.7.2-1).
    Comparison is by code point, without normalisation (MQTT-4.7.3-4). Cost: O(length).
    """
    if topic.startswith("$") and not topic_filter.startswith("$"):
        return False
    pattern = topic_filter.split("/")
    levels = topic.split("/")
    for depth, level in enumerate(pattern):
        if level == "#":
            return True
        if depth == len(levels) or level not in ("+", levels[depth]):
            return False
    return len(pattern) == len(levels)


def highest_qos(filters: Mapping[str, int], topic: str, most: int = 4096) -> int | None:
    """The highest QoS of the filters that match ``topic``; None: none does, or ``most`` looks do not tell.

    3 * 2**levels - 1 filters match a topic. Those are looked up, or all are compared if they are fewer.
    """
    levels = topic.split("/")
    matching = (3 << len(levels)) - 1
    if min(matching, len(filters)) > most:
        return None
    if matching < len(filters):
        return max((filters[each] for each in _matching(levels) if each in filters), default=None)
    return max((qos for each, qos in filters.items() if topic_matches(each, topic)), default=None)


def _matching(levels: list[str]) -> Iterator[str]:
    """All filters that match the topic of these levels."""
    begins = [""]
    for depth, level in enumerate(levels):
        if depth == 0 and level.startswith("$"):  # MQTT-4.7.2-1
            begins = [f"{level}/"]
            continue
        for begin in begins:
            yield f"{begin}#"
        begins = [f"{begin}{name}/" for begin in begins for name in (level, "+")]
    for begin in begins:
        yield begin[:-1]
        yield f"{begin}#"


def covers(a: str, b: str) -> bool:
    """Whether filter ``a`` matches every topic that filter ``b`` matches (thesis 5.3.2).

    A partial order, but for the filters of ``LONGER_TWINS``, which cover each other. By the rule for
    ``$`` (MQTT-4.7.2-1) ``#`` does not cover ``$SYS/x``. Cost: O(length).
    """
    if b.startswith("$") and not a.startswith("$"):
        return False
    covering = a.split("/")
    # Of two equal filters the longer says all that can be said about the topics.
    covered = LONGER_TWINS.get(b, b).split("/")
    for depth, level in enumerate(covering):
        if level == "#":
            return True
        if depth == len(covered) or covered[depth] == "#":
            return False
        # A literal never covers "+": there is always a topic level it does not name.
        if level not in ("+", covered[depth]):
            return False
    return len(covering) == len(covered)


def intersects(a: str, b: str) -> bool:
    """Whether some topic is matched by both filters. Symmetric. Cost: O(length)."""
    if a.startswith("$") is not b.startswith("$"):
        return False  # a leading wildcard matches no topic with "$" (MQTT-4.7.2-1)
    # Of two equal filters the longer says all that can be said about the topics.
    first = LONGER_TWINS.get(a, a).split("/")
    second = LONGER_TWINS.get(b, b).split("/")
    for one, other in zip(first, second, strict=False):
        if "#" in (one, other):
            return True
        if one != other and "+" not in (one, other):
            return False
    longer, depth = (first, len(second)) if len(first) > len(second) else (second, len(first))
    return len(longer) == depth or (len(longer) == depth + 1 and longer[depth] == "#")


def intersection(a: str, b: str) -> str | None:
    """The filter that matches the topics which both match, None if there are none; it is always one filter.

    Symmetric but for ``LONGER_TWINS``, of which either may be the answer. Cost: O(length).
    """
    if a.startswith("$") is not b.startswith("$"):
        return None  # a leading wildcard matches no topic with "$" (MQTT-4.7.2-1)
    first, second = a.split("/"), b.split("/")
    common: list[str] = []
    for depth in range(max(len(first), len(second)) + 1):
        # "#" stands for the parent level, too, so one that ends here may still meet it
        if first[depth : depth + 1] == ["#"]:
            common += second[depth:]
            break
        if second[depth : depth + 1] == ["#"]:
            common += first[depth:]
            break
        if depth >= len(first) or depth >= len(second):
            if len(first) != len(second):
                return None
            break
        one, other = first[depth], second[depth]
        if one != other and "+" not in (one, other):
            return None
        common.append(other if one == "+" else one)
    return "/".join(common) or None  # a topic name has at least one character (MQTT-4.7.3-1)


def split_shared(topic_filter: str) -> tuple[str | None, str]:
    """Split ``$share/group/filter`` into (group, filter) (MQTT 5, 4.8.2).

    Anything that has not that form gives (None, topic_filter): an ordinary filter, or one without group
    or filter, or with a wildcard in the group, which MQTT-4.8.2-1 and -2 forbid.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return None, topic_filter
    group, _, plain = topic_filter[len(SHARE_PREFIX) :].partition("/")
    if not group or not plain or "+" in group or "#" in group:
        return None, topic_filter
    return group, plain
