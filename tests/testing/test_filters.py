"""Plugins that look at packets, and filters, in the simulator and in a fake node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ildm.api import (
    Deferred,
    Filter,
    NodeApi,
    PluginConfig,
    PluginError,
    Reject,
    Role,
    Session,
    SessionStatus,
    Source,
    TreeAlgorithm,
)
from ildm.mqtt import (
    ConnAck,
    Connect,
    ConnectReturnCode,
    PacketType,
    Property,
    PubAck,
    Publish,
    PubRec,
    ReasonCode,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Version,
    Will,
    decode,
)
from ildm.testing import (
    FakeNode,
    LinkModel,
    PluginWorld,
    Rejected,
    SimClient,
    SimNode,
    SimulationError,
    constant,
)
from ildm_algorithms.pf import PublicationFlooding
from ildm_algorithms.sf import SubscriptionFlooding


class Options(PluginConfig):
    forbidden: str = "bad"
    delay: float = 0.0
    """Seconds until it decides; 0: at once."""


class Censor(Filter[Options]):
    """Rejects what is named bad, writes messages in capitals."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def filter(self, session: Session, message: bytes) -> Any:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        if packet.payload == self.config.forbidden.encode():
            self.api.count("censored")
            return self.after(Reject(ReasonCode.QUOTA_EXCEEDED, "not today"))
        return self.after(replace(packet, payload=packet.payload.upper()).encode(session.version))

    def admit_subscription(self, session: Session, subscription: Subscription, packet: Subscribe) -> Any:
        if subscription.topic_filter.startswith(self.config.forbidden):
            return self.after(Reject(text="a secret"))
        return self.after(replace(subscription, qos=min(subscription.qos, 1)))

    def admit_client(self, session: Session, packet: Connect) -> Any:
        if packet.client_id.startswith(self.config.forbidden):
            return self.after(Reject(ReasonCode.BANNED))
        return self.after(replace(packet, username="known"))

    def after(self, decision: Any) -> Any:
        if not self.config.delay:
            return decision
        deferred: Deferred[Any] = Deferred()
        self.api.call_later(self.config.delay, deferred.decide, decision)
        return deferred


class Spy(Filter):
    """Notes packets, behind the filters before it."""

    wants = frozenset(
        (source, type) for source in (Source.CLIENT, Source.BROKER, Source.LINK) for type in PacketType
    )

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.seen: list[tuple[Source, str, Any]] = []
        self.events: list[str] = []

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        self.seen.append((Source(session.role), session.client_id, decode(message, session.version)))

    def on_ildm_start(self) -> None:
        self.events.append("start")

    def on_ildm_stop(self) -> None:
        self.events.append("stop")

    def on_session_established(self, session: Session) -> None:
        self.events.append(f"established {session.role} {session.client_id}")

    def on_session_closed(self, session: Session) -> None:
        self.events.append(f"closed {session.role} {session.client_id}")
        assert session.status is SessionStatus.CLOSED

    def kinds(self) -> list[str]:
        return [f"{source.value} {packet.type.name}" for source, _, packet in self.seen]


def pair(*filters: Any, algorithm: Any = SubscriptionFlooding) -> tuple[PluginWorld, SimNode, SimNode]:
    world = PluginWorld(algorithm, model=LinkModel(delay=constant(0.01)), filters=filters)
    a, b = world.add("a"), world.add("b")
    world.link("a", "b")
    world.settle()
    return world, a, b


def filter_of(node: SimNode, index: int = 0) -> Any:
    assert node.plugins is not None
    return node.plugins.filters[index]


def told(client: SimClient, kind: Any) -> list[Any]:
    return [packet for packet in client.told if isinstance(packet, kind)]


# messages -------------------------------------------------------------------------------------


def test_a_filter_rejects_with_a_reason_and_changes_what_passes() -> None:
    world, a, b = pair((Censor, None))
    b.subscribe("t", 2)
    a.subscribe("t", 2, client="here")
    world.settle()
    client = a.client("c")
    client.publish("t", b"bad", qos=1)
    client.publish("t", b"bad", qos=2)
    client.publish("t", b"good", qos=1)
    world.settle()
    for node in (a, b):
        assert [(d.payload, d.qos) for d in node.deliveries] == [(b"GOOD", 1)]
    one, other = told(client, PubAck)
    (received,) = told(client, PubRec)
    assert (one.packet_id, one.reason_code) == (1, ReasonCode.QUOTA_EXCEEDED)
    assert one.properties == {Property.REASON_STRING: "not today"}
    assert (received.packet_id, received.reason_code) == (2, ReasonCode.QUOTA_EXCEEDED)
    assert (other.packet_id, other.reason_code) == (3, 0)
    assert a.counters["Censor.censored"] == 2
    assert world.network.lost["filtered"] == 2


