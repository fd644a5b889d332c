"""Messages between OctopiA's nodes, and their formats (see :mod:`ildm_algorithms.overlay.wire.codec`).

========= ======================= ==================================================================
HELLO     cluster, region         who the sender is, whom it hears, how far its tables are
REFUSED   one                     the sender's grid is another
BYE       cluster, region         the sender stops
RELAY     cluster                 data for a node to which there is no direct link just now
SUBS      primary neighbours      SUB, UNSUB: what a home's clients want from now on, or all of it
FETCH     primary neighbour       a home's set of subscriptions is lacking
ADVERTS   secondary neighbours    ADV, UNADV: what the sender's clients publish from now on, or all of it
AGAIN     secondary neighbour     something of ADVERTS is lacking
CIVS      secondary neighbour     CIV_SET, CIV_UNSET: what the sender's cluster wants of that
PUB       both                    a message of a client, with the clusters this copy is to serve (CIV_p)
ACK       the same                all that a copy was to reach has it, or cannot be reached
OWED      any                     there are messages that your cluster may have missed
ASK       any                     which messages match these filters since?
FORGOT    any                     which of them has this node not acknowledged? It has lost its state
OFFER     any                     their numbers
WANT      any                     those that are lacking
LATE      any                     those messages
DIGESTS   any                     digests of the retained messages by hash of the topic
HELD      any                     retained messages
TRACE     both                    where would a message go?
TRACED    the same                there
========= ======================= ==================================================================

Members, regions and clusters are named by number: their place in what the grid lists (the same at all nodes,
as HELLO makes sure). Times are sent as ages, since nobody's clock is anybody else's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ildm.mqtt import MqttError, validate_topic_filter
from ildm_algorithms.octopia.content.content import (
    ANYTHING,
    ContentError,
    ContentFilter,
    ExpressionLimits,
    parse,
)
from ildm_algorithms.octopia.tables.tables import Civ, CivSet, CivUnset
from ildm_algorithms.overlay.wire.codec import (
    FLAG,
    KEY,
    PAYLOAD,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Codec,
    Field,
    Format,
    OverlayError,
    many,
    record,
)

__all__ = [
    "CODEC",
    "GONE",
    "Ack",
    "Acked",
    "AdvertEntry",
    "Adverts",
    "Again",
    "Ask",
    "Asked",
    "Bye",
    "Civs",
    "Digests",
    "Fetch",
    "Forgot",
    "Held",
    "Hello",
    "HelloReport",
    "Late",
    "LateOne",
    "News",
    "Offer",
    "OverlayError",
    "Owed",
    "Pub",
    "Refused",
    "Relay",
    "SetVersion",
    "Subs",
    "SubscriptionEntry",
    "Trace",
    "Traced",
    "Want",
]

LIMITS = ExpressionLimits(65_535, 1_000)
"""Of expressions from other nodes: names in them are spelled out, and more is escaped than has to be."""
REMEMBERED = 512
"""Characters of a filter at most that is remembered: it comes again in other messages."""
GONE = 3
"""In the place of a QoS: the filter, or the advertisement, is withdrawn."""


class News(NamedTuple):
    """A member as the sender knows it."""

    member: int
    incarnation: int
    address: str


class HelloReport(NamedTuple):
    """A member that the sender hears itself, and the last HELLO it has had from it."""

    member: int
    beat: int


class SetVersion(NamedTuple):
    """How far the sender has a home's set of subscriptions."""

    member: int
    incarnation: int
    version: int


class Hello(NamedTuple):
    digest: bytes
    """Of the grid."""
    incarnation: int
    """Grows with each start of the node: milliseconds of Unix time, at least."""
    beat: int
    """Number of this HELLO of the sender to anybody."""
    answer: bool
    """The sender wants a HELLO in return at once."""
    address: str
    session: int
    """Number of the session of advertisements from the sender to the receiver; 0: none."""
    adverts: int
    """ADVERTS sent in it."""
    civ_session: int
    """The same of that from the receiver to the sender, and CIVS sent in it."""
    civs: int
    retained: int
    """Digest of all retained messages."""
    clusters: tuple[int, ...]
    """Those that the sender has a live neighbour in."""
    absent: tuple[int, ...]
    """Nodes of the sender's cluster that its tables say nothing of: what they want is not in its CIVS."""
    sets: tuple[SetVersion, ...]
    reports: tuple[HelloReport, ...]
    news: tuple[News, ...]


