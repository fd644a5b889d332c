"""Rules on links of whole nodes: what crosses, under which name, and what is asked for."""

from __future__ import annotations

import pytest

from ildm.config import Address, TopicRule
from ildm.core.link import scope
from ildm.core.link.control import SCOPE, send_control
from ildm.core.transfer.rules import LinkRules
from ildm.mqtt import Connect, MalformedPacket, Properties, Property, Publish, Version, Will
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.mixed import chunk
from tests.support.ruled_links import HQ, injected, pair, publish
from tests.support.site import Site


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("spooled", [False, True])
def test_names_are_exchanged_in_both_directions(
    world: World, algorithm: str, qos: int, spooled: bool
) -> None:
    a = Site(world, "a", algorithm, link={"rules": [HQ]}, spool=MemorySpool() if spooled else None)
    b = Site(world, "b", algorithm, spool=MemorySpool() if spooled else None)
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    here, there = a.subscriber("plant/#", qos=2), b.subscriber("#", qos=2)
    publish(world, a, *["plant/t"] * 5, "plant/u", "other/t", qos=qos)
    assert there.messages == [("hq/plant/t", b"x")] * 5 + [("hq/plant/u", b"x")]
    publish(world, b, *["hq/plant/v"] * 3, "plant/t", "hq/other", qos=qos)
    assert [topic for topic, _, _ in injected(a)] == ["plant/v"] * 3
    assert here.messages.count(("plant/v", b"x")) == 3
    assert {got for _, got, _ in injected(b)} == {qos}
    assert a.node.links.links["b"].idle
    assert b.node.links.links["a"].idle


def test_what_is_denied_is_neither_asked_for_nor_announced(world: World) -> None:
    a, b = pair(world, "sf", [{"deny": ["secret/#"]}, {"allow": ["+/temp", "secret/#"], "direction": "in"}])
    a.subscriber("secret/x", "s1")
    a.subscriber("#", "s2", 1)
    assert dict(b.node.links.links["a"].interest) == {"+/temp": 1}
    b.subscriber("#", "s3")
    link = a.node.links.links["b"]
    assert dict(link.received_interest.filters) == {"#": 0}
    assert dict(link.interest) == {}
    publish(world, a, "a/temp", "secret/x")
    publish(world, b, "a/temp", "secret/temp", "other")
    assert injected(b) == []
    assert [topic for topic, _, _ in injected(a)] == ["a/temp"]
    # what cannot be cut out of a filter is not sent either, as the neighbour knows the rules
    assert a.node.counters["link_denied"] == 0


def test_each_side_enforces_its_own_rules(world: World) -> None:
    a, b = pair(world, "pf", [{"allow": ["a/#"]}])
    b.node.links.links["a"].scope = None  # as if it were of another mind
    b.node.router.routes.invalidate()
    publish(world, b, "a/x", "b/x", "b/x")
    publish(world, b, "b/y", "a/y", "b/y", qos=1)
    publish(world, b, "b/z", "b/y", qos=2)
    publish(world, b, "b/z", retain=True)
    assert [topic for topic, _, _ in injected(a)] == ["a/x", "a/y"]
    assert a.node.counters["link_denied"] == 7
    assert b.node.links.links["a"].idle


def test_with_flooding_nothing_is_sent_that_would_be_denied(world: World) -> None:
    a, b = pair(world, "pf", [{"allow": ["a/#"], "local": "", "remote": ""}])
    publish(world, b, "a/x", "b/x", "b/y")
    publish(world, b, "b/kept", retain=True)
    assert b.node.counters["transferred_out"] == 1
    assert a.node.counters["link_denied"] == 0


def test_interest_crosses_with_the_names_of_the_neighbour(world: World) -> None:
    a, b = pair(world, "sf", [HQ | {"qos": 1}])
    a.subscriber("plant/+/temp", "s1", 2)
    a.subscriber("other/#", "s2", 2)
    a.subscriber("+/x/temp", "s3", 0)
    assert dict(b.node.links.links["a"].interest) == {"hq/plant/+/temp": 1, "hq/plant/x/temp": 0}
    assert set(a.node.links.links["b"].announced) == {"plant/+/temp", "other/#", "+/x/temp"}
    b.subscriber("hq/+/+/y", "s4", 2)
    assert dict(a.node.links.links["b"].interest) == {"plant/+/y": 1}


def test_interest_is_withdrawn_with_the_last_filter_it_was_made_of(world: World) -> None:
    a, b = pair(world, "sf", [{"allow": ["t"], "qos": 2}])
    wide, exact = a.subscriber("+", "s1", 1), a.subscriber("#", "s2", 0)
    assert dict(b.node.links.links["a"].interest) == {"t": 1}
    wide.transport.abort()
    world.run(1)
    assert dict(b.node.links.links["a"].interest) == {"t": 0}
    exact.transport.abort()
    world.run(1)
    assert dict(b.node.links.links["a"].interest) == {}


