"""Links and interest."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import NodeStatus, PluginError, Role
from ildm.testing.contract.probes import TreeProbe
from ildm.testing.contract.stage import Contract, Make, states


class LinkContract(Contract):
    """Links and interest."""

    # links ----------------------------------------------------------------------------------------

    @states("links", "on_link_up", "on_link_down", "Link.node_id", "Link.peer", "Link.dialed",
            "Link.introducer", "Link.wire", "Link.sessions", "Link.__hash__")  # fmt: skip
    def test_links_come_and_go(self, make: Make) -> None:
        """A link is among the links from the call of on_link_up to that of on_link_down."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        assert list(one.api.links) == []
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        for here, far in ((one, two), (two, one)):
            (link,) = here.api.links
            name = far.api.node_id
            assert here.of("up") == [("up", name, True)]
            assert link.node_id == link.peer.node_id == name
            assert {link: 1}[link] == 1
            assert link.dialed is (here is one)
            assert link.introducer is (here is one)
            assert link.wire == (1, 1)
            assert all(session.role is Role.LINK for session in link.sessions)
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        assert one.of("down") == [("down", "b", False)]
        assert two.of("down") == [("down", "a", False)]
        assert list(one.api.links) == list(two.api.links) == []

    @states("on_ildm_add", "on_ildm_remove", "status")
    def test_adding_and_removing_neighbours_is_told_and_shown(self, make: Make) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.until(lambda: one.api.status is NodeStatus.RUNNING)
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down"))
        assert one.of("add", "remove") == [
            ("add", NodeStatus.ILDM_ADDING),
            ("remove", NodeStatus.ILDM_REMOVING),
        ]
        assert one.api.status is NodeStatus.RUNNING

    # interest -------------------------------------------------------------------------------------

    @states("local_interest", "on_interest_changed")
    def test_interest_of_local_clients(self, make: Make) -> None:
        """The highest QoS of all clients counts; nothing is told where nothing changes."""
        stage = make(TreeProbe)
        one = stage.add("a")
        stage.subscribe("a", "t/#", 1, "c1")
        stage.subscribe("a", "t/#", 0, "c2")
        stage.subscribe("a", "u", 2, "c2")
        stage.until(lambda: dict(one.api.local_interest) == {"t/#": 1, "u": 2})
        stage.unsubscribe("a", "t/#", "c1")
        stage.unsubscribe("a", "u", "c2")
        stage.until(lambda: dict(one.api.local_interest) == {"t/#": 0})
        told = [event[1:] for event in one.of("interest")]
        assert [(source, agrees) for source, _, agrees in told] == [(None, True)] * 4
        assert [changes for _, changes, _ in told] == [{"t/#": 1}, {"u": 2}, {"t/#": 0}, {"u": None}]

    @states("Link.inter_subscribe", "Link.inter_unsubscribe", "Link.interest", "Link.announced",
            "on_interest_changed")  # fmt: skip
    def test_interest_of_neighbours(self, make: Make) -> None:
        """What is said already is not said again; the end of a link ends the interest."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link, back = one.link("b"), two.link("a")
        link.inter_subscribe({"x": 0, "y/+": 1})
        assert dict(link.announced) == {"x": 0, "y/+": 1}
        link.inter_subscribe({"x": 0})
        stage.until(lambda: dict(back.interest) == {"x": 0, "y/+": 1})
        link.inter_subscribe({"x": 2})
        stage.until(lambda: back.interest["x"] == 2)
        link.inter_unsubscribe(["y/+", "unknown"])
        stage.until(lambda: dict(back.interest) == {"x": 2})
        assert dict(link.announced) == {"x": 2}
        assert dict(link.interest) == dict(back.announced) == {}
        told = [event[1:] for event in two.of("interest")]
        assert [(source, agrees) for source, _, agrees in told] == [("a", True)] * len(told)
        merged = [item for _, changes, _ in told for item in changes.items()]
        assert merged == [("x", 0), ("y/+", 1), ("x", 2), ("y/+", None)]
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.quiet()
        assert dict(two.link("a").interest) == dict(one.link("b").announced) == {}

    @pytest.mark.parametrize("filters", [{"a/#/b": 1}, {"a": 9}, {"": 0}, {"$SYS/#": 0}, {b"a": 0}])
    @states("Link.inter_subscribe")
    def test_wrong_filters_are_refused(self, make: Make, filters: Any) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        with pytest.raises(PluginError):
            one.link("b").inter_subscribe({"good": 0, **filters})
        assert dict(one.link("b").announced) == {}
        one.link("b").inter_subscribe({"good": 1})
        stage.until(lambda: two.of("interest"))
        assert dict(two.link("a").interest) == {"good": 1}
