"""The sites of the demo: a broker and a node each, joined in a row."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ildm import compiled
from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError, Row
from ildm.config import load_config
from ildm.demo.processes import (
    LOOPBACK,
    Child,
    DemoError,
    answers_mqtt,
    free_ports,
    hidden_ports,
    wait_for,
)
from ildm.net.dashboard.token import login_address, take_token

NAMES = ("site-1", "site-2", "site-3")
FIRST_PORT = 1883
FIRST_PAGE = 9183
"""Port of the first node's dashboard."""
CONFIG = "ildm.yaml"
"""There in a tree of sources; what is installed has none."""
MAKES = ("auto", "mosquitto", "amqtt", "mixed")
START_TIMEOUT = 60.0
STOP_GRACE = 5.0


@dataclass
class Site:
    """One site: ``port`` is for clients, ``page_port`` for browsers, the others are between the processes."""

    name: str
    make: str
    port: int
    broker_port: int
    link_port: int
    directory: Path
    page_port: int | None = None
    neighbors: list[str] = field(default_factory=list)
    """Names of the sites linked with."""
    broker: Child | None = None
    node: Child | None = None

    @property
    def client(self) -> AdminClient:
        return AdminClient(self.socket)

    @property
    def socket(self) -> Path:
        """Admin socket of the node."""
        return self.directory.with_suffix(".sock")

    @cached_property
    def page(self) -> str | None:
        """Where a browser sees the node, which is to have started; None: nowhere."""
        if self.page_port is None:
            return None
        config = load_config(self.directory / CONFIG)
        return login_address(config, take_token(config.dashboard_token)[0])

    @property
    def children(self) -> list[Child]:
        return [child for child in (self.broker, self.node) if child is not None]


class SitesInRow:
    """Three sites in a row: site-1, site-2, site-3. Used as a context; leaving it ends everything."""

    def __init__(self, algorithm: str, make: str, say: Callable[[str], None]) -> None:
        self.algorithm = algorithm
        self.say = say
        makes = _makes(make)
        ports = free_ports(FIRST_PORT, len(NAMES))
        pages = free_ports(FIRST_PAGE, len(NAMES))
        hidden = hidden_ports(2 * len(NAMES), [*ports, *pages])
        self._directory = Path(tempfile.mkdtemp(prefix="ildm-demo-"))
        self.sites = [
            Site(name, makes[i], ports[i], hidden[2 * i], hidden[2 * i + 1], self._directory / name, pages[i])
            for i, name in enumerate(NAMES)
        ]
        for left, right in zip(self.sites, self.sites[1:], strict=False):
            left.neighbors.append(right.name)
            right.neighbors.append(left.name)

    def __enter__(self) -> SitesInRow:
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the rest is short, and must be done
        # nodes first: they say good-bye to their brokers
        for child in [s.node for s in self.sites if s.node] + [s.broker for s in self.sites if s.broker]:
            child.ask_to_end()
        for site in self.sites:
            for child in site.children:
                child.end(STOP_GRACE)
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        """Start brokers and nodes and wait until all links are active.

        Raises:
            DemoError: something ended early or took too long; the text has its log.
        """
        for index, site in enumerate(self.sites):
            if site.port != FIRST_PORT + index:
                self.say(
                    f"Port {FIRST_PORT + index} is in use; clients of {site.name} connect to {site.port}."
                )
        makes = dict.fromkeys(site.make for site in self.sites)
        self.say("Starting three brokers: " + ", ".join(map(described, makes)))
        for site in self.sites:
            site.directory.mkdir()
            site.broker = Child(
                f"broker of {site.name}", _broker_command(site), site.directory / "broker.log"
            )
        for site in self.sites:
            self._wait(f"broker of {site.name}", lambda port=site.broker_port: answers_mqtt(port))  # type: ignore[misc]
        self.say("Starting three nodes")
        if (line := fast_form()) is not None:
            self.say(line)
        for index, site in enumerate(self.sites):
            dialled = self.sites[index + 1 : index + 2]
            site.node = Child(
                f"node of {site.name}", self._node_command(site, dialled), site.directory / "node.log"
            )
        self._wait("nodes", lambda: all(status(site) is not None for site in self.sites))
        self._wait("links", self._all_linked)

    def check(self) -> None:
        """
        Raises:
            DemoError: a node has ended. That a broker has is for the nodes to show.
        """
        for site in self.sites:
            if site.node is not None:
                site.node.check()

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        children = [child for site in self.sites for child in site.children]
        wait_for(what, reached, children, START_TIMEOUT)

    def _all_linked(self) -> bool:
        for site in self.sites:
            found = status(site)
            if found is None or found["links"]["active"] < len(site.neighbors):
                return False
        return True

    def _node_command(self, site: Site, dialled: list[Site]) -> list[str]:
        document: dict[str, Any] = {
            "node_id": site.name,
            "state_dir": "state",
            "listen": f"{LOOPBACK}:{site.port}",
            "broker": {"address": f"{LOOPBACK}:{site.broker_port}"},
            "algorithm": self.algorithm,
            "link": {
                "listen": f"{LOOPBACK}:{site.link_port}",
                "neighbors": [f"{LOOPBACK}:{other.link_port}" for other in dialled],
                "reconnect_max": 1.0,
            },
            "admin": {"socket": str(site.socket)},
            "dashboard": {"listen": site.page_port},
            "limits": {"drain_timeout": 1.0},
            "log": {"format": "json"},
        }
        path = site.directory / CONFIG
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return [sys.executable, "-m", "ildm", "run", "--config", str(path)]


