"""What was published and subscribed arrives: after absence, partition, suspension and joining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import pytest

from ildm.api import Injections, Peer
from ildm.mqtt import IldmError, Property, Publish, Version, decode
from ildm.testing import LinkModel, PluginWorld, SimNode, uniform
from ildm_algorithms.exchange.log import OVERHEAD, Log
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.exchange.repeated import repeated
from ildm_algorithms.overlay.casts.casting import CastResult
from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.forgotten import Forgotten
from ildm_algorithms.tbps.keys.encoding import segment_of_filter
from ildm_algorithms.tbps.keys.segments import Segments
from ildm_algorithms.tbps.messages import Late, Missed, Offer, Want, decode_payload
from ildm_algorithms.tbps.missed import HOLD, RETURN, SETTLE, Missing
from ildm_algorithms.tbps.offers import ATTEMPTS, FOUND, Offers
from ildm_algorithms.tbps.presence import Presence
from tests.algorithms.fake_api import FakeApi

QUICK = {"ping_interval": 0.5, "ping_timeout": 0.5, "check_interval": 3.0, "cast_deadline": 5.0}


def world_of(
    nodes: int = 8, seed: int = 1, make: type[PluginWorld] = PluginWorld, spool: bool = False, **options: Any
) -> PluginWorld:
    model = LinkModel(delay=uniform(0.005, 0.02))
    world = make(SgTbps, {"overlay": QUICK, **options}, seed, model, spool=spool)
    for number in range(nodes):
        world.add(f"n{number}")
        if number:
            world.link(f"n{number}", f"n{number // 2}")
        world.run(0.5)
    world.run(10)
    return world


def payloads(node: SimNode) -> list[str]:
    return [delivery.payload.decode() for delivery in node.deliveries]


def publish(world: PluginWorld, name: str, texts: Iterable[str], topic: str = "a/b", qos: int = 1) -> None:
    for text in texts:
        world[name].publish(topic, text.encode(), qos, publisher=1)


def back(world: PluginWorld, name: str, *filters: str) -> SimNode:
    """A site that was killed is there again, with the sessions it had."""
    node = world.add(name)
    for topic_filter in filters:
        node.subscribe(topic_filter, 1)
    return node


# absence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_a_site_that_was_down_for_longer_than_a_cast_loses_nothing(silent: bool, others: bool) -> None:
    """Whether others subscribe, or all publishers were suspended meanwhile; also on topics that are new."""
    world = world_of()
    world["n5"].subscribe("a/#", 1)
    if others:
        world["n6"].subscribe("a/#", 1)
    publish(world, "n2", ["before"])
    world.run(30)
    world.kill("n5", silent=silent)
    for number in range(40):
        publish(world, "n2", [f"{number}"])
        publish(world, "n3", [f"new {number}"], "a/new")
        world.run(1)
    node = back(world, "n5", "a/#")
    publish(world, "n2", ["after"])
    world.run(30)
    got = payloads(node)
    wanted = [f"{number}" for number in range(40)]
    assert sorted(got) == sorted([*wanted, *(f"new {text}" for text in wanted), "after"])
    assert [text for text in got if text in wanted] == wanted
    assert world.counters()["missed"] == world.counters()["kept_missed"] == 0


def test_a_site_that_comes_back_fetches_as_soon_as_all_have_been_asked() -> None:
    """It does not wait for as long as it might have taken to find the others."""
    world = world_of()
    world["n5"].subscribe("a/#", 1)
    publish(world, "n2", ["before"])
    world.run(30)
    world.kill("n5")
    wanted = [f"{number}" for number in range(10)]
    for text in wanted:
        publish(world, "n2", [text])
        publish(world, "n3", [f"new {text}"], "a/new")
        world.run(0.1)
    node = back(world, "n5", "a/#")
    world.run(RETURN - 4)
    got = payloads(node)
    assert [text for text in got if text in wanted] == wanted
    assert len(got) == 2 * len(wanted)
    world.run(RETURN)
    assert payloads(node) == got


def test_a_site_that_stopped_in_order_gets_what_it_missed_and_nothing_twice() -> None:
    world = world_of()
    world["n5"].subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(10)
    publish(world, "n2", ["just before"])
    world.run(1)
    world.stop("n5")
    world.run(20)
    publish(world, "n2", ["1", "2"])
    world.run(20)
    node = back(world, "n5", "a/b")
    world.run(20)
    assert payloads(node) == ["1", "2"]


def test_a_new_subscription_gets_nothing_older() -> None:
    """Neither a new one at a site that was away, nor one at a site that was there."""
    world = world_of()
    world["n5"].subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(15)
    world.kill("n5")
    publish(world, "n2", ["meanwhile"])
    publish(world, "n2", ["other"], "a/c")
    world.run(10)
    node = world.add("n5")
    world.run(0.5)
    node.subscribe("a/c", 1)
    world["n6"].subscribe("a/#", 1)
    world.run(20)
    assert payloads(node) == []
    assert payloads(world["n6"]) == []


def test_away_for_longer_than_publishers_keep_messages() -> None:
    """What is gone is lost, and that is said; what is there still arrives."""
    world = world_of(absence_period=60.0)
    world["n5"].subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(15)
    world.kill("n5")
    publish(world, "n2", ["early"])
    world.run(80)
    publish(world, "n2", ["late"])
    node = back(world, "n5", "a/b")
    world.run(20)
    assert payloads(node) == ["late"]
    assert node.counters["away_too_long"] == 1
    assert any(event == "away for longer than publishers keep messages" for _, _, event, _ in world.logs)


class _SetClock(SimNode):
    """A node whose clock is wrong."""

    wrong = 0.0

    def wall(self) -> float:
        return super().wall() + self.wrong


class _SetClocks(PluginWorld):
    def make_node(self, node_id: str) -> SimNode:
        return _SetClock(self, node_id, self.algorithm, self.configure())


@pytest.mark.parametrize("changed", [-86400.0, -3600.0, -20.0, 0.0, 20.0, 3600.0])
def test_a_clock_that_is_set_while_a_site_is_away_hides_nothing(
    changed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that starts without a battery for its clock: what was missed still comes, all once."""
    world = world_of(make=_SetClocks)
    monkeypatch.setattr(_SetClock, "wrong", 1e6)
    world["n5"].subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(30)
    world.kill("n5")
    publish(world, "n2", [f"meanwhile {number}" for number in range(10)])
    world.run(60)
    publish(world, "n2", ["late"])
    world.run(10)
    monkeypatch.setattr(_SetClock, "wrong", 1e6 + changed)
    node = back(world, "n5", "a/b")
    world.run(30)
    assert sorted(payloads(node)) == ["late", *(f"meanwhile {number}" for number in range(10))]
    assert node.counters["clock_set_back"] == (changed < -100)


