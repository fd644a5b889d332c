"""What the local broker's acknowledgements mean: what crosses, and when the client gets them."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.local.wire import ANSWERS
from ildm.mqtt import (
    Disconnect,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import Answers, injected
from tests.support.site import Site, row

VERSIONS = [Version.V311, Version.V5]


def message(topic: str, qos: int, number: int = 1, **fields: Any) -> Publish:
    return Publish(topic=topic, payload=b"%d" % number, qos=qos, packet_id=number if qos else None, **fields)


def encoded(*packets: Any) -> bytes:
    return b"".join(packet.encode(Version.V311) for packet in packets)


KINDS: list[dict[str, Any]] = [
    {"qos": 1},
    {"qos": 2},
    {"qos": 1, "retain": True},
    {"qos": 2, "retain": True},
    {"qos": 1, "properties": {Property.CONTENT_TYPE: "x"}},
]


# transferred when acknowledged ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_broker_refuses_does_not_cross(world: World, kind: dict[str, Any]) -> None:
    """The access rules of the local broker hold for other sites, too, and their retained value stays."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.refused = {"secret": 0x87}
    client = a.client("c", version=Version.V5)
    client.send(message("secret", number=1, **kind))
    client.send(message("open", number=2, **kind))
    world.run(1)
    assert injected(b) == [("open", b"2")]
    assert a.node.counters["refused_by_broker"] == 1
    assert "secret" not in a.node.retained.values
    assert ("open" in b.node.retained.values) is kind.get("retain", False)
    assert {p.reason_code for p in client.got(PubAck) + client.got(PubRec)} == {0, 0x87}


def test_a_refused_message_within_a_run_does_not_cross(world: World) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client("c", version=Version.V5)
    answers = Answers(a)
    other = a.client("d", version=Version.V5)
    answers.keep = True
    other.transport.write(b"".join(message("t", 1, n).encode(Version.V5) for n in range(1, 10)))
    world.run(0.1)
    assert injected(b) == []
    for _, answer in answers._kept:
        if answer.packet_id in (3, 4, 9):
            answer.reason_code = 0x97
    answers.let_go()
    world.run(1)
    assert [payload for _, payload in injected(b)] == [b"1", b"2", b"5", b"6", b"7", b"8"]
    assert a.node.counters["refused_by_broker"] == 3
    assert len(other.got(PubAck)) == 9
    assert client.packets[1:] == []


def same_topic(qos: int) -> list[bytes]:
    return [message("t", qos, number).encode(Version.V5) for number in range(1, 7)]


def topics(qos: int) -> list[bytes]:
    return [message(f"t/{number}", qos, number).encode(Version.V5) for number in range(1, 7)]


def with_properties(qos: int) -> list[bytes]:
    """Every other one, so that some are in runs and some on their own."""
    properties: list[dict[Property, Any]] = [{Property.CONTENT_TYPE: "x"}, {}]
    found = [message("t", qos, number, properties=properties[number % 2]) for number in range(1, 7)]
    return [each.encode(Version.V5) for each in found]


def retained(qos: int) -> list[bytes]:
    return [message(f"t/{number}", qos, number, retain=True).encode(Version.V5) for number in range(1, 7)]


WAYS: list[Any] = [
    pytest.param(frames, id=f"{make.__name__}-{qos}-{'chunk' if chunk else 'alone'}")
    for make in (same_topic, topics, with_properties, retained)
    for qos in (1, 2)
    for chunk in (False, True)
    for frames in ([b"".join(make(qos))] if chunk else make(qos),)
]


def kept_answers(
    world: World, ways: list[bytes], refused: int | None = None, **settings: Any
) -> tuple[Site, Site, Answers, MiniClient]:
    """A client has sent messages 1 to 6; the broker has taken them, but for one, and kept quiet."""
    a, b = row(world, "ab", "pf", **settings)
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=Version.V5)
    for data in ways:
        client.transport.write(data)
        world.run(0.01)
    world.run(0.1)
    for _, answer in answers._kept:
        if answer.packet_id == refused:
            answer.reason_code = 0x97
    return a, b, answers, client


