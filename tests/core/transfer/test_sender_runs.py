"""Runs of QoS 1 on the sending side of a session: identifiers, the window, what is sent again, bounds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.counters import Counters
from ildm.mqtt import Publish, PubRel, Version
from ildm.testing.virtual.world import World
from tests.support.senders import Source, like, make, opened, run_of, send, send_message


def numbers(packets: list[Any]) -> list[int]:
    return [int(packet.payload) for packet in packets]


def test_a_run_is_one_write_with_identifiers_of_its_own(world: World) -> None:
    sender, _ = make(world)
    sender._window.last_id = 254
    sink = opened(sender)
    frames = run_of(0, 3)
    sender.send(like(frames, len(frames) // 3))
    world.run(0)
    assert sink.writes == [
        b"\x32\x0a\x00\x01t\x00\xff\x000000\x32\x0a\x00\x01t\x01\x00\x000001\x32\x0a\x00\x01t\x01\x01\x000002"
    ]
    assert (sender.sent, sender.inflight, sender.queued_messages) == (3, 3, 0)
    sender.acknowledged([255, 256, 257])
    assert sender.idle


def test_a_run_goes_to_a_broker_of_3_1_1_without_the_length_of_its_properties(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender, version=Version.V311)
    send(sender, 7, 2)
    world.run(0)
    assert sink.writes == [b"\x32\x09\x00\x01t\x00\x010007\x32\x09\x00\x01t\x00\x020008"]
    sender.detach()
    sink = opened(sender, version=Version.V311)
    world.run(0)
    assert sink.writes == [b"\x3a\x09\x00\x01t\x00\x010007\x3a\x09\x00\x01t\x00\x020008"]


def test_identifiers_begin_anew_after_65535_and_pass_over_those_in_use(world: World) -> None:
    sender, _ = make(world)
    sender._window.last_id = 65_532
    reserved = sender.new_packet_id()
    sink = opened(sender)
    sender._window._reserved |= {reserved, 3}
    send(sender, 0, 6)
    world.run(0)
    assert [packet.packet_id for packet in sink.packets()] == [65_534, 65_535, 1, 2, 4, 5]
    assert numbers(sink.packets()) == list(range(6))


def test_a_run_leaves_as_the_window_opens(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender, window=4)
    send(sender, 0, 10)
    send_message(sender, Publish(topic="t", payload=b"10", qos=1, packet_id=1), 1, None)
    frames = run_of(11, 2, qos=0)
    sender.send(like(frames, len(frames) // 2))
    world.run(0)
    assert (sender.inflight, sender.queued_messages, sender.queued_bytes) == (
        4,
        9,
        6 * 12 + 10 + 2 * 10,
    )
    seen = 0
    for step in (1, 3, 2, 4, 4):
        packets = sink.packets()
        identifiers = (packet.packet_id for packet in packets[seen : seen + step])
        sender.acknowledged([each for each in identifiers if each is not None])
        seen += step
        world.run(0)
        assert sender.inflight <= 4
    assert numbers(sink.packets()) == list(range(13))
    assert (sender.queued_messages, sender.queued_bytes) == (0, 0)


def test_what_is_unacknowledged_of_a_run_is_sent_again_with_its_identifiers(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send(sender, 0, 10)
    world.run(0)
    sender.acknowledged([1, 2, 5, 9])
    sender.detach()
    send(sender, 10, 1)
    sink = opened(sender)
    world.run(0)
    assert [(int(p.payload), p.dup, p.packet_id) for p in sink.packets()] == [
        *[(packet_id - 1, True, packet_id) for packet_id in (3, 4, 6, 7, 8, 10)],
        (10, False, 11),
    ]
    sender.detach()
    sink = opened(sender)
    world.run(0)
    assert [p.packet_id for p in sink.packets()] == [3, 4, 6, 7, 8, 10, 11]
    assert all(p.dup for p in sink.packets())
    sender.acknowledged([p.packet_id for p in sink.packets()])
    assert sender.idle


def test_a_far_end_that_forgot_gets_the_rest_of_a_run_as_new(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send(sender, 0, 4)
    world.run(0)
    sender.acknowledged([2])
    sender.detach()
    sink = opened(sender, session_present=False)
    world.run(0)
    assert [(int(p.payload), p.dup) for p in sink.packets()] == [(0, False), (2, False), (3, False)]


def test_a_smaller_window_after_a_reconnection_makes_the_rest_of_a_run_wait(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send(sender, 0, 10)
    sender.detach()
    sink = opened(sender, window=3)
    world.run(0)
    assert numbers(sink.packets()) == [0, 1, 2]
    assert sender.queued_messages == 7
    for _ in range(4):
        sender.acknowledged([packet.packet_id for packet in sink.packets()])
        world.run(0)
    assert numbers(sink.packets()) == list(range(10))
    assert sender.idle


def test_a_broker_without_qos_1_gets_qos_0(world: World) -> None:
    sender, _ = make(world)
    send(sender, 0, 3)
    sink = opened(sender, max_qos=0)
    send(sender, 3, 3)
    world.run(0)
    assert [(p.qos, p.packet_id) for p in sink.packets()] == [(0, None)] * 6
    assert numbers(sink.packets()) == list(range(6))
    assert sender.idle


def test_a_run_in_flight_goes_to_a_new_connection_without_qos_1(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send(sender, 0, 3)
    sender.detach()
    sink = opened(sender, max_qos=0)
    world.run(0)
    assert [(int(p.payload), p.qos) for p in sink.packets()] == [(0, 0), (1, 0), (2, 0)]
    assert sender.idle


def test_a_run_of_messages_too_large_is_dropped_and_counted(world: World) -> None:
    sender, counters = make(world)
    opened(sender)
    send(sender, 0, 3)
    sender.detach()
    send(sender, 3, 2)
    sink = opened(sender, max_packet_size=11)
    send(sender, 5, 1)
    world.run(0)
    assert sink.packets() == []
    assert counters == {"link_dropped_too_large": 6}
    assert sender.idle


def test_of_a_run_the_oldest_messages_are_dropped_one_by_one(world: World) -> None:
    sender, counters = make(world, messages=10)
    send(sender, 0, 8)
    send(sender, 8, 5)
    assert (sender.queued_messages, sender.queued_bytes) == (10, 120)
    send(sender, 13, 30)
    assert sender.queued_messages == 10
    sender.send(like(run_of(43, 2, qos=0), 10))
    assert (sender.queued_messages, sender.queued_bytes) == (10, 10 * 12)
    assert counters == {"link_dropped_overflow_qos1": 33, "link_dropped_overflow_qos0": 2}
    sink = opened(sender)
    world.run(0)
    assert numbers(sink.packets()) == list(range(33, 43))


def test_a_run_larger_than_the_queue_is_cut_to_its_newest(world: World) -> None:
    sender, counters = make(world, bytes=50)
    send(sender, 0, 9)
    assert (sender.queued_messages, sender.queued_bytes, sender.dropped) == (4, 48, 5)
    sender.clear("removed")
    send(sender, 0, 1)
    assert counters == {"link_dropped_overflow_qos1": 5, "link_dropped_removed_qos1": 4}


def test_one_message_larger_than_the_queue_stays(world: World) -> None:
    sender, counters = make(world, bytes=5)
    send(sender, 0, 3)
    assert (sender.queued_messages, counters) == (1, {"link_dropped_overflow_qos1": 2})


def test_runs_hold_their_source_as_messages_do(world: World) -> None:
    sender, counters = make(world, messages=10, overflow="block")
    source = Source()
    send(sender, 0, 12, source)
    assert source.holds == {sender.pressure}
    assert not counters
    sink = opened(sender, window=5)
    world.run(0)
    assert source.holds == {sender.pressure}
    sender.acknowledged([packet.packet_id for packet in sink.packets()])
    assert source.holds == set()


def test_a_single_answer_and_a_refusal_within_a_run(world: World) -> None:
    sender, counters = make(world)
    opened(sender)
    send(sender, 0, 3)
    world.run(0)
    sender.on_puback(2, 0x87)
    sender.acknowledged([1, 2, 77])
    sender.on_puback(3)
    assert sender.idle
    assert counters == {"link_refused": 1}


def test_a_wrong_answer_ends_only_its_own_message(world: World) -> None:
    """PUBREC to QoS 1: the handshake which the far end believes in is brought to its end."""
    sender, _ = make(world)
    sink = opened(sender)
    send(sender, 0, 3)
    world.run(0)
    sender.on_pubrec(2)
    world.run(0)
    assert sink.packets()[-1] == PubRel(packet_id=2)
    sender.detach()
    sink = opened(sender)
    world.run(0)
    assert [(type(p), p.packet_id) for p in sink.packets()] == [(Publish, 1), (PubRel, 2), (Publish, 3)]
    sender.completed((2,))
    sender.acknowledged([1, 3])
    assert sender.idle


def test_acknowledgements_of_a_run_do_not_end_a_handshake_of_qos_2(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send_message(sender, Publish(topic="t", payload=b"x", qos=2, packet_id=1), 2, None)
    sender.on_pubrec(1)
    sender.acknowledged([1])
    assert sender.inflight == 1


def test_one_message_left_does_not_keep_its_run_in_memory(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send(sender, 0, 100)
    send(sender, 100, 100)
    sender.acknowledged([i for i in range(1, 201) if i % 50])
    kept: dict[int, Any] = {id(item): item for item in sender._window._items.values()}
    assert sum(len(item.messages.frames) for item in kept.values()) == 4 * 12
    sender.detach()
    sink = opened(sender)
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
    sender, _ = make(world, messages=messages, bytes=size)
    count = 0
    sent_qos_1: set[int] = set()
    for qos, number in runs:
        if qos:
            send(sender, count, number)
            sent_qos_1.update(range(count, count + number))
        else:
            for i in range(number):
                sender.send(like(run_of(count + i, 1, qos=0), 10))
        count += number
        within = sender.queued_messages <= messages and sender.queued_bytes <= size
        assert within or sender.queued_messages == 1
        assert sender.queued_messages + sender.dropped == count
    sink = opened(sender)
    world.run(0)
    left = numbers(sink.packets())
    assert left == sorted(left)
    for of_one_qos in (sent_qos_1, set(range(count)) - sent_qos_1):  # the oldest have gone
        newest = [number for number in left if number in of_one_qos]
        assert newest == sorted(of_one_qos)[len(of_one_qos) - len(newest) :]
    lost_qos_1 = sent_qos_1 - set(left)
    assert not lost_qos_1 or sender.counters["link_dropped_overflow_qos0"] or not set(left) - sent_qos_1
    assert sender.queued_bytes == 0


def test_counters_of_a_sender_that_is_cleared(world: World) -> None:
    sender, counters = make(world)
    opened(sender, window=5)
    send(sender, 0, 8)
    sender.clear("removed")
    assert counters == Counters({"link_dropped_removed_qos1": 8})
    assert (sender.inflight, sender.queued_messages, sender.queued_bytes) == (0, 0, 0)


def test_a_run_too_long_for_a_source_that_should_wait_is_cut_at_its_end(world: World) -> None:
    sender, counters = make(world, messages=10, overflow="block")
    source = Source()
    send(sender, 0, 12, source)
    send(sender, 12, 100, source)
    assert source.ended
    assert (sender.queued_messages, sender.queued_bytes) == (20, 20 * 12)
    assert counters == {"link_dropped_overflow_qos1": 92}
    sink = opened(sender)
    world.run(0)
    assert numbers(sink.packets()) == list(range(20))
    assert sender.queued_bytes == 0


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
    senders = [make(world)[0] for _ in range(2)]
    for sender in senders:
        opened(sender)
        count = 0
        for number in runs:
            send(sender, count, number)
            count += number
    for first, number in stretches:
        senders[0].acknowledged(range(first, first + number))
        senders[1].acknowledged([*range(first, first + number)])
        assert senders[0]._window.ids == senders[1]._window.ids
        assert senders[0]._window.bytes == senders[1]._window.bytes == 12 * senders[0].inflight