class _Waiting(SimNode):
    """A node whose broker is away for a while: what comes for it waits."""

    away = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.queue: list[Publish] = []

    def _into_broker(self, message: Publish) -> None:
        if self.away:
            self.queue.append(message)
        else:
            super()._into_broker(message)

    @property
    def injections(self) -> Injections:
        given, taken = super().injections
        return Injections(given + len(self.queue), taken)

    def broker_is_back(self) -> None:
        self.away = False
        while self.queue:
            self._into_broker(self.queue.pop(0))


class _Waits(PluginWorld):
    def make_node(self, node_id: str) -> SimNode:
        return _Waiting(self, node_id, self.algorithm, self.configure())


@pytest.mark.parametrize("end", [PluginWorld.kill, PluginWorld.stop, None])
def test_what_waits_for_a_broker_when_its_node_ends_is_fetched_again(
    end: Callable[[PluginWorld, str], None] | None,
) -> None:
    """It has come, but no client has it: who is back before its broker has not got it yet."""
    world = world_of(make=_Waits)
    node = world["n5"]
    assert isinstance(node, _Waiting)
    node.subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(20)
    node.away = True
    for number in range(40):
        publish(world, "n2", [f"waiting {number}"])
        world.run(1)
    if end is None:
        node.broker_is_back()
        world.run(30)
        assert payloads(node) == ["before", *(f"waiting {number}" for number in range(40))]
        return
    end(world, "n5")
    world.run(10)
    publish(world, "n2", ["absent"])
    back_again = back(world, "n5", "a/b")
    world.run(30)
    assert sorted(payloads(back_again)) == sorted(["absent", *(f"waiting {number}" for number in range(40))])


# partitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_what_was_sent_in_a_partition_arrives_when_it_heals(seed: int) -> None:
    """From each side, to sites with plain and wildcard filters; all once, and to those in the same part
    at once."""
    world = world_of(seed=seed)
    for name, topic_filter in (("n1", "a/b"), ("n4", "a/#"), ("n5", "#"), ("n7", "a/b")):
        world[name].subscribe(topic_filter, 1)
    world.run(10)
    publish(world, "n0", ["first"])
    publish(world, "n6", ["first, too"])
    world.run(5)
    world.partition([f"n{number}" for number in range(4)], [f"n{number}" for number in range(4, 8)])
    texts = ["first", "first, too"]
    for number in range(40):
        publish(world, "n0", [f"left {number}"])
        publish(world, "n6", [f"right {number}"])
        texts += [f"left {number}", f"right {number}"]
        world.run(1)
    assert "right 20" not in payloads(world["n1"])
    assert "left 20" in payloads(world["n1"])
    world.heal()
    world.run(120)
    for name in ("n1", "n4", "n5", "n7"):
        assert sorted(payloads(world[name])) == sorted(texts), name
    assert world.counters()["missed"] == 0


