"""What the simulator bounds of a plugin as the node does, and what outlives a simulated node."""

from __future__ import annotations

import pytest

from ildm.api import PluginError, TreeAlgorithm
from ildm.testing import PluginWorld
from ildm.testing import node as sim


class Quiet(TreeAlgorithm):
    """Uses what it is told to use."""


def test_state_survives_a_kill() -> None:
    """Each node has its own."""
    world = PluginWorld(Quiet)
    first, other = world.add("a"), world.add("b")
    first.state["k"] = b"1"
    other.state["k"] = b"2"
    world.kill("a", silent=True)
    assert dict(world.add("a").state) == {"k": b"1"}
    assert dict(other.state) == {"k": b"2"}


def test_timers_and_work_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = sim.LIMITS.model_copy(update={"plugin_timers": 2, "plugin_offloads": 1})
    monkeypatch.setattr(sim, "LIMITS", limits)
    world = PluginWorld(Quiet)
    node = world.add("a")
    heard: list[object] = []
    timers = [node.call_later(1, heard.append, number) for number in range(2)]
    with pytest.raises(PluginError, match=r"limits\.plugin_timers"):
        node.call_later(0, heard.append, "no")
    timers[0].cancel()
    timers[0].cancel()
    node.call_later(2, heard.append, "late")
    with pytest.raises(PluginError):
        node.call_later(0, heard.append, "no")
    node.offload(lambda: "work", heard.append)
    with pytest.raises(PluginError, match=r"limits\.plugin_offloads"):
        node.offload(lambda: "no", heard.append)
    world.run()
    assert heard == ["work", 1, "late"]
    assert (node.timers, node.offloads) == (0, 0)
    node.offload(lambda: "work", heard.append)
    node.call_later(0, heard.append, "timer")
    world.kill("a")
    world.run()
    assert len(heard) == 3  # the dead hear nothing
