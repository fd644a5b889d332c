"""What is new, once a second, to whoever has a page open (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING

from ildm.net.dashboard.snapshot import COLUMNS, Sent, Sites, sample, snapshot

if TYPE_CHECKING:
    from ildm.admin.view import Row
    from ildm.core.counters import Counters
    from ildm.net.view import LiveView

READERS = 32
"""At a time."""
WAITING = 2
"""Events that wait for a reader; then the older one goes, as the newer says what is so now."""
SECOND = 1.0
MINUTE = 60.0
SAMPLES = 600
"""Samples kept for the charts of a page that is opened."""
CLIENTS_A_SECOND = 5_000
"""Sessions that a look at the counters may cost a second: with more it comes less often."""


class TooManyReadersError(Exception):
    """There are :data:`READERS`."""


class Reader:
    """One page that is open."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(WAITING)
        self.graph = -1
        """Version of the graph that it has been told of."""
        self.behind = False
        """It has missed something."""

    def offer(self, event: str | None) -> bool:
        """Whether there was room; if not, the oldest has gone. None is the end."""
        room = not self._queue.full()
        if not room:
            self._queue.get_nowait()
        self._queue.put_nowait(event)
        return room

    async def next(self) -> str | None:
        return await self._queue.get()


class Stream:
    """Looks at the node from :meth:`start` to :meth:`stop`."""

    def __init__(self, view: LiveView, counters: Counters) -> None:
        self.view = view
        self.sites = Sites(view.node)
        self.sent = Sent(view.node)
        self.samples: deque[list[float]] = deque(maxlen=SAMPLES)
        self._counters = counters
        self._readers: set[Reader] = set()
        self._waits: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def readers(self) -> int:
        return len(self._readers)

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        """Readers are told of the end."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for reader in self._readers:
            reader.offer(None)

    def join(self) -> Reader:
        """Raises: TooManyReadersError."""
        if len(self._readers) >= READERS:
            self._counters["dashboard_readers_refused"] += 1
            raise TooManyReadersError
        reader = Reader()
        self._readers.add(reader)
        reader.offer(self.whole())
        reader.graph = self.sites.version
        if self._stopped:
            reader.offer(None)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def now(self) -> Row:
        """Everything, as it is now."""
        self._ask()
        status = self.view.status()
        self.sites.look()
        return {
            "snapshot": self._snapshot(status),
            "graph": self.sites.graph(),
            "columns": COLUMNS,
            "samples": list(self.samples),
        }

    def whole(self) -> str:
        """The same as an event."""
        return event("whole", self.now())

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every, self._look)
        status = self.view.status()
        self.sites.look()
        self.sent.look()
        self.samples.append(sample(self.view, status, self.sent.total))
        if not self._readers:
            return
        self._ask()
        told = event("news", {"snapshot": self._snapshot(status), "sample": self.samples[-1]})
        graph = event("graph", self.sites.graph())
        whole = self.whole() if any(reader.behind for reader in self._readers) else ""
        for reader in self._readers:
            if reader.behind:
                news = whole
            else:
                news = told if reader.graph == self.sites.version else graph + told
            reader.graph = self.sites.version
            reader.behind = not reader.offer(news)
            self._counters["dashboard_events_skipped"] += reader.behind

    @property
    def _every(self) -> float:
        """Seconds between two looks."""
        return max(SECOND, len(self.view.node.sessions) / CLIENTS_A_SECOND)

    def _snapshot(self, status: Row) -> Row:
        found = snapshot(self.view, status, self.sites, self._waits, self._lately(status))
        return {**found, "every": self._every}

    def _lately(self, status: Row) -> int:
        """Messages dropped within the last minute."""
        dropped, since = COLUMNS.index("dropped"), self.view.node.driver.wall() - MINUTE
        before = next((each[dropped] for each in self.samples if each[0] >= since), None)
        return 0 if before is None else int(status["queues"]["dropped"] - before)

    def _ask(self) -> None:
        """What keeps the node from serving; the answer may take a while, and is used then."""

        def told(found: list[str]) -> None:
            self._waits = found

        self.view.problems(told)


def event(name: str, data: Row) -> str:
    """In the form of server-sent events (HTML, 9.2.5); JSON has no line breaks here."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