def test_a_retained_message_of_a_partition_that_comes_as_a_repetition_comes_once() -> None:
    """The repetition brings it first, then there is a newer one; what was missed is fetched after that."""
    world = world_of(2)
    for name in ("n0", "n1"):
        world[name].subscribe("a/b", 1)
    world.run(10)
    world.partition(["n0"], ["n1"])
    world.run(20)
    world["n1"].publish("a/b", b"alone", 1, retain=True)
    world.run(0.2)
    world.heal()
    publisher = world["n1"].algorithm
    assert isinstance(publisher, SgTbps)
    for _ in range(600):
        publisher.merges.repeating.now()  # whenever chance has it
        world.run(0.05)
        if payloads(world["n0"]):
            break
    world["n1"].publish("a/b", b"newer", 1, retain=True)
    world.run(60)
    assert payloads(world["n0"]) == ["alone", "newer"]
    assert (world["n0"].counters["fetched"], world["n0"].counters["late_fetched"]) == (1, 1)


def test_an_older_retained_message_of_a_partition_comes_after_a_repetition_that_was_no_news() -> None:
    """It was not given to anybody with that."""
    world = world_of(2, spool=True)
    for name in ("n0", "n1"):
        world[name].subscribe("a/b", 1)
    world.run(10)
    world.partition(["n0"], ["n1"])
    world.run(20)
    for name, text in (("n1", b"older"), ("n0", b"newer")):
        world[name].publish("a/b", text, 1, retain=True)
        world.run(0.2)
    older = world["n1"].memory.matching("a/b")
    world.heal()
    publisher = world["n1"].algorithm
    assert isinstance(publisher, SgTbps)
    (message,) = older
    for _ in range(600):
        publisher.outbox.repeat(repeated(message))  # it may have been under way for that long
        world.run(0.05)
    assert payloads(world["n0"]) == ["newer", "older"]
    assert payloads(world["n1"]) == ["older", "newer"]


@pytest.mark.parametrize("alone", [0.0, 60.0])
@pytest.mark.parametrize("own", ["a/b", "#", None])
def test_what_a_site_published_while_it_was_alone_arrives(alone: float, own: str | None) -> None:
    """Though its messages had a subscriber, its own; and only at who had subscribed by then."""
    world = world_of()
    for name, topic_filter in (("n3", "a/b"), ("n5", "a/#"), ("n6", "c")):
        world[name].subscribe(topic_filter, 1)
    world.run(5)
    new = world.add("x")
    if own is not None:
        new.subscribe(own, 1)
    publish(world, "x", ["0", "1", "2"])
    world.run(alone)
    if alone:
        world["n4"].subscribe("a/b", 1)
        world.run(10)
    world.link("x", "n0")
    publish(world, "x", ["3", "4"])
    world.run(30)
    for name in ("n3", "n5"):
        assert Counter(payloads(world[name])) == Counter("01234")
    assert Counter(payloads(world["n4"])) == Counter("34" if alone else "")
    assert payloads(world["n6"]) == []
    assert payloads(new) == ([] if own is None else list("01234"))


def test_a_site_that_is_alone_again_offers_what_it_publishes_then() -> None:
    world = world_of()
    for node in world.alive():
        node.subscribe("a/b", 1)
    world.run(5)
    world.partition(["n5"])
    world.run(30)
    publish(world, "n5", ["alone"])
    world.run(60)
    world.heal()
    world.run(40)
    assert all(payloads(node) == ["alone"] for node in world.alive())


@pytest.mark.parametrize("seed", [0, 3])
def test_what_was_sent_in_a_partition_arrives_though_pieces_come_together_late(seed: int) -> None:
    """All over the graph the halves alternate, so that it takes long to become one; in these two worlds a
    piece is passed over when all are told of it (0), and a publisher when a site asks (3)."""
    world = PluginWorld(SgTbps, seed=seed, model=LinkModel(delay=uniform(0.002, 0.02)))
    names = [f"n{number:02d}" for number in range(18)]
    for number, name in enumerate(names):
        place = [("asia", "eu", "us")[number % 3], f"s{number % 2}"]
        world.add(name, "n00" if number else None, {"locality": place})
        world.run(0.5)
    world.run(5)
    for name in names:
        world[name].subscribe("a/b", 1)
    world.run(15)
    sent = []
    world.partition(names[1::3])
    for number in range(100):
        if number == 40:
            world.heal()
        for name in names[:3]:
            sent.append(f"{name} {number}")
            world[name].publish("a/b", sent[-1].encode(), 1)
        world.run(0.5)
    world.run(60)
    for name in names:
        assert Counter(payloads(world[name])) == Counter(sent), name


def test_a_site_that_is_cut_off_alone_and_comes_back() -> None:
    world = world_of()
    world["n5"].subscribe("a/b", 1)
    world["n3"].subscribe("a/b", 1)
    world.run(10)
    publish(world, "n0", ["first"])
    world.run(5)
    world.partition(["n5"])
    for number in range(30):
        publish(world, "n0", [f"{number}"])
        world.run(1)
    world.heal()
    world.run(60)
    for name in ("n3", "n5"):
        assert sorted(payloads(world[name])) == sorted(["first", *map(str, range(30))]), name


