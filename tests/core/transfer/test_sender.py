"""The sending side of a session: joining, bounds, QoS handshakes, expiry."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.transfer.wire import JOINED
from ildm.mqtt import Property, Publish, PubRel, Version, decode
from ildm.testing.virtual.world import World
from tests.support.senders import Source, like, make, opened, send_message


def message(topic: str = "t", qos: int = 0, **fields: Any) -> Publish:
    return Publish(topic=topic, payload=b"x", qos=qos, packet_id=1 if qos else None, **fields)


FRAME = Publish(topic="t", payload=b"x").encode(Version.V5)


def test_what_is_sent_in_one_iteration_is_one_write(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender)
    for _ in range(5):
        sender.send(like(FRAME * 3, len(FRAME)))
    send_message(sender, message("u"), 0, None)
    world.run(0)
    assert len(sink.writes) == 1
    assert [p.topic for p in sink.packets()] == ["t"] * 15 + ["u"]
    assert sender.sent == 16


def test_with_a_delay_what_comes_meanwhile_goes_in_one_write(world: World) -> None:
    sender, _ = make(world, delay=0.01)
    sink = opened(sender)
    for _ in range(9):
        sender.send(like(FRAME, len(FRAME)))
        world.run(0.001)
    assert sink.writes == []
    world.run(0.0011)
    assert sink.writes == [FRAME * 9]
    sender.wire.write(FRAME)  # acknowledgements wait likewise
    world.run(0.0099)
    assert len(sink.writes) == 1
    world.run(0.0002)
    assert sink.writes[1:] == [FRAME]


def test_what_is_much_does_not_wait_for_the_delay(world: World) -> None:
    sender, _ = make(world, delay=0.01)
    sink = opened(sender)
    size = len(FRAME)
    count = JOINED // size
    sender.send(like(FRAME * count, size))
    world.run(0)
    assert sink.writes == []
    sender.send(like(FRAME, size))
    world.run(0)
    assert sink.writes == [FRAME * (count + 1)]
    sender.send(like(FRAME, size))
    world.run(0.0099)
    assert len(sink.writes) == 1  # the delay begins anew


def test_what_waits_for_the_delay_at_the_end_of_the_session_goes_out(world: World) -> None:
    sender, _ = make(world, delay=0.01)
    sink = opened(sender)
    sender.send(like(FRAME, len(FRAME)))
    assert not sender.idle
    sender.suspend()
    assert sink.writes == [FRAME]
    assert sender.idle


def test_the_delay_of_a_connection_that_has_gone_writes_nothing_to_the_next(world: World) -> None:
    sender, _ = make(world, delay=0.01)
    first = opened(sender)
    sender.send(like(FRAME, len(FRAME)))
    sender.detach()
    second = opened(sender)
    world.run(0.02)
    assert first.writes == second.writes == []


def test_messages_wait_while_the_session_is_down_and_keep_their_order(world: World) -> None:
    sender, _ = make(world)
    sender.send(like(FRAME, len(FRAME)))
    send_message(sender, message("u", 1), 1, None)
    sender.send(like(FRAME, len(FRAME)))
    assert sender.queued_messages == 3
    sink = opened(sender)
    world.run(0)
    assert [p.topic for p in sink.packets()] == ["t", "u", "t"]
    assert sender.queued_messages == sender.queued_bytes == 0


def test_drop_discards_the_oldest_of_qos_0_and_counts_by_qos(world: World) -> None:
    """What was acknowledged to its publisher does not go for telemetry."""
    sender, counters = make(world, messages=3)
    for topic, qos in (("a", 0), ("b", 1), ("c", 0), ("d", 0), ("e", 0)):
        send_message(sender, message(topic, qos), qos, None)
    sink = opened(sender)
    world.run(0)
    assert [p.topic for p in sink.packets()] == ["b", "d", "e"]
    assert counters == {"link_dropped_overflow_qos0": 2}
    assert sender.dropped == 2


def test_the_queue_is_bounded_in_bytes(world: World) -> None:
    sender, _ = make(world, bytes=1000)
    for _ in range(100):
        send_message(sender, Publish(topic="t", payload=b"x" * 100), 0, None)
    assert sender.queued_bytes <= 1000


def test_properties_count_in_the_bound(world: World) -> None:
    """What a queue keeps of a message is its topic, its payload and its user properties."""
    sender, counters = make(world, bytes=100_000)
    users = [("name", "v" * 1000)] * 20
    for _ in range(100):
        send_message(sender, message(properties={Property.USER_PROPERTY: users}), 0, None)
    assert 0 < sender.queued_messages <= 4
    assert sender.queued_bytes <= 100_000
    assert counters["link_dropped_overflow_qos0"] == 100 - sender.queued_messages


def test_block_holds_the_sources_until_half_is_sent(world: World) -> None:
    sender, counters = make(world, messages=10, overflow="block")
    source = Source()
    for i in range(12):
        send_message(sender, message(str(i), 1), 1, None, source)
    assert source.holds == {sender.pressure}
    assert not counters
    sink = opened(sender)
    world.run(0)
    assert source.holds == set()
    assert [p.topic for p in sink.packets()] == [str(i) for i in range(12)]


def test_block_is_bounded_too(world: World) -> None:
    """A source that does not wait loses what it has sent last, and is ended; not what came before."""
    sender, counters = make(world, messages=10, overflow="block")
    patient, greedy = Source(), Source()
    for i in range(12):
        send_message(sender, message(str(i), 1), 1, None, patient)
    for i in range(100):
        send_message(sender, message(f"greedy/{i}", 1), 1, None, greedy)
    assert (patient.ended, greedy.ended) == (False, True)
    assert sender.queued_messages == 20
    assert counters["link_dropped_overflow_qos1"] == 92
    sink = opened(sender)
    world.run(0)
    expected = [str(i) for i in range(12)] + [f"greedy/{i}" for i in range(8)]
    assert [p.topic for p in sink.packets()] == expected


def test_block_holds_nobody_for_qos_0(world: World) -> None:
    """There is no acknowledgement to defer: what is over the bound goes, the oldest first."""
    sender, counters = make(world, messages=10, overflow="block")
    source = Source()
    for i in range(100):
        send_message(sender, message(str(i)), 0, None, source)
    assert source.holds == set()
    assert (sender.queued_messages, counters["link_dropped_overflow_qos0"]) == (10, 90)


def test_a_session_that_cannot_take_more_makes_messages_wait(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender)
    sender.wire.set_flowing(False)
    sender.send(like(FRAME, len(FRAME)))
    world.run(0)
    assert sink.writes == []
    sender.wire.set_flowing(True)
    world.run(0)
    assert sink.writes == [FRAME]


def test_the_window_of_the_far_end_is_obeyed(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender, window=2)
    for i in range(5):
        send_message(sender, message(str(i), 1), 1, None)
    world.run(0)
    first = sink.packets()
    assert [p.topic for p in first] == ["0", "1"]
    sender.on_puback(first[0].packet_id)
    world.run(0)
    assert [p.topic for p in sink.packets()] == ["0", "1", "2"]
    sender.on_puback(999)  # unknown: ignored
    world.run(0)
    assert len(sink.packets()) == 3


def test_70000_messages_never_reuse_an_identifier_in_flight(world: World) -> None:
    sender, _ = make(world, inflight=100)
    sink = opened(sender)
    under_way: list[int] = []
    for _ in range(70_000):
        send_message(sender, message("t", 1), 1, None)
        if len(under_way) == 99:
            sender.on_puback(under_way.pop(0))
        world.run(0)
        packet = decode(sink.writes.pop(), Version.V5)
        assert isinstance(packet, Publish)
        assert packet.packet_id is not None
        assert 1 <= packet.packet_id <= 65535
        assert packet.packet_id not in under_way
        under_way.append(packet.packet_id)


def test_qos_2_handshake(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender)
    send_message(sender, message("t", 2), 2, None)
    world.run(0)
    packet_id = sink.packets()[0].packet_id
    sender.on_pubrec(packet_id)
    world.run(0)
    assert sink.packets()[1] == PubRel(packet_id=packet_id)
    assert not sender.idle
    sender.completed((packet_id,))
    assert sender.idle
    sender.on_pubrec(packet_id)  # unknown now: MQTT 5 says so
    world.run(0)
    assert sink.packets()[2].reason_code == 0x92


def test_after_a_reconnection_unacknowledged_messages_come_first_with_dup(world: World) -> None:
    sender, _ = make(world)
    sink = opened(sender)
    for topic, qos in (("a", 1), ("b", 2), ("c", 2)):
        send_message(sender, message(topic, qos), qos, None)
    world.run(0)
    ids = [p.packet_id for p in sink.packets()]
    sender.on_pubrec(ids[1])
    sender.detach()
    send_message(sender, message("d", 1), 1, None)
    sink = opened(sender)
    world.run(0)
    again = sink.packets()
    assert [(p.topic, p.dup, p.packet_id) for p in again if isinstance(p, Publish)][:2] == [
        ("a", True, ids[0]),
        ("c", True, ids[2]),
    ]
    assert [p.packet_id for p in again if isinstance(p, PubRel)] == [ids[1]]
    assert again[-1].topic == "d"
    assert again[-1].dup is False


def test_a_far_end_that_forgot_gets_everything_it_has_not_completed(world: World) -> None:
    """A broker that delivers at PUBREL has lost what was received and not released."""
    sender, _ = make(world)
    sink = opened(sender)
    for topic in ("a", "b"):
        send_message(sender, message(topic, 2), 2, None)
    world.run(0)
    sender.on_pubrec(sink.packets()[0].packet_id)
    sender.detach()
    sink = opened(sender, session_present=False)
    world.run(0)
    assert [(p.topic, p.dup) for p in sink.packets()] == [("a", False), ("b", False)]


def test_a_smaller_window_after_a_reconnection(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    for i in range(5):
        send_message(sender, message(str(i), 1), 1, None)
    sender.detach()
    sink = opened(sender, window=2)
    world.run(0)
    assert [p.topic for p in sink.packets()] == ["0", "1"]
    for _ in range(5):
        for packet in sink.packets():
            sender.on_puback(packet.packet_id)
        world.run(0)
    assert [p.topic for p in sink.packets()] == ["0", "1", "2", "3", "4"]


def test_expiry_counts_the_time_of_waiting(world: World) -> None:
    sender, counters = make(world)
    for topic, expiry in (("short", 2), ("long", 60)):
        properties = {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        send_message(sender, message(topic, 1, properties=properties), 1, sender.driver.now() + expiry)
    world.run(3)
    sink = opened(sender)
    world.run(0)
    assert [(p.topic, p.properties) for p in sink.packets()] == [
        ("long", {Property.MESSAGE_EXPIRY_INTERVAL: 57})
    ]
    assert counters["link_dropped_expired"] == 1


def test_a_3_1_1_broker_gets_no_properties_and_no_higher_qos(world: World) -> None:
    sender, counters = make(world)
    sink = opened(sender, version=Version.V311, max_qos=1, retain_available=False)
    send_message(sender, message("t", 2, retain=True, properties={Property.CONTENT_TYPE: "x"}), 2, None)
    sender.send(like(FRAME * 2, len(FRAME)))
    world.run(0)
    first, *rest = sink.packets(Version.V311)
    assert (first.topic, first.qos, first.retain, first.properties) == ("t", 1, False, {})
    assert [p.topic for p in rest] == ["t", "t"]
    assert counters == {"link_properties_dropped": 1, "link_retain_dropped": 1}


def test_what_the_far_end_cannot_take_is_dropped_and_counted(world: World) -> None:
    sender, counters = make(world)
    sink = opened(sender, max_packet_size=50)
    send_message(sender, Publish(topic="t", payload=b"x" * 100), 0, None)
    send_message(sender, Publish(topic="t", payload=b"x" * 100, qos=1, packet_id=1), 1, None)
    big = Publish(topic="t", payload=b"x" * 100).encode(Version.V5)
    sender.send(like(big * 2, len(big)))
    send_message(sender, message("u", 1), 1, None)
    world.run(0)
    assert [p.topic for p in sink.packets()] == ["u"]
    assert counters["link_dropped_too_large"] == 4
    assert sender.inflight == 1


def test_frames_that_waited_are_measured_against_the_connection_they_go_over(world: World) -> None:
    sender, counters = make(world)
    big = Publish(topic="t", payload=b"x" * 100).encode(Version.V5)
    sender.send(like(big * 2, len(big)))
    sender.send(like(FRAME, len(FRAME)))
    sink = opened(sender, max_packet_size=50)
    world.run(0)
    assert [packet.topic for packet in sink.packets()] == ["t"]
    assert counters["link_dropped_too_large"] == 2


def test_refused_messages_are_counted_and_do_not_stall(world: World) -> None:
    sender, counters = make(world)
    sink = opened(sender, window=1)
    send_message(sender, message("a", 1), 1, None)
    send_message(sender, message("b", 2), 2, None)
    world.run(0)
    sender.on_puback(sink.packets()[0].packet_id, 0x87)
    world.run(0)
    sender.on_pubrec(sink.packets()[1].packet_id, 0x87)
    assert sender.idle
    assert counters["link_refused"] == 2
    assert sender.last_refusal == "PUBLISH refused with reason 0x87"


def test_clear_counts_what_is_lost(world: World) -> None:
    sender, counters = make(world)
    sender.send(like(FRAME * 3, len(FRAME)))
    sender.clear("removed")
    assert counters["link_dropped_removed_qos0"] == 3
    assert sender.idle


def test_a_message_larger_than_the_queue_is_kept_as_the_newest(world: World) -> None:
    sender, counters = make(world, bytes=2 << 20)
    for _ in range(5):
        send_message(sender, message("small", 1), 1, None)
    send_message(sender, Publish(topic="large", payload=b"x" * (3 << 20)), 1, None)
    assert counters == {"link_dropped_overflow_qos1": 5}
    sink = opened(sender)
    world.run(0)
    assert [packet.topic for packet in sink.packets()] == ["large"]
    assert sender.queued_bytes == 0


@pytest.mark.parametrize("far", [{"max_packet_size": 1000}, {"max_qos": 0}])
def test_what_a_new_connection_cannot_take_does_not_stay_in_flight(world: World, far: dict[str, Any]) -> None:
    sender, counters = make(world)
    opened(sender)
    send_message(sender, Publish(topic="t", payload=b"x" * 2000), 1, None)
    world.run(0)
    assert sender.inflight == 1
    sender.detach()
    sink = opened(sender, **far)
    world.run(0)
    assert sender.inflight == 0
    assert sender.idle
    if "max_qos" in far:
        assert [(packet.qos, packet.packet_id) for packet in sink.packets()] == [(0, None)]
    else:
        assert sink.packets() == []
        assert counters == {"link_dropped_too_large": 1}


def test_a_connection_that_follows_another_at_once_resends_what_is_in_flight(world: World) -> None:
    sender, _ = make(world)
    opened(sender)
    send_message(sender, message("t", 1), 1, None)
    world.run(0)
    sink = opened(sender)  # without a detach in between
    world.run(0)
    assert [(packet.topic, packet.dup) for packet in sink.packets()] == [("t", True)]
