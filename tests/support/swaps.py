"""Rings under load whose tree follows a delay: what arrives where, and when."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from ildm.api import Algorithm
from ildm.config import Address
from ildm.mqtt import Publish, PubRel
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.delays import Delays, tree
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site

SLOW = 0.050
"""Seconds one way over a link that has become ten times slower."""
ALL_QOS = (0, 1, 2)


class Load:
    """Each site publishes a message in each period, of each QoS in turn."""

    def __init__(self, ring: Ring, qos: tuple[int, ...]) -> None:
        self.ring = ring
        self.qos = qos
        self.stopped = False
        self._go_on()

    def stop(self) -> None:
        self.stopped = True

    def _go_on(self) -> None:
        if not self.stopped:
            self.ring.publish(self.qos[self.ring.number % len(self.qos)])
            world = self.ring.world
            world.call_at(world.time + self.ring.period, self._go_on)


class Ring:
    """Sites in a ring, each with a spool; the link between the first and the last, a slower one, is spare.

    Topics are ``QOS/site/n``.
    """

    period = 0.005
    """Seconds between messages of a site."""

    def __init__(
        self,
        world: World,
        names: str,
        algorithm: str | type[Algorithm] = "sf",
        spare: float = 0.010,
        **settings: Any,
    ) -> None:
        world.recording = False
        self.world = world
        self.names = names
        self.spare = names[0] + names[-1]
        self.all = {a + b for a, b in itertools.pairwise(names)} | {self.spare}
        self.delays = Delays(world, default=0.005, **{self.spare: spare})
        settings.setdefault("link", {})
        settings["link"] = {"weight_hold": 60, **settings["link"]}
        self.sites = [Site(world, n, algorithm, spool=MemorySpool(), **settings) for n in names]
        for near, far in itertools.pairwise(self.sites):
            far.node.links.add(Address(near.name, 2), False)
            world.run(1)
        self.sites[-1].node.links.add(Address(names[0], 2), False)
        world.run(10)
        assert self.tree == self.all - {self.spare}
        self.arrived: dict[str, list[tuple[float, str]]] = {name: [] for name in names}
        self.sent: dict[str, float] = {}
        self.number = 0
        self._publishers: dict[str, MiniClient] = {}
        for site in self.sites:
            self._note(site)
            self._publishers[site.name] = site.client(f"p-{site.name}")

    @property
    def tree(self) -> set[str]:
        return tree(self.sites)

    def site(self, name: str) -> Site:
        return self.sites[self.names.index(name)]

    def count(self, counter: str) -> int:
        return sum(site.node.counters[counter] for site in self.sites)

    def _note(self, site: Site) -> None:
        record = site.broker.record

        def noted(client_id: str, packet: Publish) -> None:
            if client_id.startswith("ildm-"):
                self.arrived[site.name].append((self.world.time, packet.topic))
            record(client_id, packet)

        site.broker.record = noted  # type: ignore[method-assign]

    def publish(self, qos: int) -> None:
        self.number += 1
        for name, client in self._publishers.items():
            if client.closed:
                continue
            topic = f"{qos}/{name}/{self.number}"
            self.sent[topic] = self.world.time
            packet_id = self.number if qos else None
            client.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=packet_id))
            if packet_id is not None and qos == 2:
                client.send(PubRel(packet_id=packet_id))

    def start(self, qos: tuple[int, ...] = ALL_QOS) -> Load:
        return Load(self, qos)

    def load(self, seconds: float, qos: tuple[int, ...] = ALL_QOS) -> None:
        load = Load(self, qos)
        self.world.run(seconds)
        load.stop()

    def missing(self, name: str, qos: int) -> set[str]:
        """What a site has not got of the others."""
        got = {topic for _, topic in self.arrived[name]}
        return {t for t in self.sent if t[0] == str(qos) and t[2] != name and t not in got}

    def lost(self, qos: int) -> set[tuple[str, str]]:
        """Which sites have not got what of the others."""
        return {(name, topic) for name in self.names for topic in self.missing(name, qos)}

    def most_lost(self, qos: int) -> int:
        """Of one site's messages at another, at most."""
        return max(Counter((name, topic[2]) for name, topic in self.lost(qos)).values(), default=0)

    def twice(self, qos: int) -> set[tuple[str, str]]:
        counts = Counter((name, topic) for name in self.names for _, topic in self.arrived[name])
        return {pair for pair, count in counts.items() if count > 1 and pair[1][0] == str(qos)}

    def gaps(self, qos: int) -> dict[tuple[str, str], float]:
        """By publisher and receiver, the longest time under load within which nothing has arrived."""
        found, end = {}, max(self.sent.values())
        for far, near in itertools.permutations(self.names, 2):
            times = sorted(
                at for at, topic in self.arrived[far] if topic.startswith(f"{qos}/{near}/") and at <= end
            )
            found[near, far] = max(b - a for a, b in itertools.pairwise(times))
        return found
