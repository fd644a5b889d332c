"""The set of filters to announce, against its definition (thesis 5.3.2)."""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ildm.mqtt import covering as covering_module
from ildm.mqtt.covering import CoveringSet, Delta
from ildm.mqtt.topics import covers
from tests.mqtt.topic_model import FILTERS, naive_covers

Changes = dict[str, int | None]
Held = dict[str, dict[str, int]]

SMALL = ["#", "+/#", "+", "+/+", "a", "a/#", "a/+", "a/+/#", "a/b", "+/b", "+/b/#", "$s/+"]
SMALL += ["$s/#", "$s/b", "/#", "/+/#", "+/+/#", "/b", "/+"]
"""A world in which nearly every filter covers another."""


HEAVY = ["+/+/a", "+/b/+", "a/+/+", "+/+/+", "a/b/a", "+/+/#", "/#", "#", "+/#", "a/+/#", "+/b/#"]


def defined(held: Held) -> dict[str, int]:
    """The announced set as its definition has it."""
    maximum: dict[str, int] = {}
    for interest in held.values():
        for topic_filter, qos in interest.items():
            maximum[topic_filter] = max(qos, maximum.get(topic_filter, 0))

    def dominated(f: str) -> bool:
        return any(
            naive_covers(g, f) and (not naive_covers(f, g) or (len(g), g) < (len(f), f))
            for g in maximum
            if g != f
        )

    return {
        f: max(qos for g, qos in maximum.items() if naive_covers(f, g)) for f in maximum if not dominated(f)
    }


def apply(delta: Delta, announced: dict[str, int]) -> None:
    """Carry the delta out, refusing one that is larger than needed."""
    assert not delta.subscribe.keys() & set(delta.unsubscribe)
    assert len(set(delta.unsubscribe)) == len(delta.unsubscribe)
    for topic_filter, qos in delta.subscribe.items():
        assert announced.get(topic_filter) != qos
        announced[topic_filter] = qos
    for topic_filter in delta.unsubscribe:
        del announced[topic_filter]


def change_sets(world: list[str]) -> st.SearchStrategy[Changes]:
    return st.dictionaries(st.sampled_from(world), st.sampled_from((None, None, 0, 1, 2)), max_size=5)


def histories(world: list[str]) -> st.SearchStrategy[list[tuple[str, Changes | None]]]:
    step = st.tuples(st.sampled_from("ABC"), st.one_of(change_sets(world), change_sets(world), st.none()))
    return st.lists(step, max_size=20)


def replay(history: list[tuple[str, Changes | None]]) -> None:
    covering: CoveringSet[str] = CoveringSet()
    held: Held = {}
    mirror: dict[str, int] = {}
    for source, changes in history:
        if changes is None:
            held.pop(source, None)
            delta = covering.remove_source(source)
        else:
            interest = held.setdefault(source, {})
            for topic_filter, qos in changes.items():
                if qos is None:
                    interest.pop(topic_filter, None)
                else:
                    interest[topic_filter] = qos
            delta = covering.update(source, changes)
        before = dict(mirror)
        apply(delta, mirror)
        assert bool(delta) is (before != mirror)
        assert dict(covering.announced) == mirror == defined(held)
    for source in "ABC":
        apply(covering.remove_source(source), mirror)
    assert mirror == {}
    assert dict(covering.announced) == {}
    for root in (covering._plain, covering._dollar):
        assert (root.children, root.exact, root.multi, root.weight) == (None, None, None, 0)
    assert not covering._entries
    assert not covering._sources


@given(histories(SMALL))
@settings(max_examples=200)
@example([("A", {"#": 0}), ("A", {"+/#": 1}), ("A", {"#": None}), ("B", {"#": 0})])
@example([("A", {"+/#": 0}), ("A", {"#": 0}), ("B", {"a": 2}), ("A", {"#": None})])
def test_announced_equals_its_definition_where_all_collide(history: list[tuple[str, Changes | None]]) -> None:
    replay(history)


