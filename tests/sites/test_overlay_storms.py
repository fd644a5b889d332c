"""Both worlds without pauses: while all publish a node joins and one is killed; all others get all.

Where things happen at once their order differs between live nodes and simulated ones. What comes in the end
does not: each message of QoS 1 or 2 once to each client that had subscribed before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from ildm.config import Address
from ildm.core.plugin.loading import ALGORITHMS
from ildm.mqtt import topic_matches
from ildm.testing import PluginWorld
from tests.sites.client import Client
from tests.sites.conftest import Sites
from tests.sites.overlay import OVERLAYS, placed, quick
from tests.sites.process import ProcessSite
from tests.sites.site import Site, join, rested, settled
from tests.support.brokers import Fleet
from tests.support.examples import MORE

STAY = ["a", "b", "c"]
VICTIM = "victim"
LATE = "late"
FILTERS = ["t/x", "t/y", "u/#", "+/z"]
TOPICS = ["t/x", "t/y", "t/z", "u", "u/v", "u/v/w", "other"]
MESSAGES = 40
"""Of each node that stays; the victim dies after half of them."""

Got = dict[str, Counter[tuple[str, bytes]]]


class Script(NamedTuple):
    """What happens: node -> filters, and node -> (topic, payload, QoS) in order."""

    wanted: dict[str, list[str]]
    sent: dict[str, list[tuple[str, bytes, int]]]

    def due(self) -> Got:
        """What each node that stays has to get."""
        return {
            node: Counter(
                (topic, payload)
                for sender in STAY
                for topic, payload, _ in self.sent[sender]
                if any(topic_matches(topic_filter, topic) for topic_filter in self.wanted[node])
            )
            for node in STAY
        }


def script(seed: int) -> Script:
    """No client has two filters that match one topic, because brokers differ in the copies they make."""
    random = Random(seed)
    nodes = [*STAY, VICTIM, LATE]
    return Script(
        {node: random.sample(FILTERS, 2) for node in nodes},
        {
            node: [
                (random.choice(TOPICS), f"{node} {number}".encode(), random.randint(1, 2))
                for number in range(MESSAGES)
            ]
            for node in STAY
        },
    )


def simulated(made: Script, name: str, seed: int) -> Got:
    (entry,) = entry_points(group=ALGORITHMS, name=name)
    document: Any = placed(quick(name), "a")
    world = PluginWorld(entry.load(), {key: value for key, value in document.items() if key != "name"}, seed)
    for node in (*STAY, VICTIM):
        world.add(node, None if node == STAY[0] else STAY[0])
        for topic_filter in made.wanted[node]:
            world[node].subscribe(topic_filter, 2)
    world.run(10.0)
    for number in range(MESSAGES):
        if number == MESSAGES // 4:
            world.add(LATE, STAY[0])
            world[LATE].subscribe(made.wanted[LATE][0], 2)
        if number == MESSAGES // 2:
            world.kill(VICTIM)
        for node in STAY:
            world[node].publish(*made.sent[node][number])
        world.run(0.05)
    world.run(60.0)
    return {node: Counter((d.topic, d.payload) for d in world[node].deliveries) for node in STAY}


async def live(made: Script, name: str, sites: Sites, far: ProcessSite, root: str) -> Got:
    stay: dict[str, Site] = {}
    clients: dict[str, Client] = {}
    choice = quick(name)
    for index, node in enumerate(STAY):
        stay[node] = await sites.make(sites.shared_broker("mosquitto", index), choice)
        if index:
            await join(stay[node], stay[STAY[0]])
        clients[node] = await stay[node].connect()
        await clients[node].subscribe(*((f"{root}/{wanted}", 2) for wanted in made.wanted[node]))
    first = stay[STAY[0]]
    await far.start()
    first.node.links.add(Address(*far.link_address), False)
    clients[VICTIM] = await far.connect()
    await clients[VICTIM].subscribe(*((f"{root}/{wanted}", 2) for wanted in made.wanted[VICTIM]))
    await rested(far, one=[*(site.name for site in stay.values()), far.name])

    async def publish(node: str) -> None:
        for number, (topic, payload, qos) in enumerate(made.sent[node]):
            await clients[node].publish(f"{root}/{topic}", payload, qos)
            if node == STAY[0] and number == MESSAGES // 2:
                await far.kill()

    async def join_late() -> None:
        late = await sites.make(sites.shared_broker("mosquitto", len(STAY)), choice)
        late.add(first)
        client = await late.connect()
        await client.subscribe((f"{root}/{made.wanted[LATE][0]}", 2))

    everybody = [asyncio.create_task(publish(node)) for node in STAY]
    await asyncio.gather(join_late(), *everybody)
    due = made.due()
    cut = len(root) + 1
    got: Got = {node: Counter() for node in STAY}
    for node in STAY:
        while (due[node] - got[node]).total():
            message = await clients[node].receive()
            got[node][message.topic[cut:], message.payload] += 1
    await settled(*(site for site in sites.all if site.running))
    return got


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("seed", range(MORE))
async def test_while_nodes_join_and_one_is_killed_both_worlds_deliver_the_same(
    sites: Sites, fleet: Fleet, tmp_path: Path, name: str, seed: int, topic_root: str
) -> None:
    made = script(seed)
    choice = placed(quick(name), VICTIM)
    assert simulated(made, name, seed) == made.due()
    far = ProcessSite(fleet.shared("mosquitto", 5), tmp_path / "far", choice, f"{topic_root}-{VICTIM}")
    assert await live(made, name, sites, far, topic_root) == made.due()
