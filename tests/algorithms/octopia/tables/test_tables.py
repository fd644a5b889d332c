"""Subscriptions and advertisements: a worked case, and tables against what they have to be."""

from __future__ import annotations

from random import Random

import pytest

from ildm_algorithms.octopia.content.relations import overlaps
from ildm_algorithms.octopia.tables.tables import CivSet, CivUnset, Clt, Prt
from tests.algorithms.octopia.brokers import Brokers, content
from tests.algorithms.octopia.grid.grids import grid_of
from tests.support.examples import MORE

TOPIC = "stock/IBM"


def test_three_clusters_by_three_regions() -> None:
    brokers = Brokers(grid_of("a-b b-c", 3))
    sent = brokers.sent
    uid = brokers.advertise("a0", content(TOPIC))
    assert sent == {"ADV": 2}
    assert sum(map(len, brokers.clt.values())) == 3
    assert brokers.bits("a0", uid) == "000"
    brokers.subscribe("b1", content("stock/+"))
    assert sent == {"ADV": 2, "SUB": 2, "SET": 1}
    assert brokers.bits("a0", uid) == "010"
    brokers.subscribe("a1", content(TOPIC))
    brokers.subscribe("c0", content(TOPIC))
    assert sent == {"ADV": 2, "SUB": 6, "SET": 1}
    assert brokers.bits("a0", uid) == "010"
    assert str(brokers.publish("a0", TOPIC)) == "a0>b0, a0>a1, b0>c0, a1>b1"
    brokers.subscribe("c2", content("#"))
    assert sent == {"ADV": 2, "SUB": 8, "SET": 2}
    assert brokers.bits("a0", uid) == "110"
    assert len(brokers.publish("a0", TOPIC).hops) == 7
    brokers.unsubscribe("a1", content(TOPIC))
    assert sent["UNSET"] == 0
    brokers.unsubscribe("b1", content("stock/+"))
    assert sent["UNSET"] == 1
    assert brokers.bits("a0", uid) == "100"
    brokers.unadvertise("a0", uid)
    assert sent["UNADV"] == 2
    assert sum(map(len, brokers.clt.values())) == 0


def test_one_message_says_it_of_all_advertisements_of_a_node() -> None:
    brokers = Brokers(grid_of("a-b", 2))
    for text in ("price>10", "price>20", "price<5"):
        brokers.advertise("a0", content(TOPIC, text))
    brokers.subscribe("b1", content(TOPIC, "price>15"))
    assert brokers.sent["SET"] == 1
    assert [brokers.bits("a0", uid) for uid in (1, 2, 3)] == ["10", "10", "00"]


def test_until_a_cluster_has_answered_it_may_want_all() -> None:
    prt = Prt()
    clt = Clt(prt, [1, 2])
    clt.advertise(7, content(TOPIC))
    assert clt.bits(7) == {1: None, 2: None}
    assert clt.clusters_of(TOPIC, dict) == {1, 2}
    assert clt.answered(1, CivUnset((7,))) == []
    assert clt.clusters_of(TOPIC, dict) == {2}
    clt.answered(2, CivSet((7,)))
    clt.forget_cluster(1)
    assert clt.bits(7) == {1: None, 2: True}
    assert clt.clusters_of(TOPIC, dict) == {1, 2}
    assert clt.clusters_of("stock/other", dict) is None


def test_answers_about_what_is_not_advertised_are_named() -> None:
    clt = Clt(Prt(), [1])
    clt.advertise(1, content(TOPIC))
    assert clt.answered(1, CivSet((1, 2, 3))) == [2, 3]
    assert clt.unadvertise(1)
    assert not clt.unadvertise(1)
    assert clt.answered(1, CivUnset((1,))) == [1]


def test_homes_of_one_filter_are_counted_and_told_once() -> None:
    prt = Prt()
    wanted = content("t", "x>1")
    assert prt.change("b", 1, {wanted: 0}).added == [wanted]
    assert prt.change("c", 1, {wanted: 2}).added == []
    assert len(prt) == 2
    assert prt.match("t", lambda: {"x": 2.0}) == {"b": 0, "c": 2}
    assert prt.change("c", 2, {wanted: 1}).added == []
    assert prt.match("t", lambda: {"x": 2.0}) == {"b": 0, "c": 1}
    assert prt.drop("b").removed == []
    assert prt.change("c", 3, {content("u"): 0}, [wanted]) == ([content("u")], [wanted])
    assert prt.version("c") == 3
    assert prt.drop("c").removed == [content("u")]
    assert len(prt) == prt.version("c") == 0
    assert prt.drop("c") == ([], [])


