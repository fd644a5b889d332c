"""The receiving side of QoS 1 and 2 on a link session: which PUBLISH is new, and when it is answered.

A message of a neighbour is acknowledged when it has been disposed of here: the local broker has it (QoS 1:
PUBACK; QoS 2: the whole handshake), or it is dropped for good and counted. Until then it is *unacknowledged*.
The bound of these messages is the credit of the neighbour, in messages (the receive maximum, MQTT 5,
3.1.2.11.3) and in bytes. So a node that dies has acknowledged nothing its broker does not have.

One half of the credit is for that. Beyond it, and unless ``overflow`` is ``block``, the oldest messages are
answered before the broker has them and belong to this node's queue: a broker that is away, or slow, would
else hold up all that only crosses its site.

====================  ==================  ===========================================
state of an id        PUBLISH with DUP    leaves it by
====================  ==================  ===========================================
unacknowledged        is not answered     disposal: PUBACK or PUBREC goes out
settled (QoS 1)       PUBACK again        falls out of the ids of the last two windows
unreleased (QoS 2)    PUBREC again        PUBREL: PUBCOMP goes out
====================  ==================  ===========================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ildm.core.transfer.ack_runs import PUBACK, PUBCOMP, PUBREC, acknowledgements_of
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.identity import Stretches
from ildm.core.transfer.message_ids import ReceivedIds
from ildm.core.transfer.receipt import Receipt
from ildm.core.transfer.window import consecutive
from ildm.mqtt import ProtocolViolation, ReasonCode

SMALLEST = 8
"""Bytes of a PUBLISH of QoS 1 or 2 with a topic of one character."""


class NeighborReceipt(Receipt):
    """What goes with messages of a neighbour until they are disposed of; void when it has begun anew."""

    __slots__ = ("inbound",)

    def __init__(self, inbound: Inbound) -> None:
        super().__init__()
        self.inbound: Inbound | None = inbound

    @property
    def is_void(self) -> bool:
        return self.inbound is None

    def settle(self, batch: Batch, first: int, count: int) -> None:
        if self.inbound is not None:
            self.inbound.settle(batch.part(first, count))

    def passed(self, batch: Batch) -> None:
        """This node has custody of messages."""
        if self.inbound is not None:
            self.inbound.passed(batch)

    def changed(self, before: Batch, after: Batch) -> None:
        """A message goes on in another frame, and so do its bytes."""
        if self.inbound is not None:
            self.inbound.unacknowledged_bytes += len(after.frames) - len(before.frames)

    @property
    def credit(self) -> tuple[int, int]:
        return (0, 0) if self.inbound is None else (self.inbound.limit, self.inbound.byte_limit)

    @property
    def pressed(self) -> bool:
        inbound = self.inbound
        return inbound is not None and (
            2 * inbound.unacknowledged > inbound.limit
            or (2 * inbound.unacknowledged_bytes > inbound.byte_limit and inbound.unacknowledged > 1)
        )

    @property
    def eased(self) -> bool:
        inbound = self.inbound
        return inbound is None or (
            4 * inbound.unacknowledged <= inbound.limit
            and (4 * inbound.unacknowledged_bytes <= inbound.byte_limit or inbound.unacknowledged <= 1)
        )

    def hold(self, reason: object) -> None:
        if self.inbound is not None:
            self.inbound.hold(reason)

    def release(self, reason: object) -> None:
        if self.inbound is not None:
            self.inbound.release(reason)

    def overran(self) -> None:
        """Its credit is part of the bound: it cannot."""


class Inbound:
    """Decides which PUBLISH is new and answers those disposed of; outlives the TCP connection.

    QoS 2 is MQTT's own handshake (MQTT-4.3.3-2). For QoS 1 MQTT allows duplicates after a
    reconnection; the identifiers of the last two windows are remembered to avoid them: a sender that
    counts its identifiers up does not come back to one within that distance.

    Args:
        limit: messages that may be unacknowledged or unreleased.
        byte_limit: bytes of what may be unacknowledged, unless it is one message.
        write: sends an answer.
        write_durable: the same, once all is durable that this node has custody of by now.
    """

    __slots__ = (
        "_deferred",
        "_holders",
        "_recent",
        "_recent_set",
        "_unacknowledged",
        "_unacknowledged_qos2",
        "_unreleased",
        "_write",
        "_write_durable",
        "byte_limit",
        "limit",
        "receipt",
        "received_ids",
        "unacknowledged_bytes",
    )

    def __init__(
        self,
        limit: int,
        byte_limit: int,
        write: Callable[[bytes], None],
        write_durable: Callable[[bytes], None] | None = None,
    ) -> None:
        self.limit = limit
        self.byte_limit = byte_limit
        self._write = write
        self._write_durable = write_durable or write
        self.received_ids = ReceivedIds()
        self._begin()

    def _begin(self) -> None:
        self.receipt = NeighborReceipt(self)
        self.unacknowledged_bytes = 0
        self._unacknowledged: set[int] = set()
        self._unacknowledged_qos2: set[int] = set()
        self._unreleased: set[int] = set()
        self._recent: deque[int] = deque()
        self._recent_set: set[int] = set()
        self._holders: set[object] = set()
        self._deferred: list[bytes] = []

    @property
    def unacknowledged(self) -> int:
        """Messages taken and not answered."""
        return len(self._unacknowledged) + len(self._unacknowledged_qos2)

    def take(self, batch: Batch, dup: bool = False) -> bool:
        """Take a batch of QoS 1 or 2; False: it is a message that has come before, and is answered if it was.

        Only a single message may have been sent with ``dup``, or be unreleased.

        Raises:
            ProtocolViolation: more than the credit (MQTT-3.3.4-9), or an identifier in use (MQTT-2.2.1-3).
        """
        ids = batch.ids()
        if (dup or self._unreleased) and batch.count == 1 and not self.new_ones(ids, batch.qos, dup):
            return False
        self._check_ids(ids)
        self._check_credit(batch.count, len(batch.frames))
        (self._unacknowledged if batch.qos == 1 else self._unacknowledged_qos2).update(ids)
        self.unacknowledged_bytes += len(batch.frames)
        return True

    def new_ones(self, ids: Sequence[int], qos: int, dup: bool) -> Stretches:
        """Which of these messages of QoS 1 or 2 have not come before: the place of the first, and how many.

        What was answered before is again. Raises: as :meth:`take`.
        """
        answered = self._unreleased if qos == 2 else self._recent_set if dup else ()
        again: list[int] = []
        places: list[int] = []
        for place, packet_id in enumerate(ids):
            if packet_id in self._unacknowledged or packet_id in self._unacknowledged_qos2:
                if not dup:
                    raise _in_use()
            elif packet_id in answered:
                again.append(packet_id)
            else:
                places.append(place)
        if again:
            self._write_durable(acknowledgements_of(PUBREC if qos == 2 else PUBACK, again))
        return list(consecutive(places))

    def are_unreleased(self, ids: Sequence[int]) -> bool:
        """Whether any of these messages of QoS 2 was answered and is not released: it is sent again."""
        return bool(self._unreleased) and not self._unreleased.isdisjoint(ids)

    def _check_ids(self, ids: Sequence[int]) -> None:
        distinct = isinstance(ids, range) or len(set(ids)) == len(ids)
        if not distinct or not self._unacknowledged.isdisjoint(ids):
            raise _in_use()
        if self._unacknowledged_qos2 and not self._unacknowledged_qos2.isdisjoint(ids):
            raise _in_use()

    def _check_credit(self, count: int, size: int) -> None:
        unacknowledged = self.unacknowledged
        if unacknowledged + len(self._unreleased) + count > self.limit or (
            unacknowledged + count > 1 and self.unacknowledged_bytes + size > self.byte_limit
        ):
            raise ProtocolViolation(
                "more messages or bytes under way than granted",
                clause="MQTT-3.3.4-9",
                reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def give_back(self, batch: Batch) -> None:
        """A batch was not taken after all, and is not answered."""
        ids = batch.ids()
        self.unacknowledged_bytes -= len(batch.frames)
        self._unacknowledged.difference_update(ids)
        self._unacknowledged_qos2.difference_update(ids)
        self._verify()

    def settle(self, batch: Batch) -> None:
        """A batch, or a part of one, has been disposed of: answer it."""
        self._settle(batch, self._answer)

    def passed(self, batch: Batch) -> None:
        """This node has custody of a batch, or a part of one: answer it once that is durable."""
        self._settle(batch, self._write_durable)

    def take_and_pass(self, batch: Batch) -> bytes:
        """Take a batch that has identities; what is answered is for :meth:`answer_durable`, as soon as this
        node has custody of it. Raises: as :meth:`take`; but QoS 1 has no bound, as none of it stays
        unacknowledged."""
        ids, answers = batch.acknowledgements(batch.qos)
        self._check_ids(ids)
        if batch.qos == 2:
            self._check_credit(batch.count, 0)
            self._unreleased.update(ids)
        return answers

    def answer_durable(self, answers: bytes) -> None:
        """Give answers once all is durable that this node has custody of by now."""
        self._write_durable(answers)

    def _settle(self, batch: Batch, answer: Callable[[bytes], None]) -> None:
        qos = batch.qos
        if qos == 1 and self._unacknowledged_qos2 and batch.first_id in self._unacknowledged_qos2:
            qos = 2  # it goes on with less
        ids, answers = batch.acknowledgements(qos)
        self.unacknowledged_bytes -= len(batch.frames)
        if qos == 2:
            self._unacknowledged_qos2.difference_update(ids)
            self._verify()
            self._unreleased.update(ids)
            answer(answers)
            return
        self._unacknowledged.difference_update(ids)
        self._verify()
        if self._recent_set.isdisjoint(ids):
            self._recent.extend(ids)
            self._recent_set.update(ids)
            for _ in range(len(self._recent) - 2 * self.limit):
                self._recent_set.discard(self._recent.popleft())
        else:
            for packet_id in ids:
                self._remember(packet_id)
        answer(answers)

    def released(self, packet_ids: Sequence[int]) -> bytes:
        """The answers to PUBRELs."""
        self._unreleased.difference_update(packet_ids)
        return acknowledgements_of(PUBCOMP, packet_ids)

    def reset(self) -> None:
        """The far end begins anew, or has been given back what it has not been answered.

        What is still under way here belongs to nobody; its disposal answers nothing.
        """
        receipt = self.receipt
        receipt.inbound = None
        self._begin()
        if receipt.when_void is not None:
            receipt.when_void(receipt)

    # sums ---------------------------------------------------------------------------------------

    def _verify(self) -> None:
        size = self.unacknowledged_bytes
        assert size >= 0, f"{size} bytes are unacknowledged"
        assert not size or self._unacknowledged or self._unacknowledged_qos2, f"no message has {size} bytes"

    def check(self) -> None:
        """See that the sum may be right. Raises: AssertionError, it was counted wrong.

        The sizes of single messages are not known here.
        """
        self._verify()
        size, count = self.unacknowledged_bytes, self.unacknowledged
        assert size >= count * SMALLEST, f"{count} messages without acknowledgement have {size} bytes"

    # back-pressure ----------------------------------------------------------------------------

    def connected(self) -> None:
        """On a new connection the far end repeats all it has no answer to."""
        self._deferred.clear()
        self.received_ids.clear()

    def hold(self, reason: object) -> None:
        """Defer answers: the credit then ends what the far end sends, and nothing else."""
        self._holders.add(reason)

    def release(self, reason: object) -> None:
        self._holders.discard(reason)
        if not self._holders and self._deferred:
            answers, self._deferred = b"".join(self._deferred), []
            self._write(answers)

    def _answer(self, answers: bytes) -> None:
        if self._holders:
            self._deferred.append(answers)
        else:
            self._write(answers)

    def _remember(self, packet_id: int) -> None:
        if packet_id in self._recent_set:
            self._recent.remove(packet_id)
        elif len(self._recent) >= 2 * self.limit:
            self._recent_set.discard(self._recent.popleft())
        self._recent.append(packet_id)
        self._recent_set.add(packet_id)


def _in_use() -> ProtocolViolation:
    return ProtocolViolation("a packet identifier that is in use", clause="MQTT-2.2.1-3")