def test_a_client_of_an_older_version_is_acknowledged_all_the_same() -> None:
    world, a, _ = pair((Censor, None))
    client = a.client("c", Version.V311)
    client.publish("t", b"bad", qos=1)
    assert client.told[-1] == PubAck(packet_id=1)
    assert world.network.lost["filtered"] == 1


def test_messages_of_neighbours_and_of_the_broker_are_filtered_too() -> None:
    class Edge(Filter):
        wants = frozenset({(Source.LINK, PacketType.PUBLISH), (Source.BROKER, PacketType.PUBLISH)})

        def filter(self, session: Session, message: bytes) -> Any:
            packet = decode(message, session.version)
            assert isinstance(packet, Publish)
            if session.role is Role.LINK:
                assert session.client_id in "ab"
                return (
                    None
                    if packet.payload == b"keep out"
                    else replace(packet, payload=b"far").encode(Version.V5)
                )
            assert self.api.get_paired_session(session).role is Role.CLIENT  # type: ignore[union-attr]
            return None if session.client_id == "deaf" else message

    world, a, b = pair((Edge, None), algorithm=PublicationFlooding)
    for node in (a, b):
        node.subscribe("t", 1)
        node.subscribe("t", 1, client="deaf")
    a.publish("t", b"keep out")
    a.publish("t", b"x", qos=1)
    world.settle()
    assert [(d.payload, d.client) for d in a.deliveries] == [(b"keep out", "client"), (b"x", "client")]
    assert [(d.payload, d.client, d.qos) for d in b.deliveries] == [(b"far", "client", 1)]
    assert world.network.lost["filtered"] == 4  # one on the link, three for the deaf


def test_an_algorithm_that_filters_is_asked_last() -> None:
    class Both(TreeAlgorithm, Filter):
        wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

        def filter(self, session: Session, message: bytes) -> bytes:
            self.api.count(message[-4:].decode())
            return message

    _, a, _ = pair((Censor, None), algorithm=Both)
    a.publish("t", b"good")
    assert a.counters == {"GOOD": 1}


def test_what_a_filter_keeps_and_counts_is_its_own() -> None:
    class Keeper(Filter):
        def admit_client(self, session: Session, packet: Connect) -> Connect:
            self.api.state["last"] = packet.client_id.encode()
            self.api.gauge("clients", len(self.api.state))
            self.api.log("client", name=packet.client_id)
            self.api.count("clients")
            assert self.api.random is self.api.random
            return packet

    world, a, _ = pair((Keeper, None))
    a.client("c")
    assert dict(a.state) == {}
    assert (a.counters, a.gauges) == ({"Keeper.clients": 1}, {"Keeper.clients": 1})
    assert world.logs[-1][1:] == ("a", "client", {"name": "c", "plugin": "Keeper"})
    world.kill("a")
    world.add("a")
    assert filter_of(world["a"]).api.state == {"last": b"c"}


def test_a_filter_that_fails_ends_the_run() -> None:
    class Wrong(Censor):
        def filter(self, session: Session, message: bytes) -> Any:
            return message.decode()

    world, a, _ = pair((Wrong, None))
    with pytest.raises(TypeError, match="expected bytes"):
        a.publish("t", b"x")
    world.kernel.post(1.0, a.publish, "t", b"x")
    with pytest.raises(SimulationError, match=r"at 1\.\d+ s in <node a>: TypeError"):
        world.run()


# subscriptions and clients --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "refused"), [(Version.V5, 0x87), (Version.V311, 0x80), (Version.V31, 2)], ids=str
)
def test_one_suback_has_the_codes_of_filter_and_broker(version: Version, refused: int) -> None:
    world, a, b = pair((Censor, None))
    client = a.client("c", version)
    client.subscribe(("t", 2), ("bad/#", 2), ("u", 0))
    (answer,) = told(client, SubAck)
    assert (answer.packet_id, answer.reason_codes) == (1, [1, refused, 0])
    assert answer.properties == ({Property.REASON_STRING: "a secret"} if version is Version.V5 else {})
    assert a.local_interest == {"t": 1, "u": 0}
    world.settle()
    assert b.by_id["a"].interest == {"t": 1, "u": 0}
    client.unsubscribe("t", "bad/#")
    (withdrawn,) = told(client, UnsubAck)
    assert withdrawn.reason_codes == ([0, 0x11] if version is Version.V5 else [])
    assert a.local_interest == {"u": 0}


