"""Parts of a sender, each alone: back pressure, allowance, poison isolation, resumption."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.core.counters import Counters
from ildm.core.transfer.allowance import Allowance
from ildm.core.transfer.back_pressure import HARD_LIMIT, BackPressure, QueueLimits
from ildm.core.transfer.batch import single
from ildm.core.transfer.poison_isolation import PoisonIsolation
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.resumption import Resumption
from ildm.core.transfer.window import Inflight, Window
from ildm.core.transfer.wire import Wire
from ildm.mqtt import Publish, PubRel, Version
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World
from tests.support.senders import Sink, Source

SMALL = QueueLimits(messages=4, bytes=1 << 20, overflow="block")


def entry(name: str, qos: int = 1, retain: bool = False) -> Entry:
    return Entry(single(Publish(topic=name, qos=qos, retain=retain, packet_id=7), qos))


class Parts:
    """What the parts of a sender are made of, without a sender."""

    def __init__(self, world: World, limits: QueueLimits = SMALL) -> None:
        self.world = world
        self.counters = Counters()
        driver = WorldDriver(world, "n")
        self.queue = Backlog()
        self.wire = Wire(driver, self.counters, "link", None, False, lambda: None, lambda data: data)
        self.window = Window(limits.inflight)
        self.resumption = Resumption(driver, self.window, self.wire, None, False, [])
        self.isolation = PoisonIsolation(self.queue, self.window, self.wire, self.resumption)
        self.pressure = BackPressure(limits, self.queue, self.wire)
        self.allowance = Allowance(driver, limits, self.queue, self.pressure, spooled=False)
        self.connect()

    def connect(self) -> None:
        self.sink = Sink()
        self.wire.attach(self.sink, Version.V5, 1 << 28, 2, True)  # type: ignore[arg-type]

    def add(self, name: str, source: Source | None = None, qos: int = 1, retain: bool = False) -> None:
        """As the sender does with what waits."""
        added = entry(name, qos, retain)
        self.queue.append(added)
        if self.pressure.over(1):
            self.pressure.make_room(added, source)

    def under_way(self, *names: str, qos: int = 1) -> None:
        for packet_id, name in enumerate(names, 1):
            self.window.add(Inflight(entry(name, qos).batch, packet_id))

    def written(self) -> list[Any]:
        """Packets, since the last connection was made."""
        self.world.run(0)
        return self.sink.packets()

    def sent(self) -> list[str]:
        """Topics of the messages among them."""
        return [packet.topic for packet in self.written() if isinstance(packet, Publish)]


@pytest.fixture
def parts(world: World) -> Parts:
    return Parts(world)


# back pressure ------------------------------------------------------------------------------------


def test_a_source_is_held_above_the_bound_and_released_at_half_of_it(parts: Parts) -> None:
    source = Source()
    for number in range(5):
        parts.add(f"t/{number}", source)
    assert source.holds == {parts.pressure}
    while parts.queue.messages > 3:
        parts.queue.remove(1)
        parts.pressure.ease()
    assert source.holds == {parts.pressure}
    parts.queue.remove(1)
    parts.pressure.ease()
    assert source.holds == set()


def test_a_source_that_does_not_wait_loses_its_last_message_and_is_told(parts: Parts) -> None:
    source = Source()
    for number in range(SMALL.messages * HARD_LIMIT):
        parts.add(f"t/{number}", source)
    assert not source.ended
    parts.add("one more", source)
    assert source.ended
    assert parts.queue.messages == SMALL.messages * HARD_LIMIT
    assert parts.counters["link_dropped_overflow_qos1"] == 1


def test_without_back_pressure_the_oldest_of_qos_0_goes_first(world: World) -> None:
    parts = Parts(world, QueueLimits(messages=3, bytes=1 << 20))
    lost: list[str] = []
    parts.pressure.lost = lost.append
    for name, qos in (("a", 1), ("b", 0), ("c", 1), ("d", 0), ("e", 1)):
        parts.add(name, qos=qos, retain=name == "d")
    assert lost == ["d"]
    assert parts.counters["link_dropped_overflow_qos0"] == 2


# allowance ----------------------------------------------------------------------------------------


def test_an_algorithm_is_refused_what_finds_no_room_and_hears_of_room_later(
    parts: Parts, world: World
) -> None:
    told: list[float] = []
    parts.allowance.writable_again = lambda: told.append(world.time)
    assert [parts.allowance.admit(10) for _ in range(5)] == [True] * 4 + [False]
    world.run(0)
    assert len(told) == 1, "what was admitted within one iteration went elsewhere"
    for number in range(4):
        parts.add(str(number))
    assert not parts.allowance.admit(10)
    world.run(0)
    assert len(told) == 1
    parts.queue.remove(1)
    parts.queue.remove(1)
    parts.allowance.tell_soon()
    assert len(told) == 1, "it is not told amid what makes the room"
    world.run(0)
    assert len(told) == 2


def test_a_message_larger_than_the_bound_is_admitted_alone(parts: Parts) -> None:
    assert parts.allowance.admit(SMALL.bytes * 2)
    assert not parts.allowance.admit(1)


# poison isolation ---------------------------------------------------------------------------------


def test_messages_under_suspicion_go_one_by_one(parts: Parts) -> None:
    parts.under_way("a", "b")
    assert not parts.isolation.hung_up()
    assert parts.isolation.active
    parts.connect()
    parts.isolation.begin(dup=True)
    parts.isolation.send_next()
    parts.isolation.send_next()
    assert parts.sent() == ["a"]
    parts.window.complete(1)
    parts.isolation.send_next()
    assert parts.sent() == ["a", "b"]
    parts.window.complete(2)
    parts.isolation.send_next()
    assert not parts.isolation.active


def test_a_message_that_was_alone_at_two_hang_ups_is_dropped(parts: Parts) -> None:
    poison: list[str] = []
    parts.isolation.poisonous = lambda message: poison.append(message.topic)
    parts.under_way("bad", "good")
    for guilty in (False, False, True):
        assert parts.isolation.hung_up() is guilty
        parts.connect()
        parts.isolation.begin(dup=True)
        parts.isolation.send_next()
    assert poison == ["bad"]
    assert parts.counters["link_dropped_poison"] == 1
    assert parts.sent() == ["good"]


def test_one_hang_up_proves_nothing(parts: Parts) -> None:
    parts.under_way("a", "b")
    parts.isolation.hung_up()
    parts.isolation.begin(dup=True)
    parts.isolation.send_next()
    parts.window.complete(1)
    parts.isolation.send_next()  # b is alone
    assert not parts.isolation.hung_up()
    assert parts.window.ids == [2]


# resumption ---------------------------------------------------------------------------------------


def test_a_session_that_was_kept_gets_again_what_it_has_not_acknowledged(parts: Parts) -> None:
    parts.under_way("a", "b")
    parts.window.complete(1)
    parts.connect()
    assert parts.resumption.resend(session_present=True) == []
    assert parts.sent() == ["b"]
    assert parts.written()[0].dup
    assert parts.window.ids == [2]


def test_a_session_that_was_forgotten_gets_it_as_new(parts: Parts) -> None:
    parts.under_way("a", "b")
    parts.connect()
    again = parts.resumption.resend(session_present=False)
    assert [each.batch.topic for each in again] == ["a", "b"]
    assert parts.sent() == []
    assert parts.window.ids == []


def test_a_handshake_of_qos_2_goes_on_with_pubrel(parts: Parts) -> None:
    parts.under_way("a", qos=2)
    assert parts.window.release(1)
    parts.connect()
    assert parts.resumption.resend(session_present=True) == []
    assert [type(packet) for packet in parts.written()] == [PubRel]


def test_whether_a_forgotten_message_of_qos_2_goes_again_is_asked(parts: Parts) -> None:
    parts.under_way("done", "lost", qos=2)
    parts.window.release(1)
    parts.resumption.forgotten = lambda released: not released
    parts.connect()
    again = parts.resumption.resend(session_present=False)
    assert [each.batch.topic for each in again] == ["lost"]
