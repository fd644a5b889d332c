"""The index against a look at every filter."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate, Value, parse
from ildm_algorithms.octopia.content.index import ContentIndex
from ildm_algorithms.octopia.content.ordered import CHUNK, OrderedItems
from ildm_algorithms.octopia.content.relations import overlaps
from tests.algorithms.octopia.content.contents import attribute_maps, filters, naive_content_matches, topics

P = Predicate


def content(topic_filter: str, text: str = "") -> ContentFilter:
    return ContentFilter(topic_filter, parse(text)) if text else ContentFilter(topic_filter)


class Indexes(RuleBasedStateMachine):
    """Filters come and go; all answers are those of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.index: ContentIndex[str] = ContentIndex()
        self.model: dict[tuple[ContentFilter, str], int] = {}

    @rule(filter=filters, owner=st.sampled_from("xyz"), qos=st.sampled_from([0, 1, 2]))
    def add(self, filter: ContentFilter, owner: str, qos: int) -> None:
        assert self.index.add(filter, owner, qos) is ((filter, owner) not in self.model)
        self.model[filter, owner] = qos
        self.index.check_sums()

    @rule(data=st.data(), other=filters, owner=st.sampled_from("xyz"))
    def remove(self, data: st.DataObject, other: ContentFilter, owner: str) -> None:
        known = [filter for filter, _ in self.model]
        filter = data.draw(st.sampled_from(known)) if known else other
        there = self.model.pop((filter, owner), None) is not None
        assert self.index.remove(filter, owner) is there
        self.index.check_sums()

    @rule(topic=topics, attributes=attribute_maps)
    def match(self, topic: str, attributes: dict[str, Value]) -> None:
        matching = {filter for filter, _ in self.model if naive_content_matches(filter, topic, attributes)}
        expected: dict[str, int] = {}
        for (filter, owner), qos in self.model.items():
            if filter in matching:
                expected[owner] = max(qos, expected.get(owner, 0))
        assert self.index.match(topic, lambda: attributes) == expected
        found = self.index.match_filters(topic, lambda: attributes)
        assert len(found) == len(set(found))
        assert set(found) == matching

    @rule(filter=filters)
    def overlapping(self, filter: ContentFilter) -> None:
        found = [(each, dict(owners)) for each, owners in self.index.overlapping(filter)]
        assert len(found) == len({each for each, _ in found})
        assert dict(found) == {
            each: self.index.owners(each) for each, _ in self.model if overlaps(each, filter)
        }

    @invariant()
    def holds_what_was_entered(self) -> None:
        assert len(self.index) == len(self.model)
        assert {(filter, owner): qos for filter, owner, qos in self.index} == self.model
        assert self.index._rows.keys() == {filter for filter, _ in self.model}
        for (filter, owner), qos in self.model.items():
            assert self.index.qos(filter, owner) == qos
            assert filter in self.index


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


class Attributes:
    """Counts how often it is asked."""

    def __init__(self, **values: Value) -> None:
        self.values = values
        self.calls = 0

    def __call__(self) -> Mapping[str, Value]:
        self.calls += 1
        return self.values


def test_attributes_are_read_only_where_a_filter_needs_them_and_once() -> None:
    index: ContentIndex[str] = ContentIndex()
    index.add(content("stock/#"), "plain", 1)
    index.add(content("other/#", "a=1"), "other", 1)
    attributes = Attributes(a=1.0, b=2.0)
    assert index.match("stock/ibm", attributes) == {"plain": 1}
    assert index.match("nothing", attributes) == {}
    assert attributes.calls == 0
    index.add(content("stock/ibm", "a=1"), "a", 2)
    index.add(content("stock/+", "b<1"), "b", 2)
    index.add(content("stock/#", "b>1"), "b", 0)
    assert index.match("stock/ibm", attributes) == {"plain": 1, "a": 2, "b": 0}
    assert attributes.calls == 1


def test_an_unknown_qos_is_refused() -> None:
    with pytest.raises(ValueError, match="qos must be 0, 1 or 2, not 3"):
        ContentIndex[str]().add(content("a"), "x", 3)


