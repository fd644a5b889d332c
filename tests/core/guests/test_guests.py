"""Clients of a member that does not own the site, in virtual time: the owner, its successor, another site."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address, Config
from ildm.core.counters import Counters
from ildm.core.guests.hosting import Host, HostSession
from ildm.core.guests.node import GuestNode
from ildm.core.local.client_session import ClientSession
from ildm.core.tables import GUESTS
from ildm.mqtt import (
    Connect,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import plugin_specs
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.memory_spool import spool as spool_of
from tests.support.site import Site

AT = Address("/state/pair.sock", 0, "unix")


class Plant(Site):
    """A site whose owner serves the clients of member b as well."""

    def start(self, neighbors: tuple[str, ...] = (), *, new_state: bool = False) -> None:
        super().start(neighbors or ("far",), new_state=new_state)
        self.host = Host(self.node, ["a", "b"])
        self.host.restore()
        self.world.listen(AT, lambda: HostSession(self.host), self.driver)

    def die(self) -> None:
        """The owner's process ends, and nobody owns the site."""
        self.kill()

    def follow(self) -> None:
        """The next owner begins, with what the former one has left."""
        self.spool = spool_of(self).next_life()
        self.start()


class Member:
    """Member b: it listens at b:1, before the broker of the plant."""

    def __init__(self, world: World, plant: Site, life: str = "1") -> None:
        self.world = world
        document: dict[str, Any] = {"listen": "b:1", "broker": {"address": "plant:3"}}
        self.driver = WorldDriver(world, "b")
        self.node = GuestNode(
            Config.model_validate(document),
            plugin_specs(None),
            self.driver,
            node_id="plant",
            member="b",
            life=life,
            at=AT,
            counters=Counters(),
        )
        self.node.start_serving()
        world.listen(Address("b", 1), lambda: ClientSession(self.node.local), self.driver)
        world.run(0.5)

    def client(self, client_id: str = "c", **fields: Any) -> MiniClient:
        packet = Connect(client_id=client_id, **fields)
        client = MiniClient(packet.version)
        self.world.connect(Address("b", 1), client)
        client.send(packet)
        self.world.run(0.1)
        return client

    def kill(self) -> None:
        self.world.kill(self.driver)


class Places:
    """The plant with member b, and a site far from it whose subscriber wants everything."""

    def __init__(self, world: World, *, power: bool = False) -> None:
        self.world = world
        self.far = Site(world, "far", "sf")
        self.plant = Plant(world, "plant", "sf", spool=MemorySpool(power), epoch=1)
        self.there = self.far.subscriber("#", qos=2)
        world.run(3)
        assert self.far.links() == {"plant": "active"}
        self.b = Member(world, self.plant)

    @property
    def came(self) -> list[bytes]:
        """What has come to the other site."""
        self.world.run(2)
        found = self.far.broker.published
        return [packet.payload for client_id, packet in found if client_id.startswith("ildm-")]


@pytest.fixture
def places(world: World) -> Places:
    return Places(world)


def message(payload: bytes, qos: int, packet_id: int | None = 1, *, dup: bool = False) -> Publish:
    return Publish(topic="t/x", payload=payload, qos=qos, packet_id=packet_id, dup=dup)


@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck), (2, PubRec)])
def test_a_client_is_answered_when_the_owner_has_it_on_disk(world: World, qos: int, answer: type) -> None:
    places = Places(world, power=True)
    spool_of(places.plant).sync()
    world.run(1)
    client = places.b.client()
    client.send(message(b"x", qos))
    world.run(1)
    assert client.got(answer) == []
    spool_of(places.plant).sync()
    world.run(1)
    assert len(client.got(answer)) == 1