class Refused(NamedTuple):
    digest: bytes
    reason: str


class Bye(NamedTuple):
    incarnation: int


class Relay(NamedTuple):
    origin: int
    target: int
    data: bytes


class SubscriptionEntry(NamedTuple):
    """A subscription with its QoS, or :data:`GONE`."""

    content: ContentFilter
    qos: int


class Subs(NamedTuple):
    home: int
    incarnation: int
    version: int
    """Of the set after this; of one with more than one part after the last."""
    part: int
    parts: int
    """0: changes, each of which makes a version; else one of so many parts of the whole set."""
    entries: tuple[SubscriptionEntry, ...]


class Fetch(NamedTuple):
    home: int


class AdvertEntry(NamedTuple):
    """An advertisement by its uid; with :data:`GONE` it is withdrawn."""

    uid: int
    state: int
    content: ContentFilter


class Adverts(NamedTuple):
    session: int
    number: int
    """In the session, from 1."""
    entries: tuple[AdvertEntry, ...]


class Again(NamedTuple):
    session: int


class Civs(NamedTuple):
    session: int
    number: int
    changes: tuple[Civ, ...]


class Pub(NamedTuple):
    root: int
    cast: int
    """This spreading of the message: a node that sends it anew on another way is root of another."""
    origin: int
    number: int
    age: int
    """Milliseconds since it was published."""
    turn: int
    reliable: bool
    everywhere: bool
    """To all nodes: a retained message."""
    clusters: tuple[int, ...]
    tried: tuple[int, ...]
    """Regions, in a search for a way to those clusters."""
    frame: bytes
    """PUBLISH of MQTT 5."""


class Acked(NamedTuple):
    root: int
    cast: int
    under_way: bool
    """It will be acknowledged later."""
    missed: tuple[int, ...]
    """Members that may want it and have not got it, as they cannot be reached."""


class Ack(NamedTuple):
    casts: tuple[Acked, ...]


class Owed(NamedTuple):
    age: int
    """Milliseconds since the first message was published that the receiver may have missed."""


class Asked(NamedTuple):
    content: ContentFilter
    age: int
    """Milliseconds since clients subscribe to it, or it may have been missed."""


class Ask(NamedTuple):
    question: int
    age: int
    """Milliseconds since which something may have been missed; no filters: nothing is subscribed to."""
    filters: tuple[Asked, ...]


class Forgot(NamedTuple):
    """As :class:`Ask`, of a node that does not know what it has had before."""

    question: int
    age: int
    filters: tuple[Asked, ...]


class Numbered(NamedTuple):
    number: int
    age: int


class Offer(NamedTuple):
    question: int
    page: int
    last: bool
    messages: tuple[Numbered, ...]


class Want(NamedTuple):
    question: int
    page: int
    """The next one that is requested, when no messages are; all that was offered before is there."""
    numbers: tuple[int, ...]


class LateOne(NamedTuple):
    age: int
    payload: bytes
    """An encoded :class:`ildm_algorithms.exchange.messages.Message`."""


class Late(NamedTuple):
    question: int
    last: bool
    """Of the answer to one WANT."""
    gone: tuple[int, ...]
    messages: tuple[LateOne, ...]


class Digests(NamedTuple):
    answer: bool
    """The receiver's own are requested in return."""
    buckets: bytes


class Held(NamedTuple):
    frames: tuple[bytes, ...]


class Trace(NamedTuple):
    number: int
    topic: str
    depth: int
    clusters: tuple[int, ...]
    tried: tuple[int, ...]


class Traced(NamedTuple):
    number: int
    tree: bytes
    """JSON of an :class:`~ildm.api.TreeNode`."""


# formats ------------------------------------------------------------------------------------------

_put_key, _get_key = KEY


def _put_topic(text: str) -> bytes:
    return _put_key(text.encode())


