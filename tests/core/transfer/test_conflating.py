"""Of topics whose class conflates only the newest message waits for a link."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import LinkClass
from ildm.core.counters import Counters
from ildm.core.transfer import conflating
from ildm.core.transfer.batch import single
from ildm.core.transfer.classes import LinkClasses
from ildm.core.transfer.conflating import append
from ildm.core.transfer.queue import Backlog, Entry
from ildm.mqtt import Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.core.transfer.test_classes import away, pair
from tests.support.site import Site

STATE: dict[str, Any] = {"topics": ["state/#"], "conflate": "last"}
ALL: dict[str, Any] = {**STATE, "conflate_acknowledged": True}
SPOOL: dict[str, Any] = {"mode": "process"}
SPOOLS = [None, SPOOL]


def send(world: World, client: MiniClient, *messages: str, **fields: Any) -> None:
    """Publish ``TOPIC=PAYLOAD`` each."""
    for number, message in enumerate(messages, 1):
        topic, _, payload = message.partition("=")
        packet_id = number if fields.get("qos") else None
        client.send(Publish(topic=topic, payload=payload.encode(), packet_id=packet_id, **fields))
    world.run(2)


def arrived(site: Site) -> list[str]:
    """What came over the link, as ``TOPIC=PAYLOAD``."""
    published = [p for client_id, p in site.broker.published if client_id.startswith("ildm")]
    return [f"{p.topic}={bytes(p.payload).decode()}" for p in published]


def conflated(site: Site) -> int:
    """How many messages, by the counter and by the class of the link."""
    classes = site.node.links.links["b"].classes
    assert classes is not None
    assert site.node.counters["link_conflated"] == sum(row.conflated for row in classes.rows)
    return site.node.counters["link_conflated"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("given", [STATE, ALL])
@pytest.mark.parametrize("spooling", SPOOLS)
def test_the_newest_message_takes_the_place_of_an_older_one(
    world: World, qos: int, retain: bool, given: dict[str, Any], spooling: dict[str, Any] | None
) -> None:
    a, b = pair(world, given, spooling=spooling)
    client = a.client("p", properties={})
    with away(world, a):
        for messages in (("x=1", "state/1=1", "state/2=1"), ("x=2", "state/1=2"), ("state/1=3", "x=3")):
            send(world, client, *messages, qos=qos, retain=retain)
    newest = not qos or retain or given is ALL
    assert conflated(a) == (2 if newest else 0)
    if newest:
        assert [each for each in arrived(b) if each[0] == "s"] == ["state/1=3", "state/2=1"]
        assert arrived(b)[:2] == ["x=1", "state/1=3"]
    else:
        assert arrived(b)[1:3] == ["state/1=1", "state/2=1"]
    assert [each for each in arrived(b) if each[0] == "x"] == ["x=1", "x=2", "x=3"]
    assert a.node.links.links["b"].idle
    if a.node.custody is not None:
        assert not a.node.custody.report().messages


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("spooling", SPOOLS)
def test_of_one_chunk_the_newest_of_each_topic_waits(
    world: World, qos: int, spooling: dict[str, Any] | None
) -> None:
    a, b = pair(world, ALL, spooling=spooling)
    client = a.client("p", properties={})
    with away(world, a):
        named = [
            ("state/1", b"1"),
            ("state/1", b"2"),
            ("state/2", b"1"),
            ("state/1", b"3"),
            ("state/2", b"2"),
        ]
        frames = [
            Publish(topic=topic, payload=payload, qos=qos, packet_id=number if qos else None)
            for number, (topic, payload) in enumerate(named, 1)
        ]
        client.transport.write(b"".join(each.encode(client.version) for each in frames))
        world.run(1)
    assert arrived(b) == ["state/1=3", "state/2=2"]
    assert conflated(a) == 3


@pytest.mark.parametrize("spooling", SPOOLS)
def test_what_is_not_alike_is_not_replaced_and_stays_in_order(
    world: World, spooling: dict[str, Any] | None
) -> None:
    """A retained value is replaced by a retained one alone, and QoS 1 only where that was asked for."""
    a, b = pair(world, STATE, spooling=spooling)
    client = a.client("p", properties={})
    with away(world, a):
        send(world, client, "state/1=1", qos=1, retain=True)
        send(world, client, "state/1=2", qos=0)
        send(world, client, "state/1=3", qos=0)
        send(world, client, "state/1=4", qos=1)
        send(world, client, "state/1=5", qos=1)
        send(world, client, "state/1=6", qos=1, retain=True)
        send(world, client, "state/1=7", qos=1, retain=True)
    came = [each[-1] for each in arrived(b)]
    assert [each for each in came if each in "14567"] == list("1457")
    assert [each for each in came if each in "23"] == ["3"]
    assert conflated(a) == 2


@pytest.mark.parametrize("spooling", SPOOLS)
def test_what_is_under_way_is_not_replaced(world: World, spooling: dict[str, Any] | None) -> None:
    a, b = pair(world, ALL, spooling=spooling, inflight=1)
    client = a.client("p", properties={})
    (sender,) = a.node.links.links["b"].senders
    (inbound,) = b.node.links.links["a"].inbounds
    inbound.hold("test")
    send(world, client, "state/1=1", "state/1=2", "state/1=3", qos=1)
    assert (sender.inflight, sender.queued_messages) == (1, 1)
    inbound.release("test")
    world.run(5)
    assert arrived(b) == ["state/1=1", "state/1=3"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_older_messages_on_the_disk_are_passed_over(world: World, qos: int, restart: bool) -> None:
    a, b = pair(world, ALL, spooling={"mode": "process", "page_bytes": 1024})
    client = a.client("p", properties={})
    with away(world, a):
        send(world, client, *(f"state/{number}=first" for number in range(5)), qos=qos)
        send(world, client, *(f"x/{number}={'y' * 20}" for number in range(80)), qos=qos)
        assert not a.node.links.links["b"].senders[0].spooled.all_in_memory
        for value in range(8):
            send(world, client, *(f"state/{number}={value}" for number in range(5)), qos=qos)
        if restart:
            a.reborn("b")  # type: ignore[attr-defined]
    world.run(10)
    came = [each for each in arrived(b) if each[0] == "s"]
    last = [f"state/{number}=7" for number in range(5)]
    assert came[-5:] == last
    if not restart:
        assert came == last
        assert conflated(a) == 40
    assert len([each for each in arrived(b) if each[0] == "x"]) == 80
    assert not a.node.custody.report().messages  # type: ignore[union-attr]


def test_topics_on_the_disk_are_remembered_within_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflating, "MOST_TOPICS", 2)
    a, b = pair(world, ALL, spooling={"mode": "process", "page_bytes": 1024})
    client = a.client("p", properties={})
    with away(world, a):
        send(world, client, *(f"x/{number}={'y' * 20}" for number in range(80)), qos=1)
        assert not a.node.links.links["b"].senders[0].spooled.all_in_memory
        for value in range(3):
            send(world, client, *(f"state/{number}={value}" for number in range(3)), qos=1)
    assert a.node.counters["link_not_conflated"] == 3
    for number in range(3):
        came = [each for each in arrived(b) if each.startswith(f"state/{number}=")]
        assert came[-1] == f"state/{number}=2"


def test_a_queue_forgets_what_has_left_it() -> None:
    """What follows is appended, not put in the place of what is gone."""
    classes = LinkClasses([LinkClass.model_validate(STATE)], None, Counters())
    queue = Backlog()
    rank = classes.rank(b"state/1", 0)

    def put(payload: bytes) -> None:
        append(queue, Entry(single(Publish(topic="state/1", payload=payload), 0), None, rank), classes)

    put(b"1")
    queue.remove(1)
    put(b"2")
    assert list(queue.trim(0, 0)) == []  # the last one stays
    assert queue.cut(0, 0) == 1
    put(b"3")
    assert [entry.batch.message.payload for entry in queue.take_all()] == [b"3"]
    put(b"4")
    put(b"5")
    assert [entry.batch.message.payload for entry in queue.take_all()] == [b"5"]
    queue.check()
