"""Brokers that misbehave behind one site."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ildm.mqtt import Connect, PingReq, Publish
from tests.hostile.arena import Arena, subscribe
from tests.hostile.clients import connected
from tests.support.site import Site

Act = Callable[[Arena, Site, Random], None]


def hangs_up_on_a_message(arena: Arena, site: Site, random: Random) -> None:
    """One message ends the connection, each time it comes."""
    site.broker.hangs_up_on = lambda packet: isinstance(packet, Publish) and packet.topic == "poison"
    other = arena.here if site is not arena.here else arena.there
    subscriber = connected(arena, site)

    subscribe(subscriber, ["poison"])
    client = connected(arena, other)
    for qos in (0, 1, 2):
        client.send(Publish(topic="poison", payload=b"x", qos=qos, packet_id=qos or None))
    arena.world.run(0.5)


def never_answers(arena: Arena, site: Site, random: Random) -> None:
    """Takes packets, and says nothing but that it is there."""
    site.broker.takes = lambda _, packet: isinstance(packet, Connect | PingReq)
    some(arena)


def says_nothing(arena: Arena, site: Site, random: Random) -> None:
    site.broker.takes = lambda _, packet: False
    some(arena)


def stops_reading(arena: Arena, site: Site, random: Random) -> None:
    site.broker.reads = False
    some(arena)


def is_slow(arena: Arena, site: Site, random: Random) -> None:
    site.broker.answer_delay = random.choice([0.5, 3.0])
    some(arena)


def refuses_everybody(arena: Arena, site: Site, random: Random) -> None:
    site.broker.refuse_with = random.choice([3, 5, 0x87, 0x97])
    site.broker.crash()
    some(arena)


def takes_no_connection(arena: Arena, site: Site, random: Random) -> None:
    site.broker.accepts = False
    site.broker.crash()
    some(arena)


def restarts(arena: Arena, site: Site, random: Random) -> None:
    for _ in range(5):
        site.broker.crash(keeps=random.random() < 0.5)
        some(arena, 10)
        arena.world.run(0.3)


def is_gone(arena: Arena, site: Site, random: Random) -> None:
    site.broker_down()
    some(arena)


def answers_garbage(arena: Arena, site: Site, random: Random) -> None:
    some(arena, 20)
    for connection in list(site.broker.connections):
        first = bytes([random.choice([0x00, 0x10, 0x20, 0x36, 0x40, 0x62, 0x90, 0xD0, 0xE0, 0xF0, 0xFF])])
        length = random.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff", b"\x05", b"\x00"])
        connection.transport.write(first + length + random.randbytes(random.randrange(50)))
    arena.world.run(0.1)


def acknowledges_what_it_likes(arena: Arena, site: Site, random: Random) -> None:
    some(arena, 20)
    for connection in list(site.broker.connections):
        for _ in range(50):
            kind = random.choice([0x40, 0x50, 0x62, 0x70])
            connection.transport.write(bytes([kind, 2, 0, random.randrange(1, 60)]))
    arena.world.run(0.1)


def some(arena: Arena, count: int = 250) -> None:
    """Messages for the broker to deal with."""
    for _ in range(count):
        arena.publish(b"x" * 200)
    arena.world.run(0.2)


def recover(arena: Arena, site: Site) -> None:
    """The broker is a good one again."""
    broker = site.broker
    broker.hangs_up_on = lambda packet: False
    broker.takes = lambda _, packet: True
    broker.answer_delay = 0.0
    broker.refuse_with = None
    broker.accepts = True
    broker.reads = True
    site.broker_up()


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        hangs_up_on_a_message,
        never_answers,
        says_nothing,
        stops_reading,
        is_slow,
        refuses_everybody,
        takes_no_connection,
        restarts,
        is_gone,
        answers_garbage,
        acknowledges_what_it_likes,
    )
}