SHORT = [
    "/".join(levels)
    for depth in (1, 2, 3)
    for levels in itertools.product(("", "a", "+", "#"), repeat=depth)
    if "#" not in levels[:-1] and levels != ("",)
]
"""All filters of up to three levels over one name, the empty level and both wildcards."""


def test_every_pair_of_short_filters_comes_goes_and_changes_in_every_way() -> None:
    """Two sources with one filter each: added, raised, lowered, withdrawn, one before the other."""
    for first, second in itertools.product(SHORT, repeat=2):
        for low, high in ((0, 1), (1, 0), (2, 0), (1, 1)):
            raised: list[tuple[str, Changes | None]] = [
                ("A", {first: low}),
                ("B", {second: high}),
                ("B", {second: 2}),
                ("A", {first: 1}),
                ("B", {second: high}),
            ]
            replay([*raised[:2], ("B", None), ("A", None)])
            replay([*raised, ("A", None), ("B", None)])
            replay([*raised, ("B", {second: None}), ("A", {first: high}), ("A", {first: None})])


EQUAL = ["#", "+/#", "/#", "/+/#"]


@pytest.mark.parametrize("third", ["+/+/#", "a", "/a", "+"])
def test_equal_filters_with_a_third_go_in_every_order(third: str) -> None:
    """Each of three sources holds one filter, and they leave in all orders."""
    for shorter, longer in (EQUAL[:2], EQUAL[2:]):
        for filters in itertools.permutations((shorter, longer, third)):
            for qos in itertools.product((0, 1, 2), repeat=3):
                come: list[tuple[str, Changes | None]] = [
                    (source, {f: q}) for source, f, q in zip("ABC", filters, qos, strict=True)
                ]
                for leave in itertools.permutations("ABC"):
                    replay([*come, *((source, None) for source in leave)])


@given(histories([*EQUAL, "+/+/#", "+/+", "+", "a", "/a", "a/#"]))
@settings(max_examples=400)
@example([("A", {"/+/#": 0}), ("B", {"/#": 1}), ("B", None)])
@example([("A", {"+/#": 0}), ("B", {"#": 1}), ("B", None)])
@example([("A", {"+/#": 0}), ("B", {"#": 1}), ("C", {"a": 2}), ("C", None), ("B", None)])
def test_announced_equals_its_definition_of_filters_that_cover_each_other(
    history: list[tuple[str, Changes | None]],
) -> None:
    replay(history)


@given(histories(FILTERS))
@settings(max_examples=200)
def test_announced_equals_its_definition(history: list[tuple[str, Changes | None]]) -> None:
    replay(history)


def test_the_definition_rests_on_the_covering_under_test() -> None:
    assert all(covers(a, b) is naive_covers(a, b) for a in SMALL for b in SMALL)


def test_only_the_difference_is_announced() -> None:
    covering: CoveringSet[str] = CoveringSet()
    assert covering.update("client 1", {"sport/tennis": 0}) == Delta({"sport/tennis": 0})
    assert covering.update("client 2", {"sport/tennis": 0}) == Delta()
    assert covering.update("client 2", {"sport/#": 0}) == Delta({"sport/#": 0}, ["sport/tennis"])
    assert covering.update("client 3", {"sport/golf": 0}) == Delta()
    assert covering.remove_source("client 2") == Delta({"sport/tennis": 0, "sport/golf": 0}, ["sport/#"])
    assert covering.remove_source("client 2") == Delta()


def test_qos_of_the_covered_is_announced_with_the_covering_filter() -> None:
    covering: CoveringSet[str] = CoveringSet()
    covering.update("a", {"x/#": 0})
    assert covering.update("b", {"x/y": 2}) == Delta({"x/#": 2})
    assert covering.update("b", {"x/z": 1}) == Delta()
    assert covering.update("b", {"x/y": None}) == Delta({"x/#": 1})
    assert covering.update("b", {"x/z": 0}) == Delta({"x/#": 0})
    assert covering.update("a", {"x/#": None}) == Delta({"x/z": 0}, ["x/#"])