def test_a_connection_made_anew_confirms_nothing_that_is_not_on_disk(world: World) -> None:
    places = Places(world, power=True)
    spool_of(places.plant).sync()
    world.run(1)
    client = places.b.client()
    spool_of(places.plant).sync()
    client.send(message(b"x", 1))
    world.run(0.2)
    places.b.node.joining._transport.abort()  # type: ignore[union-attr]
    world.run(1)
    assert client.got(PubAck) == []
    spool_of(places.plant).sync()
    world.run(1)
    assert len(client.got(PubAck)) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_owner_has_lost_is_given_to_the_next_one(world: World, qos: int) -> None:
    places = Places(world, power=True)
    spool_of(places.plant).sync()
    world.run(1)
    client = places.b.client()
    spool_of(places.plant).sync()
    world.run(1)
    saved = places.plant.store.copy()
    for packet_id in (1, 2, 3):
        client.send(message(b"%d" % packet_id, qos, packet_id))
    world.run(0.02)
    places.plant.die()
    places.far.broker.published.clear()
    places.plant.store = saved
    world.run(1)
    places.plant.follow()
    for _ in range(8):
        world.run(0.5)
        spool_of(places.plant).sync()
    assert set(places.came) == {b"1", b"2", b"3"}
    assert not client.closed


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_next_owner_finds_done_is_not_done_again(
    places: Places, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = places.b.client()
    monkeypatch.setattr(HostSession, "_answer", lambda session: None)
    client.send(message(b"x", qos))
    assert places.came == [b"x"]
    assert client.got(PubAck) + client.got(PubRec) == []
    places.plant.die()
    monkeypatch.undo()
    places.plant.follow()
    assert places.came == [b"x"]
    assert len(client.got(PubAck) + client.got(PubRec)) == 1


def test_a_client_stays_and_gets_what_it_wants_through_the_next_owner(places: Places) -> None:
    client = places.b.client()
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t/#", qos=1)]))
    places.world.run(1)
    assert len(client.got(SubAck)) == 1
    assert places.plant.node.clients.interest.maximum == {"t/#": 1}
    places.plant.die()
    client.send(Unsubscribe(packet_id=2, topic_filters=["t/#"]))
    client.send(Subscribe(packet_id=3, subscriptions=[Subscription(topic_filter="u/#", qos=1)]))
    places.world.run(1)
    assert len(client.got(SubAck)) == 1
    places.plant.follow()
    places.world.run(5)
    assert len(client.got(SubAck)) == 2
    assert places.plant.node.clients.interest.maximum == {"u/#": 1}
    publisher = places.far.client("p")
    publisher.send(Publish(topic="u/x", payload=b"y"))
    places.world.run(1)
    assert client.messages == [("u/x", b"y")]


def test_the_next_owner_wants_everything_until_the_members_are_back(places: Places) -> None:
    places.plant.die()
    places.plant.follow()
    assert places.plant.node.clients.interest.maximum == {"#": 2}
    places.world.run(1)
    assert places.plant.node.clients.interest.maximum == {}


def test_qos_2_goes_on_at_the_owner_and_back(places: Places) -> None:
    first = places.b.client(clean_start=False)
    first.send(message(b"once", 2, 7))
    places.world.run(1)
    assert len(first.got(PubRec)) == 1
    second = places.plant.client(clean_start=False)
    assert first.closed
    second.send(message(b"once", 2, 7, dup=True))
    places.world.run(1)
    third = places.b.client(clean_start=False)
    third.send(message(b"once", 2, 7, dup=True))
    places.world.run(1)
    assert len(third.got(PubRec)) == 1
    third.send(PubRel(packet_id=7))
    places.world.run(1)
    assert len(third.got(PubComp)) == 1
    assert places.came == [b"once"]
    third.send(message(b"once", 2, 7))
    assert places.came == [b"once", b"once"]


def test_what_a_member_tells_late_of_qos_2_is_dropped(places: Places) -> None:
    first = places.b.client(clean_start=False)
    world = places.world
    world.listeners.pop(AT)
    places.b.node.joining._transport.abort()  # type: ignore[union-attr]
    world.run(0.1)
    first.send(message(b"once", 2, 7))
    world.run(1)
    assert first.got(PubRec) == []
    second = places.plant.client(clean_start=False)
    second.send(message(b"once", 2, 7, dup=True))
    world.run(1)
    second.send(PubRel(packet_id=7))
    world.run(1)
    world.listen(AT, lambda: HostSession(places.plant.host), places.plant.driver)
    assert places.came == [b"once"]
    assert places.plant.node.counters["pair_superseded"] == 1


def test_a_run_crosses_where_the_algorithm_sees_each_message(places: Places) -> None:
    client = places.b.client()
    places.plant.node.dispatch.asks_each = True
    run = b"".join(message(b"%d" % number, 1, number).encode(Version.V311) for number in (1, 2, 3))
    client.transport.write(run)
    places.world.run(1)
    assert places.plant.node.counters["pair_unusable"] == 0
    assert len(client.got(PubAck)) == 3


def test_messages_of_qos_0_are_not_kept_for_an_owner(places: Places) -> None:
    client = places.b.client()
    places.plant.die()
    places.world.run(0.1)
    client.send(message(b"x", 0, None))
    places.world.run(0.1)
    assert places.b.node.counters["pair_dropped_alone"] == 1
    places.plant.follow()
    assert places.came == []


@pytest.mark.parametrize("back", [False, True])
def test_a_member_that_has_ended_leaves_the_wills_of_its_clients(places: Places, back: bool) -> None:
    places.b.client("w", clean_start=False, will=Will(topic="w", payload=b"gone"))
    places.world.run(1)
    places.b.kill()
    if back:
        places.plant.client("w", clean_start=False)
    places.world.run(places.plant.node.config.limits.will_grace + 1)
    assert (places.came == [b"gone"]) is not back
    assert places.plant.host.guests == []


def test_a_client_that_leaves_in_order_leaves_no_will(places: Places) -> None:
    client = places.b.client("w", will=Will(topic="w", payload=b"gone"))
    client.send(Disconnect())
    places.world.run(places.plant.node.config.limits.will_grace + 1)
    assert places.came == []
    assert "w" not in places.plant.node.clients.records


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"member": "z"}, "z is no member of the site"),
        ({"node_id": "other"}, "it serves other, not plant"),
        ({"version": 99}, "it speaks version 99 between members, the owner 1"),
    ],
)
def test_who_is_no_member_is_refused_by_name(places: Places, told: dict[str, Any], reason: str) -> None:
    session = HostSession(places.plant.host)
    session._hello({"version": 1, "member": "b", "node_id": "plant", "life": "2", **told})
    assert session.house is None
    assert places.plant.logged("a member of the site is refused")[0]["reason"] == reason


def test_another_life_of_a_member_begins_anew(places: Places) -> None:
    places.b.client("x")
    places.world.run(0.5)
    assert len(places.plant.host.guests) == 1
    places.b.kill()
    Member(places.world, places.plant, life="2")
    assert places.plant.host.guests == []
    assert places.plant.store.rows(GUESTS)[("b",)] == ("2", 0)
