"""Messages of clients which filters reject with a reason, or decide about later."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Filter, Reject, Session, TreeAlgorithm
from ildm.config import Address
from ildm.mqtt import (
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Version,
    Will,
)
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World
from tests.support.deciding import OUR_MESSAGES, TIMEOUT, Deciding, Setting
from tests.support.examples import examples


def publish(payload: bytes, qos: int = 0, packet_id: int | None = None) -> Publish:
    return Publish(topic="t", payload=payload, qos=qos, packet_id=packet_id)


# reasons ------------------------------------------------------------------------------------------


def test_the_reason_of_a_rejection_is_told(world: World) -> None:
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"0x97 enough", 1, 1))
    client.send(publish(b"0x90", 2, 2))
    world.run(1)
    assert client.packets[1:] == [
        PubAck(packet_id=1, reason_code=0x97, properties={Property.REASON_STRING: "enough"}),
        PubRec(packet_id=2, reason_code=0x90),
    ]
    assert setting.node.counters["filtered"] == 2
    (line,) = setting.logged("message rejected")  # one for each connection
    assert (line["plugin"], line["reason"], line["text"]) == ("decides", "0x97", "enough")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({Property.REQUEST_PROBLEM_INFORMATION: 1}, True),
        ({Property.REQUEST_PROBLEM_INFORMATION: 0}, False),
        ({Property.MAXIMUM_PACKET_SIZE: 15}, True),
        ({Property.MAXIMUM_PACKET_SIZE: 14}, False),
    ],
)
def test_a_reason_string_is_for_those_who_take_it(world: World, properties: Any, told: bool) -> None:
    """MQTT-3.1.2-29, MQTT-3.4.2-2."""
    client = Setting(world).client(properties=properties)
    client.send(publish(b"0x97 enough", 1, 1))
    world.run(1)
    (answer,) = client.got(PubAck)
    assert answer.reason_code == 0x97
    assert (answer.properties == {Property.REASON_STRING: "enough"}) is told


def test_with_success_the_sender_does_not_learn_of_it(world: World) -> None:
    """A QoS 2 handshake then comes to its end (MQTT-4.3.3-4)."""
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"0x00", 1, 1))
    client.send(publish(b"0x10", 2, 2))
    client.send(PubRel(packet_id=2))
    world.run(1)
    assert client.packets[1:] == [
        PubAck(packet_id=1),
        PubRec(packet_id=2, reason_code=0x10),
        PubComp(packet_id=2),
    ]
    assert setting.payloads == []
    assert len(setting.broker.connections[0].received) == 1  # CONNECT


def test_before_mqtt_5_a_rejected_message_is_acknowledged(world: World) -> None:
    client = Setting(world).client(version=Version.V311)
    client.send(publish(b"0x97 enough", 1, 1))
    world.run(1)
    assert client.got(PubAck) == [PubAck(packet_id=1)]


# deferred -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(Version))
def test_what_follows_a_deferred_message_waits(world: World, version: Version) -> None:
    setting = Setting(world)
    client = setting.client(version=version)
    packets = [publish(b"0"), publish(b"later 1", 1, 1), publish(b"2"), publish(b"later 3"), PingReq()]
    client.transport.write(b"".join(packet.encode(version) for packet in packets))
    world.run(1)
    client.send(publish(b"4"))  # by itself, when nothing is read any more
    world.run(1)
    assert setting.payloads == [b"0"]
    assert not client.got(PingResp)
    setting.filter.decide(0)
    world.run(1)
    assert setting.payloads == [b"0", b"later 1", b"2"]
    assert client.got(PubAck) == [PubAck(packet_id=1)]
    setting.filter.decide(1, publish(b"3").encode(version))
    world.run(1)
    assert setting.payloads == [b"0", b"later 1", b"2", b"3", b"4"]
    assert len(client.got(PingResp)) == 1
    assert not setting.node.sessions.pop().paused


def test_a_deferred_message_may_be_rejected(world: World) -> None:
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"later", 1, 1))
    client.send(publish(b"next", 1, 2))
    world.run(1)
    setting.filter.decide(0, Reject(ReasonCode.QUOTA_EXCEEDED))
    world.run(1)
    assert client.got(PubAck) == [PubAck(packet_id=1, reason_code=0x97), PubAck(packet_id=2)]
    assert setting.payloads == [b"next"]


def test_no_decision_is_a_failure_and_the_client_goes_on(world: World) -> None:
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"later"))
    client.send(publish(b"next"))
    world.run(TIMEOUT + 1)
    assert setting.payloads == [b"later", b"next"]
    assert setting.node.dispatch.loaded[0].errors == 1
    setting.filter.decide(0)
    world.run(1)
    assert setting.payloads == [b"later", b"next"]


def test_others_do_not_wait(world: World) -> None:
    """Nor does what the broker sends to the client."""
    setting = Setting(world)
    one, two = setting.client(client_id="1"), setting.client(client_id="2")
    one.send(publish(b"later"))
    two.send(publish(b"next"))
    world.run(1)
    setting.broker.connections[0].send(publish(b"down"))
    world.run(1)
    assert setting.payloads == [b"next"]
    assert one.messages == [("t", b"down")]


def test_a_decision_within_the_call_of_another_client_is_carried_out_after_it(world: World) -> None:
    """No plugin finds the node amidst its own call."""
    order: list[bytes] = []

    class Chained(Deciding):
        def filter(self, session: Session, message: bytes) -> Any:
            answer = super().filter(session, message)
            if message.endswith(b"release"):
                self.decide(0)
                order.append(b"released")
            else:
                order.append(message[-1:])
            return answer

    setting = Setting(world, Chained)
    one, two = setting.client(client_id="1"), setting.client(client_id="2")
    one.transport.write(b"".join(publish(p).encode(Version.V5) for p in (b"later 1", b"2", b"3")))
    world.run(1)
    two.send(publish(b"release"))
    world.run(1)
    assert order == [b"1", b"released", b"2", b"3"]


def test_what_a_client_sent_before_its_end_still_counts(world: World) -> None:
    """As of a program that publishes and goes; its DISCONNECT comes after it."""
    setting = Setting(world)
    client = setting.client(will=Will(topic="will"))
    client.send(publish(b"later"))
    client.send(Disconnect())
    client.transport.close()
    world.run(1)
    assert setting.payloads == []
    setting.filter.decide(0)
    world.run(1)
    assert setting.payloads == [b"later"]
    assert not setting.node.sessions
    assert setting.logged("client disconnected")[0]["clean"] is True


def test_the_end_of_a_client_is_not_put_off_for_ever(world: World) -> None:
    setting = Setting(world)
    client = setting.client()
    client.transport.write(b"".join(publish(b"later %d" % n).encode(Version.V5) for n in range(100)))
    world.run(1)
    client.transport.reset()
    world.run(2 * TIMEOUT)
    assert not setting.node.sessions
    assert setting.payloads == [b"later 0"]
    assert setting.node.counters["undecided"] == 1


@pytest.mark.parametrize("end", ["broker", "abort", "protocol"])
def test_what_is_decided_too_late_is_ignored(world: World, end: str) -> None:
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"later", 1, 1))
    world.run(1)
    (session,) = setting.node.sessions
    match end:
        case "broker":
            setting.broker.connections[0].transport.close()
        case "abort":
            session.abort()
            setting.broker.connections[0].transport.close()
        case _:
            session.acks.too_much_deferred()
    world.run(1)
    assert client.closed
    assert not setting.node.sessions
    setting.filter.decide(0)
    world.run(2 * TIMEOUT)
    assert setting.payloads == []
    assert setting.node.counters["undecided"] == 1
    assert setting.node.dispatch.loaded[0].errors == 0


def test_a_drain_waits_for_the_decision(world: World) -> None:
    setting = Setting(world)
    client = setting.client()
    client.send(publish(b"later"))
    world.run(1)
    ended: list[bool] = []
    setting.node.drain(lambda: ended.append(True))
    world.run(1)
    assert not ended
    setting.filter.decide(0)
    world.run(1)
    assert ended
    assert setting.payloads == [b"later"]
    assert client.got(Disconnect)[0].reason_code == ReasonCode.SERVER_SHUTTING_DOWN


def test_an_algorithm_that_decides_too_is_asked_last(world: World) -> None:
    asked: list[str] = []

    class First(Filter):
        wants = OUR_MESSAGES

        def filter(self, session: Session, message: bytes) -> bytes:
            asked.append("filter")
            return message

    class Both(TreeAlgorithm, Filter):
        wants = OUR_MESSAGES

        def filter(self, session: Session, message: bytes) -> None:
            asked.append("algorithm")

    broker = Broker()
    world.listen(Address("a", 3), broker.connection)
    node = make_node(world, "a", plugin_specs("both", Both, [("first", First)]))
    node.start({})
    client = MiniClient(Version.V5)
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id="c", version=Version.V5))
    client.send(publish(b"x", 1, 1))
    world.run(1)
    assert asked == ["filter", "algorithm"]
    assert client.got(PubAck) == [PubAck(packet_id=1, reason_code=0x99)]
    assert not [client_id for client_id, _ in broker.published if client_id == "c"]


KINDS = st.sampled_from([b"pass", b"0x99", b"later", b"later no"])


@examples(60)
@given(st.lists(st.tuples(KINDS, st.integers(0, 2)), max_size=25), st.data())
def test_what_passes_stays_in_order_whatever_waits(
    packets: list[tuple[bytes, int]], draw: st.DataObject
) -> None:
    """However the stream is cut, whenever decisions come, and whether the client waits for the answers."""
    world = World()
    setting = Setting(world)
    client = setting.client()
    sent = [
        publish(b"%s %d" % (kind, number), qos, number + 1 if qos else None)
        for number, (kind, qos) in enumerate(packets)
    ]
    stream = b"".join(packet.encode(Version.V5) for packet in sent)
    decided = 0

    def decide() -> None:
        nonlocal decided
        for message, _ in setting.filter.waiting[decided:]:
            setting.filter.decide(decided, None if b"no" in message else "pass")
            decided += 1

    while stream:
        size = draw.draw(st.integers(1, 40))
        client.transport.write(stream[:size])
        stream = stream[size:]
        world.run(draw.draw(st.sampled_from([0, 0.01])))
        if draw.draw(st.booleans()):
            decide()
    if draw.draw(st.booleans()):
        client.transport.write_eof()  # it reads on: a reset could overtake what it has sent
    for _ in packets:
        world.run(0.1)
        decide()
    world.run(1)
    passed = [packet for packet in sent if packet.payload.split()[:2][-1] != b"no"]
    passed = [packet for packet in passed if not packet.payload.startswith(b"0x")]
    assert setting.payloads == [packet.payload for packet in passed]
    for packet in sent:
        answers = [p for p in client.packets if getattr(p, "packet_id", None) == packet.packet_id]
        expected = 0 if packet in passed else 0x99
        assert not packet.qos or answers[0].reason_code == expected
    assert setting.node.counters["undecided"] == setting.node.dispatch.loaded[0].errors == 0
