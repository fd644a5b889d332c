"""Round-trip times of links, as both ends measure them."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.link.round_trip import SAMPLES, RoundTrip
from ildm.mqtt import PingReq, PingResp, Version
from ildm.net.neighbors_view import neighbor_rows
from ildm.testing.virtual.world import World
from tests.support.rings import cut
from tests.support.site import Site, row, session_of


def slow(near: Site, far: Site, one_way: float) -> None:
    """From now on what goes between two sites takes so long."""
    pipe = session_of(near, far.name).transport
    pipe.latency = pipe.other.latency = one_way  # type: ignore[union-attr]


def times(one: Site, other: Site) -> list[float]:
    found = [
        one.node.links.links[other.name].round_trip.value,
        other.node.links.links[one.name].round_trip.value,
    ]
    return [value for value in found if value is not None]


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_both_ends_measure_at_once(world: World, delay: float) -> None:
    """What a node waits to join packets with more is no part of it."""
    world.latencies[Address("a", 2)] = 0.040
    a, b = row(world, "ab", "sf", link={"delay": delay})
    assert times(a, b) == [pytest.approx(0.080)] * 2
    assert neighbor_rows(a.node)[0]["rtt"] == pytest.approx(0.080)


def test_the_value_is_the_least_of_the_last_samples(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"tree": "age"})
    slow(a, b, 0.1)
    world.run(10 * (SAMPLES - 1))
    assert times(a, b) == [pytest.approx(0.002)] * 2
    world.run(10)
    assert times(a, b) == [pytest.approx(0.2)] * 2
    slow(a, b, 0.01)
    world.run(10)
    assert times(a, b) == [pytest.approx(0.02)] * 2


def test_it_is_known_of_a_lost_link_but_not_shown(world: World) -> None:
    a, b = row(world, "ab", "sf")
    world.listeners.pop(Address("a", 2))
    cut(b, a, dark=False)
    world.run(1)
    assert times(a, b) == [pytest.approx(0.002)] * 2
    assert neighbor_rows(b.node)[0]["rtt"] is None


def test_a_packet_before_it_spoils_a_sample(world: World) -> None:
    a, b = row(world, "ab", "sf")
    link, session = a.node.links.links["b"], session_of(a, "b")
    link.round_trip = RoundTrip()
    session.sender.wire.write(PingResp().encode(Version.V5))  # type: ignore[union-attr]
    session.ping()
    world.run(1)
    assert link.round_trip.value is None
    session.ping()
    world.run(1)
    assert link.round_trip.value == pytest.approx(0.002)
    assert times(a, b)


def test_answers_that_nobody_has_asked_for_mean_nothing(world: World) -> None:
    a, b = row(world, "ab", "sf")
    for _ in range(100):
        session_of(b, "a").write(PingResp().encode(Version.V5))
    world.run(100)
    assert times(a, b) == [pytest.approx(0.002)] * 2
    assert a.links() == {"b": "active"}


def test_a_neighbour_that_never_answers_takes_no_room() -> None:
    trip = RoundTrip()
    for second in range(10_000):
        trip.asked(float(second), True)
    trip.answered(10_000.0)
    assert trip.value == 10_000.0
    trip.answered(10_001.0)
    assert trip.value == 10_000.0, "of all that wait one is measured"
    assert trip.pending
    trip.connected()
    assert not trip.pending
    assert trip.value == 10_000.0


def test_a_ping_on_another_session_is_not_measured(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"sessions": 2})
    link = a.node.links.links["b"]
    link.round_trip = RoundTrip()
    session_of(a, "b", 1).ping()
    session_of(b, "a", 1).write(PingReq().encode(Version.V5))
    world.run(1)
    assert link.round_trip.value is None
