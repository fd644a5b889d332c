"""What a client is not told before it is true: acknowledgements wait until what they are for is durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.core.transfer.custody import Custody


class WriteBarrier:
    """Acknowledgements of one client, in order, each with the LSN that has to be durable before it goes on.

    It goes on at the end of the turn of the event loop also where writing is enough: what many clients wait
    for is then written at once. What waits when the connection ends is not sent: a client without an answer
    sends its message again, as it has to (MQTT-4.4.0-1).

    Args:
        send: sends to the client.
    """

    __slots__ = ("_custody", "_send", "_waiting")

    def __init__(self, custody: Custody, send: Callable[[bytes], None]) -> None:
        self._custody = custody
        self._send = send
        self._waiting: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def passes(self, lsn: int) -> bool:
        """Whether what has to wait for ``lsn`` need not wait, nor what is before it."""
        return not self._waiting and lsn <= self._custody.durable

    def wait(self, lsn: int, data: bytes) -> None:
        """Send this once ``lsn`` is durable, and after all that waits; never within this call."""
        self._waiting.append((lsn, data))
        self._custody.when(lsn, self._go_on)

    def _go_on(self) -> None:
        waiting, durable = self._waiting, self._custody.durable
        passing: list[bytes] = []
        while waiting and waiting[0][0] <= durable:
            passing.append(waiting.popleft()[1])
        if passing:  # else they have gone with those before
            self._send(b"".join(passing))