def test_of_two_equal_filters_the_shorter_is_announced() -> None:
    covering: CoveringSet[str] = CoveringSet()
    assert covering.update("a", {"+/#": 1}) == Delta({"+/#": 1})
    assert covering.update("b", {"#": 0}) == Delta({"#": 1}, ["+/#"])
    assert covering.update("b", {"#": None}) == Delta({"+/#": 1}, ["#"])


def test_filters_with_a_leading_separator() -> None:
    covering: CoveringSet[str] = CoveringSet()
    assert covering.update("a", {"/+/#": 1}) == Delta({"/+/#": 1})
    assert covering.update("b", {"/#": 2}) == Delta({"/#": 2}, ["/+/#"])
    assert covering.update("c", {"+/+/#": 0}) == Delta({"+/+/#": 2}, ["/#"])
    assert covering.update("a", {"/+/#": None}) == Delta()
    assert covering.update("b", {"/#": 1}) == Delta({"+/+/#": 1})
    assert covering.update("c", {"+/+/#": None}) == Delta({"/#": 1}, ["+/+/#"])


def test_dollar_topics_are_not_covered_by_leading_wildcards() -> None:
    covering: CoveringSet[str] = CoveringSet()
    covering.update("a", {"#": 0, "+/x": 0, "$SYS/x": 1, "$SYS/+": 0})
    assert dict(covering.announced) == {"#": 0, "$SYS/+": 1}


def test_one_update_that_swaps_filters_announces_no_intermediate_state() -> None:
    covering: CoveringSet[str] = CoveringSet()
    covering.update("a", {"x/#": 0} | {f"x/{n}": 0 for n in range(50)})
    assert covering.update("a", {"x/#": None, "#": 0}) == Delta({"#": 0}, ["x/#"])
    assert covering.update("a", {"#": None, "+/+": 0}) == Delta({"+/+": 0}, ["#"])
    assert covering.remove_source("a") == Delta({}, ["+/+"])


def test_a_refused_update_changes_nothing() -> None:
    covering: CoveringSet[str] = CoveringSet()
    with pytest.raises(ValueError, match="qos of 'b' must be 0, 1, 2 or None"):
        covering.update("a", {"a": 1, "b": 3})
    assert dict(covering.announced) == {}
    assert covering.remove_source("a") == Delta()


def test_announced_is_a_read_only_live_view() -> None:
    covering: CoveringSet[str] = CoveringSet()
    view: Any = covering.announced
    covering.update("a", {"a": 1})
    assert view == {"a": 1}
    with pytest.raises(TypeError):
        view["b"] = 0


def test_filters_of_maximum_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    # far beyond what a node takes (``limits.topic_levels``), and so beyond the work for three filters
    monkeypatch.setattr(covering_module, "WORK", 1 << 20)
    monkeypatch.setattr(covering_module, "MOST_NODES", 1 << 20)
    covering: CoveringSet[str] = CoveringSet()
    deep = {"/" * 65_535: 1, "/" * 65_534 + "+": 0, "+/" * 32_767 + "#": 2}
    assert covering.update("a", deep) == Delta({"+/" * 32_767 + "#": 2})
    assert covering.update("b", {"#": 0}).subscribe == {"#": 2}
    assert dict(covering.announced) == {"#": 2}
    covering.remove_source("b")
    assert set(covering.announced) == {"+/" * 32_767 + "#"}
    covering.remove_source("a")
    assert dict(covering.announced) == {}
    covering.update("a", deep)
    # A set that is let go with its deep branches must not exhaust the C stack either.
    del covering


def lines_run(covering: CoveringSet[str], changes: Changes) -> int:
    """How many lines of Python an update takes: the measure of its cost that no load disturbs."""
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        # Else garbage collection callbacks of others would count.
        if frame.f_code.co_filename != covering_module.__file__:
            return None
        lines += event == "line"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        covering.update("probe", changes)
    finally:
        sys.settrace(outer)
    return lines


