"""Innocent clients get their messages under each flood, and the benchmark tells how soon."""

from __future__ import annotations

import pytest

from ildm_bench.micro.attack import FLOODS, attacked
from ildm_bench.micro.innocents import QUIET, Case, Innocent, noticed
from tests.support.brokers import Mosquitto, require_broker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("kind", [QUIET, *FLOODS])
def test_a_flood_is_survived(kind: str) -> None:
    require_broker("mosquitto")
    found = noticed(Case("node", kind), seconds=0.3, clients=5)
    assert found["round_trips"] >= 1
    assert 0 < found["p50"] <= found["p99"] <= found["worst"]
    assert found["node_cpu_worst"] > 0


def test_the_broker_alone_has_no_figures_of_a_node() -> None:
    require_broker("mosquitto")
    found = noticed(Case("broker", "publish-0"), seconds=0.1, clients=2)
    assert "broker_cpu_p50" in found  # none in a round trip while others have the core
    assert not [name for name in found if name.startswith(("node", "admin"))]


def test_a_flood_reaches_the_broker(mosquitto: Mosquitto) -> None:
    with Innocent(mosquitto.port, "flood/0") as subscriber, attacked(mosquitto.port, "publish-1", 3):
        assert subscriber.next_message().topic == "flood/0"


def test_attackers_that_find_nobody_are_told_of() -> None:
    with pytest.raises(RuntimeError, match="could not begin"), attacked(1, "publish-0", 1):
        pass
