"""The example of a filter of messages: alone, simulated, and live before Mosquitto and amqtt."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ildm.mqtt import Connect, Property, PubAck, Publish, PubRec, PubRel, ReasonCode, Version, Will
from ildm.testing import FakeNode, PluginWorld, Rejected
from ildm.testing.live.client import PahoClient, RefusedError
from ildm.testing.live.site import NodeFactory
from ildm_algorithms.pf import PublicationFlooding
from tests.plugins.commands import configured, ildm
from tests.plugins.raw_client import RawClient

pytest.importorskip("fastjsonschema", reason="the library of the example")

from tests.plugins.examples.schema.ildm_schema.schema import Schema

FILTER = configured("schema")["filters"][0]
OPTIONS = {"schemas": FILTER["schemas"]}
TOPIC = "sensor/1/temperature"
GOOD, NEGATIVE, TEXT = b'{"celsius": 20.5}', b'{"celsius": -300}', b'{"celsius": "warm"}'


def test_what_matches_passes_as_it_is_and_other_topics_are_not_looked_at() -> None:
    node = FakeNode(Schema, OPTIONS)
    for version in Version:
        for topic, payload in ((TOPIC, GOOD), ("sensor/1/name", b"\xff"), ("sensor", b"")):
            message = Publish(topic=topic, payload=payload)
            assert node.filter(message, version=version) == message
    assert node.counters == {}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (TEXT, "data.celsius must be number"),
        (NEGATIVE, "data.celsius must be bigger than or equal to -273.15"),
        (b"{}", "data must contain ['celsius'] properties"),
        (b"[]", "data must be object"),
        (b"{", "not JSON: "),
        (b"", "not JSON: "),
        (b'{"celsius": NaN}', "not JSON: NaN is none"),
        (b'{"celsius": "\xff"}', "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
    ],
)
def test_the_text_says_what_is_wrong(payload: bytes, text: str) -> None:
    answer = FakeNode(Schema, OPTIONS).filter(Publish(topic=TOPIC, payload=payload))
    assert isinstance(answer, Rejected)
    assert answer.reason is ReasonCode.PAYLOAD_FORMAT_INVALID
    assert answer.text.startswith(text)


def test_all_schemas_of_a_topic_must_be_met_and_retained_messages_can_be_deleted() -> None:
    node = FakeNode(Schema, {"schemas": {"a/#": {"type": "object"}, "+/b": {"required": ["n"]}}})
    assert isinstance(node.filter(Publish(topic="a/b", payload=b"{}")), Rejected)
    for message in (Publish(topic="a/b", payload=b'{"n": 1}'), Publish(topic="a/b", retain=True)):
        assert node.filter(message) == message
    assert node.counters == {"not_matching": 1}


def test_a_will_must_match_like_a_message() -> None:
    node = FakeNode(Schema, OPTIONS)
    good, bad = (Connect(client_id="c", will=Will(topic=TOPIC, payload=payload)) for payload in (GOOD, TEXT))
    assert node.admit(good) == good
    assert isinstance(node.admit(bad), Rejected)


def test_every_publisher_of_a_network_is_told() -> None:
    world = PluginWorld(PublicationFlooding, filters=[(Schema, OPTIONS)], seed=1)
    for number in range(50):
        world.add(f"n{number}", introducer=f"n{number // 2}" if number else None)
    world.settle()
    for node in world.alive():
        node.subscribe("#")
    for node in world.alive():
        client = node.client("sensor")
        for payload in (TEXT, GOOD):
            client.publish(TOPIC, payload, qos=1)
        world.settle()
        told = [answer.reason_code for answer in client.told if isinstance(answer, PubAck)]
        assert told == [ReasonCode.PAYLOAD_FORMAT_INVALID, ReasonCode.SUCCESS]
    for node in world.alive():
        assert [delivery.payload for delivery in node.deliveries] == [GOOD] * 50


@pytest.mark.parametrize("schema", [{"type": "number "}, {"pattern": "("}, {"properties": 3}])
def test_what_is_no_schema_is_refused_by_name(
    installed_examples: Path, tmp_path: Path, schema: dict[str, object]
) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(yaml.safe_dump({"filters": [{"name": "schema", "schemas": {"t/#": schema}}]}))
    done = ildm(installed_examples, "check", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(rf"ildm: {re.escape(str(config))}: filter 'schema': schemas: .*t/#: ", done.stderr)


def test_live(
    installed_examples: Path, ildm_node: NodeFactory, ildm_client: Callable[..., PahoClient]
) -> None:
    """Clients of MQTT 5 before Mosquitto, of MQTT 3.1.1, which hear no reasons, before amqtt."""
    a = ildm_node("pf", filters=[FILTER], broker="mosquitto", python_path=installed_examples)
    b = ildm_node("pf", filters=[FILTER], neighbors=[a], python_path=installed_examples)
    near, far = ildm_client(a, level=5), ildm_client(b)
    for subscriber in (near, far):
        subscriber.subscribe(("#", 1))
    for node, version in ((a, Version.V5), (b, Version.V311)):
        with RawClient(node.port, "sensor", version) as sensor:
            sensor.send(Publish(topic=TOPIC, payload=TEXT))
            sensor.send(Publish(topic=TOPIC, payload=TEXT, qos=1, packet_id=1))
            answers = [sensor.expect(PubAck)]
            sensor.send(Publish(topic=TOPIC, payload=TEXT, qos=2, packet_id=2))
            received = sensor.expect(PubRec)
            if version is Version.V5:
                for answer in (*answers, received):
                    assert answer.reason_code == ReasonCode.PAYLOAD_FORMAT_INVALID
                    assert answer.properties[Property.REASON_STRING] == "data.celsius must be number"
            else:
                sensor.send(PubRel(packet_id=2))
            sensor.send(Publish(topic=TOPIC, payload=GOOD, qos=1, packet_id=3))
        with pytest.raises(RefusedError) as refused:
            ildm_client(node, level=version, will=(TOPIC, TEXT, 1, False))
        assert refused.value.code == ReasonCode.NOT_AUTHORIZED  # of 3.1.1 5, which paho shows as the same
    ildm_client(b).publish("end", b"end", 1)
    for subscriber in (near, far):
        assert sorted(m.payload for m in subscriber.receive_until(b"end")) == [GOOD, GOOD]
    assert a.admin.status()["counters"]["schema.not_matching"] == 4
