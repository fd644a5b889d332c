"""Lists and messages that are larger than what one message between nodes can hold."""

from __future__ import annotations

import pytest

import ildm_algorithms.octopia.tables.pages
from ildm.testing import LinkModel
from ildm_algorithms.octopia.messages import CODEC, Civs
from ildm_algorithms.octopia.tables.pages import whole_or_parts
from ildm_algorithms.octopia.tables.sessions import Sessions
from ildm_algorithms.octopia.tables.tables import CivSet, CivUnset
from tests.algorithms.octopia.worlds import make, octopia, payloads

SMALL = LinkModel(packet_size=200_000)
"""Links whose packets are no larger than that."""


def test_a_filter_that_overlaps_very_many_advertisements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wire format counts to 65,535; with that many this would take long."""
    monkeypatch.setattr(ildm_algorithms.octopia.tables.pages, "UIDS", 50)
    heard: list[Civs] = []
    take = Sessions.on_civs
    monkeypatch.setattr(
        Sessions, "on_civs", lambda self, sender, civs: (heard.append(civs), take(self, sender, civs))
    )
    world = make(("a",), 2)
    sessions = octopia(world, "a0").replicas.sessions
    for number in range(120):
        world["a0"].publish(f"t/{number}")
    world.run(1)
    for change, expected in ((world["a1"].subscribe, True), (world["a1"].unsubscribe, False)):
        change("t/#")
        world.run(1)
        assert all(sessions.clt.bits(uid) == {1: expected} for uid in sessions.clt.own)
    assert max(len(civ.uids) for civs in heard for civ in civs.changes) == 50


@pytest.mark.parametrize("kind", [CivSet, CivUnset])
def test_parts_name_every_advertisement_once(kind: type[CivSet] | type[CivUnset]) -> None:
    uids = tuple(range(100_000))
    found = list(whole_or_parts([kind(uids)]))
    assert [uid for civ in found for uid in civ.uids] == list(uids)
    assert all(isinstance(civ, kind) and CODEC.encode(Civs(1, 1, (civ,))) for civ in found)


def test_long_expressions_go_in_several_messages() -> None:
    """Changes, whole sets, and answers to many advertisements at once."""
    world = make(("a-b",), 2, model=SMALL, expression_length=4000)
    for number in range(100):
        world["b1"].subscribe(f"filter/s='{number:03}{'x' * 3000}'/t/#", 1)
    octopia(world, "b1").on_interest_changed(
        None, {f"filter/s='{number:03}{'y' * 3000}'/u": 1 for number in range(100)}
    )
    for number in range(20):
        world["a0"].publish(f"t/{number}")
    world.run(2)
    world.kill("a1")
    world.run(20)
    world.add("a1", introducer="a0")
    world.run(20)
    assert len(octopia(world, "a1").replicas.prt) == 200
    assert octopia(world, "a0").replicas.clt.bits(1) == {1: True}
    assert world.network.lost["not sendable"] == 0
    world["a0"].publish("t/7", b'{"s": "007%s"}' % (b"x" * 3000), 1)
    world.run(1)
    assert len(payloads(world, "b1")) == 1


def test_a_message_too_large_for_links_is_named_and_holds_nothing_up() -> None:
    """It stays where it was published; nobody tries again and again, nobody is owed it."""
    world = make(("a-b",), 2, model=SMALL)
    for name in ("b0", "a1"):
        world[name].subscribe("t/#", 1)
    world.run(12)
    world["a0"].publish("t/huge", b"x" * 300_000, 1)
    world["a0"].publish("t/other", b"1", 1)
    world.run(60)
    assert payloads(world, "b0") == payloads(world, "a1") == [b"1"]
    node = octopia(world, "a0")
    assert (node.casting.bytes, node.casting.busy, node.offers.owed) == (0, False, [])
    assert node.counters["too_large"] == 2
    assert node.counters["repeated"] == 0
    told = [fields for _, name, event, fields in world.logs if event == "message too large for the link"]
    assert [(fields["topic"], fields["node"]) for fields in told] == [("t/huge", "b0"), ("t/huge", "a1")]


def test_who_has_missed_a_message_too_large_for_links_gets_the_others() -> None:
    world = make(("a-b",), 2, model=SMALL)
    world["a1"].subscribe("t", 1)
    world.run(12)
    world.kill("a1")
    world.run(20)
    for payload in (b"1", b"x" * 300_000, b"2"):
        world["a0"].publish("t", payload, 1)
    world.add("a1", introducer="a0")
    world["a1"].subscribe("t", 1)
    world.run(60)
    assert payloads(world, "a1") == [b"1", b"2"]
    assert octopia(world, "a1").counters["missed"] >= 1
    assert octopia(world, "a0").offers.owed == []


def test_questions_about_long_filters_are_widened() -> None:
    world = make(("a",), 2, model=SMALL, expression_length=4000)
    texts = {f"filter/s='{number:03}{'x' * 3000}'/t": 1 for number in range(100)}
    octopia(world, "a1").on_interest_changed(None, texts)
    world.run(12)
    world.kill("a1")
    world.run(20)
    world["a0"].publish("t", b'{"s": "007%s"}' % (b"x" * 3000), 1)
    world.add("a1", introducer="a0")
    octopia(world, "a1").on_interest_changed(None, texts)
    world.run(30)
    assert octopia(world, "a1").counters["fetched"] == 1
    assert octopia(world, "a1").counters["too_large"] == 0