@pytest.mark.parametrize("ways", WAYS)
def test_messages_cross_in_order_though_their_answers_come_out_of_order(
    world: World, ways: list[bytes]
) -> None:
    """As Moquette gives them, against MQTT-4.6.0-3, and RabbitMQ; one that is refused is in nobody's way."""
    a, b, answers, client = kept_answers(world, ways, refused=2)
    answers.let_go(3, 5, 4)
    world.run(0.5)
    assert injected(b) == []
    assert client.got(PubAck) == client.got(PubRec) == []
    answers.let_go(1)
    world.run(0.1)
    assert [payload for _, payload in injected(b)] == [b"1"]
    answers.let_go(2)
    world.run(0.1)
    assert [payload for _, payload in injected(b)] == [b"1", b"3", b"4", b"5"]
    assert [one.packet_id for one in client.got(PubAck) + client.got(PubRec)] == [3, 5, 4, 1, 2]
    answers.let_go(6)
    world.run(0.1)
    assert [payload for _, payload in injected(b)][4:] == [b"6"]
    assert a.node.counters["answers_out_of_order"] == 1
    assert a.node.counters["refused_by_broker"] == 1


@pytest.mark.parametrize("ways", WAYS)
def test_a_message_without_an_answer_holds_up_others_for_a_while_only(
    world: World, ways: list[bytes]
) -> None:
    _, b, answers, client = kept_answers(world, ways)
    answers.let_go(2, 3)
    world.run(2)
    assert [payload for _, payload in injected(b)] == [b"2", b"3"]
    answers.let_go(5)
    world.run(0.1)
    assert [payload for _, payload in injected(b)] == [b"2", b"3", b"5"]
    answers.let_go()
    world.run(0.1)
    assert [payload for _, payload in injected(b)] == [b"2", b"3", b"5", b"1", b"4", b"6"]
    assert len(client.got(PubAck) + client.got(PubRec)) == 6


@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_waited_comes_between_two_packets(world: World, qos: int) -> None:
    """What it waited for comes in one chunk with the rest of a message that the client has in part."""
    a, _, answers, client = kept_answers(world, topics(qos))
    answers.let_go(2)
    world.run(0.1)
    transport = a.broker.of("c").transport
    kind = PubAck if qos == 1 else PubRec
    data = Publish(topic="x", payload=bytes(500)).encode(Version.V5) + kind(packet_id=1).encode(Version.V5)
    transport.write(data[:100])
    world.run(0.1)
    transport.write(data[100:])
    world.run(0.1)
    assert client.messages == [("x", bytes(500))]
    assert {answer.packet_id for answer in client.got(kind)} == {1, 2}


@pytest.mark.parametrize("qos", [1, 2])
def test_while_others_are_answered_what_waits_has_its_time(world: World, qos: int) -> None:
    """The time is that of each message for which others wait, not of all together."""
    _, b, answers, _ = kept_answers(world, topics(qos))
    for packet_id in (2, 1, 4, 3, 6, 5):
        answers.let_go(packet_id)
        world.run(0.7)
    assert [payload for _, payload in injected(b)] == [b"%d" % n for n in range(1, 7)]


@pytest.mark.parametrize("ways", WAYS)
def test_what_waits_for_its_turn_crosses_at_the_end_of_its_client(world: World, ways: list[bytes]) -> None:
    a, b, answers, _ = kept_answers(world, ways)
    answers.let_go(4)
    for session in list(a.node.sessions):
        session.abort()
    world.run(ANSWERS + 1)
    assert [payload for _, payload in injected(b)] == [b"4"]
    assert a.node.counters["unanswered_by_broker"] == 5


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_for_its_turn_counts_as_unanswered(world: World, qos: int) -> None:
    a, b, answers, client = kept_answers(world, topics(qos), limits={"unanswered_messages": 6})
    answers.let_go(2, 3, 4, 5, 6)
    client.send(message("t", qos, 7))
    world.run(0.1)
    (session,) = a.node.sessions
    assert session.paused
    answers.let_go()
    world.run(0.1)
    assert not session.paused
    assert [payload for _, payload in injected(b)] == [b"%d" % n for n in range(1, 8)]


