"""The side of an upgrade that takes the clients: a process that another one has started."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ildm import __version__
from ildm.core.local.handover import READS
from ildm.mqtt import IldmError
from ildm.net.handover.channel import Channel, ChannelError
from ildm.net.handover.estate import Estate, Left
from ildm.net.handover.giving import DESCRIPTOR

if TYPE_CHECKING:
    from ildm.config import Config
    from ildm.net.transport.inherited import Inherited

LONGEST = 3600.0
"""Seconds that clients which cannot be handed over may take to go; the process before bounds that."""


class Predecessor:
    """The process before this one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._over = False

    def ready(self, config: Config, inherited: Inherited) -> Estate:
        """Say that nothing speaks against this process, and wait for what the other leaves.

        Raises:
            ChannelError: that has gone on by itself, or has ended.
        """
        directories = [str(config.state_dir.absolute()), str(config.spool_directory.absolute())]
        self._channel.send(
            "ready", {"release": __version__, "reads": READS, "directories": directories, "pid": os.getpid()}
        )
        estate = Estate(0.0)
        known: dict[int, str] = {}
        while True:
            message = self._channel.receive(LONGEST)
            if message is None:
                raise ChannelError("the process before has ended before it has handed anything over")
            if message.word == "listening":
                names = message.about["inherited"]
                for descriptor, name in zip(message.descriptors, names, strict=False):
                    inherited.add(descriptor, name)
                estate.listening += [socket.socket(fileno=each) for each in message.descriptors[len(names) :]]
            elif message.word == "known":
                known |= dict(message.about)
            elif message.word == "clients":
                pairs = zip(message.descriptors[::2], message.descriptors[1::2], strict=True)
                estate.take(Left.of(row, pair, known) for row, pair in zip(message.about, pairs, strict=True))
            elif message.word == "yours":
                estate.since, estate.sent_away = message.about["since"], message.about["sent_away"]
                estate.took, estate.served = self.took, self.served
                return estate

    def took(self) -> None:
        """All that can fail is done. Raises: ChannelError, the process before has ended."""
        with suppress(ChannelError):  # then it cannot take anything back either
            self._channel.send("took")
        self._over = True

    def served(self) -> None:
        """All clients have their sessions; the process before answers the administrator."""
        with suppress(ChannelError):
            self._channel.send("served")
        self._channel.close()

    def failed(self, why: str) -> None:
        """This process ends."""
        if not self._over:
            with suppress(ChannelError):
                self._channel.send("failed", why)
            self._channel.close()


@contextmanager
def predecessor(environment: MutableMapping[str, str]) -> Iterator[Predecessor | None]:
    """The process before this one, if there is any; it is told why this one ends before it has taken over."""
    number = environment.pop(DESCRIPTOR, "")
    if not (number.isascii() and number.isdecimal()):
        yield None
        return
    try:
        before = Predecessor(Channel(socket.socket(fileno=int(number))))
    except OSError as error:
        raise ChannelError(f"{DESCRIPTOR}: descriptor {number} is no channel: {error}") from error
    try:
        yield before
    except IldmError as error:
        before.failed(str(error))
        raise
    except Exception as error:
        before.failed(f"{type(error).__name__}: {error}")
        raise
