"""Rules on links as they stand in the configuration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ildm.config import Config, ConfigError, parse_config
from ildm.core.plugin.loading import check_reachable, load_plugins
from tests.config.sections import said
from tests.plugins.commands import ildm


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, "give either allow or deny"),
        ({"allow": ["a"], "deny": ["b"]}, "give either allow or deny"),
        ({"allow": []}, "at least one topic filter"),
        ({"allow": ["a/#/b"]}, "'a/#/b' is no topic filter"),
        ({"allow": ["$share/g/a"]}, "a shared subscription"),
        ({"allow": ["$SYS/#"]}, "topics that begin with $ do not cross"),
        ({"allow": ["a"], "local": "p"}, "with a / at the end"),
        ({"allow": ["a"], "remote": "$p/"}, "topics that begin with $"),
        ({"allow": ["a"], "remote": "p/+/"}, "'p/+/' cannot begin a topic"),
        ({"allow": ["a"], "remote": "p" * 1024 + "/"}, "longer than 1024 bytes"),
        ({"deny": ["a"], "qos": 1}, "what is denied has no qos"),
        ({"allow": ["a"], "qos": 3}, "link.rules.0.qos"),
        ({"allow": ["a"], "direction": "up"}, "link.rules.0.direction"),
        ({"allow": ["a"], "prefix": "x/"}, "link.rules.0.prefix: unknown key"),
        ({"allow": [f"{n}" for n in range(257)]}, "more than 256 filters"),
        ({"allow": [f"{n}/" + "x" * 1000 for n in range(70)]}, "more than 65536 bytes"),
        ({"deny": ["a"]}, "no rule allows anything"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule: dict[str, Any], expected: str) -> None:
    assert expected in said({"rules": [rule]})


def test_rules_that_give_two_topics_one_name_are_refused() -> None:
    text = said({"rules": [{"allow": ["#"], "local": "a/"}, {"allow": ["#"], "local": "b/"}]})
    assert "c.yaml: link.rules: 'a/#' and 'b/#' both become '#' (out)" in text


def test_rules_of_single_neighbours() -> None:
    rules = [{"allow": ["a"]}]
    assert said({"neighbor_rules": [{"id": "b", "rules": rules}]}) == ""
    twice = {"neighbor_rules": [{"id": "b", "rules": rules}] * 2}
    assert "there are two with the id b" in said(twice)
    assert "link.neighbor_rules.0.id" in said({"neighbor_rules": [{"id": "a b", "rules": rules}]})


@pytest.mark.parametrize(
    ("link", "common"),
    [
        ({}, []),
        ({"neighbors": ["b:1", {"url": "c:1", "id": "c"}]}, []),
        ({"neighbor_rules": [{"id": "b", "rules": [{"allow": ["a"]}]}]}, [["#"]]),
        ({"neighbors": [{"url": "b:1", "id": "b", "rules": [{"allow": ["a"]}]}]}, [["#"]]),
        ({"rules": [], "neighbor_rules": [{"id": "b", "rules": [{"allow": ["a"]}]}]}, []),
        ({"rules": [{"allow": ["x"]}], "neighbor_rules": [{"id": "b", "rules": []}]}, [["x"]]),
    ],
)
def test_a_neighbour_under_another_id_exchanges_nothing(
    link: dict[str, Any], common: list[list[str]]
) -> None:
    found = parse_config({"algorithm": "sf", "link": link}, "f", Path()).link.rules_for("B")
    assert [rule.filters for rule in found] == common
    assert not found or found[0].allows is (common == [["x"]])


RULES: list[dict[str, Any]] = [{"allow": ["a"]}]
GIVEN: dict[str, list[dict[str, Any]]] = {
    "rules": RULES,
    "neighbor_rules": [{"id": "b", "rules": RULES}],
    "neighbors.0.rules": [{"url": "b:1", "id": "b", "rules": RULES}],
}


@pytest.mark.parametrize("algorithm", ["sg_tbps", "atm_tbps"])
@pytest.mark.parametrize("key", GIVEN)
def test_an_overlay_says_why_it_takes_none(algorithm: str, key: str) -> None:
    text = said({key.partition(".")[0]: GIVEN[key]}, algorithm)
    assert f"link.{key}: rules are for trees of links (pf, sf)" in text
    assert algorithm in text
    assert "publish says what clients may send" in text


def whole(site: list[dict[str, Any]], algorithm: str | None) -> Config:
    link = {"listen": "127.0.0.1:1"}
    return Config.model_validate({"algorithm": algorithm, "site": {"rules": site}, "link": link})


@pytest.mark.parametrize("algorithm", ["pf", "sf", None])
def test_rules_of_the_site_are_for_overlays(algorithm: str | None) -> None:
    config = whole([{"allow": ["a"]}], algorithm)
    with pytest.raises(ConfigError, match=r"^site[.]rules: they are for overlays"):
        check_reachable(config, load_plugins(config))
    within = whole([{"allow": ["a"]}], "sg_tbps")
    check_reachable(within, load_plugins(within))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"allow": ["a"], "local": "b/"}, "site.rules.0.local\n  Extra inputs"),
        ({"deny": ["a"], "qos": 1}, "what is denied has no qos"),
        ({"deny": ["a"]}, "no rule allows anything"),
        ({"allow": ["$SYS/#"]}, "topics that begin with"),
    ],
)
def test_rules_of_the_site_know_no_other_names(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(says)):
        whole([rule], "sg_tbps")


def test_check_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("algorithm: sg_tbps\nlink: {rules: [{allow: [a]}]}\n")
    done = ildm(tmp_path, "check", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ildm: {path}: link.rules: rules are for trees of links")
