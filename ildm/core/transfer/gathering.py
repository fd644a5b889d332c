"""Messages of different topics that go the same way, gathered from one chunk and sent as one batch.

A gateway publishes on many topics in turn: hardly two frames in a row are alike, and there are no runs
(:mod:`ildm.core.frames`). What a message costs on its way through router, custody, injector and sender is
paid once here for all that follow each other and have the same route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.transfer.batch import Batch
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.core.transfer.watch import LOCAL

if TYPE_CHECKING:
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.ports import Neighbor, Targets
    from ildm.core.transfer.receipt import Holdable
    from ildm.core.transfer.router import Router

MOST = 4096
"""Messages that are gathered; so many identifiers are far below 65536."""
MOST_BYTES = 128 << 10


class Gathering:
    """What was gathered; sent at the end of a chunk, and before anything else is transferred."""

    __slots__ = (
        "_bytes",
        "_count",
        "_frames",
        "_holder",
        "_inbound",
        "_index",
        "_neighbor",
        "_origin",
        "_qos",
        "_route",
        "_router",
        "_since",
        "_size",
    )

    def __init__(self, router: Router) -> None:
        self._router = router
        self._frames: list[bytes] = []
        self._count = self._bytes = self._size = self._index = self._qos = 0
        self._route: Targets = ()
        self._holder: Holdable | None = None
        self._neighbor: Neighbor | None = None
        self._inbound: Inbound | None = None
        self._origin = UNKNOWN
        self._since: float | None = None

    @property
    def idle(self) -> bool:
        """Nothing was gathered."""
        return not self._frames

    def add(
        self,
        route: Targets,
        frames: bytes,
        size: int,
        count: int,
        index: int,
        holder: Holdable | None,
        neighbor: Neighbor | None = None,
        inbound: Inbound | None = None,
        origin: Origin = UNKNOWN,
        since: float | None = None,
    ) -> None:
        """Take ``count`` frames, of one topic and ``size`` bytes each, as those of a :class:`Batch`.

        They are from a local client, or from a ``neighbor``: see :meth:`Router.arrived`.
        """
        recorder = self._router.recorder
        if recorder is not None:
            recorder.run("received", LOCAL if neighbor is None else neighbor.node_id, frames, size)
        qos = frames[0]
        if self._frames:
            if (
                route is self._route
                and qos == self._qos
                and holder is self._holder
                and neighbor is self._neighbor
                and self._count + count <= MOST
                and self._bytes + len(frames) <= MOST_BYTES
                and (inbound is None or self._goes_on(origin))
            ):
                self._frames.append(frames)
                self._count += count
                self._bytes += len(frames)
                self._size = 0
                if since is not None:
                    self._since = since  # all have come in one chunk
                return
            self.send()
        self._frames.append(frames)
        self._count, self._bytes, self._size, self._index = count, len(frames), size, index
        self._route, self._holder, self._neighbor, self._qos = route, holder, neighbor, qos
        self._inbound, self._origin, self._since = inbound, origin, since

    def _goes_on(self, origin: Origin) -> bool:
        """Whether messages are the next ones after those gathered, by who they are."""
        identity, before = origin.identity, self._origin.identity
        if identity is None or before is None:
            return identity is before
        if origin.reroute_id is not None or self._origin.reroute_id is not None:
            return False
        return identity.number == before.number + self._count and identity.origin == before.origin

    def send(self) -> None:
        """Send what there is."""
        gathered = self._frames
        if not gathered:
            return
        self._frames = []
        route, holder, neighbor, inbound = self._route, self._holder, self._neighbor, self._inbound
        self._holder = self._neighbor = self._inbound = None
        frames = gathered[0] if len(gathered) == 1 else b"".join(gathered)
        batch = Batch(frames, self._count, self._size, self._since)
        router = self._router
        custody = router.custody
        if neighbor is None:
            if route:
                router.forward(route, batch, self._index, holder)
        elif inbound is not None and custody is not None:
            router.take(custody, neighbor, batch, self._index, inbound, self._origin, route)
        else:
            router.arrived(neighbor, batch, self._index, inbound, self._origin, route)
