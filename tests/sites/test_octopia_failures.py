"""OctopiA when nodes die or hang and sites lose each other: at QoS 1 nobody misses what he wants."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ildm.config import Address
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.mesh import Mesh
from tests.sites.octopia import agreed, choice, grid, installed
from tests.sites.process import ProcessSite
from tests.sites.site import Site
from tests.support.brokers import Fleet

pytestmark = installed

VICTIM = "victim"


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    yield mesh
    await mesh.close()


@pytest.fixture
async def victim(
    tmp_path: Path, fleet: Fleet, sites: Sites
) -> AsyncIterator[Callable[[int, int, int], ProcessSite]]:
    """Makes a site at one place of a grid whose node is a process of its own; it is not started."""
    made: list[ProcessSite] = []

    def make(regions: int, clusters: int, place: int) -> ProcessSite:
        names = sites.upcoming(regions * clusters - 1)
        names.insert(place, VICTIM)
        broker = fleet.shared("mosquitto", regions * clusters)
        made.append(ProcessSite(broker, tmp_path / VICTIM, choice(regions, clusters, names), VICTIM))
        return made[-1]

    yield make
    for site in made:
        if site.process is not None and site.process.returncode is None:
            site.go_on()
            await site.kill()


async def enter(made: list[Site], far: ProcessSite) -> None:
    """Start a process, and let one of the others name it."""
    await far.start()
    if Address(*far.link_address) not in made[0].node.links.neighbors:
        made[0].node.links.add(Address(*far.link_address), False)
    await agreed(made, far)


class Stream:
    """Numbered messages at QoS 1, every second of which has ``x`` 1; one after another."""

    def __init__(self, publisher: Client, topic: str, name: str) -> None:
        self.publisher = publisher
        self.topic = topic
        self.name = name
        self.sent: list[bytes] = []

    async def run(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            number = len(self.sent)
            message = json.dumps({"from": self.name, "n": number, "x": number % 2}).encode()
            self.sent.append(message)
            await self.publisher.publish(self.topic, message, 1)

    @property
    def wanted(self) -> list[bytes]:
        return self.sent[1::2]


@asynccontextmanager
async def streams(made: list[Site], topic: str) -> AsyncIterator[list[Stream]]:
    """A stream at each of these sites, as long as the block lasts."""
    found = [Stream(await site.connect(), topic, site.name) for site in made]
    enough = asyncio.Event()
    tasks = [asyncio.create_task(each.run(enough)) for each in found]
    try:
        yield found
    finally:
        enough.set()
        await asyncio.gather(*tasks)


async def more(found: list[Stream], count: int) -> None:
    """Let so many messages of each pass."""
    wanted = [len(each.sent) + count for each in found]
    await until(lambda: all(len(s.sent) >= least for s, least in zip(found, wanted, strict=True)))


async def listeners(made: list[Site], topic: str) -> list[Client]:
    """A client at each site that wants half of the messages."""
    clients = [await site.connect() for site in made]
    for client in clients:
        await client.subscribe((f"filter/x=1/{topic}", 1))
    return clients


async def all_once(clients: list[Client], found: list[Stream]) -> None:
    """Each has what it wants of all streams, once, and in the order of each publisher if ``ordered``."""
    expected = Counter(message for each in found for message in each.wanted)
    for client in clients:
        got = Counter(m.payload for m in await client.receive_all(expected.total()))
        assert (expected - got, got - expected) == (Counter(), Counter())
        assert client.waiting == 0


async def nothing_else(clients: list[Client]) -> None:
    assert [client.waiting for client in clients] == [0] * len(clients)


@pytest.mark.parametrize("place", [4, 1], ids=["between others", "where it is published"])
async def test_a_node_is_killed_in_the_middle_of_traffic(
    sites: Sites, victim: Callable[[int, int, int], ProcessSite], place: int, topic_root: str
) -> None:
    """SIGKILL of the middle one of a cluster: its neighbours go past it. It comes back, and is as before."""
    far = victim(3, 2, place)
    made = await grid(sites, 3, 2, others={place: VICTIM})
    await enter(made, far)
    clients = await listeners(made, topic_root)
    remote = await far.connect()
    await remote.subscribe((f"filter/x=1/{topic_root}", 1))
    await agreed(made, far)
    async with streams([made[0], made[3]], topic_root) as found:
        await until(lambda: remote.waiting > 20)
        await far.kill()
        await more(found, 60)
        await agreed_on_the_way(made)
        await more(found, 20)
    await agreed(made)
    await all_once(clients, found)
    await enter(made, far)
    again = [*clients, await far.connect()]
    await again[-1].subscribe((f"filter/x=1/{topic_root}", 1))
    await agreed(made, far)
    async with streams([made[4]], topic_root) as found:
        await more(found, 20)
    await agreed(made, far)
    await all_once(again, found)
    assert await far.stop() == 0
    await agreed(made)


async def agreed_on_the_way(made: list[Site]) -> None:
    """Wait until no site takes the victim for alive."""

    def gone() -> bool:
        rows = [row for site in made for row in site.overlay()["tables"]["links"]]
        return all(row["state"] == "down" for row in rows if row["node"] == VICTIM)

    await until(gone, "the victim is given up")


async def test_a_killed_node_with_a_persistent_session_loses_nothing(
    sites: Sites, victim: Callable[[int, int, int], ProcessSite], topic_root: str
) -> None:
    """It asks for what was published meanwhile, since when it has wanted it."""
    far = victim(2, 2, 3)
    made = await grid(sites, 2, 2, others={3: VICTIM})
    await enter(made, far)
    text = f"filter/x=1/{topic_root}"
    away = await far.connect(topic_root[:20], clean=False)
    await away.subscribe((text, 1))
    await agreed(made, far)
    async with streams(made, topic_root) as found:
        await until(lambda: away.waiting > 20)
        await until(lambda: far.saved_filters(topic_root[:20]) == {text: 1}, "the saved session")
        await until(lambda: far.saved_rows("plugin_state") > 0, "the saved time")
        await more(found, 10)
        await far.kill()
        await agreed_on_the_way(made)
        await more(found, 20)
    got = [m.payload for m in await away.receive_all(away.waiting)]
    await agreed(made)
    await enter(made, far)
    back = await far.connect(topic_root[:20], clean=False)
    expected = {message for each in found for message in each.wanted}
    while not expected <= set(got):
        got.append((await back.receive()).payload)
    assert set(got) == expected
    await back.unsubscribe(text)
    await back.disconnect()


async def test_a_node_hangs_and_goes_on(
    sites: Sites, victim: Callable[[int, int, int], ProcessSite], topic_root: str
) -> None:
    """SIGSTOP: nothing is reset, only silence tells; when it wakes up it gets what it has missed."""
    far = victim(3, 2, 1)
    made = await grid(sites, 3, 2, others={1: VICTIM})
    await enter(made, far)
    clients = await listeners(made, topic_root)
    remote = await far.connect()
    await remote.subscribe((f"filter/x=1/{topic_root}", 1))
    await agreed(made, far)
    async with streams([made[0], made[3]], topic_root) as found:
        await until(lambda: remote.waiting > 20)
        far.pause()
        await agreed_on_the_way(made)
        await more(found, 40)
    await all_once(clients, found)
    far.go_on()
    await agreed(made, far)
    await all_once([remote], found)
    await nothing_else(clients)


@pytest.mark.parametrize("routing", ["spr", "idr"])
@pytest.mark.parametrize("other", [1, 2], ids=["aLink", "iLink"])
async def test_a_link_is_cut_in_the_middle_of_traffic(
    sites: Sites, mesh: Mesh, routing: str, other: int, topic_root: str
) -> None:
    """Both its nodes live; what goes over it takes another way until it is there again."""
    made = await grid(sites, 2, 2, mesh=mesh, routing=routing)
    clients = await listeners(made, topic_root)
    await agreed(made)
    async with streams([made[0], made[3]], topic_root) as found:
        await until(lambda: all(client.waiting > 20 for client in clients))
        mesh.cut([made[0].name], [made[other].name])
        await more(found, 60)
        mesh.mend()
        await more(found, 20)
    await agreed(made)
    await all_once(clients, found)


@pytest.mark.parametrize(
    "apart", [([0, 1], [2, 3, 4, 5]), ([0, 2, 4], [1, 3, 5])], ids=["a cluster", "a region"]
)
async def test_sites_lose_each_other_and_meet_again(
    sites: Sites, mesh: Mesh, apart: tuple[list[int], list[int]], topic_root: str
) -> None:
    """Each part goes on by itself for longer than a dead node is waited for; then all have everything."""
    made = await grid(sites, 2, 3, mesh=mesh)
    clients = await listeners(made, topic_root)
    await agreed(made)
    parts = [[made[index] for index in part] for part in apart]
    async with streams([parts[0][0], parts[1][1]], topic_root) as found:
        await until(lambda: all(client.waiting > 10 for client in clients))
        mesh.cut([site.name for site in parts[0]], [site.name for site in parts[1]])
        await agreed_apart(parts)
        await more(found, 20)
    mesh.mend()
    await agreed(made)
    await all_once(clients, found)
    late = await listeners(made, f"{topic_root}/late")
    await agreed(made)
    async with streams([made[0]], f"{topic_root}/late") as found:
        await more(found, 10)
    await agreed(made)
    await all_once(late, found)


async def agreed_apart(parts: list[list[Site]]) -> None:
    """Wait until each part knows that the other is out of reach."""

    def known() -> bool:
        for part in parts:
            names = {site.name for site in part}
            for site in part:
                for row in site.overlay()["tables"]["links"]:
                    if (row["state"] == "up") is not (row["node"] in names):
                        return False
        return True

    await until(known, "the parts know that they are apart")


async def test_expressions_come_and_go_while_a_node_is_away(
    sites: Sites, victim: Callable[[int, int, int], ProcessSite], topic_root: str
) -> None:
    """After its return it knows what is wanted now, and the others what its clients want."""
    far = victim(2, 2, 2)
    made = await grid(sites, 2, 2, others={2: VICTIM})
    await enter(made, far)
    clients = await listeners(made, topic_root)
    await agreed(made, far)
    await far.kill()
    await agreed_on_the_way(made)
    await clients[0].unsubscribe(f"filter/x=1/{topic_root}")
    await clients[1].subscribe((f"filter/x=0/{topic_root}", 1))
    await agreed(made)
    await enter(made, far)
    remote = await far.connect()
    await remote.subscribe((f"filter/n=7/{topic_root}", 1))
    await agreed(made, far)
    publisher = await far.connect()
    for number in (7, 8):
        payload = json.dumps({"n": number, "x": number % 2}).encode()
        await publisher.publish(topic_root, payload, 1)
    await agreed(made, far)
    assert [[json.loads(m.payload)["n"] for m in await c.receive_all(c.waiting)] for c in clients] == [
        [],
        [7, 8],
        [7],
    ]
    assert [json.loads(m.payload)["n"] for m in await remote.receive_all(1)] == [7]


async def test_a_node_stops_and_starts_in_traffic(sites: Sites, topic_root: str) -> None:
    """In order: who stays misses nothing, and nobody has to find out by silence."""
    made = await grid(sites, 3, 2, changes={"limits": {"drain_timeout": 10.0}})
    stopped = made[4]
    others = [site for site in made if site is not stopped]
    clients = await listeners(others, topic_root)
    await agreed(made)
    async with streams([made[0], made[3]], topic_root) as found:
        await more(found, 20)
        await stopped.stop()
        await more(found, 20)
        await stopped.start()
        stopped.add(made[0])
        await more(found, 20)
    await agreed(made)
    await all_once(clients, found)
