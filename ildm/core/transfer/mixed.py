"""Messages of QoS 0 with different topics that go the same way, gathered from one chunk and sent at once.

A gateway publishes on many topics in turn: hardly two frames in a row are alike, and there are no runs
(:mod:`ildm.core.frames`). What a frame costs on its way through router, injector and sender is paid once here
for all that follow each other and have the same route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.transfer.ports import LocalBroker, Neighbor, Targets
    from ildm.core.transfer.receipt import Holdable


class Mixed:
    """What was gathered; sent at the end of a chunk, and before anything else is transferred."""

    __slots__ = (
        "_count",
        "_frames",
        "_holder",
        "_index",
        "_largest",
        "_neighbor",
        "_route",
        "counters",
        "injector",
    )

    def __init__(self, counters: Counters, injector: LocalBroker) -> None:
        self.counters = counters
        self.injector = injector
        self._frames: list[bytes] = []
        self._count = self._largest = self._index = 0
        self._route: Targets = ()
        self._holder: Holdable | None = None
        self._neighbor: Neighbor | None = None

    def add(
        self,
        route: Targets,
        frames: bytes,
        size: int,
        count: int,
        index: int,
        holder: Holdable | None,
        neighbor: Neighbor | None,
    ) -> None:
        """Take ``count`` MQTT 5 frames of QoS 0 without properties, of one topic and ``size`` bytes each.

        From a ``neighbor`` they go into the local broker, too; those of a local client it has already.
        """
        if self._frames:
            if route is self._route and holder is self._holder and neighbor is self._neighbor:
                self._frames.append(frames)
                self._count += count
                self._largest = max(self._largest, size)
                return
            self.send()
        self._frames.append(frames)
        self._count, self._largest, self._index = count, size, index
        self._route, self._holder, self._neighbor = route, holder, neighbor

    def send(self) -> None:
        """Send what there is."""
        gathered = self._frames
        if not gathered:
            return
        self._frames = []
        count, largest, index = self._count, self._largest, self._index
        route, holder, neighbor = self._route, self._holder, self._neighbor
        self._holder = self._neighbor = None
        frames = gathered[0] if len(gathered) == 1 else b"".join(gathered)
        if neighbor is not None:
            neighbor.transferred_in += count
            self.counters["transferred_in"] += count
            self.injector.send_mixed(frames, count, largest, index)
        if not route:
            return
        self.counters["transferred_out"] += count * len(route)
        for link, _, priority in route:
            link.senders[index % len(link.senders)].send_mixed(frames, count, largest, holder, priority)
