"""Packets that plugins see, and what filters decide about them."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Deferred, PluginError, Reject, Role
from ildm.mqtt import Connect, PacketType, Publish, ReasonCode, Subscription
from ildm.testing.contract.probes import DecidingProbe, LookingProbe
from ildm.testing.contract.stage import SOON, Contract, Injected, Make, Stage, states


class PacketContract(Contract):
    """Packets that plugins see, and what filters decide about them."""

    # packets --------------------------------------------------------------------------------------

    @states("mqtt_message_arrived", "Session.role", "Session.version", "Session.client_id")
    def test_plugins_see_what_they_want(self, make: Make) -> None:
        stage = make(LookingProbe)
        one, two = stage.add("a"), stage.add("b")
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        stage.publish("a", "t", b"1", qos=1)
        stage.publish("a", "t", b"2", qos=1)
        stage.until(lambda: len(two.of("seen")) == 2)
        assert one.of("seen") == [("seen", Role.CLIENT, PacketType.PUBLISH, b"%d" % n) for n in (1, 2)]
        assert two.of("seen") == [("seen", Role.LINK, PacketType.PUBLISH, b"%d" % n) for n in (1, 2)]

    # filters --------------------------------------------------------------------------------------

    def deciding(self, make: Make) -> tuple[Stage, DecidingProbe, DecidingProbe]:
        """Two nodes that are neighbours."""
        stage = make(DecidingProbe)
        one, two = stage.add("a"), stage.add("b")
        assert isinstance(one, DecidingProbe)
        assert isinstance(two, DecidingProbe)
        stage.link("a", "b")
        stage.until(lambda: one.linked("b") and two.linked("a"))
        return stage, one, two

    @states("filter")
    def test_a_filter_checks_and_changes_messages(self, make: Make) -> None:
        """Those of clients and those from neighbours; what is rejected goes nowhere."""
        stage, one, two = self.deciding(make)

        def about_message(message: Publish) -> Any:
            if message.payload in (b"none", b"reject"):
                return None if message.payload == b"none" else Reject(ReasonCode.QUOTA_EXCEEDED, "enough")
            message.payload += b"!"
            return message

        one.about_message = two.about_message = about_message
        for payload in (b"none", b"reject", b"pass"):
            stage.publish("a", "t", payload, qos=1)
        stage.until(lambda: stage.injected("b"))
        stage.quiet()
        assert stage.injected("b") == [Injected("t", b"pass!!", 1, False)]
        assert [payload for _, _, payload in one.of("filter")] == [b"none", b"reject", b"pass"]
        assert two.of("filter") == [("filter", Role.LINK, b"pass!")]

    @states("filter")
    def test_a_filter_may_decide_later(self, make: Make) -> None:
        """What the client sends after the message waits behind it."""
        stage, one, _ = self.deciding(make)
        deferred: list[Deferred[Any]] = []

        def about_message(message: Publish) -> Any:
            if not message.payload.startswith(b"later"):
                return message
            deferred.append(Deferred())
            return deferred[-1]

        one.about_message = about_message
        for payload in (b"1", b"later", b"2", b"later", b"3"):
            stage.publish("a", "t", payload)
        stage.until(lambda: len(deferred) == 1 and stage.injected("b"))
        one.api.call_later(SOON, deferred[0].decide, Reject())
        stage.until(lambda: len(deferred) == 2)
        with pytest.raises(PluginError):
            deferred[0].decide(None)
        one.api.call_later(SOON, deferred[1].decide, None)
        stage.until(lambda: len(stage.injected("b")) == 3)
        assert [message.payload for message in stage.injected("b")] == [b"1", b"2", b"3"]
        assert stage.failures("a") == 0

    @states("filter")
    def test_a_filter_that_answers_nonsense_lets_pass(self, make: Make) -> None:
        """Only what clients send may be deferred."""
        stage, one, two = self.deciding(make)
        one.about_message = lambda message: "text"
        two.about_message = lambda message: Deferred()
        stage.publish("a", "t", b"1")
        stage.until(lambda: stage.injected("b"))
        assert stage.injected("b") == [Injected("t", b"1", 0, False)]
        assert (stage.failures("a"), stage.failures("b")) == (1, 1)

    @states("admit_subscription")
    def test_a_filter_admits_subscriptions(self, make: Make) -> None:
        """Only what is admitted is wanted, as it was admitted."""
        stage = make(DecidingProbe)
        one = stage.add("a")
        assert isinstance(one, DecidingProbe)

        def about_subscription(subscription: Subscription) -> Any:
            if subscription.topic_filter.startswith("no"):
                return Reject(ReasonCode.NOT_AUTHORIZED)
            subscription.qos = min(subscription.qos, 1)
            return subscription

        one.about_subscription = about_subscription
        stage.subscribe("a", "no/#", 1)
        stage.subscribe("a", "yes", 2)
        stage.subscribe("a", "$share/group/yes/too", 0)
        stage.until(lambda: len(one.api.local_interest) == 2)
        stage.quiet()
        assert dict(one.api.local_interest) == {"yes": 1, "yes/too": 0}
        stage.unsubscribe("a", "no/#")
        assert dict(one.api.local_interest) == {"yes": 1, "yes/too": 0}

    @states("admit_client")
    def test_a_filter_admits_clients(self, make: Make) -> None:
        stage, one, _ = self.deciding(make)
        asked: list[str] = []

        def about_client(packet: Connect) -> Any:
            asked.append(packet.client_id)
            return Reject(ReasonCode.BANNED, "not here")

        one.about_client = about_client
        stage.publish("a", "t", b"rejected")
        stage.publish("b", "t", b"admitted")
        stage.until(lambda: stage.injected("a"))
        stage.quiet()
        assert stage.injected("a") == [Injected("t", b"admitted", 0, False)]
        assert stage.injected("b") == []
        assert len(asked) == 1
