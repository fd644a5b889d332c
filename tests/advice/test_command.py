"""`ildm advise`: a file with its faults named by line and key, and what a running node knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm.admin.client import Page
from ildm.admin.view import AdminError
from ildm.advice import load_network
from ildm.advice.known import known
from ildm.cli.app import app
from ildm.config import ConfigError

EXAMPLE = Path(__file__).parents[2] / "configs/networks/three-regions.yaml"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "network.yaml"
    path.write_text(text)
    return path


def test_a_planned_network_gets_an_answer() -> None:
    done = CliRunner().invoke(app, ["advise", str(EXAMPLE)])
    assert done.exit_code == 0, done.output
    name, *why = done.output.splitlines()
    assert name == "atm_tbps"
    assert len(why) >= 3
    as_json = CliRunner().invoke(app, ["advise", str(EXAMPLE), "--json", "--prefer", "traffic"])
    found = json.loads(as_json.output)
    assert found["algorithm"] == found["estimates"][0]["algorithm"] != "atm_tbps"
    assert (found["network"]["prefer"], found["assumed"]) == ("traffic", [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sites: 5\ntopics:\n  - {subscribers: 2}\nregoins: 2\n", r":4: regoins: unknown key \(regions\?\)"),
        ("sites: 1\ntopics: [{subscribers: 1}]\n", r":1: sites: .* greater than or equal to 2 \(found 1\)"),
        ("sites: 5\n\ntopics:\n  - subscribers: 2\n    rate: 0\n", r":5: topics\.0\.rate: .*greater than 0"),
        ("sites: 5\ntopics:\n- {rate: 1}\n", r":3: topics\.0\.subscribers: Field required"),
        ("sites: 5\ntopics: [{subscribers: 5}]\n", r":1: .*topics\.0\.subscribers: 5 sites .* \(sites: 5\)"),
        ("sites: 5\nregions: 2\ntopics: [{subscribers: 1}]\n", "far_ms: is needed where there are several"),
        ("sites: 2\nregions: 3\nfar_ms: 1\ntopics: [{subscribers: 1}]\n", "regions: 3 are more than"),
        ("topics: [{subscribers: 1}]\n", ":1: sites: Field required"),
        ("sites: 5\ntopics: []\n", r":2: topics: .*at least 1 item"),
        ("- sites", "expected a mapping of keys, found list"),
        ("a: [", "not YAML"),
    ],
)
def test_faults_are_named_with_line_and_key(text: str, reason: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=reason) as refused:
        load_network(path)
    assert str(refused.value).startswith(f"{path}:")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_network(tmp_path / "none.yaml")


def neighbor(name: str, rtt: float | None) -> dict[str, object]:
    return {"node_id": name, "rtt": rtt}


def subscribed(topic_filter: str, *sources: str) -> list[dict[str, object]]:
    return [{"filter": topic_filter, "qos": 1, "source": source} for source in sources]


def page(rows: list[dict[str, object]], total: int | None = None) -> Page:
    return Page(len(rows) if total is None else total, rows)


WANTED = [
    *subscribed("state/#", "neighbor a", "neighbor b", "neighbor c", "client x"),
    *subscribed("own", "client x"),
]


def test_a_node_tells_sites_distances_and_what_they_want() -> None:
    neighbors = page([neighbor("a", 0.002), neighbor("b", 0.003), neighbor("c", 0.080)])
    found = known(neighbors, page(WANTED), None, "traffic")
    network = found.network
    assert (network.sites, network.regions, network.prefer) == (4, 2, "traffic")
    assert network.near_ms == pytest.approx(1.25)
    assert network.far_ms == pytest.approx(40)
    assert [(topic.name, topic.subscribers) for topic in network.topics] == [("state/#", 3)]
    assert any("this one and its neighbours" in line for line in found.assumed)


def test_an_overlay_knows_how_many_sites_there_are() -> None:
    found = known(page([neighbor("a", None)]), page(WANTED), 50, "delay")
    assert (found.network.sites, found.network.regions, found.network.near_ms) == (50, 1, 1.0)
    assert any("no neighbour has answered a ping" in line for line in found.assumed)
    assert not any("as it sees no farther" in line for line in found.assumed)


def test_neighbors_that_are_all_far_are_regions_of_their_own() -> None:
    found = known(page([neighbor("a", 0.050), neighbor("b", 0.060)]), page(WANTED[:2]), None, "delay")
    assert found.network.regions == 3
    assert found.network.far_ms == pytest.approx(27.5)


def test_pages_that_are_cut_off_are_told() -> None:
    found = known(page([neighbor("a", 0.001)], 2000), page(WANTED[:1]), None, "delay")
    assert "2,000 neighbours are like the first 1,000" in found.assumed


def test_a_node_that_knows_nothing_says_so() -> None:
    with pytest.raises(AdminError, match="knows no other site"):
        known(page([]), page([]), None, "delay")
    with pytest.raises(AdminError, match="wants anything yet"):
        known(page([neighbor("a", 0.1)]), page(WANTED[3:]), None, "delay")


def test_no_node_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["advise", "--socket", str(tmp_path / "none.sock")])
    assert done.exit_code != 0
    assert CliRunner().invoke(app, ["advise", str(EXAMPLE), "--prefer", "luck"]).exit_code != 0
