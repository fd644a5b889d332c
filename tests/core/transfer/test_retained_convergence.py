"""Whatever was set, deleted, cut, killed and lost: when it is quiet all brokers retain the same.

By hand a hundred times as much, with ``ILDM_EXAMPLES=100 pytest --timeout=0``.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ildm.config import Address
from ildm.core.link.session import LinkSession
from ildm.mqtt import Connect, Properties, Property, Publish, PubRec, PubRel, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.examples import examples
from tests.support.site import Site

TOPICS = ("t", "u/v", "w")
QUIET = 150.0


class Setter(MiniClient):
    """A client that sets one value; of QoS 2 it releases the message when it likes, or goes instead."""

    def __init__(self, version: Version, message: Publish, release_after: float | None) -> None:
        super().__init__(version)
        self.message = message
        self.release_after = release_after

    def data_received(self, data: bytes) -> None:
        before = len(self.packets)
        super().data_received(data)
        for packet in self.packets[before:]:
            if isinstance(packet, PubRec) and packet.reason_code < 0x80:
                world = self.transport.world
                if self.release_after is not None:
                    world.call_at(world.time + self.release_after, self._release, packet.packet_id)
                else:
                    world.call_at(world.time + 5, self.transport.abort)

    def _release(self, packet_id: int) -> None:
        if not self.closed:
            self.send(PubRel(packet_id=packet_id))


class Sites:
    """A row of sites to which things happen."""

    def __init__(self, count: int, algorithm: str, sessions: int, old: set[int]) -> None:
        self.world = World()
        link = {"sessions": sessions, "queue_messages": 20, "sync_interval": 10, "reconnect_max": 5}
        self.sites = [Site(self.world, name, algorithm, link=link) for name in "abcde"[:count]]
        for index in old & set(range(count)):
            self.sites[index].broker.make = PLAIN._replace(speaks_5=False)  # as brokers of 3.1.1
        for before, site in itertools.pairwise(self.sites):
            site.node.links.add(Address(before.name, 2), False)
        self.world.run(8)
        self.sent = 0
        self.killed: set[int] = set()

    def do(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        getattr(self, name)(*arguments)

    def set(
        self,
        at: int,
        topic: str,
        qos: int,
        expiry: int | None,
        latency: float,
        release: float | None,
        pause: float,
    ) -> None:
        self._publish(at, topic, b"%d", qos, expiry, latency, release, pause)

    def delete(
        self, at: int, topic: str, qos: int, latency: float, release: float | None, pause: float
    ) -> None:
        self._publish(at, topic, b"", qos, None, latency, release, pause)

    def _publish(
        self,
        at: int,
        topic: str,
        payload: bytes,
        qos: int,
        expiry: int | None,
        latency: float,
        release: float | None,
        pause: float,
    ) -> None:
        site = self.sites[at % len(self.sites)]
        self.sent += 1
        properties: Properties = {} if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        version = Version.V5 if site.broker.make.speaks_5 else Version.V311
        message = Publish(
            topic=topic,
            payload=payload and b"%d" % self.sent,
            qos=qos,
            retain=True,
            packet_id=1 if qos else None,
            properties=properties if version is Version.V5 else {},
        )
        address = Address(site.name, 1)
        if address in self.world.listeners:
            self.world.latencies[Address(site.name, 3)] = latency  # of its own connection to the broker
            client = Setter(version, message, release)
            self.world.connect(address, client)
            client.send(Connect(client_id=f"s{self.sent}", version=version))
            client.send(message)
            self.world.run(0.01)
            self.world.latencies.pop(Address(site.name, 3), None)
        self.world.run(pause)

    def cut(self, at: int, seconds: float) -> None:
        """The link between two neighbours is gone for some time."""
        far, here = self.sites[at % (len(self.sites) - 1)], self.sites[at % (len(self.sites) - 1) + 1]
        address = Address(far.name, 2)
        self.world.listeners.pop(address, None)
        self.world.owners.pop(address, None)
        link = here.node.links.links.get(far.name)
        for session in list(link.open_sessions) if link is not None else ():
            session.abort()
        self.world.call_at(self.world.time + seconds, self._mend, far)
        self.world.run(0.1)

    def _mend(self, site: Site) -> None:
        if self.sites.index(site) not in self.killed:
            node = site.node
            self.world.listen(
                Address(site.name, 2),
                lambda: LinkSession(node.links, None, 0),
                node.driver,  # type: ignore[arg-type]
            )

    def kill(self, at: int, seconds: float) -> None:
        at %= len(self.sites)
        if at not in self.killed:
            self.killed.add(at)
            self.sites[at].kill()
            self.world.call_at(self.world.time + seconds, self._restart, at)
        self.world.run(0.1)

    def _restart(self, at: int) -> None:
        self.killed.discard(at)
        self.sites[at].start((self.sites[at - 1].name,) if at else ())

    def broker(self, at: int, seconds: float, keeps: bool) -> None:
        site = self.sites[at % len(self.sites)]
        site.broker_down()
        self.world.call_at(self.world.time + seconds, site.broker_up, keeps)
        self.world.run(0.1)

    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    def retained(self) -> list[dict[str, bytes]]:
        return [
            {topic: message.payload for topic, message in sorted(site.broker.retained.items())}
            for site in self.sites
        ]


PLACE = st.integers(0, 4)
SECONDS = st.sampled_from([0.05, 1.0, 8.0, 40.0])
LATENCY = st.sampled_from([0.0005, 0.001, 0.01, 0.2])
RELEASE = st.sampled_from([0.0, 0.003, 0.5, None])
PAUSE = st.sampled_from([0.0, 0.0, 0.001, 0.02, 2.0])
TOPIC = st.sampled_from(TOPICS)
QOS = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(
        st.just("set"), PLACE, TOPIC, QOS, st.sampled_from([None, None, None, 3, 30]), LATENCY, RELEASE, PAUSE
    ),
    st.tuples(st.just("set"), PLACE, st.just("t"), QOS, st.none(), LATENCY, RELEASE, PAUSE),
    st.tuples(st.just("delete"), PLACE, TOPIC, QOS, LATENCY, RELEASE, PAUSE),
    st.tuples(st.just("cut"), PLACE, SECONDS),
    st.tuples(st.just("kill"), PLACE, SECONDS),
    st.tuples(st.just("broker"), PLACE, SECONDS, st.booleans()),
    st.tuples(st.just("wait"), SECONDS),
)


@given(
    count=st.integers(2, 5),
    algorithm=st.sampled_from(["pf", "sf"]),
    sessions=st.integers(1, 2),
    old=st.sets(PLACE, max_size=2),
    steps=st.lists(STEPS, min_size=1, max_size=14),
)
@examples(30)
def test_after_quiet_all_brokers_have_the_same(
    count: int, algorithm: str, sessions: int, old: set[int], steps: list[tuple[Any, ...]]
) -> None:
    sites = Sites(count, algorithm, sessions, old)
    for step in steps:
        sites.do(step)
    sites.world.run(QUIET)
    first, *others = sites.retained()
    assert all(other == first for other in others), sites.retained()
    assert {len(site.node.retained.digest) for site in sites.sites} == {8}
    assert len({site.node.retained.digest for site in sites.sites}) == 1
    remembered = sites.sites[0].node.retained
    assert {topic: entry.message.payload for topic, entry in remembered.values.items()} == first
