"""Which strings are topic names and topic filters (MQTT 5, 4.7 and 4.8.2).

The reason is "malformed packet" (0x81) for all that are none. "Topic name invalid" (0x90) and "topic filter
invalid" (0x8F) are for those that are correctly formed, but not accepted (3.2.2.2, 3.9.3, 3.14.2.1).
"""

from __future__ import annotations

from ildm.mqtt.constants import MAX_STRING
from ildm.mqtt.errors import MalformedPacket

_SHARE = "$share/"
# No code point takes more than four bytes, so shorter text needs no measuring.
_SURELY_FITS = MAX_STRING // 4


def validate_topic_name(topic: str) -> None:
    """Check a topic name: at least one character, no wildcard, valid text.

    Raises:
        MalformedPacket: MQTT-4.7.3-1 to -3, MQTT-3.3.2-2 or MQTT-1.5.4-1.
    """
    check_topic_name(topic)
    _validate_topic_text(topic, "topic name")


def check_topic_name(topic: str) -> None:
    """The rules for topic names beyond those for any text. Raises like ``validate_topic_name``."""
    if not topic:
        raise MalformedPacket("empty topic name", clause="MQTT-4.7.3-1")
    if "#" in topic or "+" in topic:
        raise MalformedPacket("wildcard in a topic name", clause="MQTT-3.3.2-2")


def validate_topic_filter(filter: str, *, shared: bool = True) -> None:
    """Check a topic filter: place of the wildcards, form of a shared subscription, valid text.

    With ``shared`` the form ``$share/group/filter`` is checked too; MQTT 3.1.1 knows no shared
    subscriptions, there it is a filter like any other.

    Raises:
        MalformedPacket: MQTT-4.7.1-1, -2, MQTT-4.7.3-1 to -3, MQTT-4.8.2-1, -2 or MQTT-1.5.4-1.
    """
    check_topic_filter(filter, shared=shared)
    _validate_topic_text(filter, "topic filter")


def check_topic_filter(filter: str, *, shared: bool = True) -> None:
    """The rules for topic filters beyond those for any text. Raises like ``validate_topic_filter``."""
    if not filter:
        raise MalformedPacket("empty topic filter", clause="MQTT-4.7.3-1")
    if shared and filter.startswith(_SHARE):
        group, slash, rest = filter[len(_SHARE) :].partition("/")
        if not group:
            raise MalformedPacket("shared subscription without a share name", clause="MQTT-4.8.2-1")
        if "+" in group or "#" in group:
            raise MalformedPacket("wildcard in a share name", clause="MQTT-4.8.2-2")
        if not slash or not rest:
            raise MalformedPacket("shared subscription without a topic filter", clause="MQTT-4.8.2-2")
        filter = rest
    if "#" in filter:
        last = len(filter) - 1
        if filter.index("#") != last or (last > 0 and filter[last - 1] != "/"):
            raise MalformedPacket("'#' is not the whole last level", clause="MQTT-4.7.1-1")
    # a filter of 64 kB may be nothing but wildcards: counting is quicker than splitting
    if "+" in filter and not filter.count("+") == f"/{filter}".count("/+") == f"{filter}/".count("+/"):
        raise MalformedPacket("'+' is not a whole level", clause="MQTT-4.7.1-2")


def _validate_topic_text(text: str, what: str) -> None:
    if "\0" in text:
        raise MalformedPacket(f"U+0000 in a {what}", clause="MQTT-4.7.3-2")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise MalformedPacket(f"surrogate in a {what}", clause="MQTT-1.5.4-1") from None
    if len(text) > _SURELY_FITS and (size := len(text.encode())) > MAX_STRING:
        raise MalformedPacket(f"{what} of {size} bytes", clause="MQTT-4.7.3-3")
