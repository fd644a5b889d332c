"""What all brokers share: a process group and a directory of their own, a port, a log, a readiness check."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.support.brokers.reaper import Reaper
from tests.support.ports import LOOPBACK, free_port

_CONNECT_311 = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x0a\x00\x05ready"
_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
_SERVER_UNAVAILABLE = 3
_POLL = 0.02
_DEATH_TIMEOUT = 10.0


class BrokerError(RuntimeError):
    """A broker did not come up, or did not go down."""


class Broker:
    """A stock MQTT broker on a free port of 127.0.0.1 in a directory of its own.

    All methods block; in a coroutine use ``await asyncio.to_thread(broker.restart)``. ``port`` stays the same
    from construction on, whatever is started, stopped or killed in between.
    """

    name: ClassVar[str]
    versions: ClassVar[frozenset[int]]
    """Protocol levels the broker accepts in CONNECT: 3 (MQTT 3.1), 4 (3.1.1), 5."""
    max_qos: ClassVar[int] = 2
    """The highest QoS it grants in SUBACK."""
    boot_timeout: ClassVar[float] = 60.0
    """Seconds until a start is given up; generous, for a machine that is busy with other things."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host = LOOPBACK
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @classmethod
    def available(cls) -> str | None:
        """None where the broker can run on this machine, else what is missing and how to get it."""
        raise NotImplementedError

    def command(self) -> Sequence[str | Path]:
        """Write the configuration and give the command line that runs the broker in the foreground."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables to add to the environment."""
        return {}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def running(self) -> bool:
        """Whether the broker's process lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def log_path(self) -> Path:
        """Where standard output and error of all runs go."""
        return self.directory / "broker.log"

    def log(self) -> str:
        """All it has printed so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the process and return when it has answered a CONNECT (MQTT-3.1.4-4)."""
        if self.running:
            raise BrokerError(f"{self.name} runs already")
        command = [str(part) for part in self.command()]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _reaper().watch(self.process.pid)
        try:
            self._wait_ready(self.process)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float = 30.0) -> None:
        """Ask it to go (SIGTERM) and wait. Nothing happens when it is not running.

        Raises BrokerError, after a SIGKILL, when it is still there `timeout` seconds later.
        """
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise BrokerError(f"{self.name} did not stop within {timeout} s\n{self.log()}") from None
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
                raise BrokerError(f"{self.name}: processes {self.pids()} outlived a SIGKILL")
            time.sleep(_POLL)
        self.process = None
        _reaper().forget(group)

    def restart(self) -> None:
        """Stop gracefully and start again on the same port, with what it has stored."""
        self.stop()
        self.start()

    def pids(self) -> list[int]:
        """The living processes of the broker's group."""
        if self.process is None:
            return []
        group = self.process.pid
        every = sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
        return [pid for pid in every if _group(pid) == group]

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + self.boot_timeout
        while True:
            answered = _answers_connect(self.address)
            # Asked after the answer: a stranger on the port must not pass for a broker that died on it.
            if process.poll() is not None:
                raise BrokerError(f"{self.name} ended with status {process.returncode}\n{self.log()}")
            if answered:
                return
            if time.monotonic() > give_up:
                raise BrokerError(f"{self.name} did not answer within {self.boot_timeout} s\n{self.log()}")
            time.sleep(_POLL)


def _answers_connect(address: tuple[str, int]) -> bool:
    """Whether a CONNACK comes. A refusal counts (a broker that wants a password is up), "unavailable" not."""
    try:
        with socket.create_connection(address, timeout=2) as probe:
            probe.sendall(_CONNECT_311)
            answer = b""
            while len(answer) < 4 and (chunk := probe.recv(4)):
                answer += chunk
            if len(answer) < 4:
                return False
            probe.sendall(_DISCONNECT)
            return answer[0] == _CONNACK and answer[3] != _SERVER_UNAVAILABLE
    except OSError:
        return False


def _group(pid: int) -> int | None:
    """The process group; None for a process that has ended, be it a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may hold anything, brackets and spaces too.
    state, _parent, group = stat.rpartition(")")[2].split()[:3]
    return None if state in {"Z", "X"} else int(group)


@functools.cache
def _reaper() -> Reaper:
    reaper = Reaper()
    atexit.register(reaper.close)
    return reaper
