"""What the nodes of a live run say of themselves, and what the system says of them, put into its history."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from ildm.admin.view import AdminError, Row
from ildm.testing.live.node import NodeProcess
from ildm_bench.chaos.drawing import TREE
from ildm_bench.chaos.processes import IldmSites, Sites
from ildm_bench.chaos.recording import TREE_CHANGES, Recorder

INTERVAL = 1.0
"""Seconds from one reading to the next."""
MOST_MEMORY = 400 << 20
"""Bytes of a node's memory; what it may have is far below, what grows without bound gets there."""


class Readings:
    """Counters, memory, spool and links of all nodes; without nodes there are none."""

    def __init__(self, sites: Sites, recorder: Recorder) -> None:
        self.sites = sites
        self.recorder = recorder
        self._told: dict[tuple[str, str, int], int] = {}
        self._links: dict[str, dict[str, str]] = {}
        self._wall = time.time() - time.monotonic()
        self._keeps = sites.setting.algorithm not in TREE
        """The algorithm keeps messages for whoever may come back: they are not under way."""

    async def repeat(self) -> None:
        """Read again and again, until cancelled."""
        for site in self.sites.nodes:
            bound = self.sites.nodes[site].document["spool"]["bytes"]
            for name, value in (("rss_bytes", MOST_MEMORY), ("spool_disk_bytes", bound)):
                self.recorder.note(f"node/{site}", "counters", "info", topic=name, seq=value)
        while True:
            await self.take()
            await asyncio.sleep(INTERVAL)

    async def take(self) -> list[Row]:
        """Read once; the status of each node that answers."""
        found = await asyncio.gather(
            *(asyncio.to_thread(self._ask, node) for node in self.sites.nodes.values())
        )
        for site, node in self.sites.nodes.items():
            self._tell_logged(site, await asyncio.to_thread(list, node.logged()))
        answers = []
        for (site, node), answer in zip(self.sites.nodes.items(), found, strict=True):
            if answer is not None:
                status, neighbors = answer
                self._tell(site, node, status)
                self._tell_tree(site, neighbors)
                answers.append(status)
        return answers

    async def is_idle(self) -> bool:
        """Whether all nodes answer, have their brokers, and nothing waits for anybody."""
        answers = await self.take()
        return len(answers) == len(self.sites.nodes) and all(map(_is_idle, answers))

    def _ask(self, node: NodeProcess) -> tuple[Row, list[Row]] | None:
        admin = node.admin
        admin.timeout = INTERVAL
        try:
            status = admin.status()
            if self._keeps:
                status["spool"] = admin.spool()
            return status, admin.neighbors().items
        except (AdminError, OSError):  # it is down, or stopped
            return None

    def _tell(self, site: str, node: NodeProcess, status: Row) -> None:
        name = f"node/{site}"
        values: dict[str, int] = dict(status["counters"])
        if (pid := node.pid) is not None and (memory := memory_of(pid)) is not None:
            values["rss_bytes"] = memory
        values["queued_messages"] = _queued(status)
        if isinstance(self.sites, IldmSites) and self.sites.setting.mode != "off":
            values["spool_disk_bytes"] = _bytes_of(self.sites.spool_of(site))
        life = self.recorder.lives[name]
        for topic, value in values.items():
            if self._told.get((name, topic, life)) != value:
                self._told[name, topic, life] = value
                self.recorder.note(name, "counters", "ok", incarnation=life, topic=topic, seq=value)

    def _tell_logged(self, site: str, lines: list[dict[str, Any]]) -> None:
        """Changes of the tree that a node says itself: readings miss those that have passed in between."""
        for line in lines:
            if line["event"] in TREE_CHANGES:
                since = datetime.fromisoformat(line["timestamp"]).timestamp() - self._wall - time.monotonic()
                if (t := self.recorder.clock() + since) > 0:  # it was not before the run
                    self.recorder.note(f"node/{site}", "tree", "info", t=t)

    def _tell_tree(self, site: str, neighbors: list[Row]) -> None:
        links = {row["node_id"]: row["state"] for row in neighbors if row["node_id"]}
        before = self._links.get(site)
        self._links[site] = links
        if before is None or before == links:
            return
        changed = [row["since"] for row in neighbors if row["since"] is not None]
        since = max(changed, default=time.time()) - self._wall - time.monotonic()
        self.recorder.note(f"node/{site}", "tree", "info", t=self.recorder.clock() + since)


def _is_idle(status: Row) -> bool:
    return status["broker"]["connected"] and not _queued(status)


def _queued(status: Row) -> int:
    """Messages that wait, in memory or on disk; what an algorithm keeps for who may come back does not."""
    queues = status["queues"]
    spool: dict[str, Any] = status.get("spool") or {}
    kept = sum(row["messages"] for row in spool.get("receivers", ()) if row["receiver"].startswith("plugin/"))
    waiting = spool.get("messages", 0) - kept
    return int(queues["injection"]["messages"] + queues["links"]["messages"] + waiting)


def memory_of(pid: int) -> int | None:
    """Bytes of a process in memory; None if it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages << 12


def _bytes_of(directory: Path) -> int:
    """Of all files there."""
    total = 0
    for path in directory.glob("**/*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # the node has just removed it
            continue
    return total
