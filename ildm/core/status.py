"""Status transitions of a node (thesis Fig. 5.4) as a table."""

from __future__ import annotations

from ildm.api import NodeStatus

TRANSITIONS: dict[tuple[NodeStatus, str], NodeStatus] = {
    (NodeStatus.STOPPED, "start"): NodeStatus.RUNNING,
    (NodeStatus.RUNNING, "add"): NodeStatus.ILDM_ADDING,
    (NodeStatus.RUNNING, "remove"): NodeStatus.ILDM_REMOVING,
    (NodeStatus.RUNNING, "stop"): NodeStatus.STOPPED,
    (NodeStatus.ILDM_ADDING, "done"): NodeStatus.RUNNING,
    (NodeStatus.ILDM_ADDING, "stop"): NodeStatus.STOPPED,
    (NodeStatus.ILDM_REMOVING, "done"): NodeStatus.RUNNING,
    (NodeStatus.ILDM_REMOVING, "stop"): NodeStatus.STOPPED,
}


class NodeState:
    """The status, and how many additions and removals are under way at once.

    The figure knows one change at a time; further ones that overlap it wait for their turn to be
    shown: the status stays in the first one's until that is done.
    """

    def __init__(self) -> None:
        self.status = NodeStatus.STOPPED
        self._under_way: list[str] = []

    def start(self) -> None:
        self._step("start")

    def stop(self) -> None:
        self._under_way.clear()
        self._step("stop")

    def begin(self, change: str) -> None:
        """``change`` is ``add`` or ``remove``."""
        self._under_way.append(change)
        if len(self._under_way) == 1:
            self._step(change)

    def done(self, change: str) -> None:
        """A change has ended; one that was not begun (or was cut off by a stop) is ignored."""
        if change not in self._under_way:
            return
        shown = self._under_way[0]
        self._under_way.remove(change)
        if not self._under_way:
            self._step("done")
        elif self._under_way[0] != shown:
            self._step("done")
            self._step(self._under_way[0])

    def _step(self, event: str) -> None:
        self.status = TRANSITIONS.get((self.status, event), self.status)
