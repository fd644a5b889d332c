"""Runs of QoS 1 on the sending side of a session: identifiers, the window, what is sent again, bounds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.counters import Counters
from ildm.mqtt import Publish, PubRel, Version
from ildm.testing.virtual.world import World
from tests.support.lanes import Source, make, opened, run_of, send


def numbers(packets: list[Any]) -> list[int]:
    return [int(packet.payload) for packet in packets]


def test_a_run_is_one_write_with_identifiers_of_its_own(world: World) -> None:
    lane, _ = make(world)
    lane._window.last_id = 254
    sink = opened(lane)
    frames = run_of(0, 3)
    lane.send_frames(frames, len(frames) // 3)
    world.run(0)
    assert sink.writes == [
        b"\x32\x0a\x00\x01t\x00\xff\x000000\x32\x0a\x00\x01t\x01\x00\x000001\x32\x0a\x00\x01t\x01\x01\x000002"
    ]
    assert (lane.sent, lane.inflight, lane.queued_messages) == (3, 3, 0)
    lane.acknowledged([255, 256, 257])
    assert lane.idle


def test_a_run_goes_to_a_broker_of_3_1_1_without_the_length_of_its_properties(world: World) -> None:
    lane, _ = make(world)
    sink = opened(lane, version=Version.V311)
    send(lane, 7, 2)
    world.run(0)
    assert sink.writes == [b"\x32\x09\x00\x01t\x00\x010007\x32\x09\x00\x01t\x00\x020008"]
    lane.detach()
    sink = opened(lane, version=Version.V311)
    world.run(0)
    assert sink.writes == [b"\x3a\x09\x00\x01t\x00\x010007\x3a\x09\x00\x01t\x00\x020008"]


def test_identifiers_begin_anew_after_65535_and_pass_over_those_in_use(world: World) -> None:
    lane, _ = make(world)
    lane._window.last_id = 65_532
    reserved = lane.new_packet_id()
    sink = opened(lane)
    lane._window._reserved |= {reserved, 3}
    send(lane, 0, 6)
    world.run(0)
    assert [packet.packet_id for packet in sink.packets()] == [65_534, 65_535, 1, 2, 4, 5]
    assert numbers(sink.packets()) == list(range(6))


def test_a_run_leaves_as_the_window_opens(world: World) -> None:
    lane, _ = make(world)
    sink = opened(lane, window=4)
    send(lane, 0, 10)
    lane.send(Publish(topic="t", payload=b"10", qos=1, packet_id=1), 1, None)
    frames = run_of(11, 2, qos=0)
    lane.send_frames(frames, len(frames) // 2)
    world.run(0)
    assert (lane.inflight, lane.queued_messages, lane.queued_bytes) == (4, 9, 6 * 12 + (10 + 200) + 2 * 10)
    seen = 0
    for step in (1, 3, 2, 4, 4):
        packets = sink.packets()
        identifiers = (packet.packet_id for packet in packets[seen : seen + step])
        lane.acknowledged([each for each in identifiers if each is not None])
        seen += step
        world.run(0)
        assert lane.inflight <= 4
    assert numbers(sink.packets()) == list(range(13))
    assert (lane.queued_messages, lane.queued_bytes) == (0, 0)


def test_what_is_unacknowledged_of_a_run_is_sent_again_with_its_identifiers(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    send(lane, 0, 10)
    world.run(0)
    lane.acknowledged([1, 2, 5, 9])
    lane.detach()
    send(lane, 10, 1)
    sink = opened(lane)
    world.run(0)
    assert [(int(p.payload), p.dup, p.packet_id) for p in sink.packets()] == [
        *[(packet_id - 1, True, packet_id) for packet_id in (3, 4, 6, 7, 8, 10)],
        (10, False, 11),
    ]
    lane.detach()
    sink = opened(lane)
    world.run(0)
    assert [p.packet_id for p in sink.packets()] == [3, 4, 6, 7, 8, 10, 11]
    assert all(p.dup for p in sink.packets())
    lane.acknowledged([p.packet_id for p in sink.packets()])
    assert lane.idle


def test_a_far_end_that_forgot_gets_the_rest_of_a_run_as_new(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    send(lane, 0, 4)
    world.run(0)
    lane.acknowledged([2])
    lane.detach()
    sink = opened(lane, session_present=False)
    world.run(0)
    assert [(int(p.payload), p.dup) for p in sink.packets()] == [(0, False), (2, False), (3, False)]


def test_a_smaller_window_after_a_reconnection_makes_the_rest_of_a_run_wait(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    send(lane, 0, 10)
    lane.detach()
    sink = opened(lane, window=3)
    world.run(0)
    assert numbers(sink.packets()) == [0, 1, 2]
    assert lane.queued_messages == 7
    for _ in range(4):
        lane.acknowledged([packet.packet_id for packet in sink.packets()])
        world.run(0)
    assert numbers(sink.packets()) == list(range(10))
    assert lane.idle


def test_a_broker_without_qos_1_gets_qos_0(world: World) -> None:
    lane, _ = make(world)
    send(lane, 0, 3)
    sink = opened(lane, max_qos=0)
    send(lane, 3, 3)
    world.run(0)
    assert [(p.qos, p.packet_id) for p in sink.packets()] == [(0, None)] * 6
    assert numbers(sink.packets()) == list(range(6))
    assert lane.idle


def test_a_run_in_flight_goes_to_a_new_connection_without_qos_1(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    send(lane, 0, 3)
    lane.detach()
    sink = opened(lane, max_qos=0)
    world.run(0)
    assert [(int(p.payload), p.qos) for p in sink.packets()] == [(0, 0), (1, 0), (2, 0)]
    assert lane.idle


def test_a_run_of_messages_too_large_is_dropped_and_counted(world: World) -> None:
    lane, counters = make(world)
    opened(lane)
    send(lane, 0, 3)
    lane.detach()
    send(lane, 3, 2)
    sink = opened(lane, max_packet_size=11)
    send(lane, 5, 1)
    world.run(0)
    assert sink.packets() == []
    assert counters == {"link_dropped_too_large": 6}
    assert lane.idle


def test_of_a_run_the_oldest_messages_are_dropped_one_by_one(world: World) -> None:
    lane, counters = make(world, messages=10)
    send(lane, 0, 8)
    send(lane, 8, 5)
    assert (lane.queued_messages, lane.queued_bytes) == (10, 120)
    send(lane, 13, 30)
    assert lane.queued_messages == 10
    lane.send_frames(run_of(43, 2, qos=0), 10)
    assert (lane.queued_messages, lane.queued_bytes) == (10, 10 * 12)
    assert counters == {"link_dropped_overflow_qos1": 33, "link_dropped_overflow_qos0": 2}
    sink = opened(lane)
    world.run(0)
    assert numbers(sink.packets()) == list(range(33, 43))


def test_a_run_larger_than_the_queue_is_cut_to_its_newest(world: World) -> None:
    lane, counters = make(world, bytes=50)
    send(lane, 0, 9)
    assert (lane.queued_messages, lane.queued_bytes, lane.dropped) == (4, 48, 5)
    lane.clear("removed")
    send(lane, 0, 1)
    assert counters == {"link_dropped_overflow_qos1": 5, "link_dropped_removed_qos1": 4}


def test_one_message_larger_than_the_queue_stays(world: World) -> None:
    lane, counters = make(world, bytes=5)
    send(lane, 0, 3)
    assert (lane.queued_messages, counters) == (1, {"link_dropped_overflow_qos1": 2})


def test_runs_hold_their_source_as_messages_do(world: World) -> None:
    lane, counters = make(world, messages=10, overflow="block")
    source = Source()
    send(lane, 0, 12, source)
    assert source.holds == {lane}
    assert not counters
    sink = opened(lane, window=5)
    world.run(0)
    assert source.holds == {lane}
    lane.acknowledged([packet.packet_id for packet in sink.packets()])
    assert source.holds == set()


def test_a_single_answer_and_a_refusal_within_a_run(world: World) -> None:
    lane, counters = make(world)
    opened(lane)
    send(lane, 0, 3)
    world.run(0)
    lane.on_puback(2, 0x87)
    lane.acknowledged([1, 2, 77])
    lane.on_puback(3)
    assert lane.idle
    assert counters == {"link_refused": 1}


def test_a_wrong_answer_ends_only_its_own_message(world: World) -> None:
    """PUBREC to QoS 1: the handshake which the far end believes in is brought to its end."""
    lane, _ = make(world)
    sink = opened(lane)
    send(lane, 0, 3)
    world.run(0)
    lane.on_pubrec(2)
    world.run(0)
    assert sink.packets()[-1] == PubRel(packet_id=2)
    lane.detach()
    sink = opened(lane)
    world.run(0)
    assert [(type(p), p.packet_id) for p in sink.packets()] == [(Publish, 1), (PubRel, 2), (Publish, 3)]
    lane.on_pubcomp(2)
    lane.acknowledged([1, 3])
    assert lane.idle


def test_acknowledgements_of_a_run_do_not_end_a_handshake_of_qos_2(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    lane.send(Publish(topic="t", payload=b"x", qos=2, packet_id=1), 2, None)
    lane.on_pubrec(1)
    lane.acknowledged([1])
    assert lane.inflight == 1


def test_one_message_left_does_not_keep_its_run_in_memory(world: World) -> None:
    lane, _ = make(world)
    opened(lane)
    send(lane, 0, 100)
    send(lane, 100, 100)
    lane.acknowledged([i for i in range(1, 201) if i % 50])
    kept: dict[int, Any] = {id(item): item for item in lane._window._items.values()}
    assert sum(len(item.frames) for item in kept.values()) == 4 * 12
    lane.detach()
    sink = opened(lane)
    world.run(0)
    assert [(int(p.payload), p.packet_id) for p in sink.packets()] == [
        (i - 1, i) for i in (50, 100, 150, 200)
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), max_size=12),
    st.integers(1, 40),
    st.integers(10, 600),
)
def test_the_bounds_of_the_queue_hold_and_everything_is_accounted_for(
    runs: list[tuple[int, int]], messages: int, size: int
) -> None:
    world = World()
    lane, _ = make(world, messages=messages, bytes=size)
    count = 0
    sent_qos_1: set[int] = set()
    for qos, number in runs:
        if qos:
            send(lane, count, number)
            sent_qos_1.update(range(count, count + number))
        else:
            for i in range(number):
                lane.send_frames(run_of(count + i, 1, qos=0), 10)
        count += number
        within = lane.queued_messages <= messages and lane.queued_bytes <= size
        assert within or lane.queued_messages == 1
        assert lane.queued_messages + lane.dropped == count
    sink = opened(lane)
    world.run(0)
    left = numbers(sink.packets())
    assert left == sorted(left)
    for of_one_qos in (sent_qos_1, set(range(count)) - sent_qos_1):  # the oldest have gone
        newest = [number for number in left if number in of_one_qos]
        assert newest == sorted(of_one_qos)[len(of_one_qos) - len(newest) :]
    lost_qos_1 = sent_qos_1 - set(left)
    assert not lost_qos_1 or lane.counters["link_dropped_overflow_qos0"] or not set(left) - sent_qos_1
    assert lane.queued_bytes == 0


def test_counters_of_a_lane_that_is_cleared(world: World) -> None:
    lane, counters = make(world)
    opened(lane, window=5)
    send(lane, 0, 8)
    lane.clear("removed")
    assert counters == Counters({"link_dropped_removed_qos1": 8})
    assert (lane.inflight, lane.queued_messages, lane.queued_bytes) == (0, 0, 0)


def test_a_run_too_long_for_a_source_that_should_wait_is_cut_at_its_end(world: World) -> None:
    lane, counters = make(world, messages=10, overflow="block")
    source = Source()
    send(lane, 0, 12, source)
    send(lane, 12, 100, source)
    assert source.ended
    assert (lane.queued_messages, lane.queued_bytes) == (20, 20 * 12)
    assert counters == {"link_dropped_overflow_qos1": 92}
    sink = opened(lane)
    world.run(0)
    assert numbers(sink.packets()) == list(range(20))
    assert lane.queued_bytes == 0


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), max_size=12),
)
def test_stretches_acknowledged_at_once_are_done_as_one_by_one(
    runs: list[int], stretches: list[tuple[int, int]]
) -> None:
    """Whatever consecutive identifiers are acknowledged, in whatever order, some twice."""
    world = World()
    lanes = [make(world)[0] for _ in range(2)]
    for lane in lanes:
        opened(lane)
        count = 0
        for number in runs:
            send(lane, count, number)
            count += number
    for first, number in stretches:
        lanes[0].acknowledged(range(first, first + number))
        lanes[1].acknowledged([*range(first, first + number)])
        assert lanes[0]._window.ids == lanes[1]._window.ids
        assert lanes[0]._window.bytes == lanes[1]._window.bytes == 12 * lanes[0].inflight
