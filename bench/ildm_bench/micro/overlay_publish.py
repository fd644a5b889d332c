"""What a message costs the algorithms of the overlays: at its publisher, and at each node it reaches.

Nodes in virtual time, a row of sites of which all but the first subscribe. The first publishes again and
again, on one topic, or on many in turn that go through an aggregate; the overlay is at rest. What nodes send
each other is taken from the network and handed over at once, until nothing more is sent (QoS 1: with all
acknowledgements); meanwhile no time passes, so pings and checks are not in the figures. What the simulator
does for a node is: some 3 us for each message sent and each one injected. Without the node around them
(sockets, sessions, queues), which ``--live`` measures: nodes before Mosquittos, CPU of all their processes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ildm.mqtt import Publish, Version
from ildm.testing.link import SimLink, data_arrived
from ildm.testing.live.node import NodeProcess
from ildm.testing.network import Network
from ildm.testing.node import SimNode
from ildm.testing.world import PluginWorld
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.tbps import TopicBased
from ildm_bench.clients import Client
from ildm_bench.micro.measure import Usage, machine, pid_of
from ildm_bench.micro.overlay_sites import connected, figures, overlay, sites, until

ALGORITHMS: dict[str, type[TopicBased[Any]]] = {"sg_tbps": SgTbps, "atm_tbps": AtmTbps, "stla": Stla}
NODES = 5
TOPICS = 100
BATCH = 200
REST = 30.0
"""Virtual seconds until the keys of all topics have joined, and those of hot ones."""
RATE = 500
"""Messages a second to live nodes."""
BURST = 50
"""So many at once, as it is at a high load: else waking up costs more than all the rest."""
PAYLOAD = bytes(100)


def topic(number: int) -> str:
    return f"site/dev{number:03}/temp"


def options(name: str, number: int) -> dict[str, Any]:
    """Sites in two regions, for the algorithm that asks where they are."""
    return {"locality": [f"r{number % 2}", f"s{number}"]} if name == "stla" else {}


# the algorithms alone -----------------------------------------------------------------------------


class Passed(NamedTuple):
    """Data on their way."""

    link: SimLink
    data: bytes
    turn: int


class Taken(Network):
    """Keeps what is sent while :attr:`taken` is there."""

    def __init__(self, like: Network) -> None:
        super().__init__(like.kernel, like.model, like.any_topology)
        self.taken: deque[Passed] | None = None

    def carry(
        self,
        link: SimLink,
        turn: int,
        kind: str,
        size: int,
        receive: Callable[..., None],
        *args: Any,
        priority: int = 0,
    ) -> bool:
        if self.taken is None or link.back is None:
            return super().carry(link, turn, kind, size, receive, *args, priority=priority)
        self.taken.append(Passed(link.back, args[0], turn))
        return True


class Stage:
    """The nodes, and the seconds each has taken."""

    def __init__(self, name: str, topics: int, qos: int) -> None:
        self.world = PluginWorld(ALGORITHMS[name])
        self.world.network = self.network = Taken(self.world.network)
        self.topics = topics
        self.qos = qos
        self.nodes: list[SimNode] = []
        for number in range(NODES):
            introducer = "n0" if number else None
            self.nodes.append(self.world.add(f"n{number}", introducer, options(name, number)))
        for node in self.nodes[1:]:
            node.subscribe("site/#", qos=1)
        self.seconds: dict[str, float] = dict.fromkeys(self.world.nodes, 0.0)
        self.sent = 0
        self.delivered = 0
        self.world.on_delivery = self._on_delivery
        self.world.run(REST)
        for _ in range(2):
            for number in range(topics):
                self.nodes[0].publish(topic(number), PAYLOAD, qos, publisher=0)
            self.world.run(REST / 2)

    def _on_delivery(self, node: SimNode, delivery: object) -> None:
        self.delivered += 1

    def publish(self, messages: int) -> None:
        """A batch, to the last acknowledgement."""
        self.network.taken = taken = deque[Passed]()
        publisher = self.nodes[0]
        algorithm = publisher.overlay
        assert algorithm is not None
        work = [
            Publish(
                topic=topic(number % self.topics),
                payload=PAYLOAD,
                qos=self.qos,
                packet_id=1 if self.qos else None,
            )
            for number in range(messages)
        ]
        began = time.process_time()
        for message in work:
            algorithm.on_publish(message, 0)
        self.seconds["n0"] += time.process_time() - began
        while taken:
            by_node: dict[str, list[Passed]] = {}
            for passed in taken:
                by_node.setdefault(passed.link.here.node_id, []).append(passed)
            self.sent += len(taken)
            taken.clear()
            for node_id, arrived in by_node.items():
                began = time.process_time()
                for link, data, turn in arrived:
                    data_arrived(link, data, turn)
                self.seconds[node_id] += time.process_time() - began
        self.network.taken = None


def alone(name: str, topics: int, qos: int, messages: int, profile: bool) -> dict[str, Any]:
    """Microseconds of the algorithm for each message: of each node in its best batch."""
    stage = Stage(name, topics, qos)
    stage.sent = stage.delivered = 0
    profiler = cProfile.Profile() if profile else None
    best = dict.fromkeys(stage.seconds, float("inf"))
    for _ in range(messages // BATCH):
        stage.seconds = dict.fromkeys(stage.seconds, 0.0)
        if profiler is not None:
            profiler.enable()
        stage.publish(BATCH)
        if profiler is not None:
            profiler.disable()
        stage.world.run(1.0)
        best = {node_id: min(best[node_id], used) for node_id, used in stage.seconds.items()}
    messages = messages // BATCH * BATCH
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
    if stage.delivered != messages * (NODES - 1):
        raise RuntimeError(f"{stage.delivered} deliveries of {messages} messages to {NODES - 1} nodes")
    elsewhere = sum(best.values()) - best["n0"]
    return {
        "algorithm": name,
        "topics": topics,
        "qos": qos,
        "us at publisher": round(1e6 * best["n0"] / BATCH, 1),
        "us per delivery": round(1e6 * elsewhere / BATCH / (NODES - 1), 1),
        "us in all": round(1e6 * sum(best.values()) / BATCH, 1),
        "sent": round(stage.sent / messages, 2),
    }


# live nodes ---------------------------------------------------------------------------------------


async def run(nodes: list[NodeProcess], topics: int, qos: int, seconds: float) -> dict[str, Any]:
    await until(lambda: all(len(overlay(node)["keys"]) == 1 for node in nodes), "the overlay")
    listeners = [await connected(Client, node, "listener", ["site/#"]) for node in nodes[1:]]
    await asyncio.sleep(3.0)
    gateway = await connected(Client, nodes[0], "gateway")
    await steady(gateway, topics, qos, 5.0)
    await asyncio.sleep(2.0)
    sent, received = figures(nodes)["algorithm_out"], sum(listener.received for listener in listeners)
    usage = Usage(*map(pid_of, nodes))
    messages = await steady(gateway, topics, qos, seconds)
    await asyncio.sleep(1.0)
    used = usage.used()
    deliveries = sum(listener.received for listener in listeners) - received
    return {
        "us at publisher": round(1e6 * used[0] / messages, 1),
        "us per delivery": round(1e6 * sum(used[1:]) / deliveries, 1),
        "us in all": round(1e6 * sum(used) / messages, 1),
        "sent": round((figures(nodes)["algorithm_out"] - sent) / messages, 2),
        "deliveries": round(deliveries / messages, 3),
    }


async def steady(gateway: Client, topics: int, qos: int, seconds: float) -> int:
    """Publish at a steady rate; how many."""
    began, number = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        burst = []
        while number < passed * RATE:
            packet_id = number % 0xFFFF + 1 if qos else None
            message = Publish(topic=topic(number % topics), payload=PAYLOAD, qos=qos, packet_id=packet_id)
            burst.append(message.encode(Version.V311))
            number += 1
        gateway.write(b"".join(burst), len(burst) if qos else 0)
        await asyncio.sleep(BURST / RATE)
    return number


def live(name: str, topics: int, qos: int, seconds: float) -> dict[str, Any]:
    """One run with fresh processes."""
    with sites([{"name": name, **options(name, number)} for number in range(NODES)]) as nodes:
        return {
            "algorithm": name,
            "topics": topics,
            "qos": qos,
            "live": True,
            **asyncio.run(run(nodes, topics, qos, seconds)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", choices=list(ALGORITHMS), nargs="+", default=list(ALGORITHMS))
    parser.add_argument("--topics", type=int, nargs="+", default=[1, TOPICS])
    parser.add_argument("--qos", type=int, choices=(0, 1), nargs="+", default=[0, 1])
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--profile", action="store_true", help="where the time goes; no live nodes")
    parser.add_argument("--live", type=float, metavar="SECONDS", help="live nodes, for so long each")
    given = parser.parse_args()
    print(machine())
    for name in given.algorithms:
        for topics in given.topics:
            for qos in given.qos:
                if given.live:
                    result = live(name, topics, qos, given.live)
                else:
                    result = alone(name, topics, qos, given.messages, given.profile)
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
