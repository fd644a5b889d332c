"""A client's message as it travels between nodes and as the log keeps it.

======== ====== ==================================================================
MESSAGE  M      number at its origin, place in its stream, PUBLISH frame of MQTT 5
======== ====== ==================================================================
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ildm.mqtt import IldmError

__all__ = ["Message", "MessageError", "milliseconds"]

_MESSAGE = Struct(">QIH")


class MessageError(IldmError):
    """Bytes from another node that are no payload of a topic-based overlay."""


class Message(NamedTuple):
    """A client's message on its way to subscribers."""

    number: int
    """At its origin: grows by one with each message, and by more with each incarnation of the node."""
    behind: int
    """How many numbers before it the one before it with the same topic and turn is; 0: there is none."""
    turn: int
    frame: bytes

    def encode(self) -> bytes:
        return b"M" + _MESSAGE.pack(self.number, self.behind, self.turn) + self.frame

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """Read a payload. Raises: MessageError: it is no client's message."""
        if payload[:1] != b"M" or len(payload) <= _MESSAGE.size:
            raise MessageError("no message of a client")
        number, behind, turn = _MESSAGE.unpack_from(payload, 1)
        return cls(number, behind, turn, payload[1 + _MESSAGE.size :])


def milliseconds(seconds: float) -> int:
    """An age as it is sent, 49 days at most."""
    return min(int(1000 * max(0.0, seconds)), 0xFFFF_FFFF)