def test_a_qos_2_message_sent_again_while_its_answer_waits_crosses_once(world: World) -> None:
    """The client has no PUBREC yet, and a node that died now would not have transferred what waits."""
    a, b, answers, client = kept_answers(world, topics(2))
    answers.let_go(2)
    world.run(0.1)
    (session,) = a.node.sessions
    assert session.publishing.record is not None
    assert session.publishing.record.qos2 == {}
    client.send(message("t/2", 2, 2, dup=True))
    world.run(0.1)
    answers.let_go()
    world.run(0.1)
    assert [payload for _, payload in injected(b)] == [b"%d" % n for n in range(1, 7)]
    client.send(PubRel(packet_id=2))
    client.send(message("t", 2, 2))
    world.run(0.1)
    assert len(injected(b)) == 7


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_crosses_when_the_broker_has_it(world: World, version: Version, qos: int) -> None:
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=version)
    client.transport.write(b"".join(message("t", qos, n).encode(version) for n in range(1, 30)))
    world.run(1)
    assert injected(b) == []
    answers.let_go()
    world.run(1)
    assert [payload for _, payload in injected(b)] == [b"%d" % n for n in range(1, 30)]
    assert len(client.got(PubAck) + client.got(PubRec)) == 29
    assert not client.packets[0].reason_code


def test_received_transfers_at_once(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"transfer": "received"})
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=Version.V5)
    client.send(message("t", 1, 1))
    client.send(message("t", 2, 2))
    world.run(1)
    assert [payload for _, payload in injected(b)] == [b"1", b"2"]


def test_a_client_that_is_gone_before_the_answer(world: World) -> None:
    """What it had sent crosses if the broker still answers; if not, the outcome is unknown, and counted."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=Version.V5)
    client.send(message("t", 1, 1))
    client.transport.close()
    world.run(ANSWERS / 2)
    answers.let_go()
    world.run(0.1)
    assert injected(b) == [("t", b"1")]
    assert a.node.sessions == set()
    answers.keep = True
    client = a.client("c", version=Version.V5)
    client.send(message("t", 1, 2))
    client.transport.close()
    world.run(ANSWERS + 1)
    assert injected(b) == [("t", b"1")]
    assert a.node.counters["unanswered_by_broker"] == 1
    assert a.node.sessions == set()
    assert all(one.client_id.startswith("ildm-") for one in a.broker.connections)


def leaving(world: World, will: Will | None = None) -> tuple[Site, Site, Answers, MiniClient]:
    """A client that disconnects without waiting for an answer, which the broker owes it."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=Version.V5, will=will)
    client.transport.write(message("t", 1, 1).encode(Version.V5) + Disconnect().encode(Version.V5))
    client.transport.close()
    world.run(ANSWERS / 2)
    return a, b, answers, client


def test_a_disconnect_waits_for_the_answers_before_it(world: World) -> None:
    """A broker answers nothing after it, and what it has taken would stay at its site."""
    a, b, answers, _ = leaving(world)
    assert answers.disconnects == 0
    answers.let_go()
    world.run(0.1)
    assert injected(b) == [("t", b"1")]
    assert answers.disconnects == 1
    assert a.node.sessions == set()
    assert a.node.counters["unanswered_by_broker"] == a.node.counters["undecided"] == 0