def test_publishers_that_have_left_a_topic_still_have_what_they_sent() -> None:
    """They keep messages for longer than keys, so it is not asked at the keys alone."""
    world = world_of(publisher_idle=2.0)
    for name in ("n3", "n5"):
        world[name].subscribe("a/b", 1)
    world.run(10)
    world.partition(["n5"])
    publish(world, "n0", ["missed"])
    world.run(20)
    world.heal()
    world.run(60)
    assert payloads(world["n5"]) == payloads(world["n3"]) == ["missed"]


@pytest.mark.parametrize("introducer", [None, "n4"], ids=["alone", "in its half"])
@pytest.mark.parametrize("topic_filter", ["a/b", "a/#"])
def test_a_site_that_crashes_in_a_partition_gets_what_the_other_half_sent_before(
    topic_filter: str, introducer: str | None
) -> None:
    """Whether it finds others of its half again, or is alone until the partition heals."""
    world = world_of()
    for name in ("n1", "n5", "n7"):
        world[name].subscribe(topic_filter, 1)
    publish(world, "n0", ["first"])
    publish(world, "n6", ["first, too"])
    world.run(40)
    world.partition([f"n{number}" for number in range(4)], [f"n{number}" for number in range(4, 8)])
    for number in range(60):
        publish(world, "n0", [f"left {number}"])
        publish(world, "n6", [f"right {number}"])
        if number == 40:
            world.kill("n5")
        if number == 50:
            node = back(world, "n5", topic_filter)
            if introducer is not None:
                world.link("n5", introducer)
        world.run(1)
    world.heal()
    world.run(150)
    got = Counter(payloads(node))
    assert {text for text in got if text.startswith("left")} == {f"left {number}" for number in range(60)}
    assert {f"right {number}" for number in range(41, 60)} <= set(got)
    # what came twice was published shortly before the crash
    earlier = {f"right {number}" for number in range(12)} | {"first", "first, too"}
    assert not earlier & set(got)
    assert set(got.values()) == {1}
    assert world.counters()["missed"] == 0


def test_a_site_that_crashes_twice_in_a_partition_misses_nothing_of_the_other_half() -> None:
    world = world_of()
    for name in ("n1", "n5"):
        world[name].subscribe("a/b", 1)
    world.run(30)
    world.partition([f"n{number}" for number in range(4)], [f"n{number}" for number in range(4, 8)])
    for number in range(100):
        publish(world, "n0", [f"{number}"])
        if number in (30, 70):
            world.kill("n5")
        if number in (35, 75):
            node = back(world, "n5", "a/b")
            world.link("n5", "n4")
        world.run(1)
    world.heal()
    world.run(150)
    assert sorted(payloads(node)) == sorted(str(number) for number in range(100))


def test_a_subscription_made_in_a_partition_gets_nothing_older_after_a_crash() -> None:
    """Since when it is wanted is remembered, too; and a filter that does not come back is forgotten."""
    world = world_of()
    world["n5"].subscribe("other", 1)
    world["n1"].subscribe("a/b", 1)
    world.run(30)
    world.partition([f"n{number}" for number in range(4)], [f"n{number}" for number in range(4, 8)])
    publish(world, "n0", ["older"])
    world.run(20)
    world["n5"].subscribe("a/b", 1)
    world.run(10)
    publish(world, "n0", ["wanted"])
    publish(world, "n0", ["not wanted any more"], "other")
    world.run(30)
    world.kill("n5")
    world.run(10)
    node = back(world, "n5", "a/b")
    world.run(10)
    node.subscribe("other", 1)
    world.run(10)
    world.heal()
    world.run(150)
    assert payloads(node) == ["wanted"]


def test_all_filters_of_persistent_sessions_get_what_was_missed() -> None:
    """Also those whose turn comes later."""
    world = world_of(4)
    filters = [f"dev/{number}" for number in range(60)]
    for topic_filter in filters:
        world["n3"].subscribe(topic_filter, 1)
    world.run(30)
    world.kill("n3")
    world.run(5)
    for topic in filters:
        publish(world, "n1", [topic], topic)
    world.run(10)
    node = back(world, "n3", *filters)
    world.run(60)
    assert sorted(payloads(node)) == sorted(filters)


# suspension and joining ---------------------------------------------------------------------------


def test_published_while_the_key_of_a_new_subscriber_joins() -> None:
    """Other sites subscribe already, so that nobody is suspended and nothing resumes."""
    world = world_of()
    world["n3"].subscribe("a/b", 1)
    publish(world, "n0", ["first"])
    world.run(20)
    world["n5"].subscribe("a/b", 1)
    for number in range(20):
        publish(world, "n0", [f"{number}"])
        world.run(0.02)
    world.run(10)
    assert sorted(payloads(world["n5"])) == sorted(f"{number}" for number in range(20))
    assert world["n5"].counters["fetched"] > 0


