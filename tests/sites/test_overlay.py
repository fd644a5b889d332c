"""Overlays before real brokers: each message comes once to those who want it, whoever joins whom.

What the three algorithms share is tried with SG-TBPS alone; what the tables and ways of one could spoil, with
each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from ildm.mqtt import Subscription, Version, Will, topic_matches
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.overlay import OVERLAYS, chains, reached, rows_of, together
from tests.sites.site import Site, exchange, join, joined, rested, settled
from tests.support.ports import LOOPBACK, free_port

BROKERS = [("mosquitto", 0), ("activemq", 0), ("moquette", 0), ("rabbitmq", 0)] + [
    ("mosquitto", index) for index in range(1, 6)
]
PATIENT = {"drain_timeout": 10.0}
"""Time for leaving in agreement with the others, however slow the machine."""


each_overlay = pytest.mark.parametrize("name", OVERLAYS)


async def members(sites: Sites, count: int, name: str, **options: Any) -> list[Site]:
    """Sites that have joined one after another, each by the address of any one that was there."""
    random = Random(count)
    made: list[Site] = []
    for broker in BROKERS[:count]:
        site = await sites.make(sites.shared_broker(*broker), name, **options)
        if made:
            await join(site, random.choice(made))
        made.append(site)
    return made


async def mosquittos(sites: Sites, count: int, name: str = "sg_tbps", **options: Any) -> list[Site]:
    """The same before Mosquitto alone, which starts in no time; all join the first."""
    made: list[Site] = []
    for index in range(count):
        made.append(await sites.make(sites.shared_broker("mosquitto", index), name, **options))
        if index:
            await join(made[index], made[0])
    return made


def picture(made: list[Site]) -> dict[str, Any]:
    """Keys of running sites by their text."""
    return rows_of(site.overlay() for site in made if site.running)


def list_of(made: list[Site], topic: str) -> list[str]:
    """The keys of one exact segment from left to right, nodes named by their numbers."""
    names = {site.name: str(number) for number, site in enumerate(made)}
    return [
        f"{role} {names[node]}"
        for chain in chains(picture(made))
        for key in chain
        for where, role, node in [key.rsplit(" ", 2) if key.count(" ") > 1 else ("", "", "")]
        if where == topic
    ]


class Listener(NamedTuple):
    site: Site
    topic_filter: str
    client: Client


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("sg_tbps", 3),
        ("atm_tbps", 9),
        ("stla", 5),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("sg_tbps", 9), ("atm_tbps", 5), ("stla", 9))
        ),
    ],
)
async def test_each_message_comes_once_to_those_who_want_it(
    sites: Sites, name: str, count: int, topic_root: str
) -> None:
    """Exact and wildcard filters everywhere, publishers everywhere, all QoS."""
    made = await members(sites, count, name)
    await rested(whole=True)
    assert together(picture(made), [site.name for site in made])
    filters = ["{}/0/exact", "{}/1/exact", "{}/+/all", "{}/#", "{}/1/#", "+/2/+", "{}/none/of/these"]
    listeners = []
    for number, site in enumerate(made):
        for offset in range(3):
            topic_filter = filters[(3 * number + offset) % len(filters)].format(topic_root)
            client = await site.connect()
            await client.subscribe((topic_filter, offset))
            listeners.append(Listener(site, topic_filter, client))
    publishers = [await site.connect() for site in made]
    await settled(*made)
    topics = [f"{topic_root}/{rest}" for rest in ("0/exact", "1/exact", "1/all", "2/all", "0", "2")] + [
        topic_root
    ]
    sent = [
        (topics[(number + step) % len(topics)], b"%d %d" % (number, step), step % 3, publisher)
        for step in range(len(topics))
        for number, publisher in enumerate(publishers)
    ]
    for topic, payload, qos, publisher in sent:
        await publisher.publish(topic, payload, qos)
    await settled(*made)
    for number, (site, topic_filter, client) in enumerate(listeners):
        expected = Counter(
            (topic, payload) for topic, payload, _, _ in sent if topic_matches(topic_filter, topic)
        )
        got = [(m.topic, m.payload) for m in await client.receive_all(expected.total())]
        mine = [pair for pair in got if pair[0].startswith(topic_root)]
        assert Counter(mine) == expected
        end = topic_filter.replace("#", "x").replace("+", topic_root, 1 if topic_filter[0] == "+" else 0)
        await publishers[made.index(site)].publish(end.replace("+", "all"), b"end %d" % number, 1)
        # nothing else but ends of others was under way
        rest = [m.payload for m in await client.receive_until(b"end %d" % number)]
        assert [payload for payload in rest if not payload.startswith(b"end")] == []


@each_overlay
async def test_nothing_crosses_while_nobody_subscribes(sites: Sites, name: str, topic_root: str) -> None:
    """Publishers are suspended without a subscriber and resume with the first one (thesis 3.2.1)."""
    here, there, third = made = await mosquittos(sites, 3, name)
    publishers = [await site.connect() for site in (here, third)]
    for publisher in publishers:
        await publisher.publish(topic_root, b"first", 1)
    await settled(*made)

    def suspended() -> int:
        return here.counter("suspended_publishes")

    subscriber = await there.connect()
    for round_ in (b"one", b"two"):
        before, data = suspended(), here.node.counters["algorithm_out"]
        for qos in (0, 1):
            await publishers[0].publish_all(topic_root, [b"unheard"] * 100, qos)
        # the topic, its prefix and the root: nothing of any message went to any of the three segments
        await until(lambda before=before: suspended() == before + 3 * 200)  # type: ignore[misc]
        # pings alone, and those are few
        assert here.node.counters["algorithm_out"] - data < 100
        await subscriber.subscribe((topic_root, 1))
        await settled(*made)
        for publisher in publishers:
            await publisher.publish(topic_root, round_, 1)
        assert [m.payload for m in await subscriber.receive_all(2)] == [round_] * 2
        await settled(*made)
        assert third.counter("injected") == 0
        await subscriber.unsubscribe(topic_root)
        await settled(*made)
    assert subscriber.waiting == 0


@each_overlay
async def test_members_leave_in_the_middle_of_traffic(sites: Sites, name: str, topic_root: str) -> None:
    """Those who stay get each QoS 1 message once, and nobody has to be suspected of anything."""
    made = await mosquittos(sites, 5, name, limits=PATIENT)
    stayers = [made[0], made[4]]
    listeners = [await site.connect() for site in made]
    for listener in listeners:
        await listener.subscribe((topic_root, 1))
    publisher = await made[0].connect()
    await settled(*made)
    sent: list[bytes] = []
    enough = asyncio.Event()

    async def publish() -> None:
        while not enough.is_set():
            sent.append(b"%d" % len(sent))
            await publisher.publish(topic_root, sent[-1], 1)

    under_way = asyncio.create_task(publish())
    for leaver in (1, 3, 2):
        waited_for = len(sent) + 30
        await until(lambda least=waited_for: len(sent) >= least)  # type: ignore[misc]
        await made[leaver].stop()
    waited_for = len(sent) + 30
    await until(lambda: len(sent) >= waited_for)
    enough.set()
    await under_way
    await rested(whole=True)
    for listener in (listeners[0], listeners[4]):
        got = [m.payload for m in await listener.receive_all(len(sent))]
        assert sorted(got, key=int) == sent
        assert listener.waiting == 0
    assert together(picture(made), [site.name for site in stayers])


@pytest.mark.parametrize("name", ["sg_tbps", "atm_tbps"])
async def test_a_member_that_has_left_comes_back(sites: Sites, name: str, topic_root: str) -> None:
    here, there, third = made = await mosquittos(sites, 3, name, limits=PATIENT)
    for round_ in ("one", "two"):
        await there.stop()
        await exchange([here, third], topic_root, f"without {round_}")
        assert together(picture(made), [here.name, third.name])
        await there.start()
        there.add(third)
        await joined(there, third)
        await exchange(made, topic_root, f"with {round_}")


@pytest.mark.parametrize("name", ["sg_tbps", "stla"])
async def test_all_start_at_once_and_name_each_other_in_a_circle(
    sites: Sites, name: str, topic_root: str
) -> None:
    """Also their clients are there before the overlay is: what they subscribe to is not lost."""
    addresses = [f"{LOOPBACK}:{free_port()}" for _ in range(5)]
    circle = [
        sites.prepare(
            sites.shared_broker("mosquitto", index),
            name,
            link={"listen": address, "neighbors": [addresses[(index + 1) % 5]]},
        )
        for index, address in enumerate(addresses)
    ]
    await asyncio.gather(*(site.start() for site in circle))
    early = await circle[3].connect()
    await early.subscribe((f"{topic_root}/early", 1))
    await rested(one=[site.name for site in circle], whole=True)
    publisher = await circle[0].connect()
    await publisher.publish(f"{topic_root}/early", b"m", 1)
    assert (await early.receive()).payload == b"m"
    await exchange(circle, topic_root, "circle")
    assert early.waiting == 0


@pytest.mark.parametrize("name", ["atm_tbps", "stla"])
async def test_two_overlays_become_one(sites: Sites, name: str, topic_root: str) -> None:
    """With all they hold: subscribers, publishers, retained messages of both."""
    made = [await sites.make(sites.shared_broker("mosquitto", index), name) for index in range(5)]
    first, second = made[:3], made[3:]
    for overlay in (first, second):
        for site in overlay[1:]:
            await join(site, overlay[0])
    listeners = [await made[index].connect() for index in (1, 4)]
    for listener in listeners:
        await listener.subscribe((f"{topic_root}/+", 1))
    publishers = [await made[index].connect() for index in (2, 3)]
    for number, publisher in enumerate(publishers):
        await publisher.publish(f"{topic_root}/state{number}", b"%d" % number, 1, retain=True)
    await settled(*made)
    for number, listener in enumerate(listeners):
        assert (await listener.receive()).payload == b"%d" % number
        assert listener.waiting == 0
    assert len(chains(picture(made))) == 2
    second[0].add(first[1])
    await rested(one=[site.name for site in made], whole=True)
    assert together(picture(made), [site.name for site in made])
    # each side learns what the other has held
    for number, listener in enumerate(listeners):
        assert (await listener.receive()).payload == b"%d" % (1 - number)
    await exchange(made, f"{topic_root}/x", "one")
    late = await made[0].connect()
    await late.subscribe((f"{topic_root}/+", 1))
    assert {m.payload for m in await late.receive_all(2)} == {b"0", b"1"}
    assert [listener.waiting for listener in listeners] == [0, 0]
    for number, publisher in enumerate(publishers):
        await publisher.publish(f"{topic_root}/state{number}", b"", 1, retain=True)
    await settled(*made)


@pytest.mark.parametrize("routing", ["sfb", "mrf"])
async def test_routing_and_sessions_of_a_link_are_no_matter(
    sites: Sites, routing: str, topic_root: str
) -> None:
    """All nodes must not even agree on the routing; order holds over three sessions per link."""
    random = Random(7)
    made: list[Site] = []
    for index in range(4):
        # what comes on a new way may be ahead for longer than by default, where the processors are busy
        choice = {"name": "sg_tbps", "routing": routing if index % 2 else "sfb", "order_wait": 10.0}
        broker = sites.shared_broker("mosquitto", index)
        made.append(await sites.make(broker, choice, link={"sessions": 3}))
        if index:
            await join(made[index], random.choice(made[:index]))
    listeners = [await site.connect() for site in made]
    for listener in listeners:
        await listener.subscribe((f"{topic_root}/+", 1))
    publishers = [await site.connect() for site in made for _ in range(2)]
    await settled(*made)
    # the keys of the topics are in the graph before many messages come
    for number, publisher in enumerate(publishers):
        await publisher.publish(f"{topic_root}/{number}", b"-1", 1)
    await settled(*made)
    numbers = [b"%d" % n for n in range(60)]
    await asyncio.gather(
        *(p.publish_all(f"{topic_root}/{i}", numbers, i % 2, 10) for i, p in enumerate(publishers))
    )
    for listener in listeners:
        got = await listener.receive_all(8 * 61)
        for number in range(8):
            assert [m.payload for m in got if m.topic.endswith(f"/{number}")] == [b"-1", *numbers]
        assert listener.waiting == 0


# the examples of the thesis, seen from the shell ------------------------------------------------


async def shell_rows(made: list[Site], topic: str) -> dict[str, dict[str, Any]]:
    """``ROLE NUMBER`` -> row of the keys in one exact segment, as all nodes' shells show them."""
    found = {}
    for number, site in enumerate(made):
        if site.running:
            for row in (await site.shell("overlay"))["keys"]:
                if row["key"].startswith(f"{topic} "):
                    found[f"{row['facts']['role']} {number}"] = {**row, **row["facts"]}
    return found


