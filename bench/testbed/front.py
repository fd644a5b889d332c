"""What stands before a broker in a testbed: an ILDM node, or HAProxy for comparison."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError, Row
from ildm.testing.live.brokers.base import answers_connect
from ildm.testing.live.ports import free_port
from ildm.testing.live.process import HERE, ManagedProcess, Placement


class NodeProcess(ManagedProcess):
    """``ildm run`` with a configuration file, readable for its owner only."""

    name = "node"

    def __init__(
        self,
        directory: Path,
        broker: tuple[str, int],
        algorithm: str | Mapping[str, Any] | None,
        *,
        node_id: str = "node",
        link_host: str | None = None,
        link: Mapping[str, Any] | None = None,
        admin_socket: Path | None = None,
        extra: Mapping[str, Any] | None = None,
        place: Placement = HERE,
    ) -> None:
        """Without an algorithm it relays only.

        ``link_host`` is the address for neighbours, by default that for clients. ``link`` has keys of the
        section of that name, ``extra`` of the whole document; it is merged in last, section by section.
        """
        super().__init__(directory, place)
        self.node_id = node_id
        self.link_address = f"{link_host or self.host}:{free_port()}" if algorithm else None
        self.admin_socket = admin_socket or directory / "admin.sock"
        self.document: dict[str, Any] = {
            "node_id": node_id,
            "state_dir": str(directory / "state"),
            "listen": f"{self.host}:{self.port}",
            "broker": {"address": f"{broker[0]}:{broker[1]}", "reconnect_max": 1.0},
            "algorithm": dict(algorithm) if isinstance(algorithm, Mapping) else algorithm,
            "link": {
                "listen": self.link_address,
                "reconnect_min": 0.1,
                "reconnect_max": 1.0,
                **(link or {}),
            },
            "admin": {"socket": str(self.admin_socket)},
            "limits": {"drain_timeout": 1.0},
            "log": {"level": "warning", "format": "json"},
        }
        merge(self.document, extra or {})

    @property
    def title(self) -> str:
        return self.node_id

    def command(self) -> Sequence[str | Path]:
        path = self.directory / "node.yaml"
        write_private(path, yaml.safe_dump(self.document, sort_keys=False))
        return [sys.executable, "-m", "ildm", "run", "--config", path]

    def ready(self) -> bool:
        """Whether it runs and has its broker, and its own sessions there if it needs any."""
        status = self.status()
        return (
            status is not None
            and status["status"] != "stopped"
            and status["broker"]["connected"]
            and (status["broker"]["protocol"] is not None or self.document["algorithm"] is None)
        )

    def status(self) -> Row | None:
        """The node's status, None while it does not answer."""
        try:
            return AdminClient(self.admin_socket).status()
        except AdminError:
            return None

    def links_up(self, number: int) -> bool:
        """Whether so many links are active with all their sessions."""
        try:
            rows = AdminClient(self.admin_socket).neighbors().items
        except AdminError:
            return False
        active = [row for row in rows if row["state"] == "active"]
        return len(active) >= number and all(
            row["sessions"]["open"] == row["sessions"]["of"] for row in active
        )


class HaproxyProcess(ManagedProcess):
    """HAProxy as a relay of TCP with one thread: what a relay costs that looks at nothing."""

    name = "haproxy"

    _CONFIG: ClassVar[str] = """global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  maxconn 30000
listen mqtt
  bind {host}:{port}
  server broker {broker[0]}:{broker[1]}
"""

    def __init__(self, directory: Path, broker: tuple[str, int], *, place: Placement = HERE) -> None:
        super().__init__(directory, place)
        self.broker = broker

    @classmethod
    def available(cls) -> str | None:
        """None where it can run, else what is missing."""
        return None if _haproxy() else "HAProxy is not installed: apt-get install haproxy"

    def command(self) -> Sequence[str | Path]:
        path = self.directory / "haproxy.cfg"
        path.write_text(self._CONFIG.format(host=self.host, port=self.port, broker=self.broker))
        return [_haproxy() or "haproxy", "-db", "-f", path]

    def ready(self) -> bool:
        """Whether the broker's CONNACK comes through."""
        return answers_connect(self.address)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first moment on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def merge(document: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put changes into a document, within sections key by key."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(document.get(key), dict):
            merge(document[key], value)
        else:
            document[key] = value


def _haproxy() -> str | None:
    # Debian keeps it where only root's search path leads.
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
