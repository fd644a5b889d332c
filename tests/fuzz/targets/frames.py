"""Runs and batches of frames against the frames one by one; scanners of headers however a stream is cut."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Callable, Hashable, Iterable

from ildm.core.frames import (
    DUP,
    PUBLISH,
    PUBLISH_QOS_1,
    HeaderScanner,
    frames_to_qos_0,
    frames_to_v311,
    id_offset,
    publish_run,
    run_to_v5,
    with_ids,
)
from ildm.core.local.ack_gate import PASSED, GateScanner
from ildm.core.transfer.ack_runs import PUBACK, acknowledged_ids
from ildm.core.transfer.batch import Batch
from ildm.mqtt import Framer, MqttError, PacketType, PubAck, Publish, Version, decode, decode_varint
from tests.fuzz.engine import Known, Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.streams import Case
from tests.fuzz.targets.batches import check_batches

LIMIT = 1 << 16
WANTED = tuple(
    bytes(first >> 4 in types for first in range(256))
    for types in (
        set(),
        {PacketType.SUBACK},
        {PacketType.PUBACK, PacketType.PUBREC, PacketType.SUBACK},
        set(PacketType),
    )
)
"""What a scanner is to hand back, by the first byte of a packet."""


class Frames(Target):
    """A stream of what publishers and brokers send."""

    name = "frames"
    mutate = staticmethod(mutate_stream)

    def __init__(self) -> None:
        self._known = Known()

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        found: set[Hashable] = set()
        for version in VERSIONS:
            check_runs(case.stream, version, found, self._known)
        check_batches(case.stream, found, self._known)
        pieces = case.pieces()
        chosen = crc32(case.stream) % (len(WANTED) * len(VERSIONS))
        for number, wanted in enumerate(WANTED):
            for other, version in enumerate(VERSIONS):
                if self.thorough or chosen == number * len(VERSIONS) + other:
                    check_scanners(case, pieces, wanted, version, case.setup >> number & 1)
        return found


VERSIONS = (Version.V311, Version.V5)


def check_runs(stream: bytes, version: Version, found: set[Hashable], known: Known) -> None:
    """Take every run there is in a stream apart in both ways."""
    v5 = version is Version.V5
    pos = 0
    while pos + 2 <= len(stream):
        try:
            length = decode_varint(stream, pos + 1)
        except MqttError:
            return
        if length is None or length[1] + length[0] > len(stream):
            return
        end = length[1] + length[0]
        if stream[pos] | 2 == PUBLISH_QOS_1:
            end = max(end, check_run(stream, pos, length[1], end, v5, found, known))
        elif stream[pos] == PUBACK:
            end = max(end, check_acknowledgements(stream, pos, version, found, known))
        pos = end


def check_run(
    stream: bytes, pos: int, header_end: int, end: int, v5: bool, found: set[Hashable], known: Known
) -> int:
    """A run says of its frames what decoding each says; answers where it ends."""
    version = Version.V5 if v5 else Version.V311
    try:
        run = publish_run(stream, pos, header_end, end, v5)
    except MqttError as error:
        found.add(error.clause)
        assert not isinstance(decoded(stream[pos:end], version), Publish), "a run is refused that is none"
        return end
    if run is None:
        found.add("no run")
        part = (v5, stream[pos:end])
        if known.get(part) is None:
            first = decoded(stream[pos:end], version)
            identified = isinstance(first, Publish) and not first.properties
            assert not identified, "a plain message is no run"
            known.put(part, end - pos)
        return end
    whole = (v5, stream[pos : run[0]], run[1:], header_end - pos, end - pos)
    said = known.get(whole)
    if said is None:
        said = check_found(stream, pos, header_end, end, v5, run)
        known.put(whole, run[0] - pos, said)
    found.add(said)
    return run[0]


def check_found(
    stream: bytes, pos: int, header_end: int, end: int, v5: bool, run: tuple[int, int, bytes, int]
) -> Hashable:
    """A run that was found, frame by frame; answers what can be said of it."""
    version = Version.V5 if v5 else Version.V311
    first = decoded(stream[pos:end], version)
    run_end, size, topic, offset = run
    assert (run_end - pos) % size == 0
    frames = [stream[at : at + size] for at in range(pos, run_end, size)]
    said = ("run", v5, stream[pos], len(frames).bit_length(), isinstance(first, Publish))
    if not isinstance(first, Publish):  # a topic that is none, for which there is no route
        assert all(not isinstance(decoded(frame, version), Publish) for frame in frames)
        return said
    packets = [decode(frame, version) for frame in frames]
    for packet in packets:
        assert isinstance(packet, Publish)
        assert (packet.topic.encode(), packet.properties) == (topic, {})
        assert (packet.qos, packet.dup, packet.retain) == (stream[pos] >> 1 & 1, False, False)
        if packet.packet_id is not None:
            assert packet.packet_id
    assert frames[0][offset - len(topic) : offset] == topic
    check_conversions(stream, pos, header_end, run, packets, v5)
    return said


def check_conversions(
    stream: bytes, pos: int, header_end: int, run: tuple[int, int, bytes, int], packets: list, v5: bool
) -> None:
    """Every conversion of a run makes of each message what encoding it alone makes."""
    if v5:
        joined, size = stream[pos : run[0]], run[1]
    else:
        joined, size = run_to_v5(stream, pos, header_end, run)
    count = len(packets)
    assert len(joined) == size * count
    if stream[pos] == PUBLISH:
        assert joined == b"".join(packet.encode(Version.V5) for packet in packets)
    else:
        offset = id_offset(joined)
        numbered = with_ids(joined, size, offset, 1)
        again = with_ids(joined, size, offset, 65_536 - count, PUBLISH_QOS_1 | DUP)
        for at, packet in enumerate(packets):
            packet.packet_id = at + 1
            assert numbered[at * size : (at + 1) * size] == packet.encode(Version.V5)
            packet.packet_id, packet.dup = 65_536 - count + at, True
            assert again[at * size : (at + 1) * size] == packet.encode(Version.V5)
            packet.packet_id, packet.dup = at + 1, False
        ids, answer = Batch(numbered, count, size).acknowledgements(1)
        assert list(ids) == list(range(1, count + 1))
        assert answer == b"".join(PubAck(packet_id=n).encode(Version.V5) for n in ids)
        plain, plain_size = frames_to_qos_0(numbered, size)
        assert len(plain) == plain_size * count
        joined = numbered
        for at, packet in enumerate(packets):
            alone = Publish(topic=packet.topic, payload=packet.payload).encode(Version.V5)
            assert plain[at * plain_size : (at + 1) * plain_size] == alone
    back = frames_to_v311(joined, size)
    old = len(back) // count
    for at, packet in enumerate(packets):
        one = back[at * old : (at + 1) * old]
        if packet.qos:  # its packet identifier is to be set
            assert one[id_offset(one) : id_offset(one) + 2] == b"\0\0"
            one = with_ids(one, old, id_offset(one), at + 1)
        assert one == packet.encode(Version.V311)


def check_acknowledgements(
    stream: bytes, pos: int, version: Version, found: set[Hashable], known: Known
) -> int:
    """PUBACKs that are taken together are those that decoding finds, and mean success."""
    ids, end = acknowledged_ids(stream, pos, version)
    found.add(("acknowledged", len(ids).bit_length(), end > pos))
    part = (version, stream[pos:end], tuple(ids))
    if known.get(part) is None:
        packets = [decode(frame, version) for frame in Framer(LIMIT).feed(stream[pos:end])]
        assert [packet.packet_id for packet in packets if isinstance(packet, PubAck)] == list(ids)
        assert all(isinstance(packet, PubAck) and packet.reason_code in (0, 0x10) for packet in packets)
        known.put(part, end - pos)
    return end


def check_scanners(case: Case, pieces: list[bytes], wanted: bytes, version: Version, cutting: int) -> None:
    """Both scanners find the same packets however a stream is cut, and the gate's loses no byte."""
    whole, error = fed(HeaderScanner(wanted, LIMIT).feed, [case.stream])
    frames, other = fed(HeaderScanner(wanted, LIMIT).feed, pieces)
    assert error == other
    assert error or whole == frames, "the scanner depends on the cuts"
    scanner = GateScanner(wanted, LIMIT, version)
    passed: list[bytes] = []
    found: list[bytes] = []
    reason = ""
    for number, piece in enumerate(pieces):
        try:
            if cutting or scanner.deferred or number % 3:
                for first, part, ids in scanner.split(piece):
                    if first < PASSED:
                        passed.append(part)
                    if first and not ids and wanted[first & 0xFF]:
                        found.append(part)
            else:
                passed.append(piece)
                found += [frame for frame in scanner.feed(piece) if wanted[frame[0]]]
        except MqttError as refused:
            reason = str(refused)
            break
    assert error == reason
    if error:
        return
    sent = b"".join(passed)
    assert case.stream.startswith(sent), "the gate changes what it lets pass"
    assert scanner.deferred or sent == case.stream, "the gate has lost something"
    assert found == whole, "the gate has missed a packet"


def fed(feed: Callable[[bytes], list[bytes]], pieces: list[bytes]) -> tuple[list[bytes], str]:
    """What comes out of pieces, and why there is no more of it."""
    found: list[bytes] = []
    for piece in pieces:
        try:
            found += feed(piece)
        except MqttError as error:
            return found, str(error)
    return found, ""


def decoded(frame: bytes, version: Version) -> object:
    """A packet, or why it is none."""
    try:
        return decode(frame, version)
    except MqttError as error:
        return error