def test_published_while_publishers_are_suspended_though_somebody_subscribes() -> None:
    """A publisher that has missed its RESUME hears later that it is not suspended any more."""
    world = world_of()
    publish(world, "n0", ["nobody hears it"])
    publish(world, "n2", ["nor that"])
    world.run(20)
    world["n5"].subscribe("a/b", 1)
    world.run(10)
    algorithm = world["n2"].algorithm
    assert isinstance(algorithm, SgTbps)
    (member,) = (m for m in algorithm.segments.members.values() if m.segment.text == "a/b")
    assert member.active
    member.publisher.suspended = True
    publish(world, "n2", ["1", "2"])
    world.run(1)
    assert payloads(world["n5"]) == []
    world.run(40)
    assert payloads(world["n5"]) == ["1", "2"]


def test_an_aggregate_that_hears_of_a_subscriber_late() -> None:
    """As where the subscriber's word was lost: what was not sent meanwhile is offered."""
    world = world_of(siblings=2)
    for number in range(6):
        publish(world, "n0", ["x"], f"dev/{number}")
    world.run(10)
    world["n5"].subscribe("dev/5", 1)
    world.run(10)
    algorithm = world["n0"].algorithm
    assert isinstance(algorithm, SgTbps)
    (aggregate,) = algorithm.suspension.surveys.aggregates.values()
    code = segment_of_filter("dev/5").code
    assert aggregate.knows(code)
    aggregate.unsubscribed(code, aggregate.moment)
    assert not aggregate.wants(code)
    publish(world, "n0", ["1", "2"], "dev/5")
    world.run(0.1)
    assert payloads(world["n5"]) == []
    world.run(120)
    assert payloads(world["n5"]) == ["1", "2"]


def test_where_nobody_listens_nothing_is_sent() -> None:
    world = world_of()
    publish(world, "n0", ["x"])
    world.run(30)
    before = world["n0"].counters["offers"] + world["n0"].counters["offers_to_all"]
    publish(world, "n0", ["x"] * 100)
    world.run(30)
    counters = world["n0"].counters
    assert counters["offers"] + counters["offers_to_all"] == before
    assert counters["suspended_publishes"] >= 100


