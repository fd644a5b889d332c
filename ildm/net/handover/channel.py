"""What two processes of one node tell each other, with the descriptors that go along."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ildm.mqtt import IldmError

MOST: Final = 253
"""Descriptors in one message (SCM_MAX_FD of Linux)."""
CLIENTS: Final = (MOST - 1) // 2
"""In one message: each has two sockets, and what is said of them stands in a file of its own."""
PAUSE = 0.002
"""Seconds between two attempts where too many descriptors are on their way (RLIMIT_NOFILE, unix(7))."""


class ChannelError(IldmError):
    """The other process says nothing, or nothing that can be understood."""


class Message(NamedTuple):
    """A word, what belongs to it, and descriptors, which are the receiver's."""

    word: str
    about: Any
    descriptors: list[int]


class Channel:
    """One end of a socket pair. Its methods block, for ``timeout`` seconds at most, so threads call them."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(True)

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """This process's end, and that of the other."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(own), other

    def send(
        self, word: str, about: Any = None, descriptors: Sequence[int] = (), timeout: float = 10.0
    ) -> None:
        """Raises: ChannelError."""
        file = os.memfd_create("ildm")
        try:
            with os.fdopen(os.dup(file), "wb") as text:
                text.write(json.dumps(about).encode())
            give_up = time.monotonic() + timeout
            self._socket.settimeout(timeout)
            while True:
                try:
                    socket.send_fds(self._socket, [word.encode()], [file, *descriptors])
                except OSError as error:
                    if error.errno != errno.ETOOMANYREFS or time.monotonic() >= give_up:
                        raise ChannelError(f"the other process cannot be told: {error}") from error
                    time.sleep(PAUSE)
                else:
                    return
        finally:
            os.close(file)

    def receive(self, timeout: float) -> Message | None:
        """The next message; None: the other process has ended. Raises: ChannelError."""
        self._socket.settimeout(timeout)
        try:
            word, descriptors, flags, _ = socket.recv_fds(self._socket, 64, MOST)
        except TimeoutError:
            raise ChannelError(f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise ChannelError(f"the other process cannot be heard: {error}") from error
        if not word:
            return None
        for each in descriptors:
            os.set_inheritable(each, False)
        if flags & socket.MSG_CTRUNC or not descriptors:
            for each in descriptors:
                os.close(each)
            raise ChannelError("too few descriptors are free in this process")
        file, *rest = descriptors
        try:
            text = os.pread(file, os.fstat(file).st_size, 0)
            return Message(word.decode(), json.loads(text), rest)
        except (OSError, ValueError) as error:
            raise ChannelError(f"the other process is not understood: {error}") from error
        finally:
            os.close(file)

    def close(self) -> None:
        self._socket.close()