@pytest.mark.parametrize(("cap", "expected"), [(0, [0, 0, 0]), (1, [0, 1, 1]), (2, [0, 1, 2])])
@pytest.mark.parametrize("spooled", [False, True])
def test_the_qos_is_capped_in_both_directions(
    world: World, cap: int, expected: list[int], spooled: bool
) -> None:
    sites = []
    for name, link in (("a", {"rules": [HQ | {"qos": cap}]}), ("b", {})):
        sites.append(Site(world, name, "pf", link=link, spool=MemorySpool() if spooled else None))
    a, b = sites
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    for retain in (False, True):
        for qos in (0, 1, 2):
            publish(world, a, f"plant/{qos}", qos=qos, retain=retain)
            publish(world, b, f"hq/plant/from-{qos}", qos=qos, retain=retain)
    for site in sites:
        assert [qos for _, qos, retained in injected(site) if not retained] == expected
        assert [qos for _, qos, retained in injected(site) if retained] == expected
        assert site.node.links.links["b" if site is a else "a"].idle


def test_retained_messages_are_the_same_by_their_names(world: World) -> None:
    a = Site(world, "a", "sf", link={"rules": [HQ], "sync_interval": 1.0})
    b = Site(world, "b", "sf", link={"sync_interval": 1.0})
    publish(world, a, "plant/1", "plant/2", "private", retain=True)
    publish(world, b, "hq/plant/3", "hq/other", "plant/1", retain=True)
    a.node.links.add(Address("b", 2), False)
    world.run(5)
    assert sorted(a.node.retained.values) == ["plant/1", "plant/2", "plant/3", "private"]
    assert sorted(b.node.retained.values) == [
        "hq/other", "hq/plant/1", "hq/plant/2", "hq/plant/3", "plant/1"
    ]  # fmt: skip
    views = [
        site.node.links.cooperation.retained_sync.view(link)
        for site in (a, b)
        for link in site.node.links.links.values()
    ]
    assert views[0].digest == views[1].digest
    repeated = [site.node.counters["retained_repeated"] for site in (a, b)]
    world.run(30)
    assert [site.node.counters["retained_repeated"] for site in (a, b)] == repeated
    client = b.client("d")
    client.send(Publish(topic="hq/plant/1", payload=b"", retain=True))
    world.run(2)
    assert "plant/1" not in a.node.retained.values
    assert views[0].digest == views[1].digest


def test_a_will_crosses_under_its_name(world: World) -> None:
    a, b = pair(world, "pf", [HQ])
    for topic in ("plant/gone", "private/gone"):
        will = Will(topic=topic, payload=b"w", qos=1)
        client = a.client("c", Connect(client_id=topic[:4], version=Version.V5, will=will))
        client.transport.abort()
    world.run(2)
    assert injected(b) == [("hq/plant/gone", 1, False)]


def test_a_response_topic_leads_back(world: World) -> None:
    a, b = pair(world, "pf", [HQ])
    client = a.client("c", version=Version.V5)
    for answer in ("plant/answers", "private"):
        client.send(Publish(topic="plant/ask", payload=b"?", properties={Property.RESPONSE_TOPIC: answer}))
    world.run(1)
    asked = [p.properties[Property.RESPONSE_TOPIC] for _, p in b.broker.published]
    assert asked == ["hq/plant/answers", "private"]
    other = b.client("d", version=Version.V5)
    other.send(Publish(topic="hq/plant/x", payload=b"?", properties={Property.RESPONSE_TOPIC: "hq/plant/y"}))
    world.run(1)
    assert [p.properties for c, p in a.broker.published if c.startswith("ildm")] == [
        {Property.RESPONSE_TOPIC: "plant/y"}
    ]


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_rules_rename_stays_together(world: World, algorithm: str, qos: int) -> None:
    """A chunk of topics in turn is a few records, with response topics as well."""
    a = Site(world, "a", algorithm, link={"rules": [HQ]}, spool=MemorySpool())
    b = Site(world, "b", algorithm, spool=MemorySpool())
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    a.subscriber("plant/#", qos=2)
    world.run(1)
    publisher = b.client("p", version=Version.V5)
    properties: Properties = {Property.RESPONSE_TOPIC: "hq/plant/answers"}
    for first in (0, 20):
        before = len(spool(a)._identities)
        publisher.transport.write(chunk(first, 20, ("hq/plant",), Version.V5, qos, properties)[0])
        world.run(1)
    assert 0 < len(spool(a)._identities) - before <= 3
    came = [p for name, p in a.broker.published if name.startswith("ildm-")]
    assert [int(p.payload[:4]) for p in came] == list(range(40))
    assert {p.topic for p in came} == {f"plant/{number}" for number in range(7)}
    answers = [p.properties.get(Property.RESPONSE_TOPIC) for p in came]
    assert answers == [None, "plant/answers"] * 20
    assert {p.qos for p in came} == {qos}


