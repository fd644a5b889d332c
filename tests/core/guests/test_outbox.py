"""What a member keeps for the owner: in order, once, bounded."""

from __future__ import annotations

import pytest

from ildm.core.counters import Counters
from ildm.core.guests import wire
from ildm.core.guests.outbox import Outbox
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World


class Source:
    """Can be held."""

    credit = (0, 0)

    def __init__(self) -> None:
        self.reasons: set[object] = set()

    def hold(self, reason: object) -> None:
        self.reasons.add(reason)

    def release(self, reason: object) -> None:
        self.reasons.discard(reason)

    def overran(self) -> None:
        raise AssertionError


class Owner:
    """Gets frames, and takes them apart."""

    def __init__(self) -> None:
        self._frames = wire.Frames(1 << 22)
        self.records: list[tuple[int, bytes]] = []
        self.frames = 0

    def send(self, data: bytes) -> None:
        for kind, body in self._frames.feed(data):
            assert kind == wire.DO
            self.frames += 1
            self.records += [(number, what) for number, _, what in wire.records_of(body)]


@pytest.fixture
def outbox(world: World) -> Outbox:
    return Outbox(WorldDriver(world, "member"), Counters(), limit=1000)


def put(outbox: Outbox, *bodies: bytes) -> None:
    for body in bodies:
        outbox.append(wire.record(wire.BATCH, body))


def test_records_of_one_turn_are_one_frame(world: World, outbox: Outbox) -> None:
    owner = Owner()
    outbox.resume(0, owner.send)
    put(outbox, b"a", b"b")
    world.run(0.1)
    put(outbox, b"c")
    world.run(0.1)
    assert owner.records == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert owner.frames == 2


def test_the_next_owner_gets_what_the_former_has_not_confirmed(world: World, outbox: Outbox) -> None:
    former, following = Owner(), Owner()
    outbox.resume(0, former.send)
    for body in (b"a", b"b", b"c"):
        put(outbox, body)
        world.run(0.1)
    outbox.taken(1)
    outbox.lost()
    put(outbox, b"d")
    world.run(0.1)
    assert len(former.records) == 3
    outbox.resume(2, following.send)
    assert following.records == [(3, b"c"), (4, b"d")]


def test_who_waits_is_told_in_order_when_the_owner_has_it(world: World, outbox: Outbox) -> None:
    told: list[int] = []
    put(outbox, b"a", b"b")
    assert not outbox.covers(2)
    for number in (2, 1):
        outbox.when(number, lambda number=number: told.append(number))  # type: ignore[misc]
    world.run(1)
    outbox.taken(1)
    world.run(0.1)
    assert told == []
    outbox.taken(2)
    assert told == []
    world.run(0.1)
    assert told == [2, 1]


def test_beyond_the_bound_sources_wait_until_half_is_confirmed(world: World, outbox: Outbox) -> None:
    source, owner = Source(), Owner()
    outbox.resume(0, owner.send)
    for _ in range(4):
        put(outbox, bytes(300))
        world.run(0.1)
    assert outbox.full
    outbox.hold(source)
    outbox.hold(source)
    assert outbox.counters["pair_clients_held"] == 1
    outbox.taken(1)
    assert source.reasons == {outbox}
    outbox.taken(3)
    assert (source.reasons, outbox.full) == (set(), False)
    outbox.taken(4)
    assert outbox.bytes == 0


@pytest.mark.parametrize(
    "data",
    [wire.FRAME.pack(0, 1), wire.FRAME.pack(1 << 30, 1)],
    ids=["empty", "too large"],
)
def test_frames_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(wire.MemberError, match="a frame of"):
        list(wire.Frames(1 << 20).feed(data))


@pytest.mark.parametrize("cut", range(1, 30))
def test_records_that_are_cut_are_refused(cut: int) -> None:
    body = wire.do_frame(2, [wire.record(1, b"abc"), wire.record(2, b"defg")], 2)[wire.FRAME.size :]
    assert [each for _, _, each in wire.records_of(body)] == [b"abc", b"defg"]
    with pytest.raises(wire.MemberError, match="cut"):
        list(wire.records_of(body[:-cut]))


def test_frames_come_in_any_pieces() -> None:
    data = wire.frame(wire.HELLO, b"abc") + wire.frame(wire.TAKEN, b"") + wire.frame(wire.TOLD, b"d")
    for size in range(1, len(data)):
        frames = wire.Frames(100)
        found = [each for at in range(0, len(data), size) for each in frames.feed(data[at : at + size])]
        assert found == [(wire.HELLO, b"abc"), (wire.TAKEN, b""), (wire.TOLD, b"d")]
