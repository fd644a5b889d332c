"""What was under way when the far end hung up: one of these messages may be why.

No broker of MQTT 3.1.1 can say what is wrong with a message (too large, a topic it does not like, a right
that is missing): it closes the connection, and would do so again for ever. So what was under way goes again
one message at a time, and one that was alone under way at two hang-ups is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.core.transfer.ack_runs import PUBREL, acknowledgements_of
from ildm.core.transfer.queue import Queue
from ildm.core.transfer.window import Inflight, Window
from ildm.mqtt import Publish

if TYPE_CHECKING:
    from ildm.core.transfer.resumption import Resumption
    from ildm.core.transfer.wire import Wire


class PoisonIsolation:
    """Of one window: packet identifiers under suspicion, in the order their messages were sent."""

    __slots__ = (
        "_alone",
        "_dup",
        "_queue",
        "_resumption",
        "_struck",
        "_waiting",
        "_window",
        "_wire",
        "active",
        "poisonous",
    )

    def __init__(self, queue: Queue, window: Window, wire: Wire, resumption: Resumption) -> None:
        self._queue = queue
        self._window = window
        self._wire = wire
        self._resumption = resumption
        self.poisonous: Callable[[Publish], None] | None = None
        """Told of each message that was dropped as the far end hangs up on it."""
        self.active = False
        """One at a time, until all are through."""
        self._alone = 0
        """The one that is under way now; 0: none is."""
        self._struck = 0
        """One that was alone at the last hang-up."""
        self._dup = True
        """The far end may have seen them (MQTT-3.3.1-1)."""
        self._waiting: deque[int] = deque()

    @property
    def accuses(self) -> bool:
        """A message under suspicion is alone under way: if the far end hangs up now, it is for that."""
        return self._window.get(self._alone) is not None

    def hung_up(self) -> bool:
        """The far end ends the connection, perhaps because it did not like a message; whether one was found
        to be why. That one is dropped."""
        under_way = self._window.ids
        guilty = 0
        if self._alone in under_way:
            guilty = self._alone if self._struck == self._alone else 0
            self._struck = 0 if guilty else self._alone
        self._alone = 0
        self.active = len(under_way) > (guilty != 0)
        if guilty:
            self._drop(guilty)
        return guilty != 0

    def _drop(self, packet_id: int) -> None:
        """The far end has hung up twice on this message alone: it is in the way of all that follow."""
        item, wire = self._window.get(packet_id), self._wire
        assert item is not None
        batch = item.part(packet_id, 1)
        message = batch.message
        wire.driver.log(
            "error",
            "message dropped: the far end hangs up on it",
            of=wire.name,
            topic=message.topic,
            size=batch.size,
            qos=item.qos,
        )
        wire.drop(1, "poison")
        self._window.complete(packet_id)
        if self.poisonous is not None:
            self.poisonous(message)

    def begin(self, dup: bool) -> None:
        """A new connection: what is under way is to go one by one."""
        self._dup = dup
        self._waiting = deque(self._window.ids)
        self._alone = 0

    def end(self) -> None:
        """None is left."""
        self.active = False
        self._alone = 0
        self._struck = 0
        self._waiting.clear()

    def send_next(self) -> None:
        """Send the next message under suspicion once the one before it is through."""
        window, wire = self._window, self._wire
        if window.get(self._alone) is not None:
            return
        while self._waiting:
            packet_id = self._waiting.popleft()
            item = window.get(packet_id)
            if item is None:
                continue
            if not window.is_released(packet_id):
                if not self._send_again(packet_id, item):
                    continue
            else:
                wire.write(acknowledgements_of(PUBREL, (packet_id,)))
                self._resumption.sent_again(item.receipt, (packet_id,), released=True)
            self._alone = packet_id
            return
        self.end()

    def _send_again(self, packet_id: int, item: Inflight) -> bool:
        """Send one message of the window once more; False when that has ended it."""
        entry = item.entry(packet_id, 1)
        qos = min(entry.qos, self._wire.max_qos)
        sent = self._wire.write_again(entry, packet_id, self._dup) if qos else None
        if sent is None:
            self._window.take(packet_id)
            if not qos:
                self._queue.put_back([entry])
            return False
        if qos == 2:
            self._resumption.sent_again(entry.receipt, (packet_id,), released=False)
        return True
