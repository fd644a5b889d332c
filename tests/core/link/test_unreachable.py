"""Nodes that cannot be reached, in virtual time: what is told, how often they are dialed, what waits."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Peer, SendResult
from ildm.config import Address
from ildm.core.link import pauses
from ildm.core.link.on_demand import FRAME_COST
from ildm.testing.virtual.world import World
from tests.support.talkers import Site, sites

NOWHERE = Peer("x", "x:2")
USUAL = {"reconnect_min": 0.5, "reconnect_max": 30.0, "connect_timeout": 5.0}


class Mute:
    """Takes connections, and says nothing."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        pass

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        pass


class HangingUp(Mute):
    def data_received(self, data: bytes) -> None:
        self.transport.abort()


def again(site: Site, to: Peer) -> None:
    """Whenever a node is reported, its algorithm sends again at once."""
    site.talker.then = lambda node_id: site.talker.api.send(to, b"again")


# how often ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", [NOWHERE, Peer("x", "nonsense")])
def test_a_hook_that_sends_again_costs_few_dials(world: World, peer: Peer) -> None:
    (a,) = sites(world, "a", link=USUAL)
    again(a, peer)
    a.talker.api.send(peer, b"first")
    world.run(60)
    told = len(a.talker.unreachable)
    # pauses of 0.25 to 0.5 s, 0.5 to 1 s, ... and of 2.5 to 5 s from the fifth on
    assert 60 / 5 < told < 5 + 60 / 2.5
    assert a.node.counters["on_demand_dials"] == (told if peer is NOWHERE else 0)
    assert a.node.counters["algorithm_dropped_unreachable"] == told


def test_nobody_answering_is_dialed_no_oftener(world: World) -> None:
    (a,) = sites(world, "a", link=USUAL)
    world.unreachable.add(Address("x", 2))
    again(a, NOWHERE)
    a.talker.api.send(NOWHERE, b"first")
    world.run(60)
    assert 60 / 10 <= a.node.counters["on_demand_dials"] <= 60 / 5
    assert set(a.talker.unreachable) == {"x: no answer"}


def test_a_node_that_drops_every_link_is_dialed_no_oftener(world: World) -> None:
    a, b = sites(world, "ab", link=USUAL)
    again(a, b.peer())

    def drop(sender: str) -> None:
        (session,) = b.node.links.links[sender].open_sessions
        session.abort()

    b.talker.then_heard = drop
    a.send(b, "first")
    world.run(60)
    assert 10 < a.node.counters["on_demand_dials"] < 5 + 60 / 2.5
    assert set(a.talker.unreachable) == {"b: lost"}


def test_what_is_sent_in_a_pause_waits_and_is_reported_once(world: World) -> None:
    (a,) = sites(world, "a", link={**USUAL, "queue_messages": 5})
    a.talker.api.send(NOWHERE, b"0")
    world.run(0.1)
    assert [a.talker.api.send(NOWHERE, b"x") for _ in range(7)] == [SendResult.OK] * 5 + [SendResult.FULL] * 2
    assert a.talker.unreachable == ["x: refused"]
    world.run(0.5)
    assert a.talker.unreachable == ["x: refused"] * 2
    assert a.node.counters["on_demand_dials"] == 2
    assert a.node.counters["algorithm_dropped_unreachable"] == 6
    assert a.node.counters["algorithm_dropped_full"] == 2
    assert a.demand.waiting_bytes == 0


def test_pauses_begin_anew_when_a_node_was_let_alone(world: World) -> None:
    (a,) = sites(world, "a", link=USUAL)
    again(a, NOWHERE)
    a.talker.api.send(NOWHERE, b"first")
    world.run(30)
    a.talker.then = lambda node_id: None
    world.run(20)
    a.talker.unreachable.clear()
    for _ in range(2):  # the first at once, the next after the shortest pause
        a.talker.api.send(NOWHERE, b"x")
        world.run(0.51)
    assert a.talker.unreachable == ["x: refused"] * 2


# coming back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [0.1, 3.0, 120.0])
def test_a_node_that_is_back_is_found_within_the_longest_pause(world: World, gone: float) -> None:
    a, b = sites(world, "ab", link=USUAL)
    a.send(b, "1")
    world.run(10)
    b.crash()
    again(a, b.peer())
    world.run(gone)
    b = Site(world, "b", link=USUAL)
    world.run(5.01)
    assert b.heard() == ["again"]
    assert a.links() == {"b": "on demand"}
    dials = a.node.counters["on_demand_dials"]
    world.run(30)
    assert a.node.counters["on_demand_dials"] == dials


def test_a_connection_from_the_node_ends_its_pause(world: World) -> None:
    a, b = sites(world, "ab", link=USUAL)
    a.send(b, "1")
    world.run(10)
    b.crash()
    again(a, b.peer())
    world.run(120)
    b = Site(world, "b", link=USUAL)
    world.run(0.01)
    b.send(a, "here again")
    world.run(0.05)
    assert a.heard() == ["here again"]
    assert b.heard() == ["again"]  # what has waited in the pause
    b.crash()
    world.run(0.01)
    assert a.talker.unreachable[-1] == "b: lost"


def test_a_node_that_has_moved_is_dialed_where_it_was_last_said_to_be(world: World) -> None:
    a, b = sites(world, "ab")
    a.talker.api.send(b.peer("elsewhere:2"), b"0")
    world.run(0.01)
    a.talker.api.send(b.peer("elsewhere:2"), b"1")
    a.send(b, "2")
    world.run(1)
    assert b.heard() == ["1", "2"]
    assert a.talker.unreachable == ["b: refused"]


