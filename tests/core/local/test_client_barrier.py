"""What a client is told once it is durable, and not before; the disk is synced when a test says so."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.tables import SESSIONS, SUBSCRIPTIONS, UNRELEASED, WILLS, Key, Row, Table
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from ildm.state.journal import RowJournal
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site


class KeptStore(MemoryStore):
    """Rows are in the spool's journal as soon as they are put, and nowhere else."""

    def __init__(self, spool: MemorySpool) -> None:
        super().__init__()
        self.journal = RowJournal(spool, None, lambda delay, callback: None)

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        super().put(table, key, row)
        self.journal.add(table, key, row)


class Bench:
    """A site whose spool is durable at :meth:`sync`, a client there, and all it has been told."""

    def __init__(self, power: bool = True, **settings: Any) -> None:
        self.world = World()
        self.spool = MemorySpool(power)
        self.site = Site(self.world, "a", "pf", store=KeptStore(self.spool), spool=self.spool, **settings)
        self.world.run(1)
        self.sync()

    def sync(self) -> None:
        self.spool.sync()
        self.world.run(0.1)

    def client(self, client_id: str = "c", **fields: Any) -> MiniClient:
        client = self.site.client(client_id, **fields)
        self.sync()
        return client

    def send(self, client: MiniClient, *packets: Any) -> None:
        client.transport.write(b"".join(packet.encode(client.version) for packet in packets))
        self.world.run(0.1)


def retained(number: int, qos: int = 1, topic: str = "t") -> Publish:
    """It goes into the table of retained messages, so there is something to be kept."""
    return Publish(topic=topic, payload=b"%d" % number, qos=qos, retain=True, packet_id=number)


def ids(packets: list[Any]) -> list[int]:
    return [packet.packet_id for packet in packets]


def test_a_puback_waits_until_the_message_is_durable() -> None:
    bench = Bench()
    client = bench.client()
    bench.send(client, retained(1))
    assert [p.payload for name, p in bench.site.broker.published if name == "c"] == [
        b"1"
    ]  # nobody else waits
    assert client.got(PubAck) == []
    bench.sync()
    assert ids(client.got(PubAck)) == [1]


def test_with_process_it_is_durable_at_once() -> None:
    bench = Bench(power=False)
    client = bench.client()
    for number in (1, 2, 3):
        bench.send(client, retained(number))
        assert bench.spool.durable == bench.spool.last
    assert ids(client.got(PubAck)) == [1, 2, 3]


def test_each_waits_for_its_own_message_and_they_stay_in_order() -> None:
    """Syncs that end one after the other let the acknowledgements go one after the other."""
    bench = Bench()
    client = bench.client()
    bench.send(client, retained(1))
    first = bench.spool.last
    bench.send(client, retained(2), retained(3))
    bench.spool.durable = first
    bench.spool.on_durable()
    bench.world.run(0.1)
    assert ids(client.got(PubAck)) == [1]
    bench.sync()
    assert ids(client.got(PubAck)) == [1, 2, 3]


def test_what_needs_no_disk_does_not_wait() -> None:
    """Answers to pings, what others publish, and acknowledgements of what stays here come meanwhile."""
    bench = Bench()
    client = bench.client()
    other = bench.client("other")
    bench.send(client, Subscribe(packet_id=9, subscriptions=[Subscription(topic_filter="news", qos=0)]))
    bench.sync()
    bench.send(client, retained(1), PingReq())
    bench.send(other, Publish(topic="news", payload=b"1"))
    bench.send(other, Publish(topic="$own", payload=b"1", qos=1, packet_id=7))
    assert len(client.got(PingResp)) == 1
    assert client.messages == [("news", b"1")]
    assert ids(other.got(PubAck)) == [7]
    assert client.got(PubAck) == []
    bench.sync()
    assert ids(client.got(PubAck)) == [1]


def test_qos_0_waits_for_nothing_and_writes_nothing() -> None:
    bench = Bench(power=False)
    client = bench.client()
    commits = bench.spool.commits
    for _ in range(10):
        bench.send(client, Publish(topic="t", payload=b"x"), PingReq())
    assert bench.spool.commits == commits
    assert not client.transport.other.endpoint.wire.watching


def test_a_client_that_has_gone_is_not_answered() -> None:
    bench = Bench()
    client = bench.client()
    bench.send(client, retained(1))
    client.transport.abort()
    bench.world.run(1)
    bench.sync()
    assert client.got(PubAck) == []
    assert bench.site.node.sessions == set()


def test_without_its_broker_the_client_is_sent_away_unanswered() -> None:
    """It will send again what was not acknowledged."""
    bench = Bench()
    client = bench.client()
    bench.send(client, retained(1))
    bench.site.broker_down()
    bench.world.run(1)
    assert client.closed
    bench.sync()
    assert client.got(PubAck) == []


def test_nothing_is_acknowledged_while_the_disk_fails() -> None:
    bench = Bench(power=False)
    client = bench.client()
    bench.spool.failure = "no space left on device"
    bench.send(client, retained(1), PingReq())
    bench.world.run(60)
    assert client.got(PubAck) == []
    assert len(client.got(PingResp)) == 1
    bench.spool.failure = None
    bench.send(client, retained(2))
    assert ids(client.got(PubAck)) == [1, 2]


def test_a_gate_that_opens_does_not_let_out_what_is_not_durable() -> None:
    bench = Bench()
    client = bench.client()
    session = client.transport.other.endpoint
    session.acks.hold("a full link")
    bench.send(client, retained(1))
    session.acks.release("a full link")
    bench.world.run(0.1)
    assert client.got(PubAck) == []
    bench.sync()
    assert ids(client.got(PubAck)) == [1]


