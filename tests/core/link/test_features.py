"""Features of links: their table, how a hello names them, and what two nodes have in common."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from ildm.core.link import features
from ildm.core.link.features import FEATURES, MOST, Feature, decoded, encoded, offered
from ildm.mqtt import ProtocolViolation
from ildm.testing.virtual.world import World
from tests.core.link.test_link_life import break_off
from tests.support.site import row, session_of


def test_a_name_stands_in_the_table_once_with_the_release_it_came_in() -> None:
    assert [name for name, times in Counter(each.name for each in FEATURES).items() if times > 1] == []
    for each in FEATURES:
        assert features.NAME.fullmatch(each.name), each
        assert re.fullmatch(r"\d+\.\d+\.\d+", each.release), each
    assert len(FEATURES) <= MOST


@pytest.mark.parametrize("names", [set(), {"a"}, {"a-1", "b", "z" * 32}, {f"n{i}" for i in range(MOST)}])
def test_what_is_encoded_is_decoded(names: set[str]) -> None:
    assert decoded(encoded(names)) == names


@pytest.mark.parametrize(
    "said",
    ["A", "a,", ",", "a b", "a\n", "é", "z" * 33, ",".join(f"n{i}" for i in range(MOST + 1)), "a" * 60_000],
)
def test_what_is_no_list_of_names_is_refused(said: str) -> None:
    with pytest.raises(ProtocolViolation, match="feature") as raised:
        decoded(said)
    assert len(str(raised.value)) < 200


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of two features, and one that this machine lacks something for."""
    table = (
        Feature("one", "0.3.0"),
        Feature("other", "0.3.0"),
        Feature("lacking", "0.3.0", lambda: False),
    )
    monkeypatch.setattr(features, "FEATURES", table)


@pytest.mark.usefixtures("three")
def test_a_node_names_what_it_can_do_and_is_not_switched_off() -> None:
    assert offered() == {"one", "other"}
    assert offered(["one"]) == {"other"}


@pytest.mark.usefixtures("three")
def test_both_ends_and_each_session_have_the_same_features(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"sessions": 2})
    for site, far in ((a, "b"), (b, "a")):
        assert site.node.links.links[far].features == {"one", "other"}
        for index in (0, 1):
            assert session_of(site, far, index).features == {"one", "other"}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("dialer", [True, False])
def test_a_further_session_with_other_features_is_stale(world: World, dialer: bool) -> None:
    a, b = row(world, "ab", "sf", link={"sessions": 2})
    site, far = (b, "a") if dialer else (a, "b")
    judge = site.node.links.judge
    hello = judge.hello
    fewer = frozenset(("one",))
    judge.hello = lambda *args: replace(hello(*args), features=fewer)  # type: ignore[method-assign]
    break_off(session_of(b, "a", 1))  # b has dialed
    world.run(5)
    link = site.node.links.links[far]
    assert (link.features, link.connected) == ({"one", "other"}, True)
    assert [session.index for session in link.open_sessions] == [0]
    judge.hello = hello  # type: ignore[method-assign]
    world.run(5)
    assert sorted(session.index for session in link.open_sessions) == [0, 1]
