"""What a node remembers of retained messages: bounds, deletions, and clocks that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Stamp
from ildm.config import Address
from ildm.core.tables import RETAINED
from ildm.core.transfer.retained import Merged
from ildm.core.transfer.stamps import stamped
from ildm.mqtt import Property, Publish, Version
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.retained import Memory, cut, set_value, value
from tests.support.site import Site, row

DAY = 86_400


# bounds -----------------------------------------------------------------------------------------


def test_topics_set_and_deleted_do_not_push_live_values_out() -> None:
    memory = Memory(retained_messages=100, retained_deletions=100)
    memory.set("config")
    for i in range(1000):
        memory.set(f"t/{i}")
        memory.set(f"t/{i}", b"")
    assert list(memory.retained.values) == ["config"]
    assert len(memory.retained.deletions) == 100
    assert memory.counters["retained_deletions_forgotten"] == 900
    assert memory.counters["retained_forgotten"] == 0
    assert len(memory.store.rows(RETAINED)) == 101


def test_deletions_are_bounded_in_bytes_too() -> None:
    memory = Memory(retained_deletion_bytes=100_000)
    for i in range(20):
        memory.set(f"{i}/" + "x" * 10_000, b"")
    assert memory.retained.deletion_bytes <= 100_000
    assert memory.counters["retained_deletions_forgotten"] > 0


def test_properties_count_in_the_bound_of_bytes() -> None:
    memory = Memory(retained_bytes=100_000)
    users = [(f"name-{i}", "value") for i in range(1000)]
    for i in range(50):
        memory.set(f"t/{i}", user_property=list(users))
    assert sum(len(entry.frame) for entry in memory.retained.values.values()) < 100_000
    assert memory.counters["retained_forgotten"] >= 40
    found = memory.retained.wanted("t/49")
    assert found is not None
    assert found[0].properties == {Property.USER_PROPERTY: users}


def test_what_was_forgotten_for_want_of_room_is_not_taken_for_news_when_it_is_repeated() -> None:
    """Else two nodes with different bounds would push values out of the smaller one for ever."""
    memory = Memory(retained_messages=2)
    for time, topic in ((1, "a"), (2, "b"), (3, "c")):
        memory.retained.arrived(Publish(topic=topic, payload=b"x"), Stamp(time, "m"))
    again = stamped(Publish(topic="a", payload=b"x", retain=True), Stamp(1, "m"), repeated=True)
    assert memory.retained.merge(again).onward is None
    assert list(memory.retained.values) == ["b", "c"]


def test_a_start_writes_nothing_of_what_it_reads() -> None:
    memory = Memory()
    memory.set("t")
    memory.set("gone", b"")
    written: list[Any] = []
    memory.store.put = lambda *row: written.append(row)  # type: ignore[method-assign]
    assert set(memory.again().values) == {"t"}
    assert written == []
    memory.set("u")
    assert written


# deletions --------------------------------------------------------------------------------------


def test_a_deletion_is_forgotten_after_its_time_and_survives_a_restart_until_then() -> None:
    memory = Memory(expiry=100)
    memory.set("t")
    memory.set("t", b"")
    memory.world.run(60)
    assert list(memory.again().deletions) == ["t"]
    memory.world.run(39)
    assert memory.retained.newest("t") is not None
    memory.world.run(2)
    assert memory.retained.newest("t") is None
    assert memory.store.rows(RETAINED) == {}


def test_a_deletion_that_is_repeated_grows_no_younger() -> None:
    memory, other = Memory(expiry=100), Memory(expiry=100)
    memory.set("t", b"")
    memory.world.run(90)
    found = memory.retained.repetition("t")
    assert found is not None
    message, expires_at = found
    assert expires_at == 100
    message.properties[Property.MESSAGE_EXPIRY_INTERVAL] = 10  # as the sender tells what is left
    merged = other.retained.merge(message)
    assert merged.onward is not None
    assert merged.here.properties == {}
    other.world.run(11)
    assert other.retained.newest("t") is None


def test_a_value_that_is_over_does_not_come_back() -> None:
    memory = Memory()
    older = Stamp(1, "m")
    stamp = memory.set("t", message_expiry_interval=10)
    digest = memory.retained.digest
    memory.world.run(11)
    assert memory.retained.digest != digest
    assert list(memory.retained.matching("#")) == []
    repeated = stamped(Publish(topic="t", payload=b"old", retain=True), older, repeated=True)
    assert memory.retained.merge(repeated).onward is None
    assert memory.again().newest("t") == stamp


def test_a_value_that_came_by_comparison_is_old_news_even_when_another_has_replaced_it() -> None:
    memory = Memory()
    first, second = (Publish(topic="t", payload=payload, retain=True) for payload in (b"1", b"2"))
    assert memory.retained.merge(stamped(first, Stamp(1, "m"), repeated=True), is_new=True).onward is not None
    assert memory.retained.merge(stamped(second, Stamp(2, "m")), is_new=True).onward is not None
    assert memory.retained.merge(stamped(first, Stamp(1, "m")), is_new=True).onward is None
    assert memory.again().merge(stamped(first, Stamp(1, "m")), is_new=True).onward is None
    other = Publish(topic="t", payload=b"0", retain=True)  # this one has not come by comparison
    merged = memory.retained.merge(stamped(other, Stamp(0, "m")), is_new=True)
    assert merged.onward is not None
    assert not merged.here.retain


@pytest.mark.parametrize("payload", [b"x", b""])
def test_nor_is_it_news_to_a_later_life(payload: bytes) -> None:
    memory = Memory()
    message = Publish(topic="t", payload=payload, retain=True)
    assert memory.retained.merge(stamped(message, Stamp(1, "m"), repeated=True)).onward is not None
    assert memory.again().merge(stamped(message, Stamp(1, "m")), is_new=True).onward is None
    assert memory.again().merge(stamped(message, Stamp(2, "m")), is_new=True).onward is not None


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_what_was_deleted_while_a_site_was_away_stays_deleted(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm, limits={"retained_messages": 50})
    set_value(a, "ghost", b"old")
    world.run(1)
    del world.listeners[Address("a", 2)]
    cut(a, "b")
    world.run(1)
    set_value(a, "ghost", b"")
    client = a.client("churn")
    for i in range(60):
        for payload in (b"x", b""):
            client.send(Publish(topic=f"t/{i}", payload=payload, retain=True))
    world.run(1)
    from ildm.core.link.session import LinkSession

    world.listen(Address("a", 2), lambda: LinkSession(a.node.links, None, 0))
    world.run(60)
    assert a.broker.retained == b.broker.retained == {}


# what is lost on a link -------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_what_a_full_queue_throws_away_is_sent_again(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm, link={"queue_messages": 10})
    (session,) = a.node.links.links["b"].open_sessions
    session.pause_writing()
    client = a.client("p")
    for i in range(50):
        client.send(Publish(topic=f"t/{i}", payload=b"%d" % i, retain=True))
    world.run(1)
    assert a.node.counters["link_dropped_overflow_qos0"] > 0
    session.resume_writing()
    world.run(2)
    assert {topic: m.payload for topic, m in b.broker.retained.items()} == {
        f"t/{i}": b"%d" % i for i in range(50)
    }
    assert a.node.retained.digest == b.node.retained.digest


def test_neighbours_that_differ_for_whatever_reason_are_alike_after_a_while(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"sync_interval": 20})
    for i in range(500):
        set_value(a, f"t/{i}", b"1")
    world.run(1)
    before = a.node.counters["retained_repeated"]
    message = Publish(topic="mine", payload=b"x", retain=True)
    a.node.retained.entered(message)  # as if it had been lost without a trace
    world.run(35)
    assert value(b, "mine") == b"x"
    assert 1 <= a.node.counters["retained_repeated"] - before < 50, "only the part that differs is repeated"


def test_repeating_in_vain_becomes_ever_more_seldom(world: World) -> None:
    """A filter, or a smaller bound, at the far side keeps the two unlike."""
    a, b = row(world, "ab", "pf", link={"sync_interval": 20})
    b.node.retained.merge = lambda message: Merged(message, None, True)  # type: ignore[method-assign]
    set_value(a, "t", b"1")
    world.run(20 * 100)
    assert 3 <= a.node.counters["retained_repeated"] <= 12


def test_digests_without_end_do_not_make_answers_without_end(world: World) -> None:
    a, _b = row(world, "ab", "pf")
    for i in range(200):
        set_value(a, f"t/{i}", b"1")
    world.run(1)
    sync, link = a.node.links.cooperation.retained_sync, a.node.links.links["b"]
    before = a.node.counters["retained_repeated"]
    for _ in range(1000):
        sync.digest_came(link, b"another!")
        sync.buckets_came(link, bytes(8 * 256))
    world.run(5)
    assert a.node.counters["retained_repeated"] - before <= 400


# clocks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "limits"), [(2 * DAY, {"clock_skew": DAY}), (10**13, {})])
def test_a_stamp_far_in_the_future_is_refused_and_drags_no_clock_along(
    world: World, ahead: int, limits: dict[str, float]
) -> None:
    a, b = row(world, "ab", "pf", limits=limits)
    subscriber = b.subscriber("t")
    a.node.driver.wall = lambda: 1_700_000_000.0 + world.time + ahead  # type: ignore[method-assign]
    set_value(a, "t", b"1")
    world.run(1)
    assert value(b, "t") is None
    assert subscriber.messages == [("t", b"1")], "it is a message all the same"
    assert b.node.counters["retained_refused_future"] == 1
    logged = [fields for _, event, fields in b.node.driver.logged if "future" in event]  # type: ignore[attr-defined]
    assert [fields["node"] for fields in logged] == ["a"]
    set_value(b, "u", b"2")
    world.run(1)
    assert b.node.retained.values["u"].stamp.time < 1_700_000_000_000 + DAY * 1000


def test_stamps_never_become_longer_than_what_others_read() -> None:
    memory = Memory()
    for text in ("9" * 19, "9" * 16, "253402300799000"):
        stamp, _ = Stamp.parse(f"{text}:far")
        if stamp is not None:
            memory.retained.arrived(Publish(topic="t", payload=b"x"), stamp)
    memory.driver.wall = lambda: 1e17  # type: ignore[method-assign]
    made = memory.set("t")
    assert Stamp.parse(made.text()) == (made, False)


def test_a_clock_that_was_not_set_yet_makes_no_local_value_lose() -> None:
    memory = Memory()
    before = memory.set("t")
    memory.driver.wall = lambda: 12.5  # type: ignore[method-assign]
    memory.again()
    assert memory.set("t") > before
    memory.retained.forget("t")
    memory.again()
    assert memory.set("t") > before, "also when what was stamped last is no longer remembered"
    assert memory.retained.arrived(Publish(topic="u", payload=b"x"), Stamp(1_700_000_000_000, "m"))


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_was_wrong_and_is_set_right_does_no_lasting_harm(world: World, restart: bool) -> None:
    a, b = row(world, "ab", "pf", link={"sync_interval": 20})
    a.node.driver.wall = lambda: 1_700_000_000.0 + world.time + 400 * DAY  # type: ignore[method-assign]
    set_value(a, "t", b"1")
    set_value(a, "gone", b"1")
    set_value(a, "gone", b"")
    world.run(1)
    if restart:
        a.crash()
        a.start(neighbors=("b",))
        world.run(3)
    else:
        a.node.driver.wall = lambda: 1_700_000_000.0 + world.time  # type: ignore[method-assign]
    set_value(a, "u", b"2")
    world.run(40)
    assert [value(b, topic) for topic in ("t", "u")] == [b"1", b"2"]
    assert a.node.retained.digest == b.node.retained.digest


# the broker's store -----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_a_broker_that_lost_its_store_is_filled_again(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    for i in range(250):
        set_value(a, f"t/{i}", b"%d" % i)
    set_value(a, "gone", b"1")
    set_value(a, "gone", b"")
    world.run(2)
    subscriber = b.subscriber("t/7")
    b.broker.crash(keeps=False)
    world.run(15)
    assert {topic: m.payload for topic, m in b.broker.retained.items()} == {
        f"t/{i}": b"%d" % i for i in range(250)
    }
    assert b.node.counters["retained_repaired"] == 250
    left = {each.client_id for each in b.broker.connections if each.session and each.session.filters}
    assert left == {"ildm-b-same"}, "nothing is left subscribed to"
    assert subscriber.closed


def test_a_broker_that_came_back_as_it_was_is_sent_nothing(world: World) -> None:
    a, b = row(world, "ab", "pf")
    for i in range(250):
        set_value(a, f"t/{i}", b"%d" % i)
    set_value(a, "gone", b"1")
    set_value(a, "gone", b"")
    world.run(10)
    before = len(b.broker.published)
    b.broker.crash(keeps=True)
    world.run(15)
    assert len(b.broker.published) == before
    assert b.node.counters["retained_repaired"] == 0


def test_a_broker_with_an_older_store_gets_what_is_newer_and_loses_what_was_deleted(world: World) -> None:
    a, b = row(world, "ab", "pf")
    for topic in ("t", "gone", "same"):
        set_value(a, topic, b"1")
    world.run(1)
    older = dict(b.broker.retained)
    set_value(a, "t", b"2")
    set_value(a, "gone", b"")
    world.run(1)
    b.broker.crash()
    b.broker.retained = older
    world.run(15)
    assert {topic: m.payload for topic, m in b.broker.retained.items()} == {"t": b"2", "same": b"1"}
    assert b.node.counters["retained_repaired"] == 2


def test_a_node_killed_between_saving_and_injecting_injects_after_its_restart(world: World) -> None:
    a, b = row(world, "ab", "pf")
    del world.listeners[Address("b", 3)]
    b.broker.crash()
    world.run(1)
    set_value(a, "t", b"1")
    world.run(1)
    b.crash()
    world.listen(Address("b", 3), b.broker.connection)
    b.start()
    world.run(15)
    assert value(b, "t") == b"1"


def test_a_broker_that_denies_the_subscription_is_left_alone_and_that_is_said_once(world: World) -> None:
    a, b = row(world, "ab", "pf")
    for i in range(5):
        set_value(a, f"t/{i}", b"1")
    world.run(1)
    b.broker.denies = lambda topic_filter: True
    for _ in range(2):
        b.broker.crash(keeps=False)
        world.run(15)
    assert b.broker.retained == {}
    assert b.node.counters["retained_audit_denied"] == 10
    logged = [event for _, event, _ in b.node.driver.logged if "does not let" in event]  # type: ignore[attr-defined]
    assert len(logged) == 1


def test_without_audit_the_broker_is_not_looked_at(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.crash()
    b.settings["broker"] = {"address": "b:3", "audit": False}
    b.start(("a",))
    world.run(5)
    set_value(a, "t", b"1")
    world.run(1)
    b.broker.crash(keeps=False)
    world.run(15)
    assert b.broker.retained == {}


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_value_whose_expiry_is_over_goes_from_brokers_that_know_no_expiry(
    world: World, version: Version
) -> None:
    a = Site(world, "a", "pf")
    b = Site(world, "b", "pf")
    b.broker.make = PLAIN._replace(speaks_5=version is Version.V5)
    b.crash()
    b.start(neighbors=("a",))
    world.run(5)
    client = a.client("p", version=Version.V5)
    expiry = {Property.MESSAGE_EXPIRY_INTERVAL: 10}
    client.send(Publish(topic="t", payload=b"x", retain=True, properties=dict(expiry)))
    world.run(9)
    assert value(b, "t") == b"x"
    world.run(3)
    if version is Version.V311:
        assert value(b, "t") is None
