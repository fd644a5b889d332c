"""RetainedStore messages on their way into the local broker: in the end it has the newest.

Between the arrival of a message and its turn in an injection sender a local client may have set a newer
value: the older one then goes to live subscribers only, without the retain flag. A broker applies a message
of QoS 2 when it is released, so what follows on its topic waits until it is; what goes by another sender does
so too. A local client's own message on the topic meanwhile makes it contested, see
:mod:`ildm.core.transfer.contention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ildm.core.frames import has_payload
from ildm.core.transfer.batch import Batch, Ordered, single, without_retain
from ildm.core.transfer.stamps import take_stamp
from ildm.mqtt import Property

if TYPE_CHECKING:
    from ildm.api import Stamp
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.sender import Sender


class RetainedOrder:
    """What the injection senders have to know of each other."""

    def __init__(self, retained: RetainedStore, senders: Sequence[Sender]) -> None:
        self.retained = retained
        self.senders = senders
        self.unreleased: dict[str, list[RetainedMessage]] = {}
        """Messages of QoS 2 by topic, from their being sent to the end of the handshake."""
        self._last: dict[str, RetainedMessage] = {}
        """The one of each topic that has come last, until it has reached the broker."""

    def newest(self, sender: Sender, batch: Batch, stamp: Stamp | None = None) -> Batch:
        """A retained message that is the newest of its topic now, and is to go to a sender; with its place.

        ``stamp``: its own, where that is known.
        """
        ordered = RetainedMessage(self, sender, batch.topic, batch.qos, not has_payload(batch.frames))
        if stamp is not None:
            ordered.stamp = stamp
        self._last[ordered.topic] = ordered
        self.retained.contention.opened(ordered.topic, sender.index)
        return Batch(batch.frames, 1, batch.size, batch.since, ordered)

    def read_back(self, sender: Sender, batch: Batch) -> Batch:
        """The same for one that has its stamp still, and may have come long ago; answers it without that."""
        message, expires_at = batch.message, batch.expires_at
        taken = take_stamp(message)
        if taken is not None and taken[0].time > self.retained.clock.limit:  # not to be believed
            message.retain = False
            return single(message, batch.qos, expires_at)
        if taken is not None and taken[1] and not message.payload:
            # how long a deletion is remembered is no expiry of the message
            message.properties.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
            expires_at = None
        stamp = None if taken is None else taken[0]
        return self.newest(sender, single(message, batch.qos, expires_at), stamp)

    def is_outdated(self, entry: RetainedMessage) -> bool:
        """A newer one is known, and does not follow in the same sender."""
        newest = self.retained.newest(entry.topic)
        if newest is None or (entry.stamp is not None and entry.stamp >= newest):
            return False
        last = self._last.get(entry.topic)
        return last is None or last.stamp != newest or last.sender is not entry.sender

    def settled(self, entry: RetainedMessage) -> None:
        """It has reached the broker, or never will."""
        topic = entry.topic
        if self._last.get(topic) is entry:
            del self._last[topic]
        unreleased = self.unreleased.get(topic)
        if unreleased is not None and entry in unreleased:
            unreleased.remove(entry)
            if not unreleased:
                del self.unreleased[topic]
                for sender in self.senders:
                    if sender is not entry.sender and sender.queue:
                        sender.driver.call_soon(sender.drain)
        self.retained.contention.closed(topic, entry.sender.index)


class RetainedMessage(Ordered):
    """The place of one retained message."""

    __slots__ = ("_order", "_settled", "_silent", "qos", "sender", "stamp", "topic")

    def __init__(self, order: RetainedOrder, sender: Sender, topic: str, qos: int, silent: bool) -> None:
        self._order = order
        self.sender = sender
        self.topic = topic
        self.qos = qos
        self._silent = silent
        """A deletion."""
        self.stamp = order.retained.newest(topic)
        """None: it is not remembered, for instance as it was injected without a stamp."""
        self._settled = False

    def may_go(self) -> bool:
        return all(
            other is self or (other.sender is self.sender and self.qos == 2)
            for other in self._order.unreleased.get(self.topic, ())
        )

    def outgoing(self, frame: bytes) -> bytes:
        if self._order.is_outdated(self):
            # a deletion that is outdated says nothing to anybody
            return b"" if self._silent and self.stamp is None else without_retain(frame)
        if min(self.qos, self.sender.wire.max_qos) == 2:
            unreleased = self._order.unreleased.setdefault(self.topic, [])
            if self not in unreleased:
                unreleased.append(self)
        return frame

    def settled(self) -> None:
        if not self._settled:
            self._settled = True
            self._order.settled(self)
