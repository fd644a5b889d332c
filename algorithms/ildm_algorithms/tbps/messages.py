"""What nodes of a topic-based overlay send each other, as bytes.

Two kinds of carriers: a *cast* reaches all keys of a range, a *tell* one node. Each payload begins
with its kind. Numbers are big-endian; texts and frames have their length before them.

======== ======= ========================================================================
MESSAGE  cast    number of the message at its origin, place in its stream, PUBLISH frame of MQTT 5
SIGNAL   both    segment, epoch, suspended: SUSPEND and RESUME, also when handed over
QUERY    both    filter: who holds retained messages for it?
MERGED   cast    nothing: this graph was two; show what you hold
FILTERS  cast    filters: QUERY for several, to aggregates, which send there from now on
NEWER    cast    PUBLISH frames of retained messages, to aggregates that may hold older ones
SURVEY   cast    key of an aggregate: which segments below its prefix have subscribers?
NEEDED   cast    to that key: segments with subscribers; none: more of them than can be sent
ASK      tell    segments: what is your status there?
STATUS   tell    answers to ASK, and the status that rides on a join acknowledgement
REPORT   tell    segment, epoch, suspended of a publisher, to the rendezvous point
ANSWER   tell    filter, whether that is all there is, PUBLISH frames of retained messages
MISSED   cast    filters, each with an age; up to which message nodes have offered all: who has more?
                 A node that has lost its state adds until when its earlier life was there
OFFER    both    numbers and ages of messages by topic: whoever lacks some may have them
OFFERED  tell    a question, the number of the last message up to which all is offered
WANT     tell    the offer that has come, numbers of messages that are lacking
LATE     tell    those messages with their ages, numbers of those that are gone
LOST     tell    the sender has lost its state: until when was its earlier life there? Or: it has all again
HEARD    tell    the answer, as an age
======== ======= ========================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ildm_algorithms.exchange.messages import Message, MessageError
from ildm_algorithms.overlay.wire.codec import LONGEST_TEXT
from ildm_algorithms.tbps.keys.encoding import MAX_CODE, KeyFormatError, Segment
from ildm_algorithms.tbps.publishers.publisher import Epoch, Status

__all__ = [
    "Answer",
    "Ask",
    "Filters",
    "Heard",
    "Late",
    "Lost",
    "Merged",
    "Missed",
    "Needed",
    "Newer",
    "Offer",
    "Offered",
    "Payload",
    "Query",
    "Report",
    "Signal",
    "Statuses",
    "Survey",
    "Want",
    "decode_payload",
]

MOST_TEXTS = 10_000
"""In one message; no node sends more at once (``PIECE_BYTES`` of `surveys.py`)."""
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_OFFERED = struct.Struct(">QI")


_COMPLETE = {False: b"\0", True: b"\1", None: b"\2"}
_COMPLETE_OF = {value: key for key, value in _COMPLETE.items()}


@dataclass(frozen=True, slots=True)
class Signal:
    """SUSPEND or RESUME."""

    segment: Segment
    status: Status

    def encode(self) -> bytes:
        return b"S" + _put_status(self.segment, self.status)


@dataclass(frozen=True, slots=True)
class Report:
    """A publisher's status that may be wrong."""

    segment: Segment
    status: Status

    def encode(self) -> bytes:
        return b"R" + _put_status(self.segment, self.status)


@dataclass(frozen=True, slots=True)
class Query:
    """A new subscriber asks for retained messages."""

    topic_filter: str

    def encode(self) -> bytes:
        return b"Q" + self.topic_filter.encode()


@dataclass(frozen=True, slots=True)
class Merged:
    """To all nodes: not all of them have been in one graph so far."""

    again: bool = False
    """A while later: for those whom the first has not reached, or whose questions have not reached all."""

    def encode(self) -> bytes:
        return b"GA" if self.again else b"G"


