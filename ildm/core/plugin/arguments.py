"""What a plugin hands to the node is looked at when it is handed over.

Taken unseen, it would do harm only later and elsewhere: a payload that is text severs the session with
the broker, a filter that is none makes a neighbour end the link, again and again. So a wrong argument
raises :class:`PluginError` at the call, in the words of the interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from ildm.api import Link, Peer, PluginError, Stamp, Via
from ildm.mqtt import (
    EncodeError,
    Framer,
    MqttError,
    PacketType,
    Property,
    Publish,
    Version,
    decode,
    encode_properties,
    plain_topic,
    validate_topic_filter,
    validate_topic_name,
)

LONGEST_NAME = 100
"""Characters of the name of a counter or a gauge."""
LONGEST_HOST = 255
"""Characters of the name of a host (RFC 1035)."""
LONGEST_TEXT = 1000
"""Characters of a value in a line of the log."""
LONGEST_TOPIC = 256
"""Bytes of a topic that is remembered as one."""
MOST_FIELDS = 50
_MOST_NUMBER = (1 << 64) - 1
_CENTURY = 100 * 365.25 * 86_400
_FIELDS_OF_THE_NODE = (
    *("event", "exc_info", "exception", "left_out", "level", "logger", "method_name", "plugin", "self"),
    *("stack_info", "timestamp"),
)
_OF_ONE_CONNECTION = (Property.TOPIC_ALIAS, Property.SUBSCRIPTION_IDENTIFIER)


def check_message(message: Publish) -> None:
    """Check a message that is to be injected or transferred.

    Its packet identifier and DUP flag do not matter: each session has its own.

    Raises:
        PluginError: it is no :class:`Publish`, or one no neighbour or broker would take.
    """
    if not isinstance(message, Publish):
        raise PluginError(f"{_kind(message)} is no Publish")
    topic = message.topic
    _check_topic(topic)
    if not isinstance(message.payload, bytes):
        raise PluginError(f"{topic!r}: the payload is {_kind(message.payload)}, not bytes")
    checked_qos(message.qos)
    if not isinstance(message.properties, dict):
        raise PluginError(f"{topic!r}: the properties are {_kind(message.properties)}, not a dict")
    if message.properties:
        try:
            encode_properties(message.properties, PacketType.PUBLISH)
        except EncodeError as error:
            raise PluginError(f"{topic!r}: {error}") from None
        for name in _OF_ONE_CONNECTION:
            if name in message.properties:
                raise PluginError(f"{topic!r}: {name.name} has a meaning on one connection only")


def check_frame(frame: bytes) -> Publish | None:
    """Check a PUBLISH of MQTT 5 that is to be injected.

    Answers the message; None: it can be passed on as it is (:func:`plain_topic`).

    Raises:
        PluginError: it is none, or one no broker would take.
    """
    if not isinstance(frame, bytes):
        raise PluginError(f"the frame is {_kind(frame)}, not bytes")
    topic = plain_topic(frame)
    if topic is not None and len(topic) <= LONGEST_TOPIC and _is_topic(topic):
        return None
    try:
        message = decode(frame, Version.V5)
    except MqttError as error:
        raise PluginError(f"a frame of {len(frame)} bytes: {error}") from None
    if not isinstance(message, Publish):
        raise PluginError(f"a frame with {_kind(message)}, not PUBLISH")
    check_message(message)
    return message


@lru_cache(4_096)
def _is_topic(topic: bytes) -> bool:
    """Whether there can be messages on it that cross; what has been looked at is remembered."""
    try:
        _check_topic(topic.decode())
    except (UnicodeDecodeError, PluginError):
        return False
    return True


def _check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise PluginError(f"the topic is {_kind(topic)}, not str")
    try:
        validate_topic_name(topic)
    except MqttError as error:
        raise PluginError(f"{topic[:80]!r}: {error}") from None
    if topic.startswith("$"):
        raise PluginError(f"{topic!r}: topics that begin with $ stay with their broker")


def check_pattern(topic_filter: str) -> None:
    """Check a filter for which retained messages are asked.

    Raises:
        PluginError: it is none.
    """
    if not isinstance(topic_filter, str):
        raise PluginError(f"the filter is {_kind(topic_filter)}, not str")
    try:
        validate_topic_filter(topic_filter)
    except MqttError as error:
        raise PluginError(f"{topic_filter[:80]!r}: {error}") from None


def check_filters(filters: Mapping[str, int]) -> None:
    """Check filters, each with its maximum QoS, for inter-subscribing.

    Raises:
        PluginError: one of them a neighbour would not take.
    """
    for topic_filter, qos in filters.items():
        _check_filter(topic_filter)
        checked_qos(qos)


def new_filters(filters: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """Those of filters to inter-subscribe to which are not known with their QoS.

    Raises:
        PluginError: as :func:`check_filters`, or they are no mapping.
    """
    if not isinstance(filters, Mapping):
        raise PluginError(f"the filters are {_kind(filters)}, not a mapping of filters to QoS")
    changed = {f: qos for f, qos in filters.items() if f not in known or known[f] != qos}
    check_filters(changed)
    return changed


def old_filters(filters: Iterable[str], known: Mapping[str, int]) -> list[str]:
    """Those of filters to withdraw which are known; a list, as what was handed over may change meanwhile.

    Raises:
        PluginError: they are one text, or no texts.
    """
    if isinstance(filters, str) or not isinstance(filters, Iterable):
        raise PluginError(f"the filters are {_kind(filters)}, not several texts")
    found: dict[str, None] = {}
    for topic_filter in filters:
        if not isinstance(topic_filter, str):
            raise PluginError(f"the filter is {_kind(topic_filter)}, not str")
        if topic_filter in known:
            found[topic_filter] = None
    return list(found)


def _check_filter(topic_filter: str) -> None:
    check_pattern(topic_filter)
    if topic_filter.startswith("$"):
        raise PluginError(f"{topic_filter!r}: topics that begin with $ stay with their broker")


def check_overlay(overlay: bool) -> None:
    """Check that the algorithm may send data of its own.

    Raises:
        PluginError: it is none of an overlay.
    """
    if not overlay:
        raise PluginError("send is for an OverlayAlgorithm: nodes of a tree know their neighbours only")


def check_data(to: Peer, data: bytes, turn: int) -> None:
    """Check what an algorithm sends to another node.

    Raises:
        PluginError: it is not what :meth:`NodeApi.send` takes.
    """
    if not isinstance(to, Peer):
        raise PluginError(f"the receiver is {_kind(to)}, not a Peer")
    if not isinstance(data, bytes):
        raise PluginError(f"the data is {_kind(data)}, not bytes")
    _check_turn(turn)


def check_address(host: str, port: int) -> None:
    """Check where a session is to be created to.

    Raises:
        PluginError: nobody can be there.
    """
    if not isinstance(host, str) or not 0 < len(host) <= LONGEST_HOST or not host.isprintable():
        raise PluginError(f"{_shown(host)[:80]!r} is no host")
    if not isinstance(port, int) or not 0 < port <= 0xFFFF:
        raise PluginError(f"{port!r} is no TCP port")


def check_bytes(data: bytes, what: str = "message") -> None:
    """Check what goes out on a session, or is to be kept.

    Raises:
        PluginError: it is not bytes.
    """
    if not isinstance(data, bytes):
        raise PluginError(f"the {what} is {_kind(data)}, not bytes")


def check_packets(message: bytes, version: Version) -> None:
    """Check what goes out on a session that is relayed.

    Raises:
        PluginError: it is not whole packets: what is relayed after it would not be understood.
    """
    framer = Framer()
    try:
        frames = framer.feed(message)
        for frame in frames:
            decode(frame, version)
    except MqttError as error:
        raise PluginError(f"the message is no MQTT: {error}") from None
    if framer.pending or not frames:
        raise PluginError(f"the message of {len(message)} bytes does not end with a packet")


def check_delay(delay: float) -> None:
    """Check a time in seconds.

    Raises:
        PluginError: it is negative, no number, or longer than a century.
    """
    if not isinstance(delay, int | float) or not 0 <= delay <= _CENTURY:
        raise PluginError(f"a delay of {_shown(delay)} s")


def checked_qos(qos: int) -> int:
    """A QoS an algorithm has named.

    Raises:
        PluginError: it is none.
    """
    if not isinstance(qos, int) or not 0 <= qos <= 2:
        raise PluginError(f"QoS {qos!r}, not 0, 1 or 2")
    return qos


def checked_way(answer: tuple[Link, int] | Via) -> Via:
    """One way of a route; what its link is the caller knows.

    Raises:
        PluginError: it is neither a :class:`Via` nor a link and a QoS, or its QoS or priority is none.
    """
    if not isinstance(answer, tuple) or not 2 <= len(answer) <= 3:
        raise PluginError(f"{_kind(answer)} is no Via, nor a link and a QoS")
    way = Via(*answer)
    checked_qos(way.qos)
    _check_priority(way.priority)
    return way


def checked_ways(answers: Iterable[Any], is_own: Callable[[Link], bool]) -> Iterable[Via]:
    """The ways of a route, each over another link, so that they come to an end.

    Raises:
        PluginError: as :func:`checked_way`; or a link twice, or one that is not this node's.
    """
    ways: dict[Link, Via] = {}
    for answer in answers:
        way = checked_way(answer)
        if way.link in ways:
            raise PluginError(f"the link with {way.link.node_id} comes twice in a route")
        if not is_own(way.link):
            raise PluginError(f"{_kind(way.link)} is not a link of this node")
        ways[way.link] = way
    return ways.values()


def _check_priority(priority: int) -> None:
    if not isinstance(priority, int) or not -8 <= priority <= 7:
        raise PluginError(f"priority {priority!r}, not -8 to 7")


def check_transfer(message: Publish, turn: int, priority: int) -> None:
    """Check a message that is to be transferred.

    Raises:
        PluginError: as :func:`check_message`; or a retained one without its stamp, a turn or a priority
            that is none.
    """
    check_message(message)
    if message.retain and Stamp.of(message) is None:
        raise PluginError(f"{message.topic!r}: a retained message without the stamp of a node")
    _check_turn(turn)
    _check_priority(priority)


def _check_turn(turn: int) -> None:
    if not isinstance(turn, int):
        raise PluginError(f"the turn is {_kind(turn)}, not int")


def check_name(name: str) -> None:
    """Check the name of a counter or a gauge.

    Raises:
        PluginError: it is no text of 1 to 100 printable characters.
    """
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise PluginError(f"a name of 1 to {LONGEST_NAME} printable characters is due, not {_kind(name)}")


def checked_gauge(value: float) -> float:
    """The value of a gauge.

    Raises:
        PluginError: it is no finite number.
    """
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise PluginError(f"a finite number is due, not {_kind(value)}")
    return number


def check_state(key: str, value: bytes) -> None:
    """Check an entry of a plugin's state.

    Raises:
        PluginError: it cannot be kept.
    """
    if not isinstance(key, str):
        raise PluginError(f"the key is {_kind(key)}, not str")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise PluginError(f"the key {key[:80]!r} is no text: it has a surrogate") from None
    if not isinstance(value, bytes):
        raise PluginError(f"the value is {_kind(value)}, not bytes")


def check_identity(identity: tuple[str, int] | None) -> None:
    """Check who a message is.

    Raises:
        PluginError: it is no pair of a text and a number from 1 to 2**64 - 2.
    """
    match identity:
        case None:
            return
        case (str(), int() as number) if 0 < number < _MOST_NUMBER:
            return
    raise PluginError(f"the identity is {_kind(identity)}, not an origin and a number from 1 to 2**64 - 2")


def check_callable(callback: object) -> None:
    """Check what is to be called.

    Raises:
        PluginError: it cannot be.
    """
    if not callable(callback):
        raise PluginError(f"{_kind(callback)} cannot be called")


def as_result(result: object) -> Any:
    """What work handed over has come to; ``sys.exit`` in it is an error like others."""
    if isinstance(result, BaseException) and not isinstance(result, Exception):
        return PluginError(f"the work has ended with {described(result)}")
    return result


def checked_fields(event: str, fields: Mapping[str, object]) -> dict[str, object]:
    """What goes into a line of the log: plain values, cut where they are long.

    A field that is called like one the node writes itself gets a ``_`` behind its name.

    Raises:
        PluginError: the event is no text.
    """
    if not isinstance(event, str):
        raise PluginError(f"the event is {_kind(event)}, not str")
    cut = islice(fields.items(), MOST_FIELDS)
    found = ((_on_one_line(name[:LONGEST_NAME]), value) for name, value in cut)
    return {f"{name}_" if name in _FIELDS_OF_THE_NODE else name: _plain(value, 3) for name, value in found}


def described(error: BaseException) -> str:
    """What a plugin has raised, on one line; whatever the exception makes of itself."""
    try:
        return " ".join(repr(error).split())[:LONGEST_TEXT]
    except Exception:
        return type(error).__name__


def _on_one_line(name: str) -> str:
    """A name of a field, which may be a stranger's: some renderers write it as it is."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _kind(value: object) -> str:
    return f"{type(value).__name__} {_shown(value)[:40]!r}"


def _plain(value: object, depth: int) -> object:
    """A value of which no renderer can stumble over; containers up to some depth."""
    kind = value.__class__
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else "a large number"  # type: ignore[operator]
    if kind is str:
        return value[:LONGEST_TEXT]  # type: ignore[index]
    if depth and isinstance(value, dict):
        pairs = islice(value.items(), MOST_FIELDS)
        return {str(_plain(key, 0)): _plain(item, depth - 1) for key, item in pairs}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1) for item in islice(value, MOST_FIELDS)]
    return _shown(value)


def _shown(value: object) -> str:
    """For people; a value whose text cannot be had is called by its type."""
    try:
        return str(value)[:LONGEST_TEXT]
    except Exception:
        return f"<{type(value).__name__}>"
