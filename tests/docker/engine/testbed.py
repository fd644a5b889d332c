"""The Compose testbed as its README starts and uses it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ildm.admin.client import AdminClient
from tests.docker.engine.engine import Engine
from tests.docker.engine.project import recipe
from tests.docker.files import BROKERS, NODES, PROJECT

PATIENCE = 480.0
"""Seconds until a wait is given up: a bound for failures. Four brokers start at once on a machine in use."""
PORTS = dict(zip(BROKERS, (1883, 1884, 1885, 1886), strict=True))
"""Where the host's clients reach each site."""
NEIGHBORS = {"mosquitto": 2, "activemq": 1, "rabbitmq": 2, "moquette": 1}
COMPOSE = ("docker", "compose", "-f", "docker/compose.yaml")


class Testbed:
    """Commands in a copy of the project, against one engine."""

    __test__ = False

    def __init__(self, engine: Engine, project: Path) -> None:
        self.engine = engine
        self.project = project

    # commands ---------------------------------------------------------------------------------

    def run(self, line: str) -> str:
        """Carry out a command line of the README to its end with status 0; answers what it printed."""
        words = shlex.split(line.replace("$PWD", str(self.project)))
        if words[:2] == ["docker", "compose"] and "exec" in words:
            words.insert(words.index("exec") + 1, "-T")  # there is no terminal here
        return self.engine.run(*words, cwd=self.project, timeout=PATIENCE)

    def compose(self, *words: str) -> str:
        return self.run(shlex.join((*COMPOSE, *words)))

    def start(self) -> None:
        """The README's section on starting, and until all services are healthy."""
        for line in recipe("Start"):
            self.run(line)
        self.wait_healthy(*BROKERS, *NODES)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        words = ["--filter", "label=com.docker.compose.project=ildm"]
        words += ["--filter", f"label=com.docker.compose.service={service}"]
        (found,) = self.engine.lines("docker", "ps", "--all", "--quiet", "--no-trunc", *words)
        return found

    def inspect(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(self.engine.run("docker", "inspect", self.container(service)))
        return dict(found)

    def wait_healthy(self, *names: str) -> None:
        def healthy() -> bool:
            states = {name: self.inspect(name)["State"] for name in names}
            for name, state in states.items():
                assert state["Status"] == "running", f"{name}: {state}\n{self.compose('logs', name)[-4000:]}"
            return all(state["Health"]["Status"] == "healthy" for state in states.values())

        wait_for(healthy, f"health of {', '.join(names)}")

    # sites ------------------------------------------------------------------------------------

    def admin(self, name: str) -> AdminClient:
        """The admin API of a site's node: its socket is in the volume with the node's state."""
        return AdminClient(self.engine.data / f"volumes/ildm_node-{name}/_data/admin.sock")

    def wait_linked(self) -> None:
        """Until every node has all its links."""
        wait_for(
            lambda: all(self.admin(n).status()["links"]["active"] == count for n, count in NEIGHBORS.items()),
            "the links of the tree",
        )

    def ildm(self, *words: str) -> str:
        """``ildm`` as a client on the host."""
        done = subprocess.run(
            self.engine.on_host(sys.executable, "-m", "ildm", *words),
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def exchange(self, root: str, names: Sequence[str] = BROKERS) -> None:
        """A message published at each of some sites, which are joined, reaches all of them."""
        topic, sites = f"{root}/+", set(names)
        links = {name: sum(edge <= sites for edge in EDGES if name in edge) for name in names}
        with ThreadPoolExecutor(len(names)) as pool:
            heard = {
                name: pool.submit(
                    self.ildm,
                    *("sub", "-p", str(PORTS[name]), "-t", topic, "-q", "1"),
                    *("-C", str(len(names)), "-W", str(PATIENCE / 2)),
                )
                for name in names
            }

            def known(name: str) -> bool:
                if heard[name].done():
                    heard[name].result()
                rows = self.admin(name).subscriptions().items
                sources = [row["source"] for row in rows if row["filter"] == topic]
                return sum(source.startswith("neighbor ") for source in sources) == links[name] < len(sources)

            wait_for(lambda: all(known(name) for name in names), f"interest in {topic} at all nodes")
            for name in names:
                self.ildm(
                    "pub", "-p", str(PORTS[name]), "-t", f"{root}/{name}", "-m", f"from {name}", "-q", "1"
                )
            for name, lines in heard.items():
                expected = sorted(f"{root}/{other} from {other}" for other in names)
                assert sorted(lines.result().splitlines()) == expected, name


EDGES = [
    frozenset(pair)
    for pair in (("activemq", "mosquitto"), ("mosquitto", "rabbitmq"), ("rabbitmq", "moquette"))
]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Poll an engine or a node, which have no event to wait for."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.25)