def test_a_node_that_stops_does_not_wait_for_one_that_is_gone(world: World) -> None:
    (a,) = sites(world, "a", link=USUAL)
    again(a, NOWHERE)
    a.talker.api.send(NOWHERE, b"first")
    world.run(60)
    ended: list[float] = []
    a.node.drain(lambda: ended.append(world.time))
    world.run(0.5)
    assert ended
    told = len(a.talker.unreachable)
    assert a.node.counters["algorithm_dropped_unreachable"] == told + 1
    world.run(30)
    assert len(a.talker.unreachable) == told


# bounds ---------------------------------------------------------------------------------------------


def test_endless_sends_to_one_node_end(world: World) -> None:
    (a,) = sites(world, "a", link=USUAL)
    sent = 0
    while a.talker.api.send(NOWHERE, b"x" * 100):
        sent += 1
    assert sent == 10_000  # link.queue_messages
    assert a.talker.api.send(NOWHERE, b"x" * 100) is SendResult.FULL
    assert a.node.counters["on_demand_dials"] == 1


def flood(site: Site, nodes: int, size: int = 1) -> dict[SendResult, int]:
    """Data for so many nodes that are not there; answers how often which result came."""
    answers = dict.fromkeys(SendResult, 0)
    for number in range(nodes):
        answers[site.talker.api.send(Peer(f"x{number}", f"x{number}:2"), b"x" * size)] += 1
    return answers


def test_sends_to_ten_thousand_nodes_are_bounded(world: World) -> None:
    (a,) = sites(world, "a", link={**USUAL, "max_links": 100})
    answers = flood(a, 10_000)
    assert answers[SendResult.OK] == len(a.demand.waiting) == a.node.counters["on_demand_dials"] == 100
    assert answers[SendResult.FULL] == 9_900


def test_a_hook_that_tries_one_node_after_the_other_costs_few_dials(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "REMEMBERED", 100)
    (a,) = sites(world, "a", link=USUAL)
    tried = iter(range(1_000_000))

    def next_one(node_id: str) -> None:
        number = next(tried)
        if not a.talker.api.send(Peer(f"x{number}", f"x{number}:2"), b"x"):
            a.talker.api.call_later(0.01, next_one, node_id)

    a.talker.then = next_one
    next_one("")
    world.run(60)
    assert len(a.demand.pauses) <= 100
    assert a.node.counters["on_demand_dials"] <= 100 * (1 + 60 / 5)
    assert a.node.counters["on_demand_dials"] > 500  # those whose pause was long ago make room


def test_who_can_be_reached_is_so_while_others_cannot(world: World) -> None:
    a, b = sites(world, "ab", link=USUAL)
    a.send(b, "1")
    flood(a, 1000)
    world.run(1)
    assert len(a.demand.pauses) == 1000
    assert a.talker.api.send(Peer("y", "y:2"), b"x") is SendResult.FULL
    a.send(b, "2")
    world.run(0.1)
    assert b.heard() == ["1", "2"]
    world.run(6)
    assert a.talker.api.send(Peer("y", "y:2"), b"x") is SendResult.OK


def test_what_waits_for_all_nodes_together_is_bounded_in_bytes(world: World) -> None:
    (a,) = sites(world, "a", link={**USUAL, "waiting_bytes": 100_000})
    answers = flood(a, 1000, size=1000)
    kept = [len(frame) + FRAME_COST for waiting in a.demand.waiting.values() for frame, _ in waiting.frames]
    assert answers[SendResult.OK] == len(kept)
    assert 100_000 - max(kept) < sum(kept) == a.demand.waiting_bytes <= 100_000
    world.run(1)
    assert a.demand.waiting_bytes == 0


def test_one_message_may_always_wait_however_large(world: World) -> None:
    a, b = sites(world, "ab", link={"waiting_bytes": 2000})
    assert a.send(b, "x" * 5000) is SendResult.OK
    assert a.send(b, "x") is SendResult.FULL
    world.run(1)
    assert b.heard() == ["x" * 5000]


# why ------------------------------------------------------------------------------------------------


def test_a_node_that_has_no_place_for_a_link(world: World) -> None:
    a, b, c = (Site(world, name, link={"max_links": 1}) for name in "abc")
    b.send(c, "1")
    world.run(0.1)
    b.node.links.links["c"].senders[0].wire.set_flowing(False)
    b.send(c, "2")
    a.send(b, "x")
    world.run(1)
    assert a.talker.unreachable == ["b: rejected"]


def test_a_program_that_is_no_node(world: World) -> None:
    (a,) = sites(world, "a")
    a.talker.api.send(Peer("x", "a:3"), b"x")  # a broker
    world.run(10)
    assert a.talker.unreachable == ["x: other node"]


def test_a_node_that_does_not_speak(world: World) -> None:
    (a,) = sites(world, "a")
    world.listen(Address("x", 2), Mute)
    a.talker.api.send(NOWHERE, b"x")
    world.run(10)
    assert a.talker.unreachable == ["x: no answer"]


def test_a_node_that_hangs_up_in_the_handshake(world: World) -> None:
    (a,) = sites(world, "a")
    world.listen(Address("x", 2), HangingUp)
    a.talker.api.send(NOWHERE, b"x")
    world.run(1)
    assert a.talker.unreachable == ["x: lost"]
