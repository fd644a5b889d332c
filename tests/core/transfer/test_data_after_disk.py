"""With ``power`` an algorithm's data leave when the disk has what the node took before them, in order."""

from __future__ import annotations

from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.talkers import Site


def pair(world: World) -> tuple[Site, Site, MemorySpool]:
    """Two nodes that have a link, and the spool of the first."""
    spool = MemorySpool(power=True)
    a = Site(world, "a", spool=spool, spooling={"mode": "power"})
    b = Site(world, "b")
    a.send(b, "hello")
    world.run(2)
    spool.sync()
    world.run(2)
    assert b.heard() == ["hello"]
    return a, b, spool


def test_what_is_sent_after_something_was_kept_waits_for_the_disk() -> None:
    world = World()
    a, b, spool = pair(world)
    a.talker.api.keep(b"x")
    a.send(b, "1")
    world.run(1)
    assert b.heard() == ["hello"]
    spool.sync()
    world.run(1)
    a.send(b, "2")
    world.run(1)
    assert b.heard() == ["hello", "1", "2"]


def test_what_is_sent_after_something_was_injected_waits_for_the_disk() -> None:
    """It may say that the message has come."""
    world = World()
    a, b, spool = pair(world)
    given = a.talker.api.injections.given
    a.talker.api.inject(Publish(topic="t", payload=b"x", qos=1), ("b", 1))
    assert a.talker.api.injections.taken == given
    a.send(b, "it has come")
    world.run(1)
    assert b.heard() == ["hello"]
    spool.sync()
    world.run(1)
    assert b.heard() == ["hello", "it has come"]
    assert a.talker.api.injections.taken == given + 1


def test_what_follows_does_not_hold_up_what_waits() -> None:
    """With something kept amid each sync nothing would ever leave."""
    world = World()
    a, b, spool = pair(world)
    for number in range(20):
        a.talker.api.keep(b"x")
        a.send(b, f"{number}")
        world.run(0.1)
        last = spool.last
        a.talker.api.keep(b"y")
        a.send(b, f"{number} too")
        world.run(0.1)
        spool.durable = last  # the second has come too late for this one
        spool.on_durable()
        world.run(0.1)
        assert b.heard()[-1] == f"{number}"
        spool.sync()
        world.run(0.1)
        assert b.heard()[-1] == f"{number} too"
    assert len(b.heard()) == 41
