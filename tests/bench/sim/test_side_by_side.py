"""One publish under each algorithm."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from ildm_bench.sim.experiments.beyond import side_by_side
from ildm_bench.sim.experiments.beyond.side_by_side import (
    METHODS,
    flooding_case,
    nodes_of,
    scribe_case,
    skip_graph_cases,
    subscriber_counts,
)


@pytest.fixture(scope="module")
def tables() -> dict[str, list[dict]]:
    said: list[str] = []
    found = side_by_side.run("small", 3, said.append)
    assert len(said) == len(subscriber_counts("small"))
    return {name: rows.to_pylist() for name, rows in found.items()}


def test_every_method_is_there_for_every_case(tables: dict[str, list[dict]]) -> None:
    cases = [(row["method"], row["subscribers"], row["repeat"]) for row in tables["messages"]]
    assert len(cases) == len(set(cases)) == len(METHODS) * len(subscriber_counts("small")) * 5
    assert {method for method, _, _ in cases} == set(METHODS)


def test_every_subscriber_is_reached_once(tables: dict[str, list[dict]]) -> None:
    reached: dict[tuple[str, int, int], int] = defaultdict(int)
    for row in tables["hops"]:
        reached[row["method"], row["subscribers"], row["repeat"]] += row["pairs"]
        assert row["hops"] >= 1 or row["method"] == "Scribe"
    for row in tables["messages"]:
        assert reached[row["method"], row["subscribers"], row["repeat"]] == row["subscribers"]


def test_messages_are_as_the_algorithms_have_it(tables: dict[str, list[dict]]) -> None:
    nodes = nodes_of("small")
    for row in tables["messages"]:
        subscribers, messages = row["subscribers"], row["messages"]
        match row["method"].split(", ")[0]:
            case "PF":
                assert messages == nodes - 1
            case "SF":
                assert subscribers <= messages <= (nodes - 1 if subscribers else 0)
            case "SG-TBPS":
                assert messages == subscribers  # the publisher stands beside the segment, nobody else relays
            case "Scribe":
                assert messages >= max(1, subscribers)


def test_flooding_on_a_line_takes_the_distance() -> None:
    case = flooding_case("SF", "line", 10, 1, seed=4)
    assert case.hops == {case.messages: 1}


def test_a_suspended_publisher_sends_nothing_and_scribe_one_message() -> None:
    generator = np.random.default_rng(1)
    assert [case.messages for case in skip_graph_cases(generator, 50, 0)] == [0, 0]
    assert scribe_case(generator, 50, 0).messages == 1
