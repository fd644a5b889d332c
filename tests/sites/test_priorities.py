"""An algorithm that decides on each message and on priorities, before real brokers."""

from __future__ import annotations

from collections import deque

import pytest

from ildm.api import Link, NodeApi, PluginConfig, Route, Via
from ildm.mqtt import Publish
from ildm_algorithms.pf import PublicationFlooding
from tests.sites.client import until
from tests.sites.conftest import Proxies, Sites
from tests.sites.site import Site, settled

BULK = 3000


class AlarmsFirst(PublicationFlooding):
    """What begins with ``!`` goes first, what begins with ``-`` stays at its site."""

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        if message.payload.startswith(b"-"):
            return ()
        priority = 7 if message.payload.startswith(b"!") else -1
        ways = self.route(message.topic, message.retain, source)
        return [Via(*way, priority) for way in ways]


class Feeder(AlarmsFirst):
    """Keeps the rest to itself, and sends it as fast as the link takes it."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.waiting: deque[tuple[Publish, int]] = deque()
        self.refused = self.told = 0

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        if source is not None or message.payload.startswith(b"!"):
            return super().route_message(message, source, turn)
        self.waiting.append((message, turn))
        for link in self.api.links:
            self._feed(link)
        return ()

    def on_writable(self, link: Link) -> None:
        self.told += 1
        self._feed(link)

    def _feed(self, link: Link) -> None:
        while self.waiting:
            message, turn = self.waiting[0]
            if not self.api.transfer(link, message, turn, -1):
                self.refused += 1
                return
            self.waiting.popleft()


async def pair(sites: Sites, algorithm: type[AlarmsFirst]) -> tuple[Site, Site]:
    """Two sites before two makes of brokers, over a path that can be held."""
    link = {"keep_alive": 60, "inflight": 100}
    small = {**link, "queue_messages": 1000}
    here = await sites.make("mosquitto", "pf", plugin=algorithm, link=small)
    there = await sites.make("amqtt", "pf", plugin=algorithm, link=link)
    return here, there


@pytest.mark.parametrize("qos", [0, 1])
async def test_alarms_overtake_what_waits_for_a_slow_path(
    sites: Sites, proxies: Proxies, qos: int, topic_root: str
) -> None:
    """When there is too much, none of them is dropped; what stays local is at its own site only. At QoS 1 the
    spool keeps all of it."""
    here, there = await pair(sites, AlarmsFirst)
    proxy = await proxies.join(here, there)
    far, near = await there.connect(), await here.connect()
    for client in (far, near):
        await client.subscribe((topic_root, 1))
    await settled(here, there)
    publisher = await here.connect()
    proxy.hold()
    size = 20_000 if qos == 0 else 200
    bulk = [b"%05d" % n + bytes(size) for n in range(BULK)]
    alarms = [b"!%02d" % n for n in range(20)]
    await publisher.publish_all(topic_root, bulk[:-100], qos)
    await publisher.publish_all(topic_root, [b"-local", *alarms], 1)
    await publisher.publish_all(topic_root, bulk[-100:], qos)
    got = await near.receive_all(BULK + len(alarms) + 1)
    assert b"-local" in [message.payload for message in got]
    link = here.node.dispatch.algorithm.api.links[0]  # type: ignore[union-attr]
    await until(lambda: link.queued > 0)
    assert link.queued <= 1000 + len(alarms) if qos == 0 else link.queued > BULK - 200
    assert link.queued_bytes <= here.config.link.queue_bytes
    proxy.release()
    await publisher.publish(topic_root, b"-end", 1)
    await settled(here, there)
    payloads = [message.payload[:5] for message in await far.receive_until(bulk[-1])]
    dropped = here.node.counters[f"link_dropped_overflow_qos{qos}"]
    assert (dropped > 0) == (qos == 0)
    assert [p for p in payloads if p[:1] == b"!"] == alarms
    assert len(payloads) + 1 == BULK + len(alarms) - dropped
    crossed = [int(p) for p in payloads if p[:1] != b"!"]
    assert crossed == sorted(crossed)
    assert payloads.index(alarms[-1]) < len(payloads) - 500
    assert here.node.counters["plugin_errors"] == there.node.counters["plugin_errors"] == 0


async def test_an_algorithm_that_waits_for_room_loses_nothing(
    sites: Sites, proxies: Proxies, topic_root: str
) -> None:
    """What the link refuses it keeps, and sends when it hears of room."""
    here, there = await pair(sites, Feeder)
    proxy = await proxies.join(here, there)
    far = await there.connect()
    await far.subscribe((topic_root, 1))
    await settled(here, there)
    publisher = await here.connect()
    proxy.hold()
    numbers = [b"%05d" % n + bytes(100) for n in range(BULK)]
    await publisher.publish_all(topic_root, numbers, 1)
    algorithm = here.node.dispatch.algorithm
    assert isinstance(algorithm, Feeder)
    await until(lambda: algorithm.refused > 0)
    waiting = len(algorithm.waiting)
    assert waiting >= BULK - 1200
    proxy.release()
    assert [message.payload for message in await far.receive_all(BULK)] == numbers
    assert algorithm.told >= waiting // 1000
    assert not any("_dropped" in name for name in here.node.counters)
    await settled(here, there)
