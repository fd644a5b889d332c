"""When a broker delivers QoS 2: found out by a message of the node to itself, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.broker.delivery import ATTEMPTS, Delivers
from ildm.core.tables import BROKERS
from ildm.mqtt import ConnAck, Connect, Property, PubAck, PubComp, Publish, PubRec, PubRel, Subscribe
from ildm.testing.virtual.broker import Broker, Connection, Session
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.publishing import publish
from tests.support.site import Site


class AtPublish(Broker):
    """It delivers a message of QoS 2 when it comes."""

    def connection(self) -> Connection:
        return AtPublishConnection(self)


class AtPublishConnection(Connection):
    def _publish(self, packet: Publish) -> None:
        new = packet.packet_id not in self.session.unreleased
        super()._publish(packet)
        if packet.qos == 2 and new:
            self._take(packet)

    def _packet(self, packet: Any) -> None:
        if isinstance(packet, PubRel):
            self.session.unreleased[packet.packet_id] = Publish(topic="none", payload=b"")
        super()._packet(packet)


class MakesItQos1(Broker):
    """It answers QoS 2 with PUBACK, as RabbitMQ does."""

    def connection(self) -> Connection:
        return MakesItQos1Connection(self)


class MakesItQos1Connection(Connection):
    def _publish(self, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id is not None:
            self.send(PubAck(packet_id=packet.packet_id))
            packet.qos = 0
        super()._publish(packet)


def site(world: World, mini: Broker, store: MemoryStore | None = None, **settings: Any) -> Site:
    made = Site(world, "a", "pf", store=store, spool=MemorySpool(), **settings)
    made.broker = mini
    world.listen(made.node.broker_address, mini.connection)
    return made


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (Broker, Delivers.AT_RELEASE),
        (AtPublish, Delivers.AT_PUBLISH),
        (MakesItQos1, Delivers.AT_PUBLISH),
    ],
)
def test_it_is_found_out_and_saved(make: type[Broker], found: Delivers) -> None:
    world = World()
    a = site(world, make())
    world.run(5)
    delivery = a.node.injector.delivery
    assert delivery.known is found
    assert a.store.rows(BROKERS) == {("a:3",): (found.value,)}
    assert len(set(a.broker.tried)) == 1
    assert a.broker.tried[0].startswith("$ildm/probe/a/")
    assert [c.client_id for c in a.broker.connections].count("ildm-a-probe") == 0
    # anew where nobody has had it; not where it has been delivered
    assert delivery.sends_anew(released=True) is (found is Delivers.AT_RELEASE)
    assert delivery.sends_anew(released=False)


def test_it_is_tried_once_in_a_life_and_known_in_the_next() -> None:
    world = World()
    a = site(world, Broker())
    world.run(5)
    asked = len(a.broker.tried)
    a.broker.crash()
    world.run(5)
    assert len(a.broker.tried) == asked
    a.kill()
    a.start()
    assert a.node.injector.delivery.known is Delivers.AT_RELEASE
    a.broker.answers = lambda packet: not isinstance(packet, Subscribe)
    world.run(60)
    assert a.node.injector.delivery.known is Delivers.AT_RELEASE


def test_what_was_found_out_about_another_broker_does_not_count() -> None:
    world, store = World(), MemoryStore()
    store.put(BROKERS, ("elsewhere:1",), ("release",))
    store.put(BROKERS, ("a:3",), ("never",))
    a = site(world, Broker(), store)
    a.broker.denies = lambda topic_filter: True
    world.run(5)
    assert a.node.injector.delivery.known is None
    assert store.rows(BROKERS) == {}
    assert [key for _, key, _ in store.damaged] == [("a:3",)]


@pytest.mark.parametrize("how", ["denies", "is silent", "hangs up", "refuses", "grants QoS 1"])
def test_a_broker_that_does_not_let_itself_be_tried_is_left_alone(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    broker = Broker()
    a = site(world, broker, broker={"address": "a:3", "protocol": "5"})

    def is_probe(packet: Any) -> bool:
        return isinstance(packet, Publish) and "ildm/probe" in packet.topic

    if how == "denies":
        broker.denies = lambda topic_filter: "ildm/probe" in topic_filter
    elif how == "is silent":
        broker.answers = lambda packet: not is_probe(packet)
    elif how == "hangs up":
        broker.hangs_up_on = is_probe
    elif how == "refuses":
        broker.hangs_up_on = lambda packet: isinstance(packet, Connect) and packet.client_id == "ildm-a-probe"
    else:
        really = ConnAck.encode

        def encode(self: ConnAck, *args: Any) -> bytes:
            self.properties[Property.MAXIMUM_QOS] = 1
            return really(self, *args)

        monkeypatch.setattr(ConnAck, "encode", encode)
    for _ in range(2 * ATTEMPTS):
        world.run(20)
        broker.crash()
    world.run(20)
    assert a.node.injector.delivery.known is None
    assert a.node.injector.delivery._attempts == ATTEMPTS
    assert a.node.injector.connected


@pytest.mark.parametrize(("uncertain", "counter"), [("resend", "resent"), ("drop", "dropped")])
def test_what_may_or_may_not_have_been_delivered_is_as_the_configuration_says(
    uncertain: str, counter: str
) -> None:
    world = World()
    a = site(world, AtPublish(), spooling={"uncertain": uncertain})
    world.run(5)
    assert a.node.injector.delivery.sends_anew(released=False) is (uncertain == "resend")
    assert a.node.counters[f"injection_uncertain_{counter}"] == 1


@pytest.mark.parametrize("make", [AtPublish, Broker])
@pytest.mark.parametrize("count", [1, 5])
def test_what_a_broker_has_delivered_is_not_sent_anew_when_it_has_died(
    make: type[Broker], count: int
) -> None:
    """It had answered with PUBREC, and has forgotten the session: one that delivers at PUBREL has lost it."""
    world = World()
    a = site(world, make())
    b = Site(world, "b", "pf")
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    a.broker.answers = lambda packet: not isinstance(packet, PubRel)
    topics = [f"t/{number}" for number in range(count)]
    publish(b.client("p"), topics, 2)
    world.run(1)
    assert a.broker.topics() == topics
    a.broker.answers = lambda packet: True
    a.broker.crash(keeps=False)
    world.run(30)
    assert a.broker.topics()[count:] == ([] if make is AtPublish else topics)
    assert a.node.counters["injection_uncertain_resent"] == 0
    assert a.node.injector.idle
    assert b.node.links.links["a"].idle
    publish(b.client("q"), ["after"], 2)
    world.run(1)
    assert a.broker.topics()[-1] == "after"


@pytest.mark.parametrize("how", ["denies", "says nothing", "hangs up"])
def test_where_topics_with_a_dollar_do_not_work_nothing_is_tried_that_clients_see(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Connection._take

    def not_with_a_dollar(self: Connection, packet: Publish) -> None:
        if not packet.topic.startswith("$"):
            take(self, packet)

    world = World()
    broker = AtPublish()
    a = site(world, broker, broker={"address": "a:3", "protocol": "5"})
    if how == "denies":
        broker.denies = lambda topic_filter: topic_filter.startswith("$")
    elif how == "says nothing":
        monkeypatch.setattr(Connection, "_take", not_with_a_dollar)
    else:
        broker.hangs_up_on = lambda packet: isinstance(packet, Publish) and packet.topic.startswith("$")
    world.run(10)
    broker.crash()
    world.run(10)
    assert a.node.injector.delivery.known is None
    assert not [topic for topic in broker.tried if not topic.startswith("$")]


@pytest.mark.parametrize("uncertain", ["resend", "drop"])
def test_of_a_broker_nobody_knows_nothing_is_certain(uncertain: str) -> None:
    world = World()
    a = site(world, Broker(), spooling={"uncertain": uncertain})
    a.broker.denies = lambda topic_filter: True
    world.run(5)
    for released in (True, False):
        assert a.node.injector.delivery.sends_anew(released) is (uncertain == "resend")


# a broker that takes up sessions which have ended ------------------------------------------------


class Reopening(Broker):
    """It takes up a session of MQTT 3 that began clean, some times, and forgets it with that connection, as
    Moquette."""

    def __init__(self, times: int) -> None:
        super().__init__(speaks_5=False)
        self.times = times
        self.doomed: list[Session] = []

    def connection(self) -> Connection:
        return ReopeningConnection(self)


class ReopeningConnection(Connection):
    broker: Reopening

    def _connect(self, packet: Connect) -> None:
        super()._connect(packet)
        if packet.clean_start and packet.client_id.endswith("-0") and self.broker.times:
            self.broker.times -= 1
            self.broker.sessions[packet.client_id] = self.session
            self.broker.doomed.append(self.session)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        clean = isinstance(self.received[0], Connect) and self.received[0].clean_start
        if self.session in self.broker.doomed and not clean:
            del self.broker.sessions[self.client_id]


@pytest.mark.parametrize(("times", "doomed"), [(1, False), (2, False), (100, True)])
def test_a_session_that_began_clean_is_not_gone_on_with(times: int, doomed: bool) -> None:
    """What is under way in it would come twice; a broker that always does so is used nevertheless."""
    world = World()
    broker = Reopening(times)
    a = site(world, broker)
    world.run(20)
    assert (broker.sessions["ildm-a-0"] in broker.doomed) is doomed
    assert a.node.injector.connected


# a broker that lets handshakes hang -------------------------------------------------------------


class Silent(Broker):
    """It says nothing to a PUBLISH that it knows, as Moquette, nor to a PUBREL once more, as amqtt."""

    def connection(self) -> Connection:
        return SilentConnection(self)


class SilentConnection(Connection):
    def _publish(self, packet: Publish) -> None:
        if not packet.dup or packet.packet_id not in self.session.unreleased:
            super()._publish(packet)

    def _packet(self, packet: Any) -> None:
        if not isinstance(packet, PubRel) or packet.packet_id in self.session.unreleased:
            super()._packet(packet)


@pytest.mark.parametrize("unheard", [PubRec, PubComp])
def test_what_such_a_broker_does_not_answer_is_done_in_the_end(unheard: type, monkeypatch: Any) -> None:
    world = World()
    a = site(world, Silent())
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    client = b.client("p")
    send = Connection.send

    def lose(self: Connection, packet: Any) -> None:
        if not (self.client_id == "ildm-a-0" and isinstance(packet, unheard)):
            send(self, packet)

    monkeypatch.setattr(Connection, "send", lose)
    for number in (1, 2, 3):
        client.send(Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number))
    world.run(1)
    monkeypatch.undo()
    assert a.node.injector.senders[0].inflight == 3
    a.broker.crash()
    world.run(4)
    assert a.node.injector.senders[0].inflight == 3
    world.run(10)
    assert a.node.injector.senders[0].inflight == 0
    assert a.node.counters["injection_unanswered"] == 3
    assert [p.payload for name, p in a.broker.published if name == "ildm-a-0"] == [b"1", b"2", b"3"]
    connection = next(c for c in a.broker.connections if c.client_id == "ildm-a-0")
    assert connection.session.unreleased == {}


def test_without_qos_2_on_links_nothing_is_tried() -> None:
    world = World()
    a = site(world, Broker(), link={"qos": 1})
    world.run(5)
    assert a.broker.tried == []


def test_the_session_of_an_earlier_life_is_taken_up_whatever_was_tried_before() -> None:
    """Finding out the version, too, is done under a name of its own."""
    world = World()
    a = site(world, Broker())
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    kept = a.broker.sessions["ildm-a-0"]
    a.broker.answers = lambda packet: not isinstance(packet, PubRel)
    b.client("p").send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
    world.run(1)
    a.broker.answers = lambda packet: True
    a.kill()
    a.start()
    world.run(5)
    assert a.broker.sessions["ildm-a-0"] is kept
    assert a.broker.topics() == ["t"]


def test_a_kill_amid_a_write_of_the_spool_sends_nothing_twice() -> None:
    """What the write did not finish nobody had seen: the node goes on with the broker's session."""
    world = World()
    a = site(world, Broker())
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    client = b.client("p")
    a.broker.answers = lambda packet: not isinstance(packet, PubRel)
    client.send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
    world.run(1)
    a.broker.answers = lambda packet: True
    kept = a.broker.sessions["ildm-a-0"]
    a.kill()
    a.start()
    a.node.counters["spool_torn"] += 1
    a.node.counters["spool_cut_short"] += 1
    world.run(10)
    assert a.broker.sessions["ildm-a-0"] is kept
    assert a.broker.topics() == ["t"]


@pytest.mark.parametrize("under_way", [False, True])
def test_what_the_broker_holds_is_no_later_message_when_the_spool_has_lost_its_record(
    under_way: bool,
) -> None:
    world = World()
    a = site(world, Broker())
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    client = b.client("p")
    if under_way:
        a.broker.answers = lambda packet: not isinstance(packet, PubRel)
        client.send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
        world.run(1)
        a.broker.answers = lambda packet: True
    a.kill()
    for packet_id in range(1, 10):
        held = a.broker.sessions["ildm-a-0"].unreleased
        held.setdefault(packet_id, Publish(topic="old", payload=b"old", qos=2, packet_id=packet_id))
    a.start()
    a.node.counters["spool_torn"] += under_way
    for number in range(2, 9):
        client.send(Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number))
    world.run(10)
    came = [packet.payload for name, packet in a.broker.published if name == "ildm-a-0"]
    assert came[-7:] == [b"%d" % number for number in range(2, 9)]
    assert b"old" not in came
