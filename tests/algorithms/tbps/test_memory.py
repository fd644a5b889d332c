"""What a node knows after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import PluginError
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.memory import HEARD, SHELVES, Memory
from tests.algorithms.tbps.clock import FakeApi


def memory_of(api: Any, **options: Any) -> Memory:
    return Memory(api, SgTbps.Config(**options), api.count)


def next_life(api: FakeApi, away: float, **options: Any) -> tuple[Any, Memory]:
    """The node is killed, and back after some seconds."""
    other: Any = FakeApi()
    other.run(api.now() + away)
    other.state = api.state
    memory = memory_of(other, **options)
    memory.load()
    return other, memory


def test_since_when_a_filter_is_wanted_outlives_a_crash() -> None:
    api: Any = FakeApi()
    api.run(100)
    memory = memory_of(api)
    memory.wanted("a/b", 90.0)
    memory.wanted("c", 95.0)
    memory.wanted("d", 96.0)
    memory.unwanted("c")
    api.run(2)
    later, memory = next_life(api, 10.0)
    assert memory.wanted_since("a/b") == pytest.approx(90.0)
    assert memory.wanted_since("c") is None
    memory.started()
    later.run(2)
    _, memory = next_life(later, 10.0)
    assert memory.wanted_since("a/b") == pytest.approx(90.0)
    assert memory.wanted_since("d") is None  # it had not come back


def test_what_came_before_is_told_from_what_did_not() -> None:
    api: Any = FakeApi()
    memory = memory_of(api)
    memory.heard("far", 1_000)
    memory.heard("far", 998)
    memory.look(settled=True)
    memory.heard("far", 1_001)  # perhaps of a graph that has just merged
    api.run(10)
    memory.look(settled=True)
    later, memory = next_life(api, 10.0)
    assert memory.came_before("far", 1_000)
    assert memory.came_before("far", 1)
    assert not memory.came_before("far", 1_001)
    assert not memory.came_before("near", 1_000)
    assert not memory.came_before("far", 1_000 - (1 << 40))  # of another life
    later.run(8 * 86_400)
    assert not memory.came_before("far", 1_000)  # nobody keeps it


def test_while_something_is_missing_nothing_is_taken_for_heard() -> None:
    api: Any = FakeApi()
    memory = memory_of(api)
    memory.heard("far", 10)
    memory.look(settled=True)
    memory.look(settled=True)
    saved = api.state[HEARD]
    memory.heard("far", 20)
    memory.look(settled=False)
    memory.look(settled=True)
    assert api.state[HEARD] == saved
    memory.leave(settled=False)
    assert api.state[HEARD] == saved
    memory.leave(settled=True)
    assert api.state[HEARD] != saved


def test_what_is_remembered_is_bounded() -> None:
    api: Any = FakeApi()
    memory = memory_of(api, remembered_filters=3, remembered_origins=2)
    for number in range(5):
        memory.wanted(f"f/{number}", 0.0)
        memory.heard(f"n{number}", 1)
    memory.heard("n3", 2)
    memory.unwanted("f/0")
    memory.wanted("f/9", 0.0)
    api.run(2)
    memory.leave(settled=True)
    assert api.counters == {"filters_not_remembered": 2, "origins_not_remembered": 3}
    _, memory = next_life(api, 1.0, remembered_filters=3, remembered_origins=2)
    known = [name for name in ("f/0", "f/1", "f/2", "f/3", "f/9") if memory.wanted_since(name) is not None]
    assert known == ["f/1", "f/2", "f/9"]
    assert not memory.came_before("n2", 1)
    assert memory.came_before("n3", 2)


@pytest.mark.parametrize("damage", [b"", b"1234567", b"12345678\0\x07abc"])
def test_a_damaged_state_is_no_state(damage: bytes) -> None:
    api: Any = FakeApi()
    api.state[HEARD] = damage
    for number in range(SHELVES):
        api.state[f"tbps.wanted.{number}"] = damage or b"x"
    memory = memory_of(api)
    memory.load()
    assert memory.wanted_since("a") is None
    assert not memory.came_before("far", 0)


class FullState(dict[str, bytes]):
    """A state with ``limits.plugin_state_bytes`` in use."""

    def __setitem__(self, key: str, value: bytes) -> None:
        raise PluginError("no room")


def test_a_state_without_room_is_told() -> None:
    api: Any = FakeApi()
    api.state = FullState()
    memory = memory_of(api)
    memory.wanted("a", 0.0)
    memory.heard("far", 1)
    api.run(2)
    memory.leave(settled=True)
    assert api.counters["memory_full"] == 2
    assert {fields["reason"] for _, fields in api.logged} == {"no room"}
