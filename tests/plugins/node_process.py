"""A node as users run it, in a process of its own, and a client that shows each packet."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ildm.mqtt import ConnAck, Connect, Disconnect, Framer, Packet, Version, decode

PROJECT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds until a wait is given up: a bound for failures, never reached by a test that passes."""

P = TypeVar("P", bound=Packet)


def environment(installed: Path) -> dict[str, str]:
    """The environment of a process that finds the project and what was installed into a directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(PROJECT)))}


def ildm(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Carry out ``ildm ARGUMENTS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ildm", *map(str, arguments)],
        env=environment(installed),
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class NodeProcess:
    """``ildm run``; started on entry of the ``with`` block, stopped by SIGTERM on exit."""

    def __init__(self, installed: Path, config: Path) -> None:
        self._installed = installed
        self._config = config
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._seen: list[str] = []

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ildm", "run", "--config", self._config],
            env=environment(self._installed),
            cwd=self._config.parent,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="log of the node")
        self._reader.start()
        try:
            self.wait_for("node started")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.process.terminate()
            status = self.process.wait(PATIENCE)
        finally:
            self._kill()
        if error is None:
            assert status == 0, self._seen

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next log line of that event."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no {event!r} in the log: {self._seen}") from None
            self._seen.append(line)
            assert line, f"the node has ended: {self._seen}"
            if line.startswith("{") and (entry := json.loads(line))["event"] == event:
                return dict(entry)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put("")

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


class RawClient:
    """Sends packets and shows those that come back; acknowledges nothing by itself."""

    def __init__(self, port: int, client_id: str, version: Version) -> None:
        self.version = version
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._framer = Framer()
        self._frames: list[bytes] = []
        self.send(Connect(client_id=client_id, version=version))
        assert self.expect(ConnAck).reason_code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._socket:
            self.send(Disconnect())

    def send(self, packet: Packet) -> None:
        self._socket.sendall(packet.encode(self.version))

    def expect(self, kind: type[P]) -> P:
        """The next packet, which must be of that kind."""
        while not self._frames:
            data = self._socket.recv(65536)
            assert data, "the connection was closed"
            self._frames.extend(self._framer.feed(data))
        packet = decode(self._frames.pop(0), self.version)
        assert isinstance(packet, kind)
        return packet