def test_one_filter_in_two_texts_is_one_row() -> None:
    index: ContentIndex[str] = ContentIndex()
    assert index.add(content("t", "a=1&b=2"), "x", 0)
    assert not index.add(content("t", "b = 2 & a = 1"), "x", 1)
    assert len(index._rows) == len(index) == 1
    assert index.match("t", Attributes(a=1, b=2)) == {"x": 1}


def workload(count: int) -> list[ContentFilter]:
    """OctopiA's: ten of 500 symbols each, and six more attributes with bounds that hold for all messages."""
    full = tuple(p for name in "bcdefg" for p in (P(name, ">=", 0.0), P(name, "<=", 1000.0)))
    made = []
    for number in range(count):
        low = number % 500 + number / count
        made.append(
            ContentFilter("stock", Expression((P("sym", ">=", low), P("sym", "<", low + 10.0), *full)))
        )
    return made


def examined(index: ContentIndex[int], attributes: dict[str, Value]) -> tuple[int, int]:
    """Filters looked at, and filters found."""
    before = index.examined
    found = index.match_filters("stock", lambda: attributes)
    return index.examined - before, len(found)


MESSAGE: dict[str, Value] = {"sym": 250.0, **dict.fromkeys("bcdefg", 500.0)}


def test_little_more_is_looked_at_than_matches() -> None:
    index: ContentIndex[int] = ContentIndex()
    for number, filter in enumerate(workload(5000)):
        index.add(filter, number)
    looked, found = examined(index, MESSAGE)
    assert 90 <= found <= 110
    assert looked < 2.5 * found
    before = index.examined
    advert = ContentFilter("stock", Expression((P("sym", "=", 250.0), P("b", ">=", 0.0))))
    assert len(list(index.overlapping(advert))) == found
    assert index.examined - before < 2.5 * found


@pytest.mark.parametrize(
    ("common", "rare"),
    [
        ("type=temp", "value>={0}&value<{1}"),
        ("type=1", "value>={0}&value<{1}"),
        ("ok=true", "value>={0}&value<{1}"),
        ("value>=0&value<=100000", "sym=s{0}"),
        ("value>=3&value<=4", "sym=s{0}"),
        ("value>=3&value<=4", "price>={0}&price<{1}"),
        ("type=temp", "sym=s{0}"),
        ("?value", "sym^=s{0}x"),
        ("value!=5", "sym={0}"),
    ],
)
def test_what_many_ask_for_is_not_what_they_are_found_by(common: str, rare: str) -> None:
    index: ContentIndex[int] = ContentIndex()
    for number in range(2000):
        index.add(content("stock", f"{common}&{rare.format(number, number + 1)}"), number)
    attributes: dict[str, Value] = {"type": "temp", "ok": True, "value": 3.5, "price": 77.0, "sym": "s77x"}
    if common == "type=1":
        attributes["type"] = 1.0
    if rare.startswith("value"):
        attributes["value"] = 77.0
    if rare == "sym={0}":
        attributes["sym"] = 77.0
    if rare == "sym=s{0}":
        attributes["sym"] = "s77"
    looked, found = examined(index, attributes)
    assert found == 1
    assert looked < 50


def test_emptied_it_keeps_nothing() -> None:
    index: ContentIndex[int] = ContentIndex()
    texts = ["a=1", "a='x'", "a^=x", "a>1", "a<1", "a>1&a<3", "?a", "!a", "a!=1", "a=true", "a>1&a<1", "s>=M"]
    held = [content("t", text) for text in texts] + [content("t"), content("u/#")]
    for number, filter in enumerate(held):
        index.add(filter, number)
    for number, filter in enumerate(held):
        assert index.remove(filter, number)
        index.check_sums()
    assert len(index) == len(index._rows) == 0
    before = index.examined
    attributes = Attributes(a=2.0)
    assert index.match("t", attributes) == {}
    assert list(index.overlapping(content("#"))) == []
    assert (index.examined, attributes.calls) == (before, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=200),
    st.integers(-1, 31),
    st.integers(-1, 31),
)
def test_ordered_items(changes: list[tuple[bool, int]], low: int, high: int) -> None:
    items: OrderedItems[int] = OrderedItems()
    model: dict[tuple[float, int], int] = {}
    for number, (adds, at) in enumerate(changes):
        key = (float(at), number)
        if adds or not model:
            items.add(key, number)
            model[key] = number
        else:
            gone = sorted(model)[at % len(model)]
            items.remove(gone)
            del model[gone]
    found = [item for part in items.between(float(low), float(high)) for item in part]
    assert found == [model[key] for key in sorted(model) if low <= key[0] <= high]
    assert [item for part in items.between() for item in part] == [model[key] for key in sorted(model)]
    assert len(items) == len(model)


