"""What a node takes up of what its earlier lives have kept."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest

from ildm.mqtt import Publish, Version
from ildm.testing.keeping import Disk, Keeping
from ildm_algorithms.exchange.gone import KIND, PAGE, Gone
from ildm_algorithms.exchange.log import UNSENT, Log
from ildm_algorithms.exchange.messages import Message
from tests.algorithms.fake_api import FakeApi

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


def kept_in(life: Life, period: float = PERIOD, max_bytes: int = 1 << 20) -> Log:
    return Log(life, period, max_bytes, life.count)  # type: ignore[arg-type]


def publish(life: Life, times: list[float]) -> None:
    kept = kept_in(life)
    for number, at in enumerate(times, 1):
        life.run(at - life.now())
        frame = Publish(topic="t", payload=b"x", qos=1, packet_id=1).encode(Version.V5)
        kept.add(number, "t", Message(number, 0, 0, frame).encode(), None, subscribed=True)


def ages(life: Life, kept: Log) -> dict[int, float]:
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
    gone = len(expected) < 3
    assert len(disk.kept["n0"]) == len(expected) + gone
    assert kept.newest == 3
    life.run(PERIOD + 40)
    assert not len(kept)
    assert {data[16:17] for data in disk.kept["n0"].values()} == {KIND}  # numbers and topics
    assert [kept.gone(number) is not None for number in range(5)] == [False, True, True, True, False]


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
        kept.add(number, f"t/{number}", Message(number, 0, 0, frame).encode(), None, subscribed=True)
    kept.written(1)
    assert [number for number, _ in kept.since(0.0)] == [1]
    assert not kept.is_unwritten("t/1")
    assert kept.is_unwritten("t/3")
    kept.written(2)
    kept.written(3)
    assert [number for number, _ in kept.since(0.0)] == [3, 2, 1]
    assert not kept.is_unwritten("t/3")


def lost(kept: Log) -> list[tuple[int, float, str]]:
    return [one for one in kept.all_since(-inf) if one[0] not in kept]


def gone_of(kept: Log) -> list[int]:
    return sorted(number for number, _, _ in lost(kept) if kept.gone(number) is not None)


def test_what_is_gone_is_known_in_later_lives() -> None:
    """Whichever way it went: no room, too old, too old while the node was away."""
    disk = Disk()
    life = Life(disk, BEGIN)
    kept = kept_in(life, max_bytes=100_000)
    for number in range(1, 1_001):
        if number in (301, 601):
            life.run(200)
        topic = f"t/{number % 7}"
        frame = Publish(topic=topic, payload=b"x", qos=1, packet_id=1).encode(Version.V5)
        kept.add(number, topic, Message(number, 0, 0, frame).encode(), None, subscribed=number % 10 > 0)
        kept.written(number)
    there = [number for number, _ in kept.since(-PERIOD)]
    gone = sorted(set(range(1, 1_001)) - set(there))
    assert gone_of(kept) == gone
    for away in (10.0, 400.0, 10.0):
        life = Life(disk, life.wall() + away)
        kept = kept_in(life)
        kept.restore()
        left = [number for number, _ in kept.since(-PERIOD)]
        assert gone_of(kept) == sorted(set(range(1, 1_001)) - set(left))
        assert all(kept.gone(number) == (pytest.approx(at), topic) for number, at, topic in lost(kept))
        assert kept.newest == 1_000
        assert "kept_unreadable" not in life.counters
        assert len(disk.kept["n0"]) <= len(left) + 1_000 // PAGE + 2


def test_what_is_gone_is_forgotten_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm_algorithms.exchange.gone.MOST", 1_000)
    disk = Disk()
    life = Life(disk, BEGIN)
    gone = Gone(life, b"", life.count)  # type: ignore[arg-type]
    for number in range(3_000):
        gone.add(number, life.now(), f"t/{number}", life.keep(b"x"), 1)
    assert 1_000 - PAGE <= len(gone) <= 1_000
    assert life.counters["kept_forgotten"] == 3_000 - len(gone)
    assert len(gone.topics) == len(gone)
    gone.check_sums()
    assert (gone.find(0), gone.find(2_999)) == (None, (0.0, "t/2999"))
    gone.write()
    assert len(disk.kept["n0"]) <= 1_000 // PAGE + 1


def test_a_record_of_what_is_gone_that_is_damaged_is_counted() -> None:
    disk = Disk()
    life = Life(disk, BEGIN)
    for data in (b"Z", b"Zxx", b"Z\0\0\0\1\0\0\0\1t", b"Z\0\0\0\1\0\0\0\0\xff"):
        life.keep(bytes(16) + data)
    life = Life(disk, BEGIN)
    kept = kept_in(life)
    kept.restore()
    assert life.counters["kept_unreadable"] == 3
    assert gone_of(kept) == []


def test_what_has_expired_is_not_lost() -> None:
    life = Life(Disk(), BEGIN)
    kept = kept_in(life)
    frame = Publish(topic="t", payload=b"x", qos=1, packet_id=1).encode(Version.V5)
    kept.add(1, "t", Message(1, 0, 0, frame).encode(), 10, subscribed=True)
    life.run(PERIOD + 40)
    assert not len(kept)
    assert kept.gone(1) is None
