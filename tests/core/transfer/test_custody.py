"""A neighbour's message is acknowledged when it was disposed of, and not before: nothing depends on a node
that has a message in its memory only."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.link.state import LinkEvent
from ildm.core.transfer.inbound import Inbound
from ildm.mqtt import ProtocolViolation, PubAck, Publish, PubRec, Version, decode
from ildm.testing.virtual.world import World
from tests.support.publishing import TOPICS, publish
from tests.support.senders import inject, like, message_of
from tests.support.site import Site, row


@pytest.mark.parametrize("qos", [1, 2])
def test_a_far_node_that_dies_before_its_broker_had_the_messages_loses_none(world: World, qos: int) -> None:
    """The near node has them still: its neighbour, whose broker was away, had acknowledged nothing."""
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, qos)
    world.run(1)
    assert a.node.links.links["b"].senders[0].inflight == 50
    b.kill()
    world.run(1)
    b.broker_up()
    b.start(("a",))
    world.run(60)
    assert b.broker.topics() == TOPICS
    assert a.node.links.links["b"].idle


@pytest.mark.parametrize("qos", [1, 2])
def test_answers_wait_for_the_broker_and_go_out_once_it_is_back(world: World, qos: int) -> None:
    a, b = row(world, "ab", "pf", link={"inflight": 20, "overflow": "block"})
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, qos)
    world.run(1)
    sender = a.node.links.links["b"].senders[0]
    assert (sender.inflight, sender.queued_messages) == (20, 30)
    assert b.node.injector.queued_messages == 20
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == TOPICS
    assert sender.idle
    assert b.node.links.links["a"].inbounds[0].unacknowledged == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_is_away_does_not_hold_up_what_crosses_its_site(world: World, qos: int) -> None:
    """Half the credit waits for it; what is beyond is answered, and kept for it as far as the queue goes."""
    a, b, c = row(world, "abc", "pf", link={"inflight": 20, "queue_messages": 30})
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, qos)
    world.run(1)
    assert c.broker.topics() == TOPICS
    inbound = b.node.links.links["a"].inbounds[0]
    assert 5 <= inbound.unacknowledged <= 10
    early = b.node.counters["acknowledged_early"]
    assert early == 50 - inbound.unacknowledged
    dropped = b.node.counters[f"injection_dropped_overflow_qos{qos}"]
    assert dropped == early - 30
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == TOPICS[dropped:]
    assert inbound.unacknowledged == 0
    assert a.node.links.links["b"].idle


def test_what_was_answered_early_is_not_answered_again(world: World) -> None:
    """Its identifier may be that of another message by the time the broker has it."""
    a, b = row(world, "ab", "pf", link={"inflight": 20})
    b.broker.takes = lambda _, packet: not isinstance(packet, Publish)
    publisher = a.client("p")
    publish(publisher, TOPICS, 1)
    for number in range(50):
        publisher.send(Publish(topic="run", payload=b"%05d" % number, qos=1, packet_id=number + 101))
    world.run(1)
    assert b.node.counters["acknowledged_early"] >= 50
    (session,) = b.node.links.links["a"].open_sessions
    written = len(session.transport.written)  # type: ignore[union-attr]
    for connection in b.broker.connections:
        for packet in [one for one in connection.received if isinstance(one, Publish) and one.qos][:5]:
            connection.send(PubAck(packet_id=packet.packet_id))
    world.run(0.1)
    assert len(session.transport.written) == written  # type: ignore[union-attr]


def test_what_was_taken_is_not_taken_again_after_a_reconnection(world: World) -> None:
    """A message sent again whose first copy still waits here is neither injected twice nor answered early."""
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, 1)
    world.run(1)
    b.node.links.links["a"].open_sessions[0].abort()
    world.run(5)
    assert a.links() == {"b": "active"}
    assert a.node.links.links["b"].senders[0].inflight == 50
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == TOPICS
    assert a.node.links.links["b"].idle


def test_what_comes_over_a_blocked_link_is_not_acknowledged(world: World) -> None:
    """One side has left the link, the other does not know yet: its message must not be lost for that."""
    a, b = row(world, "ab", "pf")
    link = b.node.links.links["a"]
    link.step(LinkEvent.WITHDRAWN)
    publish(a.client("p"), ["t"], 1)
    world.run(1)
    assert b.broker.topics() == []
    assert b.node.counters["link_blocked_messages"] == 1
    assert a.node.links.links["b"].senders[0].inflight == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_dropped_for_good_is_acknowledged(world: World, qos: int) -> None:
    """Expired, too large, refused: it has to be out of the way of what follows."""
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    publisher = a.client("p")
    publish(publisher, TOPICS, qos)
    for sender in b.node.injector.senders:
        for entry in sender.queue.take_all():
            sender.wire.drop(entry.count, "expired")
            entry.settle()
    world.run(1)
    assert a.node.links.links["b"].idle
    assert b.node.counters["injection_dropped_expired"] == 50


def test_messages_within_the_credit_do_not_go_for_others(world: World) -> None:
    """The queue for the broker is full of messages of its own kind; the neighbour's are not in question."""
    a, b = row(world, "ab", "pf", link={"queue_messages": 10})
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS[:10], 1)
    sender = b.node.injector.senders[0]
    for _ in range(40):
        inject(b.node, Publish(topic="own", payload=b"x", qos=1))
    assert (sender.queue.messages, sender.queue.unacknowledged_messages) == (20, 10)
    assert b.node.counters["injection_dropped_overflow_qos1"] == 30
    b.broker_up()
    world.run(30)
    assert b.broker.topics().count("own") == 10
    assert [topic for topic in b.broker.topics() if topic != "own"] == TOPICS[:10]


