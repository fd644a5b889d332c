"""What ``ildm overlay`` shows besides keys: what has been learned, and who was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ildm.api import Fact
from ildm_algorithms.tbps.describe import ROWS, bounded
from tests.algorithms.tbps.world import Node, World


def table(node: Node, title: str) -> Sequence[Mapping[str, Fact]]:
    view = node.algorithm.overlay()
    assert view is not None
    return view.tables[title]


@pytest.mark.parametrize(("rows", "more"), [(0, None), (ROWS, None), (ROWS + 1, "1"), (2_345, "2,245")])
def test_a_long_table_says_how_many_rows_it_leaves_out(rows: int, more: str | None) -> None:
    shown = bounded(({"a": number, "b": 1} for number in range(rows)), rows)
    if more is None:
        assert len(shown) == rows
    else:
        assert len(shown) == ROWS + 1
        assert shown[-1] == {"a": f"and {more} more"}


def test_atm_tbps_shows_what_its_tables_have_learned_and_what_for() -> None:
    world = World("atm_tbps", explore_interval=1.0)
    publisher, *subscribers = world.start("p", *(f"s{number}" for number in range(8)))
    for node in subscribers:
        node.subscribe("t")
    world.settle()
    for _ in range(4):
        publisher.publish("t")
        world.run(2)
    rows = [row for row in table(publisher, "learned entries") if row["table of"] == "t publisher p"]
    beside = {
        name
        for key in publisher.algorithm.overlay().keys
        if key.key == "t publisher p"
        for pair in key.levels
        for name in pair
    }
    wanted = {f"t subscriber {node.node_id}" for node in subscribers}
    assert {row["entry"] for row in rows if row["kept as"] == "subscriber"} | (wanted & beside) == wanted
    assert all(str(row["entry"]).endswith(f" {row['node']}") for row in rows)
    assert {row["kept as"] for row in rows} <= {"subscriber", "stranger"}
    (facts,) = (key.facts for key in publisher.algorithm.overlay().keys if key.key == "t publisher p")
    assert len(rows) == facts["learned"]


def test_stla_shows_where_messages_start() -> None:
    world = World("stla")
    publisher, near, far = (
        world.start(name, locality=[place])[0] for name, place in (("p", "eu"), ("s", "eu"), ("z", "us"))
    )
    for node in (near, far):
        node.subscribe("t")
    world.settle()
    publisher.publish("t")
    world.settle()
    (row,) = (row for row in table(publisher, "start nodes") if row["segment"] == "t")
    assert row == {"segment": "t", "start": "t subscriber eu s", "node": "s", "state": "known"}
    assert table(far, "start nodes") == []


def test_sg_tbps_has_nothing_to_learn() -> None:
    world = World("graph")
    (node,) = world.start("a")
    assert node.algorithm.overlay().tables == {}


def test_a_site_with_another_base_is_shown_as_refused_at_both() -> None:
    world = World("graph")
    (a,) = world.start("a")
    (b,) = world.start("b", overlay={"base": 4})
    world.run(30)
    for node, other, here, there in ((a, "b", "2", "4"), (b, "a", "4", "2")):
        view = node.algorithm.overlay()
        assert view.facts["refused nodes"] == 1
        assert view.tables == {
            "refused nodes": [{"node": other, "parameter": "overlay.base", "here": here, "there": there}]
        }
        assert node.counters["nodes_refused"] == 1
        assert [event for event, _ in node.logged].count(
            "node refused: parameters that must be the same differ"
        ) == 1