def test_names_of_answers_fit_what_a_neighbour_lets_be_under_way(world: World) -> None:
    """A response topic grows on the link as the topic does, and the neighbour counts what comes."""
    prefix = "x" * 40 + "/"
    a = Site(world, "a", "pf", link={"rules": [{"allow": ["#"], "remote": prefix}], "inflight": 50})
    b = Site(world, "b", "pf", link={"inflight_bytes": 6000, "inflight": 50, "overflow": "block"})
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    b.broker_down()
    world.run(1)
    sessions = list(b.node.links.links["a"].open_sessions)
    client = a.client("c", version=Version.V5)
    properties: Properties = {Property.RESPONSE_TOPIC: "answers"}
    for number in range(1, 101):
        client.send(Publish(topic="asks", payload=bytes(60), qos=1, packet_id=number, properties=properties))
    world.run(1)
    assert 0 < a.node.links.links["b"].senders[0].inflight < 50
    b.broker_up()
    world.run(30)
    answers = [p.properties[Property.RESPONSE_TOPIC] for _, p in b.broker.published]
    assert answers == [prefix + "answers"] * 100
    assert b.node.links.links["a"].open_sessions == sessions


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_with_rules_for_one_neighbour_another_gets_nothing(world: World, algorithm: str) -> None:
    """The rules are for ``site-c``, and the neighbour calls itself ``c``."""
    a = Site(world, "a", algorithm, link={"neighbor_rules": [{"id": "site-c", "rules": [HQ]}]})
    c = Site(world, "c", algorithm)
    a.node.links.add(Address("c", 2), False)
    publish(world, a, "plant/before", retain=True)
    world.run(2)
    assert a.links() == {"c": "active"}
    at = {site: site.subscriber("#") for site in (a, c)}
    publish(world, a, "plant/t", "u", retain=True)
    publish(world, c, "v", retain=True)
    world.run(90)
    assert [topic for topic, _ in at[a].messages] == ["plant/before", "plant/t", "u"]
    assert [topic for topic, _ in at[c].messages] == ["v"]
    assert injected(a) == injected(c) == []


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_rules_of_the_site_between_hold_for_what_crosses_it(world: World, algorithm: str) -> None:
    of_c = [{"deny": ["secret/#"]}, {"allow": ["#"], "remote": "from-b/", "direction": "out"}]
    a = Site(world, "a", algorithm)
    b = Site(world, "b", algorithm, link={"rules": [], "neighbor_rules": [{"id": "c", "rules": of_c}]})
    c = Site(world, "c", algorithm)
    for site in (a, c):
        site.node.links.add(Address("b", 2), False)
    world.run(2)
    at = {site: site.subscriber("#") for site in (a, b, c)}
    publish(world, a, "t", "secret/t")
    assert at[b].messages == [("t", b"x"), ("secret/t", b"x")]
    assert at[c].messages == [("from-b/t", b"x")]
    publish(world, c, "u")
    assert ("u", b"x") not in at[a].messages + at[b].messages


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_no_message_comes_back_where_links_are_redundant(world: World, algorithm: str) -> None:
    remap = {"allow": ["#"], "local": "", "remote": "next/", "direction": "out"}
    inwards = {"allow": ["#"], "direction": "in"}
    sites = [Site(world, name, algorithm, link={"rules": [remap, inwards]}) for name in "abc"]
    for site, other in zip(sites, "bca", strict=True):
        site.node.links.add(Address(other, 2), False)
    world.run(3)
    subscribers = [site.subscriber("#") for site in sites]
    publish(world, sites[0], *(["t"] * 20))
    world.run(20)
    assert [len(subscriber.messages) for subscriber in subscribers] == [20, 20, 20]
    assert all(topic.endswith("t") for subscriber in subscribers for topic, _ in subscriber.messages)


def test_what_the_spool_has_kept_is_denied_by_later_rules(world: World) -> None:
    a, b = Site(world, "a", "pf", spool=MemorySpool()), Site(world, "b", "pf")
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    b.kill()
    world.run(0.1)
    publish(world, a, "plant/1", "private", qos=1)
    publish(world, a, "plant/2", "private", qos=2)
    a.settings["link"] = {"rules": [HQ]}
    reborn(a, "b")
    b.start()
    world.run(60)
    assert sorted(topic for topic, _, _ in injected(b)) == ["hq/plant/1", "hq/plant/2"]
    assert a.node.counters["link_dropped_rules"] == 2
    assert a.node.links.links["b"].idle