def test_ordered_items_in_many_chunks() -> None:
    random = Random(7)
    items: OrderedItems[int] = OrderedItems()
    keys = [(float(random.randrange(1000)), number) for number in range(10 * CHUNK)]
    for key in keys:
        items.add(key, key[1])
    for key in keys[::2]:
        items.remove(key)
    left = sorted(keys[1::2])
    for low, high in [(0.0, 999.0), (100.0, 100.0), (-5.0, 3.0), (500.5, 700.0), (998.0, 2000.0)]:
        found = [item for part in items.between(low, high) for item in part]
        assert found == [number for at, number in left if low <= at <= high]
    for key in left:
        items.remove(key)
    assert list(items.between()) == []


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("x>=-1.5e308&x<=1e308", [-1.5e308, 0.0, 1e308], [-1.6e308, 1.1e308]),
        ("x>=0&x<=5e-324", [0.0, 5e-324], [-5e-324, 1e-323]),
        ("x>1e300&x<1.0000001e300", [1.00000001e300], [1e300, 1.0000001e300]),
        ("x>=0&x<=1e30", [0.0, 1e30], [-1.0, 1.1e30]),
    ],
)
def test_ranges_of_all_widths(text: str, inside: list[float], outside: list[float]) -> None:
    index: ContentIndex[str] = ContentIndex()
    index.add(content("t", text), "k")
    assert [index.match("t", Attributes(x=value)) for value in inside] == [{"k": 0}] * len(inside)
    assert [index.match("t", Attributes(x=value)) for value in outside] == [{}] * len(outside)


@pytest.mark.parametrize("last", ["sym^=x{n}", "sym=x{n}", "?s{n}", "s{n}>0", "s{n}^=x"])
@pytest.mark.parametrize("bound", ["0", "{n}"])
def test_work_follows_the_predicate_that_tells_filters_apart(last: str, bound: str) -> None:
    """Twenty others that a message satisfies do not lead to each filter that names them."""
    index: ContentIndex[int] = ContentIndex()
    count = 600
    text = "&".join([f"a{place}>{bound}" for place in range(20)] + [last])
    for number in range(count):
        index.add(content("stock/#", text.replace("{n}", str(number))), number)
    satisfied: dict[str, Value] = {f"a{place}": 1e6 for place in range(20)}
    assert index.match("stock/y", lambda: satisfied) == {}
    assert index.examined <= 20
    one: Value = "x7" if "x" in last else 1.0
    assert index.match("stock/y", lambda: {**satisfied, "sym": one, "s7": one}) == {7: 0}
    assert index.examined <= 40


def test_attributes_that_no_filter_names_any_more_are_forgotten() -> None:
    index: ContentIndex[str] = ContentIndex()
    index.add(content("stock/#", "kept=1"), "x")
    texts = ("a{n}=1", "a{n}>1&b{n}<2", "!c{n}", "d{n}=1&d{n}=2", "e{n}^=x&kept=1")
    for number in range(200):
        for text in texts:
            index.add(content("stock/#", text.replace("{n}", str(number))), "y")
    for filter, owner, _ in list(index):
        if owner == "y":
            index.remove(filter, owner)
    assert set(index._groups["stock/#"]._accesses) == {"kept"}
    assert index.match("stock/y", lambda: {"kept": 1.0}) == {"x": 0}
