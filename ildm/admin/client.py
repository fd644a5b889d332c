"""A synchronous client of the admin API, for the command line, the shell and the demo."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ildm.admin.view import AdminError, Row, UnknownError
from ildm.text import printable

PAGE_LIMIT = 1000
IMPORT_TIMEOUT = 120.0
"""Seconds that a node may take for many sessions."""


UPGRADE = 600.0
"""Seconds that an upgrade may take beside the start of the next process."""


class NoNodeError(AdminError):
    """Nobody answers on the admin socket."""


class Page(NamedTuple):
    """Some of ``total`` rows."""

    total: int
    items: list[Row]


class Neighbors(NamedTuple):
    """A page of neighbours, and who would be one, but was refused."""

    total: int
    items: list[Row]
    refused: list[Row]


class AdminClient:
    """One node's admin API. Each call makes a connection of its own.

    Every method raises :class:`NoNodeError` where no node answers, and :class:`AdminError` with the
    node's text where it refuses.
    """

    def __init__(self, socket_path: Path, timeout: float = 10.0) -> None:
        self.path = socket_path
        self.timeout = timeout

    def status(self) -> Row:
        return self._object("GET", "/v1/status")

    def internals(self) -> Row:
        return self._object("GET", "/v1/internals")

    def neighbors(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/neighbors", limit)

    def refused_neighbors(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/neighbors/refused", limit)

    def clients(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/clients", limit)

    def import_sessions(self, sessions: list[Row]) -> Row:
        return self._object("POST", "/v1/sessions", {"sessions": sessions}, IMPORT_TIMEOUT)

    def end_adoption(self) -> Row:
        return self._object("DELETE", "/v1/sessions/adoption")

    def kick(self, client_id: str) -> Row:
        return self._object("DELETE", f"/v1/clients/{quote(client_id, safe='')}")

    def rules(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/rules", limit)

    def bans(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/bans", limit)

    def ban(self, kind: str, name: str, seconds: float | None = None) -> Row:
        return self._object("POST", "/v1/bans", {"kind": kind, "name": name, "seconds": seconds})

    def lift_ban(self, kind: str, name: str) -> Row:
        return self._object("DELETE", f"/v1/bans/{kind}/{quote(name, safe='')}")

    def events(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/events", limit)

    def retained(self, topic_filter: str = "#", limit: int = PAGE_LIMIT) -> Page:
        query = urlencode({"filter": topic_filter, "limit": limit})
        answer = self._object("GET", f"/v1/retained?{query}")
        return Page(answer["total"], answer["items"])

    def health(self) -> Row:
        return self._object("GET", "/v1/health")

    def subscriptions(self, limit: int = PAGE_LIMIT) -> Page:
        return self._page("/v1/subscriptions", limit)

    def algorithm(self) -> Row:
        return self._object("GET", "/v1/algorithm")

    def overlay(self) -> Row:
        return self._object("GET", "/v1/overlay")

    def trace(self, topic: str) -> Row:
        return self._object("GET", f"/v1/overlay/trace?{urlencode({'topic': topic})}")

    def follow(self, topic: str) -> Row:
        return self._object("GET", f"/v1/trace?{urlencode({'topic': topic})}")

    def watch(self, topic_filter: str, seconds: float, messages: int = 100, one_in: int = 1) -> Row:
        asked = {"filter": topic_filter, "seconds": seconds, "messages": messages, "one_in": one_in}
        return self._object("POST", "/v1/traces", asked)

    def watched(self, name: str) -> Row:
        return self._object("GET", f"/v1/traces/{quote(name, safe='')}")

    def unwatch(self, name: str) -> Row:
        return self._object("DELETE", f"/v1/traces/{quote(name, safe='')}")

    def kept(self, topic: str, client_id: str = "") -> list[Row]:
        found = self._object("GET", f"/v1/kept?{urlencode({'topic': topic, 'client': client_id})}")
        return list(found["items"])

    def add_neighbor(self, address: str, save: bool = True) -> Row:
        return self._object("POST", "/v1/neighbors", {"address": address, "save": save})

    def remove_neighbor(self, target: str, save: bool = True, force: bool = False) -> Row:
        query = urlencode({"save": "true" if save else "false", "force": "true" if force else "false"})
        return self._object("DELETE", f"/v1/neighbors/{quote(target, safe='')}?{query}")

    def spool(self) -> Row:
        return self._object("GET", "/v1/spool")

    def spooled(self, receiver: str, after: int = 0, limit: int = PAGE_LIMIT) -> list[Row]:
        query = urlencode({"after": after, "limit": limit})
        items: list[Row] = self._object("GET", f"/v1/spool/{quote(receiver)}?{query}")["items"]
        return items

    def drop_spooled(self, receiver: str) -> Row:
        return self._object("DELETE", f"/v1/spool/{quote(receiver)}")

    def reload(self, dry_run: bool = False) -> Row:
        return self._object("POST", "/v1/reload", {"dry_run": dry_run})

    def reload_plugins(self) -> Row:
        return self._object("POST", "/v1/plugins/reload", {})

    def log_level(self) -> Row:
        return self._object("GET", "/v1/log-level")

    def set_log_level(self, level: str) -> Row:
        return self._object("PUT", "/v1/log-level", {"level": level})

    def upgrade(self, python: str | None, timeout: float) -> Row:
        """See :meth:`ildm.admin.view.NodeView.upgrade`; ``timeout`` in seconds."""
        # clients that have to be sent away, and the state that has to be opened, take their time
        return self._object("POST", "/v1/upgrade", {"python": python, "timeout": timeout}, timeout + UPGRADE)

    def stop(self) -> Row:
        return self._object("POST", "/v1/stop", {})

    def wait_stopped(self, timeout: float) -> None:
        """Wait until the node has given up its admin socket, which it does after all clients have gone.

        Raises:
            AdminError: it has not after ``timeout`` seconds.
        """
        give_up = time.monotonic() + timeout
        while self.path.exists() and self._listening():
            for _ in range(20):  # to knock at the door each time would keep the node from closing it
                if time.monotonic() > give_up:
                    raise AdminError(f"the node is still stopping after {timeout:g} s")
                time.sleep(0.05)
                if not self.path.exists():
                    return

    def _page(self, path: str, limit: int) -> Page:
        answer = self._object("GET", f"{path}?{urlencode({'limit': limit})}")
        return Page(answer["total"], answer["items"])

    def _object(self, method: str, path: str, body: Row | None = None, timeout: float | None = None) -> Row:
        timeout = timeout or self.timeout
        connection = _UnixConnection(self.path, timeout)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Connection": "close", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            raw = response.read()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoNodeError(self._nobody()) from error
        except PermissionError as error:
            raise AdminError(
                f"{self.path}: permission denied; the admin socket belongs to the user who runs the node"
            ) from error
        except TimeoutError as error:
            raise AdminError(f"{self.path}: the node did not answer within {timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(
                f"{self.path}: {printable(str(error).strip()) or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        return self._decoded(response.status, raw)

    def _decoded(self, status: int, raw: bytes) -> Row:
        try:
            answer: Any = json.loads(raw)
        except ValueError as error:
            raise AdminError(f"{self.path}: no admin API of a node (status {status})") from error
        if not isinstance(answer, dict):
            raise AdminError(f"{self.path}: no admin API of a node (status {status})")
        if status >= 400:
            kind = UnknownError if status == 404 else AdminError
            raise kind(str(answer.get("error", f"status {status}")))
        return answer

    def _nobody(self) -> str:
        where = (
            f"with state directory {self.path.parent}"
            if self.path.name == "admin.sock"
            else f"with admin socket {self.path}"
        )
        return f"no node runs {where}; start one with: ildm run --config FILE"

    def _listening(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except OSError:
                return False
        return True


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._patience = timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        give_up = time.monotonic() + self._patience
        while True:
            try:
                self.sock.connect(str(self._path))
            except BlockingIOError:  # so many wait to be taken that the system does not let more wait
                if time.monotonic() > give_up:
                    raise TimeoutError from None
                time.sleep(0.01)
            else:
                return
