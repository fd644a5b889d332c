"""The scenarios that ship, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.load.scenario import ScenarioError, load_scenario
from bench.testbed.patterns import PATTERNS

CONFIGS = Path(__file__).parents[2] / "configs/bench"
FILES = sorted(CONFIGS.glob("*.yaml"))
PAPER = ("single", "pattern-a", "pattern-none", "pattern-low", "pattern-high")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_scenarios_load_and_are_named_as_their_files(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.throughput_topics
    assert any(topic.clients == "latency" for topic in scenario.topics)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_scenarios(name: str) -> None:
    """Thesis 5.6: 5 topics with 10 publishers and 10 subscribers, 32 bytes, QoS 0, 80 s less twice 10 s."""
    scenario = load_scenario(CONFIGS / f"{name}.yaml")
    assert scenario.sp_ratio == 10
    assert (scenario.payload, scenario.qos) == (32, 0)
    assert (scenario.duration, scenario.warm_up, scenario.cool_down) == (80, 10, 10)
    for topic in scenario.throughput_topics:
        assert sum(scenario.counts(topic, "publishers")) == sum(scenario.counts(topic, "subscribers")) == 10
    (l_clients,) = [topic for topic in scenario.topics if topic.clients == "latency"]
    assert l_clients.interval == 1000
    assert sum(scenario.counts(l_clients, "publishers")) == 1


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_has_its_scenario(name: str) -> None:
    pattern = PATTERNS[name]
    scenario = load_scenario(pattern.scenario)
    assert scenario.sites == pattern.sites
    if pattern.sites > 1:
        for site in range(pattern.sites):
            here = [scenario.counts(topic, "publishers")[site] for topic in scenario.throughput_topics]
            assert sum(here) == 10  # 20 t-clients at each site, half of them publishers


VALID = """
name: x
topics:
  - {name: a, publishers: 1, subscribers: 1}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VALID + "colour: red\n", "colour"),
        (VALID + "duration: 5\n", "warm_up and cool_down"),
        (VALID + "duration: long\n", "duration"),
        (VALID + "payload: 31\n", "payload"),
        (VALID + "qos: 3\n", "qos"),
        (VALID + "interval: 0\n", "interval"),
        (VALID + "sites: 2\n  - oops\n", "scenario.yaml"),
        (VALID + "  - {name: a, publishers: 1, subscribers: 1}\n", "'a' stands there twice"),
        (VALID + "  - {name: a/+, publishers: 1, subscribers: 1}\n", "topics.1.name"),
        (VALID + "  - {name: b, publishers: [1, 2], subscribers: 1}\n", "2 numbers for 1 sites"),
        (VALID + "  - {name: b, clients: latency, publishers: 1, subscribers: 1}\n", "topics.1"),
        (VALID + "  - {name: b, interval: 5, publishers: 1, subscribers: 1}\n", "topics.1"),
        ("- a\n", "mapping"),
        ("name: [\n", "scenario.yaml"),
    ],
)
def test_a_wrong_scenario_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"scenario\.yaml") as refused:
        load_scenario(path)
    assert said in str(refused.value)


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="nowhere"):
        load_scenario(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"binary\.yaml"):
        load_scenario(tmp_path / "binary.yaml")


def test_shortened_keeps_the_proportions() -> None:
    scenario = load_scenario(CONFIGS / "single.yaml").shortened(8)
    assert (scenario.duration, scenario.warm_up, scenario.cool_down) == (8, 1, 1)
    assert scenario.topics == load_scenario(CONFIGS / "single.yaml").topics
