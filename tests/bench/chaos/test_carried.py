"""What links carry in any ten seconds is seen by the network, and judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ildm_bench.chaos.history import History
from ildm_bench.chaos.schedule import Client, Fault, Operation, Schedule, Setting, Variant
from ildm_bench.chaos.verdict import CARRIED
from ildm_bench.chaos.virtual import faults
from ildm_bench.chaos.virtual.carried import bound
from ildm_bench.chaos.virtual.run import Result, Warm

RATE = 8000
FREE = Setting("sf", ("a", "b"), (("b", "a"),), ("mosquitto", "mosquitto"))
RATED = replace(FREE, options={"link": {"rate": {"out": RATE}}})


def carried(setting: Setting, count: int = 1000, *struck: Fault) -> tuple[Result, History]:
    """Many messages cross, at once; ``struck``: what befalls the sites meanwhile."""
    clients = Client("s", "b"), Client("p", "a", inflight=1000)
    operations = (
        Operation(0.1, "s", "connect"),
        Operation(0.5, "s", "subscribe", topic="t/#", qos=1),
        Operation(1.0, "p", "connect"),
        Operation(5.0, "p", "publish", topic="t/0", qos=1, count=count, size=200),
    )
    return Warm(setting).run(Schedule(setting, clients, operations, struck, seed=1))


def invariants(result: Result) -> set[str]:
    assert not result.trouble
    return {finding.invariant for finding in result.failures}


def test_a_rate_that_holds_is_no_finding() -> None:
    result, _ = carried(
        RATED, 1000, Fault(8.0, "cut", ("link/a/b",), 1.0), Fault(12.0, "kill", ("node/a",), 1.0)
    )
    assert invariants(result) == set()
    assert result.reached["link_budget_waited_bytes"] > 0
    assert result.about.seconds > 200_000 / RATE


def test_a_link_that_carries_more_than_its_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network judges a link without a rate as if it had one."""
    monkeypatch.setattr(faults, "bound", lambda setting, site: bound(RATED, site))
    result, _ = carried(FREE)
    assert invariants(result) == {"budget"}
    (finding,) = result.failures
    assert finding.session == "link/a/b"
    assert finding.seq > 200_000


def test_a_link_without_a_rate_has_no_bound() -> None:
    assert bound(FREE, "a") is None
    _, history = carried(FREE)
    assert not [event for event in history.events if event.process.startswith("link/")]


def test_a_site_that_leaves_out_the_rate_has_no_bound_and_its_neighbor_keeps_its_own() -> None:
    """As many bytes go from a site without the rate as there are; the answers of the other are judged."""
    result, history = carried(replace(RATED, variants={"a": Variant(without=("rate",))}))
    assert invariants(result) == set()
    assert result.about.seconds < 200_000 / RATE
    assert {event.process for event in history.events if event.topic == CARRIED} == {"link/b/a"}


@pytest.mark.parametrize("rate", [{"in": RATE}, {"out": RATE, "in": 9 * RATE}, {"out": 9 * RATE, "in": RATE}])
def test_the_smaller_rate_is_the_bound(rate: dict[str, int]) -> None:
    most = bound(replace(FREE, options={"link": {"rate": rate}}), "a")
    assert most is not None
    assert 10 * RATE < most < 14 * RATE


def test_a_thin_line_takes_its_time() -> None:
    result, _ = carried(replace(FREE, line=2 * RATE))
    assert invariants(result) == set()
    assert result.about.seconds > 200_000 / (2 * RATE)
