"""What transfers know of links and of the node's own sessions with the broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from ildm.api import Link

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.classes import LinkClasses
    from ildm.core.transfer.custody import Destination
    from ildm.core.transfer.receipt import Receipt
    from ildm.core.transfer.rules import LinkRules
    from ildm.core.transfer.sender import Sender

    Targets = tuple[tuple["Neighbor", int, int], ...]
    """Links a message is transferred over, each with the QoS wanted there and its rank, see
    :mod:`ildm.core.transfer.classes`."""


class Neighbor(Link, Protocol):
    """A link."""

    config: LinkConfig
    rules: LinkRules | None
    """What may cross; None: everything."""
    classes: LinkClasses | None
    """How messages wait; None: all alike."""
    kept: bool
    """What is to be transferred outlives this node."""
    senders: list[Sender]
    transferred_in: int
    joined_at: float
    """When it has last begun to carry messages."""

    @property
    def scope(self) -> object | None:
        """What the neighbour has said that may cross; None: everything."""

    @property
    def connected(self) -> bool: ...

    @property
    def active(self) -> bool:
        """It carries messages in both directions."""

    def consumer(self, index: int) -> str:
        """Name of the spool's consumer for a session."""

    def most_qos(self, topic: str) -> int | None:
        """With which QoS at most messages on a topic may cross to the neighbour; None: not at all."""

    def hold_for_reroute(self) -> None:
        """What is in the consumers may have to go another way: nothing is sent for now."""


class LocalBroker(ABC):
    """The way into the local broker. No Protocol, because both of its sides are compiled."""

    @abstractmethod
    def send(self, batch: Batch, index: int, receipt: Receipt | None) -> None:
        """Inject a batch; ``receipt`` is told when messages of it are disposed of."""

    @abstractmethod
    def destination(self, index: int, qos: int, messages: int) -> Destination:
        """How so many messages that this node has custody of get into the broker."""
