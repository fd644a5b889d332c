"""Questions whether a node is reached: what is none ends the session, and nothing grows with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ildm.core.link.control import PATH
from ildm.core.link.paths import LARGEST, Paths
from ildm.core.link.topology import MAX_NUMBER
from ildm.mqtt import Publish, Version
from ildm.testing.virtual.world import World
from tests.core.test_tracing import row, session_of

GOOD = [False, 1, "b", "x", 3]


@pytest.fixture
def world() -> World:
    return World()


def come(world: World, payload: bytes) -> dict[str, Any]:
    a, _ = row(world, "ab", "pf")
    session_of(a, "b").data_received(Publish(topic=PATH, payload=payload).encode(Version.V5))
    world.run(1)
    return {"malformed": a.node.counters["link_malformed"], "links": a.links()}


@pytest.mark.parametrize(
    "question",
    [
        [],
        {},
        GOOD[:4],
        [*GOOD, 1],
        [0, *GOOD[1:]],
        [False, -1, *GOOD[2:]],
        [False, MAX_NUMBER, *GOOD[2:]],
        [False, True, *GOOD[2:]],
        [False, 1, "", "x", 3],
        [False, 1, "b", 7, 3],
        [False, 1, "b", "x" * 1000, 3],
        [False, 1, "b", "x", -1],
        [False, 1, "b", "x", 0.5],
    ],
)
def test_what_cannot_be_a_question_ends_the_session(world: World, question: Any) -> None:
    assert come(world, json.dumps(question).encode())["malformed"] == 1


@pytest.mark.parametrize("payload", [b"", b"{", b"[" * 900, b"\xff", b"[NaN]", b" " * (LARGEST + 1)])
def test_nor_does_what_is_no_json(world: World, payload: bytes) -> None:
    assert come(world, payload)["malformed"] == 1


@pytest.mark.parametrize("to", ["a", "b", "nobody"])
@pytest.mark.parametrize("answer", [True, False])
def test_any_other_is_answered_passed_on_or_nothing(world: World, to: str, answer: bool) -> None:
    payload = json.dumps([answer, 7, to, "x", 3]).encode()
    assert come(world, payload) == {"malformed": 0, "links": {"b": "active"}}


def test_no_more_nodes_are_remembered_than_there_may_be(world: World) -> None:
    a, _ = row(world, "ab", "pf")
    link = a.node.links.links["b"]
    paths = Paths(a.node.driver, "a", lambda node: link, 10, lambda node: None)
    for number in range(1000):
        assert not paths.known(f"n{number}", 0.0)
        paths.came(link, json.dumps([True, 2 * number + 1, "a", f"n{number}", 3]).encode())
        assert paths.known(f"n{number}", 0.0)
        assert not paths.known(f"silent-{number}", 0.0)
        assert paths.remembered <= 2 * 10 + 2
