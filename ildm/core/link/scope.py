"""What the two sides of a link tell each other of their rules, so that nothing is sent to be denied.

A node with rules says in ``$ildm/scope`` which wire names it takes and gives: JSON, two lists, each in the
order of its rules ``[allow, prefix, filter]``. The neighbour then leaves out what would be denied, and both
compare of what they remember of retained messages only what may cross. The rules are not enforced by that:
each side enforces its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ildm.core.transfer.rules import MAX_FILTERS, LinkRules
from ildm.mqtt import MalformedPacket, MqttError, topic_matches, validate_topic_filter

MAX_SCOPE = 512 << 10
"""Bytes of such a message."""
EVERYTHING = b'[[[true,"","#"]],[[true,"","#"]]]'
"""What is said where there were rules and are none."""
_Terms = Sequence[tuple[bool, str, str]]


class Scope:
    """What the neighbour has said."""

    __slots__ = ("_gives", "_takes")

    def __init__(self, takes: _Terms, gives: _Terms) -> None:
        self._takes = takes
        self._gives = gives

    def takes(self, wire: str) -> bool:
        """Whether the neighbour takes messages of this name."""
        return _allowed(self._takes, wire)

    def crosses(self, wire: str) -> bool:
        """Whether messages of this name cross in one direction at least."""
        return _allowed(self._takes, wire) or _allowed(self._gives, wire)


def _allowed(terms: _Terms, wire: str) -> bool:
    for allow, prefix, topic_filter in terms:
        if len(wire) > len(prefix) and wire.startswith(prefix) and topic_matches(topic_filter, wire):
            return allow
    return False


def advertised(rules: LinkRules | None) -> bytes:
    """The message that says what rules are; None: there are none any more."""
    if rules is None:
        return EVERYTHING
    takes = [[term.allows, term.source_prefix, term.source] for term in rules.incoming.terms]
    gives = [[term.allows, term.image_prefix, term.image] for term in rules.outgoing.terms]
    return json.dumps([takes, gives], ensure_ascii=False, separators=(",", ":")).encode()


def received(payload: bytes) -> Scope:
    """What the neighbour says.

    Raises:
        MalformedPacket: no node says that.
    """
    if len(payload) > MAX_SCOPE:
        raise MalformedPacket("a scope of too many bytes", clause="MQTT-4.13")
    try:
        takes, gives = json.loads(payload)
        return Scope(_checked(takes), _checked(gives))
    except (ValueError, TypeError, RecursionError, MqttError):
        raise MalformedPacket("malformed message about the scope of a link", clause="MQTT-4.13") from None


def _checked(terms: object) -> _Terms:
    if not isinstance(terms, list) or len(terms) > MAX_FILTERS:
        raise ValueError("no list of terms")
    found = []
    for allow, prefix, topic_filter in terms:
        if not (isinstance(allow, bool) and isinstance(prefix, str) and isinstance(topic_filter, str)):
            raise TypeError("no term")
        validate_topic_filter(topic_filter)
        found.append((allow, prefix, topic_filter))
    return found
