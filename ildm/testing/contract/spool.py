"""What outlives the node: what plugins keep, and what was injected."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ildm.api import NodeStatus, PluginError
from ildm.mqtt import Publish, Version
from ildm.testing.contract.probes import OverlayProbe, stamped
from ildm.testing.contract.stage import Contract, Injected, Make, states


class SpoolContract(Contract):
    """What outlives the node: what plugins keep, and what was injected."""

    @states("keep", "unkeep", "kept")
    def test_what_is_kept_is_found_by_the_next_life(self, make: Make) -> None:
        """In order, with its numbers, until it is given up."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert list(one.api.kept()) == []
        numbers = [one.api.keep(b"%d" % number) for number in range(5)]
        assert None not in numbers
        assert numbers == sorted(set(numbers))  # type: ignore[type-var]
        one.api.unkeep(numbers[1])  # type: ignore[arg-type]
        one.api.unkeep(numbers[1])  # type: ignore[arg-type]
        one.api.unkeep(1 << 40)
        assert list(one.api.kept()) == []
        stage.stop("a")
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)
        again = stage.add("a")
        left = [numbers[0], *numbers[2:]]
        assert list(again.api.kept()) == list(zip(left, [b"0", b"2", b"3", b"4"], strict=True))
        more = again.api.keep(b"more")
        assert more is not None
        assert more > max(number for number in numbers if number is not None)
        for number in left[1:]:
            again.api.unkeep(number)  # type: ignore[arg-type]
        stage.stop("a")
        stage.until(lambda: again.api.status is NodeStatus.STOPPED)
        assert list(stage.add("a").api.kept()) == [(numbers[0], b"0"), (more, b"more")]

    @states("keep")
    def test_what_is_kept_is_bytes(self, make: Make) -> None:
        one = make(OverlayProbe).add("a")
        with pytest.raises(PluginError, match="the data is"):
            one.api.keep("text")  # type: ignore[arg-type]
        assert one.api.keep(b"") is not None

    @states("when_kept")
    def test_what_waits_until_it_is_kept_is_called_in_order(self, make: Make) -> None:
        stage = make(OverlayProbe)
        one = stage.add("a")
        called: list[int] = []
        for number in range(5):
            one.api.keep(b"%d" % number)
            one.api.when_kept(partial(called.append, number))
        stage.until(lambda: len(called) == 5)
        assert called == list(range(5))
        with pytest.raises(PluginError, match="cannot be called"):
            one.api.when_kept(None)  # type: ignore[arg-type]

    @states("inject", "inject_frame", "has_injected")
    def test_a_message_of_one_identity_is_injected_once(self, make: Make) -> None:
        """Whatever becomes of the node in between; others of its origin may come in any order."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        messages = [Publish(topic="t", payload=b"%d" % n, qos=1 + n % 2, packet_id=9) for n in range(6)]
        identities = [("far", 7), ("far", 1 << 63), ("far", 3), ("b", 7), ("far", 8), ("far", 9)]
        assert one.api.has_injected("far", 7) is False
        for message, identity in zip(messages[:3], identities, strict=False):
            assert one.api.inject(message, identity)
            assert not one.api.inject(message, identity)
        for message, identity in zip(messages[3:5], identities[3:], strict=False):
            assert one.api.inject_frame(message.encode(Version.V5), identity)
            assert not one.api.inject_frame(message.encode(Version.V5), identity)
        stage.until(lambda: len(stage.injected("a")) == 5)
        expected = [Injected("t", m.payload, m.qos, False) for m in messages]
        assert sorted(stage.injected("a")) == sorted(expected[:5])
        stage.stop("a")
        stage.until(lambda: one.api.status is NodeStatus.STOPPED)
        again = stage.add("a")
        assert [again.api.has_injected(*identity) for identity in identities] == [True] * 5 + [False]
        came = [again.api.inject(*pair) for pair in zip(messages, identities, strict=True)]
        assert came == [False] * 5 + [True]
        assert again.api.inject(messages[0])
        stage.until(lambda: len(stage.injected("a")) >= 2)
        assert stage.injected("a")[-2:] == [expected[5], expected[0]]

    @states("inject", "has_injected")
    def test_an_old_repetition_does_not_count_as_what_it_repeats(self, make: Make) -> None:
        """Nobody is given it, so that one is still to come, for live subscribers."""
        stage = make(OverlayProbe)
        one = stage.add("a")
        assert one.api.inject(stamped("t", b"new", 20))
        older = ("far", 10)
        assert one.api.inject(stamped("t", b"old", 10, again=True), older)
        assert not one.api.has_injected(*older)
        assert one.api.inject(stamped("t", b"old", 10), older)
        assert one.api.has_injected(*older)
        assert not one.api.inject(stamped("t", b"old", 10), older)
        stage.until(lambda: len(stage.injected("a")) == 2)
        assert [(m.payload, m.retain) for m in stage.injected("a")] == [(b"new", True), (b"old", False)]

    @pytest.mark.parametrize("wrong", [("a",), (1, 1), ("a", "1"), ("a", 0), ("a", (1 << 64) - 1), "a1", 7])
    @states("inject", "inject_frame")
    def test_an_identity_that_is_none_is_refused(self, make: Make, wrong: Any) -> None:
        one = make(OverlayProbe).add("a")
        message = Publish(topic="t", qos=1, packet_id=1)
        with pytest.raises(PluginError, match="the identity is"):
            one.api.inject(message, wrong)
        with pytest.raises(PluginError, match="the identity is"):
            one.api.inject_frame(message.encode(Version.V5), wrong)
