"""A node that does not exist, for tests of what is around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ildm.admin.exposition import Family, Sample
from ildm.admin.families import READY
from ildm.admin.server import AdminServer
from ildm.admin.view import AdminError, UnknownError
from ildm.api import OverlayView
from ildm.config import Address, Config
from ildm.config.watching import AdminConfig
from ildm.core.counters import Counters
from ildm.core.local.bans import Kind

NEIGHBOR = {
    "address": "127.0.0.1:1885",
    "node_id": "north",
    "state": "active",
    "since": 1_700_000_000.0,
    "reason": None,
    "sessions": {"open": 2, "of": 2},
    "direction": "out",
    "transferred_out": 12345,
    "transferred_in": 6,
    "queued_messages": 7,
    "queued_bytes": 8000,
    "dropped": 1,
    "interest": 3,
    "announced": 4,
    "saved": True,
    "rtt": 0.0123,
    "release": "0.3.0",
    "protocol": 3,
    "features": ["deflate", "weights"],
    "clock_skew": 0.25,
    "on_demand": False,
}
REFUSED = {
    "address": "192.0.2.7",
    "node_id": "west",
    "kind": "secret",
    "reason": "wrong link secret",
    "since": 1_700_000_000.0,
    "last": 1_700_000_060.0,
    "count": 1234,
}
KEY = {
    "key": "a/b subscriber south",
    "status": "in",
    "levels": [["a/# publisher north", "default east"], ["default west", None]],
    "facts": {"role": "subscriber"},
}
TREE = {
    "node": "south",
    "keys": [],
    "depth": 0,
    "children": [
        {
            "node": "north",
            "keys": ["a/b subscriber north"],
            "depth": 1,
            "children": [{"node": "east", "keys": ["a/b subscriber east"], "depth": 2, "children": []}],
        },
        {"node": "west", "keys": ["a/b subscriber west"], "depth": 1},
    ],
}
PLUGIN: dict[str, Any] = {
    "name": "sf",
    "options": {"k": 2},
    "counters": {"seen": 9},
    "gauges": {"load": 0.25},
    "errors": 0,
    "slow_hooks": 1,
    "calls": 2000,
    "seconds": 0.5,
    "refused": {"log": 17},
    "waiting": {"timers": 3, "sessions": 0, "offloads": 0},
}


EVENT: dict[str, Any] = {
    "number": 2,
    "time": 1_700_000_000.0,
    "level": "warning",
    "event": "link down",
    "fields": {"neighbor": "north", "reason": "closed", "sessions": 2},
}
KEPT_VALUE: dict[str, Any] = {
    "topic": "a/b",
    "qos": 1,
    "size": 5,
    "payload": "aGVsbG8=",
    "since": 1_700_000_000.0,
    "origin": "south",
    "expires_in": None,
}
HOP: dict[str, Any] = {
    "depth": 0,
    "node": "south",
    "seconds": 0.0,
    "queued": 0,
    "injecting": 0,
    "note": "",
}
HOPS = [
    HOP,
    {**HOP, "depth": 1, "node": "north", "seconds": 0.0123, "queued": 1200},
    {**HOP, "depth": 2, "node": "east", "seconds": None, "note": "no answer"},
    {**HOP, "depth": 1, "node": "west", "seconds": 0.5, "injecting": 3},
]
STEP = {"node": "south", "what": "received", "peer": None, "topic": "a/b", "seconds": 0.0}
MESSAGES: list[dict[str, Any]] = [
    {
        "topic": "a/b",
        "size": 12,
        "qos": 1,
        "node": "south",
        "at": 1_700_000_000.25,
        "steps": [
            STEP,
            {**STEP, "what": "sent", "peer": "north", "seconds": 0.0012},
            {**STEP, "node": "north", "peer": "south", "seconds": 0.0023},
            {**STEP, "node": "north", "what": "sent", "seconds": 0.0025},
            {**STEP, "node": "north", "what": "acknowledged", "seconds": 0.0042},
        ],
    }
]
SPOOLED: dict[str, Any] = {
    "lsn": 5,
    "place": 0,
    "topic": "a/b",
    "qos": 1,
    "retain": False,
    "since": 1_700_000_000.0,
    "expires_at": None,
    "origin": "south",
    "number": 4294967297,
    "size": 20,
    "properties": [],
    "payload": "aGVsbG8=",
}


RULE = {
    "rule": "link.rules.0",
    "neighbor": None,
    "action": "allow",
    "filters": ["+/temp"],
    "direction": "both",
    "qos": 1,
    "local": "plant1/",
    "remote": "",
    "hits_in": 3,
    "hits_out": 12_345,
}


class FakeView:
    """Implements NodeView; ``calls`` has what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.rows = [dict(NEIGHBOR)]
        self.client_id = "sensor-1"
        self.broken: Exception | None = None
        self.without_overlay = False
        self.reloaded: list[dict[str, Any]] = []
        self.silent = False
        self.stopped = threading.Event()
        self.banned: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        """Why it is not ready."""
        self.warned: list[str] = []
        self.looked_at = 0
        self.waiting: list[dict[str, Any]] = []
        """What the spool has for the neighbour."""

    def status(self) -> dict[str, Any]:
        if self.broken is not None:
            raise self.broken
        return {
            "node_id": "south",
            "version": "0.2.0",
            "algorithm": "sf",
            "filters": ["validate"],
            "status": "running",
            "uptime": 192.0,
            "listen": "127.0.0.1:1883",
            "link_listen": None,
            "broker": {
                "address": "127.0.0.1:1884",
                "addresses": ["127.0.0.1:1884"],
                "failovers": 0,
                "in_use_for": None,
                "protocol": None,
                "connected": False,
                "reason": "connection refused",
                "contested": None,
                "shared_with": [],
                "sharing_unknown": None,
            },
            "clients": 2,
            "clients_wait_for": [],
            "persistent_sessions": 1,
            "sessions_unknown": 0,
            "sessions_adopted_for": 0,
            "links": {"active": 1, "blocked": 0, "down": 0, "refused": 0, "on_demand": 0},
            "queues": {
                "injection": {"messages": 1200, "bytes": 64_000},
                "links": {"messages": 0, "bytes": 0},
                "dropped": 3,
            },
            "state": {"waiting_rows": 0, "waiting_bytes": 0, "failure": None},
            "spool": {
                "mode": "process",
                "messages": 3,
                "bytes": 900,
                "disk_bytes": 16 << 20,
                "oldest": 1_700_000_000.0,
                "failure": None,
                "full": False,
            },
            "clock": self.warned,
            "counters": {"messages_in": 1234567, "messages_out": 4},
        }

    def warnings(self) -> list[str]:
        return self.warned

    def problems(self, done: Callable[[list[str]], None]) -> None:
        done(self.wrong)

    def metrics(self, done: Callable[[list[Family]], None]) -> None:
        done([(READY, [Sample((), int(not self.wrong))])])

    def internals(self) -> dict[str, Any]:
        classes = {"ildm.core.node.Node": 1}
        return {
            "tasks": 3,
            "timers": {"tick": 2},
            "objects": 9,
            "entries": 7,
            "classes": classes,
            "tables": {},
        }

    def neighbors(self) -> list[dict[str, Any]]:
        return self.rows

    def refused_neighbors(self) -> list[dict[str, Any]]:
        return [REFUSED]

    def clients(self) -> list[dict[str, Any]]:
        here = {
            "client_id": self.client_id,
            "peer": "127.0.0.1:40000",
            "version": "5",
            "connected": True,
            "since": 1_700_000_000.0,
            "clean_start": True,
            "subscriptions": 2,
            "filters_unknown": False,
            "messages_in": 3,
            "messages_out": 4,
        }
        away = {**here, "client_id": "away-1", "peer": "", "version": "", "connected": False, "since": None}
        return [here, away]

    def import_sessions(self, sessions: list[dict[str, Any]], done: Callable[[dict[str, Any]], None]) -> None:
        if self.broken is not None:
            raise self.broken
        self.calls.append(("import", sessions))
        filters = sum(len(session["filters"]) for session in sessions)
        done({"sessions": len(sessions), "filters": filters, "skipped": 0, "unknown": 1})

    def end_adoption(self) -> dict[str, Any]:
        if self.broken is not None:
            raise self.broken
        self.calls.append(("adopted",))
        return {"unknown": 2}

    def kick(self, client_id: str) -> dict[str, Any]:
        self.calls.append(("kick", client_id))
        if client_id != self.client_id:
            raise UnknownError(f"no client {client_id!r} is connected")
        return {"client_id": client_id, "ended": 1}

    def rules(self) -> list[dict[str, Any]]:
        return [RULE]

    def bans(self) -> list[dict[str, Any]]:
        return list(self.banned)

    def ban(self, kind: Kind, name: str, seconds: float | None) -> dict[str, Any]:
        self.calls.append(("ban", kind, name, seconds))
        row = {"kind": kind, "name": name, "until": None if seconds is None else 4_000_000_000.0}
        self.banned.append({**row, "why": "administrator"})
        return {**row, "ended": 2}

    def lift_ban(self, kind: Kind, name: str) -> dict[str, Any]:
        self.calls.append(("lift", kind, name))
        return {"kind": kind, "name": name}

    def events(self) -> list[dict[str, Any]]:
        return [EVENT, {**EVENT, "number": 1, "level": "info"}]

    def retained(self, topic_filter: str, limit: int, offset: int) -> dict[str, Any]:
        self.calls.append(("retained", topic_filter, limit, offset))
        return {"total": 1, "items": [KEPT_VALUE][offset:limit]}

    def subscriptions(self) -> list[dict[str, Any]]:
        return [{"filter": f"a/{number}/#", "qos": 1, "source": "client sensor-1"} for number in range(5)]

    def algorithm(self) -> dict[str, Any]:
        return {**PLUGIN, "topology": "tree", "filters": [{**PLUGIN, "name": "validate"}]}

    def overlay(self) -> OverlayView:
        if self.without_overlay:
            raise AdminError("algorithm sf has no overlay")
        facts = {"role": "publisher", "rendezvous": True, "suspended": True, "epoch": "3 south"}
        keys = [KEY, {**KEY, "key": "a/# publisher south", "facts": facts}]
        tables = {"members": [{"node": "north", "rtt": 0.25, "hops": 1}, {"node": "east", "hops": 12345}]}
        shown = {"node": "south", "members": 4, "keys": keys, "facts": {"suspended": 1}, "tables": tables}
        return OverlayView.model_validate(shown)

    def trace(self, topic: str, done: Callable[[dict[str, Any] | AdminError], None]) -> None:
        self.calls.append(("trace", topic))
        if self.silent:
            return
        if topic == "broken":
            done(AdminError("algorithm sf failed in trace"))
        trees = [
            {"name": "a/b", "facts": {"suspended": False, "epoch": 3}, "tree": TREE},
            {"name": "a/#", "facts": {"suspended": True}, "tree": None},
            {"name": "#", "facts": {}, "tree": None},
        ]
        totals = {"nodes": 4, "messages": 3, "depth": 2, "complete": topic != "cut off"}
        done({"topic": topic, "trees": trees, **totals})
        done({"topic": "late", "trees": [], **totals})

    def follow(self, topic: str, done: Callable[[dict[str, Any] | AdminError], None]) -> None:
        self.calls.append(("follow", topic))
        done({"topic": topic, "hops": HOPS})

    def watch(self, topic_filter: str, seconds: float, messages: int, one_in: int) -> dict[str, Any]:
        self.calls.append(("watch", topic_filter, seconds, messages, one_in))
        return {"name": "one"}

    def watched(self, name: str) -> dict[str, Any]:
        if name != "one":
            raise UnknownError(f"there is no trace {name!r} (any more)")
        self.calls.append(("watched", name))
        self.looked_at += 1
        return {"filters": ["a/#"], "over": self.looked_at > 2, "left_out": 3, "messages": MESSAGES}

    def unwatch(self, name: str) -> dict[str, Any]:
        self.calls.append(("unwatch", name))
        return {"filters": ["a/#"], "over": True, "left_out": 0, "messages": []}

    def kept(self, topic: str, client_id: str) -> list[dict[str, Any]]:
        self.calls.append(("kept", topic, client_id))
        return [{"neighbor": "north", "why": "link.rules.0 denies it"}]

    def add_neighbor(self, address: Address, save: bool) -> dict[str, Any]:
        self.calls.append(("add", address, save))
        if any(row["address"] == str(address) for row in self.rows):
            raise AdminError(f"{address} is a neighbour already")
        row = {**NEIGHBOR, "address": str(address), "node_id": None, "state": "connecting", "saved": save}
        self.rows.append(row)
        return row

    def remove_neighbor(self, target: str, save: bool, force: bool) -> dict[str, Any]:
        self.calls.append(("remove", target, save))
        for row in self.rows:
            if target in (row["address"], row["node_id"]):
                if self.waiting and not force:
                    raise AdminError(f"3 messages for {row['node_id']} would be thrown away")
                self.rows.remove(row)
                thrown_away = {"messages": len(self.waiting), "bytes": 900, "oldest": None}
                return {
                    "address": row["address"],
                    "node_id": row["node_id"],
                    "state": "removed",
                    "thrown_away": thrown_away,
                }
        raise UnknownError(f"{target} is not a neighbour")

    def spool(self) -> dict[str, Any]:
        waiting = {
            "receiver": "link/north",
            "messages": len(self.waiting),
            "bytes": 900,
            "on_disk": 1,
            "oldest": 1_700_000_000.0,
        }
        return {
            **self.status()["spool"],
            "directory": "/var/lib/ildm/spool",
            "limit": 1 << 30,
            "lost": {"places": 0, "ends": 0, "messages": 0, "entries": 0, "receivers": {}},
            "receivers": [waiting] if self.waiting else [],
        }

    def spooled(self, receiver: str, after: int, limit: int) -> dict[str, Any]:
        self._receiver(receiver)
        return {"items": [row for row in self.waiting if row["lsn"] > after][:limit]}

    def drop_spooled(self, receiver: str) -> dict[str, Any]:
        self._receiver(receiver)
        self.calls.append(("drop", receiver))
        messages, self.waiting = len(self.waiting), []
        return {"receiver": receiver, "messages": messages, "bytes": 900, "oldest": None}

    def _receiver(self, receiver: str) -> None:
        if receiver != "link/north":
            raise UnknownError(f"the spool has nothing for {receiver}")

    def when_saved(self, done: Callable[[str | None], None]) -> None:
        done(None)

    def read_config(self) -> Config:
        if self.broken is not None:
            raise self.broken
        return Config(node_id="again")

    def reload_plugins(self, config: Config) -> dict[str, Any]:
        self.calls.append(("reload", config.node_id))
        row = {"kind": "algorithm", "name": "sf", "result": "changed", "options": ["k"], "error": None}
        return {"file": "node.yaml", "plugins": [row, *self.reloaded], "not_applied": ["log.level"]}

    async def reload(self, dry_run: bool) -> dict[str, Any]:
        if self.broken is not None:
            raise self.broken
        self.calls.append(("reload all", dry_run))
        changes = ["limits.clients: 1 -> 2", "+ link.neighbors: north:1885"]
        return {"file": "node.yaml", "dry_run": dry_run, "changes": changes, "warnings": ["listen: open"]}

    async def upgrade(self, python: str | None, seconds: float) -> dict[str, Any]:
        if self.broken is not None:
            raise self.broken
        self.calls.append(("upgrade", python, seconds))
        return {"pid": 4711, "clients": 3, "sent_away": 1, "pause": 0.1}

    def set_log_level(self, level: str) -> None:
        self.calls.append(("level", level))

    def stop(self) -> None:
        self.calls.append(("stop",))
        self.stopped.set()


@contextmanager
def served(view: FakeView, path: Path, trace_timeout: float = 8.0) -> Iterator[FakeView]:
    """The admin API of a view, in an event loop of its own thread; it ends when the view is stopped."""
    started = threading.Event()
    problems: list[BaseException] = []

    async def serve() -> None:
        server = AdminServer(view, path, AdminConfig(), Counters(), trace_timeout)
        await server.start()
        started.set()
        await asyncio.to_thread(view.stopped.wait)
        await server.stop()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            problems.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="fake node")
    thread.start()
    started.wait()
    try:
        if problems:
            raise problems[0]
        yield view
    finally:
        view.stopped.set()
        thread.join()
