"""The share of a consumer in a record of the spool, until its receiver has the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.transfer.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.core.spool import Consumer, Identity
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.inbound import NeighborReceipt

RELEASED = 1 << 16
"""In a note beside the packet identifier: PUBREC has come."""


class Share(Receipt):
    """The share of one consumer in a record.

    Packet identifiers of the messages that it goes with are their places in the record, plus one.
    """

    __slots__ = ("consumer", "custody", "held", "identity", "lsn", "note", "reroute_id", "rerouted")

    def __init__(
        self,
        custody: Custody,
        consumer: Consumer,
        lsn: int,
        identity: Identity | None,
        reroute_id: Identity | None = None,
        note: int | None = None,
    ) -> None:
        self.custody = custody
        self.consumer = consumer
        self.lsn = lsn
        self.identity = identity
        """Of the first message of the record."""
        self.reroute_id = reroute_id
        """The same for one that is rerouted."""
        self.note = note
        """What an earlier life has noted, see :meth:`ildm.core.spool.Consumer.note`."""
        self.held: list[tuple[int, int]] | None = None
        """Messages that the receiver has, but that stay in the spool until :meth:`free_held`: places in the
        record and numbers. None: nothing stays."""
        self.rerouted = False
        """Newer records have messages of it, and may not be durable yet."""

    def settle(self, batch: Batch, first: int, count: int) -> None:
        self._done(batch.first_id - 1 + first, count)

    def _done(self, first: int, count: int) -> None:
        if self.held is not None:
            self.held.append((first, count))
            return
        self.consumer.free(self.lsn, first, count)
        self.custody.freed(self.consumer, self.lsn, count, self.rerouted)

    def hold(self) -> None:
        """Keep in the spool what the receiver has from now on, too."""
        if self.held is None:
            self.held = []

    def free_held(self) -> None:
        """Free what its receiver has had meanwhile."""
        done, self.held = self.held, None
        for first, count in done or ():
            self._done(first, count)

    def noted(self, packet_id: int, value: int, count: int) -> None:
        """Keep a number beside each of ``count`` messages; the numbers count up."""
        self.consumer.note(self.lsn, packet_id - 1, value, count)


class DeferredAck:
    """The answer to messages of a neighbour that were taken although the spool is full.

    It goes out when there is room, or when all who were to get the messages have them or never will: so two
    nodes that are full of messages for each other come free again.
    """

    __slots__ = ("batch", "left", "receipt", "rerouted")

    def __init__(self, receipt: NeighborReceipt, consumers: Iterable[Consumer], batch: Batch) -> None:
        self.receipt = receipt
        self.left = dict.fromkeys(consumers, batch.count)
        """How many messages each consumer has not freed."""
        self.batch = batch
        """With the neighbour's packet identifiers."""
        self.rerouted = False
        """A newer record has some of them: the answer waits until that is durable."""

    def freed(self, consumer: Consumer, count: int | None) -> bool:
        """A consumer has done with so many messages, or all (None); whether every one has done with all."""
        left = self.left
        if consumer in left:
            left[consumer] -= left[consumer] if count is None else count
            if left[consumer] <= 0:
                del left[consumer]
        return not left

    def passed(self) -> None:
        """There is room: custody passes."""
        self.receipt.passed(self.batch)

    def settle(self) -> None:
        """All have them, or never will."""
        if self.rerouted:
            self.passed()
        else:
            self.receipt.settle(self.batch, 0, self.batch.count)
