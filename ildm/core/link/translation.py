"""A set of filters, and what it becomes by the rules of a link, kept as it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Translation:
    """Filters given, each with a QoS, and the filters made of them with the highest.

    Args:
        translate: the filters made of one, each with the most QoS; always the same for the same filter.
    """

    __slots__ = ("_changes", "_counts", "_translate", "given", "made")

    def __init__(self, translate: Callable[[str], Mapping[str, int]]) -> None:
        self._translate = translate
        self.given: dict[str, int] = {}
        self.made: dict[str, int] = {}
        self._counts: dict[str, list[int]] = {}
        """Of each filter made: of how many given it is made, by the QoS."""
        self._changes: dict[str, int | None] = {}

    def becomes(self, topic_filter: str) -> Mapping[str, int]:
        """What is, or would be, made of a filter."""
        return self._translate(topic_filter)

    def put(self, topic_filter: str, qos: int) -> None:
        """Give a filter, or another QoS of it."""
        before = self.given.get(topic_filter)
        if before == qos:
            return
        self.given[topic_filter] = qos
        for made, most in self._translate(topic_filter).items():
            counts = self._counts.setdefault(made, [0, 0, 0])
            counts[min(qos, most)] += 1
            if before is not None:
                counts[min(before, most)] -= 1
            self._judge(made, counts)

    def remove(self, topic_filter: str) -> None:
        """Take a filter back, if it was given."""
        before = self.given.pop(topic_filter, None)
        if before is None:
            return
        for made, most in self._translate(topic_filter).items():
            counts = self._counts[made]
            counts[min(before, most)] -= 1
            self._judge(made, counts)

    def _judge(self, made: str, counts: list[int]) -> None:
        qos = next((qos for qos in (2, 1, 0) if counts[qos]), None)
        if qos == self.made.get(made):
            return
        self._changes[made] = qos
        if qos is None:
            del self.made[made], self._counts[made]
        else:
            self.made[made] = qos

    def clear(self) -> None:
        """Nothing is given any more, and nobody is to be told."""
        self.given.clear()
        self.made.clear()
        self._counts.clear()
        self._changes = {}

    def take_changes(self) -> dict[str, int | None]:
        """What has changed of the filters made since the last call: the QoS, None: it is gone."""
        changes, self._changes = self._changes, {}
        return changes
