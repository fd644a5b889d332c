"""What moves in the picture of the demo: a publisher at the first site, and a subscriber at the last."""

from __future__ import annotations

import time
from collections.abc import Callable

from ildm.address import Address
from ildm.cli.tool.client import Connection, Target
from ildm.cli.tool.place import Place
from ildm.demo.live import TOPIC
from ildm.demo.processes import LOOPBACK
from ildm.demo.sites import Site, SitesInRow
from ildm.mqtt import IldmError

EVERY = 0.5
"""Seconds between two messages."""
PAUSE = 1.0
"""Seconds until a client that was disconnected connects again."""


class Traffic:
    """Two clients, driven by :meth:`work`. The demo goes on without them while a broker is gone."""

    def __init__(self, row: SitesInRow) -> None:
        self._publisher = _Client(row.sites[0], "demo-publisher")
        self._subscriber = _Client(row.sites[-1], "demo-subscriber", TOPIC)
        self._due = 0.0

    def work(self, seconds: float) -> None:
        """Publish what is due, and work for so long."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + EVERY
            self._publisher.publish(TOPIC, time.strftime("%H:%M:%S").encode())
        self._publisher.step(seconds / 2)
        self._subscriber.step(seconds / 2)

    def close(self) -> None:
        """Disconnect both."""
        for client in (self._publisher, self._subscriber):
            client.close()


class _Client:
    def __init__(self, site: Site, name: str, topic_filter: str | None = None) -> None:
        self._target = Target(Place(Address(LOOPBACK, site.port)), name)
        self._filter = topic_filter
        self._connection: Connection | None = None
        self._again = 0.0

    def publish(self, topic: str, payload: bytes) -> None:
        if self._connection is not None:
            self._try(lambda connection: connection.publish(topic, payload, 0, False))

    def step(self, seconds: float) -> None:
        if self._connection is None and time.monotonic() < self._again:
            time.sleep(seconds)
        else:
            self._try(lambda connection: connection.step(seconds))

    def close(self) -> None:
        if self._connection is not None:
            self._try(lambda connection: connection.close())

    def _try(self, work: Callable[[Connection], object]) -> None:
        """Do something with a connection, which is made if there is none."""
        try:
            if self._connection is None:
                self._connection = Connection(self._target)
                if self._filter is not None:
                    self._connection.subscribe((self._filter,), 0)
            work(self._connection)
        except IldmError:  # its broker or node is gone, which the picture shows
            self._connection, self._again = None, time.monotonic() + PAUSE
