"""Between the broker and a client: what is looked at, and what waits, before the client gets it.

Nearly always a chunk of the broker's goes on as it came. Only while the node expects an acknowledgement
that means something to it are chunks cut: every packet passes but

* PUBACK and PUBREC while the gate is closed, because what the client publishes finds a full link: a
  client that gets no acknowledgements stops by itself (MQTT 5, 3.3.4, 4.9), and all else it does goes on;
* PUBACK, PUBREC and PUBCOMP until what they tell is durable, where the node has a spool
  (:mod:`.write_barrier`);
* a SUBACK until the neighbours, or the nodes of an overlay, know of the filters it grants, so that what is
  published anywhere after it arrives; SUBACK and UNSUBACK keep their order (PUBLISH may come before SUBACK:
  3.8.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ildm.core.frames import LONG_RUN, HeaderScanner, alike
from ildm.core.transfer.ack_runs import PUBACK, PUBREC, acknowledged_ids
from ildm.mqtt import PacketType, Version, decode_varint

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver

TAKEN = bytes((PUBACK, PUBREC))
"""Acknowledgements by which the broker has taken messages."""
PASSED = 0x100
"""Added to the first byte of a packet which the client has got already, at least in part."""
PACKET_IDS = 65_535
"""More acknowledgements cannot wait for a client that uses each packet identifier once (MQTT-2.2.1-3)."""

_MEANINGFUL = bytes(
    first >> 4
    in (
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBCOMP,
        PacketType.SUBACK,
        PacketType.UNSUBACK,
        PacketType.PINGRESP,
    )
    for first in range(256)
)

Piece = tuple[int, bytes, Sequence[int]]
"""First byte, bytes and packet identifiers: 0 for what passes whatever it is, 0x40 with identifiers for a run
of PUBACK without an error, else one whole packet and no identifiers."""


class GateScanner(HeaderScanner):
    """A header scanner that can also cut the stream, and change from one to the other at any byte."""

    __slots__ = ("deferred", "version")

    def __init__(self, wanted: bytes, limit: int, version: Version) -> None:
        super().__init__(wanted, limit)
        self.version = version
        self.deferred = False
        """The part of a packet that is kept has not gone to the client: :meth:`split` must go on."""

    @property
    def begun(self) -> int:
        """Bytes, at least, that are still to come of a packet whose beginning the client has; 0: of none."""
        if self.deferred:
            return 0
        if self._held is not None:
            return self._missing
        return self._skip or (1 if self._head else 0)

    def split(self, data: bytes) -> list[Piece]:
        """The stream in pieces, in order. Acknowledgements and what is ``wanted`` come whole.

        Raises:
            MalformedPacket: a remaining length of more than four bytes.
        """
        pieces: list[Piece] = []
        deferred, self.deferred = self.deferred, False
        pos = start = 0  # data[start:pos]: passes, but is in no piece yet
        if self._skip:
            pos = min(self._skip, len(data))
            self._skip -= pos
        elif self._held is not None:
            pos = start = self._complete(data, deferred, pieces)
            if self._missing > 0:
                return pieces
        elif self._head:
            start = 0 if deferred else len(self._head)
            data = self._head + data
            self._head = b""
        end_of_data = len(data)
        wanted = self.wanted
        while pos < end_of_data:
            first = data[pos]
            if first in TAKEN and start <= pos and not wanted[first]:
                ids, end = acknowledged_ids(data, pos, self.version, first)
                if ids:
                    if pos > start:
                        pieces.append((0, data[start:pos], ()))
                    pieces.append((first, data[pos:end], ids))
                    start = pos = end
                    continue
            header_end = pos + 2
            if header_end <= end_of_data and data[pos + 1] < 128:
                end = header_end + data[pos + 1]
            else:
                length = decode_varint(data, pos + 1) if header_end <= end_of_data else None
                if length is None:
                    self._head = data[pos:]
                    self.deferred = start <= pos
                    break
                header_end = length[1]
                end = header_end + length[0]
            publish = first & 0xF0 == 0x30
            if wanted[first] or _MEANINGFUL[first]:
                self.publishes += publish
                passed = start > pos  # it had begun when nothing was expected yet
                if end > end_of_data:
                    pos = self._keep(data, pos, header_end, end, passed)
                    break
                if passed:
                    pieces.append((0, data[start:end], ()))
                elif pos > start:
                    pieces.append((0, data[start:pos], ()))
                pieces.append((first | PASSED if passed else first, data[pos:end], ()))
                start = pos = end
                continue
            begin = pos
            pos = _past_like(data, begin, header_end, end)
            if publish:
                self.publishes += (pos - begin) // (end - begin)
            if pos > end_of_data:
                self._skip = pos - end_of_data
                break
        passing = end_of_data if not self.deferred else pos
        if passing > start:
            pieces.append((0, data[start:passing], ()))
        self.between_frames = not (self._skip or self._head or self._held)
        return pieces

    def _complete(self, data: bytes, deferred: bool, pieces: list[Piece]) -> int:
        """The packet that is kept goes on in ``data``; answers where it ends there, if it does."""
        assert self._held is not None
        end = self._missing
        self._held.append(data[:end])
        self._missing -= len(data)
        if not deferred:
            pieces.append((0, data[:end], ()))
        if self._missing > 0:
            self.deferred = deferred
            return len(data)
        frame = b"".join(self._held)
        pieces.append((frame[0] if deferred else frame[0] | PASSED, frame, ()))
        self._held, self._missing = None, 0
        return end

    def _keep(self, data: bytes, pos: int, header_end: int, end: int, passed: bool) -> int:
        """Keep the packet at ``pos``, of which a part has come; answers up to where ``data`` passes."""
        if end - header_end > self.limit:
            self._skip = end - len(data)
            return len(data)
        self._held = [data[pos:]]
        self._missing = end - len(data)
        self.deferred = not passed
        return pos


def _past_like(data: bytes, pos: int, header_end: int, end: int) -> int:
    """Behind the frames from ``pos`` on that begin like the one there; the last may not be whole."""
    prefix = data[pos:header_end]
    size = end - pos
    pos = end
    like = 1
    while pos < len(data) and data.startswith(prefix, pos):
        pos += size
        like += 1
        if like == LONG_RUN:
            pos += size * alike(data, pos, size, prefix)
    return pos


class Answer:
    """A SUBACK or UNSUBACK in the order of its client's."""

    __slots__ = ("frame", "ready")

    def __init__(self, frame: bytes, ready: bool) -> None:
        self.frame = frame
        self.ready = ready