def test_what_waits_for_a_neighbour_that_has_begun_anew_is_nobodys_and_bounded(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"queue_messages": 30})
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS[:20], 1)
    queue = b.node.injector.senders[0].queue
    assert (queue.messages, queue.unacknowledged_messages) == (20, 20)
    a.kill()
    a.start()
    a.node.links.add(Address("b", 2), False)
    world.run(5)
    assert (queue.messages, queue.unacknowledged_messages, queue.unacknowledged_bytes) == (20, 0, 0)
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == TOPICS[:20]


def test_the_injected_are_counted_when_the_broker_gets_them(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, 1)
    assert b.node.counters["injected"] == 0
    assert b.node.counters["transferred_in"] == 50
    b.broker_up()
    world.run(30)
    assert b.node.counters["injected"] == 50


def test_the_window_is_bounded_in_bytes(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"inflight_bytes": 10_000, "overflow": "block"})
    b.broker_down()
    world.run(1)
    publisher = a.client("p")
    for i in range(50):
        publisher.send(Publish(topic="t", payload=bytes(1000), qos=1, packet_id=i + 1))
    publisher.send(Publish(topic="huge", payload=bytes(50_000), qos=1, packet_id=99))
    world.run(1)
    sender = a.node.links.links["b"].senders[0]
    assert 5 < sender.inflight < 10
    assert b.node.links.links["a"].inbounds[0].unacknowledged_bytes <= 10_000
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == ["t"] * 50 + ["huge"]


# the receiving side alone ----------------------------------------------------------------------------


class Answers:
    def __init__(self, limit: int = 10, byte_limit: int = 1000) -> None:
        self.written: list[Any] = []
        self.inbound = Inbound(limit, byte_limit, self._write)

    def _write(self, data: bytes) -> None:
        size = data[1] + 2
        self.written += [decode(data[p : p + size], Version.V5) for p in range(0, len(data), size)]


def run(first_id: int, count: int) -> bytes:
    return b"".join(
        Publish(topic="t", payload=b"x", qos=1, packet_id=first_id + i).encode(Version.V5)
        for i in range(count)
    )


def test_more_than_the_credit_ends_the_session() -> None:
    inbound = Answers(limit=10).inbound
    inbound.take(like(run(1, 8), 9))
    assert inbound.take(message_of(20, 2, 10))
    assert inbound.take(message_of(21, 1, 10))
    for take in (
        lambda: inbound.take(message_of(22, 1, 10)),
        lambda: inbound.take(message_of(22, 2, 10)),
        lambda: inbound.take(like(run(30, 1), 9)),
    ):
        with pytest.raises(ProtocolViolation, match="granted"):
            take()
    assert not inbound.take(message_of(20, 2, 10), True)
    inbound.settle(message_of(20, 2, 10))  # a message of QoS 2 counts until it is released (MQTT 5, 4.9)
    with pytest.raises(ProtocolViolation, match="granted"):
        inbound.take(message_of(22, 1, 10))
    inbound.released((20,))
    assert inbound.take(message_of(22, 1, 10))


def test_the_credit_in_bytes_lets_one_message_pass_however_large() -> None:
    inbound = Answers(byte_limit=100).inbound
    assert inbound.take(message_of(1, 1, 5000))
    with pytest.raises(ProtocolViolation, match="granted"):
        inbound.take(message_of(2, 1, 10))
    inbound.settle(message_of(1, 1, 5000))
    assert inbound.take(message_of(2, 1, 60))
    with pytest.raises(ProtocolViolation, match="granted"):
        inbound.take(like(run(5, 5), 9))