def test_messages_that_expire_do() -> None:
    world = world_of()
    world["n5"].subscribe("a/b", 1)
    publish(world, "n2", ["before"])
    world.run(20)
    world.kill("n5")
    world.run(10)
    for text, expiry in (("short", 5), ("long", 100)):
        properties = {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        world["n2"].publish("a/b", text.encode(), 1, properties=properties)
    world.run(20)
    node = back(world, "n5", "a/b")
    world.run(20)
    assert payloads(node) == ["long"]


# bounds -------------------------------------------------------------------------------------------


def payload_of(number: int, topic: str = "t", size: int = 100) -> bytes:
    frame = Publish(topic=topic, payload=b"x" * size, qos=1, packet_id=1).encode(Version.V5)
    return Message(number, 0, 0, frame).encode()


def kept_of(api: Any, max_bytes: int = 1 << 20) -> Log:
    return Log(api, 10.0, max_bytes, api.count)


def test_what_is_kept_is_bounded_by_age_and_bytes() -> None:
    api = FakeApi()
    size = len(payload_of(1)) + 1 + OVERHEAD
    kept = kept_of(api, 8 * size)
    for number in range(1, 12):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    assert [number for number, _ in kept.since(0.0)] == list(range(11, 3, -1))
    assert api.counters["kept_displaced"] == 3
    kept.add(20, "u", payload_of(20), None, subscribed=False)
    kept.add(21, "u", payload_of(21), None, subscribed=False)
    assert [number for number, _ in kept.since(0.0)] == [21, *range(11, 3, -1)]
    assert sum(kept.bytes.values()) == 9 * size
    api.run(12)
    assert not len(kept)
    assert sum(kept.bytes.values()) == 0
    assert not api.logged


def test_what_somebody_may_have_missed_is_named_when_it_goes() -> None:
    api = FakeApi()
    kept = kept_of(api)
    for number, topic in ((1, "t"), (2, "t"), (3, "u")):
        kept.add(number, topic, payload_of(number, topic), None, subscribed=True)
        if number < 3:
            entry = kept.get(number)
            assert entry is not None
            entry.unconfirmed += 1
    api.run(12)
    assert api.counters["kept_missed"] == 2
    assert api.logged == [("messages some site may have missed", {"topic": "t", "messages": 2})]


class Wire:
    """A graph that only carries what nodes tell each other; what is cast reaches nobody."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def keys(self) -> list[bytes]:
        return [b"key"]

    def neighbors(self, key: bytes) -> list[tuple[None, None]]:
        """So many levels that there are more nodes than can ask within a fifth of the interest period."""
        return [(None, None)] * 10

    def cast(
        self, target: Range, payload: bytes, reliable: bool, done: Callable[[CastResult], None] | None = None
    ) -> None:
        if done is not None:
            done(CastResult(True, 0, 0, 0, 0, None))

    def tell(self, to: Peer, payload: bytes, turn: int = 0) -> None:
        self.told.append(decode_payload(payload))

    def insert(self, key: bytes) -> None:
        """Keys do not matter here."""

    remove = insert


PEER = Peer("far", "far:1")


def test_offers_to_one_site_come_page_by_page_and_again_if_need_be() -> None:
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api, 1 << 24)
    config = SgTbps.Config()
    offers = Offers(api, graph, kept, config, api.count)
    for number in range(1, 2_501):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    offers.asked(PEER, Missed([("t", 5_000), ("u", 9_000)]), 0.0)
    seen: list[int] = []
    for page in range(3):
        offer = graph.told.pop()
        assert isinstance(offer, Offer)
        seen += [number for _, messages in offer.topics for number, _ in messages]
        if page == 1:
            api.run(2.5)
            assert [again.topics[0][1][0][0] for again in graph.told] == [1_001]
            graph.told.clear()
        offers.wanted(PEER, Want(offer.number, ()))
        graph.told = [told for told in graph.told if isinstance(told, Offer)]
    assert seen == list(range(1, 2_501))
    assert not graph.told
    offers.asked(PEER, Missed([("#", 5_000)]), 0.0)
    api.run(200)
    assert api.counters["offers_unanswered"] == 1
    assert len(graph.told) == ATTEMPTS


def test_offers_are_bounded() -> None:
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=9), api.count)
    for number in range(1, 5):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    offers.asked(PEER, Missed([("t", 5_000)]), 0.0)
    offers.asked(PEER, Missed([("t", 5_000)]), 0.0)
    assert len(graph.told) == 1
    assert api.counters["offers_full"] == 1
    offers.wanted(PEER, Want(graph.told[0].number, ()))
    offers.asked(PEER, Missed([("t", 5_000)]), 0.0)
    assert len([told for told in graph.told if isinstance(told, Offer)]) == 2


def numbers_of(told: list[Any]) -> list[int]:
    return [n for offer in told if isinstance(offer, Offer) for _, some in offer.topics for n, _ in some]


def test_a_question_for_more_than_there_is_room_for_is_answered_in_parts() -> None:
    """The oldest first, and each once."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=10), api.count)
    for number in range(1, 13):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    offers.asked(PEER, Missed([("t", 5_000)]), 0.0)
    for parts in range(1, 4):
        told = [told for told in graph.told if isinstance(told, Offer)]
        assert len(told) == parts
        offers.wanted(PEER, Want(told[-1].number, ()))
    assert numbers_of(graph.told) == list(range(1, 13))
    assert not api.counters["offers_full"]


def test_what_is_older_than_the_last_that_was_received_is_not_offered_again() -> None:
    """But for the last minutes, in which something may have been missed in between."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = Log(api, 10_000.0, 1 << 20, api.count)
    offers = Offers(api, graph, kept, SgTbps.Config(), api.count)
    for number in range(1, 11):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
        api.run(100)
    for heard, expected in (
        ({}, range(1, 11)),
        ({"n0": 5}, range(6, 11)),
        ({"n0": 10}, [8, 9, 10]),
        ({"n0": 1 << 33}, range(1, 11)),
    ):
        graph.told.clear()
        offers.asked(PEER, Missed([("t", 2_000_000)], 0, heard), 0.0)
        assert numbers_of(graph.told) == list(expected)


def test_what_is_gone_is_offered_and_counts_once_where_it_is_lacking() -> None:
    api, graph, missing, got = receiver(absence_period=100.0)
    kept = kept_of(api, 2 * (len(payload_of(1)) + 1 + OVERHEAD))
    offers = Offers(api, graph, kept, SgTbps.Config(), api.count)
    for number in range(1, 6):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    for _ in range(2):
        graph.told.clear()
        offers.asked(PEER, Missed([("t", 500_000)]), 0.0)
        (offer,) = graph.told
        assert numbers_of([offer]) == [1, 2, 3, 4, 5]
        missing.offered(PEER, offer)
        for want in [told for told in graph.told if isinstance(told, Want) and told.numbers]:
            graph.told.clear()
            offers.wanted(PEER, want)
            for late in [told for told in graph.told if isinstance(told, Late)]:
                missing.arrived(PEER, late)
        assert got == [4, 5]
        assert api.counters["missed"] == 3
        api.run(100)


def test_what_was_published_alone_is_offered() -> None:
    """The newest first, some in each call; what is beyond the bound is given up, counted."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = Log(api, 300.0, 1 << 30, api.count)
    number = 2 * FOUND + 1
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=3 * number), api.count)
    kept.add(0, "t", b"", None, subscribed=True)
    api.run(1)
    for at in range(1, number + 1):
        kept.add(at, "t", b"", None, subscribed=True)
    offers.found_others(0.5)
    assert [kept.get(at).unconfirmed for at in (0, 1, number)] == [0, 0, 3]  # type: ignore[union-attr]
    api.run(0)
    assert "kept_missed" not in api.counters
    assert [kept.get(at).unconfirmed for at in (0, 1, FOUND)] == [0, 3, 3]  # type: ignore[union-attr]
    assert "offers_to_all" in api.counters
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=3 * number), api.count)
    offers.found_others(-inf)
    api.run(0)
    assert api.counters["kept_missed"] == 3


