"""The hot loops of the data path: runs of like frames, and a scanner that looks at headers only.

A busy connection carries long runs of PUBLISH frames that begin with the same bytes: same flags, same
length, same topic. One ``bytes.startswith`` then recognises the next frame of the run, at a fraction
of the cost of parsing it, and a whole run is relayed, transferred or injected as one slice.
"""

from __future__ import annotations

from ildm.mqtt import MalformedPacket, decode_varint, encode_varint

PUBLISH = 0x30
"""First byte of a PUBLISH with QoS 0 and neither DUP nor RETAIN."""
LONG_RUN = 4
"""With so many like frames it is worth while to look at all of them together."""


Run = tuple[int, int, bytes, int]
"""PUBLISH frames of QoS 0 with equal first bytes: where they end, the size of one, their topic, and the
offset in each of what follows the topic (MQTT 3.x: the payload; MQTT 5: the properties). A plain tuple,
as making anything else costs more than the rest of the work on a frame."""


def publish_run(data: bytes, start: int, header_end: int, end: int, properties: bool) -> Run | None:
    """The run that begins with the complete frame ``data[start:end]``, a PUBLISH of QoS 0.

    ``header_end`` is where the variable header begins. With ``properties`` (MQTT 5) only frames
    without any property form a run; for others the answer is None.

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
    if properties:
        if data[body]:
            return None
        prefix = data[start : body + 1]
    else:
        prefix = data[start:body]
    last = len(data) - size
    run_end = end
    startswith = data.startswith
    like = 1
    while run_end <= last and startswith(prefix, run_end):
        run_end += size
        like += 1
        if like == LONG_RUN:
            return run_end + size * _alike(data, run_end, size, prefix), size, topic, body - start
    return run_end, size, topic, body - start


def _alike(data: bytes, pos: int, size: int, prefix: bytes) -> int:
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
    """Frames of MQTT 3.x as frames of MQTT 5 without properties; also the size of one."""
    end, size, _, body = run
    head = b"\x30" + encode_varint(size - (header_end - start) + 1) + data[header_end : start + body] + b"\0"
    return _with_head(data[start:end], size, data[start : start + body], head), size - body + len(head)


def frames_to_v311(data: bytes, size: int) -> bytes:
    """A run of MQTT 5 frames without properties, ``size`` bytes each, as frames of MQTT 3.x."""
    length = decode_varint(data, 1)
    assert length is not None
    header_end = length[1]
    body = header_end + 2 + ((data[header_end] << 8) | data[header_end + 1])
    head = b"\x30" + encode_varint(length[0] - 1) + data[header_end:body]
    return _with_head(data, size, data[: body + 1], head)


def _with_head(frames: bytes, size: int, old: bytes, new: bytes) -> bytes:
    """Frames of ``size`` bytes each that begin with ``old``, with ``new`` in its place."""
    count = len(frames) // size
    new_size = size - len(old) + len(new)
    if count >= 4 * len(new):
        # the quickest way in long runs, and right unless a payload contains the bytes of the head, too
        replaced = frames.replace(old, new)
        if len(replaced) == count * new_size and _alike(replaced, 0, new_size, new) == count:
            return replaced
    tail = size - len(old)
    return new.join([b"", *[frames[p : p + tail] for p in range(len(old), len(frames) + 1, size)]])


class Tail:
    """An incomplete frame at the end of what was received; put together without repeated copies."""

    __slots__ = ("_parts", "missing")

    def __init__(self) -> None:
        self.missing = 0
        """Bytes which the frame lacks at least; 0 when there is none."""
        self._parts: list[bytes] = []

    def keep(self, part: bytes, missing: int) -> None:
        self._parts = [part]
        self.missing = missing

    def join(self, data: bytes) -> bytes | None:
        """The frame with what has come now, or None if it still is incomplete."""
        self._parts.append(data)
        self.missing -= len(data)
        if self.missing > 0:
            return None
        joined = b"".join(self._parts)
        self.clear()
        return joined

    def clear(self) -> None:
        self._parts = []
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
            header_end = pos + 2
            if header_end <= end_of_data and data[pos + 1] < 128:
                end = header_end + data[pos + 1]
            else:
                length = decode_varint(data, pos + 1) if header_end <= end_of_data else None
                if length is None:
                    self._head = data[pos:]
                    break
                header_end = length[1]
                end = header_end + length[0]
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
                    pos += size * _alike(data, pos, size, prefix)
            if first & 0xF0 == PUBLISH:
                self.publishes += (pos - start) // size
            if pos > end_of_data:
                self._skip = pos - end_of_data
                break
        self.between_frames = not (self._skip or self._head or self._held)
        return found
