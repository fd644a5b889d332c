"""Of two retained messages on a topic the local broker ends with the newer, by whatever way each comes."""

from __future__ import annotations

import pytest

from ildm.api import Stamp
from ildm.config import Address
from ildm.core.transfer.stamps import stamped
from ildm.mqtt import Connect, Publish, PubRec, PubRel, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.retained import set_value, value
from tests.support.senders import inject
from tests.support.site import Site, row


class Slow(MiniClient):
    """Releases its messages of QoS 2 when it is told to."""

    def release(self) -> None:
        for packet in self.got(PubRec):
            self.send(PubRel(packet_id=packet.packet_id))


def publish(world: World, site: Site, message: Publish, name: str = "slow") -> Slow:
    client = Slow(Version.V311)
    world.connect(Address(site.name, 1), client)
    client.send(Connect(client_id=name, version=Version.V311))
    world.run(0.1)
    client.send(message)
    return client


def retained(topic: str, payload: bytes, qos: int = 0) -> Publish:
    return Publish(topic=topic, payload=payload, retain=True, qos=qos, packet_id=1 if qos else None)


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("newer", [b"newer-at-b", b""])
def test_what_waited_for_the_broker_does_not_overwrite_what_a_client_has_set_meanwhile(
    world: World, algorithm: str, newer: bytes
) -> None:
    """The broker restarts, and clients are back before the node's own session is."""
    a, b = row(world, "ab", algorithm)
    b.broker_down()
    world.run(20)
    set_value(a, "t", b"older-at-a")
    world.run(0.5)
    sender = b.node.injector.senders[0]
    assert sender.queued_messages == 1
    b.broker.hangs_up_on = lambda packet: isinstance(packet, Connect) and packet.client_id.startswith("ildm")
    b.broker_up()
    set_value(b, "t", newer)
    world.run(1)
    assert value(b, "t") == (newer or None)
    subscriber = b.subscriber("t")
    b.broker.hangs_up_on = lambda packet: False
    world.run(30)
    assert sender.queued_messages == 0
    assert [site.broker.retained.get("t") and site.broker.retained["t"].payload for site in (a, b)] == [
        newer or None
    ] * 2
    assert ("t", b"older-at-a") in subscriber.messages
    assert [p.retain for _, p in b.broker.published if p.payload == b"older-at-a"] == [False]


def test_an_injection_that_a_slow_connection_delays_does_not_win(world: World) -> None:
    """Only the broker knows in which order it took what came on two connections."""
    world.latencies[Address("b", 3)] = 0.5  # of the node's own session
    a, b = row(world, "ab", "pf")
    world.run(5)
    world.latencies.clear()
    set_value(a, "t", b"older")
    world.run(0.1)
    set_value(b, "t", b"newer")
    world.run(0.7)
    assert b.broker.retained["t"].payload == b"older", "as the test means it to be"
    world.run(5)
    assert [site.broker.retained["t"].payload for site in (a, b)] == [b"newer", b"newer"]


def test_a_client_whose_connection_is_slow_does_not_win_either(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"transfer": "received"})
    world.latencies[Address("b", 3)] = 0.5
    client = publish(world, b, retained("u", b"x"))
    world.run(2)
    client.send(retained("t", b"older"))
    world.run(0.01)
    set_value(a, "t", b"newer")
    world.run(10)
    assert [site.broker.retained["t"].payload for site in (a, b)] == [b"newer", b"newer"]


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("sessions", [1, 2])
@pytest.mark.parametrize("second", [b"v2", b""])
def test_what_follows_a_message_of_qos_2_waits_for_its_release(
    world: World, algorithm: str, qos: int, sessions: int, second: bytes
) -> None:
    """A broker applies QoS 2 at PUBREL: what came after the PUBLISH and before it was overwritten."""
    world.latencies[Address("b", 3)] = 0.02
    a, b = row(world, "ab", algorithm, link={"sessions": sessions})
    subscriber = b.subscriber("t")
    world.run(5)
    client = a.client("p")
    client.send(retained("t", b"v1", 2))
    world.run(0.01)
    client.send(PubRel(packet_id=1))
    world.run(0.005)
    assert b.node.injector.order.unreleased, "as the test means it to be"
    other = client if sessions == 1 else a.client("q")
    other.send(retained("t", second, qos))
    world.run(0.5)  # before anything can have been looked at
    assert value(b, "t") == (second or None) == (b.broker.retained["t"].payload if second else None)
    assert "t" in b.broker.retained or not second
    assert [payload for _, payload in subscriber.messages] == [b"v1", second]


