"""Overlays when nodes die, hang or lose each other: the rest repair it and lose no QoS 1 message."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ildm.config import Address
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.overlay import OVERLAYS, chains, quick, rows_of, segment, together
from tests.sites.process import ProcessSite
from tests.sites.proxy import Proxy
from tests.sites.site import Site, exchange, join, joined, rested, settled
from tests.support.brokers import Fleet
from tests.support.ports import LOOPBACK, free_port


@pytest.fixture(params=OVERLAYS)
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def overlays(*names: str) -> pytest.MarkDecorator:
    """Not all of them: what the test is about is in the layer that they share."""
    return pytest.mark.parametrize("algorithm", names, indirect=True)


@pytest.fixture
async def victim(tmp_path: Path, fleet: Fleet, algorithm: str) -> AsyncIterator[Callable[[str], ProcessSite]]:
    """Makes a site whose node is a process of its own; it is not started."""
    made: list[ProcessSite] = []

    def make(name: str) -> ProcessSite:
        site = ProcessSite(fleet.shared("mosquitto", 5 + len(made)), tmp_path / name, quick(algorithm), name)
        made.append(site)
        return site

    yield make
    for site in made:
        if site.process is not None and site.process.returncode is None:
            site.go_on()
            await site.kill()


async def four(sites: Sites, algorithm: str) -> list[Site]:
    choice = quick(algorithm)
    made = [await sites.make(sites.shared_broker("mosquitto", index), choice) for index in range(4)]
    for site in made[1:]:
        await join(site, made[0])
    return made


async def enter(made: list[Site], far: ProcessSite) -> None:
    """Start a process, and let one of the others name it; it is an introducer like any other then."""
    await far.start()
    neighbors = made[1].node.links.neighbors
    if Address(*far.link_address) not in neighbors:
        made[1].node.links.add(Address(*far.link_address), False)
    await rested(far, one=[*(site.name for site in made), far.name])


@asynccontextmanager
async def stream(publisher: Client, topic: str) -> AsyncIterator[list[bytes]]:
    """Numbered QoS 1 messages, one after another, as long as the block lasts; all that were sent."""
    sent: list[bytes] = []
    enough = asyncio.Event()

    async def publish() -> None:
        while not enough.is_set():
            sent.append(b"%d" % len(sent))
            await publisher.publish(topic, sent[-1], 1)

    task = asyncio.create_task(publish())
    try:
        yield sent
    finally:
        enough.set()
        await task


async def more(sent: list[bytes], count: int) -> None:
    """Let so many messages pass."""
    wanted = len(sent) + count
    await until(lambda: len(sent) >= wanted)


async def all_once(listeners: list[Client], sent: list[bytes]) -> None:
    for listener in listeners:
        got = [m.payload for m in await listener.receive_all(len(sent))]
        missing = [each for each in sent if each not in set(got)]
        assert (missing, [each for each, times in Counter(got).items() if times > 1]) == ([], [])
        assert listener.waiting == 0


@pytest.mark.parametrize(
    ("algorithm", "where"),
    [("sg_tbps", "first"), ("sg_tbps", "last"), ("atm_tbps", "first"), ("stla", "last")],
    indirect=["algorithm"],
)
async def test_a_node_is_killed_in_the_middle_of_traffic(
    sites: Sites, algorithm: str, victim: Callable[[str], ProcessSite], where: str, topic_root: str
) -> None:
    """SIGKILL: connections are reset. The node comes back, and leaves in order in the end."""
    made = await four(sites, algorithm)
    far = victim("a" * 8 if where == "first" else "z" * 8)
    await enter(made, far)
    listeners = [await site.connect() for site in made]
    remote = await far.connect()
    for listener in (*listeners, remote):
        await listener.subscribe((topic_root, 1))
    publisher = await made[2].connect()
    await rested(far)
    async with stream(publisher, topic_root) as sent:
        await until(lambda: remote.waiting > 20)
        await far.kill()
        await more(sent, 100)
    await rested(whole=True)
    await all_once(listeners, sent)
    assert together(rows_of(site.overlay() for site in made), [site.name for site in made])
    await enter(made, far)
    assert await far.stop() == 0
    await exchange(made, topic_root, "after")


async def test_a_node_hangs_and_goes_on(
    sites: Sites, algorithm: str, victim: Callable[[str], ProcessSite], topic_root: str
) -> None:
    """SIGSTOP: nothing is reset, only silence tells. It takes part again when it wakes up."""
    made = await four(sites, algorithm)
    far = victim("hanging")
    await enter(made, far)
    listeners = [await site.connect() for site in made]
    remote = await far.connect()
    for listener in (*listeners, remote):
        await listener.subscribe((topic_root, 1))
    publisher = await made[2].connect()
    await rested(far)
    async with stream(publisher, topic_root) as sent:
        await until(lambda: remote.waiting > 20)
        far.pause()
        await until(lambda: any(site.counter("suspected") for site in made), "the silence is noticed")
        await more(sent, 100)
    await all_once(listeners, sent)
    far.go_on()
    await rested(far, one=[*(site.name for site in made), far.name], whole=True)
    await all_once([remote], sent)
    async with stream(publisher, topic_root) as sent:
        await more(sent, 50)
    await all_once([*listeners, remote], sent)


@overlays("stla")
async def test_the_rendezvous_point_is_killed(
    sites: Sites, algorithm: str, victim: Callable[[str], ProcessSite], topic_root: str
) -> None:
    """Its neighbour takes its place; those who were suspended resume, and the reverse."""
    made = await four(sites, algorithm)
    far = victim("a-rendezvous")
    await enter(made, far)
    near = [await site.connect() for site in made[:2]]
    remote = await far.connect()
    subscriber = await made[3].connect()
    for publisher in (remote, *near):
        await publisher.publish(topic_root, b"unheard", 1)
    await rested(far)
    rows = rows_of([await far.overlay(), *(site.overlay() for site in made)])
    exact = {key: row for key, row in rows.items() if segment(key) == topic_root}
    assert [key for key, row in exact.items() if row.get("rendezvous")] == [
        f"{topic_root} publisher {far.name}"
    ]
    assert [row["suspended"] for row in exact.values()] == [True] * 3
    await far.kill()
    await subscriber.subscribe((topic_root, 1))
    await settled(*made)
    for number, publisher in enumerate(near):
        await publisher.publish(topic_root, b"%d" % number, 1)
    assert sorted(m.payload for m in await subscriber.receive_all(2)) == [b"0", b"1"]
    await subscriber.unsubscribe(topic_root)
    await settled(*made)
    rows = rows_of(site.overlay() for site in made)
    exact = {key: row for key, row in rows.items() if segment(key) == topic_root}
    assert [row["suspended"] for row in exact.values()] == [True] * 2


@overlays("sg_tbps", "atm_tbps")
async def test_subscribers_and_publishers_are_killed_together(
    sites: Sites, algorithm: str, victim: Callable[[str], ProcessSite], topic_root: str
) -> None:
    """Two of six at once; a new subscriber meanwhile finds its way in all the same."""
    made = await four(sites, algorithm)
    both = [victim("c-victim"), victim("q-victim")]
    for far in both:
        await far.start()
        made[1].node.links.add(Address(*far.link_address), False)
        await until(lambda name=far.name: name in made[1].node.links.links)  # type: ignore[misc]
    await rested(*both, one=[*(site.name for site in made), *(far.name for far in both)])
    listeners = [await made[0].connect()]
    await listeners[0].subscribe((f"{topic_root}/#", 1))
    for far in both:
        remote = await far.connect()
        await remote.subscribe((f"{topic_root}/+", 1))
        await remote.publish(f"{topic_root}/x", b"hello", 1)
    publisher = await made[2].connect()
    await rested(*both)
    assert [m.payload for m in await listeners[0].receive_all(2)] == [b"hello"] * 2
    async with stream(publisher, f"{topic_root}/x") as sent:
        await more(sent, 30)
        await asyncio.gather(*(far.kill() for far in both))
        late = await made[3].connect()
        await late.subscribe((f"{topic_root}/x", 1))
        await more(sent, 50)
    await settled(*made)
    await all_once(listeners, sent)
    await publisher.publish(f"{topic_root}/x", b"end", 1)
    for client in (*listeners, late):
        got = [m.payload for m in await client.receive_until(b"end")]
        assert len(got) == len(set(got))


async def test_four_makes_with_joins_leaves_and_kills(
    sites: Sites, tmp_path: Path, fleet: Fleet, algorithm: str, topic_root: str
) -> None:
    """Whoever stays gets each message once, whoever comes or comes back each from then on."""
    here = await sites.make("mosquitto", quick(algorithm))
    leaver = await sites.make("rabbitmq", quick(algorithm), limits={"drain_timeout": 10.0})
    await join(leaver, here)
    doomed, stayer = [
        ProcessSite(fleet.shared(kind), tmp_path / kind, quick(algorithm), f"{topic_root}-{kind}")
        for kind in ("activemq", "moquette")
    ]
    living: list[ProcessSite] = []
    try:
        for far in (doomed, stayer):
            await far.start()
            living.append(far)
            here.node.links.add(Address(*far.link_address), False)
        await rested(*living, one=[here.name, *(far.name for far in living)])
        listeners = [await site.connect() for site in (here, leaver, doomed, stayer)]
        for listener in listeners:
            await listener.subscribe((topic_root, 1))
        publisher = await here.connect()
        await rested(*living)
        async with stream(publisher, topic_root) as sent:
            await until(lambda: all(listener.waiting > 20 for listener in listeners))
            await doomed.kill()
            await more(sent, 60)
            newcomer = await sites.make(sites.shared_broker("mosquitto", 1), quick(algorithm))
            newcomer.add(here)
            late = await newcomer.connect()
            await late.subscribe((topic_root, 1))
            late_from = len(sent)
            await until(lambda: late.waiting > 20)
            await leaver.stop()
            await more(sent, 60)
            await doomed.start()
            back = await doomed.connect()
            await back.subscribe((topic_root, 1))
            back_from = len(sent)
            await until(lambda: back.waiting > 20)
        await rested(*living)
        await all_once([listeners[0], listeners[3]], sent)
        for listener, begin in ((late, late_from), (back, back_from)):
            # those published while its key joined are fetched, and come after newer ones; on a busy machine
            # with some from before: how old they are is told by when the offer comes
            got: Counter[bytes] = Counter()
            while not set(sent[begin:]) <= set(got):
                got[(await listener.receive()).payload] += 1
            got.update([message.payload for message in await listener.receive_all(listener.waiting)])
            assert set(got.values()) == {1}
            assert set(got) <= set(sent)
    finally:
        for far in living:
            await far.kill()


class Shielded:
    """A site that others reach through a proxy only, so that a test can cut it off."""

    def __init__(self, site: Site, proxy: Proxy) -> None:
        self.site = site
        self.proxy = proxy


@pytest.fixture
async def shielded(sites: Sites, algorithm: str) -> AsyncIterator[Callable[[int], Awaitable[Shielded]]]:
    """Starts a site before the Mosquitto of that index; its proxy's address is the one it advertises."""
    proxies: list[Proxy] = []

    async def make(index: int) -> Shielded:
        port = free_port()
        proxy = Proxy((LOOPBACK, port))
        await proxy.start()
        proxies.append(proxy)
        advertise = f"{proxy.address[0]}:{proxy.address[1]}"
        broker = sites.shared_broker("mosquitto", index)
        link = {"listen": f"{LOOPBACK}:{port}", "advertise": advertise}
        return Shielded(await sites.make(broker, quick(algorithm), link=link), proxy)

    yield make
    for proxy in proxies:
        await proxy.close()


