"""How many filters with an expression one client may have, and when they do not count any more."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.mqtt import Property, ReasonCode, SubAck, Version
from ildm.testing import PluginWorld
from ildm.testing.client import SimClient
from ildm_algorithms.octopia.tables import holders
from ildm_algorithms.octopia.tables.holders import Holders
from tests.algorithms.octopia.worlds import make, octopia

MOST = 3
REFUSED = int(ReasonCode.QUOTA_EXCEEDED)


def wanted(number: int) -> str:
    return f"filter/a={number}/s"


@pytest.fixture
def world() -> PluginWorld:
    return make(("a",), 1, max_client_expressions=MOST)


def codes(client: SimClient, *filters: str) -> list[int]:
    """How one SUBSCRIBE is answered."""
    client.subscribe(*((each, 0) for each in filters))
    answer = client.told[-1]
    assert isinstance(answer, SubAck)
    return list(answer.reason_codes)


def full(world: PluginWorld, client_id: str, **connect: Any) -> SimClient:
    """A client that has as many expressions as it may."""
    client = world["a0"].client(client_id, **connect)
    assert codes(client, *map(wanted, range(MOST))) == [0] * MOST
    return client


def test_one_subscribe_does_not_pass_the_bound(world: PluginWorld) -> None:
    client = world["a0"].client("c")
    many = [wanted(number) for number in range(MOST + 2)]
    assert codes(client, *many, "plain", "filter/+/s", wanted(0)) == [0] * MOST + [REFUSED] * 2 + [0] * 3
    assert client.told[-1].properties[Property.REASON_STRING] == (
        f"this client has {MOST} filters with expressions already"
    )
    counters = octopia(world, "a0").counters
    assert counters["expressions_over_client_limit"] == counters["subscriptions_refused"] == 2
    assert octopia(world, "a0").local.expressions == MOST
    old = full(world, "old", version=Version.V311)
    assert codes(old, wanted(9)) == [0x80]


def test_equal_filters_count_for_each_client_and_with_each_share(world: PluginWorld) -> None:
    full(world, "one")
    two = world["a0"].client("two")
    assert codes(two, wanted(0), f"$share/g/{wanted(0)}", f"$share/h/{wanted(0)}") == [0] * 3
    assert codes(two, wanted(1), f"$share/i/{wanted(0)}") == [REFUSED] * 2


def test_an_unsubscribed_filter_does_not_count(world: PluginWorld) -> None:
    one, two = full(world, "one"), full(world, "two")
    two.unsubscribe(wanted(0), "unknown", f"$share/g/{wanted(1)}")
    assert codes(two, wanted(7), wanted(8)) == [0, REFUSED]
    assert codes(one, wanted(7)) == [REFUSED]
    for number in range(20):
        one.unsubscribe(wanted(0) if not number else wanted(99 + number))
        assert codes(one, wanted(100 + number)) == [0]


def test_a_session_that_ends_leaves_no_count(world: PluginWorld) -> None:
    full(world, "other")
    for _ in range(2):
        full(world, "c").disconnect()
    full(world, "c", version=Version.V311).disconnect()
    assert octopia(world, "a0").clients.holders.count("c") == 0
    assert octopia(world, "a0").clients.holders.count("other") == MOST


@pytest.mark.parametrize(
    "connect",
    [
        {"clean_start": False, "properties": {Property.SESSION_EXPIRY_INTERVAL: 60}},
        {"clean_start": False, "version": Version.V311},
    ],
)
def test_a_session_that_goes_on_counts(world: PluginWorld, connect: dict[str, Any]) -> None:
    full(world, "c", **connect).disconnect()
    again = world["a0"].client("c", **connect)
    assert codes(again, wanted(0), wanted(9)) == [0, REFUSED if "properties" in connect else 0x80]
    again.unsubscribe(wanted(0))
    assert codes(again, wanted(9)) == [0]


def test_clients_that_are_away_are_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "AWAY", 2)
    held = Holders()
    for client in ("a", "b", "c"):
        assert held.hold(client, "filter/a=1/s", MOST)
        held.away(client)
    held.away("unknown")
    assert [held.count(client) for client in ("a", "b", "c")] == [0, 1, 1]
    assert held.hold("b", "filter/a=2/s", MOST)
    held.unsubscribed("filter/a=1/s")
    assert [held.count(client) for client in ("a", "b", "c")] == [0, 1, 0]
    held.ended("b")
    assert held.hold("b", "filter/a=2/s", 0) is False