def test_a_session_that_goes_on_keeps_what_it_subscribed_to_just_before_its_disconnect(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    answers = Answers(a)
    answers.keep, answers.kinds = True, SubAck
    client = a.client("c", clean_start=False)
    subscribe = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=1)])
    client.transport.write(encoded(subscribe, Disconnect()))
    client.transport.close()
    world.run(ANSWERS / 2)
    answers.let_go()
    world.run(0.1)
    assert a.node.sessions == set()
    assert a.node.clients.records["c"].filters == {"t": 1}


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_what_follows_a_disconnect_goes_nowhere(world: World, waits: bool, together: bool) -> None:
    """MQTT-3.14.4-2; a broker does not take it either."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = waits
    client = a.client("c")
    parts = [
        encoded(message("t", 1, 1), Disconnect()),
        encoded(message("t", 0, 2), message("t", 1, 3)) + b"\x30\x7f",
    ]
    for part in [b"".join(parts)] if together else parts:
        client.transport.write(part)
    world.run(0.1)
    answers.let_go()
    world.run(0.1)
    assert injected(b) == [("t", b"1")]
    assert [p.payload for i, p in a.broker.published if i == "c"] == [b"1"]
    assert answers.disconnects == 1
    assert a.node.counters["malformed"] == 0


def test_a_disconnect_does_not_wait_long_for_answers(world: World) -> None:
    a, b, answers, _ = leaving(world)
    world.run(2 * ANSWERS)
    assert injected(b) == []
    assert answers.disconnects == 1
    assert a.node.sessions == set()
    assert a.node.counters["unanswered_by_broker"] == 1


@pytest.mark.parametrize("end", ["comes again", "is kicked", "is moved off", "broker goes"])
def test_a_disconnect_that_waits_comes_before_the_end(world: World, end: str) -> None:
    """Else the broker would send the will of a client that has said goodbye."""
    a, b, answers, _ = leaving(world, will=Will(topic="t/will", payload=b"gone", qos=1))
    (session,) = a.node.sessions
    if end == "comes again":
        a.client("c", version=Version.V5)
    elif end == "is kicked":
        session.kick()
    elif end == "is moved off":
        session.move_off()
    else:
        a.broker.of("c").transport.close()
    world.run(ANSWERS + 1)
    assert injected(b) == []
    assert a.node.counters["undecided"] == 0
    assert answers.disconnects == (end != "broker goes")
    assert len(a.node.sessions) == (end == "comes again")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_broker_refuses_by_hanging_up_does_not_cross(
    world: World, version: Version, qos: int
) -> None:
    """The only way that many brokers of MQTT 3.1.1 have."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=version)
    client.send(message("secret", qos))
    world.run(0.1)
    a.broker.of("c").transport.abort()
    world.run(3)
    assert client.closed
    assert injected(b) == []
    assert a.node.counters["unanswered_by_broker"] == 1


def test_a_client_that_publishes_and_leaves_at_once(world: World) -> None:
    """PUBLISH and DISCONNECT without waiting for the acknowledgement: a single broker delivers it, too."""
    a, b = row(world, "ab", "pf")
    for version in VERSIONS:
        for qos in (1, 2):
            client = a.client("c", version=version)
            client.transport.write(message("t", qos).encode(version) + Disconnect().encode(version))
            client.transport.close()
            world.run(1)
    assert len(injected(b)) == 4
    assert a.node.counters["unanswered_by_broker"] == 0


def test_unacknowledged_messages_are_bounded_by_not_reading_on(world: World) -> None:
    a, b = row(world, "ab", "pf", limits={"unanswered_messages": 10})
    answers = Answers(a)
    answers.keep = True
    client = a.client("c")
    (session,) = a.node.sessions
    for number in range(1, 31):
        client.send(message("t", 1, number))
        world.run(0.01)
    assert session.paused
    assert session.publishing.unanswered is not None
    assert session.publishing.unanswered.messages == 11
    answers.let_go()
    world.run(1)
    assert not session.paused
    assert len(injected(b)) == 30
    assert (session.publishing.unanswered.messages, session.publishing.unanswered.bytes) == (0, 0)


