"""The codec: every version reads any bytes, and what it accepts it writes again as it was."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Hashable, Iterable

from ildm.mqtt import Framer, MqttError, Packet, PublishView, Version, decode
from tests.fuzz.engine import Known, Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.streams import Case

LIMIT = 1 << 16
MOST_FEATURES = 8
"""Packets at the beginning of an input of which it is said what becomes of them."""
VERSIONS = tuple(Version)


def one_frame(frame: bytes, version: Version) -> Hashable:
    """Decode one frame; what is accepted must survive another round, and the view must agree.

    Answers the type of the packet, or the clause by which it is refused.
    """
    try:
        packet = decode(frame, version)
    except MqttError as refused:
        check_clause(refused)
        look_at(frame, version)
        return version, frame[:1], refused.clause
    again = Version(packet.version) if hasattr(packet, "version") else version
    assert decode(packet.encode(again), version) == packet
    if frame[0] >> 4 == 3:
        check_view(PublishView(frame, version), packet)
    return version, frame[0]


def look_at(frame: bytes, version: Version) -> None:
    """Ask a view of a frame that may be broken for everything.

    A view does not look at the type. So of what is no PUBLISH one in four is enough: mostly it is a stream in
    the place of a frame.
    """
    if not frame or (frame[0] >> 4 != 3 and crc32(frame) & 12):
        return
    for name in ("topic_bytes", "topic", "packet_id", "properties", "properties_bytes", "payload"):
        try:
            getattr(PublishView(frame, version), name)
        except MqttError as refused:
            check_clause(refused)


def check_clause(error: MqttError) -> None:
    """Every refusal names the rule it rests on."""
    assert error.clause.startswith("MQTT-")


def check_view(view: PublishView, packet: Packet) -> None:
    """The lazy view says of a PUBLISH what ``decode`` says."""
    for name in ("topic", "payload", "qos", "retain", "dup", "packet_id", "properties"):
        assert getattr(view, name) == getattr(packet, name), name


class Codec(Target):
    """A stream, read whole, and packet by packet in every version."""

    name = "codec"
    mutate = staticmethod(mutate_stream)

    def __init__(self) -> None:
        self._known = Known()
        self._numbers: dict[Hashable, int] = {}
        """Of what is said of frames: they are quicker to look up."""

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        frames, reason, features = self.read(case.stream)
        # however a stream is cut, the same frames come out of it, and the same error
        assert (frames, reason) == frames_of(case.pieces())
        return features

    def read(self, data: bytes) -> tuple[list[bytes], str, list[int]]:
        """Read ``data`` as a stream of every version, and as one frame: nothing but MqttError may come out.

        Answers its frames, why there are no more of them, and what has become of the first.

        Raises:
            AssertionError: a packet read here changes when it is written and read again.
        """
        framer = Framer(LIMIT)
        reason = ""
        try:
            frames = framer.feed(data)
            assert framer.pending == len(data) - sum(map(len, frames))
        except MqttError as error:
            frames, reason = list(error.frames), str(error)
        assert data.startswith(b"".join(frames))
        known, numbers = self._known, self._numbers
        features: list[int] = []
        for number, frame in enumerate(frames):
            said = known.get(frame)
            if said is None:
                found = [one_frame(frame, version) for version in VERSIONS]
                said = [numbers.setdefault(one, len(numbers)) for one in found]
                known.put(frame, len(frame), said)
            if number < MOST_FEATURES:
                features += said
        for version in VERSIONS if self.thorough else (VERSIONS[crc32(data) % len(VERSIONS)],):
            one_frame(data, version)
        return frames, reason, features


def frames_of(pieces: list[bytes]) -> tuple[list[bytes], str]:
    """The frames of a stream that comes in pieces, and why there are no more of them."""
    framer = Framer(LIMIT)
    frames: list[bytes] = []
    for piece in pieces:
        try:
            frames += framer.feed(piece)
        except MqttError as error:
            return frames + list(error.frames), str(error)
    return frames, ""
