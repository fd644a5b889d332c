"""Handshakes that a connection has left open: taken up on the next one, or in the next life of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ildm.core.transfer.answer_timeout import AnswerTimeout
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import RELEASED, Share
from ildm.core.transfer.window import Inflight, InflightBatch, Window, consecutive
from ildm.mqtt import PubRel

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.transfer.custody import Custody
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
        self.answer_timeout = AnswerTimeout(driver, window)
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

    # on another connection --------------------------------------------------------------------

    def resend(self, session_present: bool) -> list[Entry]:
        """Send again what was not acknowledged (MQTT-4.4.0-1), as far as the window allows; answers what has
        to wait, or goes as new as the far end has forgotten it."""
        again: list[Entry] = []
        window, wire = self._window, self._wire
        for item, ids in window.take_all():
            packet_id = ids[0]
            if isinstance(item, InflightBatch):
                again += self._resend_batch(item, ids, session_present)
            elif item.released and session_present:
                window.add(packet_id, item)
                self.answer_timeout.taken_up(packet_id, item)
                wire.write(PubRel(packet_id=packet_id).encode(wire.version))
                self.guard(item.entry)
            elif session_present and window.takes(item.size):
                if min(item.entry.qos, wire.max_qos) == 0:
                    again.append(item.entry)
                elif size := wire.send_with_id(item.entry, packet_id, dup=True):
                    item = Inflight(item.entry, size)  # noqa: PLW2901 - as it is on this connection
                    window.add(packet_id, item)
                    if min(item.entry.qos, wire.max_qos) == 2:
                        self.guard(item.entry)
                        self.answer_timeout.taken_up(packet_id, item)
            elif session_present or item.entry.qos < 2 or self.forgotten(item.released):
                again.append(item.entry)
            else:
                item.entry.settle()
        return again

    def _resend_batch(self, batch: InflightBatch, ids: list[int], session_present: bool) -> list[Entry]:
        """Send again what is left of a batch, as far as the window allows; answers what has to wait."""
        window, wire = self._window, self._wire
        wait: list[Entry] = []
        for first_id, count in consecutive(ids):
            part = batch.part(first_id, count)
            room = window.takes_of(part, 0, count) if session_present and wire.max_qos and not wait else 0
            packet_id = first_id
            for piece in wire.pieces(part.part(0, room)) if room else ():
                if wire.write_qos_1(piece, packet_id, batch.receipt, dup=True):
                    window.add_batch(InflightBatch(piece, packet_id, batch.receipt, batch.priority))
                packet_id += piece.count
            if room < count:
                wait.append(batch.entry(first_id + room, count - room))
        return wait

    def forget_handshakes(self) -> None:
        """Nothing is released at the far end; what is done there all the same leaves the window."""
        for packet_id in self._window.ids:
            item = self._window.get(packet_id)
            if not isinstance(item, Inflight):
                continue
            if item.entry.qos < 2 or self.forgotten(item.released):
                item.released = False
            else:
                self._window.take(packet_id)
                item.entry.settle()

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
        item = Inflight(entry, entry.size)
        item.released = released
        if released:
            wire.write(PubRel(packet_id=packet_id).encode(wire.version))
        else:
            item.size = wire.send_with_id(entry, packet_id, dup=True)
        if item.size:
            window.add(packet_id, item)
            self.answer_timeout.taken_up(packet_id, item)
            wire.counters["spool_resumed"] += 1
        return True

    def note_sent(self, packet_id: int, entry: Entry) -> None:
        """A message of QoS 2 was written."""
        if self._custody is not None:
            self._note(entry, packet_id)
            self.guard(entry)

    def note_released(self, packet_id: int) -> None:
        """PUBREL was written."""
        item = self._window.get(packet_id)
        if self._noting and isinstance(item, Inflight):
            self._note(item.entry, packet_id | RELEASED)
            self.guard(item.entry)

    def _note(self, entry: Entry, value: int) -> None:
        share = entry.receipt
        if self._noting and entry.message is not None and isinstance(share, Share):
            share.noted(entry.packet_id, value)

    def guard(self, entry: Entry) -> None:
        """What was written last is a QoS 2 packet of it, and perhaps of no life but this."""
        if self._custody is None:
            return
        share = entry.receipt
        identity = share.identity if isinstance(share, Share) else None
        if self._noting or (identity is not None and identity.origin == self._custody.node_id):
            self._wire.guard()
        else:
            self._wire.after_what_is_kept()  # it has a number that another node keeps