def test_an_identifier_in_use_is_refused() -> None:
    inbound = Answers().inbound
    inbound.take(like(run(1, 3), 9))
    with pytest.raises(ProtocolViolation, match="in use"):
        inbound.take(message_of(2, 1, 10))
    with pytest.raises(ProtocolViolation, match="in use"):
        inbound.take(like(run(3, 2), 9))
    with pytest.raises(ProtocolViolation, match="in use"):
        inbound.take(like(run(3, 1), 9))
    with pytest.raises(ProtocolViolation, match="in use"):
        inbound.take(like(run(5, 1) * 2, 9))


@pytest.mark.parametrize(("qos", "dup"), [(1, True), (2, True), (2, False)])
def test_of_messages_sent_again_those_answered_are_answered_again(qos: int, dup: bool) -> None:
    answers = Answers(limit=20)
    inbound = answers.inbound
    for packet_id in (3, 4, 7, 9):
        inbound.take(message_of(packet_id, qos))
        if packet_id != 9:
            inbound.settle(message_of(packet_id, qos))
    if dup:
        assert inbound.new_ones(range(1, 11), qos, True) == [(0, 2), (4, 2), (7, 1), (9, 1)]
        assert inbound.new_ones(range(10, 13), qos, True) == [(0, 3)]
    else:
        assert inbound.new_ones(range(1, 9), qos, False) == [(0, 2), (4, 2), (7, 1)]
        with pytest.raises(ProtocolViolation, match="in use"):
            inbound.new_ones(range(8, 11), qos, False)
    again: list[Any] = [PubAck(packet_id=i) if qos == 1 else PubRec(packet_id=i) for i in (3, 4, 7)]
    assert answers.written == again * 2


def test_answers_are_deferred_while_a_queue_is_full() -> None:
    answers = Answers()
    inbound = answers.inbound
    inbound.take(like(run(1, 3), 9))
    inbound.take(message_of(4, 2, 10))
    inbound.receipt.hold("one")
    inbound.receipt.hold("other")
    inbound.receipt.settle(like(run(1, 3), 9), 0, 3)
    inbound.receipt.settle(message_of(4, 2, 10), 0, 1)
    inbound.receipt.release("one")
    assert answers.written == []
    inbound.receipt.release("other")
    assert answers.written == [PubAck(packet_id=i) for i in (1, 2, 3)] + [PubRec(packet_id=4)]


def test_a_receipt_of_an_earlier_life_answers_nothing() -> None:
    answers = Answers()
    inbound = answers.inbound
    old = inbound.receipt
    inbound.take(like(run(1, 3), 9))
    inbound.reset()
    inbound.take(like(run(1, 2), 9))
    old.settle(like(run(1, 3), 9), 0, 3)
    old.hold("x")
    assert answers.written == []
    assert inbound.unacknowledged == 2
    inbound.receipt.settle(like(run(1, 2), 9), 0, 2)
    assert answers.written == [PubAck(packet_id=1), PubAck(packet_id=2)]


def test_a_site_that_is_alone_owes_nothing(world: World) -> None:
    site = Site(world, "a", "pf")
    publish(site.client("p"), ["t"], 1)
    assert site.node.injector.idle


def test_each_node_says_how_many_bytes_it_takes(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf", link={"inflight_bytes": 5000})
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    b.broker_down()
    world.run(1)
    publisher = a.client("p")
    for i in range(50):
        publisher.send(Publish(topic="t", payload=bytes(1000), qos=1, packet_id=i + 1))
    world.run(1)
    assert 1 < a.node.links.links["b"].senders[0].inflight < 5
    b.broker_up()
    world.run(30)
    assert b.broker.topics() == ["t"] * 50
    assert b.links() == {"a": "active"}


def test_what_a_neighbour_has_forgotten_is_this_nodes_alone(world: World) -> None:
    """Messages under way to the broker when the neighbour they came from was killed: a node that ends waits
    for the broker's answer to them, and counts them when it does not come."""
    a, b = row(world, "ab", "pf", limits={"drain_timeout": 5.0})
    b.broker.reads = False
    publish(a.client("p"), TOPICS, 1)
    world.run(1)
    (sender,) = b.node.injector.senders
    assert sender.inflight == 50
    assert b.node.injector.idle is False
    a.kill()
    world.run(1)
    a.start(("b",))
    world.run(40)
    assert b.node.links.links["a"].connected
    b.broker_down()
    world.run(1)
    assert not b.node.injector.idle
    ended: list[bool] = []
    b.node.drain(lambda: ended.append(True))
    world.run(10)
    assert ended
    assert b.node.counters["injection_dropped_shutdown_qos1"] == 50