def test_a_retained_message_keeps_its_place_although_its_acknowledgement_comes_late(world: World) -> None:
    """The later value of QoS 0 crosses first; it stays the newest everywhere, as it is at the broker."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    client = a.client("c", version=Version.V5)
    client.send(message("t", 1, 1, retain=True))
    client.send(message("t", 0, 2, retain=True))
    world.run(1)
    answers.let_go()
    world.run(1)
    for site in (a, b):
        assert site.node.retained.values["t"].message.payload == b"2"
    assert a.node.retained.digest == b.node.retained.digest


def test_a_qos_2_message_answered_on_two_connections_crosses_once(world: World) -> None:
    """The client comes back while the broker's answer to its old connection is still on the way."""
    a, b = row(world, "ab", "pf")
    answers = Answers(a)
    answers.keep = True
    old = a.client("c", clean_start=False)
    old.send(message("t", 2, 7))
    old.transport.close()
    world.run(0.1)
    new = a.client("c", clean_start=False)
    new.send(message("t", 2, 7, dup=True))
    world.run(0.1)
    answers.let_go()
    world.run(1)
    assert injected(b) == [("t", b"7")]
    new.send(PubRel(packet_id=7))
    world.run(1)
    assert new.got(PubComp)
    new.send(message("t", 2, 7))
    world.run(1)
    assert len(injected(b)) == 2


# deferred while a link is full -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("algorithm", [None, "sf", "pf"])
def test_a_held_client_gets_everything_but_its_acknowledgements(
    world: World, version: Version, algorithm: str | None
) -> None:
    site = Site(world, "a", algorithm)
    world.run(1)
    client = site.subscriber("t", "c", version=version)
    session = next(s for s in site.node.sessions if s.client_id == "c")
    session.acks.hold("one")
    session.acks.hold("two")
    for number in range(1, 6):
        client.send(message("t", 1, number))
        client.send(message("u", 2, 100 + number))
    client.send(PingReq())
    client.send(Subscribe(packet_id=2, subscriptions=[Subscription(topic_filter="v")]))
    world.run(1)
    assert client.got(PubAck) == client.got(PubRec) == []
    assert client.got(PingResp)
    assert [packet.packet_id for packet in client.got(SubAck)] == [1, 2]
    assert len(client.messages) == 5
    session.acks.release("one")
    world.run(1)
    assert client.got(PubAck) == []
    session.acks.release("two")
    world.run(1)
    assert [packet.packet_id for packet in client.got(PubAck)] == [1, 2, 3, 4, 5]
    assert [packet.packet_id for packet in client.got(PubRec)] == [101, 102, 103, 104, 105]
    client.send(message("t", 1, 9))
    world.run(1)
    assert client.got(PubAck)[-1].packet_id == 9
    assert session.paired is not None
    assert not session.wire.watching


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_link_defers_acknowledgements_until_it_has_room(world: World, version: Version) -> None:
    """With overflow ``block`` clients are slowed down, nothing is lost, and nobody else is disturbed."""
    settings = {"link": {"overflow": "block", "queue_messages": 20, "inflight": 100, "expiry": 1000}}
    a, b = row(world, "ab", "pf", **settings)
    for session in a.node.links.links["b"].open_sessions:
        session.transport.cut = True  # type: ignore[union-attr]
    client = a.client("c", version=version)
    sent = 0
    while len(client.got(PubAck)) == sent:
        sent += 1
        client.send(message("t", 1, sent))
        world.run(0.01)
        assert sent < 500
    (session,) = (s for s in a.node.sessions if s.client_id == "c")
    acknowledged = len(client.got(PubAck))
    client.send(PingReq())
    client.send(message("local", 0))
    world.run(1)
    assert client.got(PingResp)
    assert not session.paused
    assert len(client.got(PubAck)) == acknowledged
    world.run(60)
    assert a.links() == {"b": "active"}
    assert len(client.got(PubAck)) == sent
    assert [p for t, p in injected(b) if t == "t"] == [b"%d" % n for n in range(1, sent + 1)]


