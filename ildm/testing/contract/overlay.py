"""Data and messages of an overlay."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Peer, PluginError, SendResult, Stamp, Unreachable
from ildm.config import LinkConfig
from ildm.testing.contract.probes import OverlayProbe, TreeProbe
from ildm.testing.contract.stage import SOON, Contract, Make, states

B = Peer("b", "b:2")


class OverlayContract(Contract):
    """Data and messages of an overlay."""

    @states("send", "on_message", "on_link_up")
    def test_data_reach_the_algorithm_of_any_node_in_order(self, make: Make) -> None:
        """Over a link that is made for it; what has one turn stays in order."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        for number in range(20):
            assert one.api.send(two.api.peer, b"%d" % number, 3)
        stage.until(lambda: len(two.of("message")) == 20)
        turn = two.of("message")[0][3]
        here, there = one.api.peer, two.api.peer
        assert two.of("message") == [("message", here, b"%d" % number, turn) for number in range(20)]
        assert isinstance(turn, int)
        assert two.api.send(two.of("message")[0][1], b"back") is SendResult.OK
        stage.until(lambda: one.of("message"))
        assert [event[:3] for event in one.of("message")] == [("message", there, b"back")]
        assert not one.of("unreachable")

    @states("send", "on_writable")
    def test_who_sends_data_without_end_is_refused_and_hears_of_room(self, make: Make) -> None:
        """Also while the link is being made."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        for _ in range(2):
            taken = next(n for n in range(100_000) if not one.api.send(two.api.peer, b"x", 1))
            assert taken > 100
            assert one.api.send(two.api.peer, b"x", 1) is SendResult.FULL
            assert not one.of("writable")
            stage.until(lambda: one.of("writable"))
            stage.until(lambda: len(two.of("message")) == taken)  # noqa: B023 - within this round
            stage.quiet()
            assert one.of("writable") == [("writable", "b")]
            assert one.of("up") == [("up", "b", True)]
            assert len(two.of("message")) == taken
            for probe in (one, two):
                probe.heard[:] = probe.of("up")

    @states("send", "links", "Link.introducer")
    def test_a_link_on_demand_is_nobodys_introducer(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.send(two.api.peer, b"x")
        stage.until(lambda: two.of("message"))
        assert [event[:3] for event in two.heard[-2:]] == [
            ("up", "a", True),
            ("message", one.api.peer, b"x"),
        ]
        assert one.of("up") == [("up", "b", True)]
        assert not one.link("b").introducer
        assert not two.link("a").introducer

    @states("send")
    def test_data_for_the_node_itself_are_not_sent(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert one.api.send(one.api.peer, b"x") is SendResult.SELF
        assert not SendResult.SELF
        stage.quiet()
        assert not one.of("message", "unreachable")

    @states("send")
    def test_data_larger_than_a_packet_are_not_sent(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        largest = LinkConfig().packet_size
        assert one.api.send(two.api.peer, bytes(largest)) is SendResult.TOO_LARGE
        assert one.api.send(one.api.peer, bytes(largest)) is SendResult.SELF
        assert one.api.send(two.api.peer, bytes(largest - 100)) is SendResult.OK
        stage.until(lambda: two.of("message"))
        assert [len(event[2]) for event in two.of("message")] == [largest - 100]
        assert not one.of("unreachable")

    @states("send", "on_unreachable")
    def test_a_node_that_is_gone_is_reported(self, make: Make) -> None:
        """After sending, not within the call; also when the link with it is lost."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        peer = two.api.peer
        assert one.api.send(peer, b"x")
        stage.until(lambda: two.of("message"))
        stage.kill("b")
        stage.until(lambda: one.of("unreachable"))
        assert one.of("unreachable") == [("unreachable", "b", Unreachable.LOST)]
        one.heard.clear()
        assert one.api.send(peer, b"y")
        assert not one.heard
        stage.until(lambda: one.of("unreachable"))
        assert one.of("unreachable") == [("unreachable", "b", Unreachable.REFUSED)]

    @states("send", "on_unreachable")
    def test_a_node_that_is_not_where_it_is_said_to_be_is_reported(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.send(Peer("c", two.api.peer.address), b"x")
        assert one.api.send(Peer("d", "nonsense"), b"x")
        assert one.api.send(Peer("e", ""), b"x")
        assert not one.heard[1:]
        stage.until(lambda: len(one.of("unreachable")) == 3)
        assert sorted(one.of("unreachable")) == [
            ("unreachable", "c", Unreachable.OTHER_NODE),
            ("unreachable", "d", Unreachable.NO_ADDRESS),
            ("unreachable", "e", Unreachable.NO_ADDRESS),
        ]
        stage.quiet()
        assert not two.of("message")

    @states("send", "on_unreachable")
    def test_a_hook_that_sends_again_does_not_run_away(self, make: Make) -> None:
        """After each failure there is a pause, and the hook is never called within itself."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        peer = two.api.peer
        stage.kill("b")
        depth: list[str] = []

        def again(node_id: str) -> None:
            assert not depth
            depth.append(node_id)
            assert one.api.send(peer, b"again")
            depth.pop()

        one.then = again
        began = one.api.now()
        assert one.api.send(peer, b"first")
        stage.until(lambda: len(one.of("unreachable")) == 4)
        assert one.api.now() - began >= SOON
        one.then = lambda node_id: None

    @states("send", "on_writable")
    def test_endless_sends_come_to_an_end(self, make: Make) -> None:
        """With a link or before there is one; that there is room again is told once, not within the call."""
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        answers = [one.api.send(two.api.peer, b"%d" % number) for number in range(10_001)]
        assert set(answers) == {SendResult.OK, SendResult.FULL}
        taken = answers.index(SendResult.FULL)
        assert answers == [SendResult.OK] * taken + [SendResult.FULL] * (10_001 - taken)
        stage.until(lambda: len(two.of("message")) == taken)
        assert [int(event[2]) for event in two.of("message")] == list(range(taken))
        stage.until(lambda: one.of("writable"))
        taken = next(number for number in range(100_000) if not one.api.send(two.api.peer, b"", 1))
        assert one.api.send(two.api.peer, b"", 1) is SendResult.FULL
        assert taken > 100
        assert one.of("writable") == [("writable", "b")]
        stage.until(lambda: len(one.of("writable")) == 2)
        assert one.api.send(two.api.peer, b"", 1)
        stage.quiet()
        assert one.of("writable") == [("writable", "b")] * 2

    @states("send")
    def test_nodes_of_a_tree_send_nothing(self, make: Make) -> None:
        one = make(TreeProbe).add("a")
        with pytest.raises(PluginError, match="OverlayAlgorithm"):
            one.api.send(Peer("b", "b:2"), b"x")

    @pytest.mark.parametrize("arguments", [("b", b"x"), (tuple(B), b"x"), (B, "x"), (B, b"x", "1")])
    @states("send")
    def test_wrong_data_are_refused(self, make: Make, arguments: tuple[Any, ...]) -> None:
        one = make(OverlayProbe).add("a")
        with pytest.raises(PluginError):
            one.api.send(*arguments)

    @states("on_publish", "route")
    def test_messages_of_local_clients_are_the_overlays(self, make: Make) -> None:
        """A retained one has its stamp; nobody is asked for a route; ``$`` topics are not shown."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        stage.publish("a", "$private", b"0")
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "kept", b"2", retain=True)
        stage.until(lambda: len(one.published) == 2)
        (second, same), (first, turn) = sorted(one.published, key=lambda shown: shown[0].topic)
        assert (first.topic, first.payload, first.qos, first.retain) == ("t", b"1", 1, False)
        assert (second.topic, second.payload, second.retain) == ("kept", b"2", True)
        assert Stamp.of(first) is None
        stamp = Stamp.of(second)
        assert stamp is not None
        assert stamp.node == "a"
        assert turn == same
        assert not one.of("route")
        assert stage.injected("a") == []
