"""What the generator costs beside the broker: both are measured, and another generator in its place."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.micro.generator import OTHER, OWN, SCENARIOS, beside, own, report
from tests.support.brokers import require_broker

pytestmark = pytest.mark.broker
RATE = 2000.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    require_broker("mosquitto")
    broker = Mosquitto(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def scenario() -> Scenario:
    return load_scenario(SCENARIOS / "single.yaml").shortened(3.0)


def test_both_processes_are_measured(
    broker: Mosquitto, scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = own(scenario, RATE, broker, tmp_path)
    assert mine.egress > 0
    assert mine.generator > 0
    assert mine.broker > 0
    python = shlex.quote(sys.executable)
    load = f"{python} -m ildm_bench.micro.load --port {{port}} --seconds {{seconds}} --window 1"
    other = beside(load, scenario, RATE, broker)
    assert other.egress > 0
    assert other.generator > 0
    assert other.broker > 0
    report({"fixed": {OWN: [mine], OTHER: [other]}})
    table = capsys.readouterr().out
    assert f"{mine.generator:.2f}" in table
    assert f"{other.broker:.2f}" in table


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("pass", "ended after less than 3 s"),
        ("import time; time.sleep(4); raise SystemExit(3)", "exit status 3"),
        ("import time; time.sleep(4); print(5)", "no JSON object with egress"),
        ("import time; time.sleep(4)", "no JSON object with egress"),
    ],
)
def test_another_generator_that_fails_is_named(
    broker: Mosquitto, scenario: Scenario, program: str, said: str
) -> None:
    with pytest.raises(RuntimeError, match=said):
        beside(shlex.join([sys.executable, "-c", program]), scenario, RATE, broker)
