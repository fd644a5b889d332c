"""When a client gets its acknowledgements: not while a link is full, nor before what they tell is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.local.ack_gate import PACKET_IDS, AckGate, Answer
from ildm.core.local.write_barrier import WriteBarrier
from ildm.core.transfer.back_pressure import BackPressure
from ildm.mqtt import OverLimit, ProtocolViolation, ReasonCode, members

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.core.local.parts import ClientParts
    from ildm.core.local.wire import ClientWire
    from ildm.core.transfer.custody import Custody

ANY_NUMBER = 65535
"""Messages that a client may have under way where the broker sets no receive maximum (MQTT 5, 3.2.2.3.3)."""
OUT_OF_ORDER = "answers out of order"
"""Reason to hold acknowledgements that does not count as holding the client."""


class Acknowledgements:
    """The gate and the barrier of one client; as the source of its messages it can be made to wait.

    A client that gets no acknowledgements stops by itself. One that does not is read up to ``link.inflight``
    messages of QoS 1 and 2, or ``link.inflight_bytes``, and no further until it is released.
    """

    __slots__ = ("_barrier", "_gate", "_parts", "_wire", "holds", "lsn", "receive_maximum", "when_released")

    def __init__(self, parts: ClientParts, wire: ClientWire) -> None:
        self._parts = parts
        self._wire = wire
        self._gate: AckGate | None = None
        self._barrier: WriteBarrier | None = None
        """Made for the first acknowledgement that waits for the disk."""
        self.lsn = 0
        """Up to here all has to be durable before the client gets the next acknowledgement."""
        self.holds = False
        """The client is held: by a full queue, or by the spool."""
        self.receive_maximum: int | None = None
        """What the broker has told the client; None: it knows of none, before MQTT 5."""
        self.when_released: Callable[[], None] | None = None
        """Called when nothing holds the client any longer, if something waits for that."""

    @property
    def gate(self) -> AckGate:
        """What makes acknowledgements wait."""
        if self._gate is None:
            self._gate = AckGate(self._wire.to_client, self._acknowledge, self.too_much_deferred)
        return self._gate

    # what has come ------------------------------------------------------------------------------

    def passes(self, data: bytes, count: int) -> bool:
        """``count`` PUBACK or PUBREC have come: whether they pass to the client now. If not, they wait."""
        open = self._gate is None or self._gate.acknowledgement(data, count)
        return open and (self._parts.custody is None or self.is_durable(data))

    def is_durable(self, data: bytes) -> bool:
        """Whether what acknowledgements are for is durable. If not, they go to the client when it is."""
        custody = self._parts.custody
        if custody is None or self._passes_barrier(custody):
            return True
        barrier = self._barrier
        if barrier is None:
            barrier = self._barrier = WriteBarrier(custody, self._wire.to_client)
        barrier.wait(self.lsn, data)
        if len(barrier) > PACKET_IDS:
            self.too_much_deferred()
        return False

    def _passes_barrier(self, custody: Custody) -> bool:
        """Whether the next acknowledgement need not wait for the disk."""
        return self.lsn <= custody.durable if self._barrier is None else self._barrier.passes(self.lsn)

    def _acknowledge(self, data: bytes) -> None:
        """The gate has opened."""
        if self.is_durable(data):
            self._wire.to_client(data)

    @property
    def waits(self) -> bool:
        """Whether the next acknowledgement may have to wait."""
        if self._gate is not None and not self._gate.idle:
            return True
        custody = self._parts.custody
        return custody is not None and not self._passes_barrier(custody)

    def in_order(self, answer: Answer) -> bool:
        """A SUBACK or UNSUBACK has come: whether it passes now. If not, it waits for those before it."""
        return (answer.ready and self._gate is None) or self.gate.answer(answer)

    def answer_suback(self, frame: bytes) -> None:
        """Answer a SUBSCRIBE in the broker's place, after the answers that wait."""
        if self.in_order(Answer(frame, True)):
            self._wire.to_client(frame)

    # what they are for --------------------------------------------------------------------------

    def before(self) -> int:
        """The newest that the node keeps."""
        custody = self._parts.custody
        return 0 if custody is None else custody.last

    def bound_by_all(self) -> None:
        """All that the node keeps by now is to be durable first."""
        self.lsn = self.before()

    def bound_by(self, before: int) -> None:
        """What the node has taken upon itself for the client since then is to be durable first."""
        custody = self._parts.custody
        if custody is not None and custody.last > before:
            self.lsn = custody.last
            self._wire.watching = True

    # made to wait -------------------------------------------------------------------------------

    @property
    def credit(self) -> tuple[int, int]:
        link, limits = self._parts.config.link, self._parts.limits
        if not self._parts.transfers_acknowledged:
            return link.inflight, link.inflight_bytes
        return link.inflight + limits.unanswered_messages, link.inflight_bytes + limits.unanswered_bytes

    def hold(self, reason: object) -> None:
        """Let the client wait for its PUBACK and PUBREC until every reason given is withdrawn.

        Reading from it goes on. A client of MQTT 5 is refused, not held, where the node refuses what finds
        the spool full.
        """
        v5 = self._wire.version is members.V5
        if v5 and self._parts.refusal is not None and reason is self._parts.custody:
            return
        if self._wire.has_broker:
            self.gate.hold(reason)
            self._wire.watching = self.holds = True

    def release(self, reason: object) -> None:
        if self.holds and self._wire.broker is not None:
            self.gate.release(reason)
            self.holds = bool(self.gate.reasons - {OUT_OF_ORDER})
            if not self.holds and self.when_released is not None:
                self.when_released()

    def room(self, size: int) -> int:
        """How many more messages of QoS 1 and 2, of so many bytes each, are taken of a client that is held.

        What one that has gone has sent before is not kept for later: it gets no answer in any case.

        Raises:
            ProtocolViolation: it has sent as many as its receive maximum allows without an answer to any.
        """
        gate, link = self.gate, self._parts.config.link
        if not self._wire.has_client:
            return ANY_NUMBER
        room = min(link.inflight - gate.since_closed, (link.inflight_bytes - gate.bytes_since_closed) // size)
        if self.receive_maximum is not None:
            left = self.receive_maximum - gate.since_closed
            if left <= 0:
                self._parts.counters["clients_over_inflight"] += 1
                raise ProtocolViolation(
                    f"more than {self.receive_maximum} messages sent while acknowledgements are deferred",
                    clause="MQTT-3.3.4-9",
                    reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
            room = min(room, left)
        return max(0, room)

    def sent_while_held(self, count: int, size: int) -> None:
        """So many messages are taken of a client that is held."""
        gate = self.gate
        gate.since_closed += count
        gate.bytes_since_closed += count * size

    def answered_at_once(self, size: int) -> None:
        """A message does not wait for its acknowledgement after all: the node itself gives it."""
        if self.holds and self.gate.since_closed:
            self.gate.since_closed -= 1
            self.gate.bytes_since_closed -= size

    def overran(self) -> None:
        """It has sent more at once than there is room for; what was dropped of it is not acknowledged."""
        self._parts.driver.call_soon(self._end_overrun)  # not amidst its messages

    def _end_overrun(self) -> None:
        client = self._wire.client
        if client is not None and client.is_open:
            self._parts.counters["clients_over_inflight"] += 1
            text = "more messages at once than there is room for while acknowledgements are deferred"
            self._wire.fail(OverLimit(text, clause="MQTT-4.13.2"))

    def too_much_deferred(self) -> None:
        """The broker has acknowledged more messages than there are packet identifiers."""
        error = ProtocolViolation("packet identifiers used while in use", clause="MQTT-2.2.1-3")
        self._parts.driver.call_soon(self._wire.fail, error)

    def client_gone(self) -> None:
        """Nobody is left whom a queue could make wait."""
        if self.holds and self._gate is not None:
            for reason in self._gate.reasons:
                if isinstance(reason, BackPressure):  # or it keeps all who have come and gone
                    reason.no_longer_held(self)
        if self._parts.custody is not None:
            self._parts.custody.no_longer_held(self)

    def cut(self) -> None:
        """Both connections have ended: there is nobody left whose acknowledgements would wait."""
        self._barrier = None
