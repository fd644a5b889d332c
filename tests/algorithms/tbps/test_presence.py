"""What a node knows after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import PluginError
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.presence import RECEIVED, SHELVES, Presence
from tests.algorithms.fake_api import FakeApi


def memory_of(api: Any, **options: Any) -> Presence:
    return Presence(api, SgTbps.Config(**options), api.count)


def next_life(api: FakeApi, away: float, **options: Any) -> tuple[Any, Presence]:
    """The node is killed, and back after some seconds."""
    other: Any = FakeApi()
    other.run(api.now() + away)
    other.state = api.state
    presence = memory_of(other, **options)
    presence.load()
    return other, presence


def test_since_when_a_filter_is_wanted_outlives_a_crash() -> None:
    api: Any = FakeApi()
    api.run(100)
    presence = memory_of(api)
    presence.subscribed("a/b", 90.0)
    presence.subscribed("c", 95.0)
    presence.subscribed("d", 96.0)
    presence.unsubscribed("c")
    api.run(2)
    later, presence = next_life(api, 10.0)
    assert presence.subscribed_since("a/b") == pytest.approx(90.0)
    assert presence.subscribed_since("c") is None
    presence.started()
    later.run(2)
    _, presence = next_life(later, 10.0)
    assert presence.subscribed_since("a/b") == pytest.approx(90.0)
    assert presence.subscribed_since("d") is None  # it had not come back


def test_what_came_before_is_told_from_what_did_not() -> None:
    api: Any = FakeApi()
    presence = memory_of(api)
    presence.received("far", 1_000)
    presence.received("far", 998)
    presence.look(settled=True)
    presence.received("far", 1_001)  # perhaps of a graph that has just merged
    api.run(10)
    presence.look(settled=True)
    later, presence = next_life(api, 10.0)
    assert presence.came_before("far", 1_000)
    assert presence.came_before("far", 1)
    assert not presence.came_before("far", 1_001)
    assert not presence.came_before("near", 1_000)
    assert not presence.came_before("far", 1_000 - (1 << 40))  # of another life
    later.run(8 * 86_400)
    assert not presence.came_before("far", 1_000)  # nobody keeps it


def test_while_something_is_missing_nothing_is_taken_for_received() -> None:
    api: Any = FakeApi()
    presence = memory_of(api)
    presence.received("far", 10)
    presence.look(settled=True)
    presence.look(settled=True)
    saved = api.state[RECEIVED]
    presence.received("far", 20)
    presence.look(settled=False)
    presence.look(settled=True)
    assert api.state[RECEIVED] == saved
    presence.leave(settled=False)
    assert api.state[RECEIVED] == saved
    presence.leave(settled=True)
    assert api.state[RECEIVED] != saved


def test_what_is_remembered_is_bounded() -> None:
    api: Any = FakeApi()
    presence = memory_of(api, remembered_filters=3, remembered_origins=2)
    for number in range(5):
        presence.subscribed(f"f/{number}", 0.0)
        presence.received(f"n{number}", 1)
    presence.received("n3", 2)
    presence.unsubscribed("f/0")
    presence.subscribed("f/9", 0.0)
    api.run(2)
    presence.leave(settled=True)
    assert api.counters == {"filters_not_remembered": 2, "origins_not_remembered": 3}
    _, presence = next_life(api, 1.0, remembered_filters=3, remembered_origins=2)
    known = [
        name for name in ("f/0", "f/1", "f/2", "f/3", "f/9") if presence.subscribed_since(name) is not None
    ]
    assert known == ["f/1", "f/2", "f/9"]
    assert not presence.came_before("n2", 1)
    assert presence.came_before("n3", 2)


@pytest.mark.parametrize("damage", [b"", b"1234567", b"12345678\0\x07abc"])
def test_a_damaged_state_is_no_state(damage: bytes) -> None:
    api: Any = FakeApi()
    api.state[RECEIVED] = damage
    for number in range(SHELVES):
        api.state[f"tbps.wanted.{number}"] = damage or b"x"
    presence = memory_of(api)
    presence.load()
    assert presence.subscribed_since("a") is None
    assert not presence.came_before("far", 0)


class FullState(dict[str, bytes]):
    """A state with ``limits.plugin_state_bytes`` in use."""

    def __setitem__(self, key: str, value: bytes) -> None:
        raise PluginError("no room")


def test_a_state_without_room_is_told() -> None:
    api: Any = FakeApi()
    api.state = FullState()
    presence = memory_of(api)
    presence.subscribed("a", 0.0)
    presence.received("far", 1)
    api.run(2)
    presence.leave(settled=True)
    assert api.counters["memory_full"] == 2
    assert {fields["reason"] for _, fields in api.logged} == {"no room"}