def test_one_site_that_asks_leaves_room_for_others() -> None:
    """It asks again and again, and answers no offer."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=100), api.count)
    for number in range(10):
        kept.add(number, "t", payload_of(number), None, subscribed=True)
    for _ in range(50):
        offers.asked(Peer("hostile", "hostile:1"), Missed([("#", 5_000)]), 0.0)
    assert len(graph.told) == 5
    assert api.counters["offers_full"] == 45
    offers.asked(PEER, Missed([("#", 5_000)]), 0.0)
    assert len(graph.told) == 6


def test_what_no_node_asks_for_or_offers_at_once_is_refused() -> None:
    api, graph, missing, _ = receiver()
    offers = Offers(api, graph, kept_of(api), SgTbps.Config(), api.count)
    with pytest.raises(IldmError, match="200000 messages offered at once, more than 1000"):
        missing.offered(PEER, Offer(0, [("t", [(number, 0) for number in range(200_000)])]))
    with pytest.raises(IldmError, match="100000 messages requested at once, more than 1000"):
        offers.wanted(PEER, Want(0, range(100_000)))
    with pytest.raises(IldmError, match="a question for 5000 filters, more than 1000"):
        offers.asked(PEER, Missed([("t", 0)] * 5_000), 0.0)
    assert not graph.told


def test_messages_that_are_given_up_are_named() -> None:
    """By topic, a few of them; all are counted."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    offers = Offers(api, graph, kept, SgTbps.Config(offered_messages=0), api.count)
    for number in range(40):
        topic = "often" if number < 20 else f"t/{number}"
        kept.add(number, topic, payload_of(number, topic), None, subscribed=True)
        offers.unconfirmed(segment_of_filter("#"), number)
    offers.unconfirmed(segment_of_filter("gone/#"), 99)
    assert api.counters["kept_missed"] == 41
    api.run(2)
    named = [fields for event, fields in api.logged if event == "messages some site may have missed"]
    assert named[0] == {"topic": "often", "messages": 20}
    assert len(named) == 10
    assert ("messages of other topics some site may have missed", {"messages": 12}) in api.logged


def test_late_messages_come_in_pieces_and_what_is_gone_is_told() -> None:
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    offers = Offers(api, graph, kept, SgTbps.Config(), api.count)
    for number in range(1, 31):
        kept.add(number, "t", payload_of(number, size=20_000), None, subscribed=True)
    offers.wanted(PEER, Want(0, [99, *range(1, 31)]))
    assert all(isinstance(late, Late) for late in graph.told)
    assert [late.last for late in graph.told] == [False] * 13 + [True]
    assert graph.told[-1].gone == [99]
    assert sum(len(late.messages) for late in graph.told) == 13  # the rest is to be wanted again


def receiver(**options: Any) -> tuple[Any, Any, Missing, list[int]]:
    api: Any = FakeApi()
    graph: Any = Wire()
    config = SgTbps.Config(**options)
    segments = Segments(graph, api, config, api.count)
    seen = Receipts(api.now, 300.0, 1 << 20, api.count)
    presence = Presence(api, config, api.count)
    got: list[int] = []

    def take(origin: str, message: Message) -> None:
        seen.add(origin, message.number)
        got.append(message.number)

    missing = Missing(
        api,
        graph,
        segments,
        seen,
        presence,
        Forgotten(api, graph, config.overlay.patience, api.count),
        config,
        lambda: False,
        lambda: False,
        take,
        api.count,
    )
    missing.subscribed("t")
    segments.subscribe(segment_of_filter("t"), "t")
    api.run(1)
    return api, graph, missing, got


def test_what_is_lacking_is_wanted_until_it_comes() -> None:
    api, graph, missing, got = receiver()
    missing.offered(PEER, Offer(7, [("t", [(2, 10), (1, 20), (3, 5_000)]), ("v", [(4, 0)])]))
    assert graph.told == [Want(7, []), Want(0, [1, 2])]
    api.run(3.5)
    assert graph.told[2:] == [Want(0, [1, 2])]
    missing.arrived(PEER, Late(True, (), [(20, payload_of(1))]))
    assert graph.told[3:] == [Want(0, [2])]
    missing.arrived(PEER, Late(True, (), [(20, payload_of(2)), (20, payload_of(5))]))
    assert got == [1, 2]
    api.run(100)
    assert len(graph.told) == 4
    assert not api.logged


def test_what_never_comes_is_named() -> None:
    api, _, missing, got = receiver()
    missing.offered(PEER, Offer(0, [("t", [(1, 10), (2, 20)])]))
    missing.arrived(PEER, Late(True, [1], ()))
    api.run(200)
    assert got == []
    assert api.counters["missed"] == 2
    assert api.logged == [("messages missed", {"topic": "t", "messages": 1})] * 2


