"""Each stock broker does what the tests of the node take for granted, and nothing of it is left running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers import (
    KINDS,
    Broker,
    BrokerError,
    Fleet,
    Mosquitto,
    PahoClient,
    RefusedError,
    broker_pairs,
    new_broker,
    require_broker,
)
from tests.support.ports import free_port, is_free

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_arrives_with_the_smaller_qos(broker: Broker, topic_root: str, qos: int) -> None:
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        granted = subscriber.subscribe((f"{topic_root}/a", qos))
        assert granted == [min(qos, broker.max_qos)]
        publisher.publish(f"{topic_root}/a", b"payload", qos)
        message = subscriber.receive()
        assert (message.topic, message.payload, message.qos) == (f"{topic_root}/a", b"payload", granted[0])


def test_order_of_one_publisher_is_kept(broker: Broker, topic_root: str) -> None:
    sent = [b"%d" % number for number in range(50)]
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((topic_root, 1))
        for payload in sent:
            publisher.publish(topic_root, payload, 1)
        assert [subscriber.receive().payload for _ in sent] == sent


def test_plus_matches_one_level(broker: Broker, topic_root: str) -> None:
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((f"{topic_root}/+/c", 1))
        for topic in ("a/c", "a/b/c", "c", "b/c"):
            publisher.publish(f"{topic_root}/{topic}", b"m", 1)
        publisher.publish(f"{topic_root}/z/c", b"end", 1)
        topics = [message.topic for message in subscriber.receive_until(b"end")]
        assert topics == [f"{topic_root}/a/c", f"{topic_root}/b/c"]


def test_hash_matches_all_levels_and_the_parent(broker: Broker, topic_root: str) -> None:
    sent = [topic_root, f"{topic_root}/a", f"{topic_root}/a/b", f"{topic_root}//"]
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((f"{topic_root}/#", 1))
        for topic in [*sent[:2], f"{topic_root}x/a", *sent[2:]]:
            publisher.publish(topic, b"m", 1)
        publisher.publish(f"{topic_root}/z", b"end", 1)
        assert [message.topic for message in subscriber.receive_until(b"end")] == sent


def test_unsubscribe_ends_delivery(broker: Broker, topic_root: str) -> None:
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((f"{topic_root}/a", 1), (f"{topic_root}/b", 1))
        subscriber.unsubscribe(f"{topic_root}/a")
        publisher.publish(f"{topic_root}/a", b"m", 1)
        publisher.publish(f"{topic_root}/b", b"end", 1)
        assert subscriber.receive_until(b"end") == []


def test_retained_message_waits_for_subscribers(broker: Broker, topic_root: str) -> None:
    """The last one is kept, an empty one clears it (MQTT-3.3.1-5, MQTT-3.3.1-6, MQTT-3.3.1-10)."""
    topic = f"{topic_root}/state"
    with PahoClient(broker.address) as publisher:
        publisher.publish(topic, b"old", 1, retain=True)
        publisher.publish(topic, b"new", 1, retain=True)
        with PahoClient(broker.address) as subscriber:
            subscriber.subscribe((topic, 1))
            assert subscriber.receive().payload == b"new"
        publisher.publish(topic, b"", 1, retain=True)
        with PahoClient(broker.address) as subscriber:
            subscriber.subscribe((topic, 1))
            publisher.publish(topic, b"end", 1)
            assert subscriber.receive_until(b"end") == []


def test_will_is_published_when_the_connection_breaks(broker: Broker, topic_root: str) -> None:
    will = (f"{topic_root}/will", b"gone", 1, False)
    with PahoClient(broker.address) as subscriber:
        subscriber.subscribe((f"{topic_root}/will", 1))
        client = PahoClient(broker.address, will=will)
        with client:
            client.drop()
            message = subscriber.receive()
        assert (message.topic, message.payload, message.qos) == (f"{topic_root}/will", b"gone", 1)


def test_will_is_dropped_at_disconnect(broker: Broker, topic_root: str) -> None:
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((f"{topic_root}/#", 1))
        with PahoClient(broker.address, will=(f"{topic_root}/will", b"gone", 1, False)):
            pass
        publisher.publish(f"{topic_root}/z", b"end", 1)
        assert subscriber.receive_until(b"end") == []


def test_levels_are_accepted_as_declared(broker: Broker) -> None:
    for level in broker.versions:
        with PahoClient(broker.address, f"level{level}", level=level):
            pass
    for level in {3, 4, 5} - broker.versions:
        with pytest.raises(RefusedError), PahoClient(broker.address, f"level{level}", level=level):
            pass


def test_a_large_message_passes(broker: Broker, topic_root: str) -> None:
    payload = os.urandom(1_000_000)
    with PahoClient(broker.address) as subscriber, PahoClient(broker.address) as publisher:
        subscriber.subscribe((topic_root, 1))
        publisher.publish(topic_root, payload, 1)
        assert subscriber.receive().payload == payload


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "amqtt"])
def test_session_outlives_the_connection(
    shared_broker: Callable[..., Broker], topic_root: str, kind: str
) -> None:
    broker = shared_broker(kind)
    with PahoClient(broker.address, topic_root, clean=False) as subscriber:
        subscriber.subscribe((topic_root, 1))
    with PahoClient(broker.address) as publisher:
        publisher.publish(topic_root, b"kept", 1)
    with PahoClient(broker.address, topic_root, clean=False) as subscriber:
        assert subscriber.receive().payload == b"kept"
    with PahoClient(broker.address, topic_root):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_restart_comes_back_on_the_same_port(broker_factory: Callable[..., Broker], kind: str) -> None:
    broker = broker_factory(kind)
    address = broker.address
    with PahoClient(address) as client:
        broker.stop()
        client.wait_down()
    assert not broker.running
    assert is_free(broker.port)
    broker.start()
    assert broker.address == address
    with PahoClient(address) as client:
        broker.kill()
        client.wait_down()
    assert broker.pids() == []
    assert is_free(broker.port)


def test_mosquitto_persists_over_a_restart(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory("mosquitto", persistence=True)
    with PahoClient(broker.address, "sub", clean=False) as subscriber:
        subscriber.subscribe(("a", 1))
    with PahoClient(broker.address) as publisher:
        publisher.publish("a", b"kept", 1)
    broker.restart()
    with PahoClient(broker.address, "sub", clean=False) as subscriber:
        assert subscriber.session_present
        assert subscriber.receive().payload == b"kept"


def test_mosquitto_forgets_without_persistence(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory("mosquitto")
    with PahoClient(broker.address, "sub", clean=False) as subscriber:
        subscriber.subscribe(("a", 1))
    broker.restart()
    with PahoClient(broker.address, "sub", clean=False) as subscriber:
        assert not subscriber.session_present


def test_mosquitto_options_reach_it(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory(
        "mosquitto", acl="topic read open/#\ntopic write open/#\n", extra=["max_keepalive 30"]
    )
    with PahoClient(broker.address, level=5) as client:
        assert client.server_keep_alive == 30
        client.subscribe(("#", 1))
        client.publish("closed/a", b"m", 1)
        client.publish("open/a", b"end", 1)
        assert client.receive_until(b"end") == []


@pytest.mark.parametrize("broker_pair", broker_pairs(["mosquitto", "amqtt"], same=True), indirect=True)
def test_a_pair_is_two_brokers(broker_pair: tuple[Broker, Broker]) -> None:
    first, second = broker_pair
    assert first.port != second.port
    assert set(first.pids()).isdisjoint(second.pids())


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    require_broker("mosquitto")
    broken = new_broker("mosquitto", tmp_path, extra=["no_such_option true"])
    with pytest.raises(BrokerError, match="no_such_option"):
        broken.start()
    assert not broken.running


def test_a_stopped_shared_broker_is_started_again(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        broker = fleet.shared("amqtt")
        broker.kill()
        assert fleet.shared("amqtt") is broker
        assert broker.running
    finally:
        fleet.close()
    assert not broker.running


def test_a_missing_broker_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mosquitto, "available", lambda: "mosquitto is not here")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ILDM_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="mosquitto is not here"):
        require_broker("mosquitto")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="mosquitto is not here"):
        require_broker("mosquitto")
    monkeypatch.setenv("CI", "false")
    monkeypatch.setenv("ILDM_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="mosquitto is not here"):
        require_broker("mosquitto")


def test_a_free_port_is_given_once() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50


@pytest.mark.parametrize(
    ("kind", "number"),
    [("mosquitto", signal.SIGTERM), ("mosquitto", signal.SIGKILL), ("rabbitmq", signal.SIGKILL)],
)
def test_no_process_outlives_the_test_run(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    """RabbitMQ starts helpers; those are what tends to be left."""
    require_broker(kind)
    script = (
        "import sys, pathlib\n"
        "from tests.support.brokers import new_broker\n"
        f"broker = new_broker({kind!r}, pathlib.Path({str(tmp_path / 'inner')!r}))\n"
        "broker.start()\n"
        "print(*broker.pids(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        watched = [os.pidfd_open(int(pid)) for pid in run.stdout.readline().split()]
        assert watched
        run.send_signal(number)
    for descriptor in watched:
        ended = _wait_ended(descriptor)
        os.close(descriptor)
        assert ended


def _wait_ended(descriptor: int) -> bool:
    """Whether the process of the descriptor ends (it is readable then)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(20_000))
