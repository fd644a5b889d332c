"""Messages of several topics that a sender has as one batch of QoS 1."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.transfer.batch import Batch, batch_of
from ildm.core.transfer.inbound import Inbound
from ildm.mqtt import Framer, PubAck, Publish, Version, decode
from ildm.testing.virtual.world import World
from tests.support.senders import Sink, make, opened

SIZES = (10, 200, 20, 30, 40)


class Answered:
    """A neighbour that has sent the batch: the identifiers it has got acknowledged."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.inbound = Inbound(100, 1 << 20, self._answered)
        self.inbound.take(mixed())
        self.receipt = self.inbound.receipt

    def _answered(self, data: bytes) -> None:
        self.ids += [packet.packet_id for packet in map(_puback, Framer().feed(data))]


def _puback(frame: bytes) -> PubAck:
    packet = decode(frame, Version.V5)
    assert isinstance(packet, PubAck)
    return packet


@pytest.fixture
def world() -> World:
    return World()


def mixed() -> Batch:
    """Identifiers are 501 and those that follow."""
    frames = [
        Publish(topic=f"t/{n}", payload=bytes(size), qos=1, packet_id=501 + n).encode(Version.V5)
        for n, size in enumerate(SIZES)
    ]
    return batch_of(b"".join(frames), len(frames))


def said(sink: Sink, version: Version = Version.V5) -> list[tuple[str, int | None, bool]]:
    return [(packet.topic, packet.packet_id, packet.dup) for packet in sink.packets(version)]


def test_it_leaves_as_the_window_opens(world: World) -> None:
    sender, _ = make(world)
    neighbor = Answered()
    sink = opened(sender, window=2)
    sender.send(mixed(), None, neighbor.receipt)
    world.run(0)
    assert said(sink) == [("t/0", 1, False), ("t/1", 2, False)]
    sender.on_puback(2)
    world.run(0)
    assert said(sink)[2:] == [("t/2", 3, False)]
    sender.acknowledged(range(3, 4))
    sender.acknowledged([1])
    world.run(0)
    assert said(sink)[3:] == [("t/3", 4, False), ("t/4", 5, False)]
    sender.acknowledged(range(4, 6))
    assert neighbor.ids == [502, 503, 501, 504, 505]
    assert sender.idle
    sender._window.check()


def test_a_message_too_large_does_not_stop_the_others(world: World) -> None:
    sender, counters = make(world)
    neighbor = Answered()
    sink = opened(sender, max_packet_size=100)
    sender.send(mixed(), None, neighbor.receipt)
    world.run(0)
    assert [topic for topic, _, _ in said(sink)] == ["t/0", "t/2", "t/3", "t/4"]
    assert neighbor.ids == [502]
    sender.acknowledged([packet_id for _, packet_id, _ in said(sink) if packet_id])
    assert sorted(neighbor.ids) == [501, 502, 503, 504, 505]
    assert counters["link_dropped_too_large"] == 1
    assert sender.idle


@pytest.mark.parametrize(
    ("far", "qos"), [({"version": Version.V311}, 1), ({"max_qos": 0}, 0), ({"version": Version.V5}, 1)]
)
def test_the_far_end_gets_it_as_it_can_take_it(world: World, far: dict[str, Any], qos: int) -> None:
    sender, _ = make(world)
    neighbor = Answered()
    sink = opened(sender, **far)
    sender.send(mixed(), None, neighbor.receipt)
    world.run(0)
    packets = sink.packets(sender.wire.version)
    assert [(p.topic, len(p.payload), p.qos) for p in packets] == [
        (f"t/{n}", size, qos) for n, size in enumerate(SIZES)
    ]
    sender.acknowledged([p.packet_id for p in packets if qos])
    assert neighbor.ids == [501, 502, 503, 504, 505]
    assert sender.idle


@pytest.mark.parametrize("far", [{}, {"version": Version.V311}])
def test_what_was_not_acknowledged_goes_again_with_its_identifiers(world: World, far: dict[str, Any]) -> None:
    sender, _ = make(world)
    neighbor = Answered()
    opened(sender, **far)
    sender.send(mixed(), None, neighbor.receipt)
    sender.acknowledged([1, 3])
    sender.detach()
    sink = opened(sender, **far)
    world.run(0)
    assert said(sink, sender.wire.version) == [("t/1", 2, True), ("t/3", 4, True), ("t/4", 5, True)]
    sender.acknowledged([2, 4, 5])
    assert neighbor.ids == [501, 503, 502, 504, 505]
    assert sender.idle


def test_what_is_too_large_for_the_next_connection_is_dropped_alone(world: World) -> None:
    sender, counters = make(world)
    neighbor = Answered()
    opened(sender)
    sender.send(mixed(), None, neighbor.receipt)
    sender.acknowledged([1])
    sender.detach()
    sink = opened(sender, max_packet_size=100, window=2)
    world.run(0)
    sender._window.check()
    assert counters["link_dropped_too_large"] == 1
    while sink.writes:
        ids = [packet_id for _, packet_id, _ in said(sink) if packet_id]
        sink.writes.clear()
        sender.acknowledged(ids)
        world.run(0)
    assert sorted(neighbor.ids) == [501, 502, 503, 504, 505]
    assert sender.idle


def test_one_message_of_it_at_which_the_far_end_hangs_up_is_dropped_alone(world: World) -> None:
    sender, counters = make(world)
    neighbor = Answered()
    opened(sender)
    sender.send(mixed(), None, neighbor.receipt)
    world.run(0)
    came: list[str] = []
    for _ in range(4):
        sender.isolation.hung_up()
        sender.detach()
        sink = opened(sender)
        world.run(0)
        while sink.writes and (packets := sink.packets()):
            sink.writes.clear()
            if any(packet.topic == "t/1" for packet in packets):
                break
            came += [packet.topic for packet in packets]
            sender.acknowledged([packet.packet_id for packet in packets])
            world.run(0)
    assert counters["link_dropped_poison"] == 1
    assert came == ["t/0", "t/2", "t/3", "t/4"]
    assert sorted(neighbor.ids) == [501, 502, 503, 504, 505]
    assert sender.idle
