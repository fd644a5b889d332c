"""What is in memory, as numbers."""

from __future__ import annotations

import asyncio
import gc

import pytest
import uvloop

from ildm.net.internals import FEWEST, _attributes, internals
from ildm.testing.virtual.world import World
from tests.support.site import row


class Kept:
    """Something to count."""

    def __init__(self, inside: object = None) -> None:
        self.inside = inside


class Slotted:
    """Has attributes of another kind, one of them without a value."""

    __slots__ = ("nothing", "numbers")

    def __init__(self) -> None:
        self.numbers = set(range(20))


class Rare(Kept):
    """Less often there than is told of."""


def named(each: type) -> str:
    return f"{each.__module__}.{each.__qualname__}"


async def test_what_can_be_reached_is_counted_once_and_garbage_is_not() -> None:
    kept = [Kept() for _ in range(50)]
    root = Kept([kept, kept, [Rare() for _ in range(FEWEST - 1)]])
    cycle = Kept([Kept() for _ in range(30)])
    cycle.inside = cycle
    del cycle
    found = internals(root)
    assert found["classes"][named(Kept)] == len(kept) + 1
    assert named(Rare) not in found["classes"]
    assert found["tables"] == {}
    assert found["entries"] == 3 + len(kept) + FEWEST - 1
    assert 0 < found["objects"] < 200


async def test_tables_are_counted_that_the_garbage_collector_does_not_track_or_has_set_aside() -> None:
    root = Kept(dict.fromkeys(range(10_000), "x"))
    assert not gc.is_tracked(root.inside)
    gc.freeze()
    try:
        assert internals(root)["entries"] == 10_000
        assert internals(root, Slotted())["tables"] == {
            f"{named(Kept)}.inside": 10_000,
            f"{named(Slotted)}.numbers": 20,
        }
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tasks_and_timers_are_counted(factory: object) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = internals()
        timers = [loop.call_later(100, Kept.__init__, Kept()) for _ in range(7)]
        tasks = [asyncio.create_task(asyncio.Event().wait()) for _ in range(5)]
        during = internals()
        assert during["tasks"] - before["tasks"] == len(tasks)
        assert [number for name, number in during["timers"].items() if "Kept.__init__" in name] == [
            len(timers)
        ]
        for each in (*timers, *tasks):
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
        runner.run(main())


def test_only_attributes_are_looked_into() -> None:
    """In a compiled class ``__weakref__`` may be where an heir has a number: to read it is the end."""
    a, _ = row(World(), "ab", "sf")
    for each in (a.node, a.node.router, *a.node.injector.senders):
        assert [name for name, _ in _attributes(each) if name.startswith("__")] == []
