"""What clients were acknowledged arrives over an overlay although nodes are killed, at QoS 2 once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ildm.config import Address
from tests.sites import octopia
from tests.sites.client import Client
from tests.sites.overlay import QUICK
from tests.sites.process import ProcessSite
from tests.support.brokers import Fleet

SPOOL = {"mode": "process"}
MESSAGES = 60
"""Of each QoS."""
NAMES = ("near", "far", "away")
KINDS: dict[str, dict[str, Any]] = {
    "pf": {"name": "pf"},
    "sf": {"name": "sf"},
    "sg_tbps": {"name": "sg_tbps", **QUICK},
    "stla": {"name": "stla", **QUICK},
    "octopia": octopia.choice(1, len(NAMES), NAMES),
}


@pytest.fixture
async def three(fleet: Fleet, tmp_path: Path, kind: str) -> AsyncIterator[list[ProcessSite]]:
    """Sites whose nodes are processes, in the order of their names; the first is named by the others."""
    made: list[ProcessSite] = []
    for name in NAMES:
        known = [str(Address(*made[0].link_address))] if made else []
        broker = fleet.shared("mosquitto", len(made))
        link = {"neighbors": known}
        made.append(ProcessSite(broker, tmp_path / name, KINDS[kind], name, link=link, spool=SPOOL))
    await asyncio.gather(*(site.start() for site in made))
    yield made
    for site in made:
        if site.process is not None and site.process.returncode is None:
            await site.kill()


async def crosses(publisher: Client, subscriber: Client, topic: str) -> None:
    """Returns when what is published arrives."""
    while not subscriber.waiting:
        await publisher.publish(topic, b"probe", 1)
        await asyncio.sleep(0.2)


def texts(qos: int, round_: str) -> list[bytes]:
    return [b"%s %d %d" % (round_.encode(), qos, number) for number in range(MESSAGES)]


async def publish_both(client: Client, topic: str, round_: str) -> None:
    """All of it has been acknowledged when this returns."""
    await asyncio.gather(*(client.publish_all(topic, texts(qos, round_), qos) for qos in (1, 2)))


async def has_all(client: Client, round_: str, got: Counter[bytes]) -> None:
    wanted = {*texts(1, round_), *texts(2, round_)}
    while not wanted <= got.keys():
        got[(await client.receive()).payload] += 1


def twice(got: Counter[bytes], round_: str) -> list[bytes]:
    """What has come more than once of QoS 2."""
    return [text for text in texts(2, round_) if got[text] > 1]


@pytest.mark.parametrize(
    ("kind", "killed"),
    [*((kind, (1,)) for kind in ("sg_tbps", "stla", "octopia")), *((kind, (0, 1)) for kind in ("pf", "sf"))],
)
async def test_nodes_are_killed_while_the_site_of_a_subscriber_is_away(
    three: list[ProcessSite], killed: tuple[int, ...], topic_root: str
) -> None:
    """The clients have all their acknowledgements, and what the site needs is with the killed nodes alone: in
    an overlay with the publisher's, in a tree with that and the one on the way."""
    _, far, away = three
    subscriber = await away.connect(topic_root, clean=False)
    await subscriber.subscribe((f"{topic_root}/#", 2))
    publisher = await far.connect()
    await crosses(publisher, subscriber, f"{topic_root}/probe")
    await away.kill()
    await publish_both(publisher, f"{topic_root}/data", "one")
    await asyncio.gather(*(three[index].kill() for index in killed))
    await asyncio.gather(*(three[index].start() for index in killed), away.start())
    subscriber = await away.connect(topic_root, clean=False)
    got: Counter[bytes] = Counter()
    await has_all(subscriber, "one", got)
    publisher = await far.connect()
    await publish_both(publisher, f"{topic_root}/data", "two")
    await has_all(subscriber, "two", got)
    assert twice(got, "one") == twice(got, "two") == []
