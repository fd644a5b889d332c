"""Messages over a tree of links."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Link, PluginError, Stamp, Via
from ildm.mqtt import Property, Publish
from ildm.testing.contract.probes import MessageProbe, TreeProbe, everywhere
from ildm.testing.contract.stage import Contract, Injected, Make, states


class TreeContract(Contract):
    """Messages over a tree of links."""

    @states("route")
    def test_messages_go_where_the_algorithm_says(self, make: Make) -> None:
        """With the smaller QoS; not back over the link they came by; ``$`` topics not at all."""
        stage = make(TreeProbe)
        names = "abc"
        probes = [stage.add(name) for name in names]
        for probe in probes:
            probe.routes = everywhere(probe.api)
        stage.link("a", "b")
        stage.link("b", "c")
        stage.until(lambda: probes[0].linked("b") and probes[1].linked("a", "c") and probes[2].linked("b"))
        stage.publish("a", "$private", b"0")
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "u", b"2", qos=0)
        stage.until(lambda: len(stage.injected("c")) == 2)
        for name in "bc":
            # of different QoS: in no order (4.6)
            assert sorted(stage.injected(name)) == [
                Injected("t", b"1", 1, False),
                Injected("u", b"2", 0, False),
            ]
        assert stage.injected("a") == []
        asked = {name: sorted(probe.of("route")) for name, probe in zip(names, probes, strict=True)}
        for name, source in (("a", None), ("b", "a"), ("c", "b")):
            assert asked[name] == [("route", topic, False, source) for topic in "tu"]

    @states("route", "routes_changed")
    def test_an_answer_may_be_remembered_until_routes_change(self, make: Make) -> None:
        """At least the first message of a topic is asked about, and each after a change."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"nobody wants it")
        stage.until(lambda: one.topics_asked() == ["t"])
        one.routes = lambda topic, source: [(one.link("b"), 0)]
        one.api.routes_changed()
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.injected("b"))
        one.routes = lambda topic, source: ()
        one.api.routes_changed()
        stage.publish("a", "t", b"2")
        stage.until(lambda: len(one.topics_asked()) >= 3)
        stage.quiet()
        assert stage.injected("b") == [Injected("t", b"1", 0, False)]

    @states("route")
    def test_retained_messages_keep_their_qos_and_are_asked_about_each_time(self, make: Make) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        one.routes = lambda topic, source: [(link, 0) for link in one.api.links]
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1, retain=True)
        stage.publish("a", "t", b"2", qos=1, retain=True)
        stage.until(lambda: len(stage.injected("b")) == 2)
        assert stage.injected("b") == [Injected("t", b"1", 1, True), Injected("t", b"2", 1, True)]
        assert one.of("route") == [("route", "t", True, None)] * 2

    @pytest.mark.parametrize("way", [(9,), (-1,), (None,), ("1",), (), (1, 8), (1, -9), (1, "1"), (1, 0, 0)])
    @states("route")
    def test_a_route_that_is_none_is_a_failure(self, make: Make, way: tuple[Any, ...]) -> None:
        """The message stays local, and the failure is not hidden."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        one.routes = lambda topic, source: [(one.link("b"), *way)] if way else [one.link("b")]
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.failures("a") == 1)
        one.routes = lambda topic, source: [(one.link("b"), 0)]
        one.api.routes_changed()
        stage.publish("a", "t", b"2")
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"2", 0, False)]

    @states("route_message")
    def test_an_algorithm_may_decide_on_each_message(self, make: Make) -> None:
        """Its own clients' and those from neighbours; what goes nowhere stays local; ``$`` topics do."""
        stage = make(MessageProbe)
        probes = [stage.add(name) for name in "abc"]
        for probe in probes:
            assert isinstance(probe, MessageProbe)
            probe.decide = lambda message, source, api=probe.api: [  # type: ignore[misc]
                Via(link, 1) for link in api.links if message.payload.isdigit()
            ]
        stage.link("a", "b")
        stage.link("b", "c")
        stage.until(lambda: probes[0].linked("b") and probes[1].linked("a", "c") and probes[2].linked("b"))
        stage.publish("a", "$private", b"0")
        for payload in (b"no", b"1", b"no", b"2"):
            stage.publish("a", "t", payload, qos=1)
        stage.until(lambda: len(stage.injected("c")) == 2)
        stage.quiet()
        for name in "bc":
            assert stage.injected(name) == [Injected("t", b"1", 1, False), Injected("t", b"2", 1, False)]
        sources = (None, "a", "b")
        for probe, source in zip(probes, sources, strict=True):
            assert isinstance(probe, MessageProbe)
            shown = [(message.payload, message.qos, near) for message, near, _ in probe.shown]
            passed = [(b"1", 1, source), (b"2", 1, source)]
            refused = (b"no", 1, source)
            assert shown == ([refused, passed[0], refused, passed[1]] if source is None else passed)
            assert len({turn for _, _, turn in probe.shown}) == 1
            assert not probe.of("route")

    @states("route_message")
    def test_what_an_algorithm_does_to_a_message_is_its_own_affair(self, make: Make) -> None:
        stage = make(MessageProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, MessageProbe)

        def meddle(message: Publish, source: Link | None) -> Any:
            message.topic, message.payload, message.qos, message.retain = "other", b"2", 0, True
            message.properties[Property.CONTENT_TYPE] = 7
            return [(link, 2) for link in one.api.links]

        one.decide = meddle
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1)
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 1, False)]
        assert not stage.failures("a")

    @states("route_message")
    def test_a_retained_message_is_decided_on_with_its_stamp(self, make: Make) -> None:
        """It may be kept, and transferred later."""
        stage = make(MessageProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, MessageProbe)
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", retain=True)
        stage.until(lambda: one.shown)
        ((message, source, turn),) = one.shown
        stamp = Stamp.of(message)
        assert stamp is not None
        assert (message.retain, stamp.node, source) == (True, "a", None)
        assert one.api.transfer(one.link("b"), message, turn)
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 0, True)]

    @states("transfer")
    def test_an_algorithm_may_transfer_single_messages(self, make: Make) -> None:
        """With their own QoS, whatever packet identifier they have; over a link that has left, nowhere."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        one.api.transfer(link, Publish(topic="t", payload=b"0"))
        one.api.transfer(link, Publish(topic="t", payload=b"1", qos=1))
        one.api.transfer(link, Publish(topic="t", payload=b"2", qos=1, packet_id=7))
        stage.until(lambda: len(stage.injected("b")) == 3)
        assert sorted(stage.injected("b")) == [Injected("t", b"%d" % n, min(n, 1), False) for n in range(3)]
        assert two.of("route") == [("route", "t", False, "a")] * len(two.of("route"))
        assert two.of("route")
        stage.unlink("a", "b")
        stage.until(lambda: one.of("down") and two.of("down"))
        assert not one.api.transfer(link, Publish(topic="t", payload=b"late"))
        stage.quiet()
        assert len(stage.injected("b")) == 3

    @states("transfer", "Link.queued", "Link.queued_bytes")
    def test_the_highest_priority_goes_first(self, make: Make) -> None:
        """Of what waits, which is shown; within one priority the order is kept."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        assert (link.queued, link.queued_bytes) == (0, 0)
        stage.hold("a", "b")
        bulk = [b"%d" % number for number in range(1500)]
        for payload in bulk:  # more than may be under way without an acknowledgement
            assert one.api.transfer(link, Publish(topic="bulk", payload=payload, qos=1), 3)
        assert one.api.transfer(link, Publish(topic="less", qos=1), 3, -8)
        assert one.api.transfer(link, Publish(topic="alarm", qos=1), 3, 7)
        stage.until(lambda: link.queued > 400)
        assert link.queued_bytes > link.queued
        stage.release("a", "b")
        stage.until(lambda: len(stage.injected("b")) == len(bulk) + 2)
        stage.until(lambda: (link.queued, link.queued_bytes) == (0, 0))
        topics = [message.topic for message in stage.injected("b")]
        assert topics.index("alarm") < 1200
        assert topics.index("less") == len(bulk) + 1
        assert [message.payload for message in stage.injected("b") if message.topic == "bulk"] == bulk

    @states("transfer", "on_writable")
    def test_who_transfers_without_end_is_refused(self, make: Make) -> None:
        """And hears of it when there is room again: once, and not within the call."""
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        link = one.link("b")
        message = Publish(topic="t", payload=b"x")
        taken = next(number for number in range(100_000) if not one.api.transfer(link, message, 1))
        assert not one.api.transfer(link, message, 1)
        assert taken > 100
        assert not one.of("writable")
        stage.until(lambda: one.of("writable"))
        assert one.api.transfer(link, message, 1)
        stage.until(lambda: len(stage.injected("b")) == taken + 1)
        stage.quiet()
        assert one.of("writable") == [("writable", "b")]

    @pytest.mark.parametrize("arguments", [(0, 8), (0, -9), (0, "1"), ("1", 0), (0, 0, True)])
    @states("transfer")
    def test_a_wrong_turn_priority_or_stamp_is_refused(self, make: Make, arguments: tuple[Any, ...]) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        turn, priority, *retain = arguments
        with pytest.raises(PluginError):
            one.api.transfer(one.link("b"), Publish(topic="t", retain=bool(retain)), turn, priority)
        assert one.api.transfer(one.link("b"), Publish(topic="t"))
        stage.until(lambda: stage.injected("b"))
        assert len(stage.injected("b")) == 1