class TestSummaries:
    """Precise bits: the filters themselves are told."""

    def test_what_no_told_filter_matches_does_not_cross(self) -> None:
        brokers = Brokers(grid_of("a-b", 3), summary=10)
        brokers.advertise("a0", content(TOPIC))
        brokers.subscribe("b1", content(TOPIC, "price>100"))
        assert str(brokers.publish("a0", TOPIC, {"price": 5.0})) == ""
        assert str(brokers.publish("a0", TOPIC, {"price": 500.0})) == "a0>a1, a1>b1"
        brokers.unsubscribe("b1", content(TOPIC, "price>100"))
        assert brokers.bits("a0", 1) == "000"

    def test_what_a_told_filter_covers_is_not_told(self) -> None:
        brokers = Brokers(grid_of("a-b", 2), summary=10)
        brokers.advertise("a0", content(TOPIC))
        wide, narrow, other = (content(TOPIC, text) for text in ("price>10", "price>20", "price<5"))
        brokers.subscribe("b1", narrow)
        brokers.subscribe("b1", wide)
        (row,) = brokers.clt["a1"].rows("a0").values()
        assert [*row.sent] == [wide]
        brokers.subscribe("a1", other)
        assert brokers.publish("a0", TOPIC, {"price": 7.0}).hops == []
        brokers.unsubscribe("b1", wide)
        assert {*row.sent} == {narrow, other}
        assert brokers.publish("a0", TOPIC, {"price": 15.0}).hops == []
        assert len(brokers.publish("a0", TOPIC, {"price": 25.0}).hops) == 2

    def test_more_than_a_summary_is_all_until_few_are_left(self) -> None:
        brokers = Brokers(grid_of("a-b", 2), summary=4)
        brokers.advertise("a0", content(TOPIC))
        wanted = [content(TOPIC, f"price={number}") for number in range(5)]
        for each in wanted[:4]:
            brokers.subscribe("b1", each)
        assert brokers.publish("a0", TOPIC, {"price": 9.0}).hops == []
        brokers.subscribe("b1", wanted[4])
        assert len(brokers.publish("a0", TOPIC, {"price": 9.0}).hops) == 1
        sent = brokers.sent["SET"]
        for each in wanted[:3]:
            brokers.unsubscribe("b1", each)
        assert brokers.sent["SET"] == sent + 1
        assert brokers.publish("a0", TOPIC, {"price": 0.0}).hops == []
        assert len(brokers.publish("a0", TOPIC, {"price": 3.0}).hops) == 2

    def test_filters_that_cover_each_other_are_told_once(self) -> None:
        brokers = Brokers(grid_of("a", 2), summary=4)
        same = [content(TOPIC, text) for text in ("price>3&price>5", "price>5")]
        for each in same:
            brokers.subscribe("a1", each)
        brokers.advertise("a0", content(TOPIC))
        (row,) = brokers.clt["a1"].rows("a0").values()
        assert row.count == 2
        assert len(row.sent) == 1
        for each in same:
            brokers.unsubscribe("a1", each)
        assert brokers.bits("a0", 1) == "00"


def drawn(random: Random) -> str:
    low, high = sorted((random.randrange(30), random.randrange(30)))
    return random.choice([f"x>={low}&x<={high}", f"x={low}", f"x>{low}&y<{high}", f"y>={low}", ""])


@pytest.mark.parametrize("summary", [0, 3, 100])
def test_tables_are_those_of_what_is_there_whatever_was_before(summary: int) -> None:
    random = Random(summary)
    for _ in range(15 * MORE):
        grid = grid_of(random.choice(["a", "a-b", "a-b b-c", "m-p m-q m-r"]), random.randint(1, 4))
        nodes = [*grid.members]
        brokers = Brokers(grid, summary=summary)
        adverts: dict[tuple[str, int], object] = {}
        subs: set[tuple[str, object]] = set()
        topics = ["s/1", "s/2"]
        for _ in range(60):
            node_id = random.choice(nodes)
            each = content(random.choice([*topics, "s/+", "#"]), drawn(random))
            what = random.random()
            if what < 0.2 and len(adverts) < 10:
                adverts[node_id, brokers.advertise(node_id, each)] = each
            elif what < 0.3 and adverts:
                gone = random.choice(sorted(adverts, key=str))
                del adverts[gone]
                brokers.unadvertise(*gone)
            elif what < 0.7:
                subs.add((node_id, each))
                brokers.subscribe(node_id, each)
            elif subs:
                old = random.choice(sorted(subs, key=str))
                subs.discard(old)
                brokers.unsubscribe(*old)  # type: ignore[arg-type]
        check(brokers, adverts, subs)
        for _ in range(20):
            if adverts:
                publisher = random.choice(sorted(adverts, key=str))[0]
                topic = random.choice(topics)
                attributes = {"x": float(random.randrange(30)), "y": float(random.randrange(30))}
                if brokers.advertised(publisher, topic, attributes):
                    spread = brokers.publish(publisher, topic, attributes)
                    got = {publisher, *(hop.copy.to for hop in spread.hops)}
                    assert brokers.matching(topic, attributes) <= got
                    if summary == 100:
                        entered = {grid.cluster(node_id) for node_id in got}
                        matching = {grid.cluster(home) for home in brokers.matching(topic, attributes)}
                        assert entered == matching | {grid.cluster(publisher)}


def check(brokers: Brokers, adverts: dict, subs: set) -> None:  # type: ignore[type-arg]
    grid = brokers.grid
    for member in grid.members:
        rows = {(home, each) for home in grid.members for each in brokers.prt[member].at(home)}
        assert rows == {(home, each) for home, each in subs if grid.cluster(home) == grid.cluster(member)}
        for (owner, uid), advertised in adverts.items():
            if owner != member and grid.place(owner).region == grid.place(member).region:
                row = brokers.clt[member].rows(owner)[uid]
                assert row.advertised == advertised
                assert row.count == len({each for _, each in rows if overlaps(advertised, each)})
    for (owner, uid), advertised in adverts.items():
        for cluster, bit in brokers.clt[owner].bits(uid).items():
            there = [each for home, each in subs if grid.cluster(home) == cluster]
            assert bit == any(overlaps(advertised, each) for each in there)
    region_rows = sum(map(len, brokers.clt.values()))
    assert region_rows == len(adverts) * len(grid.clusters)
