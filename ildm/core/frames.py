"""The hot loops of the data path: runs of like frames, and a scanner that looks at headers only.

A busy connection carries long runs of PUBLISH frames that begin with the same bytes: same flags, same
length, same topic. One ``bytes.startswith`` then recognises the next frame of the run, at a fraction
of the cost of parsing it, and a whole run is relayed, transferred or injected as one slice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ildm.mqtt import MalformedPacket, Property, decode_varint, encode_varint, frame_bounds
from ildm.mqtt.properties import property_at

PUBLISH = 0x30
"""First byte of a PUBLISH with QoS 0 and neither DUP nor RETAIN."""
PUBLISH_QOS_1 = 0x32
"""The same with QoS 1."""
PUBLISH_QOS_2 = 0x34
"""The same with QoS 2."""
QOS = 0x06
"""The bits of its QoS."""
DUP = 0x08
"""The flag of a PUBLISH that was sent before (MQTT-3.3.1-1)."""
NOT_RETAINED = bytes((PUBLISH, PUBLISH_QOS_1, PUBLISH_QOS_2, PUBLISH_QOS_1 | DUP, PUBLISH_QOS_2 | DUP))
"""First bytes of what may be part of a run."""
RETAIN = 0x01
"""The flag of a retained PUBLISH (MQTT 5, 3.3.1.3)."""
LONG_RUN = 4
"""With so many like frames it is worth while to look at all of them together."""


MAX_PROPERTIES = 1024
"""Known at once, each of less than 128 bytes: a publisher mostly sends the same with every message."""
_PROPERTIES: set[bytes] = set()
Run = tuple[int, int, bytes, int]
"""PUBLISH frames with equal first bytes: where they end, the size of one, their topic, and the offset in
each of what follows the topic (QoS 1 and 2: the packet identifier; then, in MQTT 5, the properties; then the
payload). A plain tuple, as making anything else costs more than the rest of the work on a frame."""
HIGH = bytes(packet_id >> 8 for packet_id in range(1 << 16))
LOW = bytes(range(256)) * 256
"""The two bytes of every packet identifier: a slice is what consecutive ones put into a run."""


def publish_run(data: bytes, start: int, header_end: int, end: int, properties: bool) -> Run | None:
    """The run that begins with the complete frame ``data[start:end]``, a PUBLISH of QoS 0, 1 or 2.

    The frame has no RETAIN. ``header_end`` is where the variable header begins. With
    ``properties`` (MQTT 5) only frames without any property form a run. One with properties that are known
    (:func:`know_properties`) is a run of its own. For others the answer is None, and also for a packet
    identifier of 0, which has to be refused (MQTT-2.2.1-3).

    Raises:
        MalformedPacket: the topic is longer than the frame.
    """
    size = end - start
    if end - header_end < 2:
        raise MalformedPacket("PUBLISH without a topic", clause="MQTT-3.3.2-1")
    body = header_end + 2 + ((data[header_end] << 8) | data[header_end + 1])
    if body > end or (properties and body == end):
        raise MalformedPacket("PUBLISH shorter than its topic", clause="MQTT-3.3.2-1")
    topic = data[header_end + 2 : body]
    identified = data[start] != PUBLISH
    if identified:
        if end - body < 2 + properties:
            raise MalformedPacket("PUBLISH without a packet identifier", clause="MQTT-2.2.1-2")
        alone = properties and data[body + 2] > 0
    else:
        alone = properties and data[body] > 0
    if alone and not _knows_properties(data, body + 2 if identified else body, end):
        return None
    last = -1 if alone else len(data) - size
    run_end = end
    like = 1
    # of many topics the next is another one: that is seen by the last byte, or the size
    if end <= last and data[end + body - start - 1] == data[body - 1] and data[end + 1] == data[start + 1]:
        prefix = data[start : body + (properties and not identified)]
        startswith = data.startswith
        while run_end <= last and startswith(prefix, run_end):
            run_end += size
            like += 1
            if like == LONG_RUN:
                run_end += size * alike(data, run_end, size, prefix)
                break
    if identified and like == 1:
        if not (data[body] or data[body + 1]):
            return None
    elif identified:
        run_end = _numbered(data, start, run_end, size, body - start, properties)
        if run_end == start:
            return None
    return run_end, size, topic, body - start


def know_properties(frame: bytes) -> None:
    """Take note that these properties of a PUBLISH are as they should be, and go on as they are."""
    at = id_offset(frame) + (2 if frame[0] & QOS else 0)
    if frame[at] < 128:
        if len(_PROPERTIES) >= MAX_PROPERTIES:
            _PROPERTIES.clear()
        _PROPERTIES.add(frame[at : at + 1 + frame[at]])


def _knows_properties(data: bytes, at: int, end: int) -> bool:
    after = at + 1 + data[at]
    return data[at] < 128 and after <= end and data[at:after] in _PROPERTIES


def _numbered(data: bytes, start: int, end: int, size: int, offset: int, properties: bool) -> int:
    """Where the frames of QoS 1 or 2 end that have a packet identifier, at ``offset``, and no properties."""
    pos = start + offset
    if properties:
        lengths = data[pos + 2 : end : size]
        end -= size * len(lengths.lstrip(b"\0"))
    high, low = data[pos:end:size], data[pos + 1 : end : size]
    if 0 in high and 0 in low:
        both = [a | b for a, b in zip(high, low, strict=True)]
        if 0 in both:
            return start + size * both.index(0)
    return end


def alike(data: bytes, pos: int, size: int, prefix: bytes) -> int:
    """How many whole frames in a row from ``pos`` on begin with ``prefix``.

    Compares the same byte of all frames at once, the last of the prefix first: topics differ at their end.
    """
    count = (len(data) - pos) // size
    for i in range(len(prefix) - 1, -1, -1):
        if not count:
            break
        column = data[pos + i : pos + count * size : size]
        byte = prefix[i : i + 1]
        if column != byte * count:
            count -= len(column.lstrip(byte))
    return count


def run_to_v5(data: bytes, start: int, header_end: int, run: Run) -> tuple[bytes, int]:
    """Frames of MQTT 3.x as frames of MQTT 5 without properties; also the size of one.

    Those of QoS 1 and 2 lose their packet identifiers: they are 0 afterwards, to be set by :func:`with_ids`.
    """
    end, size, _, body = run
    head = data[start : start + 1] + encode_varint(size - (header_end - start) + 1)
    head += data[header_end : start + body]
    if end - start == size:
        if data[start] == PUBLISH:
            frame = head + b"\0" + data[start + body : end]
        else:
            frame = head + b"\0\0\0" + data[start + body + 2 : end]
        return frame, len(frame)
    frames, old = data[start:end], data[start : start + body]
    if data[start] != PUBLISH:
        frames, old, head = _without_ids(frames, size, body), old + b"\0\0", head + b"\0\0"
    return _with_head(frames, size, old, head + b"\0"), size - len(old) + len(head) + 1


def frames_to_v311(data: bytes, size: int) -> bytes:
    """A run of MQTT 5 frames, ``size`` bytes each, as frames of MQTT 3.x, which have no properties.

    The packet identifiers of QoS 1 and 2 are 0 afterwards.
    """
    length = decode_varint(data, 1)
    assert length is not None
    header_end = length[1]
    body = header_end + 2 + ((data[header_end] << 8) | data[header_end + 1])
    head = data[:1] + encode_varint(length[0] - 1) + data[header_end:body]
    if len(data) == size:  # it may have properties
        after = body + 2 if data[0] & QOS else body
        properties = decode_varint(data, after)
        assert properties is not None
        payload = data[properties[1] + properties[0] :]
        rest = b"\0\0" + payload if data[0] & QOS else payload
        return data[:1] + encode_varint(body - header_end + len(rest)) + data[header_end:body] + rest
    if data[0] & QOS:
        data, head, body = _without_ids(data, size, body), head + b"\0\0", body + 2
    return _with_head(data, size, data[: body + 1], head)


def frames_to_qos_0(data: bytes, size: int) -> tuple[bytes, int]:
    """A run of MQTT 5 frames of QoS 1 or 2 as frames of QoS 0; also the size of one."""
    length = decode_varint(data, 1)
    assert length is not None
    body = id_offset(data)
    head = bytes((PUBLISH | data[0] & RETAIN,)) + encode_varint(length[0] - 2) + data[length[1] : body]
    if len(data) == size:  # it may have properties
        frame = head + data[body + 2 :]
        return frame, len(frame)
    head += b"\0"
    old = data[:body] + b"\0\0\0"
    return _with_head(_without_ids(data, size, body), size, old, head), size - len(old) + len(head)


def runs_of(frames: bytes) -> list[tuple[bytes, int]]:
    """The runs in whole MQTT 5 frames of one QoS, each with the size of its frames.

    A frame with properties is a run of its own. Packet identifiers may be 0, as :func:`run_to_v5` leaves
    them.
    """
    found: list[tuple[bytes, int]] = []
    pos = 0
    while pos < len(frames):
        header_end, end = frame_bounds(frames, pos)
        size = end - pos
        body = header_end + 2 + (frames[header_end] << 8 | frames[header_end + 1])
        after = body - pos + 2 if frames[pos] & QOS else body - pos
        begin = frames[pos:body]
        if not frames[pos + after]:
            while frames.startswith(begin, end) and not frames[end + after]:
                end += size
        found.append((frames[pos:end], size))
        pos = end
    return found


def has_properties(frame: bytes) -> bool:
    """Whether a PUBLISH of MQTT 5 has any."""
    return frame[id_offset(frame) + (2 if frame[0] & QOS else 0)] > 0


def has_payload(frame: bytes) -> bool:
    """Whether a PUBLISH of MQTT 5 has one."""
    place = id_offset(frame) + (2 if frame[0] & QOS else 0)
    if frame[place] < 128:
        return place + 1 + frame[place] < len(frame)
    length = decode_varint(frame, place)
    assert length is not None
    return length[1] + length[0] < len(frame)


def expiry_place(frame: bytes) -> int:
    """Where the message expiry interval of a PUBLISH of MQTT 5 lies, of four bytes; 0: it has none."""
    place = id_offset(frame) + (2 if frame[0] & QOS else 0)
    return property_at(frame, place, Property.MESSAGE_EXPIRY_INTERVAL) if frame[place] else 0


def expiry_interval(frame: bytes) -> int | None:
    """The message expiry interval of a PUBLISH of MQTT 5; None: it has none."""
    place = expiry_place(frame)
    return int.from_bytes(frame[place : place + 4]) if place else None


def frames_topic(frame: bytes) -> bytes:
    """The topic of a PUBLISH."""
    length = decode_varint(frame, 1)
    assert length is not None
    return frame[length[1] + 2 : id_offset(frame)]


def renamed(data: bytes, size: int, topic: bytes) -> tuple[bytes, int]:
    """A run of MQTT 5 frames of one QoS without properties under another topic; also the size of one.

    Packet identifiers stay as they are.
    """
    body = id_offset(data)
    rest = size - body
    head = data[:1] + encode_varint(2 + len(topic) + rest) + len(topic).to_bytes(2) + topic
    return _with_head(data, size, data[:body], head), len(head) + rest


def id_offset(frame: bytes) -> int:
    """Where in a PUBLISH of QoS 1 or 2 the packet identifier is."""
    if frame[1] < 128:
        return 4 + ((frame[2] << 8) | frame[3])
    if frame[2] < 128:
        return 5 + ((frame[3] << 8) | frame[4])
    length = decode_varint(frame, 1)
    assert length is not None
    header_end = length[1]
    return header_end + 2 + ((frame[header_end] << 8) | frame[header_end + 1])


def without_dup(frames: bytes, size: int) -> bytes:
    """A run of QoS 1 or 2 as if nothing of it was sent before."""
    changed = bytearray(frames)
    changed[::size] = bytes((frames[0] & ~DUP,)) * (len(frames) // size)
    return bytes(changed)


def with_ids(frames: bytes, size: int, offset: int, first_id: int, first: int = 0) -> bytes:
    """A run of QoS 1 or 2 with consecutive packet identifiers from ``first_id`` on, at ``offset`` in each
    frame, and with another first byte unless that is 0.

    The last identifier is 65535 at most.
    """
    if len(frames) == size and not first:
        return frames[:offset] + first_id.to_bytes(2) + frames[offset + 2 :]
    changed = bytearray(frames)
    end = first_id + len(frames) // size
    changed[offset::size] = HIGH[first_id:end]
    changed[offset + 1 :: size] = LOW[first_id:end]
    if first:
        changed[::size] = bytes((first,)) * (end - first_id)
    return bytes(changed)


def packet_ids(high: bytes, low: bytes) -> Sequence[int]:
    """Packet identifiers, whose bytes are given one above the other; at least one."""
    first = high[0] << 8 | low[0]
    end = first + len(high)
    if high == HIGH[first:end] and low == LOW[first:end]:
        return range(first, end)  # as they nearly always are
    return [a << 8 | b for a, b in zip(high, low, strict=True)]


def _without_ids(frames: bytes, size: int, offset: int) -> bytes:
    changed = bytearray(frames)
    zeros = bytes(len(frames) // size)
    changed[offset::size] = zeros
    changed[offset + 1 :: size] = zeros
    return bytes(changed)


def _with_head(frames: bytes, size: int, old: bytes, new: bytes) -> bytes:
    """Frames of ``size`` bytes each that begin with ``old``, with ``new`` in its place."""
    count = len(frames) // size
    new_size = size - len(old) + len(new)
    if count >= 4 * len(new):
        # the quickest way in long runs, and right unless a payload contains the bytes of the head, too
        replaced = frames.replace(old, new)
        if len(replaced) == count * new_size and alike(replaced, 0, new_size, new) == count:
            return replaced
    tail = size - len(old)
    return new.join([b"", *[frames[p : p + tail] for p in range(len(old), len(frames) + 1, size)]])


def head_topic(data: bytes, header_end: int, identified: bool, properties: bool) -> bytes | None:
    """The topic of a PUBLISH whose beginning ends the data; ``identified``: of QoS 1 or 2.

    None when not all of it is there or, with ``properties`` (MQTT 5), when there may be some.
    """
    topic = header_end + 2
    if topic > len(data):
        return None
    body = topic + ((data[header_end] << 8) | data[header_end + 1])
    after = body + 2 * identified
    if properties and (after >= len(data) or data[after]):
        return None
    return data[topic:body] if body <= len(data) else None


class Tail:
    """What was received and is not taken yet: an incomplete frame, or what has to wait; put together without
    repeated copies."""

    __slots__ = ("missing", "parts")

    def __init__(self) -> None:
        self.missing = 0
        """Bytes which the frame lacks at least; 0: it is there, or there is none."""
        self.parts: list[bytes] = []

    def keep(self, part: bytes, missing: int) -> None:
        self.parts = [part]
        self.missing = missing

    def add(self, data: bytes) -> None:
        """More of what has to wait."""
        self.parts.append(data)

    def put_first(self, data: bytes) -> None:
        """Have the next bytes that come, if only none, follow ``data`` and what there was."""
        self.parts.insert(0, data)
        self.missing = 0

    def join(self, data: bytes) -> bytes | None:
        """All with what has come now, or None if the frame still is incomplete."""
        self.parts.append(data)
        self.missing -= len(data)
        if self.missing > 0:
            return None
        joined = b"".join(self.parts)
        self.clear()
        return joined

    def clear(self) -> None:
        self.parts = []
        self.missing = 0


class HeaderScanner:
    """Looks at the fixed headers of a byte stream that is relayed as it comes.

    ``wanted`` is a table of 256 truth values, one for each first byte; only those frames are put
    together and handed back. State is bounded by the largest wanted frame.
    """

    __slots__ = ("_head", "_held", "_missing", "_skip", "between_frames", "limit", "publishes", "wanted")

    def __init__(self, wanted: bytes, limit: int) -> None:
        self.wanted = wanted
        self.limit = limit
        self.publishes = 0
        """PUBLISH frames that have begun so far."""
        self.between_frames = True
        """Nothing is left over of a frame that has begun."""
        self._skip = 0  # bytes of a frame that is passed over, still to come
        self._head = b""  # an incomplete fixed header
        self._held: list[bytes] | None = None  # pieces of a wanted frame
        self._missing = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The wanted frames that ended in ``data``.

        Raises:
            MalformedPacket: a remaining length of more than four bytes.
        """
        found: list[bytes] = []
        pos = 0
        if self._skip:
            if self._skip >= len(data):
                self._skip -= len(data)
                return found
            pos, self._skip = self._skip, 0
        elif self._held is not None:
            if self._missing > len(data):
                self._held.append(data)
                self._missing -= len(data)
                return found
            self._held.append(data[: self._missing])
            found.append(b"".join(self._held))
            pos, self._held, self._missing = self._missing, None, 0
        elif self._head:
            data = self._head + data
            self._head = b""
        end_of_data = len(data)
        wanted = self.wanted
        startswith = data.startswith
        while pos < end_of_data:
            header_end, end = frame_bounds(data, pos)
            if not end:
                self._head = data[pos:]
                break
            first = data[pos]
            if wanted[first]:
                if first & 0xF0 == PUBLISH:
                    self.publishes += 1
                if end > end_of_data:
                    if end - header_end <= self.limit:
                        self._held = [data[pos:]]
                        self._missing = end - end_of_data
                    else:
                        self._skip = end - end_of_data
                    break
                found.append(data[pos:end])
                pos = end
                continue
            size = end - pos
            prefix = data[pos:header_end]
            start = pos
            pos = end
            like = 1
            while pos < end_of_data and startswith(prefix, pos):
                pos += size
                like += 1
                if like == LONG_RUN:
                    pos += size * alike(data, pos, size, prefix)
            if first & 0xF0 == PUBLISH:
                self.publishes += (pos - start) // size
            if pos > end_of_data:
                self._skip = pos - end_of_data
                break
        self.between_frames = not (self._skip or self._head or self._held)
        return found
