"""A wire whose writes tell of what the disk may not have yet."""

from __future__ import annotations

from ildm.config import SpoolConfig
from ildm.core.counters import Counters
from ildm.core.transfer.custody import Custody
from ildm.core.transfer.wire import Wire
from ildm.mqtt import PingReq, PubAck, Publish, Version
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.senders import Sink

WAIT = 5.0
ANSWER = PubAck(packet_id=1).encode(Version.V5)
PING = PingReq().encode(Version.V5)
TWO = Publish(topic="t", payload=b"x", qos=2, packet_id=1).encode(Version.V5)


class Written:
    """A wire over a disk that is told when it has what."""

    def __init__(self, world: World, in_order: bool = False) -> None:
        self.counters = Counters()
        self.spool = MemorySpool(power=True)
        self.room = 0
        driver = WorldDriver(world, "n")
        custody = Custody(driver, self.spool, self.counters, SpoolConfig(failure_wait=WAIT), "n")
        self.wire = Wire(driver, self.counters, "link", custody, in_order, self.has_room, lambda data: data)
        self.sink = Sink()
        self.attach()

    def attach(self) -> None:
        self.wire.attach(self.sink, Version.V5, 1 << 28, 2, True)  # type: ignore[arg-type]

    def has_room(self) -> None:
        self.room += 1

    def guarded(self) -> None:
        """Write a message of QoS 2 that a later life would not know of."""
        self.spool.journal(b"")
        self.wire.write(TWO)
        self.wire.guard()


def test_an_answer_waits_for_what_it_is_about_and_nothing_for_the_answer(world: World) -> None:
    written = Written(world)
    written.spool.journal(b"")
    written.wire.write_durable(ANSWER)
    written.wire.write(PING)
    world.run(0)
    assert written.sink.writes == [PING]
    assert not written.wire.idle
    written.spool.sync()
    world.run(0)
    assert written.sink.writes == [PING, ANSWER]
    assert written.wire.idle


def test_what_is_behind_a_guarded_message_waits_with_it(world: World) -> None:
    written = Written(world)
    written.guarded()
    written.wire.write(PING)
    world.run(0)
    assert written.sink.writes == []
    written.spool.sync()
    world.run(0)
    assert written.sink.writes == [TWO + PING]


def test_what_waits_is_not_held_up_by_what_comes_later(world: World) -> None:
    written = Written(world)
    written.guarded()
    world.run(0)
    durable = written.spool.last
    written.guarded()
    written.wire.write(PING)
    world.run(0)
    written.spool.durable = durable
    written.spool.on_durable()
    world.run(0)
    assert written.sink.writes == [TWO]
    written.spool.sync()
    world.run(0)
    assert written.sink.writes == [TWO, TWO + PING]


def test_while_the_disk_fails_the_rest_goes_past_for_a_bounded_time(world: World) -> None:
    written = Written(world)
    written.spool.failure = "broken"
    written.guarded()
    written.wire.write(PING)
    world.run(WAIT - 0.1)
    assert written.sink.writes == [PING]
    world.run(0.2)
    assert written.sink.writes == [PING, TWO]
    assert written.counters["link_unguarded"] == 1


def test_in_order_nothing_goes_past_and_there_is_room_afterwards(world: World) -> None:
    written = Written(world, in_order=True)
    written.spool.failure = "broken"
    written.guarded()
    written.wire.write(PING)
    world.run(WAIT - 0.1)
    assert written.sink.writes == []
    assert not written.wire.writable
    written.spool.failure = None
    written.spool.sync()
    world.run(0)
    assert written.sink.writes == [TWO + PING]
    assert (written.wire.writable, written.room) == (True, 1)
    assert written.counters["link_unguarded"] == 0


def test_another_connection_knows_nothing_of_what_waited(world: World) -> None:
    written = Written(world)
    written.guarded()
    written.wire.write_durable(ANSWER)
    world.run(0)
    written.attach()
    written.spool.sync()
    world.run(WAIT)
    assert written.sink.writes == []
