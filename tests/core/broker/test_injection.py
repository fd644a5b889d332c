"""The node's own sessions with its broker: how they begin in each life, and what an outage leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.transfer.batch import single
from ildm.mqtt import Disconnect, Property, Publish, ReasonCode, Version
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.world import World
from tests.support.senders import like
from tests.support.site import Site, row


def taken(broker: Broker) -> list[bool]:
    """Clean start (clean session) of the CONNECTs since the last call."""
    taken = [connect.clean_start for connect in broker.connects]
    broker.connects.clear()
    return taken


def site_with(world: World, protocol: str, **link: Any) -> Site:
    return Site(world, "b", "pf", broker={"address": "b:3", "protocol": protocol}, link=link)


@pytest.mark.parametrize(
    ("protocol", "qos", "first_life", "after_a_break"),
    [
        ("5", 2, [True], [False]),
        ("3.1.1", 2, [True, False], [False]),  # a clean session of 3.1.1 ends with its connection
        ("5", 1, [True], [True]),
        ("3.1.1", 1, [True], [True]),
    ],
)
def test_each_life_of_a_node_begins_with_a_clean_session_which_then_lasts(
    world: World, protocol: str, qos: int, first_life: list[bool], after_a_break: list[bool]
) -> None:
    """Handshakes of an earlier life would meet packet identifiers that begin anew: messages got lost."""
    site = site_with(world, protocol, qos=qos)
    broker = site.broker
    for _ in range(2):
        world.run(3)
        assert taken(broker) == first_life
        assert site.node.injector.connected
        broker.crash()
        world.run(15)
        assert taken(broker) == after_a_break
        site.crash()
        world.run(1)
        site.start()


def test_a_persistent_session_is_kept_for_a_bounded_time(world: World) -> None:
    site = site_with(world, "5", qos=2)
    world.run(3)
    assert site.broker.connects[-1].properties == {Property.SESSION_EXPIRY_INTERVAL: 3600}


@pytest.mark.parametrize("protocol", ["5", "3.1.1", "auto"])
def test_a_message_of_the_first_life_does_not_shadow_one_of_the_second(world: World, protocol: str) -> None:
    """A broker that keeps unreleased identifiers per session, as MQTT-4.3.3-2 wants it."""
    site = site_with(world, protocol, qos=2)
    broker = site.broker
    world.run(3)
    message = Publish(topic="first", payload=b"x", qos=2, packet_id=1)
    site.node.injector.send(single(message, message.qos), 0, None)
    while not any(session.unreleased for session in broker.sessions.values()):
        world.run(0.0005)
    site.crash()  # PUBREC is under way, PUBREL will never come
    world.run(1)
    site.start()
    world.run(3)
    message = Publish(topic="second", payload=b"x", qos=2, packet_id=1)
    site.node.injector.send(single(message, message.qos), 0, None)
    world.run(1)
    assert broker.topics() == ["first", "second"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("plain", [True, False])
def test_what_the_broker_has_of_what_it_was_given(world: World, qos: int, plain: bool) -> None:
    """Also what was under way when it went, and what came while it was away."""
    site = site_with(world, "5", queue_messages=100)
    broker = site.broker
    world.run(3)
    injector = site.node.injector

    def inject(count: int) -> None:
        for _ in range(count):
            message = Publish(topic="t", payload=b"x", qos=qos, packet_id=1 if qos else None)
            if plain and qos < 2:
                frame = message.encode(Version.V5)
                injector.send(like(2 * frame, len(frame)), 0, None)
            else:
                injector.send(single(message, message.qos), 0, None)
                injector.send(single(message, message.qos), 0, None)

    inject(3)
    assert injector.injections == (6, 0 if qos else 6)
    world.run(1)
    assert injector.injections == (6, 6)
    broker.crash()
    world.run(0.005)  # it is connected anew soon
    inject(10)
    assert injector.injections == (26, 6)
    inject(50)  # the oldest make room, and are counted
    assert injector.injections == (126, 26)
    world.run(15)
    assert injector.injections == (126, 126)


def test_retained_messages_that_the_queue_dropped_are_injected_when_the_broker_is_back(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"queue_messages": 10})
    del world.listeners[Address("b", 3)]
    b.broker.crash()
    world.run(1)
    publisher = a.client("p")
    for i, topic in enumerate(("state/1", "state/2", "state/2")):
        payload = b"%d" % i
        publisher.send(Publish(topic=topic, payload=payload, retain=True))
    for _ in range(20):
        publisher.send(Publish(topic="x", payload=b"x"))
    world.run(1)
    assert b.node.counters["injection_dropped_overflow_qos0"] > 0
    world.listen(Address("b", 3), b.broker.connection)
    world.run(120)
    kept = {p.topic: p.payload for _, p in b.broker.published if p.retain}
    assert kept == {"state/1": b"0", "state/2": b"2"}


def test_a_silent_broker_is_given_up_and_dialed_again(world: World) -> None:
    site = site_with(world, "5")
    broker = site.broker
    broker.takes = lambda *_: False
    world.run(30)
    assert site.node.reach.down_reason == "no answer to CONNECT"
    assert not site.node.injector.senders[0].open
    broker.takes = lambda *_: True
    world.run(30)
    assert site.node.injector.connected
    assert site.node.reach.down_reason is None


def test_a_broker_that_gives_the_session_to_another_client_is_not_hurried(world: World) -> None:
    site = site_with(world, "5")
    broker = site.broker
    world.run(3)
    broker.connects.clear()
    connection = broker.of("ildm-b-0")
    connection.transport.write(Disconnect(reason_code=ReasonCode.SESSION_TAKEN_OVER).encode(Version.V5))
    connection.transport.close()
    world.run(1)
    reason = "another client uses this node's client id 'ildm-b-0' at the broker: is a second node named 'b'?"
    assert site.node.reach.down_reason == site.node.injector.contested == reason
    assert site.node.counters["broker_sessions_taken"] == 1
    world.run(3)
    assert broker.connects == []
    world.run(8)
    assert site.node.injector.connected
    assert site.node.injector.contested == reason
    world.run(200)
    assert site.node.injector.contested is None


def test_a_session_that_was_full_when_it_was_lost_sends_again(world: World) -> None:
    a, b = row(world, "ab", "pf")
    (session,) = b.node.injector.sessions
    session.pause_writing()  # the broker does not read, and then is gone
    b.broker.crash()
    world.run(5)
    a.client("p").send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert b.broker.topics() == ["t"]
