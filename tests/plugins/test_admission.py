"""The example of a filter of subscriptions: alone, simulated, and live before Mosquitto and amqtt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from ildm.mqtt import Property, ReasonCode, SubAck, Subscribe, Subscription, Version
from ildm.testing import FakeNode, PluginWorld, Rejected
from ildm.testing.live.client import PahoClient
from ildm.testing.live.site import NodeFactory
from ildm_algorithms.sf import SubscriptionFlooding
from tests.plugins.commands import configured
from tests.plugins.examples.admission.ildm_admission.admission import Admission

FILTER = configured("admission")["filters"][0]
OPTIONS = {key: value for key, value in FILTER.items() if key != "name"}
REFUSED = int(ReasonCode.NOT_AUTHORIZED)


def asked(node: FakeNode[Admission], *filters: str, tokens: Sequence[str] = ()) -> list[bool]:
    """Whether each filter was admitted, in one SUBSCRIBE with these tokens."""
    subscriptions = [Subscription(topic_filter=topic_filter, qos=1) for topic_filter in filters]
    pairs = [("token", token) for token in tokens]
    packet = Subscribe(
        packet_id=1, subscriptions=subscriptions, properties={Property.USER_PROPERTY: pairs} if pairs else {}
    )
    answers = node.admit(packet)
    for answer, subscription in zip(answers, subscriptions, strict=True):
        assert answer == subscription or (isinstance(answer, Rejected) and answer.reason == REFUSED)
    return [not isinstance(answer, Rejected) for answer in answers]


def test_a_token_allows_what_its_filters_cover() -> None:
    node = FakeNode(Admission, OPTIONS)
    filters = ("public/x", "plant/#", "plant/+/x", "alarm/1", "alarm/1/2", "alarm/#", "#", "$SYS/#")
    assert asked(node, *filters, tokens=["secret"]) == [True, True, True, True, False, False, False, False]
    assert asked(node, *filters) == asked(node, *filters, tokens=["other"]) == [True] + [False] * 7
    assert node.counters == {"refused": 4 + 2 * 7}


def test_a_shared_subscription_is_judged_by_its_filter() -> None:
    node = FakeNode(Admission, OPTIONS)
    assert asked(node, "$share/g/plant/1", "$share/g/#", tokens=["secret"]) == [True, False]


def test_all_tokens_count() -> None:
    tokens = {sha256(name.encode()).hexdigest(): [f"{name}/#"] for name in ("a", "b")}
    node = FakeNode(Admission, {"tokens": tokens})
    assert asked(node, "a/x", "b/x", "c/x", tokens=["b", "none", "a"]) == [True, True, False]


@pytest.mark.parametrize(("version", "refused"), [(Version.V5, REFUSED), (Version.V311, 0x80)])
def test_what_was_not_admitted_does_not_cross(version: Version, refused: int) -> None:
    world = PluginWorld(SubscriptionFlooding, filters=[(Admission, OPTIONS)], seed=1)
    for number in range(50):
        world.add(f"n{number}", introducer=f"n{number // 2}" if number else None)
    world.settle()
    for node in world.alive():
        client = node.client("c", version=version)
        client.subscribe(("public/x", 1), ("plant/x", 1))
        world.settle()
        told = [answer.reason_codes for answer in client.told if isinstance(answer, SubAck)]
        assert told == [[1, refused]]
    for topic in ("plant/x", "public/x"):
        world["n7"].publish(topic)
    world.settle()
    for node in world.alive():
        assert [delivery.topic for delivery in node.deliveries] == ["public/x"]


def test_live(
    installed_examples: Path, ildm_node: NodeFactory, ildm_client: Callable[..., PahoClient]
) -> None:
    a = ildm_node("sf", filters=[FILTER], broker="mosquitto", python_path=installed_examples)
    b = ildm_node("sf", filters=[FILTER], neighbors=[a], python_path=installed_examples)
    holder, stranger, old = ildm_client(a, level=5), ildm_client(a, level=5), ildm_client(b, level=4)
    filters = (("public/#", 1), ("plant/#", 1), ("#", 1))
    assert holder.subscribe(*filters, user_properties=[("token", "secret")]) == [1, 1, REFUSED]
    assert stranger.subscribe(*filters, user_properties=[("token", "guess")]) == [1, REFUSED, REFUSED]
    assert old.subscribe(*filters) == [1, 0x80, 0x80]
    publisher = ildm_client(b)
    for topic in ("plant/x", "other", "public/x"):
        publisher.publish(topic, topic.encode(), 1)
    publisher.publish("public/end", b"end", 1)
    assert [m.topic for m in holder.receive_until(b"end")] == ["plant/x", "public/x"]
    for client in (stranger, old):
        assert [m.topic for m in client.receive_until(b"end")] == ["public/x"]
    assert a.admin.status()["counters"]["admission.refused"] == 1 + 2
    assert b.admin.status()["counters"]["admission.refused"] == 2
