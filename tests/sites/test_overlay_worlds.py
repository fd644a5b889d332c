"""One script in two worlds: live nodes before Mosquitto deliver what simulated ones do."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from ildm.api import OverlayAlgorithm
from ildm.mqtt import PingReq, PingResp
from ildm.testing import PluginWorld
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from tests.sites.client import Client
from tests.sites.conftest import Sites
from tests.sites.site import Site, joined, settled

Deliveries = dict[str, Counter[tuple[str, bytes, int]]]
"""Node -> how often its client got which topic, payload and QoS.

Empty payloads do not count: when overlays merge, deletions are repeated for those who might have missed
them, and who has subscribed since gets them, too, if the repetition comes after its subscription.
"""

PLUGINS: dict[str, type[OverlayAlgorithm[Any]]] = {"sg_tbps": SgTbps, "atm_tbps": AtmTbps, "stla": Stla}
STAYS = "a"
"""The node that introduces all others."""
REST = 5.0
"""Virtual seconds between two steps: all timers of SG-TBPS that matter for deliveries are shorter."""


class Step(NamedTuple):
    """One thing that happens; the next one happens when all have come to rest."""

    what: str
    node: str
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False


def scenario(seed: int) -> list[Step]:
    """Four nodes join, then anything happens in any order.

    No client has two filters that match one topic, because brokers differ in the copies they make. Who has
    set a retained message stays: without it the message lives on in copies, for a time nobody promises.
    """
    random = Random(seed)
    nodes = [STAYS, "b", "c", "d"]
    newcomers = ["e", "f"]
    filters = ["t/x", "t/y", "u/#", "+/z"]
    topics = ["t/x", "t/y", "t/z", "u", "u/v", "u/v/w", "other"]
    steps = [Step("join", node) for node in nodes]
    holders = {STAYS}
    subscribed: dict[str, list[str]] = {node: [] for node in nodes + newcomers}
    for number in range(45):
        node = random.choice(nodes)
        mine = subscribed[node]
        topic, qos, retain = random.choice(topics), random.randrange(3), random.random() < 0.25
        wanted, left = random.choice(filters), random.choice([*mine, ""])
        match random.choices(["subscribe", "unsubscribe", "publish", "leave", "join"], [8, 3, 10, 1, 1])[0]:
            case "subscribe" if wanted not in mine:
                mine.append(wanted)
                steps.append(Step("subscribe", node, wanted, qos=qos))
            case "unsubscribe" if left:
                mine.remove(left)
                steps.append(Step("unsubscribe", node, left))
            case "leave" if node not in holders and len(nodes) > 3:
                nodes.remove(node)
                steps.append(Step("leave", node))
            case "join" if newcomers:
                nodes.append(newcomers.pop(0))
                steps.append(Step("join", nodes[-1]))
            case _:
                payload = b"" if retain and number % 3 == 0 else b"%d" % number
                if retain:
                    holders.add(node)
                steps.append(Step("publish", node, topic, payload, qos, retain))
    return steps


def place_of(algorithm: str, node: str) -> dict[str, Any]:
    """What a node is told of where it is, if it has to be: three regions with two nodes each."""
    return {"locality": [f"region-{ord(node) % 3}"]} if algorithm == "stla" else {}


def simulated(algorithm: str, steps: list[Step], seed: int) -> Deliveries:
    """Play the script in virtual time."""
    world = PluginWorld(PLUGINS[algorithm], seed=seed)
    for step in steps:
        match step:
            case Step("join", node):
                world.add(node, None if node == STAYS else STAYS, place_of(algorithm, node))
            case Step("leave", node):
                world.stop(node)
            case Step("subscribe", node, topic):
                world[node].subscribe(topic, step.qos)
            case Step("unsubscribe", node, topic):
                world[node].unsubscribe(topic)
            case Step("publish", node, topic, payload, qos, retain):
                world[node].publish(topic, payload, qos, retain)
        world.run(REST)
    return {
        name: Counter((d.topic, d.payload, d.qos) for d in node.deliveries if d.payload)
        for name, node in world.nodes.items()
    }


class Live:
    """The same with live nodes; topics begin with a level that no other test uses."""

    def __init__(self, algorithm: str, sites: Sites, root: str) -> None:
        self.algorithm = algorithm
        self.deliveries: Deliveries = {}
        self._sites = sites
        self._root = root
        self._made: dict[str, Site] = {}
        self._clients: dict[str, Client] = {}

    async def play(self, steps: list[Step]) -> Deliveries:
        for step in steps:
            await self._step(step)
            await settled(*(site for site in self._made.values() if site.running))
        for name in self._clients:
            await self._collect(name)
        # the brokers outlive this test
        for topic in {step.topic for step in steps if step.retain}:
            await self._clients[STAYS].publish(f"{self._root}/{topic}", b"", 1, retain=True)
        return self.deliveries

    async def _step(self, step: Step) -> None:
        name, topic = step.node, f"{self._root}/{step.topic}"
        match step.what:
            case "join":
                broker = self._sites.shared_broker("mosquitto", len(self._made))
                choice = {"name": self.algorithm, **place_of(self.algorithm, name)}
                site = await self._sites.make(broker, choice, limits={"drain_timeout": 10.0})
                if name != STAYS:
                    site.add(self._made[STAYS])
                    await joined(site, self._made[STAYS])
                self._made[name] = site
                self._clients[name] = await site.connect()
            case "leave":
                await self._collect(name)
                await self._clients.pop(name).disconnect()
                await self._made[name].stop()
            case "subscribe":
                await self._clients[name].subscribe((topic, step.qos))
            case "unsubscribe":
                await self._clients[name].unsubscribe(topic)
            case "publish":
                client = self._clients[name]
                await client.publish(topic, step.payload, step.qos, retain=step.retain)
                client.send(PingReq())  # QoS 0 has no answer, so that something must show that it was read
                await client.packet(PingResp)

    async def _collect(self, name: str) -> None:
        """What a client has got: everything before a message of its own to itself."""
        client = self._clients[name]
        end = f"end of {self._root}"
        await client.subscribe(end)
        await client.publish(end, b"end", 1)
        cut = len(self._root) + 1
        got = await client.receive_until(b"end")
        self.deliveries[name] = Counter((m.topic[cut:], m.payload, m.qos) for m in got if m.payload)
        await client.unsubscribe(end)


@pytest.mark.parametrize(("algorithm", "seed"), [("sg_tbps", 3), ("atm_tbps", 4), ("stla", 5)])
async def test_live_nodes_and_simulated_ones_deliver_the_same(
    sites: Sites, algorithm: str, seed: int, topic_root: str
) -> None:
    steps = scenario(seed)
    expected = simulated(algorithm, steps, seed)
    assert sum(counter.total() for counter in expected.values()) > 10
    live = await Live(algorithm, sites, topic_root).play(steps)
    assert live.keys() == expected.keys()
    for node, counter in expected.items():
        assert (node, live[node] - counter, counter - live[node]) == (node, Counter(), Counter())
