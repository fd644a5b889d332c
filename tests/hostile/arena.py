"""Sites with small bounds, an innocent pair of clients, and what has to hold while others misbehave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ildm.core.node import Node
from ildm.mqtt import PubAck, Publish, SubAck, Subscribe, Subscription
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from tests.hostile.bounds import CALLS_AT_REST, CALLS_IN_ONE_EVENT, CALLS_PER_BYTE, allowed
from tests.support.kept import kept
from tests.support.site import Site, row
from tests.support.work import Work

LINK = {
    "queue_messages": 400,
    "queue_bytes": 64 << 10,
    "inflight": 100,
    "packet_size": 32 << 10,
    "max_filters": 2000,
    "max_nodes": 500,
    "keep_alive": 2,
    "reconnect_max": 2,
}
LIMITS = {
    "packet_size": 32 << 10,
    "write_buffer": 16 << 10,
    "subscriptions_per_client": 1000,
    "retained_messages": 200,
    "retained_bytes": 64 << 10,
    "persistent_sessions": 50,
    "route_cache": 500,
    "properties": 200,
    "properties_bytes": 4096,
    "filters_per_packet": 500,
    "clients": 100,
}
SLOWER = 10
"""An innocent message may take so many times as long as it does at rest."""
QUICKEST = 0.02
"""Seconds that a message may take in any case."""

DROPS = ("drop", "poison", "expired", "refused", "over_limit", "blocked", "filtered", "malformed", "denied")


def losses(*sites: Site) -> int:
    """Everything the nodes have counted as given up."""
    return sum(
        count
        for site in sites
        for name, count in site.node.counters.items()
        if any(word in name for word in DROPS)
    )


class Arena:
    """Sites in a row; at the first an innocent publisher, subscribers at the first and the last."""

    def __init__(self, algorithm: str, names: str = "abc", seed: int = 0, **changes: Any) -> None:
        self.world = World(seed)
        self.world.socket = 32 << 10
        self.world.recording = False
        options: dict[str, Any] = {"link": {**LINK, **changes.pop("link", {})}}
        options["limits"] = {**LIMITS, **changes.pop("limits", {})}
        self.sites: list[Site] = row(self.world, names, algorithm, **options, **changes)
        self.here, self.there = self.sites[0], self.sites[-1]
        self.hostile: list[Pipe] = []
        """The hostile peers' ends of their connections."""
        self.near = self.here.subscriber("innocent/#", "near", 1)
        self.far = self.there.subscriber("innocent/#", "far", 1)
        self.near.acknowledges = self.far.acknowledges = True
        self.publisher = self.here.client("innocent")
        self.world.run(1)
        self.sent = 0
        self.usual = QUICKEST
        self.usual = max(QUICKEST, self.probe())

    @property
    def nodes(self) -> list[Node]:
        return [site.node for site in self.sites]

    def publish(self, payload: bytes = b"") -> bytes:
        """The innocent publisher's next message, of QoS 1; answers its payload."""
        self.sent += 1
        text = b"%06d" % self.sent + payload
        self.publisher.send(Publish(topic="innocent/t", payload=text, qos=1, packet_id=self.sent % 65535 + 1))
        return text

    def probe(self) -> float:
        """A message of the innocent publisher to both subscribers; seconds until the last has it."""
        start = self.world.time
        text = self.publish()
        acknowledged = len(self.publisher.got(PubAck)) + 1

        def arrived() -> bool:
            return all(got(client, text) for client in (self.near, self.far)) and (
                len(self.publisher.got(PubAck)) >= acknowledged
            )

        limit = self.usual * SLOWER
        assert self.world.run_until(arrived, limit), (
            f"near {got(self.near, text)}, far {got(self.far, text)}, "
            f"acknowledged {len(self.publisher.got(PubAck)) >= acknowledged} within {limit:g} s"
        )
        return self.world.time - start

    def newcomer(self) -> None:
        """A client connects, subscribes and gets a message, as on any other day."""
        client = self.here.subscriber("innocent/#", "newcomer", 1)
        text = self.publish()
        assert self.world.run_until(lambda: got(client, text), self.usual * SLOWER)
        client.transport.close()
        self.world.run(0.1)

    def nothing_lost(self) -> None:
        """Every acknowledged message of the innocents has arrived, or its loss was counted."""
        assert len(self.publisher.got(PubAck)) == self.sent
        for client in (self.near, self.far):
            texts = {payload for _, payload in client.messages}
            missing = [n for n in range(1, self.sent + 1) if not any(t[:6] == b"%06d" % n for t in texts)]
            assert len(missing) <= losses(*self.sites), missing

    def keeps_its_bounds(self) -> None:
        """No node keeps more than its configuration lets it."""
        for site in self.sites:
            found, most = kept(site.node), allowed(site.node)
            assert found <= most, f"{site.name} keeps {found} bytes, {most} are allowed"

    @contextlib.contextmanager
    def bounded_work(self) -> Iterator[None]:
        """What hostile peers send meanwhile costs no more than it should."""
        peers = [*self.hostile, self.publisher.transport]
        before = sum(peer.sent for peer in peers)
        with Work(self.world) as work:
            yield
        sent = sum(peer.sent for peer in {*self.hostile, *peers}) - before
        most = CALLS_AT_REST + CALLS_PER_BYTE * sent
        assert work.heaviest <= CALLS_IN_ONE_EVENT, f"{work.heaviest} calls in one event"
        assert work.calls <= most, f"{work.calls} calls for {sent} bytes, {most} are allowed"


def got(client: MiniClient, payload: bytes) -> bool:
    return any(isinstance(one, Publish) and one.payload == payload for one in reversed(client.packets))


def subscribe(client: MiniClient, filters: list[str], packet_id: int = 1, qos: int = 0) -> None:
    wanted = [Subscription(topic_filter=f, qos=qos) for f in filters]
    client.send(Subscribe(packet_id=packet_id, subscriptions=wanted))


def is_subscribed(client: MiniClient) -> bool:
    return bool(client.got(SubAck))
