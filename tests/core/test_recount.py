"""What a node counts as it changes is counted again: a sum that is wrong is found, whichever it is."""

from __future__ import annotations

from functools import reduce

import pytest

from ildm.core.spool import Identity
from ildm.mqtt import PubAck, Publish, Version, Will
from ildm.testing.virtual.recount import recount
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site

SUMS = (
    "clients.filters",
    "clients.unknown",
    "clients.persistent",
    "clients.budget.bytes",
    "clients.wills.bytes",
    "partials.bytes",
    "retained.bytes",
    "retained.deletion_bytes",
    "retained.releases._count",
    "custody._come._size",
    "custody._sent_anew._size",
    "dispatch.algorithm.api.state._bytes",
)


@pytest.fixture
def site(world: World) -> Site:
    """With something of all that is counted."""
    site = Site(world, "a", "sf", spool=MemorySpool())
    site.subscriber("a/#", qos=1)
    will = Will(topic="w", payload=b"gone", qos=1)
    lasting = site.client("lasts", version=Version.V311, clean_start=False, will=will)
    lasting.send(Publish(topic="r/1", payload=b"x", qos=1, retain=True, packet_id=1))
    lasting.send(Publish(topic="r/2", payload=b"", qos=1, retain=True, packet_id=2))
    lasting.send(Publish(topic="r/3", payload=b"x", qos=2, retain=True, packet_id=3))
    lasting.transport.write(Publish(topic="t", payload=bytes(20_000)).encode(Version.V311)[:9000])
    world.run(1)
    assert len(lasting.got(PubAck)) == 2
    custody, algorithm = site.node.custody, site.node.dispatch.algorithm
    assert custody is not None
    assert algorithm is not None
    assert custody.come(Identity("b", 7))
    algorithm.api.state["key"] = b"value"
    return site


def test_what_is_counted_right_is_gone_past(site: Site) -> None:
    recount(site.node)
    node = site.node
    assert node.clients.filters
    assert node.retained.bytes
    assert node.retained.deletion_bytes
    assert node.clients.wills.bytes


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("by", [1, -1])
def test_a_sum_that_is_wrong_is_found(site: Site, name: str, by: int) -> None:
    path, _, last = name.rpartition(".")
    part = reduce(getattr, path.split("."), site.node)
    setattr(part, last, getattr(part, last) + by)
    with pytest.raises(AssertionError, match="count"):
        recount(site.node)


def test_what_a_client_takes_in_filters_is_counted_again(site: Site) -> None:
    site.node.clients.records["sub"].filter_bytes += 1
    with pytest.raises(AssertionError, match="count"):
        recount(site.node)


def test_requests_that_are_counted_wrong_are_found(site: Site) -> None:
    session = next(iter(site.node.sessions))
    session.publishing.pending.bytes += 1
    with pytest.raises(AssertionError, match="count"):
        recount(site.node)
