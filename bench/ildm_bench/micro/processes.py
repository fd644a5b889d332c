"""Nodes without an algorithm on one port (SO_REUSEPORT) before one Mosquitto: what a process more brings.

``--cores`` gives each node so much of a core, by cgroups (root): so a machine of two cores stands in for one
of many. With ``--machine 2`` the broker has as much, and all of them together twice that: a small machine of
two cores. The load is that of ``ildm_bench.micro.load``, which keeps ``--window`` messages of each publisher
under way.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import Placement, ProcessError, reaper
from ildm.testing.live.reaper import clear_up
from ildm_bench.micro.load import put_on
from ildm_bench.micro.measure import Column, heading, in_turn, line, machine, median, options, pid_of, run_ns
from ildm_bench.testbed.cgroups import Cgroups, enter_command, find_cgroups
from ildm_bench.testbed.leftovers import give_up_name, new_name

MODULE = "ildm_bench.micro.processes"
LISTENING = 3
"""Descriptor of the first socket that a node inherits (SD_LISTEN_FDS_START)."""
Figures = dict[str, float]


def become(port: int, command: list[str]) -> None:
    """Become a command that listens on a port together with others."""
    made = socket.create_server((LOOPBACK, port), reuse_port=True, backlog=1024)
    os.dup2(made.detach(), LISTENING)
    os.set_inheritable(LISTENING, True)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    os.execvp(command[0], command)


class Nodes:
    """The nodes of one run by their names, each with so much of a core, or as much as it gets.

    Raises:
        SystemExit: this machine sets no quotas.
    """

    def __init__(self, directory: Path, cores: float | None) -> None:
        self.directory = directory
        self.cores = cores
        self.all: dict[str, NodeProcess] = {}
        self._used: Figures = {}
        self._cgroups: Cgroups | None = None
        if cores is not None:
            self._name = new_name()
            self._cgroups, why = find_cgroups(self._name)
            if self._cgroups is None:
                raise SystemExit(f"no CPU quotas here: {why}")
            reaper().add("cgroup", str(self._cgroups.directory))

    def place(self, name: str, *command: str) -> Placement:
        """Where a process runs, and a command that becomes it."""
        into = () if self._cgroups is None else enter_command(self._cgroups.make("site", name))
        return Placement(prefix=(*into, *command))

    def start(
        self, name: str, broker: int, algorithm: str | None, port: int | None = None, **link: Any
    ) -> None:
        """A node before the broker at a port; with ``port`` it shares that one with others."""
        sharing = () if port is None else (sys.executable, "-m", MODULE, "become", str(port))
        self.all[name] = node = NodeProcess(
            self.directory / name,
            (LOOPBACK, broker),
            algorithm,
            node_id=name,
            link=link,
            extra={} if port is None else {"listen": f"{LOOPBACK}:{port}"},
            place=self.place(name, *sharing),
        )
        node.start()

    def begin(self, bounded: Sequence[str], together: float | None = None) -> None:
        """Bound these, and all ``together``; count CPU time from now on."""
        self._limit(bounded, self.cores)
        if self._cgroups is not None:
            self._cgroups.limit(self._cgroups.directory / "site", together)
        self._used = self._times()

    def used(self) -> Figures:
        """CPU seconds of each node since then."""
        return {name: time - self._used[name] for name, time in self._times().items()}

    def close(self) -> None:
        """Kill them. Raises: ProcessError: a cgroup cannot be removed."""
        self._limit(list(self.all), None)  # so that all can end quickly
        for node in self.all.values():
            node.kill()
        if self._cgroups is None:
            return
        directory = str(self._cgroups.directory)
        if failures := clear_up({"cgroup": [directory], "supervisor": [str(self._cgroups.above)]}):
            raise ProcessError("; ".join(failures))
        reaper().discard("cgroup", directory)
        give_up_name(self._name)

    def _times(self) -> Figures:
        return {name: run_ns(pid_of(node)) / 1e9 for name, node in self.all.items()}

    def _limit(self, names: Sequence[str], cores: float | None) -> None:
        if self._cgroups is not None:
            for name in names:
                self._cgroups.limit(self._cgroups.make("site", name), cores)


def relayed(count: int, given: argparse.Namespace) -> Figures:
    """So many nodes on one port (0: the broker alone): deliveries per second, CPU (us) for each."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes = Nodes(Path(name), given.cores)
        stack.callback(nodes.close)
        broker = Mosquitto(Path(name) / "broker", tuned=True, place=nodes.place("broker"))
        stack.callback(broker.kill)
        broker.start()
        port = free_port() if count else broker.port
        for number in range(count):
            nodes.start(f"node-{number}", broker.port, None, port)
        before, used, brokers = 0, list[float](), 0.0

        def begin(_: int) -> None:
            nonlocal before
            small = given.machine is not None
            together = given.machine * given.cores if small else None
            nodes.begin([*nodes.all, "broker"] if small else list(nodes.all), together)
            before = run_ns(pid_of(broker))

        def end() -> None:
            nonlocal brokers
            used.extend(nodes.used().values())
            brokers = (run_ns(pid_of(broker)) - before) / 1e9

        found = put_on(port, begin, end, seconds=given.seconds, window=given.window)
    each = 1e6 / found["egress"] / found["seconds"]
    figures = {"nodes": sum(used), "busiest": max(used, default=0.0), "broker": brokers}
    return {"rate": found["egress"], **{part: seconds * each for part, seconds in figures.items()}}


def report(results: dict[Any, list[Figures]], first: Callable[[Any], Any]) -> None:
    """Medians over the rounds; ``ratio``: of the rates in each round, to those of the way ``first`` gives."""
    names = list(next(iter(results.values()))[0])
    columns = [Column("ratio", 7, ".2f"), *(Column(name, 10, ",.2f") for name in names)]
    print(heading("", 12, columns))
    for way, found in results.items():
        pairs = zip(found, results[first(way)], strict=True)
        ratio = median(one["rate"] / other["rate"] for one, other in pairs)
        values = [median(each[name] for each in found) for name in names]
        print(line(f"{way!s:>12}", 12, columns, [ratio, *values]))
    print(json.dumps([[way, found] for way, found in results.items()]))


def main() -> None:
    if sys.argv[1:2] == ["become"]:
        become(int(sys.argv[2]), sys.argv[3:])
    parser = options(__doc__, rounds=3, seconds=3.0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="0: none")
    parser.add_argument("--cores", type=float, help="of a core, for each node")
    parser.add_argument("--machine", type=float, help="cores of a machine of such cores; needs --cores")
    parser.add_argument("--window", type=int, default=20)
    given = parser.parse_args()
    if given.machine is not None and given.cores is None:
        parser.error("--machine needs --cores")
    print(machine())
    results = in_turn(given.rounds, given.processes, lambda count: relayed(count, given))
    report(results, lambda _: given.processes[0])


if __name__ == "__main__":
    main()
