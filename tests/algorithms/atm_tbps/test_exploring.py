"""How tables fill and empty (ATM-TBPS IV-B to IV-H), in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.api import MessageTrace, Peer
from ildm.testing import LinkModel, PluginWorld, SimLink
from ildm_algorithms.atm_tbps import AtmTbps
from ildm_algorithms.atm_tbps.exploring import divided
from ildm_algorithms.atm_tbps.flexible import FlexibleGraph
from ildm_algorithms.atm_tbps.messages import (
    FORMATS,
    Explore,
    Forget,
    New,
    Note,
    digest,
    knows,
    read_note,
    write_note,
)
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.wire.codec import Codec, OverlayError
from ildm_algorithms.overlay.wire.messages import FORMATS as COMMON
from ildm_algorithms.overlay.wire.messages import Cast
from ildm_algorithms.tbps.keys.encoding import Segment, key_text
from tests.algorithms.tbps.world import Node, World
from tests.support.transcripts import check_transcript

CODEC = Codec((*COMMON, *FORMATS))
TOPIC = Segment.exact("t")
ANYBODY = Ref(b"a", Peer("n", "n:1"), 1)


class Seen:
    """The messages between nodes, as they are sent."""

    def __init__(self, world: World) -> None:
        self.messages: list[tuple[str, str, Any]] = []
        world.network.on_carry = self._sent

    def _sent(self, link: SimLink, data: bytes) -> None:
        self.messages.append((link.here.node_id, link.node_id, CODEC.decode(data)))

    def of(self, kind: type) -> list[Any]:
        return [message for _, _, message in self.messages if isinstance(message, kind)]

    def casts(self, payload: bytes) -> list[Cast]:
        return [message for message in self.of(Cast) if message.payload[:1] == payload]


def overlay(count: int, seed: int = 1, **options: Any) -> tuple[World, list[Node]]:
    """A publisher of ``t``, and nodes to subscribe; nothing explores on its own unless told to."""
    quiet = {
        "explore_interval": 0.0,
        "refresh_interval": 1e6,
        "status_interval": 1e6,
        "retained_interval": 0.0,
    }
    world = World("atm_tbps", seed, **{**quiet, **options})
    nodes = world.start("p", *(f"s{number:02}" for number in range(count)))
    world.settle()
    return world, nodes


def graph(node: Node) -> FlexibleGraph:
    found = node.algorithm.graph
    assert isinstance(found, FlexibleGraph)
    return found


def known(node: Node) -> list[str]:
    """Nodes that this one has learned as subscribers of the topic."""
    return [ref.peer.node_id for ref in graph(node).learned(TOPIC.subscribers)]


def trace(world: World, node: Node) -> MessageTrace:
    traces: list[MessageTrace] = []
    node.algorithm.trace("t", traces.append)
    world.settle()
    (found,) = traces
    assert found.complete
    return found


def publish(world: World, node: Node, count: int = 1, qos: int = 0) -> None:
    for number in range(count):
        node.publish("t", str(number), qos=qos)
        world.run(1.5)


# with too much to do ------------------------------------------------------------------------------


def test_nodes_that_get_behind_with_their_searches_catch_up_with_them() -> None:
    """Each message takes so long that the searches of all new keys at once are too many."""
    world = PluginWorld(AtmTbps, seed=1, model=LinkModel(processing=0.01))
    nodes = [world.add(f"n{n}", introducer=f"n{n // 2}" if n else None) for n in range(9)]
    world.run(20)
    filters = ("t/0/x", "t/1/x", "t/+/y", "t/#", "t/1/#", "+/2/+", "t/none")
    topics = ("t/0/x", "t/1/x", "t/1/y", "t/2/y", "t/0", "t/2", "t")
    for number, node in enumerate(nodes):
        for offset in range(3):
            node.subscribe(filters[(3 * number + offset) % 7])
    world.run(10)
    for number, node in enumerate(nodes):
        for step in range(7):
            node.publish(topics[(number + step) % 7], b"%d" % step)
    world.run(50)
    slowed = world.counters()["explorations_slowed"]
    assert slowed > 0
    world.run(30)
    rounds = 30 * len(nodes)
    assert world.counters()["explorations_slowed"] - slowed < rounds / 10  # answers are in time again
    assert world.counters()["entries_learned"] > 5000


# on messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscribers", [1, 5, 30])
def test_a_topic_with_room_for_its_subscribers_takes_one_hop(subscribers: int) -> None:
    world, (p, *nodes) = overlay(40, entries=60)
    for node in nodes[:subscribers]:
        node.subscribe("t")
    world.settle()
    publish(world, p, 8)
    found = trace(world, p)
    assert (found.depth, found.messages, found.nodes) == (1, subscribers, subscribers)
    assert [len(node.deliveries) for node in nodes] == [8] * subscribers + [0] * (40 - subscribers)


def test_a_larger_topic_takes_more_but_fewer_with_larger_tables() -> None:
    depths = []
    for entries in (0, 10, 60):
        world, (p, *nodes) = overlay(20, entries=entries)
        for node in nodes:
            node.subscribe("t")
        world.settle()
        publish(world, p, 10)
        found = trace(world, p)
        assert (found.messages, found.nodes) == (20, 20)
        depths.append(found.depth)
    assert depths[0] > depths[1] > depths[2] == 1


def test_a_publisher_of_many_topics_with_one_key_learns_their_subscribers_too() -> None:
    world, (p, *nodes) = overlay(12, entries=60, siblings=2, hot=0)
    for node in nodes[:10]:
        node.subscribe("g/9")
    nodes[11].subscribe("g/8", "g/#")
    world.settle()
    for number in range(10):
        p.publish(f"g/{number}")
    world.settle()
    assert "g/# aggregate p" in {key.key for key in p.algorithm.overlay().keys}
    for _ in range(6):
        p.publish("g/9")
        world.run(1.5)
    seen = Seen(world)
    p.publish("g/9")
    world.run(0.5)
    to_topic = [cast for cast in seen.casts(b"M") if cast.low in Segment.exact("g/9").members]
    assert [cast.depth for cast in to_topic] == [1] * 10
    assert {len(node.deliveries) for node in nodes[:10]} == {8}


def test_one_message_in_a_while_looks_for_subscribers_and_none_when_there_is_no_room() -> None:
    world, (p, *nodes) = overlay(6, entries=60)
    for node in nodes:
        node.subscribe("t")
    publish(world, p)
    seen = Seen(world)
    for _ in range(5):
        p.publish("t")
    world.run(0.5)
    assert len(seen.casts(b"M")) == 30
    assert sum(bool(cast.note) for cast in seen.casts(b"M")) == 6
    world, (p, *nodes) = overlay(6, entries=0)
    nodes[0].subscribe("t")
    publish(world, p)
    seen = Seen(world)
    publish(world, p)
    assert [cast.note for cast in seen.casts(b"M")] == [b""]


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 11), st.integers(4, 20), st.integers(0, 1000))
def test_no_more_make_themselves_known_than_are_wanted(subscribers: int, entries: int, seed: int) -> None:
    world, (p, *nodes) = overlay(11, seed, entries=entries, explore_after=1e6)
    for node in nodes[:subscribers]:
        node.subscribe("t")
    p.publish("t")  # the keys of the topic join
    world.settle()
    seen = Seen(world)
    publish(world, p)
    notes = [read_note(cast.note) for cast in seen.casts(b"M") if cast.parent == p.peer and cast.note]
    news = [message for message in seen.of(New) if message.to == notes[0].sender.key] if notes else []
    assert len(news) <= sum(note.requested for note in notes)
    for node in (p, *nodes):
        for key, entry in graph(node)._known.tables.items():
            graph(node)._known.tidy(key)
            sticky = graph(node)._known.sticky(key)
            assert entry.size(sticky) <= max(entries, len(sticky))


def test_what_is_wanted_is_shared_evenly() -> None:
    assert divided(5, 3, [0, 1, 2]) == [2, 2, 1]
    assert divided(5, 3, [2, 0, 1]) == [2, 1, 2]
    assert divided(2, 4, [3, 1, 0, 2]) == [0, 1, 0, 1]


# exploring ----------------------------------------------------------------------------------------


def test_a_subscriber_that_has_joined_looks_for_others_and_is_known_to_them() -> None:
    world, (_, *nodes) = overlay(12, entries=60)
    for node in nodes[:11]:
        node.subscribe("t")
    world.settle()
    nodes[11].subscribe("t")
    world.settle()
    others = {node.node_id for node in nodes[:11]}
    sticky = {
        ref.peer.node_id
        for pair in graph(nodes[11]).neighbors(TOPIC.subscriber_key("s11"))
        for ref in pair
        if ref is not None
    }
    assert set(known(nodes[11])) | sticky >= others
    assert sum("s11" in known(node) for node in nodes[:11]) >= len(others - sticky)


def test_a_walk_meets_ever_longer_common_prefixes() -> None:
    """REXP at a sender with vector 000, to the right 100, 010, 011, 001, 000: five steps, five answers."""
    world, nodes = overlay(0, entries=60)
    vectors = ("000", "100", "010", "011", "001", "000")
    made = world.start(*(f"x{number}" for number in range(6)))
    for node, digits in zip(made, vectors, strict=True):
        graph(node).vector = graph(node)._table.vector = int(digits, 2) << 61 | int(node.node_id[1])
    for node in made:
        node.subscribe("t")
    world.run(20)
    sender = graph(made[0])
    key = TOPIC.subscriber_key("x0")
    sender._known.close(key)
    sender._known.open(key, TOPIC)
    seen = Seen(world)
    own = sender._table.own(key)
    (_, right), *_ = sender.neighbors(key)
    assert right is not None
    sender.send(right.peer, Explore(own, own, right.key, digest(()), True, 64))
    world.run(0.5)
    assert [message.at for message in seen.of(Explore)] == [
        TOPIC.subscriber_key(f"x{n}") for n in range(1, 6)
    ]
    assert [message.sender.peer.node_id for message in seen.of(New)] == [f"x{n}" for n in range(1, 6)]
    assert nodes


def test_a_table_with_room_looks_anywhere_less_and_less_often() -> None:
    world, nodes = overlay(4, entries=200, explore_interval=5.0)
    nodes[1].subscribe("t")
    nodes[2].subscribe("u")
    world.run(10)
    seen = Seen(world)
    world.run(400)
    own = TOPIC.subscriber_key("s00")
    searches = [
        cast
        for cast in seen.of(Cast)
        if cast.note and cast.depth == 1 and read_note(cast.note).sender.key == own
    ]
    assert 0 < len({cast.number for cast in searches}) <= 8
    facts = {key.key: key.facts for key in nodes[1].algorithm.overlay().keys}
    assert facts["t subscriber s00"]["learned"] > 0  # type: ignore[operator]
    assert facts["default s00"] == {"role": "default"}


def test_a_bounded_number_of_keys_explores_at_a_time() -> None:
    world, nodes = overlay(2, explorations=3, explore_after=1.0, entries=200)
    seen = Seen(world)
    nodes[1].subscribe(*(f"t/{number}" for number in range(30)))
    nodes[2].subscribe(*(f"t/{number}" for number in range(30)))
    counts = []
    for _ in range(40):
        before = len({c.number for c in seen.of(Cast) if c.note and c.origin == nodes[1].peer})
        world.run(1.0)
        after = len({c.number for c in seen.of(Cast) if c.note and c.origin == nodes[1].peer})
        counts.append(after - before)
    assert max(counts) <= 3
    assert sum(counts) == 30


# forgetting ---------------------------------------------------------------------------------------


def settled(count: int, **options: Any) -> tuple[World, Node, list[Node]]:
    """All know all."""
    world, (p, *nodes) = overlay(count, **options)
    for node in nodes:
        node.subscribe("t")
    world.settle()
    publish(world, p, 4)
    assert trace(world, p).depth == 1
    for node in nodes:
        node.deliveries.clear()
    return world, p, nodes


def test_publishers_forget_a_subscriber_that_leaves() -> None:
    world, p, nodes = settled(12)
    gone = next(node for node in nodes if node.node_id in known(p))
    gone.unsubscribe("t")
    world.run(0.2)
    assert gone.node_id not in known(p)


def toggled(former_tables: int) -> tuple[Seen, Node, list[str]]:
    """A subscriber has come and gone five times: what was sent meanwhile, and whom it knew before."""
    options = {"explore_interval": 5.0, "refresh_interval": 30.0, "former_tables": former_tables}
    world, _, nodes = settled(12, **options)
    node = nodes[4]
    before = known(node)
    seen = Seen(world)
    for _ in range(5):
        node.unsubscribe("t")
        world.run(1.5)
        node.subscribe("t")
        world.run(1.5)
    return seen, node, before


def test_a_subscriber_that_comes_back_has_its_table_and_asks_its_topic_nothing() -> None:
    seen, node, before = toggled(1_000)
    assert len(before) > 3
    assert set(before) <= set(known(node))
    searches = [c for c in seen.of(Cast) if c.note and c.origin == node.peer]
    assert all(read_note(cast.note).leaving for cast in searches)
    without, *_ = toggled(0)
    assert len(seen.of(New)) < len(without.of(New)) / 2


def test_a_subscriber_that_comes_back_late_looks_anew() -> None:
    world, _, nodes = settled(12, refresh_interval=30.0)
    node = nodes[4]
    node.unsubscribe("t")
    world.run(31)
    seen = Seen(world)
    node.subscribe("t")
    world.run(3)
    assert any(cast.note and cast.origin == node.peer for cast in seen.of(Cast))


def test_tables_of_keys_that_have_left_are_kept_within_a_bound() -> None:
    world, _, nodes = settled(6, former_tables=2)
    for node in nodes[:2]:
        node.subscribe("u", "v", "w")
    world.settle()
    for node in nodes[:2]:
        node.unsubscribe("t", "u", "v", "w")
    world.settle()
    assert [len(graph(node)._former) for node in nodes[:2]] == [2, 2]
    assert nodes[0].counters["former_tables_displaced"] > 0


@pytest.mark.parametrize("stops", [False, True])
def test_whoever_sends_to_a_key_that_has_left_is_told_and_nobody_misses_the_message(stops: bool) -> None:
    world, p, nodes = settled(12)
    seen = Seen(world)
    gone = next(node for node in nodes if node.node_id in known(p))
    graph(p)._known.forget = lambda node_id, key: None  # type: ignore[method-assign]
    if stops:
        gone.algorithm.on_ildm_stop()
    else:
        gone.unsubscribe("t")
    world.run(0.5)
    assert gone.node_id in known(p)  # UNSUB has not come
    del graph(p)._known.forget
    p.publish("t", "now")
    world.run(0.5)
    assert {message.key for message in seen.of(Forget)} == {TOPIC.subscriber_key(gone.node_id)}
    assert len([cast for cast in seen.casts(b"M") if cast.strays]) < 10
    assert gone.node_id not in known(p)
    assert [len(node.deliveries) for node in nodes] == [int(node is not gone) for node in nodes]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_node_that_is_gone_is_forgotten_at_once(qos: int) -> None:
    world, p, nodes = settled(12)
    gone = next(node for node in nodes if node.node_id in known(p))
    world.kill(gone.node_id)
    publish(world, p, 1, qos)
    assert gone.node_id not in known(p)
    publish(world, p, 1, qos)
    world.run(20)
    counts = {len(node.deliveries) for node in nodes if node is not gone}
    assert counts == {2}
    assert gone.node_id not in graph(p)._known._of_node


def test_a_restarted_node_is_known_under_its_new_vector() -> None:
    world, p, nodes = settled(12)
    again = next(node for node in nodes if node.node_id in known(p))
    before = graph(again).vector
    again.random.seed(99)
    again = world.restart(again.node_id)
    world.run(40)
    publish(world, p, 4)
    assert before != graph(again).vector
    assert {ref.vector for ref in graph(p).learned(TOPIC.subscribers) if ref.peer == again.peer} <= {
        graph(again).vector
    }
    assert trace(world, p).depth == 1


# as a whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_stay_in_order_while_paths_become_shorter(qos: int) -> None:
    world, (p, *nodes) = overlay(16, entries=60, explore_after=0.01)
    for node in nodes:
        node.subscribe("t")
    world.run(5)
    for number in range(60):
        p.publish("t", str(number), qos=qos)
        world.run(0.002)
    world.run(3)
    assert trace(world, p).depth == 1
    for node in nodes:
        assert [int(got.payload) for got in node.deliveries] == list(range(60)), node.node_id


@pytest.mark.parametrize("seed", range(2))
def test_who_stays_gets_all_of_qos_1_while_others_come_and_go(seed: int) -> None:
    world, (p, *nodes) = overlay(10, seed, entries=10, explore_interval=5.0, refresh_interval=4.0)
    staying, others = nodes[:4], nodes[4:]
    for node in nodes:
        node.subscribe("t")
    world.run(5)
    sent = 0
    for number in range(16):
        node = others[number % len(others)]
        match number % 4:
            case 0 if node.alive and node.local_interest:
                node.unsubscribe("t")
            case 1 if node.alive and not node.local_interest:
                node.subscribe("t")
            case 2 if node.alive:
                world.kill(node.node_id)
            case _:
                world.start(f"x{number}")[0].subscribe("t")
        for _ in range(3):
            p.publish("t", str(sent), qos=1)
            sent += 1
            world.run(0.2)
    world.run(30)
    for node in staying:
        assert sorted(int(got.payload) for got in node.deliveries) == list(range(sent)), node.node_id
    wanting = {node.node_id for node in world.living.values() if node.local_interest}
    for node in world.living.values():
        assert set(known(node)) <= wanting  # what has gone has been forgotten


def test_transcript() -> None:
    """What nodes say to each other to fill tables, and to empty them."""
    world, (p, *nodes) = overlay(4, entries=60)
    seen = Seen(world)
    lines = []

    def step(title: str, seconds: float = 1.4) -> None:
        world.run(seconds)
        lines.append(f"# {title}")
        lines.extend(filter(None, (told(*message) for message in seen.messages)))
        seen.messages.clear()

    nodes[0].subscribe("t")
    nodes[1].subscribe("t")
    nodes[2].subscribe("t")
    step("three subscribers", 5)
    p.publish("t", "1")
    step("the first message", 5)
    p.publish("t", "2")
    step("another message, for which there is room to look for more")
    p.publish("t", "3")
    p.publish("t", "4")
    step("two messages, one right after the other")
    nodes[3].subscribe("t")
    step("one more subscriber", 5)
    p.publish("t", "5")
    step("a message that finds it")
    nodes[1].unsubscribe("t")
    step("one leaves")
    gone = graph(nodes[1])._table.own(TOPIC.subscriber_key(nodes[1].node_id))
    graph(p)._known.learn(TOPIC.publisher_key("p"), gone)
    p.publish("t", "6")
    step("a message to it, from one who has not heard of that")
    check_transcript("atm_tbps_exploring", lines)


def told(sender: str, to: str, message: Any) -> str:
    """A message about entries in words; "" for any other, and for what is about other topics."""
    match message:
        case Explore(asks, forwarder, at, known, right, _):
            side = "right" if right else "left"
            text = f"REXP of {key_text(asks.key)} by {key_text(forwarder.key)}, {side} to {key_text(at)}"
            return f"{sender} -> {to}  {text}, {len(known) // 4} known"
        case New(new, key):
            return f"{sender} -> {to}  NEW {key_text(new.key)} for {key_text(key)}"
        case Forget(_, key):
            return f"{sender} -> {to}  FORGET {key_text(key)}"
        case Cast(note=b"", payload=payload, at=at):
            return f"{sender} -> {to}  PUB to {key_text(at)}" if payload[:1] == b"M" else ""
        case Cast(note=data, payload=payload, at=at):
            note = read_note(data)
            kind = "UNSUB" if note.leaving else "EEXP" if not payload else "PUB with EEXP"
            wants = "" if note.leaving else f", {len(note.known) // 4} known, {note.requested} requested"
            return f"{sender} -> {to}  {kind} of {key_text(note.sender.key)} to {key_text(at)}{wants}"
        case _:
            return ""


# what others send in error ------------------------------------------------------------------------


def test_a_digest_that_is_none_is_refused() -> None:
    one, two = ANYBODY, Ref(b"b", Peer("m", "m:1"), 2)
    assert knows(digest([one, two]), two)
    assert not knows(digest([one]), two)
    assert not knows(digest([one, two]), two._replace(vector=3))
    assert not knows(digest([one, two]), two._replace(peer=Peer("m", "m:2")))
    with pytest.raises(OverlayError):
        knows(b"abc", two)


CUT = write_note(Note(ANYBODY, ANYBODY, b"abc", 5, leaving=False))


@pytest.mark.parametrize("note", [b"?", b"\1", CUT])
def test_a_note_that_is_none_is_passed_over_and_the_message_goes_on(note: bytes) -> None:
    world, p, nodes = settled(6)
    graph(p).exploration = lambda target: note  # type: ignore[method-assign]
    p.publish("t", "now")
    world.run(0.5)
    assert [len(node.deliveries) for node in nodes] == [1] * 6


def test_learned_entries_are_those_of_keys_that_are_there() -> None:
    world, p, nodes = settled(12)
    known_to = graph(nodes[3])._known
    assert known_to.within(TOPIC.subscribers)
    nodes[3].unsubscribe("t")
    world.run(3)
    assert TOPIC.subscriber_key("s03") not in known_to.tables
    held = {ref.key for entries in known_to.tables.values() for ref in entries.refs()}
    assert set(known_to._places) == held
    assert known_to._subscribers == sorted(key for key, place in known_to._places.items() if place.wanting)
    assert not known_to.within(TOPIC.subscribers)
    assert p


def test_keys_that_cannot_be_are_not_sent_to() -> None:
    """One that is no key at all, below the prefix of an aggregate; and an own key, said to be another's."""
    world, (p, q) = overlay(1, siblings=0, max_topics=0)
    p.subscribe("t")
    p.publish("g/1")
    world.settle()
    aggregate = Segment.aggregate(["g"]).publisher_key("p")
    known = graph(p)._known
    assert aggregate in known.tables
    for bad in (Segment.aggregate(["g"]).code[:-1] + b"\1x\0\0\7", TOPIC.subscriber_key("p")):
        liar = Ref(bad, q.peer, 5)
        for to in known.tables:
            p.algorithm.on_message(q.peer, CODEC.encode(New(liar, to)), 0)
    held = {ref.key for entries in known.tables.values() for ref in entries.refs()}
    assert set(known._places) == held
    assert TOPIC.subscriber_key("p") not in held
    assert not known._subscribers
