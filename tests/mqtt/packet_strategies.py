"""Hypothesis strategies for valid packets of each version, and which property belongs where.

The tables here are written from the standard a second time, independent of the codec's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)

T = PacketType
P = Property
WILL = "will"
VERSIONS = list(Version)

characters = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
text = st.text(characters, max_size=12)
level = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0+#/"), max_size=5)
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
plain_filters = (
    st.tuples(
        st.lists(level | st.just("+"), min_size=1, max_size=4).map("/".join), st.sampled_from(("", "/#"))
    )
    .map("".join)
    .filter(lambda f: f and not f.startswith("$share/"))
)
shared_filters = st.builds("$share/{}/{}".format, level.filter(bool), plain_filters)
payloads = st.binary(max_size=200)
packet_ids = st.integers(1, 65_535)
flag = st.integers(0, 1)
u16 = st.integers(0, 65_535)
u32 = st.integers(0, 2**32 - 1)
binary = st.binary(max_size=20)

VALUES: dict[Property, st.SearchStrategy[Any]] = {
    P.PAYLOAD_FORMAT_INDICATOR: flag,
    P.MESSAGE_EXPIRY_INTERVAL: u32,
    P.CONTENT_TYPE: text,
    P.RESPONSE_TOPIC: topics,
    P.CORRELATION_DATA: binary,
    P.SUBSCRIPTION_IDENTIFIER: st.integers(1, 268_435_455).map(lambda n: [n]),
    P.SESSION_EXPIRY_INTERVAL: u32,
    P.ASSIGNED_CLIENT_IDENTIFIER: text,
    P.SERVER_KEEP_ALIVE: u16,
    P.AUTHENTICATION_METHOD: text,
    P.AUTHENTICATION_DATA: binary,
    P.REQUEST_PROBLEM_INFORMATION: flag,
    P.WILL_DELAY_INTERVAL: u32,
    P.REQUEST_RESPONSE_INFORMATION: flag,
    P.RESPONSE_INFORMATION: text,
    P.SERVER_REFERENCE: text,
    P.REASON_STRING: text,
    P.RECEIVE_MAXIMUM: st.integers(1, 65_535),
    P.TOPIC_ALIAS_MAXIMUM: u16,
    P.TOPIC_ALIAS: st.integers(1, 65_535),
    P.MAXIMUM_QOS: flag,
    P.RETAIN_AVAILABLE: flag,
    P.USER_PROPERTY: st.lists(st.tuples(text, text), min_size=1, max_size=4),
    P.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
    P.WILDCARD_SUBSCRIPTION_AVAILABLE: flag,
    P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: flag,
    P.SHARED_SUBSCRIPTION_AVAILABLE: flag,
}

_MESSAGE = {
    P.PAYLOAD_FORMAT_INDICATOR,
    P.MESSAGE_EXPIRY_INTERVAL,
    P.CONTENT_TYPE,
    P.RESPONSE_TOPIC,
    P.CORRELATION_DATA,
    P.USER_PROPERTY,
}
_ACK = {P.REASON_STRING, P.USER_PROPERTY}

ALLOWED: dict[PacketType | str, set[Property]] = {
    T.CONNECT: {
        P.SESSION_EXPIRY_INTERVAL,
        P.RECEIVE_MAXIMUM,
        P.MAXIMUM_PACKET_SIZE,
        P.TOPIC_ALIAS_MAXIMUM,
        P.REQUEST_RESPONSE_INFORMATION,
        P.REQUEST_PROBLEM_INFORMATION,
        P.USER_PROPERTY,
        P.AUTHENTICATION_METHOD,
        P.AUTHENTICATION_DATA,
    },
    WILL: _MESSAGE | {P.WILL_DELAY_INTERVAL},
    T.CONNACK: {
        P.SESSION_EXPIRY_INTERVAL,
        P.RECEIVE_MAXIMUM,
        P.MAXIMUM_QOS,
        P.RETAIN_AVAILABLE,
        P.MAXIMUM_PACKET_SIZE,
        P.ASSIGNED_CLIENT_IDENTIFIER,
        P.TOPIC_ALIAS_MAXIMUM,
        P.REASON_STRING,
        P.USER_PROPERTY,
        P.WILDCARD_SUBSCRIPTION_AVAILABLE,
        P.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        P.SHARED_SUBSCRIPTION_AVAILABLE,
        P.SERVER_KEEP_ALIVE,
        P.RESPONSE_INFORMATION,
        P.SERVER_REFERENCE,
        P.AUTHENTICATION_METHOD,
        P.AUTHENTICATION_DATA,
    },
    T.PUBLISH: _MESSAGE | {P.TOPIC_ALIAS, P.SUBSCRIPTION_IDENTIFIER},
    T.PUBACK: _ACK,
    T.PUBREC: _ACK,
    T.PUBREL: _ACK,
    T.PUBCOMP: _ACK,
    T.SUBSCRIBE: {P.SUBSCRIPTION_IDENTIFIER, P.USER_PROPERTY},
    T.SUBACK: _ACK,
    T.UNSUBSCRIBE: {P.USER_PROPERTY},
    T.UNSUBACK: _ACK,
    T.DISCONNECT: {P.SESSION_EXPIRY_INTERVAL, P.REASON_STRING, P.USER_PROPERTY, P.SERVER_REFERENCE},
    T.AUTH: {P.AUTHENTICATION_METHOD, P.AUTHENTICATION_DATA, P.REASON_STRING, P.USER_PROPERTY},
}

REASONS: dict[PacketType, tuple[int, ...]] = {
    T.CONNACK: (0, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 140, 144, 149, 151, 153, 154, 155,
                156, 157, 159),
    T.PUBACK: (0, 16, 128, 131, 135, 144, 145, 151, 153),
    T.PUBREC: (0, 16, 128, 131, 135, 144, 145, 151, 153),
    T.PUBREL: (0, 146),
    T.PUBCOMP: (0, 146),
    T.SUBACK: (0, 1, 2, 128, 131, 135, 143, 145, 151, 158, 161, 162),
    T.UNSUBACK: (0, 17, 128, 131, 135, 143, 145),
    T.DISCONNECT: (0, 4, 128, 129, 130, 131, 135, 137, 139, 140, 141, 142, 143, 144, 147, 148, 149, 150, 151,
                   152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162),
    T.AUTH: (0, 24, 25),
}  # fmt: skip


@st.composite
def properties(draw: st.DrawFn, where: PacketType | str, version: Version) -> dict[Property, Any]:
    """Any properties that may stand in ``where``; none before MQTT 5."""
    if version is not Version.V5:
        return {}
    chosen = draw(st.lists(st.sampled_from(sorted(ALLOWED[where])), unique=True, max_size=4))
    if where is T.AUTH and P.AUTHENTICATION_METHOD not in chosen:
        chosen.append(P.AUTHENTICATION_METHOD)
    if where is T.CONNECT and P.AUTHENTICATION_DATA in chosen and P.AUTHENTICATION_METHOD not in chosen:
        chosen.append(P.AUTHENTICATION_METHOD)
    found = {each: draw(VALUES[each]) for each in chosen}
    if where is T.PUBLISH and P.SUBSCRIPTION_IDENTIFIER in found:
        found[P.SUBSCRIPTION_IDENTIFIER] = draw(st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3))
    return found


@st.composite
def wills(draw: st.DrawFn, version: Version) -> Will:
    return Will(
        topic=draw(topics),
        payload=draw(payloads),
        qos=draw(st.integers(0, 2)),
        retain=draw(st.booleans()),
        properties=draw(properties(WILL, version)),
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    v5 = version is Version.V5
    username = draw(st.none() | text)
    clean_start = draw(st.booleans())
    client_id = draw(text if v5 or (clean_start and version is Version.V311) else text.filter(bool))
    return Connect(
        client_id=client_id,
        version=version,
        clean_start=clean_start,
        keep_alive=draw(u16),
        username=username,
        password=draw(st.none() | binary) if v5 or username is not None else None,
        will=draw(st.none() | wills(version)),
        properties=draw(properties(T.CONNECT, version)),
        bridge=not v5 and draw(st.booleans()),
    )


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> ConnAck:
    reason_code = draw(st.sampled_from(REASONS[T.CONNACK] if version is Version.V5 else range(6)))
    present = version is not Version.V31 and reason_code == 0 and draw(st.booleans())
    return ConnAck(
        session_present=present,
        reason_code=reason_code,
        properties=draw(properties(T.CONNACK, version)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: Version) -> Publish:
    qos = draw(st.integers(0, 2))
    found = draw(properties(T.PUBLISH, version))
    return Publish(
        topic=draw(st.just("") | topics if P.TOPIC_ALIAS in found else topics),
        payload=draw(payloads),
        qos=qos,
        retain=draw(st.booleans()),
        dup=qos > 0 and draw(st.booleans()),
        packet_id=draw(packet_ids) if qos else None,
        properties=found,
    )


def acknowledgements(
    cls: type[PubAck] | type[PubRec] | type[PubRel] | type[PubComp], version: Version
) -> st.SearchStrategy[Packet]:
    codes = REASONS[cls.type] if version is Version.V5 else (0,)
    return st.builds(
        cls,
        packet_id=packet_ids,
        reason_code=st.sampled_from(codes),
        properties=properties(cls.type, version),
    )


@st.composite
def subscriptions(draw: st.DrawFn, version: Version) -> Subscription:
    if version is not Version.V5:
        return Subscription(topic_filter=draw(plain_filters), qos=draw(st.integers(0, 2)))
    shared = draw(st.booleans())
    return Subscription(
        topic_filter=draw(shared_filters if shared else plain_filters),
        qos=draw(st.integers(0, 2)),
        no_local=not shared and draw(st.booleans()),
        retain_as_published=draw(st.booleans()),
        retain_handling=draw(st.integers(0, 2)),
    )


def _codes(type: PacketType, version: Version) -> st.SearchStrategy[list[int]]:
    if version is not Version.V5:
        return st.just([]) if type is T.UNSUBACK else st.lists(st.sampled_from((0, 1, 2, 128)), min_size=1)
    return st.lists(st.sampled_from(REASONS[type]), min_size=1, max_size=5)


_BUILDERS: dict[PacketType, Callable[[Version], st.SearchStrategy[Any]]] = {
    T.CONNECT: connects,
    T.CONNACK: connacks,
    T.PUBLISH: publishes,
    T.PUBACK: lambda v: acknowledgements(PubAck, v),
    T.PUBREC: lambda v: acknowledgements(PubRec, v),
    T.PUBREL: lambda v: acknowledgements(PubRel, v),
    T.PUBCOMP: lambda v: acknowledgements(PubComp, v),
    T.SUBSCRIBE: lambda v: st.builds(
        Subscribe,
        packet_id=packet_ids,
        subscriptions=st.lists(subscriptions(v), min_size=1, max_size=4),
        properties=properties(T.SUBSCRIBE, v),
    ),
    T.SUBACK: lambda v: st.builds(
        SubAck, packet_id=packet_ids, reason_codes=_codes(T.SUBACK, v), properties=properties(T.SUBACK, v)
    ),
    T.UNSUBSCRIBE: lambda v: st.builds(
        Unsubscribe,
        packet_id=packet_ids,
        topic_filters=st.lists(
            plain_filters | shared_filters if v is Version.V5 else plain_filters, min_size=1, max_size=4
        ),
        properties=properties(T.UNSUBSCRIBE, v),
    ),
    T.UNSUBACK: lambda v: st.builds(
        UnsubAck,
        packet_id=packet_ids,
        reason_codes=_codes(T.UNSUBACK, v),
        properties=properties(T.UNSUBACK, v),
    ),
    T.PINGREQ: lambda v: st.just(PingReq()),
    T.PINGRESP: lambda v: st.just(PingResp()),
    T.DISCONNECT: lambda v: st.builds(
        Disconnect,
        reason_code=st.sampled_from(REASONS[T.DISCONNECT] if v is Version.V5 else (0,)),
        properties=properties(T.DISCONNECT, v),
    ),
    T.AUTH: lambda v: st.builds(
        Auth, reason_code=st.sampled_from(REASONS[T.AUTH]), properties=properties(T.AUTH, v)
    ),
}


def types(version: Version) -> list[PacketType]:
    """The packet types a version has."""
    return [type for type in PacketType if type is not T.AUTH or version is Version.V5]


def packets_of(type: PacketType, version: Version) -> st.SearchStrategy[Any]:
    """Valid packets of one type."""
    return _BUILDERS[type](version)


def packets(version: Version) -> st.SearchStrategy[Any]:
    """Valid packets of any type."""
    return st.one_of([packets_of(type, version) for type in types(version)])
