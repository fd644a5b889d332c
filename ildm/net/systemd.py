"""What systemd gives a service and hears from it: sockets that listen, and how it goes with the node.

Sockets: sd_listen_fds(3). News: sd_notify(3) over a datagram socket. Without systemd nothing is there and
nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from ildm.log import get_logger
from ildm.net.transport import ListenError
from ildm.net.transport.inherited import Inherited, InheritedError
from ildm.text import reason

if TYPE_CHECKING:
    from ildm.config import Config

FIRST = 3
"""Descriptor of the first socket (SD_LISTEN_FDS_START)."""
MOST = 1024
"""Sockets that are taken."""
OPENING = 600.0
"""Seconds that the spool may take to be opened, as ``TimeoutStartSec`` in the unit."""
Environment = MutableMapping[str, str]


class Notifier:
    """Tells systemd how it goes.

    Args:
        address: of the datagram socket; None: nobody wants to know. ``@`` begins an abstract name.
        watchdog: seconds without a sign of life after which the node is taken for dead; None: never.
    """

    def __init__(self, address: str | None, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._socket: socket.socket | None = None
        self._failed = self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._watchdog_put_off: int | None = None
        """Its microseconds, while they are more."""
        if address:
            self._address = "\0" + address[1:] if address.startswith("@") else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self, status: str = "serving") -> None:
        """The node serves, or stands by for one that does; from now on the event loop gives the signs of
        life."""
        restored = () if self._watchdog_put_off is None else (f"WATCHDOG_USEC={self._watchdog_put_off}",)
        self._watchdog_put_off = None
        self._tell("READY=1", f"STATUS={status}", *restored)
        if self.watchdog is not None and self._timer is None:
            self._live(asyncio.get_running_loop(), self.watchdog / 2)

    def opening(self) -> None:
        """A node that stood by opens the spool; the event loop may give no sign of life for so long."""
        if self.watchdog is not None:
            self._watchdog_put_off = int(self.watchdog * 1e6)
            self._tell("STATUS=opening the spool", f"WATCHDOG_USEC={int(OPENING * 1e6)}")

    def reloading(self, under_way: bool) -> None:
        """The configuration is being read again, or that has ended, well or not."""
        if self._stopping:
            return
        if under_way:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        else:
            self._tell("READY=1")

    def stopping(self, seconds: float) -> None:
        """The node drains, which may take so long."""
        self._stopping = True
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", "STATUS=draining")

    def succeeded_by(self, pid: int) -> None:
        """Another process is the service from now on."""
        self._stopping = True
        self._tell(f"MAINPID={pid}")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _live(self, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        self._tell("WATCHDOG=1")
        self._timer = loop.call_later(interval, self._live, loop, interval)

    def _tell(self, *news: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(news).encode(), self._address)
        except OSError as error:
            if not self._failed:  # once is enough, and a node without systemd serves all the same
                get_logger("ildm").warning("systemd cannot be told how it goes", reason=reason(error))
            self._failed = True
        else:
            self._failed = False


def for_the_next(environment: Environment) -> dict[str, str]:
    """What the process that takes this one's place has to know of systemd: this one takes it from
    ``environment``."""
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC")
    return {name: environment[name] for name in names if name in environment}


def take_notifier(environment: Environment) -> Notifier:
    """What ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` say, which no program that this one starts is to see."""
    address = environment.pop("NOTIFY_SOCKET", None)
    pause = environment.pop("WATCHDOG_USEC", "")
    of = environment.pop("WATCHDOG_PID", str(os.getpid()))
    wanted = pause.isascii() and pause.isdecimal() and int(pause[:18]) > 0 and of == str(os.getpid())
    return Notifier(address, int(pause[:18]) / 1e6 if wanted else None)


def take_sockets(environment: Environment) -> Inherited:
    """The sockets which ``LISTEN_FDS`` announces to this process.

    Raises:
        ListenError: a descriptor is no stream socket that listens.
    """
    number = environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if environment.pop("LISTEN_PID", None) != str(os.getpid()):
        return Inherited()
    if not (number.isascii() and number.isdecimal() and int(number[:9]) <= MOST):
        raise ListenError(f"LISTEN_FDS: expected a number from 0 to {MOST}, found {number!r}")
    made = Inherited()
    for index in range(int(number)):
        try:
            made.add(FIRST + index, names[index] if index < len(names) else "")
        except InheritedError as error:
            raise ListenError(f"LISTEN_FDS: {error}") from error
    return made


def time_to_drain(config: Config, clients: int) -> float:
    """Seconds that the end of a node takes at most, with some for the disk."""
    return clients / config.limits.drain_rate + config.limits.drain_timeout + 10.0
