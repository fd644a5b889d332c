"""What all brokers share: what they can do, and the CONNECT that tells whether they are up."""

from __future__ import annotations

import socket
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from ildm.testing.live.process import HERE, ManagedProcess, Placement, ProcessError

_CONNECT_311 = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x0a\x00\x05ready"
_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
_SERVER_UNAVAILABLE = 3


class BrokerError(ProcessError):
    """A broker did not come up, or did not go down."""


class Broker(ManagedProcess):
    """A stock MQTT broker on a free port of 127.0.0.1 in a directory of its own.

    All methods block; in a coroutine use ``await asyncio.to_thread(broker.restart)``. ``port`` stays the same
    from construction on, whatever is started, stopped or killed in between.
    """

    versions: ClassVar[frozenset[int]]
    """Protocol levels the broker accepts in CONNECT: 3 (MQTT 3.1), 4 (3.1.1), 5."""
    max_qos: ClassVar[int] = 2
    """The highest QoS it grants in SUBACK."""
    error = BrokerError

    def __init__(self, directory: Path, *, place: Placement = HERE, tuned: bool = False) -> None:
        """`tuned` is for measurements: as fast as it can be, however long it takes to boot."""
        super().__init__(directory, place)
        self.tuned = tuned

    @classmethod
    @abstractmethod
    def available(cls) -> str | None:
        """None where the broker can run on this machine, else what is missing and how to get it."""

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    def ready(self) -> bool:
        """Whether it answers CONNECT (MQTT-3.1.4-4)."""
        return answers_connect(self.address)


def answers_connect(address: tuple[str, int]) -> bool:
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