async def test_the_rendezvous_point_of_the_thesis(sites: Sites, topic_root: str) -> None:
    """Fig. 3.3 to 3.6: order of the keys, suspending, resuming, joining publishers, handing over."""
    made = await mosquittos(sites, 5, limits=PATIENT)
    subscribers = {number: await made[number].connect() for number in (2, 4)}
    publishers = {number: await made[number].connect() for number in (0, 1, 3)}
    # Fig. 3.3: subscribers before publishers; the first publisher is the rendezvous point
    for client in subscribers.values():
        await client.subscribe((topic_root, 1))
    for number in (1, 3):
        await publishers[number].publish(topic_root, b"join", 1)
    await settled(*made)
    assert list_of(made, topic_root) == ["subscriber 2", "subscriber 4", "publisher 1", "publisher 3"]
    rows = await shell_rows(made, topic_root)
    assert {key: (row["rendezvous"], row["suspended"]) for key, row in rows.items() if "pub" in key} == {
        "publisher 1": (True, False),
        "publisher 3": (False, False),
    }
    tree = await made[3].shell(f"overlay trace {topic_root}")
    exact = next(part for part in tree["trees"] if part["name"] == topic_root)
    assert reached(exact["tree"]) == sorted(made[number].name for number in (2, 4))
    assert tree["nodes"] == 2
    # Fig. 3.4: the last subscriber has left; all publishers are suspended, in a new epoch
    for client in subscribers.values():
        await client.unsubscribe(topic_root)
    await settled(*made)
    assert list_of(made, topic_root) == ["publisher 1", "publisher 3"]
    suspended = await shell_rows(made, topic_root)
    assert [row["suspended"] for row in suspended.values()] == [True, True]
    assert len({row["epoch"] for row in suspended.values()}) == 1
    assert suspended["publisher 1"]["epoch"] != rows["publisher 1"]["epoch"]
    tree = await made[3].shell(f"overlay trace {topic_root}")
    exact = next(part for part in tree["trees"] if part["name"] == topic_root)
    assert (exact["facts"]["suspended"], exact["tree"], tree["nodes"]) == (True, None, 0)
    # Fig. 3.6: a publisher that joins before the others is the rendezvous point from then on
    await publishers[0].publish(topic_root, b"join", 1)
    await settled(*made)
    assert list_of(made, topic_root) == ["publisher 0", "publisher 1", "publisher 3"]
    rows = await shell_rows(made, topic_root)
    assert [(row["rendezvous"], row["suspended"]) for row in rows.values()] == [
        (True, True),
        (False, True),
        (False, True),
    ]
    # Fig. 3.5: a subscriber appears; the messages flow again
    await subscribers[4].subscribe((topic_root, 1))
    await settled(*made)
    rows = await shell_rows(made, topic_root)
    assert [row["suspended"] for row in rows.values() if row["role"] == "publisher"] == [False] * 3
    for number, publisher in publishers.items():
        await publisher.publish(topic_root, b"%d" % number, 1)
    got = [m.payload for m in await subscribers[4].receive_all(5)]
    assert sorted(got) == [b"0", b"1", b"3", b"join", b"join"]
    # the rendezvous point leaves: the next publisher takes its place, and does its work
    await made[0].stop()
    await settled(*made)
    rows = await shell_rows(made, topic_root)
    assert [key for key, row in rows.items() if row.get("rendezvous")] == ["publisher 1"]
    await subscribers[4].unsubscribe(topic_root)
    await settled(*made)
    rows = await shell_rows(made, topic_root)
    assert [row["suspended"] for row in rows.values()] == [True, True]


