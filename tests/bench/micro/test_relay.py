"""The ways of the relay benchmark that use hooks: the plugins are called as often as their kind says."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm_bench.micro.hooks import HOOKS, name_of
from ildm_bench.micro.relay import HookedNode, load, relay, report, way_of
from tests.support.brokers import require_broker

pytestmark = pytest.mark.broker
TOPICS, CLIENTS = 5, 100
"""Of the load: 5 topics with 10 publishers and 10 subscribers each."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    require_broker("mosquitto")
    broker = Mosquitto(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


def calls_of(node: HookedNode) -> dict[str, int]:
    """Plugin -> calls, as they log when the node stops."""
    entries = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return {entry["plugin"]: entry["calls"] for entry in entries if entry["event"] == "hooks called"}


@pytest.mark.parametrize("way", HOOKS)
def test_hooks_are_called(
    way: str, broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = HookedNode(tmp_path / "node", broker.address, way)
    node.start()
    try:
        assert broker.process is not None
        assert node.process is not None
        result = load(node.port, 0.1, [broker.process.pid, node.process.pid])
        node.stop()
    finally:
        node.kill()
    calls = calls_of(node)
    expected = {
        "bench-eachtopic": TOPICS,
        "bench-admission": CLIENTS + CLIENTS // 2,  # each subscriber has one subscription
    }
    assert set(calls) == {name_of(plugin) for plugin in HOOKS[way]}
    for name, number in calls.items():
        if name in expected:
            assert number == expected[name]
        else:
            assert number >= int(result["ingress"] * result["seconds"])
    report({way: [result]})
    assert way in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "algorithm", "filters"),
    [
        ("algorithm:{name: sf}", {"name": "sf"}, []),
        ("algorithm:pf", "pf", []),
        ("filter:{name: text-check, topics: [t]}", None, [{"name": "text-check", "topics": ["t"]}]),
        ("none", None, None),
    ],
)
def test_an_installed_plugin_is_a_way(
    way: str, algorithm: object, filters: object, broker: Mosquitto, tmp_path: Path
) -> None:
    node = relay(tmp_path, way_of(way), broker)
    assert isinstance(node, NodeProcess)
    assert node.document["algorithm"] == algorithm
    assert node.document.get("filters") == filters


def test_what_is_no_way_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected one of admit, all, direct"):
        way_of("far")
