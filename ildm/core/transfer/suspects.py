"""What was under way when the far end hung up: one of these messages may be why.

No broker of MQTT 3.1.1 can say what is wrong with a message (too large, a topic it does not like, a right
that is missing): it closes the connection, and would do so again for ever. So what was under way goes again
one message at a time, and one that was alone under way at two hang-ups is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator


class Suspects:
    """Packet identifiers under suspicion, in the order their messages were sent."""

    __slots__ = ("_waiting", "active", "alone", "dup", "struck")

    def __init__(self) -> None:
        self.active = False
        """One at a time, until all are through."""
        self.alone = 0
        """The one that is under way now; 0: none is."""
        self.struck = 0
        """One that was alone at the last hang-up."""
        self.dup = True
        """The far end may have seen them (MQTT-3.3.1-1)."""
        self._waiting: deque[int] = deque()

    def hung_up(self, under_way: Iterable[int]) -> int:
        """The far end has hung up; answers the message that is to blame, or 0 when that is not known."""
        ids = list(under_way)
        guilty = 0
        if self.alone in ids:
            guilty = self.alone if self.struck == self.alone else 0
            self.struck = 0 if guilty else self.alone
        self.alone = 0
        self.active = len(ids) > (guilty != 0)
        return guilty

    def begin(self, under_way: Iterable[int], dup: bool) -> None:
        """A new connection: these are to go one by one."""
        self.dup = dup
        self._waiting = deque(under_way)
        self.alone = 0

    def each(self) -> Iterator[int]:
        """Those still to be sent, each of which is taken."""
        while self._waiting:
            yield self._waiting.popleft()

    def end(self) -> None:
        """None is left."""
        self.active = False
        self.alone = 0
        self.struck = 0
        self._waiting.clear()
