"""RetainedStore messages on their way into the local broker: in the end it has the newest.

Between the arrival of a message and its turn in an injection sender a local client may have set a newer
value: the older one then goes to live subscribers only, without the retain flag. A broker applies a message
of QoS 2 when it is released, so what follows on its topic waits until it is; what goes by another sender does
so too. A local client's own message on the topic meanwhile makes it contested, see
:mod:`ildm.core.transfer.contention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ildm.core.transfer.queue import Entry
from ildm.core.transfer.stamps import take_stamp
from ildm.mqtt import Property

if TYPE_CHECKING:
    from ildm.core.transfer.receipt import Receipt
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.sender import Sender
    from ildm.mqtt import Publish


class RetainedOrder:
    """What the injection senders have to know of each other."""

    def __init__(self, retained: RetainedStore, senders: Sequence[Sender]) -> None:
        self.retained = retained
        self.senders = senders
        self.unreleased: dict[str, list[RetainedEntry]] = {}
        """Messages of QoS 2 by topic, from their being sent to the end of the handshake."""
        self._last: dict[str, RetainedEntry] = {}
        """The one of each topic that has come last, until it has reached the broker."""

    def entry(
        self, sender: Sender, message: Publish, expires_at: float | None, receipt: Receipt | None
    ) -> RetainedEntry:
        """What waits in a sender for a retained message that is the newest of its topic now."""
        entry = RetainedEntry(self, sender, message, expires_at, receipt)
        self._last[message.topic] = entry
        self.retained.contention.opened(message.topic, sender.index)
        return entry

    def stamped_entry(
        self, sender: Sender, message: Publish, expires_at: float | None, receipt: Receipt | None
    ) -> Entry:
        """The same for one that has its stamp still, and may have come long ago."""
        message = replace(message, properties=dict(message.properties))
        taken = take_stamp(message)
        if taken is None:
            return self.entry(sender, message, expires_at, receipt)
        stamp, repeated = taken
        if stamp.time > self.retained.clock.limit:  # not to be believed
            message.retain = False
            return Entry(message, message.qos, expires_at, receipt)
        if repeated and not message.payload:
            # how long a deletion is remembered is no expiry of the message
            message.properties.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
            expires_at = None
        entry = self.entry(sender, message, expires_at, receipt)
        entry.stamp = stamp
        return entry

    def is_outdated(self, entry: RetainedEntry) -> bool:
        """A newer one is known, and does not follow in the same sender."""
        newest = self.retained.newest(entry.topic)
        if newest is None or (entry.stamp is not None and entry.stamp >= newest):
            return False
        last = self._last.get(entry.topic)
        return last is None or last.stamp != newest or last.sender is not entry.sender

    def settled(self, entry: RetainedEntry) -> None:
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


class RetainedEntry(Entry):
    """A retained message in an injection sender."""

    __slots__ = ("_settled", "order", "sender", "stamp", "topic")

    def __init__(
        self,
        order: RetainedOrder,
        sender: Sender,
        message: Publish,
        expires_at: float | None,
        receipt: Receipt | None,
    ) -> None:
        super().__init__(message, message.qos, expires_at, receipt)
        self.order = order
        self.sender = sender
        self.topic = message.topic
        self.stamp = order.retained.newest(message.topic)
        """None: it is not remembered, for instance as it was injected without a stamp."""
        self._settled = False

    def may_go(self) -> bool:
        return all(
            other is self or (other.sender is self.sender and self.qos == 2)
            for other in self.order.unreleased.get(self.topic, ())
        )

    def outgoing(self) -> Publish | None:
        message = self.message
        assert message is not None
        if self.order.is_outdated(self):
            # a deletion that is outdated says nothing to anybody
            return replace(message, retain=False) if message.payload or self.stamp else None
        if min(self.qos, self.sender.wire.max_qos) == 2:
            unreleased = self.order.unreleased.setdefault(self.topic, [])
            if self not in unreleased:
                unreleased.append(self)
        return message

    def settle(self) -> None:
        super().settle()
        if not self._settled:
            self._settled = True
            self.order.settled(self)
