"""Messages of a client, with every handshake completed."""

from __future__ import annotations

from ildm.mqtt import PubAck, PubComp, Publish, PubRel
from ildm.testing.virtual.client import MiniClient


def publish(client: MiniClient, topics: list[str], qos: int) -> None:
    """Send messages of QoS 1 or 2 with every handshake completed as it goes."""
    for i, topic in enumerate(topics):
        client.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=i + 1))
        client.transport.world.run(0.01)
        if qos == 2:
            client.send(PubRel(packet_id=i + 1))
            client.transport.world.run(0.01)
    assert len(client.got(PubComp if qos == 2 else PubAck)) == len(topics)


TOPICS = [f"t/{i}" for i in range(50)]
