"""What other nodes send in error or on purpose: dropped, counted, told, and bounded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ildm.api import Peer, PluginError
from ildm.mqtt import Publish, Version
from ildm.testing import FakeNode, PluginWorld
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.messages import (
    CODEC,
    GONE,
    Ack,
    Acked,
    AdvertEntry,
    Adverts,
    Again,
    Ask,
    Asked,
    Bye,
    Civs,
    Digests,
    Fetch,
    Held,
    Hello,
    HelloReport,
    Late,
    LateOne,
    News,
    Numbered,
    Offer,
    OverlayError,
    Owed,
    Pub,
    Refused,
    Relay,
    SetVersion,
    Subs,
    SubscriptionEntry,
    Trace,
    Traced,
    Want,
)
from ildm_algorithms.octopia.tables.tables import CivSet, CivUnset
from tests.algorithms.octopia.worlds import LINE, grid, make, octopia, payloads

T = ContentFilter("t")
FRAME = Publish(topic="t", payload=b"x").encode(Version.V5)
HELLO = Hello(
    *(b"d" * 16, 1, 1, True, "b1:1", 0, 0, 0, 0, 0, (0,), (1,)),
    (SetVersion(1, 1, 1),),
    (HelloReport(1, 1),),
    (News(1, 1, "x:1"),),
)
MESSAGES: list[tuple[Any, ...]] = [
    HELLO,
    Refused(b"d", "no"),
    Bye(1),
    Relay(0, 1, b"x"),
    Subs(0, 1, 1, 0, 0, (SubscriptionEntry(T, 1), SubscriptionEntry(T, GONE))),
    Subs(0, 1, 1, 1, 2, (SubscriptionEntry(T, 1),)),
    Fetch(1),
    Adverts(1, 1, (AdvertEntry(1, 0, T), AdvertEntry(1, GONE, T))),
    Again(1),
    Civs(1, 1, (CivSet((1,)), CivSet((1,), (T,)), CivUnset((1,)), CivUnset((1,), (T,)))),
    Pub(1, 1, 1, 1, 5, 0, True, False, (0, 1), (), FRAME),
    Pub(1, 2, 1, 2, 5, 0, False, True, (), (0,), FRAME),
    Ack((Acked(1, 1, False, (1, 2)),)),
    Owed(100),
    Ask(1, 1, (Asked(T, 1),)),
    Offer(1, 1, True, (Numbered(1, 1),)),
    Want(1, 1, (1,)),
    Late(1, True, (1,), (LateOne(1, b"M"),)),
    Digests(True, b"\0" * 2048),
    Held((FRAME,)),
    Trace(1, "t", 1, (0,), ()),
    Traced(1, b"[]"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_is_read_as_it_was_written(message: tuple[Any, ...]) -> None:
    data = CODEC.encode(message)
    assert CODEC.decode(data) == message
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(OverlayError):
            CODEC.decode(wrong)


def test_a_filter_of_another_node_that_is_none() -> None:
    data = bytearray(CODEC.encode(Subs(0, 1, 1, 0, 0, (SubscriptionEntry(ContentFilter("a/#"), 1),))))
    at = data.index(b"a/#")
    data[at : at + 3] = b"#/a"
    with pytest.raises(OverlayError, match="a filter of another node that is none"):
        CODEC.decode(bytes(data))


def test_garbage_does_no_harm() -> None:
    """Random bytes, and messages with bytes changed, from a node of the grid and from a stranger."""
    world = make(LINE, 2)
    world["c1"].subscribe("t", 1)
    world.run(1)
    random = Random(1)
    node = octopia(world, "b1")
    for number in range(3000):
        if number % 3:
            data = bytearray(CODEC.encode(MESSAGES[number % len(MESSAGES)]))
            for _ in range(random.randrange(3)):
                data[random.randrange(len(data))] = random.randrange(256)
        else:
            data = bytearray(random.randbytes(random.randrange(60)))
        sender = "a1" if number % 2 else "nobody"
        node.on_message(Peer(sender, f"{sender}.sim:1885"), bytes(data), 0)
    assert node.counters["malformed"] > 100
    world.run(60)
    world["a0"].publish("t", b"after", 1)
    world.run(10)
    assert payloads(world, "c1")[-1] == b"after"
    assert all(octopia(world, other.node_id).replicas.lacking() == [] for other in world.alive())


def test_a_node_with_another_grid_is_refused_by_name_and_shown() -> None:
    world = make(("a",), 3)
    world.kill("a2")
    other = grid(("a",), 3)
    other["clusters"] = ["c0", "c2", "c1"]
    world.add("a2", introducer="a0", options=other)
    world.run(20)
    for name, stranger in (("a0", "a2"), ("a2", "a0")):
        shown = octopia(world, name).overlay().tables["refused"]
        assert [row["node"] for row in shown if row["node"] == stranger] == [stranger]
        assert any(row["reason"] for row in shown)
    assert any(event == "node refused" and fields["node"] == "a2" for _, _, event, fields in world.logs)
    assert world.counters()["malformed"] == 0
    world["a2"].subscribe("t", 1)
    world["a0"].publish("t", b"1", 1)
    world.run(5)
    assert payloads(world, "a2") == []


def test_a_node_that_is_no_member() -> None:
    with pytest.raises(PluginError, match=r"members lists"):
        FakeNode(Octopia, {**grid(("a",), 2)}, node_id="stranger")
    world = make(("a",), 2)
    strange = {**grid(("a",), 2)}
    strange["members"] = {**strange["members"], "x": "a/c2"}
    strange["clusters"] = [*strange["clusters"], "c2"]
    world.add("x", introducer="a0", options=strange)
    world.run(5)
    assert octopia(world, "a0").overlay().tables["refused"][0] == {
        "node": "x",
        "reason": "it is no member of the grid",
    }


def test_a_home_with_too_many_filters_counts_as_one_that_wants_everything() -> None:
    world = make(("a-b",), 2, max_filters=50)
    for number in range(60):
        world["b1"].subscribe(f"filter/n={number}/t", 1)
    world.run(2)
    assert octopia(world, "a1").replicas.lacking() == ["b1"]
    assert len(octopia(world, "a1").replicas.prt) == 0
    world["a0"].publish("t", b'{"n": 59}', 1)
    world.run(2)
    assert payloads(world, "b1") == [b'{"n": 59}']
    assert octopia(world, "a1").counters["homes_full"] >= 1


def test_advertisements_without_end() -> None:
    world = make(("a",), 2, max_filters=50)
    world["a1"].subscribe("t/#")
    for number in range(80):
        world["a0"].publish(f"t/{number}")
    world.run(2)
    assert len(octopia(world, "a1").replicas.clt) == 50
    assert octopia(world, "a1").counters["adverts_full"] == 30
    assert len(payloads(world, "a1")) == 80  # what was not answered comes anyway


def test_a_cluster_that_tells_filters_without_end() -> None:
    world = make(("a",), 2, summary=1_000, max_filters=50)
    for number in range(40):
        world["a1"].subscribe(f"filter/n={number}/t")
    world.run(1)
    for topic in ("t", "t", "u"):
        world["a0"].publish(topic)
    world.run(1)
    octopia(world, "a0").replicas.sessions.on_civs("a1", flood(octopia(world, "a0")))
    assert octopia(world, "a0").counters["civs_full"] == 1
    assert octopia(world, "a0").replicas.clt.bits(1) == {1: True}


def flood(node: Octopia) -> Civs:
    """More filters than are held, in the next message of the other cluster."""
    session, told = node.replicas.sessions.to("a1")[0], node.replicas.sessions._to["a1"].received
    filters = tuple(ContentFilter(f"t/{number}") for number in range(20))
    return Civs(session, told + 1, (CivSet((1,), filters),))


def test_a_question_with_too_many_filters() -> None:
    world = make(("a",), 2)
    asked = tuple(Asked(ContentFilter(f"t/{number}"), 1) for number in range(1001))
    octopia(world, "a0").on_message(world["a1"].peer, CODEC.encode(Ask(1, 1, asked)), 0)
    assert octopia(world, "a0").counters["malformed"] == 1


def test_what_is_not_acknowledged_is_bounded() -> None:
    world = make(("a",), 2, pending_bytes=5000)
    world["a1"].subscribe("t", 1)
    world.run(1)
    for number in range(30):
        world["a0"].publish("t", b"%d" % number, 1)
    assert octopia(world, "a0").casting.bytes <= 5000
    assert octopia(world, "a0").counters["pending_full"] > 0
    world.run(10)
    assert len(payloads(world, "a1")) == 30
    assert octopia(world, "a0").offers.owed == []


def test_what_is_kept_is_bounded() -> None:
    world = make(("a",), 2, kept_bytes=20_000)
    world["a1"].subscribe("t", 1)
    world.run(12)
    world.kill("a1")
    world.run(20)
    for number in range(100):
        world["a0"].publish("t", b"%d" % number, 1)
    assert octopia(world, "a0").log.bytes[True] <= 20_000
    assert octopia(world, "a0").counters["kept_displaced"] > 50
    world.add("a1", introducer="a0")
    world["a1"].subscribe("t", 1)
    world.run(10)
    assert payloads(world, "a1")[-1] == b"99"
    assert 20 < len(payloads(world, "a1")) < 50


def test_a_site_that_missed_more_than_can_be_offered_at_once_gets_the_rest_later() -> None:
    world = make(("a",), 2, offered_messages=300)
    world["a1"].subscribe("t", 1)
    world.run(12)
    world.kill("a1")
    world.run(20)
    for number in range(250):
        world["a0"].publish("t", b"%d" % number, 1)
    world.add("a1", introducer="a0")
    world["a1"].subscribe("t", 1)
    world.run(60)
    assert sorted(payloads(world, "a1")) == sorted(b"%d" % number for number in range(250))


def test_two_nodes_that_do_not_answer_are_no_burden() -> None:
    """Timers of a node with dead members do not grow without end."""
    world: PluginWorld = make(LINE, 3)
    for name in ("b0", "b1", "c2"):
        world.kill(name, silent=True)
    world["a0"].subscribe("#", 1)
    for _ in range(50):
        world["a0"].publish("t", b"", 1)
        world.run(2)
    assert world["a0"].timers < 60
    assert octopia(world, "a0").casting.bytes == 0
