"""Links without a rate over thin lines: what was under way is repeated at once, and takes long."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.core.link.test_budgets import flood, pipe
from tests.support.rings import cut
from tests.support.site import row, unacknowledged

LINE = 8000


def thin(world: World) -> None:
    """All connections from now on."""

    def joined(end: Any) -> None:
        end.rate = end.other.rate = LINE

    world.joined = joined


@pytest.mark.parametrize("both", [False, True])
def test_a_link_stays_while_what_is_repeated_takes_longer_than_its_patience(world: World, both: bool) -> None:
    a, b = row(world, "ab", "sf", link={"keep_alive": 2})
    b.subscriber("t/a/#", qos=1)
    a.subscriber("t/b/#", qos=1)
    world.run(1)
    pipe(a, "b").rate = pipe(b, "a").rate = LINE
    topics = flood(a, 100, size=4000, name="a")
    if both:
        flood(b, 100, size=4000, name="b")
    world.run(5)
    thin(world)
    cut(b, a, dark=False)
    world.run(10)
    since = a.node.links.links["b"].since
    world.run(100)
    assert a.links() == {"b": "active"}
    assert a.node.links.links["b"].since == since
    assert b.broker.topics() == topics
    if both:
        assert len(a.broker.topics()) == 100


def test_a_neighbour_that_answers_pings_alone_is_let_go(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"keep_alive": 2})
    unacknowledged(b)
    since = a.node.links.links["b"].since
    a.subscriber("t/#")
    world.run(14)
    assert a.node.links.links["b"].since != since
    assert {fields["reason"] for fields in a.logged("link down")} == {
        "no acknowledgement of an inter-subscription"
    }


def test_a_thin_line_hands_over_what_has_gone(world: World) -> None:
    """The first of what was written at once, before the last of it."""
    a, b = row(world, "ab", "pf")
    b.subscriber("t/#", qos=1)
    world.run(1)
    pipe(a, "b").rate = LINE
    client = a.client("p")
    for number in range(10):
        client.send(Publish(topic="t", payload=b"x" * LINE, qos=1, packet_id=number + 1))
    world.run(4.9)
    assert 3 <= len(b.broker.topics()) <= 5
    world.run(6)
    assert len(b.broker.topics()) == 10