async def test_a_node_that_does_both_is_a_subscriber(sites: Sites, topic_root: str) -> None:
    """Footnote of 3.2.1: one key, in the subscribers' part, exempt from suspending."""
    made = await mosquittos(sites, 2)
    clients = [await site.connect() for site in made]
    await clients[0].subscribe((topic_root, 1))
    await clients[0].publish(topic_root, b"1", 1)
    await clients[1].publish(topic_root, b"2", 1)
    await settled(*made)
    assert list_of(made, topic_root) == ["subscriber 0", "publisher 1"]
    assert sorted(m.payload for m in await clients[0].receive_all(2)) == [b"1", b"2"]
    await clients[0].unsubscribe(topic_root)
    await settled(*made)
    assert list_of(made, topic_root) == ["publisher 0", "publisher 1"]
    assert [row["suspended"] for row in (await shell_rows(made, topic_root)).values()] == [True, True]
    await clients[1].subscribe((topic_root, 1))
    await settled(*made)
    assert list_of(made, topic_root) == ["subscriber 1", "publisher 0"]
    await clients[0].publish(topic_root, b"3", 1)
    assert (await clients[1].receive()).payload == b"3"


async def test_a_neighbor_added_and_removed_in_the_shell(sites: Sites, topic_root: str) -> None:
    """Neighbours are only the way in: without them the overlay stays as it is."""
    here, there = made = [
        await sites.make(sites.shared_broker("mosquitto", index), "sg_tbps") for index in range(2)
    ]
    await rested()
    assert len(chains(picture(made))) == 2
    await there.shell(f"neighbor add {here.link_address} --no-save")
    await rested(one=[here.name, there.name])
    await exchange(made, topic_root, "added")
    await there.shell(f"neighbor remove {here.link_address} --no-save")
    await exchange(made, topic_root, "removed")
    assert together(picture(made), [here.name, there.name])
    assert there.node.links.links[here.name].on_demand