@pytest.mark.parametrize("wide", [{}, {"site/#": 0}])
def test_cost_of_one_change_does_not_grow_with_the_table(wide: Changes) -> None:
    costs = []
    for size in (100, 3_000):
        covering: CoveringSet[str] = CoveringSet()
        covering.update("sites", wide | {f"site/room{n}/sensor/+": n % 2 for n in range(size)})
        covering.update("sites", {"other/+/x": 0, "other/#": 1})
        costs.append(
            [
                lines_run(covering, {"site/room7/sensor/t": 2}),
                lines_run(covering, {"site/room7/sensor/t": 0}),
                lines_run(covering, {"site/room7/sensor/t": None}),
                lines_run(covering, {"site/new/sensor/t": 1}),
                lines_run(covering, {"site/room7/#": 0}),
                lines_run(covering, {"site/room7/#": None}),
                lines_run(covering, {"fresh/+/#": 0}),
                lines_run(covering, {"fresh/+/#": None}),
            ]
        )
    assert costs[0] == costs[1]


def test_what_another_multi_level_wildcard_covers_is_not_walked() -> None:
    costs = []
    for size in (100, 3_000):
        covering: CoveringSet[str] = CoveringSet()
        covering.update("sites", {"site/#": 0} | {f"site/room{n}": 0 for n in range(size)})
        costs.append([lines_run(covering, {"#": 1}), lines_run(covering, {"#": None})])
    assert costs[0] == costs[1]


def test_order_within_one_removal_does_not_matter() -> None:
    rooms: Changes = dict.fromkeys((f"site/room{n}" for n in range(100)), 0)
    costs = []
    for order in ({"site/#": 0} | rooms, rooms | {"site/#": 0}):
        covering: CoveringSet[str] = CoveringSet()
        covering.update("probe", order)
        costs.append(lines_run(covering, dict.fromkeys(order)))
    assert costs[0] == costs[1]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(HEAVY), st.sampled_from([None, 0, 1, 2])),
        max_size=30,
    )
)
def test_with_few_heavy_filters_compared_all_that_is_wanted_is_announced(
    changes: list[tuple[str, str, int | None]],
) -> None:
    """No filter is without one that covers it at its QoS, and nothing is left in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering_module, "MOST_HEAVY", 2)
        covering: CoveringSet[str] = CoveringSet()
        held: Held = {"a": {}, "b": {}}
        announced: dict[str, int] = {}
        for source, topic_filter, qos in changes:
            apply(covering.update(source, {topic_filter: qos}), announced)
            if qos is None:
                held[source].pop(topic_filter, None)
            else:
                held[source][topic_filter] = qos
            assert dict(covering.announced) == announced
            for interest in held.values():
                for f, wanted in interest.items():
                    assert any(naive_covers(g, f) and q >= wanted for g, q in announced.items())
        for source in held:
            apply(covering.remove_source(source), announced)
        assert announced == {}


def test_thousands_that_could_cover_one_filter_are_set_aside() -> None:
    covering: CoveringSet[str] = CoveringSet()
    topic = [f"l{i}" for i in range(14)]
    places = itertools.combinations(range(14), 7)
    many = {"/".join("+" if i in p else level for i, level in enumerate(topic)): 1 for p in places}
    for topic_filter in many:
        covering.update("a", {topic_filter: 1})
    assert len(covering.announced) == len(many)
    visited = list(covering._coverers("/".join(topic)))
    assert len(visited) == 1024
    covering.update("b", {"#": 0})
    while covering.behind:
        covering.go_on()
    assert len(covering.announced) == len(many) - 1024 + 1
    covering.remove_source("b")
    while covering.behind:
        covering.go_on()
    assert dict(covering.announced) == many
    covering.remove_source("a")
    while covering.behind:
        covering.go_on()
    assert dict(covering.announced) == {}


def bounded(history: list[tuple[str, Changes | None]], work: int, per_filter: int, nodes: int) -> None:
    """Whatever is left undone, what is held is announced or covered by what is; in the end nothing is."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WORK", work), ("WORK_PER_FILTER", per_filter), ("MOST_NODES", nodes)):
            patch.setattr(covering_module, name, value)
        covering: CoveringSet[str] = CoveringSet()
        held: Held = {source: {} for source in "ABC"}
        announced: dict[str, int] = {}

        def check() -> None:
            assert dict(covering.announced) == announced
            for interest in held.values():
                for f, wanted in interest.items():
                    assert any(naive_covers(g, f) and q >= wanted for g, q in announced.items()), f

        for source, changes in history:
            interest = held[source]
            if changes is None:  # some more of what is left
                apply(covering.go_on(), announced)
            else:
                for topic_filter, qos in changes.items():
                    if qos is None:
                        interest.pop(topic_filter, None)
                    else:
                        interest[topic_filter] = qos
                apply(covering.update(source, changes), announced)
            check()
        while covering.behind:
            apply(covering.go_on(), announced)
            check()
        every = {f for interest in held.values() for f in interest}
        assert set(announced) <= every
        for source, interest in held.items():
            interest.clear()
            apply(covering.remove_source(source), announced)
            check()
        while covering.behind:
            apply(covering.go_on(), announced)
            check()
        assert announced == {}
        assert not covering._entries
        assert covering._heavy == 0
        for root in (covering._plain, covering._dollar):
            assert (root.children, root.exact, root.multi, root.weight) == (None, None, None, 0)


