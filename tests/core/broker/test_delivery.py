"""When a broker delivers QoS 2: found out by a message of the node to itself, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.broker.delivery import ATTEMPTS, Delivers
from ildm.core.tables import BROKERS
from ildm.mqtt import ConnAck, Connect, Property, PubComp, Publish, PubRec, PubRel, Subscribe
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.makes import PLAIN, Make
from ildm.testing.virtual.session import Session
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.publishing import publish
from tests.support.site import Site

AT_PUBLISH = PLAIN._replace(delivers_at_release=False)
AS_QOS_1 = PLAIN._replace(speaks_5=False, largest_qos=1)


def site(world: World, mini: Broker, store: MemoryStore | None = None, **settings: Any) -> Site:
    made = Site(world, "a", "pf", store=store, spool=MemorySpool(), **settings)
    made.use(mini)
    return made


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (PLAIN, Delivers.AT_RELEASE),
        (AT_PUBLISH, Delivers.AT_PUBLISH),
        (AS_QOS_1, Delivers.AT_PUBLISH),
    ],
)
def test_it_is_found_out_and_saved(make: Make, found: Delivers) -> None:
    world = World()
    a = site(world, Broker(make))
    world.run(5)
    delivery = a.node.injector.delivery
    assert delivery.known is found
    assert a.store.rows(BROKERS) == {("a:3",): (found.value,)}
    assert len(set(a.broker.probes)) == 1
    assert a.broker.probes[0][1].startswith("$ildm/probe/a/")
    assert [c.client_id for c in a.broker.connections].count("ildm-a-probe") == 0
    # anew where nobody has had it; not where it has been delivered
    assert delivery.sends_anew(released=True) is (found is Delivers.AT_RELEASE)
    assert delivery.sends_anew(released=False)


def test_it_is_tried_once_in_a_life_and_known_in_the_next() -> None:
    world = World()
    a = site(world, Broker())
    world.run(5)
    asked = len(a.broker.probes)
    a.broker.crash()
    world.run(5)
    assert len(a.broker.probes) == asked
    a.kill()
    a.start()
    assert a.node.injector.delivery.known is Delivers.AT_RELEASE
    a.broker.takes = lambda _, packet: not isinstance(packet, Subscribe)
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
def test_a_broker_that_does_not_let_itself_be_tried_is_left_alone(how: str) -> None:
    world = World()
    broker = Broker()
    a = site(world, broker, broker={"address": "a:3", "protocol": "5"})

    def is_probe(packet: Any) -> bool:
        return isinstance(packet, Publish) and "ildm/probe" in packet.topic

    if how == "denies":
        broker.denies = lambda topic_filter: "ildm/probe" in topic_filter
    elif how == "is silent":
        broker.takes = lambda _, packet: not is_probe(packet)
    elif how == "hangs up":
        broker.hangs_up_on = is_probe
    elif how == "refuses":
        broker.hangs_up_on = lambda packet: isinstance(packet, Connect) and packet.client_id == "ildm-a-probe"
    else:
        broker.connack[Property.MAXIMUM_QOS] = 1
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
    a = site(world, Broker(AT_PUBLISH), spooling={"uncertain": uncertain})
    world.run(5)
    assert a.node.injector.delivery.sends_anew(released=False) is (uncertain == "resend")
    assert a.node.counters[f"injection_uncertain_{counter}"] == 1


@pytest.mark.parametrize("make", [AT_PUBLISH, PLAIN])
@pytest.mark.parametrize("count", [1, 5])
def test_what_a_broker_has_delivered_is_not_sent_anew_when_it_has_died(make: Make, count: int) -> None:
    """It had answered with PUBREC, and has forgotten the session: one that delivers at PUBREL has lost it."""
    world = World()
    a = site(world, Broker(make))
    b = Site(world, "b", "pf")
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    a.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
    topics = [f"t/{number}" for number in range(count)]
    publish(b.client("p"), topics, 2)
    world.run(1)
    assert a.broker.topics() == topics
    a.broker.takes = lambda _, packet: True
    a.broker.crash(keeps=False)
    world.run(30)
    assert a.broker.topics()[count:] == ([] if make is AT_PUBLISH else topics)
    assert a.node.counters["injection_uncertain_resent"] == 0
    assert a.node.injector.idle
    assert b.node.links.links["a"].idle
    publish(b.client("q"), ["after"], 2)
    world.run(1)
    assert a.broker.topics()[-1] == "after"


@pytest.mark.parametrize("how", ["denies", "says nothing", "hangs up"])
def test_where_topics_with_a_dollar_do_not_work_nothing_is_tried_that_clients_see(how: str) -> None:
    world = World()
    broker = Broker(AT_PUBLISH)
    a = site(world, broker, broker={"address": "a:3", "protocol": "5"})
    if how == "denies":
        broker.denies = lambda topic_filter: topic_filter.startswith("$")
    elif how == "says nothing":
        broker.gives = lambda _, packet: not (isinstance(packet, Publish) and packet.topic.startswith("$"))
    else:
        broker.hangs_up_on = lambda packet: isinstance(packet, Publish) and packet.topic.startswith("$")
    world.run(10)
    broker.crash()
    world.run(10)
    assert a.node.injector.delivery.known is None
    assert not [topic for _, topic in broker.probes if not topic.startswith("$")]


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
        super().__init__(PLAIN._replace(speaks_5=False))
        self.times = times
        self.doomed: list[Session] = []
        self.gives = self._gives

    def _gives(self, connection: Connection, packet: Any) -> bool:
        session = connection.session
        if isinstance(packet, ConnAck) and session is not None:
            if session in self.doomed:
                session.lasts = False
            elif connection.received[0].clean_start and connection.client_id.endswith("-0") and self.times:
                self.times -= 1
                self.doomed.append(session)
                session.lasts = True
        return True


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


def takes_once(connection: Connection, packet: Any) -> bool:
    """It says nothing to a PUBLISH that it knows, as Moquette, nor to a PUBREL once more, as amqtt."""
    known = connection.session.unreleased if connection.session else {}
    if isinstance(packet, PubRel):
        return packet.packet_id in known
    return not (isinstance(packet, Publish) and packet.dup and packet.packet_id in known)


@pytest.mark.parametrize("unheard", [PubRec, PubComp])
def test_what_such_a_broker_does_not_answer_is_done_in_the_end(unheard: type) -> None:
    world = World()
    a = site(world, Broker())
    a.broker.takes = takes_once
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    client = b.client("p")
    a.broker.gives = lambda connection, packet: (
        not (connection.client_id == "ildm-a-0" and isinstance(packet, unheard))
    )
    for number in (1, 2, 3):
        client.send(Publish(topic="t", payload=b"%d" % number, qos=2, packet_id=number))
    world.run(1)
    a.broker.gives = lambda *_: True
    assert a.node.injector.senders[0].inflight == 3
    a.broker.crash()
    world.run(4)
    assert a.node.injector.senders[0].inflight == 3
    world.run(10)
    assert a.node.injector.senders[0].inflight == 0
    assert a.node.counters["injection_unanswered"] == 3
    assert [p.payload for name, p in a.broker.published if name == "ildm-a-0"] == [b"1", b"2", b"3"]
    connection = a.broker.of("ildm-a-0")
    assert connection.session is not None
    assert connection.session.unreleased == {}


def test_without_qos_2_on_links_nothing_is_tried() -> None:
    world = World()
    a = site(world, Broker(), link={"qos": 1})
    world.run(5)
    assert a.broker.probes == []


def test_the_session_of_an_earlier_life_is_taken_up_whatever_was_tried_before() -> None:
    """Finding out the version, too, is done under a name of its own."""
    world = World()
    a = site(world, Broker())
    b = Site(world, "b", "pf", spool=MemorySpool())
    b.node.links.add(a.node.config.link.listen or a.node.config.listen._replace(port=2), False)
    world.run(5)
    kept = a.broker.sessions["ildm-a-0"]
    a.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
    b.client("p").send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
    world.run(1)
    a.broker.takes = lambda _, packet: True
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
    a.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
    client.send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
    world.run(1)
    a.broker.takes = lambda _, packet: True
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
        a.broker.takes = lambda _, packet: not isinstance(packet, PubRel)
        client.send(Publish(topic="t", payload=b"1", qos=2, packet_id=1))
        world.run(1)
        a.broker.takes = lambda _, packet: True
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