def test_what_is_lacking_is_bounded() -> None:
    api, graph, missing, _ = receiver(offered_messages=2)
    missing.offered(PEER, Offer(0, [("t", [(1, 10), (2, 20), (3, 10)])]))
    assert graph.told == [Want(0, [1, 2])]
    assert api.counters["missed"] == 1


def test_one_node_that_offers_leaves_room_for_others() -> None:
    api, graph, missing, _ = receiver(offered_messages=100)
    hostile = Peer("hostile", "hostile:1")
    for page in range(10):
        missing.offered(hostile, Offer(0, [("t", [(100 * page + number, 0) for number in range(100)])]))
    assert 0 < api.counters["missed"] < 1_000
    graph.told.clear()
    missing.offered(PEER, Offer(0, [("t", [(number, 0) for number in range(20)])]))
    assert graph.told == [Want(0, list(range(20)))]


def test_an_offer_without_room_is_made_again() -> None:
    api, graph, missing, got = receiver(offered_messages=4)
    offer = Offer(7, [("t", [(number, 0) for number in range(4)])])
    missing.offered(PEER, offer)
    assert graph.told == [Want(0, [0, 1, 2])]
    assert api.counters["offers_refused"] == 1
    assert api.logged == [("no room to fetch what a site offers", {"site": "far", "messages": 1})]
    missing.arrived(PEER, Late(True, (), [(20, payload_of(number)) for number in range(3)]))
    missing.offered(PEER, offer)
    assert graph.told[1:] == [Want(7, []), Want(0, [3])]
    missing.arrived(PEER, Late(True, (), [(20, payload_of(3))]))
    assert got == [0, 1, 2, 3]
    assert not api.counters["missed"]


@pytest.mark.parametrize(("turn", "waits"), [(20.0, 0.0), (5.0, 6.0)])
def test_what_is_offered_waits_only_for_a_question_that_is_soon_asked(turn: float, waits: float) -> None:
    """After graphs have merged its turn to ask may come when a node is not there any more."""
    api, graph, missing, _ = receiver()
    api.random.random = lambda: (turn - SETTLE) / 60
    missing.merged(alone=False)
    missing.offered(PEER, Offer(0, [("t", [(1, 10)])]))
    assert graph.told == ([] if waits else [Want(0, [1])])
    api.run(waits)
    assert graph.told == [Want(0, [1])]
    missing.arrived(PEER, Late(True, (), [(20, payload_of(1))]))
    api.run(turn)
    assert api.counters["questions_missed"] == 1


def test_what_is_offered_does_not_wait_for_ever_where_filters_come_all_the_time() -> None:
    api, graph, missing, _ = receiver()
    missing.joined(["t"], merging=False)
    missing.offered(PEER, Offer(0, [("t", [(1, 10)])]))
    held = 0.0
    while not graph.told:
        assert held <= HOLD
        api.run(0.5)
        held += 0.5
        missing.joined(["t"], merging=False)
    assert held > SETTLE
    assert graph.told == [Want(0, [1])]


def test_a_key_that_joins_does_not_wait_for_the_turn_of_its_node_after_a_merge() -> None:
    api, _, missing, _ = receiver()
    api.random.random = lambda: 0.5
    missing.merged(alone=False)
    api.run(SETTLE)
    missing.joined(["t"], merging=False)
    assert api.counters["questions_missed"] == 0
    api.run(SETTLE)
    assert api.counters["questions_missed"] == 1
    api.run(100)
    assert api.counters["questions_missed"] == 1


def test_an_age_that_was_told_long_ago_does_not_bring_what_is_too_old() -> None:
    api, graph, missing, got = receiver()
    missing.offered(PEER, Offer(0, [("t", [(1, 900)])]))
    missing.arrived(PEER, Late(True, (), [(1_500, payload_of(1))]))
    assert got == []
    api.run(50)
    assert graph.told == [Want(0, [1])]


def test_a_process_that_has_stood_still_asks() -> None:
    world = world_of(4)
    world["n3"].subscribe("a/b", 1)
    world.run(20)
    algorithm = world["n3"].algorithm
    assert isinstance(algorithm, SgTbps)
    asked = world["n3"].counters["questions_missed"]
    algorithm.missing._last_beat -= 20
    world.run(10)
    assert world["n3"].counters["stood_still"] == 1
    assert world["n3"].counters["questions_missed"] == asked + 1


def test_the_frame_is_that_of_the_publisher() -> None:
    """Late messages keep what a client has given them."""
    api: Any = FakeApi()
    graph: Any = Wire()
    kept = kept_of(api)
    kept.add(1, "t", payload_of(1), 100, subscribed=True)
    api.run(9.5)
    entry = kept.get(1)
    assert entry is not None
    aged = entry.aged(api.now())
    assert aged is not None
    carried = decode_payload(aged)
    assert isinstance(carried, Message)
    message = decode(carried.frame, Version.V5)
    assert isinstance(message, Publish)
    assert message.properties == {Property.MESSAGE_EXPIRY_INTERVAL: 91}
    assert entry.aged(200.0) is None
    assert graph.told == []
