"""A site whose node is a process of its own, started with ``ildm run``: it can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.sites.client import PATIENCE, Client, within
from tests.sites.site import Choice, settings
from tests.support.brokers import Broker

PROJECT = Path(__file__).parents[2]
STARTING = 4 * PATIENCE
"""Seconds a process may take to be ready: a second of computing, on a machine that is busy with much else."""


class ProcessSite:
    """Ports and state directory stay over `kill` and `start`."""

    def __init__(self, broker: Broker, directory: Path, algorithm: Choice, name: str, **changes: Any) -> None:
        self.broker = broker
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True)
        document = settings(broker.address, directory / "state", algorithm, name, **changes)
        document["admin"] = {"socket": str(directory / "admin")}
        document["log"] = {"level": "info", "format": "json"}
        self._file = directory / "node.yaml"
        self._file.write_text(yaml.safe_dump(document))
        self.address = _pair(document["listen"])
        self.link_address = _pair(document["link"]["listen"])
        self.command = [sys.executable, "-m", "ildm", "run", "--config", str(self._file)]
        self.where = PROJECT
        self.environment: Mapping[str, str] = os.environ
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; returns when the broker and all sockets are ready."""
        log = (self.directory / "log").open("ab")
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stderr=log, cwd=self.where, env=self.environment
            )
        finally:
            log.close()

        async def ready() -> None:
            while True:
                assert self.process is not None
                assert self.process.returncode is None, self.log()
                try:
                    status = await self.status()
                except (OSError, aiohttp.ClientError):
                    status = {"broker": {"connected": False}}
                if status["broker"]["connected"] and status["broker"]["protocol"]:
                    return
                await asyncio.sleep(0.02)

        await within(ready(), "the node's process", STARTING)

    def log(self) -> str:
        return (self.directory / "log").read_text()

    async def kill(self) -> None:
        """SIGKILL, as in a crash."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    def saved_filters(self, client_id: str) -> dict[str, int]:
        """The subscriptions of a persistent session which the state directory holds by now."""
        statement = "SELECT filter, qos FROM subscriptions WHERE client_id = ?"
        with contextlib.closing(sqlite3.connect(self.directory / "state/state.sqlite")) as database:
            return dict(database.execute(statement, (client_id,)).fetchall())

    def saved_rows(self, table: str) -> int:
        """How many rows of a table the state directory holds by now."""
        with contextlib.closing(sqlite3.connect(self.directory / "state/state.sqlite")) as database:
            return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        status: int = await within(self.process.wait(), "the end of the node's process")
        return status

    async def connect(self, client_id: str | None = None, **options: Any) -> Client:
        return await Client.connect(self.address, client_id, **options)

    async def status(self) -> dict[str, Any]:
        return await self._get("status")

    async def count(self, name: str) -> int:
        """A counter, since the process was started."""
        return int((await self.status())["counters"].get(name, 0))

    async def has_counted(self, name: str, least: int) -> None:
        """Wait until a counter has come so far."""

        async def counted() -> None:
            while await self.count(name) < least:  # noqa: ASYNC110 - the process has no event for it
                await asyncio.sleep(0.02)

        await within(counted(), f"{name}: {least}")

    def pause(self) -> None:
        """SIGSTOP: connections stay, but nobody answers, as on a machine that hangs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT after `pause`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def overlay(self) -> dict[str, Any]:
        """What ``ildm overlay`` would show; empty until the node has begun to join."""
        status, answer = await self._ask("overlay")
        assert status == 200 or "has not started" in answer, answer
        return dict(json.loads(answer)) if status == 200 else {}

    async def neighbors(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self._get("neighbors"))["items"]
        return rows

    async def _get(self, what: str) -> dict[str, Any]:
        status, answer = await self._ask(what)
        assert status == 200, answer
        return dict(json.loads(answer))

    async def _ask(self, what: str) -> tuple[int, str]:
        connector = aiohttp.UnixConnector(str(self.directory / "admin"))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://node/v1/{what}") as answer,
        ):
            return answer.status, await answer.text()


def _pair(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
