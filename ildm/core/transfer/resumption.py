"""Handshakes that a connection has left open: taken up on the next one, or in the next life of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ildm.core.transfer.ack_runs import PUBREL, acknowledgements_of
from ildm.core.transfer.answer_timeout import AnswerTimeout
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import RELEASED, Share
from ildm.core.transfer.window import Inflight, Window

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.receipt import Receipt
    from ildm.core.transfer.wire import Wire


class Resumption:
    """Of one window.

    Args:
        noting: a later life is to know how far handshakes of QoS 2 are before the far end does.
        noted: what an earlier life has noted.
    """

    __slots__ = ("_custody", "_noted", "_noting", "_window", "_wire", "answer_timeout", "forgotten")

    def __init__(
        self,
        driver: Driver,
        window: Window,
        wire: Wire,
        custody: Custody | None,
        noting: bool,
        noted: Iterable[int],
    ) -> None:
        self._window = window
        self._wire = wire
        self._custody = custody
        self._noting = noting
        self._noted = {note & 0xFFFF for note in noted}
        """Packet identifiers of messages that were under way at the end of an earlier life."""
        window.free_reserved(self._noted)
        self.answer_timeout = AnswerTimeout(driver)
        self.forgotten: Callable[[bool], bool] = lambda released: True
        """Asked of a QoS 2 message that was under way in a session which the far end has forgotten, and
        whether it had answered it with PUBREC: is it to be sent anew, or done?"""

    @property
    def has_noted(self) -> bool:
        """An earlier life has left messages of QoS 2 under way."""
        return bool(self._noted)

    def attach(self) -> None:
        """The connection is another one."""
        self.answer_timeout.clear()
        self._window.free_reserved(self._noted)

    def begin(self, session_present: bool) -> None:
        """Messages may be sent; the far end has kept the session, or forgotten it."""
        if not session_present and self._noted:
            self._window.free_reserved()
            self._noted.clear()

    def take_under_way(self) -> list[Entry]:
        """Empty the window; answers what the far end has not received, as far as is known."""
        self.answer_timeout.clear()
        entries: list[Entry] = []
        for item, first_id, count, released in self._window.take_all():
            if released:
                item.settle(first_id, count)
            else:
                entries.append(item.entry(first_id, count))
        return entries

    # on another connection --------------------------------------------------------------------

    def resend(self, session_present: bool) -> list[Entry]:
        """Send again what was not acknowledged (MQTT-4.4.0-1), as far as the window allows; answers what has
        to wait, or goes as new as the far end has forgotten it."""
        again: list[Entry] = []
        for item, first_id, count, released in self._window.take_all():
            if released and session_present:
                self._release_again(item, first_id, count)
            elif not session_present and item.qos == 2 and not self.forgotten(released):
                item.settle(first_id, count)
            else:
                again += self._resend_batch(item, first_id, count, session_present)
        return again

    def _release_again(self, item: Inflight, first_id: int, count: int) -> None:
        """Send PUBREL again for consecutive messages."""
        window, ids = self._window, range(first_id, first_id + count)
        window.add(Inflight(item.part(first_id, count), first_id, item.receipt, item.priority))
        for packet_id in ids:
            window.release(packet_id)
        self._wire.write(acknowledgements_of(PUBREL, ids))
        self.sent_again(item.receipt, ids, released=True)

    def _resend_batch(self, batch: Inflight, first_id: int, count: int, session_present: bool) -> list[Entry]:
        """Send again what is left of a batch, as far as the window allows; answers what has to wait."""
        window, wire = self._window, self._wire
        part = batch.part(first_id, count)
        room = window.takes_of(part, 0, count) if session_present and wire.max_qos else 0
        packet_id = first_id
        for piece in wire.pieces(part.part(0, room)) if room else ():
            if wire.write_batch(piece, packet_id, batch.receipt, dup=True):
                sent = Inflight(piece, packet_id, batch.receipt, batch.priority)
                window.add(sent)
                if min(piece.qos, wire.max_qos) == 2:
                    self.sent_again(batch.receipt, sent.ids, released=False)
            packet_id += piece.count
        return [batch.entry(first_id + room, count - room)] if room < count else []

    def sent_again(self, receipt: Receipt | None, packet_ids: Sequence[int], released: bool) -> None:
        """PUBLISHes of QoS 2 that were under way before, or their PUBRELs, were written in one go."""
        self.guard(receipt)
        for packet_id in packet_ids:
            self.answer_timeout.taken_up(packet_id, released)

    def forget_handshakes(self) -> None:
        """Nothing is released at the far end; what is done there all the same leaves the window."""
        window = self._window
        for item, first_id, count, released in window.stretches():
            forgotten = item.qos < 2 or self.forgotten(released)
            for packet_id in range(first_id, first_id + count):
                window.take_back(packet_id)
                if not forgotten:
                    window.complete(packet_id)

    # in another life --------------------------------------------------------------------------

    def noted(self, entry: Entry) -> int | None:
        """What an earlier life has noted of a message; None: nothing. It is there until it is taken."""
        share = entry.receipt
        return share.note if self._noting and isinstance(share, Share) else None

    def take_up(self, entry: Entry, note: int) -> bool:
        """Go on with the handshake that an earlier life has begun; False: the message is to be sent anew."""
        share = entry.receipt
        assert isinstance(share, Share)
        share.note = None
        window, wire = self._window, self._wire
        packet_id, released = note & 0xFFFF, bool(note & RELEASED)
        if packet_id not in self._noted:  # the broker has forgotten it
            if self.forgotten(released):
                return False
            entry.settle()
            return True
        self._noted.remove(packet_id)
        window.free_id(packet_id)
        if released:
            item: Inflight | None = Inflight(entry.batch, packet_id, share, entry.priority)
        else:
            item = wire.write_again(entry, packet_id)
        if item is None:
            return True
        window.add(item)
        if released:
            window.release(packet_id)
            wire.write(acknowledgements_of(PUBREL, (packet_id,)))
        self.answer_timeout.taken_up(packet_id, released)
        wire.counters["spool_resumed"] += 1
        return True

    def note_sent(self, receipt: Receipt | None, place_id: int, packet_id: int, count: int = 1) -> None:
        """Messages of QoS 2 were written; ``place_id`` is the identifier of the first for its receipt."""
        if self._custody is None:
            return
        if self._noting and isinstance(receipt, Share):
            receipt.noted(place_id, packet_id, count)
        self.guard(receipt)

    def note_released(self, packet_ids: Iterable[int]) -> None:
        """PUBRELs were written, in one go."""
        if not self._noting or self._custody is None:
            return
        for item, packet_id, count in self._window.stretches_of(packet_ids):
            if isinstance(item.receipt, Share):
                item.receipt.noted(item.place_id(packet_id), packet_id | RELEASED, count)
        self._wire.guard()

    def guard(self, receipt: Receipt | None) -> None:
        """What was written last is of QoS 2, and perhaps of no life but this."""
        if self._custody is None:
            return
        identity = receipt.identity if isinstance(receipt, Share) else None
        if self._noting or (identity is not None and identity.origin == self._custody.node_id):
            self._wire.guard()
        else:
            self._wire.after_what_is_kept()  # it has a number that another node keeps