async def test_the_network_falls_apart_and_heals(
    shielded: Callable[[int], Awaitable[Shielded]], topic_root: str
) -> None:
    """Each node is alone for a while and goes on; then they are one overlay again. Each hears what the others
    have published meanwhile, once and in whatever order, and the newest value is the one that is retained."""
    made = [await shielded(index) for index in range(3)]
    nodes = [each.site for each in made]
    for each in made[1:]:
        each.site.add(made[0].site, made[0].proxy.address)
        await joined(each.site, made[0].site)
    clients = [await site.connect() for site in nodes]
    for client in clients:
        await client.subscribe((f"{topic_root}/state", 1))
    await settled(*nodes)
    await clients[0].publish(f"{topic_root}/state", b"first", 1, retain=True)
    for client in clients:
        assert (await client.receive()).payload == b"first"
    await exchange(nodes, topic_root, "before")
    for each in made:
        each.proxy.cut()
    await until(lambda: len(chains(rows_of(site.overlay() for site in nodes))) == 3)
    await rested()
    for number, client in enumerate(clients):
        # later than all before it, in the milliseconds of a stamp
        now = nodes[0].node.driver.wall
        earlier = now()
        await until(lambda earlier=earlier, now=now: now() > earlier + 0.002)  # type: ignore[misc]
        await client.publish(f"{topic_root}/state", b"alone %d" % number, 1, retain=True)
        assert (await client.receive()).payload == b"alone %d" % number
        await client.publish(f"{topic_root}/other", b"unheard", 1)
    for each in made:
        each.proxy.mend()
    await rested(one=[site.name for site in nodes], whole=True)
    for number, client in enumerate(clients):
        missed = {b"alone %d" % other for other in range(3)} - {b"alone %d" % number}
        assert {m.payload for m in await client.receive_all(len(missed))} == missed
    await exchange(nodes, topic_root, "after")
    late = [await site.connect() for site in nodes]
    for client in late:
        await client.subscribe((f"{topic_root}/state", 1))
        assert (await client.receive()).payload == b"alone 2"
    await clients[0].publish(f"{topic_root}/state", b"", 1, retain=True)
    for client in clients:
        assert await client.receive_until(b"") == []


async def test_a_broker_that_is_killed_takes_its_subscribers_keys_along(
    sites: Sites, topic_root: str
) -> None:
    """Without them the publishers elsewhere are suspended; they resume when the clients are back."""
    broker = await sites.own_broker("mosquitto")
    here = await sites.make("mosquitto", "sg_tbps")
    there = await sites.make(broker, "sg_tbps")
    await join(there, here)
    client = await there.connect()
    await client.subscribe((topic_root, 1))
    publisher = await here.connect()
    await publisher.publish(topic_root, b"one", 1)
    assert (await client.receive()).payload == b"one"
    await asyncio.to_thread(broker.kill)
    await client.wait_closed()
    await until(lambda: not any(segment(key) == topic_root for key in rows_of([there.overlay()])))
    await rested()
    row = rows_of([here.overlay()])[f"{topic_root} publisher {here.name}"]
    assert (row["rendezvous"], row["suspended"]) == (True, True)
    await asyncio.to_thread(broker.start)
    await until(lambda: all(sender.open for sender in there.node.injector.senders))
    client = await there.connect()
    await client.subscribe((topic_root, 1))
    await settled(here, there)
    await publisher.publish(topic_root, b"two", 1)
    assert (await client.receive()).payload == b"two"
