"""QoS 2 handshakes that a broker lets hang when they are taken up on a new connection.

Moquette says nothing to a PUBLISH with DUP whose topic has subscribers, though MQTT-4.3.3-2 wants PUBREC, and
amqtt nothing to a PUBREL that it has had. Their places in the window would be taken for ever. So what has no
answer for some time, from a broker that has answered a PINGREQ sent after it, is taken for answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.driver import Driver

PATIENCE = 5.0
"""Seconds until a PINGREQ is sent. Once a broker is known to let handshakes hang, it goes at once."""


class AnswerTimeout:
    """Handshakes that were taken up on the present connection."""

    __slots__ = ("_asked", "_driver", "_found", "_taken_up", "_timer", "ask")

    def __init__(self, driver: Driver) -> None:
        self.ask: Callable[[], None] | None = None
        """Sends a PINGREQ; None: the far end answers everything."""
        self._driver = driver
        self._found = False
        """The far end has let a handshake hang."""
        self._asked: float | None = None
        self._timer: Timer | None = None
        self._taken_up: dict[int, tuple[bool, float]] = {}
        """By packet identifier: whether the message was released by then, and when that was."""

    def taken_up(self, packet_id: int, released: bool) -> None:
        """PUBLISH of QoS 2 was sent again, or PUBREL."""
        if self.ask is not None:
            self._taken_up[packet_id] = released, self._driver.now()
            self._look_later()

    def answered(self, packet_ids: Iterable[int]) -> None:
        """The far end has answered, whatever it was."""
        for packet_id in packet_ids if self._taken_up else ():
            self._taken_up.pop(packet_id, None)

    def clear(self) -> None:
        """The connection is another one."""
        self._taken_up.clear()
        self._asked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unanswered(self) -> list[tuple[int, bool]]:
        """PINGRESP has come: packet identifiers of what will get no answer, and whether it is released."""
        if self._asked is None:
            return []
        before, self._asked = self._asked - (0.0 if self._found else PATIENCE), None
        due = [each for each, (_, when) in self._taken_up.items() if when <= before]
        found = [(packet_id, self._taken_up.pop(packet_id)[0]) for packet_id in due]
        self._found |= bool(found)
        if self._taken_up:
            self._look_later()
        return found

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._driver.call_later(0.0 if self._found else PATIENCE, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._taken_up and self.ask is not None:
            self._asked = self._driver.now()
            self.ask()
