"""Chunks of messages that differ in topic and length, so that a node takes them as one batch."""

from __future__ import annotations

from collections.abc import Sequence

from ildm.mqtt import Properties, PubAck, PubComp, Publish, PubRel, Version
from ildm.testing.virtual.client import MiniClient
from tests.support.memory_spool import spool
from tests.support.site import Site


def chunk(
    first: int,
    count: int,
    prefixes: Sequence[str] = ("m",),
    version: Version = Version.V311,
    qos: int = 1,
    properties: Properties | None = None,
) -> tuple[bytes, list[bytes]]:
    """Messages of QoS 1 or 2 on topics in turn, of lengths on both sides of 128 bytes, and their payloads.

    Every other message has the properties.
    """
    sent = [
        Publish(
            topic=f"{prefixes[number % len(prefixes)]}/{number % 7}",
            payload=b"%04d" % number + bytes(number % 5 * 40),
            qos=qos,
            packet_id=number + 1,
            properties=properties or {} if number % 2 else {},
        )
        for number in range(first, first + count)
    ]
    return b"".join(message.encode(version) for message in sent), [message.payload for message in sent]


def publish(
    client: MiniClient, first: int, count: int, prefixes: Sequence[str] = ("m",), qos: int = 1
) -> None:
    """Publish a chunk, and release what is of QoS 2."""
    client.transport.write(chunk(first, count, prefixes, client.version, qos)[0])
    client.transport.world.run(0.05)
    if qos == 2:
        for number in range(first, first + count):
            client.send(PubRel(packet_id=number + 1))


def send(client: MiniClient, first: int, count: int, prefixes: Sequence[str] = ("m",), qos: int = 1) -> None:
    """The same; all of it is acknowledged."""
    publish(client, first, count, prefixes, qos)
    client.transport.world.run(0.2)
    assert len(client.got(PubAck if qos == 1 else PubComp)) == first + count


def injected(site: Site) -> list[bytes]:
    """Payloads that the node has given to its broker, in order."""
    return [packet.payload for name, packet in site.broker.published if name.startswith("ildm-")]


def numbers(site: Site) -> list[int]:
    """The same by their numbers."""
    return [int(payload[:4]) for payload in injected(site)]


def mixed_shares(site: Site, consumer: str) -> list[tuple[int, int]]:
    """Of each record of several topics that a consumer has: its messages, and how many are not freed."""
    shares = spool(site).consumer(consumer).shares.values()
    return [(share.record.messages, len(share.open)) for share in shares if share.record.mixed]
