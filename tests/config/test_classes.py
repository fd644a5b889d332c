"""Classes of links as they stand in the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ildm.config import parse_config
from tests.config.sections import said


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "link.classes.0.topics"),
        ({"topics": []}, "at least one topic filter"),
        ({"topics": ["a/#/b"]}, "'a/#/b' is no topic filter"),
        ({"topics": ["$share/g/a"]}, "a shared subscription"),
        ({"topics": ["$SYS/#"]}, "topics that begin with $ do not cross"),
        ({"topics": ["a"], "priority": 8}, "link.classes.0.priority"),
        ({"topics": ["a"], "deadline": "5 parsecs"}, "link.classes.0.deadline"),
        ({"topics": ["a"], "expire": 0}, "link.classes.0.expire"),
        ({"topics": ["a"], "expire_acknowledged": True}, "expire_acknowledged: it is without effect"),
        ({"topics": ["a"], "conflate_acknowledged": True}, "conflate_acknowledged: it is without effect"),
        ({"topics": ["a"], "backlog": "first"}, "link.classes.0.backlog"),
        ({"topics": ["a"], "backlog": "after_live", "conflate": "last"}, "conflate wants the newest"),
        ({"topics": ["a"], "share": "10%"}, "link.classes.0.share: unknown key"),
        ({"topics": [f"{n}" for n in range(257)]}, "257 topic filters, and at most 256"),
    ],
)
def test_a_class_that_cannot_be_used_is_named(given: dict[str, Any], expected: str) -> None:
    assert expected in said({"classes": [given]})


def test_classes_are_bounded_and_for_trees() -> None:
    one = {"topics": ["a"]}
    assert said({"classes": [{"topics": ["alarm/#"], "priority": 7, "deadline": "5s", "expire": "6h"}]}) == ""
    assert "17 classes, and at most 16" in said({"classes": [one] * 17})
    open_ = {"listen": "127.0.0.1:1885"}
    assert "link.classes: classes are for trees" in said({**open_, "classes": [one]}, "sg_tbps")
    neighbor = {"url": "b:1", "id": "b", "classes": [one]}
    assert "link.neighbors.0.classes: classes" in said({**open_, "neighbors": [neighbor]}, "sg_tbps")
    assert "classes: for whom it is has to stand in id" in said(
        {"neighbors": [{"url": "b:1", "classes": []}]}
    )


@pytest.mark.parametrize("part", [0.3, "30%", " 30 % "])
def test_a_part_may_be_written_in_percent(part: object) -> None:
    found = parse_config({"algorithm": "sf", "link": {"backlog": part}}, "c.yaml", Path())
    assert found.link.backlog == pytest.approx(0.3)


@pytest.mark.parametrize("part", [0, 1, "x%", "30", "0.1%", "nan%"])
def test_a_part_is_less_than_all_and_more_than_nothing(part: object) -> None:
    assert "link.backlog" in said({"backlog": part})


def test_a_neighbour_may_have_a_part_of_its_own() -> None:
    """By its id, or where it was dialed."""
    neighbors = [{"url": "b:1", "id": "b", "backlog": "10%"}, {"url": "c:1", "backlog": 0.5}, "d:1"]
    given = {"algorithm": "sf", "link": {"backlog": 0.2, "neighbors": neighbors}}
    link = parse_config(given, "c.yaml", Path()).link
    asked = [("b", None), ("x", "c:1"), ("c", None), ("d", "d:1")]
    assert [link.backlog_of(*each) for each in asked] == [0.1, 0.5, 0.2, 0.2]
    assert "link.neighbors.0.backlog" in said({"neighbors": [{"url": "b:1", "backlog": 1}]})


def test_a_neighbour_may_have_classes_of_its_own() -> None:
    common, own = {"topics": ["a"]}, {"topics": ["b"]}
    neighbors = [{"url": "b:1", "id": "b", "classes": [own]}, {"url": "c:1", "id": "c", "classes": []}]
    link = parse_config(
        {"algorithm": "sf", "link": {"classes": [common], "neighbors": neighbors}}, "c.yaml", Path()
    ).link
    assert [each.topics for each in link.classes_for("a")] == [["a"]]
    assert [each.topics for each in link.classes_for("b")] == [["b"]]
    assert link.classes_for("c") == []
