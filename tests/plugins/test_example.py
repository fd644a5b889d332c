"""The example package, installed as a user would, at work in real nodes before real brokers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ildm.mqtt import PubAck, PubComp, Publish, PubRec, PubRel, ReasonCode, Version
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.site import NodeFactory
from tests.plugins.commands import EXAMPLES, ildm, install
from tests.plugins.raw_client import RawClient
from tests.support.brokers import Broker, PahoClient

MODULES = ("ildm_example/prefix_sharing.py", "ildm_example/json_only.py")
INSTALLED = "installed: atm_tbps, octopia, pf, prefix-sharing, sf, sg_tbps, stla"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the example, without a network."""
    return install(tmp_path_factory.mktemp("example"), EXAMPLES)


class Sites:
    """Two nodes that run the example's configuration, each before a broker of its own."""

    def __init__(self, a: NodeProcess, b: NodeProcess) -> None:
        self.a = a
        self.b = b

    def client(self, site: int, level: int = 4) -> PahoClient:
        return PahoClient((self.a, self.b)[site].address, level=level)


@pytest.fixture
def sites(installed: Path, ildm_node: NodeFactory, shared_broker: Callable[..., Broker]) -> Sites:
    document = yaml.safe_load((EXAMPLES / "node.yaml").read_text())

    def start(name: str, make: str, *neighbors: NodeProcess) -> NodeProcess:
        return ildm_node(
            document["algorithm"],
            filters=document["filters"],
            broker=shared_broker(make),
            neighbors=neighbors,
            name=name,
            python_path=installed,
        )

    a = start("a", "mosquitto")
    b = start("b", "amqtt", a)
    assert a.wait_for("sharing begins")["neighbor"] == "b"
    assert b.wait_for("sharing begins", plugin="prefix-sharing")["neighbor"] == "a"
    return Sites(a, b)


def test_prefixes_are_shared_and_other_topics_stay_local(sites: Sites) -> None:
    with sites.client(0) as near, sites.client(1) as far, sites.client(0, 5) as publisher:
        for subscriber in (near, far):
            subscriber.subscribe(("alarm/#", 2), ("shared/#", 2), ("local/#", 2))
        publisher.publish("local/reading", b"1", 1)
        publisher.publish("alarm/fire", b"2", 1)
        publisher.publish("shared", b"3", 1)  # the prefix is "shared/"
        publisher.publish("shared/x", b"4", 1)
        publisher.publish("shared/end", b"end", 1)
        assert [m.payload for m in near.receive_until(b"end")] == [b"1", b"2", b"3", b"4"]
        assert [m.payload for m in far.receive_until(b"end")] == [b"2", b"4"]
    algorithm = sites.a.admin.algorithm()
    assert algorithm["name"] == "prefix-sharing"
    assert algorithm["counters"] == {"topics_kept_local": 2}
    assert algorithm["options"] == {"prefixes": ["alarm/", "shared/"], "qos": 2}


def test_the_filter_drops_what_is_not_json(sites: Sites, topic_root: str) -> None:
    """Each publisher gets the acknowledgements of its QoS and version, and no subscriber the message."""
    watched, free = f"shared/{topic_root}/state", f"shared/{topic_root}/text"
    with sites.client(0) as near, sites.client(1) as far:
        for subscriber in (near, far):
            subscriber.subscribe((f"shared/{topic_root}/#", 2))
        for version in (Version.V311, Version.V5):
            with RawClient(sites.a.port, f"raw-{version}", version) as publisher:
                _publish_bad_and_good(publisher, watched)
        with sites.client(0) as last:
            last.publish(free, b"end", 2)
        for subscriber in (near, far):
            got = [(m.topic, m.payload) for m in subscriber.receive_until(b"end")]
            # no order holds between messages of different QoS
            assert sorted(got) == sorted((watched, good) for good in (b'{"n": 0}', b"[1]", b'"two"') * 2)
    counters = sites.a.admin.status()["counters"]
    assert counters["filtered"] == counters["json-only.not_json"] == 2 * 5
    assert "plugin_errors" not in counters


def _publish_bad_and_good(client: RawClient, topic: str) -> None:
    reason = int(ReasonCode.PAYLOAD_FORMAT_INVALID) if client.version is Version.V5 else 0
    client.send(Publish(topic=topic, payload=b"{"))
    client.send(Publish(topic=topic, payload=b'{"n": 0}'))
    for number, payload in enumerate((b"NaN", b"\xff"), 1):
        client.send(Publish(topic=topic, payload=payload, qos=1, packet_id=number))
        answer = client.expect(PubAck)
        assert (answer.packet_id, answer.reason_code) == (number, reason)
    client.send(Publish(topic=topic, payload=b"[1]", qos=1, packet_id=3))
    assert client.expect(PubAck).packet_id == 3
    for payload in (b"[" * 200_000, b""):  # the same identifier: each handshake ends
        client.send(Publish(topic=topic, payload=payload, qos=2, packet_id=4))
        received = client.expect(PubRec)
        assert (received.packet_id, received.reason_code) == (4, reason)
        if client.version is not Version.V5:  # in MQTT 5 a PUBREC with an error ends it (MQTT-4.3.3-4)
            client.send(PubRel(packet_id=4))
            assert client.expect(PubComp).packet_id == 4
    client.send(Publish(topic=topic, payload=b'"two"', qos=2, packet_id=4))
    assert client.expect(PubRec).reason_code < 0x80
    client.send(PubRel(packet_id=4))
    assert client.expect(PubComp).packet_id == 4


def test_the_example_configuration_is_accepted(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    shutil.copy(EXAMPLES / "node.yaml", config)
    done = ildm(installed, "check", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"algorithm +prefix-sharing\n", done.stdout)
    assert re.search(r"filters +json-only\n", done.stdout)


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (
            "algorithm: prefix-sharin",
            f"algorithm 'prefix-sharin' is not installed; {INSTALLED}",
        ),
        (
            "algorithm: json-only",
            f"algorithm 'json-only' is not installed; {INSTALLED}",
        ),
        ("algorithm: prefix-sharing", "algorithm 'prefix-sharing': prefixes: Field required"),
        (
            "algorithm: {name: prefix-sharing, prefixes: [], prefix: a}",
            "algorithm 'prefix-sharing': prefix: unknown option (prefixes?)",
        ),
        (
            "filters: [{name: json-only, topics: 7}]",
            "filter 'json-only': topics: expected a list, in brackets: [7]",
        ),
    ],
)
def test_a_wrong_choice_is_refused_at_start(
    installed: Path, tmp_path: Path, command: str, document: str, complaint: str
) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(document)
    arguments = [config] if command == "check" else ["--config", config]
    done = ildm(installed, command, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ildm: {config}: {complaint}\n")
    assert list(tmp_path.iterdir()) == [config]  # nothing was started


@pytest.mark.parametrize("module", MODULES)
def test_the_example_is_short(module: str) -> None:
    assert len((EXAMPLES / module).read_text().splitlines()) <= 40


def test_the_files_of_the_others_are_short_too() -> None:
    files = list(EXAMPLES.glob("*/ildm_*/*.py"))
    assert len(files) > 4
    assert [file.name for file in files if len(file.read_text().splitlines()) >= 80] == []
