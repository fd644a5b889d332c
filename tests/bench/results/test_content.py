"""Results of content-based subscriptions: who ought to get what, and what their tables say."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from ildm_algorithms.octopia.content.content import parse
from ildm_bench.report import write_comparison
from ildm_bench.results import content, slow_link
from ildm_bench.results.common import QUICK, Bench
from ildm_bench.results.exactness import Outcome
from ildm_bench.results.slow_link import Delivery
from ildm_bench.results.wishes import Ledger, Rule, Sent, Wish, payload, random_attributes, random_rules
from ildm_bench.testbed.distance import Distances, load_distances

READING = {"price": 5.0, "side": "buy", "halted": False, "size": "3"}


@pytest.mark.parametrize(
    ("rule", "text", "holds"),
    [
        (Rule("price", ">", 4.5), "price>4%2E5", True),
        (Rule("price", "<=", 4.5), "price<=4%2E5", False),
        (Rule("price", "=", True), "price=true", False),
        (Rule("side", "^=", "b"), "side^='b'", True),
        (Rule("side", "!=", "a.b"), "side!='a%2Eb'", True),
        (Rule("halted", "=", False), "halted=false", True),
        (Rule("size", "=", 3), "size=3", False),
        (Rule("size", "!=", 4), "size!=4", False),
        (Rule("note", "!=", "x"), "note!='x'", False),
        (Rule("note", "!"), "!note", True),
        (Rule("side", "?"), "!!side", True),
    ],
)
def test_a_rule_is_judged_by_its_meaning(rule: Rule, text: str, holds: bool) -> None:
    assert (rule.text(), rule.holds(READING)) == (text, holds)


def test_the_language_agrees_with_the_rules() -> None:
    """On random ones: the judge of the live tests is no part of what it judges."""
    random = Random(1)
    held = 0
    for _ in range(3000):
        wish = Wish("c", random_rules(random), "#", 0.0)
        attributes = json.loads(payload(1, random_attributes(random)))
        agreed = parse(wish.level).matches(attributes)
        assert agreed == wish.matches("t", attributes), (wish.level, attributes)
        held += agreed
    assert 300 < held < 2700


def ledger(*wishes: Wish, grace: float = 1.0) -> Ledger:
    found = Ledger(grace)
    found.wishes += wishes
    return found


DEAR = (Rule("price", ">", 80),)


def sent(number: int, price: float, begun: float, done: float | None = None) -> Sent:
    return Sent(number, "stock/x", {"price": price}, begun, begun + 0.1 if done is None else done)


def test_a_ledger_tells_what_is_missing_wrong_and_doubled() -> None:
    book = ledger(Wish("c", DEAR, "stock/#", 0.0, granted=0.1), Wish("d", DEAR, "plant/#", 0.0, granted=0.1))
    book.sent += [sent(1, 81, 5.0), sent(2, 79, 5.0), sent(3, 90, 5.0), sent(4, 90, 5.0)]
    topic = "filter/price>80/stock/x"
    for number in (1, 2, 3, 3):
        book.received("c", topic, number)
    book.received("d", topic, 1)
    book.received("c", "stock/x", 1)
    verdict = book.verdict()
    assert (verdict.due, verdict.uncertain, verdict.exact) == (3, 0, False)
    assert verdict.missing == [f"c: 4 on {topic}"]
    assert verdict.wrong == [f"c: 2 on {topic}", "c: 1 on stock/x", f"d: 1 on {topic}"]
    assert verdict.doubled == [f"c: 3 on {topic}, 2 times"]


@pytest.mark.parametrize(
    ("begun", "done", "due", "possible"),
    [
        (0.5, 0.6, False, False),  # long before
        (2.5, 2.6, False, True),  # the subscription is under way
        (4.0, 4.1, False, True),  # granted, but others may not know
        (4.5, 4.6, True, True),
        (9.0, 9.1, False, True),  # may still be under way when it goes
        (9.0, 30.0, False, True),
        (10.4, 10.5, False, True),  # before the answer to UNSUBSCRIBE
        (10.6, 10.7, False, False),
    ],
)
def test_what_is_published_while_a_wish_comes_or_goes_is_right_either_way(
    begun: float, done: float, due: bool, possible: bool
) -> None:
    wish = Wish("c", DEAR, "stock/+", 2.0, granted=3.2, left=10.0, gone=10.5)
    book = ledger(wish)
    book.sent += [sent(1, 99, begun, done), sent(2, 99, 40.0)]
    delivery = ("c", "filter/price>80/stock/x", 1)
    assert [delivery in each for each in book.expected()] == [due, possible]
    assert book.missing({delivery}) == 1
    book.received(*delivery)
    assert book.missing({delivery}) == 0
    verdict = book.verdict()
    assert (verdict.uncertain, bool(verdict.wrong)) == (int(possible and not due), not possible)


def test_each_site_wants_its_own_twentieth() -> None:
    shares = content.wanted(25)
    assert [len([s for s in range(100) if s in share]) for share in shares] == [5] * 25
    assert shares[0] != shares[1]
    assert shares[20] == shares[0]
    assert content.topic_filter("octopia", shares[1]) == "filter/sym>=5&sym<10/stock/#"
    assert content.topic_filter("sf", shares[1]) == "stock/#"
    # two other regions of four sites each, that want a fifth of the readings
    assert content.least_copies(load_distances(content.DISTANCES)) == pytest.approx(0.4)


def test_what_was_measured_before_is_drawn_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, QUICK, Console(quiet=True))
    measured = {
        "copies": 0.4,
        "bytes_between": 120.5,
        "wanted": 100,
        "missing": 1,
        "unwanted": 2000,
        "cpu_ms": {"broker": 1.25, "node": 2.5},
        "latencies_ms": [10.0, 50.0],
    }
    for name in ("sf", "octopia", "octopia-0"):
        stored = {"rounds": [measured, {**measured, "copies": 0.6}], "disturbance": {"others": 0.1}}
        (tmp_path / f"{name}.json").write_text(json.dumps(stored))
    outcome = Outcome(9000, 1, 0, 2, 70, 9071, 400, 510.0, ["missing: c: 4 on x"])
    (tmp_path / "exactness.json").write_text(json.dumps(outcome))
    comparison = content.run(bench, 1000)
    assert comparison.table[1] == [
        "SF, subscribers choose",
        "0.50 (0.40-0.60)",
        "120 (120-120)",
        "198 of 200",
        "4,000",
        "30 (30-30)",
        "broker 1.25 (1.25-1.25), node 2.50 (2.50-2.50)",
    ]
    assert len(comparison.table) == 4
    assert "1,000 messages" in comparison.text
    assert "of 9,000 that had to be 1 missing, 0 that nobody had asked for, 2 doubled" in comparison.text
    assert "missing: c: 4 on x" in comparison.text
    assert write_comparison(comparison, tmp_path).exists()


def test_delay_over_time_is_of_when_it_was_sent() -> None:
    deliveries = [Delivery(2, 0, 0.2, 0.01), Delivery(2, 1, 0.9, 0.03), Delivery(3, 2, 4.0, 2.0)]
    line = slow_link.over_time("SPR", deliveries)
    assert line.seconds == [0.0, 4.0]
    assert line.values == pytest.approx([20.0, 2000.0])


def test_a_slow_link_is_drawn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, QUICK, Console(quiet=True))
    for routing, slow in (("spr", 4.0), ("idr", 0.5)):
        found: dict[str, Any] = {"messages": 3, "copies": 2.0, "overtaken": 1}
        found["deliveries"] = [
            Delivery(site, number, at, slow if at == 20.0 else 0.01)
            for site in range(1, 6)
            for number, at in enumerate((5.0, 20.0, 50.0))
        ][:-1]
        stored = {"rounds": [found], "disturbance": {"others": 0.1}}
        (tmp_path / f"{routing}.json").write_text(json.dumps(stored))
    comparison = slow_link.run(bench)
    assert comparison.table[1][0] == "SPR"
    assert comparison.table[1][5:] == ["4,000", "2.00", "1", "1"]
    assert comparison.table[2][3] == "500"
    page = write_comparison(comparison, tmp_path)
    assert "SPR: from 10 to 10, at most 4,000" in page.read_text()
    assert "mathdefault" not in page.read_text()
    assert ">1,000</text>" in page.read_text().replace("\n", "")
    assert (tmp_path / "course-0.png").exists()


def test_the_slow_link_joins_two_clusters_of_one_region() -> None:
    far: Distances = slow_link.DISTANCES
    assert far.crosses(slow_link.PUBLISHER, slow_link.FAR)
    assert not far.crosses(slow_link.FAR, slow_link.BESIDE)
    assert slow_link.SLOW < slow_link.PAYLOAD * slow_link.RATE < slow_link.FAST
