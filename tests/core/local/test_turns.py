"""A client that sends thousands of small packets at once does not keep the others waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ildm.config import Address
from ildm.mqtt import Connect, PubComp, Publish, PubRel, SubAck, Subscribe, Subscription, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

MANY = 5000
Make = Callable[[int], Publish]


def retained(n: int) -> Publish:
    return Publish(topic=f"many/{n}", payload=b"x", retain=True)


def at_qos_1(n: int) -> Publish:
    return Publish(topic=f"many/{n}", payload=b"x", qos=1, packet_id=n % 1000 + 1)


def chunk(make: Make, count: int = MANY) -> bytes:
    return b"".join(make(n).encode(Version.V311) for n in range(count))


def published(site: Site) -> list[str]:
    return site.broker.topics("")


@pytest.mark.parametrize("make", [retained, at_qos_1])
def test_others_have_their_turn_within_a_chunk(make: Make) -> None:
    """All of it is relayed, in order; what another client sends meanwhile does not wait for the end of it."""
    world = World()
    here, _ = row(world, "ab", "pf")
    busy, other = here.client("busy"), here.client("other")
    busy.transport.write(chunk(make))
    other.send(Publish(topic="other"))
    world.run(5)
    topics = published(here)
    assert [topic for topic in topics if topic != "other"] == [f"many/{n}" for n in range(MANY)]
    assert topics.index("other") < MANY / 2
    assert not busy.closed


@pytest.mark.parametrize(
    ("end", "before_connack"), [("close", False), ("abort", False), ("close", True), ("write_eof", True)]
)
def test_what_was_sent_before_the_end_arrives(end: str, before_connack: bool) -> None:
    """The end of the connection waits for the rest of the chunk, whenever and however it comes."""
    world = World()
    here, there = row(world, "ab", "pf")
    if before_connack:
        busy = MiniClient()
        world.connect(Address("a", 1), busy)
        busy.send(Connect(client_id="busy"))
    else:
        busy = here.client("busy")
    busy.transport.write(chunk(retained))
    if end == "abort":
        world.run_until(lambda: len(published(here)) > 0, 1)
    getattr(busy.transport, end)()
    world.run(5)
    assert len(set(published(here))) == MANY
    assert len(set(there.broker.topics())) == MANY
    assert not [session for session in here.node.sessions if session.client_id == "busy"]


def test_a_client_that_breaks_the_protocol_amidst_a_chunk() -> None:
    """What came before the bad packet counts, and nothing of what follows it."""
    world = World()
    here, _ = row(world, "ab", "pf")
    busy = here.client("busy")
    busy.transport.write(chunk(retained, 1200) + b"\xf0\x00" + chunk(at_qos_1))
    world.run(5)
    assert published(here) == [f"many/{n}" for n in range(1200)]
    assert busy.closed
    assert not here.node.sessions


def test_requests_keep_their_answers() -> None:
    """SUBSCRIBE and PUBREL are looked at in turns, too."""
    world = World()
    here, _ = row(world, "ab", "sf")
    busy = here.client("busy")
    wanted = [Subscription(topic_filter="a")]
    requests = [Subscribe(packet_id=n, subscriptions=wanted) for n in range(1, 1201)]
    releases = [PubRel(packet_id=n) for n in range(1, 1201)]
    busy.transport.write(b"".join(p.encode(Version.V311) for p in [*requests, *releases]))
    world.run(5)
    assert [p.packet_id for p in busy.got(SubAck)] == list(range(1, 1201))
    assert [p.packet_id for p in busy.got(PubComp)] == list(range(1, 1201))
