"""The patterns of the evaluation and the scenarios that come with the project (thesis 5.6, Fig. 5.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.testbed.patterns import PATTERNS, SCENARIOS, find_pattern, site_makes
from ildm_bench.testbed.spec import SpecError

FILES = sorted(SCENARIOS.glob("*.yaml"))


def clients_at(scenario: Scenario, site: int) -> int:
    return sum(
        scenario.counts(topic, role)[site]
        for topic in scenario.throughput_topics
        for role in ("publishers", "subscribers")
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_loads_under_its_own_name(path: Path) -> None:
    assert load_scenario(path).name == path.stem


def test_all_scenarios_are_there() -> None:
    expected = {f"pattern-{name.lower()}" for name in PATTERNS}
    expected |= {"single", "link", "two-sites-latency", "heterogeneous", "quick"}
    assert expected <= {path.stem for path in FILES}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
def test_each_pattern_has_the_clients_of_figure_5_9(pattern: object) -> None:
    """Five topics with ten publishers and ten subscribers each, the same number of clients at each site."""
    found = PATTERNS[pattern.name]  # type: ignore[attr-defined]
    scenario = load_scenario(found.scenario)
    assert scenario.sites == found.sites
    assert scenario.sp_ratio == 10
    for topic in scenario.throughput_topics:
        assert sum(scenario.counts(topic, "publishers")) == sum(scenario.counts(topic, "subscribers")) == 10
    assert {clients_at(scenario, site) for site in range(scenario.sites)} == {100 // scenario.sites}
    latency = next(topic for topic in scenario.topics if topic.clients == "latency")
    assert scenario.counts(latency, "publishers") == [1] + [0] * (scenario.sites - 1)
    assert scenario.counts(latency, "subscribers") == [1] * scenario.sites
    assert (latency.interval, scenario.duration, scenario.qos) == (1000, 80, 0)
    assert (scenario.payload.min, scenario.payload.max) == (32, 32)


def placement(name: str, site: int) -> list[int]:
    """Publishers of topic1 to topic5 at a site."""
    scenario = load_scenario(PATTERNS[name].scenario)
    return [scenario.counts(topic, "publishers")[site] for topic in scenario.throughput_topics]


def test_locality_is_that_of_the_thesis() -> None:
    assert [placement("none", site) for site in (0, 4)] == [[2, 2, 2, 2, 2]] * 2
    assert placement("low", 0) == [8, 1, 1, 0, 0]
    assert placement("low", 3) == [1, 0, 0, 8, 1]
    assert placement("high", 1) == [0, 10, 0, 0, 0]


def test_a_pattern_is_found_whatever_its_letters() -> None:
    assert find_pattern("a") is PATTERNS["A"]
    assert find_pattern("HIGH") is PATTERNS["high"]


@pytest.mark.parametrize(
    ("name", "said"), [("C", "swap C and D"), ("medium", "'medium' is none of A, none, low, high")]
)
def test_an_unknown_pattern_is_named(name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        find_pattern(name)


def test_makes_take_turns() -> None:
    assert site_makes(["mosquitto", "amqtt"], 3) == ["mosquitto", "amqtt", "mosquitto"]
    for makes in ([], ["mosquitto"] * 4):
        with pytest.raises(SpecError, match=f"{len(makes)} makes for 3 sites"):
            site_makes(makes, 3)