def test_with_transfer_received_the_answer_waits_for_the_disk_as_well() -> None:
    bench = Bench(link={"transfer": "received"})
    client = bench.client()
    bench.send(client, retained(1))
    assert client.got(PubAck) == []
    bench.sync()
    assert ids(client.got(PubAck)) == [1]


# QoS 2 ------------------------------------------------------------------------------------------


def test_a_pubrec_waits_for_the_identifier_and_a_pubcomp_for_its_end() -> None:
    bench = Bench()
    client = bench.client(clean_start=False)
    bench.send(client, Publish(topic="t", payload=b"1", qos=2, packet_id=1))
    assert set(bench.site.store.rows(UNRELEASED)) == {("c", 1)}
    assert client.got(PubRec) == []
    bench.sync()
    assert ids(client.got(PubRec)) == [1]
    bench.send(client, PubRel(packet_id=1))
    assert client.got(PubComp) == []  # with it the identifier would be free for another message
    bench.sync()
    assert ids(client.got(PubComp)) == [1]
    assert bench.site.store.rows(UNRELEASED) == {}


def test_an_answer_that_overtakes_others_waits_for_its_message_to_cross() -> None:
    """Until then the message is nowhere but in memory."""
    bench = Bench(power=False)
    client = bench.client(clean_start=False)
    bench.site.broker.takes = lambda _, packet: False
    for number in (1, 2):
        bench.send(client, Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number))
    connection = bench.site.broker.of("c")
    connection.send(PubRec(packet_id=2))
    bench.world.run(0.1)
    assert client.got(PubRec) == []
    connection.send(PubRec(packet_id=1))
    bench.world.run(0.1)
    assert ids(client.got(PubRec)) == [2, 1]


def test_it_does_not_wait_for_ever() -> None:
    bench = Bench(power=False)
    client = bench.client(clean_start=False)
    bench.site.broker.takes = lambda _, packet: False
    for number in (1, 2):
        bench.send(client, Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number))
    bench.site.broker.of("c").send(PubRec(packet_id=2))
    bench.world.run(2)
    assert ids(client.got(PubRec)) == [2]


# sessions and wills -----------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_suback_and_unsuback_of_a_session_that_lasts_wait(clean: bool) -> None:
    bench = Bench()
    client = bench.client(clean_start=clean)
    bench.send(client, Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="a", qos=1)]))
    assert bool(client.got(SubAck)) is clean
    bench.sync()
    assert len(client.got(SubAck)) == 1
    assert bool(bench.site.store.rows(SUBSCRIPTIONS)) is not clean
    bench.send(client, Unsubscribe(packet_id=2, topic_filters=["a"]))
    assert bool(client.got(UnsubAck)) is clean
    bench.sync()
    assert len(client.got(UnsubAck)) == 1


def with_will(client_id: str = "w", **fields: Any) -> Connect:
    will = Will(topic="will/w", payload=b"offline", qos=1)
    return Connect(client_id=client_id, version=Version.V5, will=will, **fields)


def test_a_connack_waits_for_the_will() -> None:
    """What the client sends meanwhile, and the broker, waits behind it."""
    bench = Bench()
    client = bench.site.client(connect=with_will())
    client.send(retained(1))
    for connection in bench.site.broker.connections:
        if connection.client_id == "w":
            connection.send(Publish(topic="from/broker", payload=b"x"))
    bench.world.run(0.1)
    assert set(bench.site.store.rows(WILLS)) == {("w",)}
    assert client.packets == []
    bench.sync()
    bench.sync()
    assert [type(packet) for packet in client.packets] == [ConnAck, Publish, PubAck]


def test_a_connack_without_a_will_waits_for_nothing() -> None:
    bench = Bench()
    assert bench.site.client("c", clean_start=False).got(ConnAck)


def test_a_connack_does_not_wait_for_ever() -> None:
    bench = Bench()
    client = bench.site.client(connect=with_will())
    bench.world.run(10)
    assert len(client.got(ConnAck)) == 1
    assert bench.site.node.counters["save_waits_expired"] == 1
    bench.sync()
    assert len(client.got(ConnAck)) == 1


def test_a_client_that_goes_before_its_connack_leaves_its_will() -> None:
    bench = Bench()
    client = bench.site.client(connect=with_will())
    client.transport.abort()
    bench.world.run(1)
    bench.sync()
    assert bench.site.node.counters["wills"] == 1
    assert bench.site.store.rows(WILLS) == {}


def test_the_end_of_a_will_is_durable_before_the_broker_hears_of_it() -> None:
    bench = Bench(power=False)
    client = bench.site.client(connect=with_will())
    heard: list[int] = []
    bench.site.broker.takes = lambda _, packet: heard.append(bench.spool.durable) or True  # type: ignore[func-returns-value]
    before = bench.spool.last
    bench.send(client, Disconnect())
    assert len(heard) == 1
    assert heard[0] > before
    assert bench.site.store.rows(WILLS) == {}


def test_another_expiry_of_the_session_is_saved_before_the_broker_hears_of_it() -> None:
    bench = Bench(power=False)
    properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = bench.site.client(connect=Connect(client_id="c", version=Version.V5, properties=properties))
    seen: list[Any] = []
    bench.site.broker.takes = lambda _, packet: seen.append(bench.site.store.rows(SESSIONS)["c",]) or True  # type: ignore[func-returns-value]
    bench.send(client, Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 3600}))
    assert seen == [(None, 3600)]