@each_overlay
async def test_what_follows_suback_arrives_in_order_at_any_qos(
    sites: Sites, name: str, topic_root: str
) -> None:
    """Wills too, and where a publisher has more topics below one prefix than keys of their own."""
    made = await mosquittos(sites, 3, name)
    publisher, subscriber = await made[0].connect(), await made[2].connect()
    for number in range(30):
        await publisher.publish(f"{topic_root}/{number}", b"warm", 1)
    await settled(*made)
    for qos in (0, 1, 2):
        await subscriber.subscribe((f"{topic_root}/new{qos}", qos))
        for number in range(50):
            await publisher.publish(f"{topic_root}/new{qos}", b"%d" % number, qos)
        got = await subscriber.receive_all(50)
        assert [message.payload for message in got] == [b"%d" % number for number in range(50)]
    dying = await made[1].connect(will=Will(topic=f"{topic_root}/will", payload=b"gone"))
    await subscriber.subscribe((f"{topic_root}/will", 0))
    dying.drop()
    assert (await subscriber.receive()).payload == b"gone"
    await settled(*made)
    assert subscriber.waiting == 0


@each_overlay
async def test_the_broker_serves_what_is_retained_elsewhere(sites: Sites, name: str, topic_root: str) -> None:
    """To the first subscriber of a filter too: with the flag and by Retain Handling, once to each."""
    made = await mosquittos(sites, 3, name)
    publisher = await made[0].connect()
    for number in range(3):
        await publisher.publish(f"{topic_root}/{number}", b"%d" % number, number, retain=True)
    await settled(*made)
    client = await made[2].connect(version=Version.V5)
    live = await made[2].connect(version=Version.V5)
    await live.subscribe((f"{topic_root}/none", 1))
    for topic_filter, matches in ((f"{topic_root}/1", 1), (f"{topic_root}/#", 3)):
        for handling in (0, 2, 1):
            wanted = Subscription(topic_filter=topic_filter, qos=2, retain_handling=handling)
            await client.subscribe(wanted)
            got = await client.receive_all(0 if handling == 2 else matches)
            assert [(m.payload, handling) for m in got if not m.retain] == []
            await client.unsubscribe(topic_filter)
    await live.subscribe((f"{topic_root}/+", 1))
    assert [message.retain for message in await live.receive_all(3)] == [True] * 3
    await client.subscribe((f"{topic_root}/#", 1))
    await client.receive_all(3)
    await settled(*made)
    assert (client.waiting, live.waiting) == (0, 0)
