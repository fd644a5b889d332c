"""What a simulated run yields, and how it fails."""

from __future__ import annotations

from typing import NamedTuple

from ildm.mqtt import IldmError


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
