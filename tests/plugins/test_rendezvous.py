"""The example of an overlay: alone, simulated with 1,000 nodes, and live before Mosquitto and amqtt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from ildm.api import Stamp, Unreachable
from ildm.mqtt import Publish, Version
from ildm.testing import FakeNode, LinkModel, PluginWorld, SimNode, lognormal
from ildm.testing.live.client import PahoClient
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.site import NodeFactory
from tests.plugins.commands import configured
from tests.plugins.examples.rendezvous.ildm_rendezvous.homes import WIDE, Homes
from tests.plugins.examples.rendezvous.ildm_rendezvous.members import Member, Members, written
from tests.plugins.examples.rendezvous.ildm_rendezvous.rendezvous import DELIVER, PUBLISH, Rendezvous

MODEL = LinkModel(delay=lognormal(0.010, 0.5))


# alone -------------------------------------------------------------------------------------------


def test_a_node_that_goes_moves_its_own_keys_only() -> None:
    alive = [f"n{number}" for number in range(20)]
    homes = Homes(lambda: alive, levels=2)
    topics = [f"t/{number}/x" for number in range(1000)]
    before = {topic: homes.of(topic) for topic in topics}
    assert all(25 <= number <= 85 for number in Counter(before.values()).values())
    alive.remove("n7")
    homes.forget()
    for topic, home in before.items():
        assert (homes.of(topic) != home) == (home == "n7")


@pytest.mark.parametrize(
    ("levels", "topic_filter", "same"),
    [
        (1, "a/#", "a"),
        (1, "a/+/c", "a/b/c"),
        (2, "a/b/#", "a/b"),
        (2, "a/#", None),
        (1, "#", None),
        (2, "+/b", None),
        (3, "a", "a"),
    ],
)
def test_a_filter_is_at_home_where_its_topics_are(levels: int, topic_filter: str, same: str | None) -> None:
    homes = Homes(lambda: [f"n{number}" for number in range(100)], levels)
    assert homes.of(topic_filter) == (WIDE if same is None else homes.of(same))


def test_tables_that_learn_the_same_in_any_order_are_the_same() -> None:
    rows = [
        Member(name, life, gone, "", ("#",) * life)
        for name in "abc"
        for life in (0, 1)
        for gone in (False, True)
    ]
    tables = []
    for seed in range(5):
        table = Members(most=10)
        for row in Random(seed).sample(rows, len(rows)):
            table.learn(row)
        tables.append(table)
    for table in tables:
        assert set(table.rows.values()) == {Member(name, 1, True, "", ("#",)) for name in "abc"}
        assert table.digest == tables[0].digest
        assert table.lacking(tables[0].lacking(b"")) == b""
    assert not tables[0].newer(written(next(iter(tables[0].rows.values()))))


def test_rows_are_bounded() -> None:
    table = Members(most=1)
    assert table.learn(Member("a", 0, False, ""))
    assert not table.learn(Member("b", 0, False, ""))
    assert table.learn(Member("a", 1, False, ""))


def joined(*names: str) -> FakeNode[Rendezvous]:
    """A node that knows others."""
    node = FakeNode(Rendezvous, node_id="here")
    node.message(names[0], b"w" + b"\n".join(written(Member(name, 1, False, f"{name}:1")) for name in names))
    node.advance(1)
    node.sent.clear()
    return node


def topic_at(node: FakeNode[Rendezvous], home: str) -> str:
    return next(topic for topic in map(str, range(1000)) if node.plugin.homes.of(topic) == home)


def test_a_publisher_sends_to_the_home_and_the_home_to_who_registered() -> None:
    node = joined("b", "c", "d")
    away, here = topic_at(node, "c"), topic_at(node, "here")
    node.publish(away, b"1", qos=1)
    assert [(sent.to.node_id, sent.data[:1]) for sent in node.sent] == [("c", PUBLISH)]
    node.sent.clear()
    for site in ("b", "c"):
        node.message(site, b'r["%s/#"]' % here.encode())
    node.message("b", PUBLISH + Publish(topic=here, payload=b"2", qos=1, packet_id=1).encode(Version.V5))
    assert [(sent.to.node_id, sent.data[:1]) for sent in node.sent] == [("c", DELIVER)]
    assert node.injected == []  # nobody wants it here
    node.message("c", node.sent[0].data)
    assert [(message.payload, message.qos) for message in node.injected] == [(b"2", 1)]


def test_who_is_silent_for_three_intervals_is_forgotten() -> None:
    node = joined("b", "c")
    here = topic_at(node, "here")
    node.message("b", b'r["%s"]' % here.encode())
    node.advance(3 * 5.0 + 7.5)
    node.sent.clear()
    node.publish(here)
    assert node.sent == []


def test_a_node_that_is_taken_for_gone_contradicts() -> None:
    node = joined("b")
    life = node.plugin.me.life
    node.message("b", b"w" + written(node.plugin.me._replace(gone=True)))
    node.advance(1)
    assert node.plugin.me == node.plugin.members.rows["here"]
    assert (node.plugin.me.life, node.plugin.me.gone) == (life + 1, False)


def test_who_cannot_be_reached_is_no_home() -> None:
    node = joined("b", "c")
    topic = topic_at(node, "b")
    node.unreachable("b", Unreachable.REFUSED)
    assert node.plugin.homes.of(topic) in ("c", "here")


def test_a_retained_message_is_told_to_a_new_home_and_to_who_registers_there() -> None:
    node = joined("b", "c")
    topic = topic_at(node, "b")
    node.publish(topic, b"kept", retain=True)
    node.unreachable("b", Unreachable.REFUSED)
    node.unreachable("c", Unreachable.REFUSED)
    node.message("d", b"w" + written(Member("d", 1, False, "d:1")))
    node.sent.clear()
    node.message("d", b'r["%s"]' % topic.encode())
    delivered = [sent.data for sent in node.sent if sent.data[:1] == DELIVER]
    assert len(delivered) == 1
    assert b"kept" in delivered[0]


# simulated ---------------------------------------------------------------------------------------


def plugin(node: SimNode) -> Rendezvous:
    assert isinstance(node.algorithm, Rendezvous)
    return node.algorithm


def agreed(world: PluginWorld) -> bool:
    """Whether all that live have the same table, and it is true."""
    alive = world.alive()
    tables = {plugin(node).members.digest for node in alive}
    return len(tables) == 1 and set(plugin(alive[0]).members.alive()) == {node.node_id for node in alive}


def grown(size: int, seed: int) -> PluginWorld:
    world, random = PluginWorld(Rendezvous, seed=seed, model=MODEL), Random(seed)
    for number in range(size):
        world.add(f"n{number}", introducer=f"n{random.randrange(number)}" if number else None)
    world.settle(lambda: agreed(world), limit=120)
    return world


def published(world: PluginWorld, publishers: Iterable[SimNode], topics: int, payload: bytes) -> None:
    for number, node in enumerate(publishers):
        node.publish(f"t{number % topics}/x", payload)
    world.run(2)


@pytest.mark.parametrize("size", [250, pytest.param(1000, marks=pytest.mark.long)])
def test_many_nodes_with_joins_leaves_and_kills(size: int) -> None:
    """Each subscriber gets each message once, before and after the changes."""
    world, random = grown(size, seed=1), Random(2)
    nodes = world.alive()
    wanted: dict[str, str] = {}
    for number, node in enumerate(random.sample(nodes, 100)):
        wanted[node.node_id] = ("#", "+/x", "t/#")[number] if number < 3 else f"t{number % 20}/+"
        node.subscribe(wanted[node.node_id])
    world.run(10)

    def check(payload: bytes) -> None:
        published(world, random.sample(world.alive(), 40), 20, payload)
        for node in world.alive():
            got = [delivery.topic for delivery in node.deliveries if delivery.payload == payload]
            topic_filter = wanted.get(node.node_id)
            each = {"#": range(20), "+/x": range(20), "t/#": (), None: ()}.get(topic_filter)
            topics = [topic_filter.replace("+", "x")] if each is None else [f"t{number}/x" for number in each]
            assert Counter(got) == Counter(topics * 2)

    check(b"1")
    for node in random.sample(world.alive(), 50):
        world.kill(node.node_id, silent=random.random() < 0.2)
    for node in random.sample(world.alive(), 20):
        world.stop(node.node_id)
    for number in range(20):
        world.add(f"new{number}", introducer=random.choice(world.alive()).node_id)
    world.settle(lambda: agreed(world), limit=120)
    world.run(10)
    check(b"2")


def test_nodes_that_were_cut_off_are_back_and_retained_messages_with_them() -> None:
    world = grown(30, seed=3)
    world["n3"].publish("t/x", b"kept", retain=True)
    world.run(10)
    half = [f"n{number}" for number in range(15)]
    world.partition(half)
    world.run(60)
    world.heal()
    world.settle(lambda: agreed(world), limit=300)
    world.run(10)
    for late in ("n7", "n29"):
        world[late].subscribe("t/+")
        world.run(5)
        assert [d.payload for d in world[late].deliveries] == [b"kept"]


def test_a_retained_message_outlives_its_publisher_and_its_home() -> None:
    world = grown(30, seed=4)
    world["n8"].subscribe("t/x")
    world.run(10)
    world["n3"].publish("t/x", b"kept", retain=True)
    world.run(10)
    for node_id in {"n3", plugin(world["n3"]).homes.of("t/x")} - {"n8"}:
        world.kill(node_id)
    world.settle(lambda: agreed(world), limit=120)
    world.run(10)
    for late in ("n20", "n29"):
        world[late].subscribe("#" if late == "n20" else "t/x")
    world.run(20)
    for late in ("n20", "n29"):
        assert [d.payload for d in world[late].deliveries] == [b"kept"]
        assert Stamp.of(world[late].retained("t/x")[0]) == Stamp.of(world["n8"].retained("t/x")[0])


# live --------------------------------------------------------------------------------------------


def test_live(
    installed_examples: Path, ildm_node: NodeFactory, ildm_client: Callable[..., PahoClient]
) -> None:
    """Three sites in a line; each gets what it wants, also when one is killed, and when it is back."""
    algorithm = {**configured("rendezvous")["algorithm"], "interval": 0.2}
    nodes: list[NodeProcess] = []
    for make in ("mosquitto", "amqtt", "mosquitto"):
        nodes.append(ildm_node(algorithm, broker=make, neighbors=nodes[-1:], python_path=installed_examples))

    def settled(members: int, filters: int) -> None:
        """Return when all that run know each other, and hold so many filters altogether."""

        def gauges(name: str) -> list[float]:
            return [node.admin.algorithm()["gauges"].get(name, 0) for node in nodes if node.running]

        nodes[0].wait_until(lambda: gauges("members") == [members] * members, "members")
        nodes[0].wait_until(lambda: sum(gauges("filters")) == filters, "filters")

    topics = [f"t{number}/x" for number in range(10)]

    def check(publisher: PahoClient, *subscribers: PahoClient) -> None:
        for topic in topics:
            publisher.publish(topic, b"1", 1)
        for subscriber in subscribers:
            assert sorted(subscriber.receive().topic for _ in topics) == topics

    settled(3, 0)
    a, b, c = nodes
    publisher, narrow, wide = ildm_client(a, level=5), ildm_client(b), ildm_client(c, level=5)
    narrow.subscribe(*((f"t{number}/#", 1) for number in range(10)))
    wide.subscribe(("#", 1))
    settled(3, 10 + 3)  # all know the wide one
    check(publisher, narrow, wide)
    b.kill()
    settled(2, 2)
    check(publisher, wide)
    publisher.publish("t0/kept", b"kept", 1, retain=True)
    assert wide.receive().topic == "t0/kept"
    b.start()
    settled(3, 3)
    late = ildm_client(b)
    late.subscribe(("t0/+", 1))
    message = late.receive()
    assert (message.topic, message.payload) == ("t0/kept", b"kept")
