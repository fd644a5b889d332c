"""Status transitions of nodes (thesis Fig. 5.4): every status x every input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ildm.api import NodeStatus
from ildm.core.status import TRANSITIONS, NodeState

FIGURE_5_4 = {
    (NodeStatus.STOPPED, NodeStatus.RUNNING),
    (NodeStatus.RUNNING, NodeStatus.ILDM_ADDING),
    (NodeStatus.RUNNING, NodeStatus.ILDM_REMOVING),
    (NodeStatus.ILDM_ADDING, NodeStatus.RUNNING),
    (NodeStatus.ILDM_REMOVING, NodeStatus.RUNNING),
    (NodeStatus.RUNNING, NodeStatus.STOPPED),
}


def test_the_table_has_the_edges_of_the_figure() -> None:
    edges = {(before, after) for (before, _), after in TRANSITIONS.items()}
    assert edges >= FIGURE_5_4
    # beyond the figure: a node may be stopped while it adds or removes
    assert edges - FIGURE_5_4 == {
        (NodeStatus.ILDM_ADDING, NodeStatus.STOPPED),
        (NodeStatus.ILDM_REMOVING, NodeStatus.STOPPED),
    }


@given(st.lists(st.sampled_from(["start", "stop", "add", "remove", "added", "removed"]), max_size=30))
def test_any_input_in_any_status_follows_the_table(inputs: list[str]) -> None:
    state = NodeState()
    open_changes: list[str] = []
    for name in inputs:
        running = state.status is not NodeStatus.STOPPED
        match name:
            case "start":
                state.start()
            case "stop":
                state.stop()
                open_changes.clear()
            case "add" | "remove" if running:
                state.begin(name)
                open_changes.append(name)
            case "added" | "removed":
                change = "add" if name == "added" else "remove"
                state.done(change)
                if change in open_changes:
                    open_changes.remove(change)
        if state.status is NodeStatus.RUNNING:
            assert not open_changes
        elif state.status is NodeStatus.ILDM_ADDING:
            assert "add" in open_changes
        elif state.status is NodeStatus.ILDM_REMOVING:
            assert "remove" in open_changes
