"""A message the broker hangs up on, without a word as MQTT 3.1.1 has it, is not in the way of the others."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.broker.injection_session import AT_ONCE
from ildm.mqtt import MalformedPacket, Publish, PubRel, Version
from ildm.testing.virtual.world import World
from tests.support.publishing import publish
from tests.support.senders import inject
from tests.support.site import Site, row


def poison(packet: Any) -> bool:
    return isinstance(packet, Publish) and packet.topic.startswith("poison")


def pair(world: World, **broker: Any) -> tuple[Site, Site]:
    """Two sites with a link, one of them with settings for its broker."""
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf", broker={"address": "b:3", **broker})
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    return a, b


def errors(site: Site) -> list[dict[str, object]]:
    return [fields for level, event, fields in site.driver.logged if level == "error" and "dropped" in event]


@pytest.mark.parametrize("speaks_5", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_found_and_dropped_and_all_others_arrive(world: World, speaks_5: bool, qos: int) -> None:
    a, b = pair(world, protocol="auto" if speaks_5 else "3.1.1")
    b.broker.hangs_up_on = poison
    topics = [f"t/{i}" for i in range(30)]
    publish(a.client("p"), [*topics[:10], "poison/1", *topics[10:20], "poison/2", *topics[20:]], qos)
    world.run(120)
    assert list(dict.fromkeys(b.broker.topics())) == topics
    assert b.node.counters["injection_dropped_poison"] == 2
    assert [fields["topic"] for fields in errors(b)] == ["poison/1", "poison/2"]
    assert b.broker.hang_ups <= 3 * 2
    assert a.node.links.links["b"].idle  # acknowledged: it would come again otherwise
    assert b.node.injector.idle


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("pause", [0.0, 20.0])
def test_many_of_them_are_not_taken_for_takeovers(world: World, qos: int, pause: float) -> None:
    """The broker ends so many sessions in a row as somebody with the same client identifier would."""
    a, b = pair(world, protocol="3.1.1")
    b.broker.hangs_up_on = poison
    for number in range(20):
        publish(a.client(f"p{number}"), [f"poison/{number}", f"t/{number}"], qos)
        world.run(pause)
    world.run(120)
    assert sorted(b.broker.topics()) == sorted(f"t/{number}" for number in range(20))
    assert b.node.counters["injection_dropped_poison"] == 20
    assert b.node.counters["broker_sessions_taken"] == 0
    assert b.node.injector.contested is None


@pytest.mark.parametrize("pause", [1.0, 20.0])
def test_nor_are_those_of_qos_0_of_which_each_is_sent_once(world: World, pause: float) -> None:
    a, b = pair(world, protocol="3.1.1")
    b.broker.hangs_up_on = poison
    client = a.client("p")
    for number in range(40):
        client.send(Publish(topic=f"poison/{number}", payload=b"x"))
        world.run(pause)
        assert b.node.injector.contested is None
    world.run(60)
    client.send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert b.broker.topics() == ["t"]
    assert b.node.counters["broker_sessions_taken"] == 0
    assert b.node.counters["broker_hang_ups"] == b.broker.hang_ups >= 8


def test_what_stands_between_those_of_qos_0_arrives(world: World) -> None:
    """Silent sessions, which are to show another client, become rare."""
    a, b = pair(world, protocol="3.1.1")
    b.broker.hangs_up_on = poison
    client = a.client("p")
    for number in range(200):
        client.send(Publish(topic=f"poison/{number}", payload=b"x"))
        world.run(0.5)
        client.send(Publish(topic=f"t/{number}", payload=b"x"))
        world.run(0.5)
    assert len(b.broker.topics()) > 140
    assert b.node.counters["broker_sessions_taken"] == 0


@pytest.mark.parametrize("every", [0.05, 5.0])
@pytest.mark.parametrize("qos", [0, 1])
def test_another_client_with_a_busy_node_s_id_is_recognised(world: World, every: float, qos: int) -> None:
    """It takes the session soon after the node has it, whatever the node sends."""
    a, b = pair(world, protocol="3.1.1")
    client = a.client("p")
    taken_at = now = 0.0
    number = 0
    while b.node.injector.contested is None:
        number += 1
        client.send(Publish(topic="t", payload=b"x", qos=qos, packet_id=number if qos else None))
        world.run(every)
        now += every
        own = [each for each in b.broker.connections if each.client_id == "ildm-b-0"]
        if own and now - taken_at >= 3.0:
            taken_at = now
            own[0].transport.close()
        assert number < 20_000
    assert b.node.counters["broker_sessions_taken"] == 1
    assert b.node.counters["injection_dropped_poison"] == 0


@pytest.mark.parametrize("speaks_5", [True, False])
def test_messages_of_a_chunk_are_told_apart(world: World, speaks_5: bool) -> None:
    """In a run, too, only the one goes; here it is one of equal topic, known by its payload."""
    a, b = pair(world, protocol="auto" if speaks_5 else "3.1.1")
    b.broker.hangs_up_on = lambda packet: isinstance(packet, Publish) and packet.payload == b"0017"
    publisher = a.client("p")
    frames = b"".join(
        Publish(topic="t", payload=b"%04d" % i, qos=1, packet_id=i + 1).encode(publisher.version)
        for i in range(100)
    )
    publisher.transport.write(frames)
    world.run(120)
    arrived = dict.fromkeys(packet.payload for client, packet in b.broker.published if client != "p")
    assert list(arrived) == [b"%04d" % i for i in range(100) if i != 17]
    assert b.node.counters["injection_dropped_poison"] == 1
    assert a.node.links.links["b"].idle


def test_a_broker_that_crashes_often_costs_no_message(world: World) -> None:
    """Hang-ups alone prove nothing: only the message that was alone under way twice is to blame."""
    a, b = row(world, "ab", "pf")
    publisher = a.client("p")
    for i in range(100):
        publisher.send(Publish(topic=f"t/{i}", payload=b"x", qos=1, packet_id=i + 1))
        if i % 10 == 0:
            b.broker.crash()
        world.run(0.05)
    world.run(60)
    assert set(b.broker.topics()) == {f"t/{i}" for i in range(100)}
    assert b.node.counters["injection_dropped_poison"] == 0
    assert b.node.injector.idle


def test_a_broker_that_says_that_it_stops_blames_no_message(world: World) -> None:
    """DISCONNECT of MQTT 5 names a reason; shutting down is none that a message gives, or another client."""
    a, b = row(world, "ab", "pf")
    b.broker.takes = lambda _, packet: not isinstance(packet, Publish)
    publish(a.client("p"), ["t"], 1)
    for _ in range(12):
        own = [c for c in b.broker.connections if c.client_id.startswith("ildm-")]
        assert "ildm-b-0" in [each.client_id for each in own]
        for each in own:
            each.transport.write(b"\xe0\x01\x8b")
            each.transport.close()
        world.run(30)
    b.broker.takes = lambda _, packet: True
    b.broker.crash()
    world.run(30)
    assert b.broker.topics() == ["t"]
    assert b.node.counters["injection_dropped_poison"] == 0
    assert b.node.counters["broker_sessions_taken"] == 0


def test_a_broker_that_crashes_often_behind_a_proxy_is_not_taken_for_takeovers(world: World) -> None:
    """While it starts the proxy takes connections, and closes them again."""
    _, b = row(world, "ab", "pf")
    for _ in range(12):
        b.broker.accepts = False
        b.broker.crash()
        world.run(15)
        b.broker.accepts = True
        world.run(15)
        assert b.node.injector.connected
    assert b.node.counters["broker_sessions_taken"] == 0


@pytest.mark.parametrize("speaks_5", [True, False])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("apart", [0.0, 0.5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_in_a_row_delay_what_follows_little(
    world: World, qos: int, apart: float, retain: bool, speaks_5: bool
) -> None:
    """Their faults are no faults of the connection: no pause grows by them."""
    a, b = pair(world, protocol="auto" if speaks_5 else "3.1.1")
    b.broker.hangs_up_on = poison
    bad = a.client("bad")
    for number in range(12):
        bad.send(
            Publish(
                topic=f"poison/{number}",
                payload=b"x",
                qos=qos,
                retain=retain,
                packet_id=number + 1 if qos else None,
            )
        )
        if qos == 2:
            world.run(0.01)
            bad.send(PubRel(packet_id=number + 1))
        world.run(apart)
    publish(a.client("good"), ["t"], 1)
    world.run(1 if qos else 15)  # of QoS 0 the eighth is followed by a silent session
    assert b.broker.topics() == ["t"]
    assert not qos or b.node.counters["injection_dropped_poison"] == 12
    assert b.node.counters["broker_sessions_taken"] == 0
    assert a.node.links.links["b"].idle


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_one_is_not_set_again_at_each_connection(world: World, qos: int) -> None:
    """The comparison with the broker finds it missing each time; nothing mends that but another broker."""
    a, b = pair(world, protocol="3.1.1")
    b.broker.hangs_up_on = poison
    client = a.client("p")
    for number in range(12):
        topic = f"poison/{number}" if number else "t"
        client.send(
            Publish(topic=topic, payload=b"x", qos=qos, retain=True, packet_id=number + 1 if qos else None)
        )
        if qos == 2:
            world.run(0.01)
            client.send(PubRel(packet_id=number + 1))
    world.run(60)
    hang_ups = b.broker.hang_ups
    withheld = b.node.counters["retained_repair_withheld"]
    for _ in range(3):
        own = b.broker.of("ildm-b-0")
        own.transport.close()
        world.run(30)
    assert b.broker.hang_ups == hang_ups
    assert b.node.counters["retained_repair_withheld"] == withheld + 3 * 11
    b.broker_down()
    world.run(30)
    b.broker.hangs_up_on = lambda packet: False
    b.broker_up()
    world.run(30)
    assert set(b.broker.topics()) == {"t", *(f"poison/{number}" for number in range(1, 12))}


def test_a_broker_that_is_down_sees_growing_pauses(world: World) -> None:
    """Also when it has ended after messages at fault."""
    a, b = pair(world, protocol="3.1.1")
    b.broker.hangs_up_on = poison
    publish(a.client("p"), ["poison", "t"], 1)
    world.run(5)
    b.broker_down()
    dialed = []
    driver = b.node.driver
    dial = driver.dial

    def watched(address: Any, session: Any, timeout: float) -> None:
        dialed.append(driver.now())
        dial(address, session, timeout)

    driver.dial = watched  # type: ignore[method-assign]
    world.run(60)
    assert 4 < len(dialed) < 20
    assert dialed[-1] - dialed[-2] > 2


def test_connections_are_not_made_as_fast_as_they_are_refused(world: World) -> None:
    """The pause grows after so many hang-ups in a row without an acknowledgement, though each CONNECT
    succeeds."""
    _, b = row(world, "ab", "pf")
    b.broker.hangs_up_on = lambda packet: isinstance(packet, Publish)
    connects = 0
    accept = b.broker.connection

    def counting() -> Any:
        nonlocal connects
        connects += 1
        return accept()

    world.listen(Address("b", 3), counting)
    for i in range(100):
        inject(b.node, Publish(topic=f"t/{i}", payload=b"x", qos=1))
    world.run(60)
    assert AT_ONCE + 5 < connects < AT_ONCE + 20
    assert b.node.counters["injection_dropped_poison"] <= AT_ONCE // 2 + 10


def test_a_packet_size_for_a_broker_that_cannot_say_it(world: World) -> None:
    a, b = pair(world, packet_size=1000)
    publisher = a.client("p")
    publisher.send(Publish(topic="large", payload=bytes(2000), qos=1, packet_id=1))
    publisher.send(Publish(topic="small", payload=b"x", qos=1, packet_id=2))
    world.run(1)
    assert b.broker.topics() == ["small"]
    assert b.node.counters["injection_dropped_too_large"] == 1
    assert a.node.links.links["b"].idle


def test_a_broker_that_died_between_pubrec_and_pubrel_gets_the_message_again(world: World) -> None:
    """It delivers at PUBREL: what was received and not released went with its session."""
    a, b = row(world, "ab", "pf")
    b.broker.takes = lambda _, packet: type(packet).__name__ != "PubRel"
    publish_all = [f"t/{i}" for i in range(5)]
    publish(a.client("p"), publish_all, 2)
    world.run(1)
    before = len(b.broker.topics())
    b.broker.takes = lambda _, packet: True
    b.broker.crash(keeps=False)
    world.run(30)
    assert b.broker.topics()[before:] == publish_all
    assert a.node.links.links["b"].idle
    assert b.node.injector.idle


def test_a_client_shows_that_the_broker_is_back(world: World) -> None:
    """The node's own session does not sit out its pause while clients are served already."""
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(120)
    publish(a.client("p"), ["t"], 1)
    b.broker_up()
    world.run(0.01)
    assert b.broker.topics() == []
    b.client("c")
    world.run(0.1)
    assert b.broker.topics() == ["t"]


def test_a_message_that_a_neighbour_cannot_bear_does_not_end_the_link_for_ever(world: World) -> None:
    """It says that a packet was malformed: what was under way goes one by one, and this one is found."""
    a, b = row(world, "ab", "pf")
    topics = [f"t/{i}" for i in range(20)]
    cooperation = b.node.links.cooperation
    arrived = cooperation.message_arrived

    def judge(session: Any, link: Any, message: Publish, *args: Any) -> None:
        if poison(message):
            raise MalformedPacket("not here", clause="MQTT-4.13")
        arrived(session, link, message, *args)

    cooperation.message_arrived = judge  # type: ignore[method-assign]
    b.node.dispatch.takes_link_runs = False  # each message is judged
    publisher = a.client("p", version=Version.V5)
    for i, topic in enumerate([*topics[:10], "poison", *topics[10:]]):
        publisher.send(Publish(topic=topic, payload=b"x", qos=1, packet_id=i + 1))
    world.run(120)
    assert list(dict.fromkeys(b.broker.topics())) == topics
    assert a.node.counters["link_dropped_poison"] == 1
    assert a.node.links.links["b"].idle
    assert a.links() == {"b": "active"}
