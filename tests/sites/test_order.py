"""Order per publisher, topic and QoS over links of several sessions (MQTT-4.6.0-5, -6)."""

from __future__ import annotations

import asyncio
import itertools
from zlib import crc32

import pytest

from ildm.mqtt import Publish
from tests.sites.client import until
from tests.sites.conftest import Proxies, Sites, makes, trees
from tests.sites.overlay import OVERLAYS
from tests.sites.site import Site, join, settled

FOUR = {"sessions": 4}


def in_turn(prefix: str, count: int) -> list[str]:
    """Client identifiers that take the four sessions in turn: with a spool a client's follows from it."""
    names = [f"{prefix}-{number}".replace("/", "") for number in range(64 * count)]
    kinds = [[name for name in names if crc32(name.encode()) % 4 == session] for session in range(4)]
    return [kinds[place % 4][place // 4] for place in range(count)]


@pytest.mark.parametrize(("qos", "count"), [(0, 10_000), (1, 2_000), (2, 2_000)])
@makes("mosquitto", "activemq")
async def test_numbered_messages_over_four_sessions(
    sites: Sites, algorithm: str, kind: str, qos: int, count: int, topic_root: str
) -> None:
    here = await sites.make("mosquitto", algorithm, link=FOUR)
    there = await sites.make(sites.shared_broker(kind, 1 if kind == "mosquitto" else 0), algorithm, link=FOUR)
    await join(there, here)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/+", qos))
    publishers = [await here.connect(name) for name in in_turn(topic_root, 5)]
    await settled(here, there)
    each = count // 5
    numbers = [b"%d" % n for n in range(each)]

    async def publish(i: int) -> None:
        # not all at once: ActiveMQ drops QoS 0 messages for a subscriber who is slower than its publishers
        for start in range(0, each, 200):
            await publishers[i].publish_all(f"{topic_root}/{i}", numbers[start : start + 200], qos, 20)
            if qos == 0:
                await until(lambda least=(start + 100) * 2: subscriber.waiting >= least)  # type: ignore[misc]

    await asyncio.gather(*(publish(i) for i in range(5)))
    got = await subscriber.receive_all(count)
    for i in range(5):
        assert [m.payload for m in got if m.topic == f"{topic_root}/{i}"] == numbers
    assert {m.qos for m in got} == {qos}
    assert subscriber.waiting == 0
    senders = here.link(there).senders
    if here.has_overlay:  # its link carries more than messages
        assert all(sender.sent >= each for sender in senders)
    else:
        assert sum(sender.sent for sender in senders) == count
        assert sorted(sender.sent for sender in senders) == [each, each, each, 2 * each]


@trees
async def test_a_session_of_the_link_ends_half_way(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """The other sessions go on; nothing of QoS 1 is lost, and its order is kept."""
    here = await sites.make("mosquitto", algorithm, link=FOUR)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, link=FOUR)
    await proxies.join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/+", 1))
    publishers = [await here.connect() for _ in range(4)]
    await settled(here, there)
    numbers = [b"%d" % n for n in range(400)]
    under_way = asyncio.gather(
        *(p.publish_all(f"{topic_root}/{i}", numbers, 1, 10) for i, p in enumerate(publishers))
    )
    ended = 0
    for index in (1, 2, 3):
        await until(lambda: subscriber.waiting > 300 * ended)  # noqa: B023 - evaluated in this turn
        session = next(s for s in here.link(there).open_sessions if s.index == index)
        session.abort()
        ended += 1
        await until(lambda: session not in here.link(there).open_sessions)  # noqa: B023
        assert here.link(there).connected
        await until(lambda: here.is_joined(there) and there.is_joined(here))
    await under_way
    got = await subscriber.receive_all(4 * 400)
    for i in range(4):
        payloads = [m.payload for m in got if m.topic == f"{topic_root}/{i}"]
        assert list(dict.fromkeys(payloads)) == numbers
    assert subscriber.waiting == 0
    assert here.node.counters["link_sessions_lost"] <= ended * 2


async def test_order_over_a_row_of_three(sites: Sites, algorithm: str, topic_root: str) -> None:
    """The transit node keeps each publisher on its session (thesis 5.4.1)."""
    row: list[Site] = await sites.row(["mosquitto", "moquette", "mosquitto"], algorithm, link=FOUR)
    subscriber = await row[2].connect()
    await subscriber.subscribe((f"{topic_root}/+", 2))
    await settled(*row)
    publishers = [await row[0].connect(name) for name in in_turn(topic_root, 6)]
    numbers = [b"%d" % n for n in range(100)]
    await asyncio.gather(
        *(p.publish_all(f"{topic_root}/{i}", numbers, i % 3, 10) for i, p in enumerate(publishers))
    )
    got: list[Publish] = await subscriber.receive_all(600)
    for i in range(6):
        assert [m.payload for m in got if m.topic == f"{topic_root}/{i}"] == numbers
    for one, other in itertools.pairwise(row if algorithm not in OVERLAYS else []):
        sent = [sender.sent for sender in one.link(other).senders]
        assert sorted(sent) == [100, 100, 200, 200]
