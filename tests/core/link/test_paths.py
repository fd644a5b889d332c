"""Questions whether a node is reached: what is none ends the session, and nothing grows with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ildm.core.link.control import PATH
from ildm.core.link.paths import LARGEST, PAUSE, Paths
from ildm.core.link.topology import MAX_NUMBER
from ildm.core.link.tree import TreeMembership
from ildm.mqtt import Publish, Version
from ildm.testing.virtual.world import World
from tests.support.site import row, session_of

GOOD = [False, 1, "b", "x", 3]


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


def test_no_answer_passes_a_node_that_counts_who_has_given_it_to_what_is_behind_the_link() -> None:
    """What it has under way on another session would be overtaken. It asks now, but not each time."""
    world = World()
    _, b, _ = row(world, "abc", "pf")
    membership = b.node.links.membership
    assert isinstance(membership, TreeMembership)
    sent: list[tuple[bool, str, str]] = []
    membership.paths._send = (  # type: ignore[method-assign]
        lambda link, answer, number, to, sender, hops: sent.append((answer, to, sender))
    )
    answer = Publish(topic=PATH, payload=json.dumps([True, 7, "a", "c", 3]).encode()).encode(Version.V5)
    session_of(b, "c").data_received(answer)
    assert sent == [(True, "a", "c")]
    b.node.links.links["a"].subtree.nodes.add("c")
    for _ in range(3):
        session_of(b, "c").data_received(answer)
    assert sent[1:] == [(False, "c", "b")]
    world.run(PAUSE)
    session_of(b, "c").data_received(answer)
    assert sent[2:] == [(False, "c", "b")]


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
