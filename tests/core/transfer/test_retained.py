"""Retained messages are the same at all sites: after outages, joins, restarts and simultaneous changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.api import Stamp
from ildm.config import Address, LimitsConfig
from ildm.core.counters import Counters
from ildm.core.tables import RETAINED
from ildm.core.transfer.retained import RetainedStore
from ildm.core.transfer.stamps import stamped, take_stamp
from ildm.mqtt import Property, Publish, Version
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.retained import cut, set_value, value
from tests.support.site import Site, row


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_values_set_before_the_sites_are_joined(world: World, algorithm: str) -> None:
    a, b, c = (Site(world, name, algorithm) for name in "abc")
    set_value(a, "only/a", b"1")
    set_value(b, "only/b", b"2")
    set_value(a, "both", b"old")
    world.run(1)
    set_value(b, "both", b"new")
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    c.node.links.add(Address("b", 2), False)
    world.run(3)
    for site in (a, b, c):
        assert [value(site, t) for t in ("only/a", "only/b", "both")] == [b"1", b"2", b"new"]


def test_what_changes_while_a_link_is_down(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"queue_messages": 1})
    for topic in ("x", "y", "z"):
        set_value(a, topic, b"1")
    world.run(1)
    link = a.node.links.links["b"]
    del world.listeners[Address("a", 2)]
    cut(a, "b")
    world.run(1)
    for i, topic in enumerate(("x", "y")):
        set_value(a, topic, b"2")  # more than the queue holds
        set_value(b, "z", b"%d" % i)
    set_value(a, "y", b"")
    world.run(1)
    assert link.dropped > 0
    from ildm.core.link.session import LinkSession

    world.listen(Address("a", 2), lambda: LinkSession(a.node.links, None, 0))
    world.run(60)
    for site in (a, b):
        assert [value(site, t) for t in ("x", "y", "z")] == [b"2", None, b"1"]


def test_a_link_that_comes_back_without_changes_repeats_nothing(world: World) -> None:
    a, b = row(world, "ab", "sf")
    subscriber = b.subscriber("#")
    for i in range(5):
        set_value(a, f"t/{i}", b"1")
    world.run(1)
    cut(a, "b")
    world.run(60)
    assert a.links() == {"b": "active"}
    assert a.node.counters["retained_repeated"] == b.node.counters["retained_repeated"] == 0
    assert len(subscriber.messages) == 5


def test_a_restarted_node_neither_forgets_nor_repeats(world: World) -> None:
    a, b = row(world, "ab", "sf")
    set_value(a, "t", b"1")
    world.run(1)
    b.crash()
    set_value(a, "u", b"2")
    world.run(1)
    b.start(neighbors=("a",))
    world.run(5)
    assert b.broker.topics() == ["t", "u"]


def test_simultaneous_values_end_the_same_everywhere_and_all_are_delivered(world: World) -> None:
    a, b, c = row(world, "abc", "pf")
    subscriber = b.subscriber("t")
    clients = [(site, site.client(f"p{site.name}")) for site in (a, b, c)]
    for site, client in clients:
        client.send(Publish(topic="t", payload=site.name.encode(), retain=True))
    world.run(2)
    assert {value(site, "t") for site in (a, b, c)} in ({b"a"}, {b"b"}, {b"c"})
    assert sorted(payload for _, payload in subscriber.messages) == [b"a", b"b", b"c"]


def test_the_stamp_does_not_reach_clients(world: World) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client("p")
    client.send(Publish(topic="t", payload=b"x", retain=True))
    world.run(1)
    packet = next(packet for client_id, packet in b.broker.published if client_id.startswith("ildm"))
    assert (packet.retain, packet.properties) == (True, {})


def make(**limits: int) -> tuple[RetainedStore, Counters, MemoryStore]:
    counters, store = Counters(), MemoryStore()
    return (
        RetainedStore(WorldDriver(World(), "n"), "n", LimitsConfig(**limits), counters, store, 1e6),
        counters,
        store,
    )


def test_it_is_bounded_and_the_oldest_go_first() -> None:
    retained, counters, store = make(retained_messages=3)
    for topic in "abcd":
        retained.entered(Publish(topic=topic, payload=b"x"))
    retained.entered(Publish(topic="b", payload=b"y"))
    retained.entered(Publish(topic="e", payload=b"y"))
    assert list(retained.values) == ["d", "b", "e"] == [topic for (topic,) in store.rows(RETAINED)]
    assert counters["retained_forgotten"] == 2
    small, _, _ = make(retained_bytes=5000)
    for i in range(50):
        small.entered(Publish(topic=f"t{i}", payload=b"x" * 300))
    assert small.bytes <= 5000
    assert small.values


def test_a_reaction_is_newer_than_its_cause_whatever_the_clocks_say() -> None:
    retained, _, _ = make()
    ahead = Stamp(1_700_000_000_000 + 3_600_000, "far")
    assert retained.arrived(Publish(topic="t", payload=b"cause"), ahead) is True
    assert retained.entered(Publish(topic="t", payload=b"reaction")) > ahead


STAMPS = st.builds(Stamp, st.integers(1, 5), st.sampled_from("abc"))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("tu"), STAMPS), max_size=12), st.randoms(use_true_random=False))
def test_any_order_of_arrival_ends_in_the_same(messages: list[tuple[str, Stamp]], random: object) -> None:
    one, two = make()[0], make()[0]
    for topic, stamp in messages:
        one.arrived(Publish(topic=topic, payload=repr(stamp).encode()), stamp)
    random.shuffle(messages)  # type: ignore[attr-defined]
    for topic, stamp in messages:
        two.arrived(Publish(topic=topic, payload=repr(stamp).encode()), stamp)
    assert {t: e.stamp for t, e in one.values.items()} == {t: e.stamp for t, e in two.values.items()}
    assert one.digest == two.digest


@pytest.mark.parametrize("text", ["", "x", "1", "1:", ":a", "-1:a", "1" * 30 + ":a"])
def test_a_bad_stamp_is_no_stamp(text: str) -> None:
    message = Publish(topic="t", payload=b"", properties={Property.USER_PROPERTY: [("ildm-retained", text)]})
    assert take_stamp(message) is None
    assert message.properties == {}


def test_stamps_round_trip_beside_other_properties() -> None:
    message = Publish(topic="t", payload=b"x", retain=True, properties={Property.USER_PROPERTY: [("a", "b")]})
    for repeated in (False, True):
        copy = stamped(message, Stamp(5, "n.1-x"), repeated)
        assert take_stamp(copy) == (Stamp(5, "n.1-x"), repeated)
        assert copy == message


FORGED = ["9999999999999999999:x", "1:x", "1:x:sync", "not a stamp", ""]


@pytest.mark.parametrize("forged", FORGED)
def test_a_property_of_a_client_that_looks_like_a_stamp_is_none(world: World, forged: str) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client("c", version=Version.V5)
    properties = {Property.USER_PROPERTY: [("ildm-retained", forged)]}
    for payload, said in ((b"1", {}), (b"2", properties), (b"3", {})):
        client.send(Publish(topic="t", payload=payload, retain=True, properties=dict(said)))
        world.run(0.1)
    world.run(1)
    injected = [p.payload for client_id, p in b.broker.published if client_id.startswith("ildm")]
    assert injected == [b"1", b"2", b"3"]
    one, two = (site.node.retained for site in (a, b))
    assert one.values["t"].stamp == two.values["t"].stamp
    assert one.values["t"].stamp.node == "a"
    assert one.values["t"].stamp.time < 1_800_000_000_000
    set_value(b, "u", b"later")  # the clock of b is as it was, too
    world.run(1)
    assert one.values["u"].stamp.node == "b"
    assert one.digest == two.digest


def test_a_restarted_node_goes_on_from_the_stamps_it_remembers(world: World) -> None:
    """Else what it sets on a topic is older than what a neighbour with a fast clock had set before."""
    a, b = row(world, "ab", "pf")
    hour = 3600
    a.node.driver.wall = lambda: 1_700_000_000.0 + world.time + hour  # type: ignore[method-assign]
    set_value(a, "t", b"1")
    world.run(1)
    b.crash()
    world.run(1)
    b.start(("a",))
    world.run(5)
    set_value(b, "t", b"2")
    world.run(1)
    for site in (a, b):
        assert site.node.retained.values["t"].message.payload == b"2"
    assert value(a, "t") == value(b, "t") == b"2"
