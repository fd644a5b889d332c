"""The order of a client's QoS 2 messages where the broker does not keep it.

A broker has to answer in the order of the messages (MQTT-4.6.0-3). Moquette does not always: with several
subscribers one PUBREC in some hundred overtakes others. The messages cross in the client's order all the
same: what is answered too early waits for the older ones, within these bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.core.local.unanswered import Waiting

PATIENCE = 1.0
"""Seconds which an answer that has overtaken others waits for theirs."""
MOST = 100
"""Messages that wait so, and their bytes; with more, all of them go on."""
MOST_BYTES = 1 << 20


class Overtaking:
    """QoS 2 messages of one connection in the order they came, until the oldest are answered."""

    __slots__ = ("_answers", "_bytes", "_held")

    def __init__(self) -> None:
        self._answers: OrderedDict[int, Waiting | None] = OrderedDict()
        """By packet identifier; None: not answered yet."""
        self._held = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether a message waits."""
        return self._held > 0

    def sent(self, packet_id: int) -> list[Waiting]:
        """A message was relayed; answers what had waited under its identifier, and behind that."""
        before = self.refused(packet_id)
        self._answers[packet_id] = None
        return before

    def answered(self, packet_id: int, message: Waiting) -> list[Waiting]:
        """The broker has taken a message; answers those whose turn it is."""
        if packet_id not in self._answers:
            return [message]
        self._answers[packet_id] = message
        self._held += 1
        self._bytes += message.bytes
        if self._held > MOST or self._bytes > MOST_BYTES:
            return self.release()
        return self._in_turn()

    def refused(self, packet_id: int) -> list[Waiting]:
        """A message is not to cross; answers those whose turn it is now."""
        held = self._answers.pop(packet_id, None)
        if held is not None:
            self._let_go(held)
            return [held, *self._in_turn()]
        return self._in_turn()

    def release(self) -> list[Waiting]:
        """All that wait, in order: nobody waits for the others any longer."""
        found = [message for message in self._answers.values() if message is not None]
        self._answers.clear()
        self._held = self._bytes = 0
        return found

    def _in_turn(self) -> list[Waiting]:
        found: list[Waiting] = []
        answers = self._answers
        while answers:
            packet_id, message = next(iter(answers.items()))
            if message is None:
                break
            del answers[packet_id]
            self._let_go(message)
            found.append(message)
        return found

    def _let_go(self, message: Waiting) -> None:
        self._held -= 1
        self._bytes -= message.bytes