def test_what_waits_for_a_release_is_not_forgotten_when_the_broker_restarts(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
    set_value(a, "other", b"x")
    a.client("p").send(retained("t", b"v1", 2))
    world.run(0.1)
    a.client("q").send(retained("t", b"v2", 0))
    world.run(1)
    assert b.node.injector.queued_messages == 1
    b.broker.takes = lambda _, packet: True
    b.broker.crash(keeps=False)
    world.run(20)
    assert {t: m.payload for t, m in b.broker.retained.items()} == {"other": b"x", "t": b"v2"}
    assert b.node.injector.order.unreleased == {}


@pytest.mark.parametrize("released", [True, False])
def test_a_clients_own_message_of_qos_2_that_is_overtaken_is_put_right(world: World, released: bool) -> None:
    a, b = row(world, "ab", "pf")
    world.run(5)
    client = publish(world, b, retained("t", b"v1", 2))
    world.run(1)
    set_value(a, "t", b"v2")
    world.run(10)
    if released:
        client.release()
        world.run(0.1)
        assert b.broker.retained["t"].payload == b"v1", "as the test means it to be"
    else:
        client.transport.abort()
    world.run(10)
    assert [site.broker.retained["t"].payload for site in (a, b)] == [b"v2", b"v2"]


def test_a_message_of_qos_2_that_is_never_released_is_given_to_the_broker_all_the_same(world: World) -> None:
    """Other sites have it: it crosses when the broker has answered."""
    a, b = row(world, "ab", "pf")
    client = publish(world, b, retained("t", b"v1", 2))
    world.run(1)
    client.transport.abort()
    world.run(20)
    assert [site.broker.retained["t"].payload for site in (a, b)] == [b"v1", b"v1"]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("payload", [b"v2", b""])
def test_what_a_client_releases_late_does_not_come_twice(world: World, killed: bool, payload: bytes) -> None:
    """The node looks at what its broker retains meanwhile, in this life or the next one."""
    _, b = row(world, "ab", "pf")
    set_value(b, "t", b"v1")
    connect = Connect(client_id="slow", version=Version.V311, clean_start=False)
    client = Slow(Version.V311)
    world.connect(Address("b", 1), client)
    client.send(connect)
    world.run(0.1)
    client.send(retained("t", payload, 2))
    world.run(0.2)
    assert client.got(PubRec)
    if killed:
        b.kill()
        b.start(("a",))
        subscriber = b.subscriber("t")
        world.run(5)
        client = Slow(Version.V311)
        world.connect(Address("b", 1), client)
        client.send(connect)
        world.run(0.1)
        client.send(PubRel(packet_id=1))
    else:
        subscriber = b.subscriber("t")
        world.run(5)
        client.release()
    world.run(20)
    assert [message.payload for message in subscriber.got(Publish) if not message.retain] == [payload]
    kept = b.broker.retained.get("t")
    assert (kept.payload if kept is not None else b"") == payload


def test_two_clients_of_one_site_end_with_what_the_other_sites_have(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"transfer": "received"})
    world.latencies[Address("a", 3)] = 0.4
    slow = publish(world, a, retained("u", b"x"), "slow")
    world.run(2)
    world.latencies.clear()
    quick = publish(world, a, retained("v", b"x"), "quick")
    world.run(2)
    slow.send(retained("t", b"first"))
    world.run(0.01)
    quick.send(retained("t", b"second"))
    world.run(10)
    assert [site.broker.retained["t"].payload for site in (a, b)] == [b"second", b"second"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_an_algorithm_injects_and_takes_back_at_once_is_gone(world: World, qos: int) -> None:
    """The deletion is for this broker alone, without a stamp, and does not overtake what it deletes."""
    (a,) = row(world, "a", "pf")
    message = stamped(retained("t", b"x", qos), Stamp(5, "n"))
    inject(a.node, message)
    inject(a.node, Publish(topic="t", retain=True))
    world.run(1)
    assert [p.payload for i, p in a.broker.published if i.startswith("ildm")] == [b"x", b""]
    assert a.broker.retained == {}
    assert a.node.retained.newest("t") is None


def test_what_is_taken_back_does_not_take_what_was_set_meanwhile(world: World) -> None:
    (a,) = row(world, "a", "pf")
    a.broker.hangs_up_on = lambda packet: isinstance(packet, Connect) and packet.client_id.startswith("ildm")
    a.broker.crash()
    inject(a.node, stamped(retained("t", b"x", 2), Stamp(5, "n")))
    inject(a.node, Publish(topic="t", retain=True))
    set_value(a, "t", b"newer")
    a.broker.hangs_up_on = lambda packet: False
    world.run(30)
    assert a.broker.retained["t"].payload == b"newer"


def test_what_is_answered_before_the_broker_has_it_keeps_its_place(world: World) -> None:
    """The node counts it as on its way until the broker has it."""
    a, b = row(world, "ab", "pf", link={"inflight": 4})
    b.broker_down()
    world.run(1)
    publisher = a.client("p", version=Version.V5)
    for number in range(1, 11):
        message = Publish(topic=f"t/{number}", payload=b"x", retain=True, qos=1, packet_id=number)
        publisher.send(message)
    world.run(1)
    assert b.node.counters["acknowledged_early"] > 0
    assert len(b.node.injector.order._last) == b.node.injector.senders[0].queued_messages == 10
    b.broker_up()
    world.run(30)
    assert b.node.injector.order._last == {}
    assert len(b.broker.retained) == 10
