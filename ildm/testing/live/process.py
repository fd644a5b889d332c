"""Processes of a testbed: a group and a directory of their own, a log, and nothing of them is left behind."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ildm.mqtt import IldmError
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.reaper import Reaper

POLL = 0.02
_DEATH_TIMEOUT = 10.0
_LOG_END = 2000


class ProcessError(IldmError, RuntimeError):
    """A process did not come up, or did not go down."""


@dataclass(frozen=True)
class Placement:
    """Where a process runs: the address it listens on, and what puts it into its namespace and cgroup."""

    host: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    """Words before the command line, which end in becoming the command."""
    environment: Mapping[str, str] = field(default_factory=dict)


HERE = Placement()


class ManagedProcess(ABC):
    """A program on a free port. All methods block; ``port`` stays the same from construction on."""

    name: ClassVar[str]
    boot_timeout: ClassVar[float] = 60.0
    """Seconds until a start is given up; generous, for a machine that is busy with other things."""
    error: ClassVar[type[ProcessError]] = ProcessError

    def __init__(self, directory: Path, place: Placement = HERE) -> None:
        self.directory = directory
        self.place = place
        self.host = place.host
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.successor: int | None = None
        """The process that has taken the place of the first one, in its group."""
        directory.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Write the configuration and give the command line that runs it in the foreground."""

    def environment(self) -> Mapping[str, str]:
        """Variables to add to the environment."""
        return {}

    @abstractmethod
    def ready(self) -> bool:
        """Whether it does its work; asked again and again after the start."""

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return self.name

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """Of the process that does the work; None: it has ended."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            return self.process.pid
        successor = self.successor
        return successor if successor is not None and _group(successor) == self.process.pid else None

    @property
    def log_path(self) -> Path:
        """Where standard output and error of all runs go."""
        return self.directory / "output.log"

    def log(self) -> str:
        """All it has printed so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the process and return when it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process and return at once."""
        if self.running:
            raise self.error(f"{self.title} runs already")
        command = [*self.place.prefix, *(str(part) for part in self.command())]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **self.environment(), **self.place.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper().watch(self.process.pid)

    def wait_ready(self) -> None:
        """Return when the launched process is ready; where it does not get there, kill it.

        Raises:
            ProcessError: it has ended, or took longer than ``boot_timeout``; with what it has printed.
        """
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise

    def ask_to_end(self) -> None:
        """SIGTERM, without waiting."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, timeout: float = 30.0) -> None:
        """Ask it to go (SIGTERM) and wait. Nothing happens when it is not running.

        Raises:
            ProcessError: it was still there ``timeout`` seconds later, and was killed.
        """
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.error(f"{self.title} did not stop within {timeout} s\n{self.log()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole process group, as in a crash. Nothing happens when it is not running."""
        if self.process is None:
            return
        group = self.process.pid
        with contextlib.suppress(ProcessLookupError):  # All of the group may have ended by itself.
            os.killpg(group, signal.SIGKILL)
        self.process.wait()
        # The others of the group are not our children, and until they are gone one may still hold the port.
        give_up = time.monotonic() + _DEATH_TIMEOUT
        while self.pids():
            if time.monotonic() > give_up:
                raise self.error(f"{self.title}: processes {self.pids()} outlived a SIGKILL")
            time.sleep(POLL)
        self.process = self.successor = None
        reaper().forget(group)

    def restart(self) -> None:
        """Stop gracefully and start again on the same port, with what it has stored."""
        self.stop()
        self.start()

    def pids(self) -> list[int]:
        """The living processes of its group."""
        if self.process is None:
            return []
        group = self.process.pid
        every = sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
        return [pid for pid in every if _group(pid) == group]

    def _wait_ready(self) -> None:
        assert self.process is not None
        give_up = time.monotonic() + self.boot_timeout
        while True:
            ready = self.ready()
            # Asked after the answer: a stranger on the port must not pass for a process that died on it.
            if self.process.poll() is not None:
                status = self.process.returncode
                raise self.error(f"{self.title} ended with status {status}\n{self.log()[-_LOG_END:]}")
            if ready:
                return
            if time.monotonic() > give_up:
                raise self.error(
                    f"{self.title} was not ready within {self.boot_timeout} s\n{self.log()[-_LOG_END:]}"
                )
            time.sleep(POLL)


def _group(pid: int) -> int | None:
    """The process group; None for a process that has ended, be it a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The second field is the program's name in brackets and may hold anything, brackets and spaces too.
        state, _parent, group = stat.rpartition(")")[2].split()[:3]
        # That is the first thread's state; where others are still ending, they keep the files open.
        ended = state in {"Z", "X"} and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if ended else int(group)


_reaper_lock = threading.Lock()  # brokers are started from several threads at once


def reaper() -> Reaper:
    """The one of this process."""
    with _reaper_lock:
        return _made_reaper()


@functools.cache
def _made_reaper() -> Reaper:
    made = Reaper()
    atexit.register(made.close)
    return made
