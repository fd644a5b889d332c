"""What a node takes up of what its earlier lives have kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ildm.mqtt import Publish, Version
from ildm.testing.keeping import Disk, Keeping
from ildm_algorithms.tbps.kept import UNSENT, Kept
from ildm_algorithms.tbps.messages import Message
from tests.algorithms.tbps.clock import FakeApi

PERIOD = 300.0
BEGIN = 1e6


class Life(FakeApi):
    """A life of a node on a disk, with a wall clock of its own."""

    def __init__(self, disk: Disk, wall: float) -> None:
        super().__init__()
        self.wall_at_start = wall
        self.keeping = Keeping(disk, "n0")

    def wall(self) -> float:
        return self.wall_at_start + self.now()

    def keep(self, data: bytes) -> int | None:  # type: ignore[override]
        return self.keeping.keep(data)

    def unkeep(self, number: int) -> None:
        self.keeping.unkeep(number)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        return self.keeping.kept()


def kept_in(life: Life, period: float = PERIOD) -> Kept:
    return Kept(life, period, 1 << 20, life.count)  # type: ignore[arg-type]


def publish(life: Life, times: list[float]) -> None:
    kept = kept_in(life)
    for number, at in enumerate(times, 1):
        life.run(at - life.now())
        frame = Publish(topic="t", payload=b"x", qos=1, packet_id=1).encode(Version.V5)
        kept.add(number, "t", Message(number, 0, 0, frame).encode(), None, heard=True)


def ages(life: Life, kept: Kept) -> dict[int, float]:
    return {number: round(life.now() - entry.at, 3) for number, entry in kept.since(-PERIOD)}


@pytest.mark.parametrize(
    ("away", "expected"),
    [
        (10.0, {1: 60.0, 2: 20.0, 3: 10.0}),
        (PERIOD - UNSENT, {2: 10.0, 3: 0.0}),  # the last ones would go soon
        (36_000.0, {2: 10.0, 3: 0.0}),
        (-36_000.0, {1: 0.0, 2: 0.0, 3: 0.0}),  # a clock that was set back
    ],
)
def test_the_last_messages_are_taken_up_however_long_the_node_was_away(
    away: float, expected: dict[int, float]
) -> None:
    disk = Disk()
    publish(Life(disk, BEGIN), [0.0, 40.0, 50.0])
    life = Life(disk, BEGIN + 50.0 + away)
    kept = kept_in(life)
    kept.restore()
    assert ages(life, kept) == expected
    assert len(disk.kept["n0"]) == len(expected)
    assert kept.newest == 3
    life.run(PERIOD + 40)
    assert not len(kept)
    assert not disk.kept["n0"]


def test_what_cannot_be_understood_is_counted() -> None:
    disk = Disk()
    life = Life(disk, BEGIN)
    publish(life, [0.0])
    life.keep(b"short")
    life.keep(bytes(40))
    life = Life(disk, BEGIN + 5)
    kept = kept_in(life)
    kept.restore()
    assert ages(life, kept) == {1: 5.0}
    assert life.counters["kept_unreadable"] == 2


def test_of_what_is_not_written_nobody_is_told() -> None:
    life = Life(Disk(), BEGIN)
    kept = kept_in(life)
    for number in (1, 2, 3):
        frame = Publish(topic=f"t/{number}", payload=b"x", qos=1, packet_id=1).encode(Version.V5)
        kept.add(number, f"t/{number}", Message(number, 0, 0, frame).encode(), None, heard=True)
    kept.written(1)
    assert [number for number, _ in kept.since(0.0)] == [1]
    assert not kept.is_unwritten("t/1")
    assert kept.is_unwritten("t/3")
    kept.written(2)
    kept.written(3)
    assert [number for number, _ in kept.since(0.0)] == [3, 2, 1]
    assert not kept.is_unwritten("t/3")
