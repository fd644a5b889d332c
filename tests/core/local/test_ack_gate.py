"""The gate between the broker and a client: cutting a stream at any byte, and what waits in which order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.frames import HeaderScanner
from ildm.core.local.ack_gate import PACKET_IDS, PASSED, AckGate, Answer, GateScanner
from ildm.core.local.actions import broker_wanted
from ildm.core.local.unanswered import Taken, Unanswered, UnansweredMessage
from ildm.core.transfer.ack_runs import PUBACK
from ildm.mqtt import Framer, PingResp, PubAck, Publish, PubRec, SubAck, UnsubAck, Version

WANTED = broker_wanted(frozenset())
MEANINGFUL = {4, 5, 7, 9, 11, 13}

packets = st.one_of(
    st.builds(PubAck, packet_id=st.integers(1, 300)),
    st.builds(PubAck, packet_id=st.integers(1, 300), reason_code=st.sampled_from([0x10, 0x87])),
    st.builds(PubRec, packet_id=st.integers(1, 300), reason_code=st.sampled_from([0, 0x87])),
    st.builds(
        SubAck, packet_id=st.integers(1, 300), reason_codes=st.lists(st.just(0), min_size=1, max_size=9)
    ),
    st.builds(UnsubAck, packet_id=st.just(5), reason_codes=st.just([0])),
    st.builds(Publish, topic=st.sampled_from("ab"), payload=st.binary(max_size=200)),
    st.just(PingResp()),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False) if b > a]


@settings(max_examples=300, deadline=None)
@given(st.lists(packets, max_size=40), st.lists(st.integers(0, 3000), max_size=40), st.data())
def test_the_stream_stays_the_same_however_it_is_cut(
    sent: list[object], places: list[int], draw: st.DataObject
) -> None:
    """Looked at or not, chunk by chunk: what passes and what is handed over makes up the stream, in order."""
    frames = [packet.encode(Version.V5) for packet in sent]  # type: ignore[attr-defined]
    data = b"".join(frames)
    scanner = GateScanner(WANTED, 1 << 20, Version.V5)
    out = bytearray()
    looked_at: list[bytes] = []
    for chunk in cut(data, places):
        if not scanner.deferred and draw.draw(st.booleans()):
            out += chunk
            scanner.feed(chunk)
            continue
        for first, piece, ids in scanner.split(chunk):
            if first >= PASSED:
                assert (first - PASSED) >> 4 in MEANINGFUL
                continue
            out += piece
            if ids:
                kind = PubAck if first == PUBACK else PubRec
                assert piece == b"".join(kind(packet_id=i).encode(Version.V5) for i in ids) or len(piece) > 4
                assert len(list(ids)) * (piece[1] + 2) == len(piece)
            if first:
                looked_at += [piece] if not ids else list(Framer().feed(piece))
    assert scanner.deferred is False or not data.endswith(bytes(out))
    assert bytes(out) == data
    assert all(frame in frames for frame in looked_at)
    assert scanner.publishes == sum(isinstance(packet, Publish) for packet in sent)


@settings(max_examples=200, deadline=None)
@given(st.lists(packets, max_size=40), st.lists(st.integers(0, 3000), max_size=40))
def test_every_acknowledgement_is_seen_when_all_chunks_are_looked_at(
    sent: list[object], places: list[int]
) -> None:
    frames = [packet.encode(Version.V5) for packet in sent]  # type: ignore[attr-defined]
    scanner = GateScanner(WANTED, 1 << 20, Version.V5)
    seen: list[bytes] = []
    for chunk in cut(b"".join(frames), places):
        for first, piece, _ in scanner.split(chunk):
            if first:
                seen += Framer().feed(piece)
    assert seen == [frame for frame in frames if frame[0] >> 4 in MEANINGFUL]
    assert scanner.between_frames


def test_a_packet_begun_before_the_gate_looked_is_marked_as_passed() -> None:
    scanner = GateScanner(WANTED, 1 << 20, Version.V5)
    frame = SubAck(packet_id=1, reason_codes=[0]).encode(Version.V5)
    for at in (1, 2, 4):
        assert scanner.feed(frame[:at]) == []
        assert scanner.split(frame[at:]) == [(0, frame[at:], ()), (frame[0] | PASSED, frame, ())]


def test_the_plain_scan_is_that_of_the_header_scanner() -> None:
    data = Publish(topic="t", payload=b"x").encode(Version.V5) * 9
    one, other = GateScanner(WANTED, 100, Version.V5), HeaderScanner(WANTED, 100)
    assert one.feed(data) == other.feed(data) == []
    assert one.publishes == other.publishes == 9


def test_acknowledgements_wait_in_order_until_every_reason_is_gone() -> None:
    out: list[bytes] = []
    gate = AckGate(out.append, out.append, lambda: None)
    assert gate.acknowledgement(b"0", 1)
    gate.hold("one")
    gate.hold("two")
    assert not gate.acknowledgement(b"1", 1)
    assert not gate.acknowledgement(b"2", 1)
    gate.release("one")
    assert out == []
    gate.release("two")
    assert out == [b"12"]
    assert gate.idle
    assert gate.acknowledgement(b"3", 1)


def test_more_acknowledgements_than_identifiers_cannot_wait() -> None:
    over: list[int] = []
    gate = AckGate(lambda data: None, lambda data: None, lambda: over.append(1))
    gate.hold("full")
    gate.acknowledgement(b"", PACKET_IDS)
    assert over == []
    gate.acknowledgement(b"", 1)
    assert over == [1]


def test_a_suback_that_waits_keeps_back_the_later_ones_only() -> None:
    out: list[bytes] = []
    gate = AckGate(out.append, out.append, lambda: None)
    first, second = Answer(b"first", False), Answer(b"second", False)
    assert not gate.answer(first)
    assert not gate.answer(second)
    assert not gate.answer(Answer(b"unsuback", True))
    assert gate.acknowledgement(b"puback", 1)
    gate.ready(second)
    assert out == []
    gate.ready(first)
    assert out == [b"first", b"second", b"unsuback"]
    assert gate.answer(Answer(b"next", True))


# messages the broker has not answered ---------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["run", "qos 1", "qos 2"])), min_size=1, max_size=12
    ),
    st.integers(0, 6),
    st.data(),
)
def test_each_message_comes_out_once_and_in_turn_whatever_the_order_of_the_answers(
    batches: list[tuple[int, str]], disorder: int, draw: st.DataObject
) -> None:
    """Runs with ascending and with other identifiers, and single messages; all waiting is given up once."""
    waiting = Unanswered()
    ids = list(range(1, sum(count for count, _ in batches) + 1))
    if draw.draw(st.booleans()):
        ids.reverse()
    sent: dict[int, list[int]] = {1: [], 2: []}
    for count, kind in batches:
        part, ids = ids[:count], ids[count:]
        if kind == "run":
            run = range(part[0], part[-1] + 1) if part == list(range(part[0], part[-1] + 1)) else part
            waiting.add_run(b"t", bytes(part), 1, run)
        else:
            for packet_id in part:
                message = Publish(
                    topic="t", payload=bytes([packet_id]), qos=int(kind[-1]), packet_id=packet_id
                )
                waiting.add(message, None, 10)
                waiting.add(replace(message, dup=True), None, 10)  # sent again
        sent[2 if kind == "qos 2" else 1] += part
    everything = sent[1] + sent[2]
    assert waiting.messages == len(everything)
    answers = list(everything)
    for _ in range(disorder):
        i, j = (draw.draw(st.integers(0, len(everything) - 1)) for _ in "ij")
        answers[i], answers[j] = answers[j], answers[i]
    refused = set(draw.draw(st.lists(st.sampled_from(everything), max_size=4)))
    given_up = draw.draw(st.integers(0, 2 * len(everything)))  # after so many answers, if ever
    out: list[int] = []

    def handed(found: Iterable[Taken | UnansweredMessage] | None) -> None:
        for taken in found or ():
            out.extend(taken.message.payload if isinstance(taken, UnansweredMessage) else taken[1])

    unknown = 99
    for place, packet_id in enumerate(answers):
        qos = 2 if packet_id in sent[2] else 1
        if place == given_up:
            handed(waiting.release())
            assert (waiting.early, waiting.held_up_by()) == (0, [])
        if packet_id in refused:
            handed(waiting.answer(packet_id, qos, taken=False))
        elif draw.draw(st.booleans()):
            handed(waiting.taken([packet_id, unknown], 1))
        else:
            handed(waiting.answer(packet_id, qos, taken=True))
        assert waiting.answer(packet_id, qos, taken=True) is None
        assert waiting.messages == len(answers) - place - 1 + waiting.early
        assert bool(waiting.early) == bool(waiting.held_up_by())
    assert sorted(out) == sorted(set(everything) - refused)
    if given_up >= len(answers):
        for order in sent.values():
            assert [each for each in out if each in order] == [each for each in order if each not in refused]
    assert (waiting.messages, waiting.bytes, waiting.early) == (0, 0, 0)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.data())
def test_answers_in_order_come_in_chunks_of_any_size(counts: list[int], draw: st.DataObject) -> None:
    waiting = Unanswered()
    ids = list(range(1, sum(counts) + 1))
    left = ids
    for count in counts:
        part, left = left[:count], left[count:]
        waiting.add_run(
            b"t", bytes(part), 1, part if draw.draw(st.booleans()) else range(part[0], part[-1] + 1)
        )
    out = bytearray()
    while ids:
        size = draw.draw(st.integers(1, len(ids)))
        for taken in waiting.taken(ids[:size], 1):
            assert not isinstance(taken, UnansweredMessage)
            out += taken[1]
        ids = ids[size:]
    assert list(out) == list(range(1, len(out) + 1))
    assert not waiting


def test_a_run_in_order_comes_out_as_it_was_sent() -> None:
    waiting = Unanswered()
    waiting.add_run(b"t", b"abcdef", 2, range(1, 4))
    waiting.add_run(b"u", b"xyz", 1, [9, 8, 7])
    assert list(waiting.taken(range(1, 4), 1)) == [(b"t", b"abcdef", 2)]
    assert list(waiting.taken([9, 8], 1)) == [(b"u", b"xy", 1)]
    assert waiting.answer(9, 1, taken=True) is None
    assert waiting.answer(7, 1, taken=True) == [(b"u", b"z", 1)]
    assert not waiting
