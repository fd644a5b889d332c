"""What classes of links let go is excused, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from ildm.config import parse_config
from ildm_bench.chaos import classed
from ildm_bench.chaos.check import check_histories
from ildm_bench.chaos.classed import CONFLATED, EXPIRED, SET_BACK
from ildm_bench.chaos.history import Event
from tests.bench.chaos.making import BASE, connected, got, history, published, subscribed

Rows = list[Event | list[Event]]


def of(filter_: str, number: int, **may: bool) -> Event:
    """A class says what it may let go."""
    names = ("conflate", "expire", "after_live")
    words = ", ".join(f'"{name}": {str(may.get(name, False)).lower()}' for name in names)
    return Event(0.0, "nodes", "class", "info", topic=filter_, seq=number, detail=f"{{{words}}}")


def counted(counter: str, t: float = 3.0) -> Event:
    return Event(t, "node/a", "counters", "ok", topic=counter, seq=1)


def found(*rows: Event | list[Event]) -> set[tuple[str, str]]:
    return {(one.invariant, one.cause) for one in check_histories([history([*BASE, *rows])]).found}


NEWEST = of("t", 1, conflate=True)
TWO = [*published(2.0, 1), *published(2.1, 2)]


def test_a_message_is_excused_by_a_newer_one_that_came() -> None:
    assert found(NEWEST, TWO, counted(CONFLATED), got(4.0, 2)) == {("lost", "conflated")}


@pytest.mark.parametrize(
    "rows",
    [
        [NEWEST, TWO, counted(CONFLATED), got(4.0, 1)],  # the newest is lost
        [NEWEST, TWO, counted(CONFLATED)],
        [NEWEST, TWO, got(4.0, 2)],  # no node has said so
        [NEWEST, TWO, counted(CONFLATED, 1.0), got(4.0, 2)],
        [of("x", 1, conflate=True), TWO, counted(CONFLATED), got(4.0, 2)],  # another topic's class
        [of("t", 1, expire=True), NEWEST, TWO, counted(CONFLATED), got(4.0, 2)],  # the first decides
        [of("t", 1, expire=True), TWO, got(4.0, 2)],
        [of("x", 1, expire=True), TWO, counted(EXPIRED), got(4.0, 2)],
    ],
)
def test_what_no_class_and_counter_admits_is_lost(rows: Rows) -> None:
    assert ("lost", "ours") in found(*rows)


def test_what_has_waited_for_too_long_is_excused() -> None:
    assert found(of("t", 1, expire=True), TWO, counted(EXPIRED), got(4.0, 2)) == {("lost", "expired")}


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        ([of("t", 1, after_live=True), counted(SET_BACK, 2.5)], "behind"),
        ([of("t", 1, after_live=True)], "ours"),
        ([of("t", 1, after_live=True), counted(SET_BACK, 1.9)], "ours"),
        ([of("t", 1, after_live=True), counted(SET_BACK, 9.0)], "ours"),
        ([of("t", 1), counted(SET_BACK, 2.5)], "ours"),
        ([of("x", 1, after_live=True), counted(SET_BACK, 2.5)], "ours"),
    ],
)
def test_what_a_link_found_waiting_may_come_after_what_is_newer(rows: Rows, cause: str) -> None:
    assert found(*rows[:1], TWO, *rows[1:], got(4.0, 2), got(5.0, 1)) == {("order", cause)}


@pytest.mark.parametrize(
    ("classes", "wrong"),
    [
        ([], True),
        ([of("t/1", 1)], False),
        ([of("t/1", 1), of("t/2", 2)], False),
        ([of("t/1", 1), of("t/2", 1)], True),
        ([of("t/#", 1, conflate=True)], False),
    ],
)
def test_order_is_asked_within_a_class(classes: list[Event], wrong: bool) -> None:
    rows: Rows = [*published(2.0, 1, topic="t/1"), *published(2.1, 2, topic="t/2")]
    rows += [got(3.0, 2, topic="t/2"), got(3.1, 1, topic="t/1")]
    events: Rows = [*classes, *rows]
    made = history([connected(0.0), subscribed(0.1, "t/#"), *events])
    assert bool(Counter(one.invariant for one in check_histories([made]).found)["order"]) is wrong


def test_classes_that_are_drawn_can_be_configured_and_differ() -> None:
    drawn = [classed.drawn(Random(seed)) for seed in range(50)]
    for each in drawn:
        parse_config({"algorithm": "sf", "link": {"classes": each}}, "c.yaml", Path())
    rows = [row for each in drawn for row in classed.rows(each)]
    assert {row.conflates for row in rows} == {row.expires for row in rows} == {True, False}
    assert {row.after_live for row in rows} == {True, False}
    assert {row.number for row in rows} == {1, 2, 3, 4}
