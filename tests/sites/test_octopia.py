"""OctopiA before real brokers: each client gets what it wants by topic and values, once, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import pytest

from ildm.mqtt import Property, SubAck, Subscribe, Subscription, Version, Will
from ildm_bench.results.exactness import Plan, exactness
from tests.sites.client import Client, until
from tests.sites.conftest import Sites
from tests.sites.octopia import agreed, grid, installed
from tests.sites.site import Site
from tests.support.brokers import KINDS

pytestmark = installed

OTHERS = [("rabbitmq", 0), ("activemq", 0), ("moquette", 0)]
"""A cluster of other makes."""


def reading(number: int, **values: Any) -> bytes:
    return json.dumps({"n": number, **values}).encode()


async def subscribed(site: Site, *filters: str, qos: int = 1, **options: Any) -> Client:
    client = await site.connect(**options)
    assert await client.subscribe(*((each, qos) for each in filters)) == [qos] * len(filters)
    return client


async def came(client: Client, end: str, publisher: Client) -> list[tuple[str, bytes]]:
    """Topics and payloads of all that has come before a message on a topic that it subscribes to now."""
    await client.subscribe((end, 1))
    await publisher.publish(end, b"end", 1)
    return [(message.topic, message.payload) for message in await client.receive_until(b"end")]


async def test_twelve_sites_while_expressions_come_and_go(sites: Sites, topic_root: str) -> None:
    """Four clusters of three regions, one before other makes: nobody misses anything or gets too much."""
    kinds = [("mosquitto", index) for index in range(9)] + OTHERS
    made = await grid(sites, 3, 4, kinds)
    plan = Plan(messages=300, rate=40.0, changes=4.0, wishes=3, seed=11)
    outcome = await exactness([site.address for site in made], plan, lambda line: None)
    assert (outcome.missing, outcome.wrong, outcome.doubled) == (0, 0, 0), outcome
    assert outcome.due > 500
    assert outcome.changes > 10


@pytest.mark.parametrize("kind", KINDS)
async def test_each_make_with_each_kind_of_predicate(sites: Sites, kind: str, topic_root: str) -> None:
    """Both ways: what its clients want of another site, and what others want of its clients."""
    here, there = made = await grid(sites, 1, 2, [(kind, 0), ("mosquitto", 1)])
    expressions = {
        "price>80&sym=IBM": {1, 4},
        "price<=80%2E5": {2, 3},
        "sym!=IBM": {2},
        "sym^=I": {1, 3, 4},
        "halted=true": {3},
        "!!halted": {2, 3},
        "!halted": {1, 4, 5},
        "note='a%2Cb%2A'": {4},
        "size='7'": {2},
        "at%2Edesk=tokyo": {3},
    }
    readings = [
        reading(1, price=81, sym="IBM", size=7),
        reading(2, price=80.5, sym="GM", halted=False, size="7"),
        reading(3, price=-2, sym="IBM", halted=True, at={"desk": "tokyo"}),
        reading(4, price=99, sym="IBM", note="a,b*"),
        b"no JSON",  # the fifth
    ]
    for ours, theirs in ((here, there), (there, here)):
        filters = {f"filter/{text}/{topic_root}/stock/#": wanted for text, wanted in expressions.items()}
        client = await subscribed(ours, *filters)
        plain = await subscribed(ours, f"{topic_root}/stock/+")
        publisher = await theirs.connect()
        await agreed(made)
        topic = f"{topic_root}/stock/x"
        for each in readings:
            await publisher.publish(topic, each, 1)
        got = Counter(await came(client, f"{topic_root}/end", publisher))
        assert got == Counter(
            (f"filter/{text}/{topic}", readings[number - 1])
            for text, wanted in expressions.items()
            for number in wanted
        )
        assert [each for _, each in await came(plain, f"{topic_root}/end", publisher)] == readings
        await client.unsubscribe(*filters)


async def test_clients_of_all_versions_and_of_the_publishers_site(sites: Sites, topic_root: str) -> None:
    """MQTT 3.1, 3.1.1 and 5, with all QoS; what is wanted at home does not need another site."""
    made = await grid(sites, 2, 2)
    text = f"filter/price>80/{topic_root}/#"
    clients = [
        (qos, await subscribed(site, text, qos=qos, version=version))
        for site in made
        for qos, version in enumerate((Version.V31, Version.V311, Version.V5))
    ]
    publishers = [await site.connect(version=Version.V5) for site in made]
    await agreed(made)
    topic = f"{topic_root}/t"
    for number, publisher in enumerate(publishers):
        for qos in range(3):
            await publisher.publish(topic, reading(10 * number + qos, price=81), qos)
            await publisher.publish(topic, reading(10 * number + qos, price=79), qos)
    for granted, client in clients:
        messages = await client.receive_all(3 * len(made))
        assert {message.topic for message in messages} == {f"filter/price>80/{topic}"}
        assert Counter((json.loads(m.payload)["n"], m.qos) for m in messages) == Counter(
            (10 * number + qos, min(qos, granted)) for number in range(len(made)) for qos in range(3)
        )
    await agreed(made)
    assert [client.waiting for _, client in clients] == [0] * len(clients)


async def test_a_message_crosses_once_to_each_cluster_that_wants_it(sites: Sites, topic_root: str) -> None:
    """And not at all where nobody wants its values, however many want its topic (precise bits)."""
    made = await grid(sites, 2, 3)
    clients = [
        await subscribed(site, f"filter/x={index % 4}/{topic_root}") for index, site in enumerate(made)
    ]
    publisher = await made[0].connect()
    await publisher.publish(topic_root, reading(0, x=-1), 1)  # makes the topic known
    await agreed(made)

    def copies() -> tuple[int, int]:
        return sum(s.counter("copies_primary") for s in made), sum(
            s.counter("copies_secondary") for s in made
        )

    # index: cluster 0 has 0, 1; cluster 1 has 2, 3; cluster 2 has 0, 1
    for x, expected in ((0, (0, 1)), (1, (2, 1)), (2, (0, 1)), (3, (1, 1)), (4, (0, 0))):
        before = copies()
        await publisher.publish(topic_root, reading(x, x=x), 1)
        await agreed(made)
        now = copies()
        assert (x, now[0] - before[0], now[1] - before[1]) == (x, *expected)
    for index, client in enumerate(clients):
        expected_here = [index % 4]
        assert [json.loads(m.payload)["x"] for m in await client.receive_all(1)] == expected_here
        assert client.waiting == 0


async def test_user_properties_and_levels_are_attributes(sites: Sites, topic_root: str) -> None:
    """Of MQTT 5, and of the topic by the names that the configuration gives its levels."""
    made = await grid(sites, 1, 2, attributes={"levels": {f"{topic_root}/+/+": ["", "site", "line"]}})
    by_property = await subscribed(made[1], f"filter/temp>30&unit=C/{topic_root}/#")
    by_level = await subscribed(made[1], f"filter/site=osaka&line>2/{topic_root}/#")
    publisher = await made[0].connect(version=Version.V5)
    await agreed(made)
    properties: Any = {Property.USER_PROPERTY: [("temp", "31.5"), ("unit", "C")]}
    await publisher.publish(f"{topic_root}/osaka/3", b"raw", 1, properties=properties)
    properties = {Property.USER_PROPERTY: [("temp", "29"), ("unit", "C")]}
    await publisher.publish(f"{topic_root}/osaka/2", b"raw", 1, properties=properties)
    for client, text in ((by_property, "temp>30&unit=C"), (by_level, "site=osaka&line>2")):
        assert await came(client, f"{topic_root}/end", publisher) == [
            (f"filter/{text}/{topic_root}/osaka/3", b"raw")
        ]


async def test_names_of_expressions_and_two_texts_of_one(sites: Sites, topic_root: str) -> None:
    """Each client gets the topic that it has asked for; the root is an option."""
    made = await grid(sites, 1, 2, root="where", expressions={"dear": "price>80", "dearibm": "dear&sym=IBM"})
    texts = ("dear", "dearibm", "price>80&sym=IBM", "sym=IBM&price>80", "sym='IBM'&price>8e1")
    client = await subscribed(made[1], *(f"where/{text}/{topic_root}/#" for text in texts))
    old_root = await subscribed(made[1], f"filter/price>80/{topic_root}/#")
    publisher = await made[0].connect()
    await agreed(made)
    await publisher.publish(f"{topic_root}/a", reading(1, price=90, sym="GM"), 1)
    await publisher.publish(f"{topic_root}/a", reading(2, price=90, sym="IBM"), 1)
    got = await came(client, f"{topic_root}/end", publisher)
    assert Counter(got) == Counter(
        [(f"where/dear/{topic_root}/a", reading(1, price=90, sym="GM"))]
        + [(f"where/{text}/{topic_root}/a", reading(2, price=90, sym="IBM")) for text in texts]
    )
    assert await came(old_root, f"{topic_root}/end", publisher) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [("price>>80", "character 7"), ("unheard", "no expression has the name"), ("a='x", "not closed")],
)
async def test_a_bad_expression_is_refused_and_harms_nobody(
    sites: Sites, capfd: pytest.CaptureFixture[str], text: str, says: str, topic_root: str
) -> None:
    """MQTT 5 has the reason in the SUBACK, all versions a code; the others of the packet are granted."""
    made = await grid(sites, 1, 2, changes={"log": {"level": "warning"}})
    bad, good = f"filter/{text}/{topic_root}/#", f"filter/price>80/{topic_root}/#"
    five = await made[1].connect(version=Version.V5)
    five.send(
        Subscribe(packet_id=9, subscriptions=[Subscription(topic_filter=each, qos=1) for each in (bad, good)])
    )
    answer = await five.packet(SubAck)
    assert answer.reason_codes == [0x8F, 1]
    assert says in str(answer.properties[Property.REASON_STRING])
    old = await made[1].connect()
    assert await old.subscribe((good, 1), (bad, 1), (f"{topic_root}/#", 1)) == [1, 0x80, 1]
    publisher = await made[0].connect()
    await agreed(made)
    await publisher.publish(f"{topic_root}/t", reading(1, price=81), 1)
    assert (await five.receive()).topic == f"filter/price>80/{topic_root}/t"
    assert sorted(message.topic for message in await old.receive_all(2)) == sorted(
        [f"filter/price>80/{topic_root}/t", f"{topic_root}/t"]
    )
    await agreed(made)
    assert (five.waiting, old.waiting) == (0, 0)
    log = capfd.readouterr().err
    assert says in log
    assert bad in log


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("5", "subscription refused: Topic filter invalid: > is not expected here; as a character"),
        ("3.1.1", "subscription refused: MQTT 3.1.1 cannot say why, -V 5 may"),
    ],
)
async def test_the_tool_says_why_an_expression_is_refused(sites: Sites, version: str, says: str) -> None:
    (site,) = await grid(sites, 1, 1)
    words = ["-m", "ildm", "sub", "-p", str(site.address[1]), "-V", version, "-t", "filter/price>>80/stock/#"]
    tool = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.PIPE)
    _, said = await tool.communicate()
    assert tool.returncode == 1
    assert says in said.decode()


async def test_below_the_root_nothing_crosses(sites: Sites, topic_root: str) -> None:
    made = await grid(sites, 1, 2)
    clients = [await subscribed(site, f"filter/x>0/{topic_root}/#") for site in made]
    publisher = await made[0].connect()
    await agreed(made)
    await publisher.publish(f"filter/x>0/{topic_root}/t", b"by hand", 1)
    await publisher.publish(f"{topic_root}/t", reading(1, x=1), 1)
    assert [m.payload for m in await clients[0].receive_all(2)] == [b"by hand", reading(1, x=1)]
    assert (await clients[1].receive()).payload == reading(1, x=1)
    await agreed(made)
    assert [client.waiting for client in clients] == [0, 0]
    assert made[0].counter("published_below_root") == 1


async def test_a_persistent_session_gets_what_matched_meanwhile(sites: Sites, topic_root: str) -> None:
    """Its broker queues the copies; a client that takes its expression back gets no more."""
    made = await grid(sites, 2, 2)
    text = f"filter/x>0/{topic_root}/#"
    away = await made[3].connect(topic_root[:20], clean=False)
    await away.subscribe((text, 1))
    await away.disconnect()
    publisher = await made[0].connect()
    await agreed(made)
    for number in range(10):
        await publisher.publish(f"{topic_root}/t", reading(number, x=number % 2), 1)
    await agreed(made)
    back = await made[3].connect(topic_root[:20], clean=False)
    got = [json.loads(m.payload)["n"] for m in await back.receive_all(5)]
    assert got == [1, 3, 5, 7, 9]
    await back.unsubscribe(text)
    await agreed(made)
    await publisher.publish(f"{topic_root}/t", reading(11, x=1), 1)
    assert await came(back, f"{topic_root}/end", publisher) == []
    await back.disconnect()
    await (await made[3].connect(topic_root[:20])).disconnect()


async def test_a_new_expression_gets_the_retained_messages_that_match(sites: Sites, topic_root: str) -> None:
    """Without the flag; so do plain subscriptions, from their broker. What is deleted does not come."""
    made = await grid(sites, 2, 2)
    publisher = await made[0].connect()
    for name, x in (("a", 1), ("b", 0), ("c", 5)):
        await publisher.publish(f"{topic_root}/{name}", reading(x, x=x), 1, retain=True)
    await publisher.publish(f"{topic_root}/gone", reading(9, x=9), 1, retain=True)
    await publisher.publish(f"{topic_root}/gone", b"", 1, retain=True)
    await agreed(made)
    for site in made:
        client = await subscribed(site, f"filter/x>0/{topic_root}/+")
        messages = await client.receive_all(2)
        assert {(m.topic, m.payload, m.retain) for m in messages} == {
            (f"filter/x>0/{topic_root}/{name}", reading(x, x=x), False) for name, x in (("a", 1), ("c", 5))
        }
        plain = await subscribed(site, f"{topic_root}/+")
        assert {m.retain for m in await plain.receive_all(3)} == {True}
        assert await came(client, f"{topic_root}/end/x", publisher) == []
        assert plain.waiting == 0
    for name in "abc":
        await publisher.publish(f"{topic_root}/{name}", b"", 1, retain=True)
    await agreed(made)


async def test_a_will_is_matched_by_its_values(sites: Sites, topic_root: str) -> None:
    made = await grid(sites, 2, 2)
    clients = [await subscribed(site, f"filter/state=lost/{topic_root}/#") for site in made]
    others = [await subscribed(site, f"filter/state=well/{topic_root}/#") for site in made]
    await agreed(made)
    will = Will(topic=f"{topic_root}/press", payload=b'{"state": "lost"}', qos=1)
    (await made[0].connect(will=will)).drop()
    for client in clients:
        message = await client.receive()
        assert (message.topic, message.payload) == (f"filter/state=lost/{topic_root}/press", will.payload)
    await agreed(made)
    assert [client.waiting for client in (*clients, *others)] == [0] * 8


async def test_one_of_a_group_gets_each_match(sites: Sites, topic_root: str) -> None:
    """A shared subscription: one member at each site, as of any topic."""
    made = await grid(sites, 1, 2)
    groups = [
        [await subscribed(site, f"$share/g/filter/x>0/{topic_root}/#") for _ in range(2)] for site in made
    ]
    publisher = await made[0].connect()
    await agreed(made)
    for number in range(10):
        await publisher.publish(f"{topic_root}/t", reading(number, x=number % 2), 1)
    await agreed(made)
    for group in groups:
        await until(lambda group=group: sum(member.waiting for member in group) >= 5)  # type: ignore[misc]
        got = [
            json.loads(m.payload)["n"] for member in group for m in await member.receive_all(member.waiting)
        ]
        assert sorted(got) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("routing", ["spr", "idr"])
async def test_a_stream_of_all_qos_comes_once_and_in_order(
    sites: Sites, routing: str, topic_root: str
) -> None:
    """From all sites at once, over two sessions a link. Dynamic routing may overtake, so there only once."""
    made = await grid(sites, 2, 3, routing=routing, changes={"link": {"sessions": 2}})
    clients = [await subscribed(site, f"filter/x>0/{topic_root}/+", qos=2) for site in made]
    publishers = [await site.connect() for site in made]
    await agreed(made)
    count = 40
    await asyncio.gather(
        *(
            publisher.publish_all(
                f"{topic_root}/{index}-{qos}", [reading(n, x=n % 2) for n in range(count)], qos, 10
            )
            for index, publisher in enumerate(publishers)
            for qos in range(3)
        )
    )
    for client in clients:
        got: dict[str, list[int]] = {}
        for message in await client.receive_all(len(made) * 3 * count // 2):
            got.setdefault(message.topic, []).append(json.loads(message.payload)["n"])
        assert len(got) == 3 * len(made)
        for numbers in got.values():
            expected = list(range(1, count, 2))
            assert (numbers if routing == "spr" else sorted(numbers)) == expected
    await agreed(made)
    assert [client.waiting for client in clients] == [0] * len(clients)


async def test_the_overlay_in_the_shell(sites: Sites, topic_root: str) -> None:
    """Clusters, regions, links, bits, and the way of a message."""
    made = await grid(sites, 2, 2)
    client = await subscribed(made[3], f"filter/x>0/{topic_root}")
    publisher = await made[0].connect()
    await publisher.publish(topic_root, reading(1, x=1), 1)
    await client.receive()
    await agreed(made)
    shown = await made[0].shell("overlay")
    assert [row["cluster"] for row in shown["tables"]["clusters"]] == ["c0", "c1"]
    assert [row["region"] for row in shown["tables"]["regions"]] == ["a", "b"]
    links = {row["node"]: row["link"] for row in shown["tables"]["links"]}
    assert links == {made[1].name: "aLink", made[2].name: "iLink"}
    [advert] = [row for row in shown["tables"]["advertisements"] if row["filter"] == topic_root]
    assert advert["c1"] == "1"
    trace = await made[0].shell(f"overlay trace {topic_root}")
    assert (trace["nodes"], trace["messages"], trace["depth"], trace["complete"]) == (1, 2, 2, True)
    await client.unsubscribe(f"filter/x>0/{topic_root}")
    await agreed(made)
    shown = await made[0].shell("overlay")
    [advert] = [row for row in shown["tables"]["advertisements"] if row["filter"] == topic_root]
    assert advert["c1"] == "0"


async def test_another_grid_is_refused_by_name(sites: Sites) -> None:
    """The digest in the handshake: what one site has else in its configuration is told at both."""
    names = sites.upcoming(2)
    one, other = [
        await sites.make(
            sites.shared_broker("mosquitto", index),
            {
                "name": "octopia",
                "regions": ["a"],
                "clusters": clusters,
                "members": {names[0]: "a/x", names[1]: "a/y"},
                "hello_interval": 0.3,
            },
        )
        for index, clusters in enumerate((["x", "y"], ["y", "x"]))
    ]
    other.add(one)
    await until(lambda: all(site.overlay()["tables"].get("refused") for site in (one, other)))
    for here, there in ((one, other), (other, one)):
        [row] = here.overlay()["tables"]["refused"]
        assert row["node"] == there.name