@dataclass(frozen=True, slots=True)
class Filters:
    """New filters of subscribers in UTF-8, to aggregates that may publish what they match."""

    topic_filters: Sequence[bytes]

    def encode(self) -> bytes:
        return b"I" + b"".join(map(_put, self.topic_filters))


@dataclass(frozen=True, slots=True)
class Newer:
    """Retained messages, stamped by the node where they entered, to those who may hold older ones."""

    frames: Sequence[bytes]

    def encode(self) -> bytes:
        return b"H" + b"".join(map(_put, self.frames))


@dataclass(frozen=True, slots=True)
class Survey:
    """An aggregate asks who subscribes below its prefix."""

    key: bytes

    def encode(self) -> bytes:
        return b"V" + self.key


@dataclass(frozen=True, slots=True)
class Needed:
    """Segments with subscribers; none of them: there are more than can be sent."""

    segments: Sequence[Segment]

    def encode(self) -> bytes:
        return b"N" + b"".join(_put(segment.code) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Ask:
    """A publisher asks its left neighbour about segments."""

    segments: Sequence[Segment]

    def encode(self) -> bytes:
        return b"K" + b"".join(_put(segment.code) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Statuses:
    """A publisher's status in segments."""

    entries: Sequence[tuple[Segment, Status]]

    def encode(self) -> bytes:
        return b"T" + b"".join(_put_status(segment, status) for segment, status in self.entries)


@dataclass(frozen=True, slots=True)
class Answer:
    """Retained messages, stamped by the nodes where they entered.

    ``complete`` True: a subscriber with the same interest answers, and this is the last of what it has;
    False: it does not know everything itself yet; None: others may answer as well.
    """

    topic_filter: str
    complete: bool | None
    frames: Sequence[bytes]

    def encode(self) -> bytes:
        head = b"A" + _COMPLETE[self.complete] + _put(self.topic_filter.encode())
        return head + b"".join(map(_put, self.frames))


@dataclass(frozen=True, slots=True)
class Missed:
    """A subscriber that was away asks publishers: filters, and for each how old a message may be (ms)."""

    filters: Sequence[tuple[str, int]]
    number: int = 0
    """Of the question: who has offered all says so. 0: that is not needed."""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """Nodes that have said so before, and up to which message: older ones are not missing."""
    heard: int | None = None
    """Of a node that has lost its state: milliseconds since its earlier life was there. It wants what was not
    acknowledged by all then."""

    def encode(self) -> bytes:
        parts = [b"X"] if self.heard is None else [b"Y", _U32.pack(self.heard)]
        parts += (_U32.pack(self.number), _U32.pack(len(self.confirmed)))
        for origin, number in self.confirmed.items():
            parts += _put(origin.encode()), _U64.pack(number)
        parts += (_U32.pack(age) + _put(name.encode()) for name, age in self.filters)
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Offer:
    """A publisher tells what it has: topics, and the numbers and ages (ms) of messages on them.

    ``number``: of the offer, to be answered with a WANT; 0: only who lacks something answers.
    """

    number: int
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]

    def encode(self) -> bytes:
        parts = [b"O", _U64.pack(self.number)]
        for topic, messages in self.topics:
            parts += _put(topic.encode()), _U32.pack(len(messages))
            parts += (_OFFERED.pack(*message) for message in messages)
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Offered:
    """A publisher has offered all that a question asks for, up to a message of its own."""

    question: int
    number: int

    def encode(self) -> bytes:
        return b"U" + _U32.pack(self.question) + _U64.pack(self.number)


@dataclass(frozen=True, slots=True)
class Want:
    """An offer (0: none) has come; these messages are lacking."""

    offer: int
    numbers: Sequence[int]

    def encode(self) -> bytes:
        return b"W" + b"".join(map(_U64.pack, (self.offer, *self.numbers)))


@dataclass(frozen=True, slots=True)
class Late:
    """Messages that were requested: ages (ms), encoded :class:`Message`; numbers of those that are gone."""

    last: bool
    """Nothing else follows to what was requested; what is lacking yet may be requested again."""
    gone: Sequence[int]
    messages: Sequence[tuple[int, bytes]]

    def encode(self) -> bytes:
        head = b"F" + (b"\1" if self.last else b"\0") + _U32.pack(len(self.gone))
        gone = b"".join(map(_U64.pack, self.gone))
        return head + gone + b"".join(_U32.pack(age) + _put(message) for age, message in self.messages)


@dataclass(frozen=True, slots=True)
class Lost:
    """The sender has lost its state, and asks until when its earlier life was there."""

    over: bool = False
    """It has fetched all it lacked."""

    def encode(self) -> bytes:
        return b"BE" if self.over else b"B"


@dataclass(frozen=True, slots=True)
class Heard:
    """Milliseconds since an earlier life of the receiver was there."""

    age: int

    def encode(self) -> bytes:
        return b"P" + _U32.pack(self.age)


Payload = (
    Message
    | Signal
    | Report
    | Query
    | Merged
    | Filters
    | Newer
    | Survey
    | Needed
    | Ask
    | Statuses
    | Answer
    | Missed
    | Offer
    | Offered
    | Want
    | Late
    | Lost
    | Heard
)


def decode_payload(data: bytes) -> Payload:
    """Read a payload.

    Raises:
        MessageError: it is none.
    """
    try:
        read = _READERS.get(data[:1])
        if read is None:
            raise MessageError(f"unknown kind {data[:1]!r}")
        return read(data)
    except (struct.error, UnicodeDecodeError, KeyFormatError) as error:
        raise MessageError(f"malformed payload: {error}") from error


def _put(text: bytes) -> bytes:
    return _U32.pack(len(text)) + text


def _put_status(segment: Segment, status: Status) -> bytes:
    epoch = status.epoch
    return (
        _put(segment.code)
        + _U64.pack(epoch.number)
        + _put(epoch.node_id.encode())
        + (b"\1" if status.suspended else b"\0")
    )


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + int(_U32.unpack_from(data, at)[0])
    if end > len(data):
        raise MessageError("cut off")
    return data[start:end], end


def _segment(code: bytes) -> Segment:
    if len(code) > MAX_CODE:
        raise MessageError(f"{len(code)} bytes that are no segment")
    segment = Segment(code)
    _ = segment.levels  # raises if the code is none
    return segment


def _texts(data: bytes) -> Iterable[bytes]:
    at = 1
    count = 0
    while at < len(data):
        text, at = _take(data, at)
        yield text
        count += 1
        if count > MOST_TEXTS:
            raise MessageError(f"more than {MOST_TEXTS} texts in one message")


def _segments(data: bytes) -> Iterable[Segment]:
    return map(_segment, _texts(data))


def _statuses(data: bytes) -> Iterable[tuple[Segment, Status]]:
    at = 1
    while at < len(data):
        code, at = _take(data, at)
        number = _U64.unpack_from(data, at)[0]
        node_id, at = _take(data, at + 8)
        if len(node_id) > LONGEST_TEXT:
            raise MessageError(f"the name of a node has {len(node_id)} bytes")
        flag = data[at : at + 1]
        if flag not in (b"\0", b"\1"):
            raise MessageError("no status")
        at += 1
        yield _segment(code), Status(Epoch(number, node_id.decode()), flag == b"\1")


def _one_status(data: bytes) -> tuple[Segment, Status]:
    entries = list(_statuses(data))
    if len(entries) != 1:
        raise MessageError(f"{len(entries)} statuses where one is due")
    return entries[0]


def _answer(data: bytes) -> Answer:
    if data[1:2] not in _COMPLETE_OF:
        raise MessageError("no answer")
    topic_filter, at = _take(data, 2)
    frames = []
    while at < len(data):
        frame, at = _take(data, at)
        frames.append(frame)
    return Answer(topic_filter.decode(), _COMPLETE_OF[data[1:2]], frames)


def _missed(data: bytes, start: int = 1, heard: int | None = None) -> Missed:
    confirmed = {}
    at = start + 8
    for _ in range(_U32.unpack_from(data, start + 4)[0]):
        origin, at = _take(data, at)
        confirmed[origin.decode()] = _U64.unpack_from(data, at)[0]
        at += _U64.size
    return Missed(_aged_filters(data, at), _U32.unpack_from(data, start)[0], confirmed, heard)


def _aged_filters(data: bytes, at: int) -> list[tuple[str, int]]:
    filters = []
    while at < len(data):
        age = _U32.unpack_from(data, at)[0]
        name, at = _take(data, at + 4)
        filters.append((name.decode(), age))
    return filters


def _offered(data: bytes) -> Iterable[tuple[str, Sequence[tuple[int, int]]]]:
    at = 9
    while at < len(data):
        topic, at = _take(data, at)
        start = at + 4
        at = start + int(_U32.unpack_from(data, at)[0]) * _OFFERED.size
        if at > len(data):
            raise MessageError("cut off")
        yield topic.decode(), [(number, age) for number, age in _OFFERED.iter_unpack(data[start:at])]


def _numbers(data: bytes) -> Sequence[int]:
    if not data:
        raise MessageError("no number")
    return [number for (number,) in _U64.iter_unpack(data)]


def _late(data: bytes) -> Late:
    if data[1:2] not in (b"\0", b"\1"):
        raise MessageError("no late messages")
    end = 6 + int(_U32.unpack_from(data, 2)[0]) * _U64.size
    if end > len(data):
        raise MessageError("cut off")
    gone = _numbers(data[6:end]) if end > 6 else []
    messages = []
    at = end
    while at < len(data):
        age = _U32.unpack_from(data, at)[0]
        message, at = _take(data, at + 4)
        messages.append((age, message))
    return Late(data[1:2] == b"\1", gone, messages)


def _merged(data: bytes) -> Merged:
    if data not in (b"G", b"GA"):
        raise MessageError("no merge")
    return Merged(again=len(data) > 1)


def _filters(data: bytes) -> Filters:
    filters = Filters(list(_texts(data)))
    for topic_filter in filters.topic_filters:
        topic_filter.decode()  # raises if it is no UTF-8
    return filters


def _offered_all(data: bytes) -> Offered:
    if len(data) != 1 + _U32.size + _U64.size:
        raise MessageError("cut off")
    return Offered(_U32.unpack_from(data, 1)[0], _U64.unpack_from(data, 5)[0])


def _lost(data: bytes) -> Lost:
    if data not in (b"B", b"BE"):
        raise MessageError("no word of a node without state")
    return Lost(over=len(data) > 1)


def _want(data: bytes) -> Want:
    offer, *numbers = _numbers(data[1:])
    return Want(offer, numbers)


_READERS: Mapping[bytes, Callable[[bytes], Payload]] = {
    b"M": Message.decode,
    b"S": lambda data: Signal(*_one_status(data)),
    b"R": lambda data: Report(*_one_status(data)),
    b"Q": lambda data: Query(data[1:].decode()),
    b"G": _merged,
    b"I": _filters,
    b"H": lambda data: Newer(list(_texts(data))),
    b"V": lambda data: Survey(data[1:]),
    b"N": lambda data: Needed(list(_segments(data))),
    b"K": lambda data: Ask(list(_segments(data))),
    b"T": lambda data: Statuses(list(_statuses(data))),
    b"A": _answer,
    b"L": lambda data: Missed(_aged_filters(data, 1)),  # before nodes confirmed what they had offered
    b"X": _missed,
    b"Y": lambda data: _missed(data, 5, _U32.unpack_from(data, 1)[0]),
    b"O": lambda data: Offer(_U64.unpack_from(data, 1)[0], list(_offered(data))),
    b"U": _offered_all,
    b"W": _want,
    b"F": _late,
    b"B": _lost,
    b"P": lambda data: Heard(_U32.unpack_from(data, 1)[0]),
}
"""What reads a payload, by its kind."""
