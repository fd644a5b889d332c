"""Who is told when messages have been disposed of, and who is made to wait with more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ildm.core.transfer.batch import Batch


class Holdable(Protocol):
    """A source of messages that can be made to wait while a queue they went to is full."""

    @property
    def credit(self) -> tuple[int, int]:
        """Messages and bytes that are sure to be all that comes once it is held; 0 where nothing is sure."""

    def hold(self, reason: object) -> None: ...
    def release(self, reason: object) -> None: ...
    def overran(self) -> None:
        """It has not waited: what it sent last was dropped, and must not be acknowledged."""


class Receipt(ABC):
    """What goes with messages until they have been disposed of: their receiver has them, or never will."""

    __slots__ = ("when_void",)

    def __init__(self) -> None:
        self.when_void: Callable[[Receipt], None] | None = None

    @property
    def is_void(self) -> bool:
        """Nobody waits for an answer, and nobody else has the messages."""
        return False

    @abstractmethod
    def settle(self, batch: Batch, first: int, count: int) -> None:
        """``count`` messages of a batch have been disposed of, from the place ``first`` on.

        The packet identifiers in it are this receipt's.
        """

    @property
    def pressed(self) -> bool:
        """More than half the credit is in use: what follows would soon be held up."""
        return False

    @property
    def eased(self) -> bool:
        """A quarter of the credit is in use, or less."""
        return True
