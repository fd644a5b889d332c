"""Clients that use a packet identifier again while it is in use, which MQTT-2.2.1-3 forbids (3.1.1: 2.3.1).

Brokers take the second message and answer it like any other. So it has to be had at the other sites, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ildm.api import Filter, Reject, Session, Source
from ildm.core.local.unanswered import Unanswered
from ildm.mqtt import PacketType, PubAck, PubComp, Publish, PubRec, PubRel, ReasonCode, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import Answers, injected
from tests.support.site import Site, row

VERSIONS = pytest.mark.parametrize("version", [Version.V311, Version.V5])
TRANSFERS = pytest.mark.parametrize("transfer", ["acknowledged", "received"])


def message(payload: str, qos: int, packet_id: int = 1, **fields: Any) -> Publish:
    return Publish(topic="t", payload=payload.encode(), qos=qos, packet_id=packet_id, **fields)


def at_once(client: MiniClient, packets: Sequence[Any], version: Version) -> None:
    """Send all in one chunk, with no wait for an answer."""
    client.transport.write(b"".join(packet.encode(version) for packet in packets))


REL = PubRel(packet_id=1)
CASES = {
    "released, other": ([message("1", 2), REL, message("2", 2), REL], "12"),
    "released, equal": ([message("1", 2), REL, message("1", 2), REL], "11"),
    "released, three": ([message("1", 2), REL, message("1", 2), REL, message("3", 2), REL], "113"),
    "not released, other": ([message("1", 2), message("2", 2), REL], "12"),
    "not released, back": ([message("1", 2), message("2", 2), message("1", 2), REL], "121"),
    "not released, equal": ([message("1", 2), message("1", 2), REL], "1"),
    "DUP, other": ([message("1", 2), message("2", 2, dup=True), REL], "12"),
    "DUP, equal": ([message("1", 2), message("1", 2, dup=True), REL], "1"),
    "retained": (
        [message("1", 2, retain=True), REL, message("2", 2, retain=True), REL],
        "12",
    ),
    "QoS 1, other": ([message("1", 1), message("2", 1)], "12"),
    "QoS 1, equal": ([message("1", 1), message("1", 1)], "11"),
    "QoS 1, DUP, other": ([message("1", 1), message("2", 1, dup=True)], "12"),
    "QoS 1, retained": ([message("1", 1, retain=True), message("2", 1, retain=True)], "12"),
    "QoS 2, then 1": ([message("1", 2), message("2", 1), REL], "12"),
    "QoS 1, then 2": ([message("1", 1), message("2", 2), REL], "12"),
    "QoS 1, 2, 1": ([message("1", 1), message("2", 2), message("3", 1, retain=True), REL], "123"),
    "released before": ([REL, message("1", 2), REL], "1"),
}


@VERSIONS
@TRANSFERS
@pytest.mark.parametrize("case", CASES)
def test_what_the_broker_takes_is_had_elsewhere(
    world: World, case: str, transfer: str, version: Version
) -> None:
    packets, wanted = CASES[case]
    a, b = row(world, "ab", "pf", link={"transfer": transfer})
    client = a.client("c", version=version)
    at_once(client, packets, version)
    world.run(1)
    local = [p.payload.decode() for name, p in a.broker.published if name == "c"]
    assert sorted(local) == sorted(wanted), "what the broker has taken"
    assert sorted(payload.decode() for _, payload in injected(b)) == sorted(wanted)
    if len({packet.qos for packet in packets if isinstance(packet, Publish)}) == 1:
        assert [payload.decode() for _, payload in injected(b)] == list(wanted)


@VERSIONS
@TRANSFERS
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_of_them(world: World, case: str, transfer: str, version: Version) -> None:
    """The identifier is free again: the same message sent later is another one."""
    packets, wanted = CASES[case]
    a, b = row(world, "ab", "pf", link={"transfer": transfer})
    client = a.client("c", version=version)
    at_once(client, packets, version)
    world.run(1)
    (session,) = a.node.sessions
    assert not session.publishing.unanswered
    assert session.publishing.record is not None
    assert session.publishing.record.qos2 == {}
    assert not a.node.retained.releases.any_of("c")
    for payload in "12":
        client.send(message(payload, 2))
        world.run(0.1)
        client.send(REL)
        world.run(0.1)
    assert [payload.decode() for _, payload in injected(b)][-2:] == ["1", "2"]
    assert len(injected(b)) == len(wanted) + 2


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_broker_refuses_of_them_does_not_cross(world: World, version: Version, qos: int) -> None:
    a, b = row(world, "ab", "pf")
    Answers(a).refused = {"secret": 0x87}
    client = a.client("c", version=Version.V5)
    secret = Publish(topic="secret", payload=b"2", qos=qos, packet_id=1)
    at_once(client, [message("1", qos), secret, message("3", qos)], Version.V5)
    world.run(1)
    assert injected(b) == [("t", b"1"), ("t", b"3")]


def test_answers_out_of_order_go_to_the_oldest_of_an_identifier() -> None:
    unanswered = Unanswered()
    first, second, other = message("1", 2), message("2", 2), message("3", 2, 2)
    for each in (first, second, other):
        unanswered.add(each, None, 10)
    assert unanswered.answer(2, 2, taken=True) == []  # early
    (waiting,) = unanswered.answer(1, 2, taken=True) or ()
    assert not isinstance(waiting, tuple) or waiting[0] is first
    assert [each[0] for each in unanswered.answer(1, 2, taken=True) or ()] == [second, other]
    assert not unanswered
    assert unanswered.bytes == 0


def test_an_answer_is_for_the_qos_it_belongs_to() -> None:
    unanswered = Unanswered()
    first, second = message("1", 1, retain=True), message("2", 2)
    unanswered.add(first, None, 10)
    unanswered.add(second, None, 10)
    assert [each[0] for each in unanswered.answer(1, 2, taken=True) or ()] == [second]
    assert [each[0] for each in unanswered.answer(1, 1, taken=True) or ()] == [first]
    assert not unanswered
    unanswered.add(second, None, 10)  # RabbitMQ makes QoS 1 of it
    assert [each[0] for each in unanswered.taken([1], 1)] == [second]


class Dropping(Filter):
    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def filter(self, session: Session, message: bytes) -> bytes | Reject:
        return Reject(ReasonCode.SUCCESS) if b"dropped" in message else message


@VERSIONS
def test_the_identifier_of_a_message_that_a_filter_has_dropped(world: World, version: Version) -> None:
    a = Site(world, "a", "pf", filters=[("dropping", Dropping)])
    sub = a.subscriber("t", "sub")
    client = a.client("c", version=version)
    client.send(message("dropped", 2))
    world.run(0.1)
    assert len(client.got(PubRec)) == 1
    client.send(message("1", 2))
    world.run(0.1)
    client.send(REL)
    world.run(0.1)
    assert [p.payload for p in sub.got(Publish)] == [b"1"]
    assert len(client.got(PubComp)) == 1
    assert not client.got(PubAck)
