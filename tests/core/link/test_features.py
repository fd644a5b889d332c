"""Features of links: their table, how a hello names them, and what two nodes have in common."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ildm.admin.families import OVERLAY_WIRE
from ildm.api import OverlayAlgorithm, TreeAlgorithm
from ildm.config import Address, LinkConfig
from ildm.config import link as link_config
from ildm.core.counters import Counters
from ildm.core.link import features
from ildm.core.link.features import FEATURES, MOST, Feature, decoded, encoded, offered
from ildm.core.link.versions import Range
from ildm.mqtt import ProtocolViolation, Publish
from ildm.net.figures import scrape
from ildm.net.reload.settings import take_up
from ildm.net.view import LiveView
from ildm.testing.virtual.world import World
from tests.core.link.test_link_life import break_off
from tests.support.site import Site, row, session_of


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


# another configuration -----------------------------------------------------------------------------


def reload(world: World, site: Site, **link: Any) -> None:
    """The section ``link`` gets other values, as from the file."""
    values = site.node.config.link.model_dump(mode="json", exclude_unset=True) | link
    take_up(site.node.config, site.node.config.model_copy(update={"link": LinkConfig.model_validate(values)}))
    site.node.settings_changed()
    world.run(5)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("dialer", [True, False])
def test_a_feature_is_disabled_and_enabled_without_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch, dialer: bool
) -> None:
    monkeypatch.setattr(link_config, "FEATURES", features.FEATURES)
    sites = a, b = row(world, "ab", "sf", link={"sessions": 2})
    subscriber = a.subscriber("t", qos=1)
    changed = b if dialer else a
    links = [a.node.links.links["b"], b.node.links.links["a"]]
    for disabled, expected in ((["one"], {"other"}), ([], {"one", "other"})):
        reload(world, changed, features={"disabled": disabled})
        b.client("p").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
        world.run(1)
        for link, site, far in zip(links, sites, "ba", strict=True):
            assert site.node.links.links[far] is link, "it goes on where it was"
            assert (link.connected, link.features) == (True, expected)
            assert [s.features for s in link.open_sessions] == [expected, expected]
    assert [each.topic for each in subscriber.got(Publish)] == ["t", "t"]


@pytest.mark.usefixtures("three")
def test_a_reload_that_changes_nothing_of_a_link_leaves_it_alone(world: World) -> None:
    a, b = row(world, "ab", "sf", secret="a secret of some length")
    sessions = session_of(a, "b"), session_of(b, "a")
    reload(world, a, protocol={"lowest": 3})
    assert (session_of(a, "b"), session_of(b, "a")) == sessions


def test_a_neighbour_of_a_lower_protocol_is_refused_from_a_reload_on_and_taken_again(
    world: World,
) -> None:
    a, b = Site(world, "a", "sf"), Site(world, "b", "sf", protocols=Range(2, 2))
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    assert [site.node.links.links[far].protocol for site, far in ((a, "b"), (b, "a"))] == [2, 2]
    reload(world, a, protocol={"lowest": 3})
    assert (a.links(), b.links()) == ({"b": "not"}, {"a": "not"})
    ((neighbor,),) = [b.node.links.neighbors.values()]
    assert neighbor.state == "refused"
    assert neighbor.reason == "a speaks version 3 of the link protocol, b speaks version 2"
    assert a.node.counters["links_refused_version"] >= 1
    reload(world, a, protocol={"lowest": 2})
    world.run(60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})


def test_an_unknown_feature_cannot_be_disabled() -> None:
    with pytest.raises(ValueError, match="there is no feature 'telepathy'"):
        LinkConfig.model_validate({"features": {"disabled": ["telepathy"]}})


class Speaking(TreeAlgorithm):
    """Has messages of its own."""

    wire = (2, 4)


def test_algorithms_know_what_the_neighbour_reads_of_their_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Site(world, "a", Speaking)
    monkeypatch.setattr(Speaking, "wire", (1, 3))
    b, c = Site(world, "b", Speaking), Site(world, "c", Speaking)
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    assert [site.node.links.links[far].wire for site, far in ((a, "b"), (b, "a"))] == [(1, 3), (2, 4)]
    c.node.links.judge.parts = replace(c.node.links.judge.parts, wire=(1, 1))
    c.node.links.add(Address("a", 2), False)
    world.run(3)
    ((neighbor,),) = [c.node.links.neighbors.values()]
    text = "a reads versions 2 to 4 of the messages of 'own', c reads version 1"
    assert (neighbor.state, neighbor.reason) == ("refused", text)


class Spreading(OverlayAlgorithm):
    """Its messages travel through others."""

    wire = (1, 3)


def test_an_overlay_tells_which_messages_all_its_neighbours_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lowest(site: Site) -> list[float]:
        kept: Any = SimpleNamespace(waiting_rows=0, waiting_bytes=0, failure=None, counters=Counters())
        view = LiveView(site.node, kept, lambda: None)
        found = dict(scrape(view, None, "1", True, True))
        return [sample.value for sample in found.get(OVERLAY_WIRE, [])]

    a = Site(world, "a", Spreading, link={"advertise": "a:2"})
    monkeypatch.setattr(Spreading, "wire", (1, 2))
    b, tree = Site(world, "b", Spreading, link={"advertise": "b:2"}), Site(world, "c", "sf")
    assert (lowest(a), lowest(b), lowest(tree)) == ([3], [2], [])
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    assert (lowest(a), lowest(b)) == ([2], [2])
    b.node.links.remove("a")
    world.run(3)
    assert lowest(a) == [3]
