"""Connections of a world in virtual time.

A pipe has what flow control rests on: a write buffer with marks, socket buffers of a size, readers that
pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ildm.testing.virtual.process import Process
    from ildm.testing.virtual.world import World

SOCKET = 128 << 10
"""Bytes in the socket buffers of both ends and on the wire, per direction."""
SEGMENT = 1460
"""Bytes that a thin line carries at once, or those of :data:`TOGETHER`: the first arrive before the last."""
TOGETHER = 0.1
"""Seconds."""
READ = 256 << 10
"""Bytes handed over in one read, as asyncio does it."""
_WRITABLE = (bytes, bytearray, memoryview)
FIN, RESET = b"", None
"""What else arrives on a connection, besides bytes."""


class Pipe:
    """One end of a connection; has the methods of an asyncio transport.

    What is written goes through the write buffer of this end (unbounded, with marks), the socket buffers
    (bounded: ``world.socket``) and, after the latency, is read at the other end unless that has paused.
    """

    def __init__(self, world: World, endpoint: Any, peer: str, owner: Process | None = None) -> None:
        self.world = world
        self.endpoint = endpoint
        self.peer = peer
        self.owner = owner
        self.other: Pipe
        self.latency: float | None = None
        self.closed = False
        """Closed here, or by the other end and noticed here."""
        self.reading = True
        self.rate: float | None = None
        """Bytes a second that go from this end, as over a thin line; None: any number."""
        self._free_at = 0.0
        """When all that was sent has gone."""
        self.metered: Callable[[int], None] | None = None
        """Told of the bytes that go from this end, as they go."""
        self.read_rate: float | None = None
        """Bytes a second this end reads at most."""
        self.written = bytearray()
        self.sent = 0
        """Bytes written, recorded or not."""
        self.buffered = 0
        """Bytes in the write buffer."""
        self._buffer: deque[bytes] = deque()
        self._high, self._low = 64 << 10, 16 << 10
        self._write_paused = False
        self._pumping = False
        self._under_way = 0
        self._last_arrival = 0.0
        self._shut = False  # the socket is closed
        self._fin_due = False  # when what is in the write buffer has gone out
        self._fin_sent = False
        self._cut = False
        self._mute = False
        self._wire: deque[bytes | None] = deque()  # lost on a broken path, and sent again when it is mended
        self._inbox: deque[bytes] = deque()  # in the socket buffer
        self._read_due = False
        self._reset = False

    # what a test does to the network --------------------------------------------------------------

    @property
    def cut(self) -> bool:
        """Nothing arrives any more in either direction, as on a broken network path."""
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self._cut = cut
        self._mended()

    @property
    def mute(self) -> bool:
        """Nothing sent at this end arrives any more; the other direction works."""
        return self._mute

    @mute.setter
    def mute(self, mute: bool) -> None:
        self._mute = mute
        self._mended()

    def reset(self) -> None:
        """Break the connection, noticed at both ends at once; what was under way is lost."""
        for end in (self, self.other):
            if end._stands_still:
                end._reset = True
                end._soon(end._fail, ConnectionResetError("Connection reset by peer"))
            else:
                end._fail(ConnectionResetError("Connection reset by peer"))

    def die(self, silent: bool = False) -> None:
        """The process at this end has ended: its endpoint hears of nothing any more."""
        if silent:
            self.cut = True
        self.endpoint = None
        self.abort()
        self.world.pipes.pop(self, None)

    @property
    def _stands_still(self) -> bool:
        return self.owner is not None and self.owner.paused

    def _soon(self, callback: Callable[..., None], *args: object) -> None:
        """What the process at this end does."""
        self.world.call_at(self.world.time, callback, *args, owner=self.owner)

    # writing --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert isinstance(data, _WRITABLE)
        if self.closed or not data:
            return
        if self._reset:
            self._fail(ConnectionResetError("Connection reset by peer"))
            return
        data = bytes(data)
        size = len(data)
        self.sent += size
        world = self.world
        if world.recording:
            self.written += data
        room = world.socket - self._under_way
        if not self._buffer and room > 0:
            if size <= room:
                self._send(data)
                return
            self._send(data[:room])
            data = data[room:]
        if data:
            self._buffer.append(data)
            self.buffered += len(data)
            if self.buffered > self._high and not self._write_paused:
                self._write_paused = True
                self.endpoint.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that nothing more will be written, and read on."""
        self._fin_due = True
        self._finish()

    def _finish(self) -> None:
        if self._fin_due and not self._buffer and not self._fin_sent:
            self._fin_sent = True
            self._send(FIN)

    def _send(self, item: bytes | None) -> None:
        if item and self.rate is not None:
            size = max(SEGMENT, int(self.rate * TOGETHER))
            while len(item) > size:
                self._go(item[:size])
                item = item[size:]
        self._go(item)

    def _go(self, item: bytes | None) -> None:
        world = self.world
        gone = world.time
        if item:
            self._under_way += len(item)
            if self.metered is not None:
                self.metered(len(item))
            if self.rate is not None:
                gone = self._free_at = max(gone, self._free_at) + len(item) / self.rate
        arrival = gone + (world.latency if self.latency is None else self.latency)
        arrival = max(arrival, self._last_arrival)
        self._last_arrival = arrival
        world.arrive(arrival, self.other._arrive, item)

    def _taken(self, size: int) -> None:
        self._under_way -= size
        if self._buffer and not self._pumping:
            self._pumping = True
            self._soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        room = self.world.socket - self._under_way
        if room > 0 and self._buffer:
            data = self._buffer.popleft()
            if self._buffer and len(data) < room:
                parts, size = [data], len(data)
                while self._buffer and size < room:
                    parts.append(self._buffer.popleft())
                    size += len(parts[-1])
                data = b"".join(parts)
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self.buffered -= len(data)
            self._send(data)
        if self._write_paused and self.buffered <= self._low and self.endpoint is not None:
            self._write_paused = False
            self.endpoint.resume_writing()
        self._finish()
        if self.closed and not self._buffer:
            self._close_socket()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 << 10 if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.buffered

    # reading --------------------------------------------------------------------------------------

    def _mended(self) -> None:
        for end in (self, self.other):
            other = end.other
            if not (end._cut or other._cut or other._mute):
                for _ in end._wire:
                    self.world.call_at(self.world.time, end._first_of_wire)

    def _arrive(self, item: bytes | None) -> None:
        other = self.other
        if self._cut or other._cut or other._mute:
            self._wire.append(item)
        elif self._wire:  # what was held comes before it
            self._wire.append(item)
            self.world.call_at(self.world.time, self._first_of_wire)
        else:
            self._has_come(item)

    def _first_of_wire(self) -> None:
        if self._wire and not (self._cut or self.other._cut or self.other._mute):
            self._has_come(self._wire.popleft())

    def _has_come(self, item: bytes | None) -> None:
        if item is RESET:
            self._inbox.clear()
            self._reset = True
            if self._stands_still:
                self._soon(self._reset_noticed)
            elif self.reading or self._buffer:  # who does neither does not notice
                self._fail(ConnectionResetError("Connection reset by peer"))
        elif not self._shut:
            self._inbox.append(item)
            self._read()
        elif item:  # a closed socket
            self._send(RESET)

    def _read(self) -> None:
        if self._read_due or not self.reading or self.closed or not self._inbox:
            return
        if self._stands_still:
            self._read_soon()
            return
        data = self._inbox.popleft()
        if not data:
            self._eof()
            return
        inbox = self._inbox
        if inbox or self.read_rate is not None or len(data) > READ:
            data = self._joined(data)
        size = len(data)
        self.world.read += size
        self.other._taken(size)
        if inbox or self.read_rate is not None:
            self._read_soon(0.0 if self.read_rate is None else len(data) / self.read_rate)
        self.endpoint.data_received(data)

    def _joined(self, data: bytes) -> bytes:
        """What is read at once of the first of what has come, and the rest of it."""
        limit = READ if self.read_rate is None else min(READ, max(1, int(self.read_rate / 10)))
        if len(data) < limit and self._inbox:
            parts, size = [data], len(data)
            while self._inbox and self._inbox[0] and size < limit:
                parts.append(self._inbox.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        if len(data) > limit:
            self._inbox.appendleft(data[limit:])
            data = data[:limit]
        return data

    def _read_soon(self, delay: float = 0.0) -> None:
        if not self._read_due:
            self._read_due = True
            self.world.call_at(self.world.time + delay, self._read_now, owner=self.owner)

    def _read_now(self) -> None:
        self._read_due = False
        self._read()

    def _eof(self) -> None:
        if not self.endpoint.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        if self._reset:
            self._soon(self._fail, ConnectionResetError("Connection reset by peer"))
        elif self._inbox:
            self._read_soon()

    # ending ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Read no more, and end the connection when what was written has gone out."""
        if not self.closed:
            self.closed = True
            if not self._buffer:
                self._close_socket()

    def abort(self) -> None:
        """End the connection at once; what is in the write buffer is lost."""
        self.closed = True
        self._buffer.clear()
        self.buffered = 0
        self._close_socket()

    def _close_socket(self) -> None:
        if self._shut:
            return
        self._shut = True
        if not self._fin_sent:
            self._send(RESET if any(self._inbox) else FIN)
        self._inbox.clear()
        self._soon(self._lost, None)

    def _reset_noticed(self) -> None:
        if not self._shut and (self.reading or self._buffer):
            self._fail(ConnectionResetError("Connection reset by peer"))

    def _fail(self, exc: Exception) -> None:
        self.closed = self._shut = True
        self._buffer.clear()
        self.buffered = 0
        self._inbox.clear()
        self._lost(exc)

    def _lost(self, exc: Exception | None) -> None:
        self.world.pipes.pop(self, None)
        if self.endpoint is not None:
            endpoint, self.endpoint = self.endpoint, None
            endpoint.connection_lost(exc)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        host, _, port = self.peer.rpartition(":")
        return (host, int(port)) if name == "peername" else default
