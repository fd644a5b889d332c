"""Golden transcripts of the procedures: what nodes send each other, message by message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ildm.testing import PluginWorld
from ildm.testing.link import SimLink
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.messages import (
    CODEC,
    GONE,
    Ack,
    Acked,
    Adverts,
    Again,
    Ask,
    Civs,
    Fetch,
    Late,
    Offer,
    Owed,
    Pub,
    Subs,
    Want,
)
from ildm_algorithms.octopia.tables.tables import CivSet
from tests.algorithms.octopia.worlds import LINE, grid, octopia
from tests.support.transcripts import check_transcript


class Transcript(PluginWorld):
    """Writes down what nodes send, but for HELLO."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Octopia, options, seed=1)
        self.order = sorted(options["members"])
        self.lines: list[str] = []
        self.network.on_carry = self._carried
        for number, name in enumerate(self.order):
            self.add(name, introducer="a0" if number else None)
        self.run(4)
        self.lines.clear()

    def _carried(self, link: SimLink, data: bytes) -> None:
        line = self._text(CODEC.decode(data))
        if line is not None:
            self.lines.append(f"{link.here.node_id} -> {link.node_id}  {line}")

    def _text(self, message: Any) -> str | None:
        order = self.order
        match message:
            case Subs(home, _, version, _, parts, entries):
                what = ", ".join(f"{'-' if qos == GONE else '+'}{content}" for content, qos in entries)
                return f"SUB {order[home]} {'all' if parts else ''}{version} {what}".rstrip()
            case Fetch(home):
                return f"FETCH {order[home]}"
            case Adverts(_, number, entries):
                what = (f"{'UNADV' if state == GONE else 'ADV'} {uid} {c}" for uid, state, c in entries)
                return f"ADVERTS {number} {', '.join(what)}".rstrip()
            case Again():
                return "AGAIN"
            case Civs(_, number, changes):
                what = (
                    f"{'SET' if isinstance(civ, CivSet) else 'UNSET'} {','.join(map(str, civ.uids))}"
                    + ("" if civ.filters is None else f" only {', '.join(map(str, civ.filters))}")
                    for civ in changes
                )
                return f"CIVS {number} {'; '.join(what)}"
            case Pub(origin=origin, clusters=clusters, tried=tried):
                copy = f" clusters {','.join(map(str, clusters))}" if clusters else ""
                return f"PUB of {order[origin]}{copy}{' search' if tried else ''}"
            case Ack(casts):
                return f"ACK {'; '.join(map(self._acked, casts))}"
            case Owed():
                return "OWED"
            case Ask(_, _, filters):
                return f"ASK {', '.join(str(asked.content) for asked in filters)}".rstrip()
            case Offer(_, page, last, messages):
                return f"OFFER page {page}{' last' if last else ''} {len(messages)} messages"
            case Want(_, page, numbers):
                return f"WANT {len(numbers)} messages" if numbers else f"WANT page {page}"
            case Late(_, _, gone, messages):
                return f"LATE {len(messages)} messages, {len(gone)} gone"
        return None

    def _acked(self, acked: Acked) -> str:
        if acked.under_way:
            return "under way"
        return "missed " + ",".join(self.order[n] for n in acked.missed) if acked.missed else "all"

    def step(self, title: str, action: Callable[[], object], seconds: float = 0.5) -> None:
        """Do something, and note what follows within these seconds."""
        self.lines.append(f"# {title}")
        action()
        self.run(seconds)

    def publish(self, payload: bytes, seconds: float = 0.5) -> None:
        self.step("a0 publishes", lambda: self["a0"].publish("t", payload, 1), seconds)


def test_tables_and_messages() -> None:
    """K_3 x a-b-c: the golden case of subscriptions, advertisements and publications."""
    world = Transcript(**grid(LINE, 3, summary=0))
    a0, a1, b1, c0 = (world[name] for name in ("a0", "a1", "b1", "c0"))
    world.step(
        "a0 advertises t: one message to each other cluster, which answers",
        lambda: octopia(world, "a0").advertise(ContentFilter("t")),
    )
    world.step(
        "a client of b1 subscribes: through its cluster, and a1 sets the bit at a0",
        lambda: b1.subscribe("t", 1),
    )
    world.step("a client of a1 subscribes: the bit is set already", lambda: a1.subscribe("t", 1))
    world.step(
        "a client of c0 subscribes: the publisher's own cluster has no bit", lambda: c0.subscribe("t", 1)
    )
    world.publish(b"1")
    world.step("the client of b1 unsubscribes: cluster 1 still wants it", lambda: b1.unsubscribe("t"))
    world.step("the client of a1 unsubscribes: the bit is cleared", lambda: a1.unsubscribe("t"))
    world.publish(b"2")
    world.step("a0 withdraws its advertisement", lambda: octopia(world, "a0").unadvertise(1))
    assert [d.payload for _, d in world.deliveries()] == [b"1", b"1", b"1", b"2"]
    assert a0.deliveries == []
    check_transcript("octopia_tables", world.lines)


def test_precise_bits() -> None:
    """What a cluster wants of an advertisement, in filters (+)."""
    world = Transcript(**grid(("a",), 2, summary=2))
    a1 = world["a1"]
    world.step("a0 advertises t", lambda: octopia(world, "a0").advertise(ContentFilter("t")))
    world.step("a1 wants n>5", lambda: a1.subscribe("filter/n>5/t", 1))
    world.step("a1 wants n>7, which the first covers", lambda: a1.subscribe("filter/n>7/t", 1))
    world.step("a1 wants m=1", lambda: a1.subscribe("filter/m=1/t", 1))
    world.step("a1 wants m=2: that is one more than a summary has", lambda: a1.subscribe("filter/m=2/t", 1))
    for name in ("n>5", "m=1", "m=2", "n>7"):
        world.step(f"a1 does not want {name} any more", partial(a1.unsubscribe, f"filter/{name}/t"))
    check_transcript("octopia_precise_bits", world.lines)


def test_a_node_dies_and_comes_back() -> None:
    world = Transcript(**grid(LINE, 2))
    for name in ("a1", "b1", "c1"):
        world[name].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"1", 1)
    world.run(20)
    world.lines.clear()
    world.step("b1 dies", lambda: world.kill("b1"), 0.0)
    world.publish(b"2")  # a1 goes around b1, which may have missed it
    world.publish(b"3")

    def restart() -> None:
        world.add("b1", introducer="a0")
        world["b1"].subscribe("t", 1)

    world.step("b1 starts again, with a session that outlived it", restart, 20)
    world.publish(b"4")
    assert [d.payload for d in world["b1"].deliveries] == [b"2", b"3", b"4"]
    assert [d.payload for d in world["c1"].deliveries] == [b"1", b"2", b"3", b"4"]
    check_transcript("octopia_restart", world.lines)


def test_a_cluster_is_cut_off_and_comes_back() -> None:
    world = Transcript(**grid(("a-b",), 2))
    world["b1"].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    world.partition(["a1", "b1"])
    world.run(20)
    world.lines.clear()
    world.publish(b"2")  # nothing can be sent
    world.step("cluster 1 is back, and asks for what is owed to it", world.heal, 20)
    world.publish(b"3")
    assert [d.payload for d in world["b1"].deliveries] == [b"1", b"2", b"3"]
    check_transcript("octopia_partition", world.lines)