def _get_topic(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _get_key(data, at)
    return raw.decode(), at


TOPIC: Field = _put_topic, _get_topic
"""Text of any length that MQTT allows."""


def _put_content(content: ContentFilter) -> bytes:
    return _put_topic(content.topic_filter) + _put_topic(content.expression.format())


def _get_content(data: bytes, at: int) -> tuple[ContentFilter, int]:
    topic_filter, at = _get_topic(data, at)
    text, at = _get_topic(data, at)
    if len(topic_filter) + len(text) <= REMEMBERED:
        return _content(topic_filter, text), at
    return _content.__wrapped__(topic_filter, text), at


@lru_cache(maxsize=8_192)
def _content(topic_filter: str, text: str) -> ContentFilter:
    try:
        validate_topic_filter(topic_filter)
        expression = parse(text, limits=LIMITS) if text else ANYTHING
    except (MqttError, ContentError) as error:
        raise OverlayError(f"a filter of another node that is none: {error}") from error
    return ContentFilter(topic_filter, expression)


CONTENT: Field = _put_content, _get_content


def _list(field: Field) -> Field:
    return many(*field)


_UIDS = _list(U64)
_FILTERS = _list(CONTENT)
_BIT, _FILTERED = 1, 2


def _put_civ(civ: Civ) -> bytes:
    kind = _BIT * isinstance(civ, CivSet) | _FILTERED * (civ.filters is not None)
    return bytes([kind]) + _UIDS[0](civ.uids) + (_FILTERS[0](civ.filters) if civ.filters is not None else b"")


def _get_civ(data: bytes, at: int) -> tuple[Civ, int]:
    kind = data[at]
    uids, at = _UIDS[1](data, at + 1)
    filters: tuple[ContentFilter, ...] | None = None
    if kind & _FILTERED:
        filters, at = _FILTERS[1](data, at)
    return (CivSet if kind & _BIT else CivUnset)(uids, filters), at


def _records(kind: Any, *fields: Field) -> Field:
    return _list(record(kind, *fields))


_NUMBERS = _list(U16)

CODEC = Codec(
    [
        Format(
            1,
            Hello,
            (
                *(KEY, U64, U32, FLAG, TEXT, U32, U32, U32, U32, U64, _NUMBERS, _NUMBERS),
                _records(SetVersion, U16, U64, U32),
                _records(HelloReport, U16, U32),
                _records(News, U16, U64, TEXT),
            ),
        ),
        Format(2, Refused, (KEY, TEXT)),
        Format(3, Bye, (U64,)),
        Format(4, Relay, (U16, U16, PAYLOAD)),
        Format(5, Subs, (U16, U64, U32, U32, U32, _records(SubscriptionEntry, CONTENT, U8))),
        Format(6, Fetch, (U16,)),
        Format(7, Adverts, (U32, U32, _records(AdvertEntry, U64, U8, CONTENT))),
        Format(8, Again, (U32,)),
        Format(9, Civs, (U32, U32, _list((_put_civ, _get_civ)))),
        Format(10, Pub, (U16, U64, U16, U64, U32, U16, FLAG, FLAG, _NUMBERS, _NUMBERS, PAYLOAD)),
        Format(11, Ack, (_records(Acked, U16, U64, FLAG, _NUMBERS),)),
        Format(12, Owed, (U32,)),
        Format(13, Ask, (U32, U32, _records(Asked, CONTENT, U32))),
        Format(14, Offer, (U32, U32, FLAG, _records(Numbered, U64, U32))),
        Format(15, Want, (U32, U32, _list(U64))),
        Format(16, Late, (U32, FLAG, _list(U64), _records(LateOne, U32, PAYLOAD))),
        Format(17, Digests, (FLAG, PAYLOAD)),
        Format(18, Held, (_list(PAYLOAD),)),
        Format(19, Trace, (U32, TOPIC, U16, _NUMBERS, _NUMBERS)),
        Format(20, Traced, (U32, PAYLOAD)),
        Format(21, Forgot, (U32, U32, _records(Asked, CONTENT, U32))),
    ]
)
