"""The sites of a testbed and their processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ildm.testing.live.brokers import Broker
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import POLL, ManagedProcess, ProcessError
from ildm_bench.measure.manifest import Process
from ildm_bench.testbed.front import HaproxyProcess

_BATCH = max(4, os.cpu_count() or 1)
"""So many brokers boot at once: more would only make each other miss their time."""


@dataclass
class Server:
    """One site."""

    name: str
    index: int
    broker: Broker
    node: NodeProcess | None = None
    proxy: HaproxyProcess | None = None
    namespace: str | None = None
    """Network namespace, None for that of the machine."""

    @property
    def front(self) -> NodeProcess | HaproxyProcess | None:
        """What stands before the broker."""
        return self.node or self.proxy

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return "{}:{}".format(*(self.front or self.broker).address)

    @property
    def broker_address(self) -> str:
        """``host:port`` of the broker itself."""
        return "{}:{}".format(*self.broker.address)


class MonitoredProcess(NamedTuple):
    """A process whose use of resources is of interest, its children included."""

    process: Process
    pid: int


def parts(server: Server) -> list[tuple[str, ManagedProcess]]:
    """The processes of a site, by the part they play there."""
    found: list[tuple[str, ManagedProcess]] = [("broker", server.broker)]
    return found if server.front is None else [*found, ("front", server.front)]


def check_running(where: str, child: ManagedProcess) -> None:
    """Raises: ProcessError: it has ended."""
    if not child.running:
        raise ProcessError(f"{where}: {child.name} has ended\n{child.log()[-2000:]}")


def start_all(processes: Sequence[ManagedProcess]) -> None:
    """Some at a time, until all are ready."""
    for start in range(0, len(processes), _BATCH):
        batch = processes[start : start + _BATCH]
        for process in batch:
            process.launch()
        for process in batch:
            process.wait_ready()


def wait(process: ManagedProcess, reached: Callable[[], bool], failure: str, seconds: float) -> None:
    """Return when something is reached that a process has to do with.

    Raises:
        ProcessError: it has ended, or the time is over.
    """
    give_up = time.monotonic() + seconds
    while not reached():
        if not process.running or time.monotonic() > give_up:
            raise ProcessError(f"{process.title}: {failure}\n{process.log()[-2000:]}")
        time.sleep(POLL)
