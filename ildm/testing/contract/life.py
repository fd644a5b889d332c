"""What a node is, from its start to its end, and what it keeps and counts for its plugins."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from ildm.api import NodeStatus, PluginError
from ildm.config import LinkConfig
from ildm.mqtt import PacketType, PingResp, Publish, Version, decode
from ildm.testing.contract.probes import OverlayProbe, TreeProbe
from ildm.testing.contract.stage import SOON, Contract, Make, states


class LifeContract(Contract):
    """What a node is, from its start to its end, and what it keeps and counts for its plugins."""

    # start, end, identity -------------------------------------------------------------------------

    @states("status", "on_ildm_start")
    def test_the_start_is_the_first_hook(self, make: Make) -> None:
        one = make(TreeProbe).add("a")
        assert one.made_in is NodeStatus.STOPPED
        assert one.heard[0] == ("start", NodeStatus.RUNNING, {}, [])
        assert len(one.of("start")) == 1
        assert one.api.status is NodeStatus.RUNNING

    @states("on_ildm_stop", "is_leaving", "status")
    def test_a_node_that_stops_waits_for_its_algorithm(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        one.leaving = True
        stage.stop("a")
        assert one.of("stop") == [("stop", NodeStatus.RUNNING)]
        assert one.api.send(two.api.peer, b"good-bye")
        stage.until(lambda: [event[2] for event in two.of("message")] == [b"good-bye"])
        one.leaving = False
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)

    @states("node_id", "peer")
    def test_a_node_has_a_name_and_an_address(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert one.api.node_id == one.api.peer.node_id == "a"
        assert one.api.peer.address
        assert one.api.peer.address != two.api.peer.address

    @states("expiry")
    def test_a_site_may_be_away_as_long_as_its_links_last(self, make: Make) -> None:
        stage = make(OverlayProbe)
        assert {stage.add(name).api.expiry for name in "ab"} == {LinkConfig().expiry}

    @states("random")
    def test_chance_is_the_nodes_own(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one.api.random, Random)
        drawn = [one.api.random.random() for _ in range(4)]
        assert drawn != [two.api.random.random() for _ in range(4)]
        assert one.api.random is one.api.random

    @states("random")
    def test_chance_can_be_repeated(self, make: Make) -> None:
        first, second = (make(OverlayProbe).add("a").api.random.random() for _ in range(2))
        assert first == second

    # time -----------------------------------------------------------------------------------------

    @states("now", "call_later")
    def test_timers_fire_in_order_and_not_at_once(self, make: Make) -> None:
        stage = make(OverlayProbe)
        api = stage.add("a").api
        fired: list[tuple[str, bool]] = []
        began = api.now()

        def fire(name: str, delay: float) -> None:
            fired.append((name, api.now() >= began + delay - 0.001))

        for name, delay in (("late", 2 * SOON), ("one", SOON), ("two", SOON), ("zero", 0.0)):
            api.call_later(delay, fire, name, delay)
        assert fired == []
        stage.until(lambda: len(fired) == 4)
        assert fired == [("zero", True), ("one", True), ("two", True), ("late", True)]

    @states("call_later", "Timer.cancel")
    def test_a_cancelled_timer_never_fires(self, make: Make) -> None:
        """Cancelling is allowed at any time, also twice, by another timer, and when it has fired."""
        stage = make(OverlayProbe)
        api = stage.add("a").api
        fired: list[str] = []
        doomed = api.call_later(SOON, fired.append, "cancelled")
        doomed.cancel()
        doomed.cancel()
        later = api.call_later(SOON, fired.append, "cancelled by another")
        api.call_later(0.0, later.cancel)
        kept = api.call_later(0.0, fired.append, "kept")
        api.call_later(3 * SOON, fired.append, "last")
        stage.until(lambda: "last" in fired)
        kept.cancel()
        assert fired == ["kept", "last"]

    @pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "1"])
    @states("call_later")
    def test_a_delay_that_is_none_is_refused(self, make: Make, delay: Any) -> None:
        api = make(OverlayProbe).add("a").api
        with pytest.raises(PluginError, match="a delay of"):
            api.call_later(delay, print)
        with pytest.raises(PluginError, match="cannot be called"):
            api.call_later(0, None)  # type: ignore[arg-type]

    # the rest -------------------------------------------------------------------------------------

    @states("create_mqtt_message")
    def test_messages_are_generated(self, make: Make) -> None:
        build = make(OverlayProbe).add("a").api.create_mqtt_message
        for version in Version:
            message = build(PacketType.PUBLISH, version, topic="t", payload=b"x", qos=1, packet_id=3)
            assert decode(message, version) == Publish(topic="t", payload=b"x", qos=1, packet_id=3)
        assert decode(build(PacketType.PINGRESP), Version.V5) == PingResp()

    @states("count", "log")
    def test_counters_and_log_are_the_algorithms_own(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.count("things")
        one.api.count("things", 2)
        one.api.log("told", size=1)
        assert stage.counters("a")["things"] == 3
        event, fields = stage.logged("a")[-1]
        assert event == "told"
        assert fields["size"] == 1

    @states("gauge")
    def test_gauges_hold_the_last_value(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        for value in (3, 0.5, -1.25):
            one.api.gauge("load", value)
        assert dict(stage.gauges("a")) == {"load": -1.25}
        for wrong in (float("nan"), float("inf"), "1", None, 10**400):
            with pytest.raises(PluginError, match="a finite number is due"):
                one.api.gauge("load", wrong)  # type: ignore[arg-type]
        assert dict(stage.gauges("a")) == {"load": -1.25}

    @states("count", "gauge")
    def test_names_of_counters_and_gauges_are_bounded(self, make: Make) -> None:
        """What is known goes on being counted by its name."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        before = len(stage.counters("a"))
        for number in range(2000):
            one.api.count(f"c{number}")
        one.api.gauge("g", 7)
        assert len(stage.counters("a")) == 1001
        assert stage.counters("a")["other"] == 1000 + before
        assert dict(stage.gauges("a")) == {"other": 7}
        one.api.count("c0")
        assert stage.counters("a")["c0"] == 2
        for name, by in (("", 1), ("x" * 101, 1), ("\n", 1), (1, 1), ("c0", 1.5), ("c0", 1 << 70)):
            with pytest.raises(PluginError):
                one.api.count(name, by)  # type: ignore[arg-type]

    @states("log")
    def test_the_log_is_bounded_and_takes_any_value(self, make: Make) -> None:
        """100 lines at once; the first one after a pause says how many are missing."""
        stage = make(OverlayProbe)
        one = stage.add("a")

        class Nameless:
            def __str__(self) -> str:
                raise ValueError

        loop: list[Any] = []
        loop.append(loop)
        odd = {"level": 1, "plugin": 2, "exc_info": 3, "long": "x" * 5000, "loop": loop}
        before, began = len(stage.logged("a")), one.api.now()
        one.api.log("odd", **odd, nameless=Nameless(), big=10**5000)
        _, fields = stage.logged("a")[-1]
        assert (fields["level_"], fields["plugin_"], fields["exc_info_"]) == (1, 2, 3)
        assert (len(str(fields["long"])), fields["nameless"]) == (1000, "<Nameless>")
        for number in range(1000):
            one.api.log("flood", number=number)
        logged = len(stage.logged("a")) - before
        assert 99 <= logged <= 102 + 100 * (one.api.now() - began)
        one.api.call_later(4 * SOON, one.api.log, "after")
        stage.until(lambda: any(event == "after" for event, _ in stage.logged("a")))
        # the first one after each pause says it: where the flood took longer than usual, more than one
        left_out = [fields["left_out"] for _, fields in stage.logged("a") if "left_out" in fields]
        assert sum(int(str(number)) for number in left_out) == 1001 - logged
        with pytest.raises(PluginError, match="the event is"):
            one.api.log(7)  # type: ignore[arg-type]

    # what goes beyond the moment ------------------------------------------------------------------

    @states("wall", "now")
    def test_both_clocks_go(self, make: Make) -> None:
        stage = make(OverlayProbe)
        api = stage.add("a").api
        clocks: list[tuple[float, float]] = [(api.now(), api.wall())]
        api.call_later(SOON, lambda: clocks.append((api.now(), api.wall())))
        stage.until(lambda: len(clocks) == 2)
        (now, wall), (later, wall_later) = clocks
        assert later - now >= SOON - 0.001
        assert wall_later > wall

    @states("state")
    def test_state_is_found_again_by_the_next_life(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert dict(one.api.state) == {}
        one.api.state["kept"] = b"1"
        one.api.state["changed"] = b"1"
        one.api.state["changed"] = b"2"
        one.api.state["gone"] = b"1"
        del one.api.state["gone"]
        assert dict(one.api.state) == {"kept": b"1", "changed": b"2"}
        other = stage.add("b")
        assert dict(other.api.state) == {}
        stage.stop("a")
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)
        again = stage.add("a")
        assert again is not one
        assert again.kept == {"kept": b"1", "changed": b"2"}
        assert dict(again.api.state) == again.kept

    @states("state")
    def test_state_is_bounded_and_of_bytes(self, make: Make) -> None:
        """What would go beyond the bound changes nothing; taking away is always possible."""
        state = make(OverlayProbe).add("a").api.state
        half = bytes(1 << 19)
        state["half"] = half
        for key, value in (("rest", half), ("half", half + half), ("\ud800", b""), (1, b""), ("k", "text")):
            with pytest.raises(PluginError):
                state[key] = value  # type: ignore[index, assignment]
        assert dict(state) == {"half": half}
        with pytest.raises(PluginError, match=r"limits\.plugin_state_bytes: 1048576"):
            state.update({f"{number}": b"" for number in range(2000)})
        kept = len(state)
        assert 1000 < kept < 2000  # keys have a price of their own
        state["half"] = b""
        state["rest"] = half[: len(half) // 2]
        assert len(state) == kept + 1
        with pytest.raises(KeyError):
            del state["nothing"]

    @states("offload")
    def test_work_beside_the_node_comes_back_as_a_call(self, make: Make) -> None:
        """With its result, or what it has raised; not within the call."""
        stage = make(OverlayProbe)
        api = stage.add("a").api
        results: list[object] = []
        api.offload(lambda: 7, results.append)
        api.offload(lambda: int("x"), results.append)
        api.offload(lambda: sys.exit(3), results.append)
        assert results == []
        stage.until(lambda: len(results) == 3)
        assert 7 in results
        errors = {type(result) for result in results if isinstance(result, Exception)}
        assert errors == {ValueError, PluginError}
        with pytest.raises(PluginError, match="cannot be called"):
            api.offload("x", results.append)  # type: ignore[arg-type]
