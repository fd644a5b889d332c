"""Subscriptions that filters admit, change, reject or defer: what broker, client and other sites get."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Deferred, Filter, Reject, Session, Source
from ildm.mqtt import (
    Disconnect,
    PacketType,
    PingReq,
    PingResp,
    Property,
    Publish,
    ReasonCode,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.deciding import TIMEOUT, Setting
from tests.support.site import row

V5 = Version.V5


class Admitting(Filter):
    """Rejects what begins with ``no``, changes ``low``, thinks about ``later``."""

    wants = frozenset({(Source.CLIENT, PacketType.SUBSCRIBE), (Source.BROKER, PacketType.SUBACK)})
    waiting: list[Deferred[Any]]

    def __init__(self, api: Any, config: Any) -> None:
        super().__init__(api, config)
        self.seen: list[bytes] = []

    def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
        first = subscription.topic_filter.partition("/")[0]
        if first.startswith("no"):
            return Reject(ReasonCode.QUOTA_EXCEEDED if first == "no97" else None, "not yours")
        if first == "low":
            subscription.qos = 0
        if first == "later":
            self.waiting.append(Deferred())
            return self.waiting[-1]
        return subscription

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        self.seen.append(message)


def subscribe(client: MiniClient, packet_id: int, *filters: str, qos: int = 1, **more: Any) -> bytes:
    entries = [Subscription(topic_filter=topic_filter, qos=qos) for topic_filter in filters]
    frame = Subscribe(packet_id=packet_id, subscriptions=entries, **more).encode(client.version)
    client.transport.write(frame)
    return frame


def filters_of(packet: Subscribe) -> list[tuple[str, int]]:
    return [(entry.topic_filter, entry.qos) for entry in packet.subscriptions]


def setting_and_client(world: World, version: Version = V5, **fields: Any) -> tuple[Setting, MiniClient]:
    setting = Setting(world, Admitting)
    return setting, setting.client(version=version, **fields)


def asked(setting: Setting) -> list[list[tuple[str, int]]]:
    """What the broker was asked for."""
    received = setting.broker.connections[0].received
    return [filters_of(packet) for packet in received if isinstance(packet, Subscribe)]


def silent(setting: Setting) -> None:
    """The broker answers nothing by itself from now on."""
    setting.broker.takes = lambda *_: False


def interest(setting: Setting) -> dict[str, int]:
    return setting.node.clients.interest.maximum


@pytest.mark.parametrize(("version", "no", "no97"), [(V5, 0x87, 0x97), (Version.V311, 0x80, 0x80)])
def test_each_entry_has_its_code_in_one_suback(world: World, version: Version, no: int, no97: int) -> None:
    setting, client = setting_and_client(world, version)
    subscribe(client, 7, "a", "no/1", "low/1", "no97", "b")
    world.run(1)
    assert asked(setting) == [[("a", 1), ("low/1", 0), ("b", 1)]]
    reason = {Property.REASON_STRING: "not yours"} if version is V5 else {}
    assert client.packets[1:] == [SubAck(packet_id=7, reason_codes=[1, no, 0, no97, 1], properties=reason)]
    assert interest(setting) == {"a": 1, "low/1": 0, "b": 1}
    assert setting.node.counters["subscriptions_rejected"] == 2
    (line,) = setting.logged("subscription rejected")
    assert (line["filter"], line["entries"], line["text"]) == ("no/1", 2, "not yours")
    broker, back = setting.filter.seen
    assert broker == setting.broker.connections[0].received[1].encode(version)
    assert back == client.packets[1].encode(version)  # as it was relayed


def test_mqtt_3_1_has_no_code_for_a_rejection(world: World) -> None:
    """It makes "a positive acknowledgement" (3.8), and delivers nothing."""
    setting, client = setting_and_client(world, Version.V31)
    subscribe(client, 1, "a", "no", qos=2)
    world.run(1)
    subscribe(client, 2, "no")
    world.run(1)
    assert client.packets[1:] == [
        SubAck(packet_id=1, reason_codes=[2, 2]),
        SubAck(packet_id=2, reason_codes=[1]),
    ]
    assert interest(setting) == {"a": 2}


def test_what_is_admitted_unchanged_goes_on_in_the_clients_own_bytes(world: World) -> None:
    setting, client = setting_and_client(world)
    properties: Any = {Property.USER_PROPERTY: [("a", "b")], Property.SUBSCRIPTION_IDENTIFIER: [3]}
    frame = subscribe(client, 7, "a", "$share/g/b", properties=properties)
    world.run(1)
    assert setting.filter.seen[0] == frame
    assert bytes(setting.broker.connections[0].transport.other.written).endswith(frame)
    assert client.packets[1:] == [SubAck(packet_id=7, reason_codes=[1, 1])]


def test_properties_of_the_packet_stay_with_what_is_left_of_it(world: World) -> None:
    setting, client = setting_and_client(world)
    properties: Any = {Property.SUBSCRIPTION_IDENTIFIER: [3]}
    subscribe(client, 7, "no", "a", properties=properties)
    world.run(1)
    assert setting.broker.connections[0].received[1].properties == properties


def test_what_is_rejected_altogether_the_broker_never_hears_of(world: World) -> None:
    setting, client = setting_and_client(world)
    subscribe(client, 7, "no", "no97")
    world.run(1)
    assert asked(setting) == []
    reason: Any = {Property.REASON_STRING: "not yours"}
    assert client.packets[1:] == [SubAck(packet_id=7, reason_codes=[0x87, 0x97], properties=reason)]
    assert interest(setting) == {}
    assert not setting.filter.seen
    client.send(Unsubscribe(packet_id=8, topic_filters=["no"]))
    world.run(1)
    assert client.got(UnsubAck) == [UnsubAck(packet_id=8, reason_codes=[0])]  # as the broker says


@pytest.mark.parametrize(
    ("codes", "expected", "granted"),
    [
        ([1, 0x80], [1, 0x87, 0x80], {"a": 1}),
        ([1], [1, 0x87, 0x80], {"a": 1}),
        ([1, 0, 2, 2], [1, 0x87, 0], {"a": 1, "b": 0}),
    ],
)
def test_a_brokers_suback_may_have_any_number_of_codes(
    world: World, codes: list[int], expected: list[int], granted: dict[str, int]
) -> None:
    """The client gets one for each of its entries."""
    setting, client = setting_and_client(world)
    silent(setting)
    subscribe(client, 7, "a", "no", "b")
    world.run(1)
    assert not client.got(SubAck)
    setting.broker.connections[0].send(SubAck(packet_id=7, reason_codes=codes))
    world.run(1)
    assert [packet.reason_codes for packet in client.got(SubAck)] == [expected]
    assert interest(setting) == granted


def test_a_suback_that_is_none_ends_the_connection(world: World) -> None:
    setting, client = setting_and_client(world)
    silent(setting)
    subscribe(client, 7, "a", "no")
    world.run(1)
    setting.broker.connections[0].transport.write(b"\x90\x04\x00\x07\x00\x03")
    world.run(1)
    assert client.closed
    assert not client.got(SubAck)
    assert setting.node.counters["malformed_from_broker"] == 1
    assert interest(setting) == {}


def test_a_suback_nobody_awaits_is_relayed(world: World) -> None:
    """Also one before the SUBSCRIBE is decided about, and a second one."""
    setting, client = setting_and_client(world)
    silent(setting)
    connection = setting.broker.connections[0]
    subscribe(client, 7, "later", "no")
    world.run(1)
    connection.send(SubAck(packet_id=7, reason_codes=[2]))
    world.run(1)
    setting.filter.waiting[0].decide(Subscription(topic_filter="later", qos=1))
    world.run(1)
    for _ in range(2):
        connection.send(SubAck(packet_id=7, reason_codes=[1]))
        world.run(1)
    assert [packet.reason_codes for packet in client.got(SubAck)] == [[2], [1, 0x87], [1]]
    assert interest(setting) == {"later": 1}


def test_a_reason_string_of_the_brokers_stays(world: World) -> None:
    setting, client = setting_and_client(world)
    silent(setting)
    subscribe(client, 7, "a", "no")
    world.run(1)
    theirs: Any = {Property.REASON_STRING: "theirs", Property.USER_PROPERTY: [("a", "b")]}
    setting.broker.connections[0].send(SubAck(packet_id=7, reason_codes=[1], properties=theirs))
    world.run(1)
    assert client.got(SubAck) == [SubAck(packet_id=7, reason_codes=[1, 0x87], properties=theirs)]


@pytest.mark.parametrize(("size", "strings"), [(25, 2), (24, 0), (10, 0)])
def test_a_suback_is_not_larger_than_the_client_takes(world: World, size: int, strings: int) -> None:
    """But for its codes, of which none can be missing (MQTT-3.9.2-1, MQTT-3.9.2-2)."""
    setting, client = setting_and_client(world, properties={Property.MAXIMUM_PACKET_SIZE: size})
    silent(setting)
    subscribe(client, 7, "a", "no")
    world.run(1)
    theirs: Any = {Property.USER_PROPERTY: [("abc", "def")] if size < 25 else []}
    setting.broker.connections[0].send(SubAck(packet_id=7, reason_codes=[1], properties=theirs))
    world.run(1)
    (answer,) = client.got(SubAck)
    assert answer.reason_codes == [1, 0x87]
    expected = {25: {Property.REASON_STRING: "not yours"}, 24: theirs, 10: {}}[size]
    assert answer.properties == expected


def test_answers_keep_their_order_while_one_waits_for_other_sites(world: World) -> None:
    """SUBACK of the node's own, merged ones and the broker's."""
    a, b = row(world, "ab", "sf", filters=[("admits", Admitting)], link={"subscribe_wait": 60})
    client = a.client("c", version=V5)
    for session in a.node.links.links["b"].open_sessions:
        session.transport.latency = 1.0
    subscribe(client, 1, "a", "no")
    world.run(0.1)
    subscribe(client, 2, "no")
    subscribe(client, 3, "a")
    world.run(0.5)
    assert not client.got(SubAck)
    world.run(5)
    assert [(p.packet_id, p.reason_codes) for p in client.got(SubAck)] == [
        (1, [1, 0x87]),
        (2, [0x87]),
        (3, [1]),
    ]
    assert b.node.links.links["a"].interest == {"a": 1}


def test_a_suback_that_was_due_when_the_client_has_gone_harms_nobody(world: World) -> None:
    setting, client = setting_and_client(world)
    silent(setting)
    connection = setting.broker.connections[0]
    subscribe(client, 7, "a", "no")
    world.run(1)
    client.transport.reset()
    connection.send(SubAck(packet_id=7, reason_codes=[1]))
    world.run(5)
    assert not setting.node.sessions
    assert setting.node.counters["malformed_from_broker"] == 0


def test_ten_thousand_rejected_entries(world: World) -> None:
    """With packet identifiers used again and again, and a client that asks faster than it is answered."""
    setting, client = setting_and_client(world)
    names = [f"no/{number}" for number in range(2000)]
    for _ in range(5):
        subscribe(client, 7, *names)
    subscribe(client, 8, *names[:1999], "yes")
    client.send(PingReq())
    world.run(5)
    answers = client.got(SubAck)
    assert [len(packet.reason_codes) for packet in answers] == [2000] * 6
    assert answers[-1].reason_codes[-1] == 1
    assert client.got(PingResp)
    assert setting.node.counters["subscriptions_rejected"] == 5 * 2000 + 1999
    assert len(setting.logged("subscription rejected")) == 1
    (session,) = setting.node.sessions
    assert session.publishing.pending.bytes == 0
    assert session.publishing.pending.rejections(8) is None


def test_a_persistent_session_has_only_what_was_granted(world: World) -> None:
    setting, client = setting_and_client(world, Version.V311, clean_start=False)
    subscribe(client, 7, "a", "no")
    world.run(1)
    client.transport.close()
    world.run(1)
    assert setting.node.clients.records["c"].filters == {"a": 1}


# deferred -----------------------------------------------------------------------------------------


def test_what_follows_a_deferred_subscribe_waits(world: World) -> None:
    setting, client = setting_and_client(world)
    subscribe(client, 7, "later/1", "a", "later/2")
    client.send(Publish(topic="later/1", payload=b"mine"))
    world.run(1)
    assert asked(setting) == setting.payloads == []
    first, second = setting.filter.waiting
    second.decide(Reject())
    world.run(1)
    assert asked(setting) == []
    first.decide(Subscription(topic_filter="later/1", qos=2))
    world.run(1)
    assert asked(setting) == [[("later/1", 2), ("a", 1)]]
    assert [packet.reason_codes for packet in client.got(SubAck)] == [[2, 1, 0x87]]
    assert client.messages == [("later/1", b"mine")]


def test_a_packet_with_many_deferred_entries_takes_no_longer_than_one(world: World) -> None:
    setting, client = setting_and_client(world)
    subscribe(client, 7, *[f"later/{number}" for number in range(100)])
    world.run(TIMEOUT + 0.5)
    assert len(client.got(SubAck)[0].reason_codes) == 100
    assert setting.node.dispatch.loaded[0].errors == 100


@pytest.mark.parametrize("goes", ["client", "broker", "drain"])
def test_a_session_that_ends_meanwhile(world: World, goes: str) -> None:
    setting, client = setting_and_client(world)
    subscribe(client, 7, "later", "later")
    world.run(1)
    match goes:
        case "client":
            client.transport.reset()
        case "broker":
            setting.broker.connections[0].transport.close()
        case _:
            setting.node.drain(lambda: None)
    world.run(0.1)
    for deferred in setting.filter.waiting:
        deferred.decide(Subscription(topic_filter="later"))
    world.run(2 * TIMEOUT)
    assert not setting.node.sessions
    assert not setting.logged("plugin failed")
    if goes == "drain":
        assert client.got(SubAck) or client.got(Disconnect)
