"""What a simulated run yields, and how it fails."""

from __future__ import annotations

from typing import NamedTuple

from ildm.api import Role, SessionStatus
from ildm.mqtt import IldmError, Version


class SimulationError(IldmError):
    """A run that cannot go on: a failed plugin, a wrong call, or a state that never comes."""


class Delivery(NamedTuple):
    """A message as one local client gets it."""

    time: float
    """Virtual seconds."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client: str
    origin: str | None
    """Node where it was published; None when it came of no publish (a timer, a stored message)."""
    sent: float | None
    """Time of the publish."""
    hops: int | None
    """Messages between nodes from the publish to here, one after the other."""


class Cause(NamedTuple):
    """What a message follows from: it travels with whatever a node sends while it handles the message."""

    origin: str
    """Node where it began: a publish."""
    time: float
    hops: int
    """Messages between nodes since."""


class SimSession:
    """One TCP connection, as plugins see it. Implements :class:`ildm.api.Session`."""

    __slots__ = ("client_id", "id", "peer", "role", "status", "version")

    def __init__(self, number: int, role: Role, peer: str, version: Version) -> None:
        self.id = number
        self.role = role
        self.status = SessionStatus.ESTABLISHED
        self.peer = peer
        self.client_id = ""
        self.version = version

    def __repr__(self) -> str:
        return f"<{self.role} session {self.client_id or self.peer}>"
