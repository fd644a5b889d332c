"""Processes that end with us, however we end."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ildm.mqtt import IldmError

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
LOG_LINES = 12


class DemoError(IldmError):
    """The demo cannot go on."""


class Child:
    """A process of the demo, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start it. To be called in the main thread: the kernel ends the child with the thread that made it.

        Raises:
            DemoError: the program cannot be started.
        """
        self.name = name
        self.log = log
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 - our own programs
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the demo, which ends the others in order
                    preexec_fn=_end_with_parent(),  # noqa: PLW1509 - no threads here yet
                )
        except OSError as error:
            raise DemoError(f"{name}: cannot start {command[0]}: {error.strerror or error}") from error

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """
        Raises:
            DemoError: the process has ended; the text has its last words.
        """
        if not self.running:
            raise DemoError(f"{self.name} ended with status {self._process.returncode}\n{self.last_lines()}")

    def last_lines(self) -> str:
        """The end of its output."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join(f"  | {line}" for line in lines) or "  | (it printed nothing)"

    def ask_to_end(self) -> None:
        if self.running:
            self._process.terminate()

    def end(self, grace: float) -> None:
        """Wait for the end for ``grace`` seconds, then force it."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_for(what: str, reached: Callable[[], bool], children: Sequence[Child], timeout: float) -> None:
    """Wait until ``reached()``.

    Raises:
        DemoError: a child has ended, or it took longer than ``timeout`` seconds.
    """
    give_up = time.monotonic() + timeout
    while not reached():
        for child in children:
            child.check()
        if time.monotonic() > give_up:
            logs = "\n".join(f"{child.name}:\n{child.last_lines()}" for child in children)
            raise DemoError(f"{what}: not within {timeout:g} s\n{logs}")
        time.sleep(0.05)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(first: int, number: int) -> list[int]:
    """The next free ports from ``first`` on."""
    found = [port for port in range(first, min(first + 1000, 65536)) if is_free(port)][:number]
    if len(found) < number:
        raise DemoError(f"no {number} free ports from {first} on")
    return found


def hidden_ports(number: int, avoid: Sequence[int]) -> list[int]:
    """Free ports nobody needs to know.

    They lie below the range from which the kernel takes the ports of clients; there a node that
    dials a neighbour before it listens could take the neighbour's port, or be connected to itself.
    """
    candidates = random.sample(range(12_000, 32_000), 2000)
    found = [port for port in candidates[:200] if port not in avoid and is_free(port)][:number]
    if len(found) < number:
        raise DemoError("no free ports between 12000 and 32000")
    return found


def answers_mqtt(port: int) -> bool:
    """Whether a broker accepts a CONNECT on this port."""
    connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x0a\x00\x04demo"
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as probe:
            probe.sendall(connect)
            answer = probe.recv(4)
            if answer[:1] != b"\x20" or answer[3:4] != b"\x00":
                return False
            probe.sendall(b"\xe0\x00")
    except OSError:
        return False
    return True


def _end_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes another program; on Linux only."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had gone before we asked
            os._exit(1)

    return ask_kernel