def test_a_client_is_rejected_or_changed() -> None:
    _, a, _ = pair((Censor, None), (Spy, None))
    spy = filter_of(a, 1)
    banned = a.client("bad-one")
    assert banned.told == [ConnAck(session_present=False, reason_code=int(ReasonCode.BANNED))]
    assert banned.session.status is SessionStatus.CLOSED
    with pytest.raises(SimulationError, match="not connected"):
        banned.publish("t")
    older = a.client("bad-two", Version.V311)
    assert older.told[0].reason_code == ConnectReturnCode.NOT_AUTHORIZED  # type: ignore[union-attr]
    assert spy.seen == []
    client = a.client("good", Version.V311, keep_alive=5)
    assert client.told == [ConnAck(session_present=False, reason_code=0)]
    ((_, name, connect), _) = spy.seen
    assert (name, connect.username, connect.keep_alive) == ("good", "known", 5)
    assert a.client("good") is client
    assert a.client("bad-one") is not banned  # it tries again


def test_the_end_of_a_client() -> None:
    world, a, b = pair((Spy, None))
    b.subscribe("#", 1, client="watcher")
    world.settle()
    will = Will(topic="gone", payload=b"!", qos=1)
    leaving = a.client("leaving", will=will)
    leaving.subscribe(("t", 0))
    leaving.disconnect()
    assert a.local_interest == {}
    lost = a.client("lost", will=will, clean_start=False)
    lost.subscribe(("t", 0))
    lost.disconnect(with_will=True)
    assert a.local_interest == {"t": 0}
    a.publish("t", client="another")
    world.settle()
    assert [(d.topic, d.payload) for d in b.deliveries] == [("gone", b"!"), ("t", b"")]
    assert a.deliveries == []
    assert filter_of(a).events[:5] == [
        "start",
        "established client ",
        "established broker leaving",
        "closed client leaving",
        "closed broker leaving",
    ]
    world.stop("a")
    assert filter_of(a).events[-1] == "stop"


def test_clients_are_back_with_a_node_that_starts_again() -> None:
    world, a, b = pair((Spy, None))
    for name in ("there", "away"):
        b.client(name, version=Version.V311, clean_start=False).subscribe(("t", 1))
    b.client("away").disconnect()
    world.settle()
    world.kill("b")
    again = world.add("b", keep=True)
    world.settle()
    a.publish("t", b"later", 1)
    world.settle()
    assert [(d.client, d.payload) for d in again.deliveries] == [("there", b"later")]
    assert world.network.lost["client away"] == 1
    assert again.client("there").version is Version.V311
    assert [event for event in filter_of(again).events if "there" in event] == ["established broker there"]


def test_members_of_a_group_share_what_they_subscribe_to() -> None:
    world, a, b = pair()
    b.subscribe("$share/g/t/+", 1, client="one")
    b.subscribe("$share/g/t/+", 2, client="two")
    b.subscribe("t/#", 0, client="three")
    world.settle()
    assert b.local_interest == {"t/+": 2, "t/#": 0}
    for _ in range(4):
        a.publish("t/1", qos=2)
    world.settle()
    assert [d.client for d in b.deliveries if d.client != "three"] == ["one", "two", "one", "two"]
    assert sum(d.client == "three" for d in b.deliveries) == 4
    b.unsubscribe("$share/g/t/+", "two")
    assert b.local_interest == {"t/+": 1, "t/#": 0}
    b.unsubscribe("$share/g/t/+", "one")
    assert b.local_interest == {"t/#": 0}
    with pytest.raises(SimulationError, match="no subscription"):
        b.unsubscribe("$share/g/t/+", "one")


# deferred decisions ---------------------------------------------------------------------------


def test_what_a_client_sends_after_a_deferred_packet_waits() -> None:
    world, a, b = pair((Censor, {"delay": 1.0}), (Censor, {"delay": 0.5, "forbidden": "BAD"}))
    began = world.kernel.now
    b.client("s").subscribe(("t", 1), ("bad", 1))
    world.settle()
    assert world.kernel.now == pytest.approx(began + 3.0, abs=0.1)  # CONNECT, then SUBSCRIBE, twice each
    assert b.local_interest == {"t": 1}
    a.client("p").publish("t", b"1", qos=1)
    a.client("p").publish("t", b"bad", qos=1)
    a.client("p").publish("t", b"2", qos=1)
    a.publish("t", b"other", client="q")
    sent = world.kernel.now
    world.settle()
    assert [d.payload for d in b.deliveries] == [b"1", b"OTHER", b"2"]
    assert {d.sent for d in b.deliveries} == {sent}  # when the client sent it
    assert [p.reason_code for p in told(a.client("p"), PubAck)] == [0, ReasonCode.QUOTA_EXCEEDED, 0]


@pytest.mark.parametrize("on_error", ["pass", "reject"])
def test_a_decision_that_does_not_come_in_time(on_error: str) -> None:
    late = type("Late", (Censor,), {"on_error": on_error})
    world, a, _ = pair((late, {"delay": 60.0}))
    client = a.client("c")
    world.run(6.0)
    accepted = client.session.status is SessionStatus.ESTABLISHED
    assert accepted is (on_error == "pass")
    assert world.network.lost["undecided"] == 1
    world.run(60.0)
    assert len(client.told) == 1


