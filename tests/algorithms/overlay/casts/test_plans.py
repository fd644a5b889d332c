"""Casts that are alike take the way that was worked out for the first, for as long as that is right."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from ildm.api import Peer
from ildm_algorithms.overlay.casts.plans import BODY, plain_body
from ildm_algorithms.overlay.keys import EVERYTHING, Range
from ildm_algorithms.overlay.wire.messages import Cast, encode
from tests.algorithms.overlay.scheduler import Network, Node, key_of
from tests.algorithms.overlay.test_graph import grown


def cast(random: Random, **changed: object) -> Cast:
    def some(most: int) -> bytes:
        return random.randbytes(random.randrange(most))

    origin, parent = (Peer("n" * random.randrange(1, 300), some(20).hex()) for _ in range(2))
    rest = random.getrandbits(16), some(400), random.randrange(5), random.getrandbits(64)
    flags = False, False, True, False
    left = 0, random.getrandbits(16), (), (), b"", some(300)
    number, request = random.getrandbits(64), random.getrandbits(64)
    message = Cast(number, origin, parent, request, some(600), some(600), 0, *flags, *rest, *left)
    return message._replace(**changed)  # type: ignore[arg-type]


def test_what_is_between_number_and_payload_of_a_plain_cast_is_found() -> None:
    random = Random(1)
    for _ in range(200):
        message = cast(random)
        data = encode(message)
        end = plain_body(data)
        assert data[end:] == len(message.payload).to_bytes(4) + message.payload
        again = encode(message._replace(number=7, payload=b"else"))
        assert data[BODY:end] == again[BODY : plain_body(again)]


@pytest.mark.parametrize(
    "changed",
    [
        {"reliable": True},
        {"control": True},
        {"unresponsive": ("n",)},
        {"extra": (b"k",)},
        {"extra": (b"",) * 256},
        {"note": b"n"},
    ],
)
def test_what_is_not_plain_has_no_way(changed: dict[str, object]) -> None:
    random = Random(2)
    assert not any(plain_body(encode(cast(random, **changed))) for _ in range(50))


def test_what_is_cut_off_is_refused_and_delivers_nothing() -> None:
    _, nodes = grown(2)
    here, there = nodes
    payload = b"something"
    data = encode(
        cast(
            Random(3),
            origin=there.peer,
            parent=there.peer,
            low=b"",
            high=b"\xff",
            at=key_of(0, "n0"),
            payload=payload,
        )
    )
    for end in range(1, len(data)):
        here.graph.receive("n1", data[:end])
        here.graph.receive("n1", data[:end] + bytes(len(data) - end + 1))
    assert not here.arrivals
    assert here.counters["malformed"] > len(payload)
    here.graph.receive("n1", data)
    assert [arrival.payload for arrival in here.arrivals] == [payload]
    here.graph.receive("n1", data)
    assert len(here.arrivals) == 1
    assert here.counters["repeated_copies"] == 1


def test_casts_spread_as_if_nothing_was_known_of_the_ones_before() -> None:
    lines = []
    for known in (True, False):
        network, nodes = grown(16, keys=2)
        if not known:
            for node in nodes:
                plans = node.graph._caster.plans
                plans.begin = plans.relay = lambda *args: False  # type: ignore[method-assign]
        network.note = True
        for number, node in product(range(3), nodes[:4]):
            node.graph.cast(EVERYTHING, b"%d" % number)
            node.graph.cast(Range(key_of(40, ""), key_of(200, "")), b"some %d" % number, turn=3)
        for node in nodes[1:]:
            node.graph._context.mark_unresponsive("n0")
        nodes[3].graph.cast(EVERYTHING, b"around the unresponsive one")
        network.run(1)
        lines.append(sorted(line for line in network.lines if "Cast" in line))
        assert {arrival.payload for arrival in nodes[9].arrivals} >= {b"0", b"1", b"2"}
    assert lines[0] == lines[1]


def reached(network: Network, nodes: list[Node], origin: Node) -> list[bytes]:
    """Keys that a cast to everything has reached, with repetitions."""
    for node in nodes:
        node.arrivals.clear()
    origin.graph.cast(EVERYTHING, b"x")
    network.run(1)
    return sorted(key for node in nodes for arrival in node.arrivals for key in arrival.keys)


def test_changed_tables_change_the_ways() -> None:
    """Keys that come and go, in order and by a crash, while the same cast is sent again and again."""
    network, nodes = grown(12)
    wanted = sorted(key for node in nodes for key in node.wanted)
    for _ in range(3):
        assert reached(network, nodes, nodes[3]) == wanted
    nodes[5].insert(1005, 15)
    nodes[7].remove(key_of(70, "n7"))
    network.settle()
    wanted = sorted(key for node in nodes for key in node.wanted)
    assert reached(network, nodes, nodes[3]) == wanted
    nodes[6].crash()
    network.run(20)
    wanted = [key for key in wanted if not key.endswith(b"n6")]
    assert reached(network, nodes[:6] + nodes[7:], nodes[3]) == wanted


def test_what_is_known_of_ways_is_bounded() -> None:
    network, nodes = grown(6, way_bytes=9_000)
    origin = nodes[0]
    for number in range(100):
        origin.graph.cast(Range(key_of(number % 20, ""), b"\xff"), b"%d" % number)
        network.run(0.2)
    assert origin.counters["ways_displaced"] > 50
    plans = origin.graph._caster.plans
    for known in (plans._plans, plans._steps):
        assert 0 < sum(size for _, size in known.values.values()) == known.bytes <= 3_000  # type: ignore[attr-defined]
    assert [int(arrival.payload) for arrival in nodes[5].arrivals] == list(range(100))
