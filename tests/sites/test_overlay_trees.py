"""The trees that messages take in live overlays, as ``ildm overlay trace`` shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from tests.sites.client import within
from tests.sites.conftest import Sites
from tests.sites.overlay import reached
from tests.sites.site import Site, join, settled

ENTRIES = 8
SUBSCRIBERS = 5
REGIONS = ("asia", "eu", "us")


async def traced(site: Site, topic: str) -> dict[str, Any]:
    """The trace of a topic, and the tree of its exact segment."""
    trace: dict[str, Any] = await site.shell(f"overlay trace {topic}")
    exact = next(part["tree"] for part in trace["trees"] if part["name"] == topic)
    return {**trace, "tree": exact}


def paths(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The nodes from the root to each leaf."""
    here = (*above, tree["node"])
    if not tree["children"]:
        yield here
    for child in tree["children"]:
        yield from paths(child, here)


async def test_a_message_to_few_subscribers_takes_one_hop(sites: Sites, topic_root: str) -> None:
    """ATM-TBPS: nodes that have learned all of at most L subscribers send straight to each (paper, IV-C)."""
    choice = {"name": "atm_tbps", "entries": ENTRIES}
    made = [
        await sites.make(sites.shared_broker("mosquitto", index), choice) for index in range(SUBSCRIBERS + 1)
    ]
    for site in made[1:]:
        await join(site, made[0])
    listeners = [await site.connect() for site in made[1:]]
    for listener in listeners:
        await listener.subscribe((topic_root, 1))
    publisher = await made[0].connect()
    await publisher.publish(topic_root, b"first", 1)
    await settled(*made)

    async def learned() -> dict[str, Any]:
        while (trace := await traced(made[0], topic_root))["depth"] != 1:
            await publisher.publish(topic_root, b"more", 1)  # it takes the search for others along
        return trace

    trace = await within(learned(), "the publisher knows all subscribers")
    assert (trace["nodes"], trace["messages"], trace["complete"]) == (SUBSCRIBERS, SUBSCRIBERS, True)
    assert reached(trace["tree"]) == sorted(site.name for site in made[1:])
    assert sorted(paths(trace["tree"])) == sorted((made[0].name, site.name) for site in made[1:])
    await publisher.publish(topic_root, b"end", 1)
    for listener in listeners:
        got = [message.payload for message in await listener.receive_until(b"end")]
        assert got == [b"first"] + [b"more"] * (len(got) - 1)


async def test_each_path_crosses_the_border_of_a_region_once(sites: Sites, topic_root: str) -> None:
    """STLA: a message that has left a region does not come back to it (paper, IV-C).

    It enters where the publisher is; the names of the nodes are no matter.
    """
    made: list[Site] = []
    region: dict[str, str] = {}
    for index in range(9):
        choice = {"name": "stla", "locality": [REGIONS[index % 3]]}
        made.append(await sites.make(sites.shared_broker("mosquitto", index), choice))
        region[made[-1].name] = REGIONS[index % 3]
        if index:
            await join(made[-1], made[0])
    listeners = await asyncio.gather(*(site.connect() for site in made[1:]))
    for listener in listeners:
        await listener.subscribe((topic_root, 1))
    for here in (made[0], made[1], made[2]):
        publisher = await here.connect()
        await publisher.publish(topic_root, b"from %s" % region[here.name].encode(), 1)
        await settled(*made)
        trace = await traced(here, topic_root)
        assert trace["complete"]
        assert set(reached(trace["tree"])) - {here.name} == {site.name for site in made[1:]} - {here.name}
        ways = list(paths(trace["tree"]))
        for path in ways:
            crossed = [name for name, _ in groupby(region[node] for node in path)]
            assert len(crossed) == len(set(crossed)), path
        # the first hop stays at home, where somebody subscribes
        assert {region[path[1]] for path in ways} <= {region[here.name]} or here is not made[0]
    for listener in listeners:
        got = [message.payload for message in await listener.receive_all(3)]
        assert sorted(got) == [b"from " + name.encode() for name in sorted(REGIONS)]
        assert listener.waiting == 0