def test_a_node_that_dies_decides_no_more() -> None:
    world, a, _ = pair((Censor, {"delay": 1.0}))
    client = a.client("c")
    world.kill("a")
    world.settle()
    assert client.told == []


# looking --------------------------------------------------------------------------------------


def test_plugins_see_packets_as_they_were_relayed() -> None:
    world, a, b = pair((Censor, None), (Spy, None))
    client = a.client("c", Version.V311)
    client.subscribe(("t", 2), ("bad", 0))
    client.publish("t", b"bad", qos=1)
    client.publish("t", b"x", qos=1)
    client.unsubscribe("t")
    world.settle()
    assert filter_of(a, 1).kinds() == [
        "client CONNECT",
        "broker CONNACK",
        "client SUBSCRIBE",
        "broker SUBACK",
        "broker PUBLISH",
        "broker PUBACK",
        "client PUBLISH",
        "client UNSUBSCRIBE",
        "broker UNSUBACK",
    ]
    seen = [packet for source, _, packet in filter_of(a, 1).seen if source is Source.CLIENT]
    assert [entry.topic_filter for entry in seen[1].subscriptions] == ["t"]
    assert seen[2].payload == b"X"
    b.subscribe("#")
    world.settle()
    client.publish("u", b"far")
    world.settle()
    assert filter_of(b, 1).kinds()[-2:] == ["broker PUBLISH", "link PUBLISH"]


def test_an_algorithm_may_look() -> None:
    class Counting(PublicationFlooding):
        wants = frozenset({(Source.CLIENT, PacketType.CONNECT)})

        def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
            self.api.count(session.client_id)

    world, a, _ = pair(algorithm=Counting)
    a.publish("t", client="one")
    a.publish("t", client="two")
    a.publish("t", client="one")
    assert a.counters == {"one": 1, "two": 1}
    assert world.counters()["one"] == 1


def test_where_nobody_looks_clients_are_told_all_the_same() -> None:
    _, a, _ = pair()
    assert a.plugins is None
    client = a.client("c")
    client.subscribe(("t", 1))
    client.publish("t", b"x", qos=1)
    assert [type(packet) for packet in client.told] == [ConnAck, SubAck, PubAck]
    assert [d.client for d in a.deliveries] == ["c"]
    client.disconnect()
    assert a.local_interest == {}


# in a fake node -------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 2.0])
def test_decisions_of_a_filter_in_a_unit_test(delay: float) -> None:
    node = FakeNode(Censor, {"delay": delay})
    assert node.plugin.config.delay == delay
    assert node.filter(Publish(topic="t", payload=b"x")) == Publish(topic="t", payload=b"X")
    answer = node.filter(Publish(topic="t", payload=b"bad", qos=1), version=Version.V311)
    assert answer == Rejected(ReasonCode.QUOTA_EXCEEDED, "not today", "Censor")
    assert node.counters == {"censored": 1}
    passed = node.filter(Publish(topic="t", payload=b"bad"), Source.LINK)
    assert isinstance(passed, Publish)  # it decides about clients alone
    entries = [Subscription(topic_filter="t", qos=2), Subscription(topic_filter="bad")]
    changed, refused = node.admit(Subscribe(packet_id=1, subscriptions=entries))
    assert changed == Subscription(topic_filter="t", qos=1)
    assert isinstance(refused, Rejected)
    accepted = node.admit(Connect(client_id="c"))
    assert isinstance(accepted, Connect)
    assert accepted.username == "known"
    assert isinstance(node.admit(Connect(client_id="bad")), Rejected)
    assert node.now() == 5 * delay  # the entries of a SUBSCRIBE wait together
    client = node.client("me")
    client.publish("t", b"bad", qos=1)
    node.advance(2 * delay)
    assert [p.reason_code for p in told(client, PubAck)] == [ReasonCode.QUOTA_EXCEEDED]
    assert node.injected == []


def test_a_filter_that_does_wrong_raises_in_the_test() -> None:
    class Wrong(Filter):
        wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

        def filter(self, session: Session, message: bytes) -> Any:
            return Reject(ReasonCode.BANNED) if message[-1:] == b"b" else 7

    node = FakeNode(Wrong)
    with pytest.raises(TypeError, match="expected bytes"):
        node.filter(Publish(topic="t"))
    with pytest.raises(ValueError, match="cannot have reason 0x8A"):
        node.filter(Publish(topic="t", payload=b"b"))
    with pytest.raises(PluginError, match="neither an algorithm nor a filter"):
        FakeNode(PluginConfig)  # type: ignore[type-var]
