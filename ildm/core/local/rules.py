"""Which messages of which clients may cross: the node's own rules.

The local broker's access rules show in its acknowledgements at QoS 1 and 2 only (and truly so only in
MQTT 5); what it refuses at QoS 0, or of a will, it refuses in silence. These rules hold for every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from ildm.mqtt import topic_matches

CACHED_TOPICS = 100
"""Topics per client whose verdict is remembered."""
CACHED_TOPIC = 200
"""Bytes of such a topic."""
EVERYTHING = "#"
_UNSAFE = frozenset("+#/")
"""In a client's name they would make a pattern match more than its owner meant."""


class Rule(Protocol):
    """As configured; see :class:`ildm.config.PublishRule`."""

    @property
    def allows(self) -> bool: ...
    @property
    def filters(self) -> Sequence[str]: ...
    @property
    def user(self) -> str | None: ...
    @property
    def client_id(self) -> str | None: ...


class _Compiled(NamedTuple):
    allows: bool
    filters: tuple[str, ...]


class ClientRules:
    """The rules of one client; the first that matches a topic decides."""

    __slots__ = ("_rules", "_verdicts")

    def __init__(self, rules: Sequence[_Compiled]) -> None:
        self._rules = rules
        self._verdicts: dict[bytes, bool] = {}

    def allow(self, topic: str) -> bool:
        """Whether messages on a topic may cross; what no rule matches may."""
        for rule in self._rules:
            if any(topic_matches(topic_filter, topic) for topic_filter in rule.filters):
                return rule.allows
        return True

    def allow_bytes(self, topic: bytes) -> bool:
        """The same for the bytes of a valid topic name, with a memory."""
        verdict = self._verdicts.get(topic)
        if verdict is None:
            verdict = self.allow(topic.decode())
            if len(topic) <= CACHED_TOPIC:
                if len(self._verdicts) >= CACHED_TOPICS:
                    self._verdicts.clear()
                self._verdicts[topic] = verdict
        return verdict


class PublishRules:
    """All rules of a node, in their order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)

    def of(self, user: str | None, client_id: str) -> ClientRules | None:
        """The rules for a client; None if all it publishes may cross.

        In a filter ``%u`` stands for its user name and ``%c`` for its client identifier, as in the patterns
        of Mosquitto's access lists. A client whose name has a character that means something in a filter
        may send nothing across where such a rule applies to it; one without a user name is not meant by a
        filter with ``%u``.
        """
        compiled: list[_Compiled] = []
        for rule in self._rules:
            if rule.user is not None and not fnmatchcase(user or "", rule.user):
                continue
            if rule.client_id is not None and not fnmatchcase(client_id, rule.client_id):
                continue
            filters: list[str] = []
            for pattern in rule.filters:
                names = {"%u": user or "", "%c": client_id}
                used = {mark: name for mark, name in names.items() if mark in pattern}
                if any(_UNSAFE.intersection(name) for name in used.values()):
                    return ClientRules([_Compiled(False, (EVERYTHING,))])
                if all(used.values()):
                    filters.append(_substituted(pattern, used))
            compiled.append(_Compiled(rule.allows, tuple(filters)))
            if EVERYTHING in filters:
                break
        if all(rule.allows for rule in compiled):
            return None
        return ClientRules(compiled)


def _substituted(pattern: str, names: dict[str, str]) -> str:
    parts = pattern.split("%")
    out = [parts[0]]
    for part in parts[1:]:  # in one pass: a name may contain a mark
        name = names.get("%" + part[:1])
        out.append("%" + part if name is None else name + part[1:])
    return "".join(out)
