"""A node that runs with a configuration file as it stands."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.plugins.commands import PATIENCE, environment


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
