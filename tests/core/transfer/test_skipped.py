"""A neighbour hears of the numbers of messages that a link has let go."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ildm.core.counters import Counters
from ildm.core.spool import Identity
from ildm.core.transfer import skipped
from ildm.core.transfer.batch import single
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import Share
from ildm.core.transfer.skipped import FEATURE, SKIPPED, Skipped, decoded, encoded
from ildm.mqtt import MalformedPacket, Publish
from ildm.testing.virtual.world import World
from tests.core.transfer.test_classes import away, pair
from tests.core.transfer.test_conflating import ALL, SPOOL, arrived, send
from tests.support.disk_spool import DiskSite

LOG = {"topics": ["log/#"], "expire": 60, "expire_acknowledged": True}


def gaps(site: DiskSite, origin: str = "a") -> int:
    """Of the numbers of an origin that have come, but for those before its incarnation."""
    assert site.node.custody is not None
    numbers = site.node.custody._come._origins[origin]
    return len(numbers.starts) - 1


@pytest.mark.parametrize("known", [True, False])
def test_numbers_that_never_come_leave_no_gap_at_the_neighbour(world: World, known: bool) -> None:
    features = {} if known else {"features": {"disabled": [FEATURE]}}
    a, b = pair(world, ALL, LOG, spooling=SPOOL, spooled_b=True, **features)
    assert isinstance(b, DiskSite)
    client = a.client("p", properties={})
    send(world, client, "x=0", qos=1)
    with away(world, a):
        for value in range(20):
            send(world, client, f"state/1={value}", f"log/{value}=old", f"x={value}", qos=1)
        world.run(60)
        send(world, client, "log/1=new", qos=2)
    assert [each for each in arrived(b) if each[0] != "x"] == ["state/1=19", "log/1=new"]
    assert gaps(b) == (0 if known else 20)
    assert a.node.counters["link_conflated"] == 19
    assert a.node.counters["link_dropped_aged"] == 20
    send(world, client, "state/1=20", "log/1=newer", qos=2)
    assert arrived(b)[-2:] == ["state/1=20", "log/1=newer"]


Shared = Callable[..., Entry]


@pytest.fixture
def entry(world: World) -> Shared:
    """Makes an entry of a message with a number."""
    custody = pair(world, spooling=SPOOL)[0].node.custody
    assert custody is not None
    consumer = custody.spool.consumer("link/b/0")

    def make(number: int, count: int = 1, origin: str = "a") -> Entry:
        batch = single(Publish(topic="x"), 1)
        batch.count = count
        return Entry(batch, Share(custody, consumer, 1, Identity(origin, number)))

    return make


def told(given: Skipped) -> list[tuple[str, list[tuple[int, int]]]]:
    packets: list[bytes] = []
    given.tell(packets.append)
    return [decoded(packet[packet.index(SKIPPED.encode()) + len(SKIPPED) + 1 :]) for packet in packets]


def test_numbers_in_a_row_are_one_stretch_and_no_packet_has_too_many(entry: Shared) -> None:
    given = Skipped(Counters())
    for number in (5, 6, 9, 10, 11):
        given.add(entry(number), 1)
    given.add(entry(20, 4, "c"), 4)
    given.add(Entry(single(Publish(topic="x"), 0)), 1)
    assert told(given) == [("a", [(5, 2), (9, 3)]), ("c", [(20, 4)])]
    assert told(given) == []
    for number in range(1, 2 * skipped.TOLD_AT_ONCE, 2):
        given.add(entry(number), 1)
    given.add(entry(9999), 1)
    assert [len(stretches) for _, stretches in told(given)] == [256, 1]


def test_what_waits_to_be_told_is_bounded_and_forgotten_where_nobody_listens(
    entry: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skipped, "MOST", 2)
    counters = Counters()
    given = Skipped(counters)
    for number in (1, 3, 5, 7):
        given.add(entry(number), 1)
    assert counters["link_skipped_untold"] == 2
    given.connected({FEATURE})
    assert told(given) == [("a", [(1, 1), (3, 1)])]
    given.add(entry(1), 1)
    given.connected(())
    given.add(entry(3), 1)
    assert told(given) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\0\0a",
        b"\0\1",
        b"\0\1" + bytes(11),
        encoded("", [(1, 1)]),
        encoded("a" * 1025, [(1, 1)]),
        encoded("a", [(1, 1)]) + b"\xff",
        encoded("a", [(0, 1)]),
        encoded("a", [(1, 0)]),
        encoded("a", [(1, 1), ((1 << 32) - 1, 2)]),
        encoded("a", [((1 << 64) - 1, 2)]),
        encoded("a", [(1, 1)] * 257),
        struct.pack(">H", 3) + encoded("a", [(1, 1)])[2:],
    ],
)
def test_a_malformed_message_ends_the_session_and_changes_nothing(world: World, payload: bytes) -> None:
    with pytest.raises(MalformedPacket):
        decoded(payload)
    _, b = pair(world, spooling=SPOOL, spooled_b=True)
    link = b.node.links.links["a"]
    with pytest.raises(MalformedPacket):
        b.node.links.cooperation.control_message(link, SKIPPED, payload, 0)
    assert b.node.custody is not None
    assert len(b.node.custody._come) == 0


def test_own_numbers_are_nobody_else_s_to_skip(world: World) -> None:
    a, _ = pair(world, spooling=SPOOL)
    assert a.node.custody is not None
    a.node.links.cooperation.control_message(a.node.links.links["b"], SKIPPED, encoded("a", [(1, 9)]), 0)
    assert a.node.custody.has_come(Identity("a", 5)) is False
    a.node.links.cooperation.control_message(a.node.links.links["b"], SKIPPED, encoded("b", [(1, 9)]), 0)
    assert a.node.custody.has_come(Identity("b", 5)) is True
