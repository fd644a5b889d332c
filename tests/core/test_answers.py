"""Packets of the node's own to a client: never amid one of the broker's, never too many."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.mqtt import Framer, PingReq, PingResp, PubAck, Publish, Version, decode
from ildm.testing.virtual.world import World
from tests.core.test_filtered_messages import Setting, publish
from tests.support.examples import examples


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 100, 300_000])
def test_an_answer_waits_until_the_brokers_packet_is_whole(cut: int) -> None:
    world = World()
    setting = Setting(world)
    client = setting.client()
    broker = setting.broker.connections[0].transport
    large = Publish(topic="large", payload=bytes(400_000)).encode(Version.V5)
    after = Publish(topic="after").encode(Version.V5)
    broker.write(large[:cut])
    world.run(1)
    client.send(publish(b"0x99", 1, 1))
    world.run(1)
    assert not client.packets[1:]
    broker.write(large[cut:] + after)
    world.run(1)
    assert [type(packet) for packet in client.packets[1:]] == [Publish, PubAck, Publish]
    client.send(publish(b"0x99", 1, 2))
    world.run(1)
    assert client.got(PubAck) == [PubAck(packet_id=n, reason_code=0x99) for n in (1, 2)]
    assert not setting.node.sessions.pop().paired.watching


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=20), st.data())
def test_the_brokers_stream_stays_whole_wherever_answers_come(
    steps: list[tuple[int, bool]], draw: st.DataObject
) -> None:
    world = World()
    setting = Setting(world)
    client = setting.client()
    broker = setting.broker.connections[0].transport
    sent = [Publish(topic="t", payload=bytes(draw.draw(st.integers(0, 200)))) for _ in range(5)]
    stream = b"".join(packet.encode(Version.V5) for packet in sent)
    received = bytearray()
    client.data_received = received.extend  # type: ignore[method-assign,assignment]
    answers = 0
    for size, answer in steps:
        broker.write(stream[:size])
        stream = stream[size:]
        world.run(0.1)
        if answer:
            answers += 1
            client.send(publish(b"0x99", 1, answers))
            world.run(0.1)
    broker.write(stream)
    world.run(0.1)
    packets = [decode(frame, Version.V5) for frame in Framer().feed(bytes(received))]
    assert [packet for packet in packets if isinstance(packet, Publish)] == sent
    assert [packet.packet_id for packet in packets if isinstance(packet, PubAck)] == [*range(1, answers + 1)]


@pytest.mark.parametrize("amid", [False, True])
def test_who_does_not_read_his_answers_is_not_read(amid: bool) -> None:
    """Whether the broker has begun a packet or not."""
    world = World()
    setting = Setting(world, limits={"write_buffer": 4096})
    client = setting.client()
    client.transport.pause_reading()
    broker = setting.broker.connections[0].transport
    large = Publish(topic="large", payload=bytes(1000)).encode(Version.V5)
    if amid:
        broker.write(large[:500])
        world.run(1)
    (session,) = setting.node.sessions
    frame = publish(b"0x99", 1, 1).encode(Version.V5)
    for _ in range(100):
        client.transport.write(frame * 1000)
        world.run(1)
    assert session.paused
    held = session.transport.get_write_buffer_size() + len(session.paired._beside or b"")
    assert held < 100_000
    assert setting.node.counters["filtered"] < 50_000
    if amid:
        broker.write(large[500:])
    client.transport.resume_reading()
    world.run(60)
    assert not session.paused
    assert len(client.got(PubAck)) == setting.node.counters["filtered"] == 100_000


# the broker hears of the client -------------------------------------------------------------------


@pytest.mark.parametrize("way", ["rejected", "deferred"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_broker_does_not_take_a_client_for_gone_whose_messages_are_rejected(
    version: Version, way: str
) -> None:
    """MQTT-3.1.2-22: it must hear of it within one and a half times the keep alive, of which the client sees
    nothing: it gets the answers to its own PINGREQ, no others."""
    world = World()
    setting = Setting(world)
    client = setting.client(version, keep_alive=6)
    heard: list[float] = []
    connection = setting.broker.connections[0]
    packet = connection._packet

    def note(each: object) -> None:
        heard.append(world.time)
        packet(each)

    connection._packet = note  # type: ignore[method-assign]
    begun = world.time
    for number in range(30):
        client.send(publish(b"0x99" if way == "rejected" else b"later"))
        world.run(1)
        if way == "deferred":
            setting.filter.decide(number, None)
    world.run(1)
    gaps = [after - before for before, after in itertools.pairwise([begun, *heard, world.time])]
    assert max(gaps) < 1.5 * 6
    assert len(heard) < 20
    assert {type(each) for each in connection.received[1:]} == {PingReq}
    assert not client.got(PingResp)
    (session,) = setting.node.sessions
    assert not session.paired.watching  # type: ignore[union-attr]
    client.send(publish(b"0x99"))
    client.send(PingReq())
    world.run(1)
    assert len(client.got(PingResp)) == 1


@pytest.mark.parametrize("keep_alive", [0, 60_000])
def test_no_more_is_sent_than_needed(keep_alive: int) -> None:
    world = World()
    setting = Setting(world)
    world.run(keep_alive)
    client = setting.client(keep_alive=keep_alive)
    for _ in range(100):
        client.send(publish(b"0x99"))
    world.run(1)
    assert len(setting.broker.connections[0].received) == (2 if keep_alive else 1)