@pytest.mark.parametrize(("local", "remote"), [("", "l" * 900 + "/"), ("l" * 900 + "/", "")])
def test_credit_is_kept_although_names_grow(world: World, local: str, remote: str) -> None:
    limits = {"inflight": 50, "inflight_bytes": 1024, "overflow": "block"}
    rule = {"allow": ["#"], "local": local, "remote": remote}
    a = Site(world, "a", "pf", link={"rules": [rule], **limits})
    b = Site(world, "b", "pf", link=limits)
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    session = a.node.links.links["b"].control
    for near, far, sent, got in ((a, b, local + "t", remote + "t"), (b, a, remote + "u", local + "u")):
        far.broker_down()  # none of it is acknowledged
        publish(world, near, *[sent] * 40, qos=1)
        far.broker_up()
        world.run(20)
        assert [topic for topic, _, _ in injected(far)] == [got] * 40
    assert a.node.links.links["b"].control is session is not None


@pytest.mark.parametrize("retain", [False, True])
def test_what_comes_again_is_not_taken_again_although_it_is_of_qos_0_here(world: World, retain: bool) -> None:
    rules = [{"allow": ["#"], "qos": 0, "direction": "in"}]
    a = Site(world, "a", "pf", link={"rules": rules}, spool=MemorySpool())
    b = Site(world, "b", "pf", spool=MemorySpool())
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    client = b.client("p")
    for number in range(1, 11):
        client.send(Publish(topic=f"t/{number % 5}", payload=b"x", qos=2, packet_id=number, retain=retain))
    while len(injected(a)) < 10:
        world.run(0.0005)
    reborn(b)
    world.run(60)
    assert a.node.counters["link_repeated"] > 0
    assert [qos for _, qos, _ in injected(a)] == [0] * 10


def test_interest_that_was_heard_is_known_after_a_restart_by_the_rules_of_then(world: World) -> None:
    a, b = pair(world, "sf", [HQ])
    b.subscriber("hq/plant/t", "s1")
    b.subscriber("t", "s2")
    a.store = a.store.copy()
    a.kill()
    a.settings["link"] = {"rules": [{"allow": ["#"], "direction": "out"}]}
    a.start(("b",))
    assert set(a.node.links.links["b"].interest) == {"hq/plant/t", "t"}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"1",
        b"[1,2]",
        b"[[],[[]]]",
        b"[[],[],[]]",
        b'[[[1,"",""]],[]]',
        b'[[[true,"","a/#/b"]],[]]',
        b'[[],[[true,"",3]]]',
        b'[[[true,"","a"]],["x"]]',
        b"[[%s],[]]" % b",".join([b'[true,"","a"]'] * 300),
        b"[" * 100_000,
        b'["%s",[]]' % (b"x" * (600 << 10)),
        b"\xff",
    ],
)
def test_a_scope_that_no_node_says_ends_the_session(world: World, payload: bytes) -> None:
    with pytest.raises(MalformedPacket):
        scope.received(payload)
    a, b = pair(world, "pf", [HQ])
    send_control(b.node.links.links["a"], SCOPE, payload)
    world.run(0.1)
    assert a.node.links.links["b"].scope is None


def test_a_scope_says_what_the_rules_are() -> None:
    documents = [{"deny": ["x"]}, HQ, {"allow": ["\u20ac\n/+"], "direction": "in"}]
    said = scope.received(scope.advertised(LinkRules([TopicRule.model_validate(each) for each in documents])))
    names = ["x", "hq/plant/x", "plant/x", "\u20ac\n/1", "y"]
    assert [said.takes(name) for name in names] == [False, True, False, True, False]
    assert [said.crosses(name) for name in names] == [False, True, False, True, False]


def test_what_rules_have_kept_apart_comes_when_they_are_gone(world: World) -> None:
    a = Site(world, "a", "sf", link={"rules": [HQ], "sync_interval": 1.0})
    b = Site(world, "b", "sf", link={"sync_interval": 1.0})
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    publish(world, b, "other", "hq/plant/t", retain=True)
    world.run(5)
    assert list(a.node.retained.values) == ["plant/t"]
    a.store = a.store.copy()
    a.kill()
    a.settings["link"] = {"sync_interval": 1.0}
    a.start(("b",))
    world.run(60)
    assert set(a.node.retained.values) >= {"other", "hq/plant/t"}