class AckGate:
    """What waits for one client.

    Args:
        write: sends a SUBACK or UNSUBACK.
        acknowledge: sends PUBACK and PUBREC.
        overflowed: called when it breaks the bound.
    """

    __slots__ = (
        "_acknowledge",
        "_acknowledgements",
        "_answers",
        "_count",
        "_overflowed",
        "_reasons",
        "_write",
        "bytes_since_closed",
        "since_closed",
    )

    def __init__(
        self,
        write: Callable[[bytes], None],
        acknowledge: Callable[[bytes], None],
        overflowed: Callable[[], None],
    ) -> None:
        self._write = write
        self._acknowledge = acknowledge
        self._overflowed = overflowed
        self._reasons: set[object] = set()
        self._acknowledgements: list[bytes] = []
        self._count = 0
        self._answers: deque[Answer] = deque()
        self.since_closed = 0
        """Messages of QoS 1 and 2 the client has sent since the gate was closed."""
        self.bytes_since_closed = 0
        """Their packets."""

    @property
    def closed(self) -> bool:
        """Whether acknowledgements wait."""
        return bool(self._reasons)

    @property
    def reasons(self) -> frozenset[object]:
        return frozenset(self._reasons)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing has to."""
        return not (self._reasons or self._answers)

    @property
    def waiting(self) -> int:
        """Acknowledgements that wait."""
        return self._count

    def hold(self, reason: object) -> None:
        """Let no PUBACK and PUBREC pass until every reason given has been withdrawn."""
        if not self._reasons:
            self.since_closed = self.bytes_since_closed = 0
        self._reasons.add(reason)

    def release(self, reason: object) -> None:
        self._reasons.discard(reason)
        if not self._reasons and self._acknowledgements:
            waiting, self._acknowledgements, self._count = self._acknowledgements, [], 0
            self._acknowledge(b"".join(waiting))

    def acknowledgement(self, data: bytes, count: int) -> bool:
        """``count`` PUBACK or PUBREC have come: whether they pass now. If not, they wait."""
        if not self._reasons:
            return True
        self._acknowledgements.append(data)
        self._count += count
        if self._count > PACKET_IDS:
            self._overflowed()
        return False

    def answer(self, answer: Answer) -> bool:
        """A SUBACK or UNSUBACK has come: whether it passes now. If not, it waits for :meth:`ready`."""
        if answer.ready and not self._answers:
            return True
        self._answers.append(answer)
        return False

    def ready(self, answer: Answer) -> None:
        """Nothing keeps this answer any longer."""
        answer.ready = True
        while self._answers and self._answers[0].ready:
            self._write(self._answers.popleft().frame)


class Told:
    """An answer's wait for those who have to know what it tells, bounded in time.

    ``counter`` names what is counted when the time is over.
    """

    __slots__ = ("_callback", "_counter", "_counters", "_left", "_timer")

    def __init__(
        self,
        counters: Counters,
        callback: Callable[[], None],
        left: int,
        counter: str = "subscribe_waits_expired",
    ) -> None:
        self._counters = counters
        self._counter = counter
        self._callback: Callable[[], None] | None = callback
        self._left = left
        self._timer: Timer | None = None

    @property
    def complete(self) -> bool:
        return self._left <= 0

    def wait(self, driver: Driver, seconds: float) -> None:
        """The callback is called after so many seconds in any case."""
        self._timer = driver.call_later(seconds, self._expired)

    def one(self) -> None:
        """One of ``left`` knows."""
        self._left -= 1
        if self._timer is not None and self.complete:
            self._timer.cancel()
            self._finish()

    def heard(self) -> bool:
        """As :meth:`one`; False: nothing waits for it any more."""
        waits = self._callback is not None
        self.one()
        return waits

    def _expired(self) -> None:
        self._counters[self._counter] += 1
        self._finish()

    def _finish(self) -> None:
        self._timer = None
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
