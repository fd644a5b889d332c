"""Filters that decide about clients, subscriptions and messages before real brokers, at once and later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ildm.api import Deferred, Filter, Reject, Session, Source
from ildm.mqtt import (
    ConnAck,
    Connect,
    ConnectReturnCode,
    PacketType,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.site import Site, settled

BOTH = pytest.mark.parametrize(
    ("kind", "version"),
    [("mosquitto", Version.V311), ("mosquitto", Version.V5), ("rabbitmq", Version.V311)],
)
SOON = 0.05


class Deciding(Filter):
    """Decides by user name, filter and payload: ``no`` rejects, ``later`` passes after a while."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def _decide(self, word: str, given: Any, reason: ReasonCode) -> Any:
        deferred: Deferred[Any] = Deferred()
        if word.startswith("later"):
            answer = Reject(reason) if word.endswith("no") else given
            self.api.call_later(SOON, deferred.decide, answer)
            return deferred
        return Reject(reason, "not here") if word == "no" else given

    def filter(self, session: Session, message: bytes) -> Any:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        return self._decide(packet.payload.decode(), message, ReasonCode.QUOTA_EXCEEDED)

    def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
        word = subscription.topic_filter.rpartition("/")[2]
        return self._decide(word, subscription, ReasonCode.NOT_AUTHORIZED)

    def admit_client(self, session: Session, packet: Connect) -> Any:
        word = packet.username or ""
        if word == "renamed":
            packet.client_id, packet.username = f"renamed-{packet.client_id}", None
            return packet
        packet.username = None  # the brokers know nobody of that name
        return self._decide(word, packet, ReasonCode.BANNED)


async def site_with_filter(sites: Sites, kind: str) -> Site:
    return await sites.make(kind, "sf", filters=[Deciding])


async def hello(site: Site, username: str, version: Version, client_id: str = "") -> Client:
    client = await Client.open(site.address, version)
    client_id = client_id or f"{site.name}-{username}"
    client.send(Connect(client_id=client_id, version=version, username=username))
    client.connack = await client.packet(ConnAck)
    return client


@BOTH
async def test_clients_are_admitted(sites: Sites, kind: str, version: Version) -> None:
    site = await site_with_filter(sites, kind)
    rejected = await asyncio.gather(*[hello(site, name, version) for name in ("no", "later no")])
    banned = ReasonCode.BANNED if version is Version.V5 else ConnectReturnCode.NOT_AUTHORIZED
    for client in rejected:
        assert client.connack.reason_code == banned
        await client.wait_closed()
    for name in ("later", "renamed"):
        client = await hello(site, name, version)
        assert client.connack.reason_code == 0
        await client.disconnect()
    await until(lambda: not site.node.sessions)
    assert site.node.counters["clients_rejected"] == 2
    assert site.node.dispatch.loaded[0].errors == 0


@BOTH
async def test_subscriptions_are_admitted(sites: Sites, kind: str, version: Version, topic_root: str) -> None:
    """Those of other sites included: what is rejected crosses to nobody."""
    site = await site_with_filter(sites, kind)
    client = await site.connect(version=version)
    words = ("a", "no", "later", "later no", "b")
    codes = await client.subscribe(*[(f"{topic_root}/{word}", 1) for word in words])
    rejected = ReasonCode.NOT_AUTHORIZED if version is Version.V5 else 0x80
    assert codes == [1, rejected, 1, rejected, 1]
    assert await client.subscribe(f"{topic_root}/no") == [rejected]
    await settled(site)
    assert set(site.node.clients.interest.maximum) == {f"{topic_root}/{word}" for word in ("a", "later", "b")}
    for word in words:
        await client.publish(f"{topic_root}/{word}", word.encode()[:1], 1)
    messages = await client.receive_all(3)
    assert {message.topic.rpartition("/")[2] for message in messages} == {"a", "later", "b"}
    await client.unsubscribe(f"{topic_root}/no", f"{topic_root}/a")


@BOTH
@pytest.mark.parametrize("qos", [0, 1])
async def test_messages_are_decided_about_in_order(
    sites: Sites, kind: str, version: Version, qos: int, topic_root: str
) -> None:
    """By the filters of the site they come from; they cross as they were admitted."""
    one, other = await sites.row([kind, kind], "sf", filters=[Deciding])
    near, far = [await site.connect(version=version) for site in (one, other)]
    for client in (near, far):
        await client.subscribe((topic_root, qos))
    await settled(one, other)
    publisher = await one.connect(version=version)
    payloads = [b"1", b"later 1", b"2", b"no", b"later no", b"3", b"later 2", b"end"]
    await publisher.publish_all(topic_root, payloads, qos)
    expected = [b"1", b"later 1", b"2", b"3", b"later 2"]
    for client in (near, far):
        assert [message.payload for message in await client.receive_until(b"end")] == expected
    assert one.node.counters["filtered"] == 2
    if qos:
        code = await publisher.publish(topic_root, b"no", qos)
        assert code == (ReasonCode.QUOTA_EXCEEDED if version is Version.V5 else 0)


async def test_a_program_that_publishes_and_goes(sites: Sites, topic_root: str) -> None:
    """DISCONNECT and the end of the connection come behind a message that waits for its decision."""
    site = await site_with_filter(sites, "mosquitto")
    listener = await site.connect()
    await listener.subscribe(topic_root)
    publisher = await site.connect(version=Version.V5)
    publisher.send(Publish(topic=topic_root, payload=b"later"))
    await publisher.disconnect()
    assert (await listener.receive()).payload == b"later"
    await until(lambda: len(site.node.sessions) == 1)
