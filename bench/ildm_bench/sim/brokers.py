"""Brokers as servers with queues, the same under OctopiA and PADRES: one event for each copy of a message.

The plugin in `ildm.testing.PluginWorld` does more (acknowledgements, liveness, wire formats) and is many
times slower. Here go 10^7 copies; tests hold the copies of both to each other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from ildm_algorithms.octopia.grid.scot import Grid, Place, View

EDGES = ("A-F", "B-F", "C-F", "D-G", "E-G", "F-G", "G-H", "H-I", "J-H", "K-H", "L-I", "M-I", "N-I")
"""Fourteen regions: F, G, H and I are inner ones. Which edge brokers each has the paper does not say."""
CLUSTERS = 4


def whole_grid(edges: tuple[str, ...] = EDGES, clusters: int = CLUSTERS) -> Grid:
    """The paper's overlay: a broker ``A0`` at each place."""
    names = [str(index) for index in range(clusters)]
    labels = sorted({label for edge in edges for label in edge.split("-")})
    return Grid(edges, names, {f"{label}{name}": Place(label, name) for label in labels for name in names})


def neighbors(grid: Grid) -> dict[str, list[str]]:
    """Of each broker, all it has links to."""
    views = [View(grid, node_id) for node_id in grid.members]
    return {view.node_id: [*view.primary.values(), *view.secondary.values()] for view in views}


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in seconds. None of them is stated in the paper."""

    hop: float = 0.001
    """From one broker to another, on average."""
    exponential: bool = True
    """The time of a hop is drawn anew for each message; else it is always the same."""
    matching: float = 0.001
    """For a message at each broker."""
    prt_row: float = 0.4e-6
    """More of it for each row of the PRT that is searched."""
    srt_row: float = 0.4e-6
    """The same of the SRT or CLT."""
    sending: float = 0.0005
    """For each copy."""
    shared: bool = True
    """The links of a broker send in turn; else each by itself."""
    serial: bool = True
    """A broker searches for one message at a time; else for as many as there are, and it is a delay alone."""


class Selection(NamedTuple):
    """What a broker looked at for one message."""

    table: int
    """Rows of the table that is matched."""
    rows: int
    """Rows it looked at to find the next destinations among those that match."""
    links: int
    """Whose queues it asked for."""
    host: bool
    """A client of its own wants the message."""


class Links:
    """Carries messages between brokers in virtual time, in order on each link.

    Attributes:
        sent: messages by kind, which is what a message begins with.
        ahead: messages that were in a queue when another was put into it, in sum.
        now: seconds.
    """

    def __init__(self, costs: Costs, random: Random) -> None:
        self.costs = costs
        self.random = random
        self.now = 0.0
        self.sent: Counter[str] = Counter()
        self.ahead = 0
        self._heap: list[tuple[float, int, Any, Any, Any]] = []
        self._sequence = 0
        self._busy: dict[str, float] = {}
        self._free: dict[Any, float] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._departures: dict[tuple[str, str], deque[float]] = {}

    def post(self, at: float, call: Callable[[float], None]) -> None:
        """Something that begins at a broker itself: ``call(time)``."""
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, None, None, call))

    def send(self, sender: str, to: str, at: float, message: tuple[Any, ...], payload: float = 1.0) -> None:
        """A broker that is done with a message at ``at`` puts a copy into an output queue; it takes
        ``payload`` times as long as any copy to be sent."""
        costs = self.costs
        link = (sender, to)
        server = sender if costs.shared else link
        departure = max(at, self._free.get(server, 0.0)) + costs.sending * payload
        self._free[server] = departure
        waiting = self._departures.get(link)
        if waiting is None:
            waiting = self._departures[link] = deque()
        while waiting and waiting[0] <= at:
            waiting.popleft()
        self.ahead += len(waiting)
        waiting.append(departure)
        hop = self.random.expovariate(1 / costs.hop) if costs.exponential else costs.hop
        arrival = self._last[link] = max(departure + hop, self._last.get(link, 0.0))
        self.sent[message[0]] += 1
        self._sequence += 1
        heappush(self._heap, (arrival, self._sequence, to, sender, message))

    def queued(self, sender: str, to: str, at: float) -> int:
        """Copies in an output queue that have not been sent by then."""
        waiting = self._departures.get((sender, to))
        if waiting is None:
            return 0
        while waiting and waiting[0] <= at:
            waiting.popleft()
        return len(waiting)

    def processed(self, node_id: str, at: float, prt_rows: float, srt_rows: float = 0) -> float:
        """When a broker is done with a message that came at ``at`` and that it searches so many rows for."""
        costs = self.costs
        taken = costs.matching + costs.prt_row * prt_rows + costs.srt_row * srt_rows
        if costs.serial:
            at = max(at, self._busy.get(node_id, 0.0))
            self._busy[node_id] = at + taken
        return at + taken

    def searched(self, node_id: str, at: float, rows: float) -> float:
        """The same when it goes on, having been done at ``at``, to search more rows for that message."""
        taken = self.costs.prt_row * rows
        if self.costs.serial:
            self._busy[node_id] += taken
        return at + taken

    def run(self, receive: Callable[[str, str, tuple[Any, ...], float], None]) -> None:
        """Until nothing is under way: ``receive(broker, sender, message, time)`` for each copy."""
        heap = self._heap
        while heap:
            at, _, to, sender, message = heappop(heap)
            self.now = at
            if to is None:
                message(at)
            else:
                receive(to, sender, message, at)