def fast_form() -> str | None:
    """How nodes that run interpreted would run faster; None: they are compiled, or shall not be."""
    way = compiled.way()
    return None if way is None else f"They run interpreted. For the fast form: {way}"


def status(site: Site) -> Row | None:
    """The node's status, or None while it does not answer."""
    try:
        return site.client.status()
    except AdminError:
        return None


def neighbors(site: Site) -> dict[str, Row]:
    """Rows of the site's links by the name of the neighbour; empty while the node does not answer."""
    try:
        return {str(row["node_id"]): row for row in site.client.neighbors().items}
    except AdminError:
        return {}


def _makes(make: str) -> list[str]:
    has = {"mosquitto": mosquitto() is not None, "amqtt": importlib.util.find_spec("amqtt") is not None}
    hints = {"mosquitto": "install the package mosquitto", "amqtt": "pip install 'ildm[demo]'"}
    if make == "auto":
        make = "mosquitto" if has["mosquitto"] else "amqtt"
        if not any(has.values()):
            raise DemoError(f"no broker found: {hints['mosquitto']}, or {hints['amqtt']}")
    makes = ["mosquitto", "amqtt", "mosquitto"] if make == "mixed" else [make] * len(NAMES)
    for name in sorted(set(makes)):
        if not has[name]:
            raise DemoError(f"broker {name} not found: {hints[name]}")
    return makes


def described(make: str) -> str:
    """Make and version, such as ``Mosquitto 2.0.11``."""
    if make == "amqtt":
        return f"amqtt {importlib.metadata.version('amqtt')}"
    program = mosquitto()
    assert program is not None  # found by _makes
    told = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    found = re.search(r"version (\S+)", told)
    return f"Mosquitto {found[1]}" if found else "Mosquitto"


def mosquitto() -> str | None:
    """Where Mosquitto is; Debian puts it where users do not look."""
    return shutil.which(
        "mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    )


def _broker_command(site: Site) -> list[str]:
    if site.make == "amqtt":
        return [sys.executable, "-m", "ildm.demo.broker", LOOPBACK, str(site.broker_port)]
    settings = site.directory / "mosquitto.conf"
    lines = [f"listener {site.broker_port} {LOOPBACK}", "allow_anonymous true", "persistence false"]
    if os.geteuid() == 0:
        # changing the user would make the kernel forget to end it with us
        lines.append("user root")
    settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program = mosquitto()
    assert program is not None  # found by _makes
    return [program, "-c", str(settings)]
