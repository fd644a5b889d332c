"""The parts of a client's session, each on its own: what is put off, and what finds no room."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.local.acknowledgements import Acknowledgements
from ildm.core.local.decisions import Decisions
from ildm.core.local.publishing import Publishing
from ildm.core.local.spool_room import SpoolRoom
from ildm.core.plugin.filtering import Awaited
from ildm.mqtt import PingReq, ProtocolViolation, Version
from ildm.testing.virtual.world import World
from tests.support.wire import Ends

PING = PingReq().encode(Version.V311)


class Parts(Ends):
    """Those of one client, on a wire whose ends keep what comes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.acks = Acknowledgements(self.parts, self.wire)
        publishing = Publishing(self.parts, self.wire, self.acks)
        self.decisions = Decisions(self.parts, self.wire, self.acks, publishing)
        self.room = SpoolRoom(self.parts, self.wire, self.acks, publishing)


@pytest.fixture
def client(world: World) -> Parts:
    return Parts(world)


def test_a_decision_that_is_there_is_carried_out_at_once(client: Parts) -> None:
    assert client.decisions.when_decided(7, lambda answer: b"%d" % answer) == b"7"
    assert client.decisions.awaited is None
    assert client.went_on == 0


def test_an_awaited_one_is_relayed_before_what_is_behind_it(client: Parts) -> None:
    awaited: Awaited[int] = Awaited()
    assert client.decisions.when_decided(awaited, lambda answer: b"%d" % answer) is None
    assert client.decisions.awaited is awaited
    assert (client.broker.written, client.went_on) == (b"", 0)
    awaited.tell(7)
    assert (client.broker.written, client.went_on) == (b"7", 1)


def test_one_that_leads_to_another_goes_on_after_that(client: Parts) -> None:
    first, second = Awaited[Any](), Awaited[Any]()
    client.decisions.when_decided(
        first, lambda _: client.decisions.when_decided(second, lambda answer: answer)
    )
    first.tell(None)
    assert client.went_on == 0
    second.tell(b"x")
    assert (client.broker.written, client.went_on) == (b"x", 1)


def test_one_that_shows_a_fault_ends_the_client_and_what_is_behind_it(client: Parts) -> None:
    error = ProtocolViolation("nonsense", clause="MQTT-1.0.0-1")

    def fails(answer: object) -> bytes:
        raise error

    awaited: Awaited[None] = Awaited()
    client.decisions.when_decided(awaited, fails)
    client.decisions.rest = b"rest"
    awaited.tell(None)
    assert client.errors == [error]
    assert client.decisions.rest == b""


def test_what_is_undecided_at_the_end_is_counted_and_forgotten(client: Parts) -> None:
    awaited: Awaited[bytes] = Awaited()
    client.decisions.when_decided(awaited, lambda answer: answer)
    client.decisions.rest = b"rest"
    client.decisions.stop_waiting()
    assert client.parts.counters["undecided"] == 1
    assert (client.decisions.awaited, client.decisions.rest) == (None, b"")
    client.decisions.stop_waiting()
    assert client.parts.counters["undecided"] == 1
    assert awaited.ended


def test_the_end_waits_for_the_rest(client: Parts) -> None:
    ended: list[str] = []
    client.decisions.after(lambda: ended.append("at once"))
    assert ended == ["at once"]
    client.decisions.rest = b"rest"
    client.decisions.after(lambda: ended.append("later"))
    assert ended == ["at once"]
    client.decisions.rest_done()
    client.decisions.rest_done()
    assert ended == ["at once", "later"]


def test_a_client_without_room_is_not_read_and_its_broker_not_left_alone(world: World) -> None:
    client = Parts(world)
    client.wire.keep_alive = 30
    client.acks.hold("full")
    client.room.wait()
    client.room.wait()
    assert not client.client.reading
    assert client.parts.counters["clients_unread"] == 1
    world.run(21)
    assert client.broker.written == PING * 2
    client.acks.release("full")
    assert client.went_on == 0  # not amid what has made room
    world.run(30)
    assert (client.went_on, client.broker.written) == (1, PING * 2)


def test_room_that_nobody_has_waited_for_changes_nothing(world: World) -> None:
    client = Parts(world)
    client.acks.hold("full")
    client.acks.release("full")
    client.room.room_again()
    world.run(1)
    assert client.went_on == 0