def test_who_leaves_while_held_is_forgotten_by_the_full_queue(world: World) -> None:
    a, _ = row(world, "ab", "pf", link={"overflow": "block", "queue_messages": 1, "inflight": 10})
    for session in a.node.links.links["b"].open_sessions:
        session.transport.cut = True  # type: ignore[union-attr]
    (sender,) = a.node.links.links["b"].senders
    for number in range(12):
        client = a.client(f"c{number}")
        client.send(message("t", 1, 1))
        client.send(message("t", 1, 2))
        world.run(0.01)
    assert sender.pressure._held
    for session in list(a.node.sessions):
        session.abort()
    world.run(0.1)
    assert sender.pressure._held == set()


# SUBACK ---------------------------------------------------------------------------------------------


class Neighbours:
    """Takes the place of the links: knows who waits to hear that the neighbours know."""

    def __init__(self, site: Site) -> None:
        self.waiting: list[Any] = []
        site.node.links.when_advertised = self.when_advertised  # type: ignore[method-assign]

    def when_advertised(self, callback: Any) -> bool:
        self.waiting.append(callback)
        return False


def subscribe(client: MiniClient, packet_id: int, topic_filter: str) -> None:
    client.send(Subscribe(packet_id=packet_id, subscriptions=[Subscription(topic_filter=topic_filter)]))


def test_a_suback_waits_until_the_neighbours_know_in_order_and_alone(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    neighbours = Neighbours(a)
    client, other = a.client("c"), a.client("other")
    subscribe(client, 1, "t")
    subscribe(client, 2, "u")
    client.send(Unsubscribe(packet_id=3, topic_filters=["t"]))
    client.send(message("x", 1, 7))
    world.run(0.1)
    assert client.got(SubAck) == client.got(UnsubAck) == []
    assert client.got(PubAck)
    other.send(message("u", 0))
    world.run(0.1)
    assert client.messages == [("u", b"1")]  # 3.8.4: before the SUBACK is allowed
    second, first = neighbours.waiting[1], neighbours.waiting[0]
    second()
    world.run(0.1)
    assert client.got(SubAck) == []
    first()
    world.run(0.1)
    assert [type(packet).__name__ for packet in client.packets[-3:]] == ["SubAck", "SubAck", "UnsubAck"]
    assert a.node.counters["subscribe_waits_expired"] == 0


def test_a_suback_does_not_wait_for_ever_nor_for_refused_filters(world: World) -> None:
    a, _ = row(world, "ab", "sf", link={"subscribe_wait": 3.0})
    neighbours = Neighbours(a)
    client = a.client("c")
    subscribe(client, 1, "t")
    world.run(2.5)
    assert client.got(SubAck) == []
    world.run(1)
    assert client.got(SubAck)
    assert a.node.counters["subscribe_waits_expired"] == 1
    neighbours.waiting[0]()
    world.run(1)
    assert len(client.got(SubAck)) == 1
    a.broker.denies = lambda topic_filter: True
    subscribe(client, 5, "u")
    world.run(0.1)
    assert client.got(SubAck)[1].reason_codes == [0x80]


@pytest.mark.parametrize(("algorithm", "wait"), [(None, 1.0), ("sf", 0.0)])
def test_a_suback_that_need_not_wait(world: World, algorithm: str | None, wait: float) -> None:
    site = Site(world, "a", algorithm, link={"subscribe_wait": wait})
    neighbours = Neighbours(site)
    assert site.subscriber("t").got(SubAck)
    assert neighbours.waiting == []


def test_who_leaves_while_its_suback_waits(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    neighbours = Neighbours(a)
    client = a.client("c")
    subscribe(client, 1, "t")
    world.run(0.1)
    client.transport.abort()
    world.run(0.1)
    neighbours.waiting[0]()
    world.run(5)
    assert a.node.sessions == set()
