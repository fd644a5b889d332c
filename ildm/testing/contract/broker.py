"""The local broker, and sessions of a plugin's own."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import STAMP_PROPERTY, PluginError, Role, SessionStatus, Stamp
from ildm.mqtt import PacketType, PingReq, Property, Publish, Version
from ildm.testing.contract.probes import OverlayProbe, TreeProbe, stamped
from ildm.testing.contract.stage import Contract, Injected, Make, states


class BrokerContract(Contract):
    """The local broker, and sessions of a plugin's own."""

    # the local broker -----------------------------------------------------------------------------

    @states("inject")
    def test_injected_messages_go_to_the_local_broker_only(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(Publish(topic="t", payload=b"0"))
        one.api.inject(Publish(topic="t", payload=b"1", qos=1, packet_id=9))
        stage.until(lambda: len(stage.injected("a")) == 2)
        assert sorted(stage.injected("a")) == [Injected("t", b"%d" % n, n, False) for n in range(2)]
        assert not one.published
        assert not one.of("route")

    @states("inject_frame")
    def test_frames_are_injected_as_the_messages_they_are(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        properties = {Property.CONTENT_TYPE: "text"}
        messages = [
            Publish(topic="t", payload=b"0"),
            Publish(topic="t", payload=b"1", qos=1, packet_id=9),
            Publish(topic="t", payload=b"2" * 300, qos=2, packet_id=9, dup=True),
            Publish(topic="t", payload=b"3", properties=properties),
            stamped("t", b"4", 20),
        ]
        for message in messages:
            one.api.inject_frame(message.encode(Version.V5))
        stage.until(lambda: len(stage.injected("a")) == len(messages))
        expected = [Injected(m.topic, m.payload, m.qos, m.retain) for m in messages]
        assert sorted(stage.injected("a")) == sorted(expected)
        one.api.inject_frame(stamped("t", b"older", 10, again=True).encode(Version.V5))
        one.api.inject_frame(messages[0].encode(Version.V5))
        stage.until(lambda: len(stage.injected("a")) > len(messages))
        assert sorted(stage.injected("a")) == sorted([*expected, expected[0]])

    @states("injections")
    def test_what_the_broker_has_of_what_it_was_given_is_counted(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert one.api.injections == (0, 0)
        for qos in range(3):
            one.api.inject(Publish(topic="t", qos=qos, packet_id=1 if qos else None))
        one.api.inject_frame(Publish(topic="t", qos=1, packet_id=9).encode(Version.V5))
        assert one.api.injections.given == 4
        stage.until(lambda: one.api.injections.taken == len(stage.injected("a")) == 4)
        assert one.api.injections.given == 4

    @pytest.mark.parametrize(
        "wrong",
        [
            b"", b"0", b"\x30\x03\0\0\0", b"\x30\x05\0\1t\0", b"\x30\x04\0\1t\0\0", b"\x30\x03\0\1t",
            b"\x32\x06\0\1t\0\0\0", b"\x30\x04\0\1#\0", b"\x30\x04\0\1\xff\0", b"\x30\x05\0\2$t\0",
            b"\x30\x84\0\0\1t\0", b"\xc0\0", "text",
        ],
    )  # fmt: skip
    @states("inject_frame")
    def test_wrong_frames_are_refused(self, make: Make, wrong: Any) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        for _ in range(2):
            with pytest.raises(PluginError):
                one.api.inject_frame(wrong)
        one.api.inject_frame(b"\x30\x04\0\1t\0")
        stage.until(lambda: stage.injected("a"))
        assert stage.injected("a") == [Injected("t", b"", 0, False)]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"payload": "text"}, {"topic": b"t"}, {"topic": "a/+"}, {"topic": ""}, {"topic": "$SYS/x"},
            {"qos": 9}, {"properties": {Property.MESSAGE_EXPIRY_INTERVAL: -1}},
            {"properties": {Property.TOPIC_ALIAS: 1}},
        ],
    )  # fmt: skip
    @states("inject", "transfer")
    def test_wrong_messages_are_refused(self, make: Make, wrong: dict[str, Any]) -> None:
        stage = make(TreeProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        message = Publish(**{"topic": "t", **wrong})
        with pytest.raises(PluginError):
            one.api.inject(message)
        with pytest.raises(PluginError):
            one.api.transfer(one.link("b"), message)
        one.api.inject(Publish(topic="t"))
        one.api.transfer(one.link("b"), Publish(topic="t"))
        stage.until(lambda: stage.injected("a") and stage.injected("b"))
        assert stage.injected("a") == stage.injected("b") == [Injected("t", b"", 0, False)]

    @states("inject", "retained")
    def test_the_newest_retained_message_wins(self, make: Make) -> None:
        """An older one is for live subscribers, its repetition for nobody; the very same is not again."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(stamped("t", b"new", 20))
        one.api.inject(stamped("t", b"old", 10))
        one.api.inject(stamped("t", b"old again", 9, again=True))
        one.api.inject(stamped("t", b"new", 20))
        one.api.inject(stamped("t", b"new", 20, again=True))
        one.api.inject(stamped("t", b"newer", 21, again=True))
        stage.until(lambda: len(stage.injected("a")) == 3)
        stage.quiet()
        assert sorted(stage.injected("a")) == [
            Injected("t", b"new", 0, True),
            Injected("t", b"newer", 0, True),
            Injected("t", b"old", 0, False),
        ]
        (known,) = one.api.retained("t")
        assert (known.payload, Stamp.of(known)) == (b"newer", Stamp(21, "far"))

    @states("inject", "retained")
    def test_the_stamp_is_between_nodes(self, make: Make) -> None:
        """Another user property of the message stays."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        message = stamped("t", b"x", 20)
        message.properties[Property.USER_PROPERTY].append(("mine", "1"))
        given = list(message.properties[Property.USER_PROPERTY])
        one.api.inject(message)
        (known,) = one.api.retained("t")
        assert ("mine", "1") in known.properties[Property.USER_PROPERTY]
        assert message.properties[Property.USER_PROPERTY] == given  # the caller's is not touched

    @states("inject", "retained")
    def test_an_unstamped_retained_message_ends_what_is_known(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        one.api.inject(stamped("t", b"x", 20))
        one.api.inject(Publish(topic="t", payload=b"from elsewhere", retain=True))
        stage.until(lambda: len(stage.injected("a")) == 2)
        assert stage.injected("a")[-1] == Injected("t", b"from elsewhere", 0, True)
        assert list(one.api.retained("#")) == []

    @states("retained")
    def test_a_filter_that_is_none_is_refused(self, make: Make) -> None:
        one = make(OverlayProbe).add("a")
        for wrong in ("a/#/b", "", b"a"):
            with pytest.raises(PluginError):
                one.api.retained(wrong)  # type: ignore[arg-type]

    @states("retained")
    def test_what_is_retained_is_told_as_a_repetition(self, make: Make) -> None:
        """The oldest first, deletions among it, whole seconds of expiry rounded up; a client cannot stamp."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert list(one.api.retained("#")) == []
        stage.publish("a", "x/1", b"1", retain=True, expiry=100)
        stage.publish("a", "x/2", b"2", retain=True)
        stage.publish("a", "y", b"3", retain=True)
        stage.publish("a", "x/2", b"", retain=True)
        stage.publish("a", "live", b"4")
        stage.until(lambda: len(one.published) == 5)
        found = one.api.retained("x/+")
        assert [(m.topic, m.payload, m.retain) for m in found] == [("x/1", b"1", True), ("x/2", b"", True)]
        assert [m.topic for m in one.api.retained("#")] == ["x/1", "y", "x/2"]
        assert [m.topic for m in one.api.retained("y")] == ["y"]
        for message in one.api.retained("#"):
            (pair,) = message.properties[Property.USER_PROPERTY]
            stamp, repeated = Stamp.parse(pair[1])
            assert stamp is not None
            assert (pair[0], stamp.node, repeated) == (STAMP_PROPERTY, "a", True)
        left = found[0].properties[Property.MESSAGE_EXPIRY_INTERVAL]
        assert left == 100 or 0 < left < 100  # the ceiling of what is left

    @states("retained_topics")
    def test_topics_of_retained_messages_are_told_with_their_stamps(self, make: Make) -> None:
        """Deletions among them; what happens while they are looked at does no harm."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert list(one.api.retained_topics()) == []
        for number in range(50):
            one.api.inject(stamped(f"t/{number}", b"x", 20 + number))
        one.api.inject(stamped("gone", b"", 90))
        found = dict(one.api.retained_topics())
        assert found == {f"t/{number}": Stamp(20 + number, "far") for number in range(50)} | {
            "gone": Stamp(90, "far")
        }
        topics = one.api.retained_topics()
        seen = {next(topics)[0]}
        for number in range(50):
            one.api.inject(stamped(f"t/{number}", b"", 200))
            one.api.inject(stamped(f"more/{number}", b"x", 200))
        seen |= {topic for topic, _ in topics}
        assert {*found} <= seen

    # sessions of the plugin's own -----------------------------------------------------------------

    @states("create_session", "send_message", "close_session", "get_paired_session", "on_session_established",
            "on_session_closed", "Session.role", "Session.status", "Session.peer", "Session.id")  # fmt: skip
    def test_a_session_from_its_creation_to_its_end(self, make: Make) -> None:
        stage = make(TreeProbe)
        one = stage.add("a")
        peer, received, _ = stage.listener()
        host, _, port = peer.address.rpartition(":")
        session, other = (one.api.create_session(host, int(port)) for _ in range(2))
        assert (session.role, session.status) == (Role.PEER, SessionStatus.CLOSED)
        assert session.id != other.id
        assert not one.api.send_message(session, b"\xc0\x00")
        stage.until(lambda: len(one.of("established")) == 2)
        assert ("established", session, SessionStatus.ESTABLISHED) in one.heard
        assert session.peer == peer.address
        assert one.api.get_paired_session(session) is None
        assert one.api.send_message(session, one.api.create_mqtt_message(PacketType.PINGREQ))
        one.api.close_session(session)
        assert not one.api.send_message(session, b"\xc0\x00")
        stage.until(lambda: one.of("closed"))
        assert one.of("closed") == [("closed", session, SessionStatus.CLOSED)]
        assert not one.of("tcp down")
        stage.until(received)
        assert received() == [PingReq()]

    @states("create_session", "on_tcp_down", "on_session_closed", "on_recv_failure")
    def test_what_may_happen_to_a_session(self, make: Make) -> None:
        """It cannot be made, or what comes cannot be understood."""
        stage = make(TreeProbe)
        one = stage.add("a")
        peer, _, send = stage.listener()
        host, _, port = peer.address.rpartition(":")
        session = one.api.create_session(host, int(port))
        stage.until(lambda: one.of("established"))
        send(b"\x00\x00")
        stage.until(lambda: one.of("closed"))
        assert one.of("recv failure") == [("recv failure", session)]
        nobody = one.api.create_session(host, 1)
        stage.until(lambda: one.of("tcp down"))
        assert one.of("tcp down") == [("tcp down", nobody, SessionStatus.CLOSED)]
        assert len(one.of("established")) == 1

    @pytest.mark.parametrize("address", [("", 1), ("host", 0), ("host", 65_536), ("host", "1"), (None, 1)])
    @states("create_session")
    def test_an_address_that_is_none_is_refused(self, make: Make, address: Any) -> None:
        one = make(TreeProbe).add("a")
        with pytest.raises(PluginError):
            one.api.create_session(*address)
