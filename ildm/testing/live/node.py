"""A node as users run it, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError, Row
from ildm.testing.live.ports import free_port
from ildm.testing.live.process import HERE, POLL, ManagedProcess, Placement


class NodeProcess(ManagedProcess):
    """``ildm run`` with a configuration file, readable for its owner only.

    Clients connect to :attr:`address`. All methods block.
    """

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
        python_path: Path | None = None,
    ) -> None:
        """Without an algorithm it relays only.

        ``python_path`` is a directory where Python looks first, such as one that plugins were installed into.
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
        self._python_path = python_path
        self._read = 0

    @property
    def title(self) -> str:
        return self.node_id

    def command(self) -> Sequence[str | Path]:
        path = self.directory / "node.yaml"
        write_private(path, yaml.safe_dump(self.document, sort_keys=False))
        return [sys.executable, "-m", "ildm", "run", "--config", path]

    def environment(self) -> Mapping[str, str]:
        if self._python_path is None:
            return {}
        paths = [str(self._python_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(paths)}

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
            return self.admin.status()
        except AdminError:
            return None

    def upgrade(self, timeout: float = 60.0) -> Row:
        """``ildm upgrade``: another process does the work from then on.

        Raises:
            AdminError: it was refused, or has failed; or the node was killed meanwhile.
        """
        told = self.admin.upgrade(None, timeout)
        self.successor = int(told["pid"])
        return told

    def links_up(self, number: int) -> bool:
        """Whether so many links are active with all their sessions."""
        try:
            rows = self.admin.neighbors().items
        except AdminError:
            return False
        active = [row for row in rows if row["state"] == "active"]
        return len(active) >= number and all(
            row["sessions"]["open"] == row["sessions"]["of"] for row in active
        )

    @property
    def admin(self) -> AdminClient:
        """What ``ildm`` commands are told by: status, neighbours, counters of the algorithm and more."""
        return AdminClient(self.admin_socket)

    def wait_linked(self, *neighbors: NodeProcess) -> None:
        """Return when the links with these nodes are active, as both ends see it.

        Raises:
            ProcessError: a node has ended, or it took longer than ``boot_timeout``.
        """
        for other in neighbors:
            for here, far in ((self, other), (other, self)):
                here.wait_until(partial(here._is_linked, far.node_id), f"no link with {far.node_id}")

    def _is_linked(self, node_id: str) -> bool:
        return any(
            row["node_id"] == node_id
            and row["state"] == "active"
            and row["sessions"]["open"] == row["sessions"]["of"]
            for row in self.admin.neighbors().items
        )

    def wait_for(self, event: str, **fields: object) -> dict[str, Any]:
        """The next line of that event in the log, with these fields; lines before it are passed over.

        Raises:
            ProcessError: the node has ended, or the line has not come within ``boot_timeout``.
        """
        found: list[dict[str, Any]] = []

        def look() -> bool:
            for entry in self.logged():
                if entry.get("event") == event and all(entry.get(k) == v for k, v in fields.items()):
                    found.append(entry)
                    return True
            return False

        self.wait_until(look, f"no line {event!r} in the log")
        return found[0]

    def logged(self) -> Iterator[dict[str, Any]]:
        """The lines of the log, as JSON, since the last that was taken here or by :meth:`wait_for`."""
        with self.log_path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                if line.startswith(b"{"):
                    yield json.loads(line)

    def wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Return when a condition holds; ``otherwise`` is said in the error.

        Raises:
            ProcessError: the node has ended, or it took longer than ``boot_timeout``.
        """
        give_up = time.monotonic() + self.boot_timeout
        while not condition():
            if not self.running:
                raise self.error(f"{self.title} has ended\n{self.log()}")
            if time.monotonic() > give_up:
                raise self.error(f"{self.title}: {otherwise} within {self.boot_timeout} s\n{self.log()}")
            time.sleep(POLL)


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
