"""Scenario files: what is wrong in one is said with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.load.scenario import Scenario, ScenarioError, load_scenario
from tests.bench.load.support import scenario

TOPIC = "topics: [{name: t, publishers: 1, subscribers: 1}]"
CONFIGS = sorted((Path(__file__).parents[3] / "configs" / "bench").glob("*.yaml"))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "a mapping of keys"),
        ("- 1", "a mapping of keys"),
        ("name: [", "line 1"),
        ("name: 2024-02-30", "day"),
        (TOPIC, "name: "),
        ("name: x", "topics: "),
        (f"name: a b\n{TOPIC}", "name: "),
        (f"name: x\nspeed: 1\n{TOPIC}", "speed: "),
        (f"name: x\nqos: 3\n{TOPIC}", "qos: "),
        (f"name: x\nprotocol: '4'\n{TOPIC}", "protocol: "),
        (f"name: x\npayload: 31\n{TOPIC}", "payload: "),
        (f"name: x\npayload: big\n{TOPIC}", "payload: 32 to 1048576 bytes, or {min: BYTES, max: BYTES}"),
        (f"name: x\npayload: {{min: 80}}\n{TOPIC}", "payload.max: "),
        (f"name: x\npayload: {{min: 80, max: 79}}\n{TOPIC}", "payload: min 80 is more than max 79"),
        (f"name: x\nconnect_rate: 0\n{TOPIC}", "connect_rate: "),
        (
            f"name: x\n{TOPIC.replace('publishers: 1', 'publishers: 1, names: 0')}",
            "names: 1 to 100000, or own",
        ),
        (f"name: x\n{TOPIC.replace('publishers: 1', 'publishers: 1, names: all')}", "topics.0.names: "),
        (f"name: x\ninterval: 0\n{TOPIC}", "interval: "),
        (f"name: x\ninterval: 1.0e-9\n{TOPIC}", "interval: "),
        (f"name: x\ninterval: .inf\n{TOPIC}", "interval: "),
        (f"name: x\nduration: .nan\n{TOPIC}", "duration: "),
        (f"name: x\nduration: 20\n{TOPIC}", "warm_up and cool_down"),
        (f"name: x\nsites: 2\n{TOPIC.replace('publishers: 1', 'publishers: [1]')}", "1 numbers for 2 sites"),
        (f"name: x\n{TOPIC.replace('name: t', 'name: t/#')}", "topics.0.name: "),
        (f"name: x\n{TOPIC.replace('publishers: 1', 'publishers: -1')}", "topics.0.publishers"),
        (f"name: x\n{TOPIC.replace('publishers: 1', 'publishers: 1, interval: 5')}", "topics.0: an interval"),
        (f"name: x\n{TOPIC.replace('publishers: 1', 'publishers: 1, clients: latency')}", "topics.0: an"),
        (f"name: x\n{TOPIC[:-1]}, {TOPIC[9:]}", "topic 't' stands there twice"),
    ],
)
def test_bad_input_is_named_with_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.yaml", "binary.yaml"):
        with pytest.raises(ScenarioError, match=name):
            load_scenario(tmp_path / name)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_scenarios_that_come_along_can_be_used(path: Path) -> None:
    found = load_scenario(path)
    assert found == Scenario.model_validate_json(found.model_dump_json())
    assert sum(sum(found.counts(topic, "publishers")) for topic in found.topics) > 0


def test_a_number_of_clients_stands_for_site_0() -> None:
    two = scenario(sites=2, topics=[{"name": "t", "publishers": 3, "subscribers": [1, 4]}])
    assert two.counts(two.topics[0], "publishers") == [3, 0]
    assert two.counts(two.topics[0], "subscribers") == [1, 4]


def test_sp_ratio_counts_deliveries_per_message_of_t_clients() -> None:
    found = scenario(
        topics=[
            {"name": "a", "publishers": 3, "subscribers": 2},
            {"name": "b", "publishers": 1, "subscribers": 6},
            {"name": "l", "clients": "latency", "interval": 100, "publishers": 9, "subscribers": 9},
        ]
    )
    assert found.sp_ratio == (3 * 2 + 1 * 6) / 4


def test_topic_names_are_used_in_turn_or_are_the_publishers_own() -> None:
    found = scenario(
        topics=[
            {"name": "a", "publishers": 1, "subscribers": 1},
            {"name": "b", "publishers": 1, "subscribers": 1, "names": 3},
            {"name": "c", "publishers": 1, "subscribers": 1, "names": "own"},
        ]
    )
    assert [topic.topic_filter for topic in found.topics] == ["a", "b/+", "c/+"]
    assert [topic.names_of(7) for topic in found.topics] == [["a"], ["b/1", "b/2", "b/0"], ["c/7"]]


def test_shortened_cuts_all_parts_alike() -> None:
    short = scenario(duration=80, warm_up=10, cool_down=20).shortened(8)
    assert (short.duration, short.warm_up, short.cool_down) == (8, 1, 2)
