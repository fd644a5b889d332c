"""Clients that filters admit, change, reject or think about, before the broker hears of them."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Deferred, Filter, Reject, Session
from ildm.config import Address
from ildm.core.local.answers import return_code
from ildm.mqtt import (
    ConnAck,
    Connect,
    ConnectReturnCode,
    Property,
    Publish,
    ReasonCode,
    Version,
    Will,
)
from ildm.mqtt.constants import REASON_CODES, PacketType
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.deciding import TIMEOUT, Setting
from tests.support.site import row

SECRET = b"correct horse battery staple"


class Admitting(Filter):
    """Does with a client what its user name says."""

    waiting: list[tuple[Connect, Deferred[Any]]]
    reserved: str

    def __init__(self, api: Any, config: Any) -> None:
        super().__init__(api, config)
        self.sessions: list[tuple[str, Version]] = []

    def admit_client(self, session: Session, packet: Connect) -> Any:
        self.sessions.append((session.client_id, session.version))
        word, _, code = (packet.username or "").partition(" ")
        match word:
            case "no":
                return Reject(ReasonCode(int(code, 16)) if code else None, "no room")
            case "later":
                self.waiting.append((packet, Deferred()))
                return self.waiting[-1][1]
            case "change":
                packet.client_id = "changed"
                packet.username, packet.password = "broker's", b"own"
                packet.will = Will(topic="will", payload=b"changed")
                packet.clean_start = False
            case "nonsense":
                packet.password = "text"  # type: ignore[assignment]
            case "reserved":
                packet.client_id = self.reserved
        return packet


def connect(world: World, packet: Connect) -> MiniClient:
    one = MiniClient(packet.version)
    world.connect(Address("a", 1), one)
    one.send(packet)
    world.run(0.5)
    return one


def hello(username: str, version: Version = Version.V5, **fields: Any) -> Connect:
    return Connect(client_id="c", username=username, password=SECRET, version=version, **fields)


@pytest.mark.parametrize(("version", "code"), [(Version.V5, 0x8A), (Version.V311, 5), (Version.V31, 5)])
def test_a_rejected_client_is_told_and_the_broker_is_not(world: World, version: Version, code: int) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("no 0x8A", version))
    properties: Any = {Property.REASON_STRING: "no room"} if version is Version.V5 else {}
    assert client.packets == [ConnAck(reason_code=code, properties=properties)]
    assert client.closed
    assert setting.broker.connections == []
    assert not setting.node.sessions
    assert setting.node.counters["clients_rejected"] == 1
    assert setting.node.counters["connect_timeouts"] == setting.node.counters["undecided"] == 0
    (line,) = setting.logged("client rejected")
    assert (line["client_id"], line["reason"], line["plugin"]) == ("c", "0x8A", "decides")
    world.run(30)
    assert setting.node.counters["connect_timeouts"] == 0


def test_without_a_reason_a_client_is_not_authorized(world: World) -> None:
    Setting(world, Admitting)
    assert connect(world, hello("no")).packets[0].reason_code == ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize(("size", "told"), [(15, True), (14, False)])
def test_the_reason_string_is_no_larger_than_the_client_takes(world: World, size: int, told: bool) -> None:
    """MQTT-3.2.2-19; without problem information CONNACK may have one all the same (MQTT-3.1.2-29)."""
    Setting(world, Admitting)
    properties: Any = {Property.MAXIMUM_PACKET_SIZE: size, Property.REQUEST_PROBLEM_INFORMATION: 0}
    (answer,) = connect(world, hello("no", properties=properties)).packets
    assert bool(answer.properties) is told


def test_every_reason_has_a_return_code_before_mqtt_5() -> None:
    for code in REASON_CODES[PacketType.CONNACK]:
        if code >= 0x80:
            assert return_code(ReasonCode(code)) is not ConnectReturnCode.ACCEPTED
    assert return_code(ReasonCode.BAD_USER_NAME_OR_PASSWORD) == 4
    assert return_code(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID) == 2
    assert return_code(ReasonCode.QUOTA_EXCEEDED) == return_code(ReasonCode.SERVER_BUSY) == 3
    assert return_code(ReasonCode.BANNED) == return_code(ReasonCode.NOT_AUTHORIZED) == 5


def test_the_broker_gets_the_clients_own_bytes_if_nothing_is_changed(world: World) -> None:
    setting = Setting(world, Admitting)
    # a user name and a password that are not there: in 3.1 the length counts, not the flags
    own = Connect(client_id="c", version=Version.V31).encode().replace(b"MQIsdp\x03\x02", b"MQIsdp\x03\xc2")
    client = MiniClient(Version.V31)
    world.connect(Address("a", 1), client)
    client.transport.write(own)
    world.run(0.5)
    assert client.got(ConnAck)
    assert bytes(setting.broker.connections[0].transport.other.written) == own
    assert setting.filter.sessions == [("c", Version.V31)]


def test_a_changed_connect_is_what_counts(world: World) -> None:
    """For the broker, and for what the node knows of the client: its name, session and will."""
    a, b = row(world, "ab", "pf", filters=[("admits", Admitting)])
    subscriber = b.subscriber("will")
    client = connect(world, hello("change", Version.V311, will=Will(topic="will", payload=b"own")))
    (connection,) = [each for each in a.broker.connections if not each.client_id.startswith("ildm")]
    (received,) = connection.received
    assert (received.client_id, received.username, received.password) == ("changed", "broker's", b"own")
    assert received.will.payload == b"changed"
    assert a.node.clients.records["changed"].saved
    (session,) = a.node.sessions
    assert session.client_id == "changed"
    client.transport.reset()
    world.run(1)
    assert subscriber.messages == [("will", b"changed")]


@pytest.mark.parametrize("by_filter", [True, False])
def test_no_client_gets_the_nodes_own_identifier(world: World, by_filter: bool) -> None:
    """Neither by itself nor by a filter, which is not asked about what is reserved."""
    (site,) = row(world, "a", "pf", filters=[("admits", Admitting)])
    plugin: Any = site.node.dispatch.loaded[0].plugin
    (taken,) = list(site.node.injector.client_ids)[:1]
    plugin.reserved = taken
    packet = hello("reserved") if by_filter else hello("yes")
    if not by_filter:
        packet.client_id = taken
    client = connect(world, packet)
    assert [answer.reason_code for answer in client.packets] == [ReasonCode.CLIENT_IDENTIFIER_NOT_VALID]
    assert plugin.sessions == ([("c", Version.V5)] if by_filter else [])


def test_what_cannot_be_a_connect_is_a_failure_of_the_plugin(world: World) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("nonsense"))
    assert client.packets[0].reason_code == 0
    assert setting.broker.connections[0].received[0].password == SECRET
    assert setting.node.dispatch.loaded[0].errors == 1


@pytest.mark.parametrize("username", ["no", "nonsense", "change", "later"])
def test_the_log_never_has_the_password(world: World, username: str) -> None:
    setting = Setting(world, Admitting)
    connect(world, hello(username))
    world.run(2 * TIMEOUT)
    shown = repr([fields for *_, fields in setting.node.driver.logged])  # type: ignore[attr-defined]
    assert "horse" not in shown
    assert "own'" not in shown


# deferred -----------------------------------------------------------------------------------------


def test_a_client_may_wait_for_the_decision(world: World) -> None:
    """What it sends meanwhile is kept, as before CONNACK."""
    setting = Setting(world, Admitting)
    client = connect(world, hello("later"))
    client.send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert setting.broker.connections == []
    packet, deferred = setting.filter.waiting[0]
    packet.username = "other"
    deferred.decide(packet)
    world.run(1)
    assert client.got(ConnAck)
    assert setting.broker.connections[0].received[0].username == "other"
    assert setting.payloads == [b"x"]


def test_a_deferred_client_may_be_rejected(world: World) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("later"))
    setting.filter.waiting[0][1].decide(Reject(ReasonCode.BANNED))
    world.run(1)
    assert client.packets == [ConnAck(reason_code=ReasonCode.BANNED)]
    assert client.closed


def test_a_client_that_waits_holds_no_more_than_before_connack(world: World) -> None:
    setting = Setting(world, Admitting, limits={"write_buffer": 4096})
    client = connect(world, hello("later"))
    client.transport.write(Publish(topic="t", payload=bytes(1000)).encode(Version.V5) * 1000)
    world.run(1)
    (session,) = setting.node.sessions
    assert session.paused
    assert len(session._held) <= 4096 + (256 << 10)
    packet, deferred = setting.filter.waiting[0]
    deferred.decide(packet)
    world.run(5)
    assert len(setting.payloads) == 1000


def test_the_time_for_connect_goes_on_while_a_client_waits(world: World) -> None:
    setting = Setting(world, Admitting, limits={"connect_timeout": 2.0})
    client = connect(world, hello("later"))
    world.run(1.6)
    assert client.closed
    assert client.packets == []
    assert setting.node.counters["connect_timeouts"] == 1
    packet, deferred = setting.filter.waiting[0]
    deferred.decide(packet)
    world.run(2 * TIMEOUT)
    assert setting.broker.connections == []
    assert setting.node.dispatch.loaded[0].errors == 0


def test_no_decision_lets_a_client_pass(world: World) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("later"))
    world.run(TIMEOUT)
    assert client.got(ConnAck)
    assert setting.node.dispatch.loaded[0].errors == 1


def test_no_decision_rejects_a_client_where_the_filter_says_so(world: World) -> None:
    class Strict(Admitting):
        on_error = "reject"

    Setting(world, Strict)
    client = connect(world, hello("later"))
    world.run(TIMEOUT)
    assert client.packets == [ConnAck(reason_code=ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)]


@pytest.mark.parametrize("end", ["close", "reset", "drain"])
def test_a_client_that_goes_meanwhile_is_forgotten(world: World, end: str) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("later"))
    match end:
        case "close":
            client.transport.close()
        case "reset":
            client.transport.reset()
        case _:
            setting.node.drain(lambda: None)
    world.run(0.01)
    packet, deferred = setting.filter.waiting[0]
    deferred.decide(packet)
    world.run(2 * TIMEOUT)
    if end != "close":  # a client that only ends its side waits for the answer
        assert setting.broker.connections == []
        assert setting.node.counters["undecided"] == 1
    assert not setting.node.sessions
    assert setting.node.dispatch.loaded[0].errors == 0


@pytest.mark.parametrize("room", [None, 20])
def test_a_client_is_told_what_is_otherwise_than_it_has_asked(world: World, room: int | None) -> None:
    """Of MQTT 5, if it takes so large a packet: its name, keep alive and session expiry."""
    expiry = Property.SESSION_EXPIRY_INTERVAL

    class Changing(Filter):
        def admit_client(self, session: Session, packet: Connect) -> Connect:
            packet.client_id = "given"
            packet.keep_alive = 30
            packet.properties[expiry] = 7
            return packet

    Setting(world, Changing)
    properties: Any = {Property.MAXIMUM_PACKET_SIZE: room} if room else {expiry: 100}
    packet = Connect(client_id="", version=Version.V5, properties=properties)
    (answer,) = connect(world, packet).packets
    size = Property.MAXIMUM_PACKET_SIZE
    theirs = {Property.TOPIC_ALIAS_MAXIMUM: 10, size: 16 << 20}
    ours = {Property.ASSIGNED_CLIENT_IDENTIFIER: "given", Property.SERVER_KEEP_ALIVE: 30, expiry: 7}
    assert answer.properties == (theirs if room else {**ours, **theirs})


@pytest.mark.parametrize("speaks_5", [True, False])
def test_a_broker_may_refuse_a_changed_client(world: World, speaks_5: bool) -> None:
    """Also in the form of 3.1.1."""
    setting = Setting(world, Admitting)
    setting.broker.make = PLAIN._replace(speaks_5=speaks_5)
    received = bytearray()
    client = connect(world, hello("later", keep_alive=60))
    packet, deferred = setting.filter.waiting[0]
    packet.keep_alive = 30
    setting.broker.refuse_with = ReasonCode.SERVER_BUSY
    client.data_received = received.extend  # type: ignore[method-assign,assignment]
    deferred.decide(packet)
    world.run(1)
    assert bytes(received) == (b"\x20\x03\x00\x89\x00" if speaks_5 else b"\x20\x02\x00\x01")


def test_before_mqtt_5_connack_goes_on_as_it_came(world: World) -> None:
    setting = Setting(world, Admitting)
    client = connect(world, hello("later", Version.V311))
    packet, deferred = setting.filter.waiting[0]
    packet.keep_alive = 30
    deferred.decide(packet)
    world.run(1)
    assert client.packets == [ConnAck()]