@given(histories(SMALL), st.integers(1, 30), st.integers(0, 20), st.integers(0, 4))
@example([("A", {"/+/#": 0, "/#": 1})], 1, 0, 0)
@settings(max_examples=400, deadline=None)
def test_what_is_left_for_later_loses_nothing(
    history: list[tuple[str, Changes | None]], work: int, per_filter: int, nodes: int
) -> None:
    bounded(history, work, per_filter, nodes)


@given(histories(HEAVY), st.integers(1, 30), st.integers(0, 20), st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_what_is_left_for_later_loses_nothing_where_all_collide(
    history: list[tuple[str, Changes | None]], work: int, per_filter: int, nodes: int
) -> None:
    bounded(history, work, per_filter, nodes)


WIDE = 20_000
MOST_LINES = 2_000_000
"""Of Python for a packet of 2000 filters: a fraction of a second. One step of what is left: a twentieth."""


@pytest.mark.parametrize(
    "packet",
    [
        {f"+/x{n}": 0 for n in range(2000)},
        {f"+/x{n}/#": 1 for n in range(2000)},
        {f"+/+/x{n}": 1 for n in range(2000)},
        {"l/" * n + "+" + "/l" * (127 - n) + f"/{m}": 1 for n in range(100) for m in range(20)},
    ],
    ids=["one level", "multi", "two levels", "deep"],
)
def test_work_for_one_packet_does_not_grow_with_what_others_hold(packet: Changes) -> None:
    covering: CoveringSet[str] = CoveringSet()
    covering.update("others", {f"s{n}/x{n % 2000}": 0 for n in range(WIDE)})
    assert lines_run(covering, packet) < MOST_LINES
    assert lines_run(covering, dict.fromkeys(packet)) < MOST_LINES
    while covering.behind:
        covering.go_on()
    assert len(covering.announced) == WIDE


def test_what_one_filter_covers_is_withdrawn_and_restored_in_parts() -> None:
    covering: CoveringSet[str] = CoveringSet()
    others = {f"s{n}/x": 0 for n in range(WIDE)}
    covering.update("others", others)
    for changes, end in (({"#": 0}, {"#": 0}), ({"#": None}, others)):
        sent = covering.update("a", changes)
        parts = [len(sent.subscribe) + len(sent.unsubscribe)]
        while covering.behind:
            delta = covering.go_on()
            parts.append(len(delta.subscribe) + len(delta.unsubscribe))
        assert dict(covering.announced) == end
        assert sum(parts) == WIDE + 1
        assert max(parts) < 2000
