"""What becomes of real messages, told to the node that asks."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.link.control import SEEN, WATCH, WATCHING
from ildm.core.link.watching import AT_ONCE, GRACE, MESSAGES, Asked
from ildm.core.transfer.watch import Event
from ildm.mqtt import IldmError, MalformedPacket, Publish
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.ruled_links import HQ, publish
from tests.support.site import Site, row


class Trace:
    """One that a site has begun."""

    def __init__(self, site: Site, *filters: str, **asked: Any) -> None:
        self.events: list[Event] = []
        self.left_out = 0
        self.over = False
        self.site = site
        values = {"seconds": 10.0, "messages": 100, "one_in": 1, **asked}
        self.name = site.node.links.cooperation.watching.begin(Asked(list(filters), **values), self._told)
        site.world.run(0.5)

    def _told(self, events: list[Event], left_out: int, over: bool) -> None:
        assert not self.over
        self.events += events
        self.left_out += left_out
        self.over = over

    def lines(self) -> list[tuple[str, str, str, str]]:
        self.site.world.run(1)
        return [(each.node, each.what, each.peer, each.topic) for each in sorted(self.events)]

    def end(self) -> None:
        self.site.world.run(10 + GRACE)
        assert self.over


def unwatched(*sites: Site) -> bool:
    """Whether nothing looks at messages any more."""
    senders = [sender for site in sites for sender in site.node.injector.senders]
    senders += [
        sender for site in sites for link in site.node.links.links.values() for sender in link.senders
    ]
    return all(sender.wire.watch is None for sender in senders) and all(
        s.node.router.recorder is None for s in sites
    )


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("spooled", [False, True])
def test_each_step_of_each_message_is_told_and_nothing_of_others(
    world: World, algorithm: str, qos: int, spooled: bool
) -> None:
    a, b, c = sites = [
        Site(world, name, algorithm, spool=MemorySpool() if spooled else None) for name in "abc"
    ]
    a.node.links.add(Address("b", 2), False)
    b.node.links.add(Address("c", 2), False)
    world.run(3)
    c.subscriber("#", qos=2)
    trace = Trace(b, "t/+")
    publish(world, a, "t/1", "other", "t/1/2", qos=qos)
    acks = [] if qos == 0 else [("a", "acknowledged", "b"), ("b", "acknowledged", ""),
                                ("b", "acknowledged", "c"), ("c", "acknowledged", "")]  # fmt: skip
    assert sorted((node, what, peer) for node, what, peer, _ in trace.lines()) == sorted(
        [
            ("a", "received", ""),
            ("a", "sent", "b"),
            ("b", "received", "a"),
            ("b", "sent", "c"),
            ("b", "sent", ""),
            ("c", "received", "b"),
            ("c", "sent", ""),
            *acks,
        ]
    )
    assert {each.topic for each in trace.events} == {"t/1"}
    assert {(each.size, each.qos) for each in trace.events} == {(1, qos)}
    assert len({each.key for each in trace.events}) == 1
    first = {}
    for each in sorted(trace.events):
        first.setdefault(each.node, each.at)
    assert first["a"] <= first["b"] <= first["c"]
    trace.end()
    assert unwatched(*sites)
    before = len(trace.events)
    publish(world, a, "t/1", qos=qos)
    assert len(trace.events) == before


def test_clocks_that_differ_are_put_on_that_of_the_asking_node(world: World) -> None:
    a, b, c = row(world, "abc", "pf")
    for site, ahead in ((b, 1000.0), (c, -500.0)):
        wall = site.node.driver.wall
        site.node.driver.wall = lambda wall=wall, ahead=ahead: wall() + ahead  # type: ignore[method-assign]
    trace = Trace(a, "#")
    publish(world, c, "t")
    trace.lines()
    times = [each.at for each in trace.events]
    assert max(times) - min(times) < 1
    (came,) = [each for each in trace.events if (each.node, each.what, each.peer) == ("c", "received", "")]
    assert came.at == min(times)


def test_it_ends_by_itself_though_who_asked_has_died(world: World) -> None:
    a, b, c = row(world, "abc", "pf")
    Trace(a, "#")
    a.kill()
    publish(world, c, "t")
    assert b.node.router.recorder is not None
    world.run(12)
    assert unwatched(b, c)
    assert b.node.counters["trace_events_dropped"] > 0


def test_names_are_those_of_each_site_and_what_may_not_cross_is_not_told(world: World) -> None:
    a = Site(world, "a", "pf", link={"rules": [HQ]})
    b = Site(world, "b", "pf")
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    trace = Trace(b, "#")
    publish(world, a, "plant/t", "private")
    assert {(node, topic) for node, _, _, topic in trace.lines()} == {("a", "plant/t"), ("b", "hq/plant/t")}
    trace.end()
    other = Trace(a, "plant/+")
    publish(world, b, "hq/plant/u", "plant/v")
    assert {(node, topic) for node, _, _, topic in other.lines()} == {("b", "hq/plant/u"), ("a", "plant/u")}


def test_so_many_messages_and_one_in_so_many(world: World) -> None:
    a, b = row(world, "ab", "pf")
    trace = Trace(a, "#", messages=3)
    client = b.client("many", properties={})
    for number in range(40):
        client.send(Publish(topic="t", payload=b"%d" % number))
    world.run(2)
    assert len({each.key for each in trace.events if each.node == "b"}) == 3
    assert trace.left_out >= 37
    trace.end()
    sampled = Trace(a, "#", one_in=4)
    for number in range(400):
        client.send(Publish(topic="t", payload=b"%d" % number))
    world.run(2)
    keys = {node: {each.key for each in sampled.events if each.node == node} for node in "ab"}
    assert keys["a"] == keys["b"]  # the same ones everywhere
    assert 50 < len(keys["a"]) < 100  # of which there may be 100


def test_messages_of_one_payload_count_one_by_one(world: World) -> None:
    a, b = row(world, "ab", "pf")
    trace = Trace(a, "#", messages=3)
    client = b.client("same", properties={})
    for _ in range(40):
        client.send(Publish(topic="t", payload=b"the same"))
    world.run(2)
    for node in "ab":
        assert len([each for each in trace.events if (each.node, each.what) == (node, "received")]) == 3
    assert trace.left_out >= 37
    trace.end()


def test_so_many_traces_at_a_time(world: World) -> None:
    a, b = row(world, "ab", "pf")
    traces = [Trace(a, "#") for _ in range(AT_ONCE)]
    with pytest.raises(IldmError, match="under way"):
        Trace(a, "#")
    watching, link = b.node.links.cooperation.watching, b.node.links.links["a"]
    watching.came(link, b'["one more","%s",1.0,1,1,1,["#"]]' % (b"0" * 32))
    assert b.node.counters["traces_refused"] == 1
    assert b.node.counters["traces_begun"] == AT_ONCE
    a.node.links.cooperation.watching.end(traces[0].name)
    world.run(15)
    Trace(a, "#").end()
    assert unwatched(a, b)


def test_of_a_ring_each_site_takes_part_once(world: World) -> None:
    a, b, c = row(world, "abc", "pf")
    c.node.links.add(Address("a", 2), False)
    world.run(3)
    trace = Trace(a, "#")
    publish(world, b, "t")
    lines = trace.lines()
    assert sorted({node for node, *_ in lines}) == ["a", "b", "c"]
    assert len(lines) == len(set(lines))
    assert {site.node.counters["traces_begun"] for site in (a, b, c)} == {1}


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (WATCH, b"{"),
        (WATCH, b"[]"),
        (WATCH, b'["n","%s",1,1,1,1,["a/#/b"]]' % (b"0" * 32)),
        (WATCH, b'["n","%s",1,1,1,1,[1]]' % (b"0" * 32)),
        (WATCH, b'["n","%s",1,1,1,1,["#"]]' % (b"x" * 32)),
        (WATCH, b'["n","%s",1e9,1,1,1,["#"]]' % (b"0" * 32)),
        (WATCH, b'["n","%s",1,%d,1,1,["#"]]' % (b"0" * 32, MESSAGES + 1)),
        (WATCH, b"[" * 100_000),
        (WATCHING, b'["n",NaN]'),
        (WATCHING, b'["n","x"]'),
        (SEEN, b'["n",-1]'),
        (SEEN, b'["n",0,[1]]'),
        (SEEN, b'["n",0,[1.0,"a","eaten","","00","t",1,0]]'),
        (SEEN, b'["n",0,[NaN,"a","sent","","00","t",1,0]]'),
    ],
)
def test_what_no_node_says_is_refused(world: World, topic: str, payload: bytes) -> None:
    a, _ = row(world, "ab", "pf")
    link = a.node.links.links["b"]
    with pytest.raises(MalformedPacket):
        a.node.links.cooperation.control_message(link, topic, payload, 0)


def test_who_was_not_asked_tells_nothing(world: World) -> None:
    a, _ = row(world, "ab", "pf")
    link = a.node.links.links["b"]
    trace = Trace(a, "#")
    for payload in (b'["n",0]', b'["%s",0]' % trace.name.encode()):
        a.node.links.cooperation.control_message(link, SEEN, payload, 0)
    a.node.links.cooperation.control_message(link, WATCHING, b'["n",1.0]', 0)
    assert trace.events == []
