"""Several nodes before one broker, as the benchmarks put them up: all work, and what is to cross does."""

from __future__ import annotations

import argparse

import pytest

from ildm_bench.micro.owner import owned
from ildm_bench.micro.processes import relayed
from tests.support.brokers import require_broker

pytestmark = pytest.mark.broker


def test_nodes_share_the_clients() -> None:
    require_broker("mosquitto")
    found = relayed(2, argparse.Namespace(cores=None, machine=None, window=20, seconds=0.2))
    assert found["rate"] > 0
    assert found["busiest"] < found["nodes"]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_to_cross_goes_by_way_of_the_owner(qos: int) -> None:
    options = argparse.Namespace(cores=None, rate=2000.0, burst=5, qos=qos, publishers=4, seconds=0.5)
    found = owned(0.5, 2, options)
    assert found["crossed"] > 0
    assert found["owner"] > 0
    assert owned(0.0, 0, options)["crossed"] == 0
