"""The codec: every version reads any bytes, and what it accepts it writes again as it was."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ildm.mqtt import Framer, MqttError, Packet, PublishView, Version, decode
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.streams import Case

LIMIT = 1 << 16


def one_input(data: bytes) -> None:
    """Read ``data`` as a stream of every version: nothing but MqttError may come out.

    Raises:
        AssertionError: a packet read here changes when it is written and read again.
    """
    framer = Framer(LIMIT)
    try:
        frames = framer.feed(data)
        assert framer.pending == len(data) - sum(map(len, frames))
    except MqttError as error:
        frames = list(error.frames)
    assert data.startswith(b"".join(frames))
    for frame in [*frames, data]:
        for version in Version:
            one_frame(frame, version)


def one_frame(frame: bytes, version: Version) -> None:
    """Decode one frame; what is accepted must survive another round, and the view must agree."""
    try:
        packet = decode(frame, version)
    except MqttError as refused:
        check_clause(refused)
        look_at(frame, version)
        return
    again = Version(packet.version) if hasattr(packet, "version") else version
    assert decode(packet.encode(again), version) == packet
    if frame[0] >> 4 == 3:
        check_view(PublishView(frame, version), packet)


def look_at(frame: bytes, version: Version) -> None:
    """Ask a view of a frame that may be broken for everything."""
    if not frame:
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

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        one_input(case.stream)
        check_cuts(case)
        return features(case.stream)


def check_cuts(case: Case) -> None:
    """However a stream is cut, the same frames come out of it, and the same error."""
    assert frames_of([case.stream]) == frames_of(case.pieces())


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


def features(stream: bytes) -> list[Hashable]:
    """What becomes of the first packets: their types, and the clauses by which they are refused."""
    found: list[Hashable] = []
    for frame in frames_of([stream])[0][:8]:
        for version in Version:
            try:
                decode(frame, version)
                found.append((version, frame[0]))
            except MqttError as refused:
                found.append((version, frame[0] >> 4, refused.clause))
    return found
