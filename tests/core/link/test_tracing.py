"""A probe goes the way of a message, and comes back with the sites it has met."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.link.control import TRACE, TRACED
from ildm.core.link.tracing import HOPS, PATIENCE, PENDING, ROWS, Hop
from ildm.mqtt import Publish, Version
from ildm.net.traces_view import hop_rows
from ildm.testing.virtual.world import World
from tests.support.senders import send_message
from tests.support.site import Site, row, session_of


def followed(site: Site, topic: str = "t/1", seconds: float = PATIENCE + 1) -> list[Hop]:
    """What a trace from a site answers; it has to within the time."""
    found: list[list[Hop]] = []
    site.node.links.cooperation.tracing.follow(topic, found.append)
    site.world.run(seconds)
    (hops,) = found
    return hops


def ways(hops: list[Hop]) -> list[tuple[int, str]]:
    return [(hop.depth, hop.node) for hop in hops]


def test_a_probe_meets_the_sites_that_a_message_would_and_no_other(world: World) -> None:
    a, _, c = row(world, "abc", "sf")
    d = Site(world, "d", "sf")
    d.node.links.add(Address("b", 2), False)
    world.run(2)
    c.subscriber("t/#")
    world.run(1)
    assert ways(followed(a)) == [(0, "a"), (1, "b"), (2, "c")]
    assert ways(followed(d)) == [(0, "d"), (1, "b"), (2, "c")]
    assert ways(followed(c)) == [(0, "c")]
    assert ways(followed(a, "other")) == [(0, "a")]
    assert not c.broker.topics()
    assert not any(hop.note for hop in followed(a))


def test_times_are_those_of_the_links_and_not_of_what_is_behind_them(world: World) -> None:
    sites = row(world, "abc", "pf")
    rows = hop_rows(followed(sites[0], seconds=1))
    times = [each["seconds"] for each in rows]
    assert times[0] == 0.0
    assert 0 < times[1] < times[2]
    assert times[2] == pytest.approx(2 * times[1], rel=0.5)


def test_who_does_not_answer_is_named_and_the_rest_is_known(world: World) -> None:
    a, b, _ = row(world, "abc", "pf")
    session_of(b, "c").transport.cut = True  # type: ignore[union-attr]
    hops = followed(a)
    assert [(hop.node, hop.note) for hop in hops] == [("a", ""), ("b", ""), ("c", "no answer")]
    assert [row["seconds"] is None for row in hop_rows(hops)] == [False, False, True]


def test_what_waits_on_the_way_is_told(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.kill()
    world.run(1)
    send_message(a.node.links.links["b"].senders[0], Publish(topic="t", payload=b"x", qos=1), 1, priority=1)
    (_, hop) = followed(a)
    assert (hop.node, hop.queued, hop.note) == ("b", 1, "the link is down: what is for it waits")


def test_so_many_at_a_time(world: World) -> None:
    a, b = row(world, "ab", "pf")
    session_of(a, "b").transport.cut = True  # type: ignore[union-attr]
    found: list[list[Hop]] = []
    for _ in range(PENDING + 1):
        a.node.links.cooperation.tracing.follow("t", found.append)
    assert [(hop.node, hop.note) for hops in found for hop in hops] == [("a", "too many traces at a time")]
    world.run(PATIENCE + 1)
    assert [len(hops) for hops in found] == [1] + [2] * PENDING
    assert b.name


GOOD = ["name", "t/1", 4.5, 3]
HOP = [0, "b", 0.0, 0, 0, ""]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        *(
            (TRACE, each)
            for each in (
                None,
                {},
                [],
                GOOD[:3],
                [*GOOD, 1],
                ["n", "t/#", 4.5, 3],
                ["n", "", 4.5, 3],
                ["n", "t", 1e9, 3],
                ["n", "t", -1.0, 3],
                ["n", "t", 4.5, HOPS + 1],
                [1, "t", 4.5, 3],
            )
        ),
        *(
            (TRACED, each)
            for each in (
                [],
                ["n"],
                ["n", 0.1],
                ["n", -0.1, HOP],
                ["n", 0.1, [1, *HOP[1:]]],
                ["n", 0.1, HOP, HOP],
                ["n", 0.1, [0, "b", 10**400, 0, 0, ""]],
                ["n", 0.1, HOP[:5]],
                ["n", 0.1, [0, 1, 0.0, 0, 0, ""]],
                ["n", 0.1, *[HOP] * (ROWS + 1)],
            )
        ),
    ],
)
def test_what_cannot_be_a_trace_ends_the_session(world: World, topic: str, payload: Any) -> None:
    a, _ = row(world, "ab", "pf")
    frame = Publish(topic=topic, payload=json.dumps(payload).encode()).encode(Version.V5)
    session_of(a, "b").data_received(frame)
    assert a.node.counters["link_malformed"] == 1


@pytest.mark.parametrize("topic", [TRACE, TRACED])
@pytest.mark.parametrize("payload", [b"", b"{", b"[" * 100_000, b"\xff", b"[NaN]", b"[" + b"9" * 5000 + b"]"])
def test_nor_does_what_is_no_json(world: World, topic: str, payload: bytes) -> None:
    a, _ = row(world, "ab", "pf")
    session_of(a, "b").data_received(Publish(topic=topic, payload=payload).encode(Version.V5))
    assert a.node.counters["link_malformed"] == 1


def test_an_answer_to_nothing_is_nothing(world: World) -> None:
    a, _ = row(world, "ab", "pf")
    frame = Publish(topic=TRACED, payload=json.dumps(["n", 0.1, HOP]).encode()).encode(Version.V5)
    session_of(a, "b").data_received(frame)
    world.run(1)
    assert a.node.counters["link_malformed"] == 0
    assert a.links() == {"b": "active"}


def test_a_probe_that_comes_twice_is_not_sent_on_again(world: World) -> None:
    """As it may while a tree changes."""
    a, b, _ = row(world, "abc", "pf")
    session_of(b, "c").transport.cut = True  # type: ignore[union-attr]
    found: list[list[Hop]] = []
    tracing = a.node.links.cooperation.tracing
    tracing.follow("t", found.append)
    world.run(0.5)
    (name,) = tracing._probes
    again = Publish(topic=TRACE, payload=json.dumps([name, "t", 4.5, 3]).encode())
    session_of(b, "a").data_received(again.encode(Version.V5))
    world.run(0.5)
    assert [(hop.node, hop.note) for hop in found[0]] == [("a", ""), ("b", "more than once on the way")]


def test_names_change_at_the_edge_of_a_link_as_those_of_messages(world: World) -> None:
    a = Site(world, "a", "sf", link={"rules": [{"allow": ["#"], "local": "plant/", "remote": "hq/plant/"}]})
    b, c = Site(world, "b", "sf"), Site(world, "c", "sf")
    for site in (a, c):
        site.node.links.add(Address("b", 2), False)
    world.run(2)
    c.subscriber("hq/plant/t")
    a.subscriber("plant/u")
    world.run(1)
    assert ways(followed(a, "plant/t")) == [(0, "a"), (1, "b"), (2, "c")]
    assert ways(followed(c, "hq/plant/u")) == [(0, "c"), (1, "b"), (2, "a")]
    assert ways(followed(a, "hq/plant/t")) == [(0, "a")]
    assert not any(hop.note for hop in followed(c, "hq/plant/u"))
    assert b.links() == {"a": "active", "c": "active"}


def test_a_link_that_takes_no_time_is_not_one_of_unknown_time() -> None:
    hops = [
        Hop(0, "a", 0.0, 0, 0, ""),
        Hop(1, "b", 0.0, 0, 0, ""),
        Hop(1, "c", None, 0, 0, ""),
        Hop(2, "d", 1.0, 0, 0, ""),
    ]
    assert [row["seconds"] for row in hop_rows(hops)] == [0.0, 0.0, None, None]
