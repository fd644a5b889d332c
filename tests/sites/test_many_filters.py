"""Thousands of filters subscribed at once by one client of a real broker: others do not wait, all get in."""

from __future__ import annotations

from ildm.mqtt import Subscribe, Subscription, Version
from ildm_algorithms.sg_tbps import SgTbps
from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.site import Site, join

FILTERS = 3_000
BATCH = 500


def keys(site: Site) -> int:
    algorithm = site.node.dispatch.algorithm
    assert isinstance(algorithm, SgTbps)
    return len(algorithm.graph.keys())


async def test_local_clients_are_served_while_thousands_of_filters_enter(
    sites: Sites, topic_root: str
) -> None:
    here = await sites.make(sites.shared_broker("mosquitto", 0), "sg_tbps")
    there = await sites.make(sites.shared_broker("mosquitto", 1), "sg_tbps")
    await join(here, there)
    greedy, innocent, far = await here.connect(), await here.connect(), await there.connect()
    await innocent.subscribe(f"{topic_root}/ping")
    before = keys(here)
    filters = [f"{topic_root}/site/{number}" for number in range(FILTERS)]
    for at in range(0, FILTERS, BATCH):
        wanted = [Subscription(topic_filter=name, qos=1) for name in filters[at : at + BATCH]]
        greedy.send(Subscribe(packet_id=at + 1, subscriptions=wanted).encode(Version.V311))
    for number in range(20):
        await innocent.publish(f"{topic_root}/ping", b"%d" % number)
        assert (await innocent.receive()).payload == b"%d" % number
    assert keys(here) < FILTERS  # at the pace of the joins that takes six seconds
    await until(lambda: keys(here) >= before + FILTERS, "all filters are in")
    for name in (filters[0], filters[1234], filters[-1]):
        await far.publish(name, name.encode(), 1)
        assert (await greedy.receive()).payload == name.encode()
