"""The bytes of one direction of a link session as chunks, most of them compressed as one stream.

::

    chunk := head (variable byte integer) | bytes        head := length of the bytes << 2 | kind
    kind  := 0 stored   1 coded, the context goes on   2 coded, the context begins anew

A stored chunk has any length and is passed on as it comes. A coded one is decoded when it is complete. It has
1 to :data:`LARGEST` plain bytes. Deflate is raw (RFC 1951) and ends each chunk with a sync flush, whose last
four bytes are left out (RFC 7692). zstd (RFC 8878) is one frame without an end, flushed block by block.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from ildm.core.frames import Tail
from ildm.mqtt import MalformedPacket
from ildm.mqtt.framing import decode_varint, encode_varint

if TYPE_CHECKING:
    from ildm.core.counters import Counters

zstandard: Any = None
"""None without the extra ildm[zstd]."""
with suppress(ImportError):
    zstandard = import_module("zstandard")

LARGEST: Final = 32 << 10
"""Plain bytes of a coded chunk: what the far end decodes before it passes anything on."""
LARGEST_CODED: Final = LARGEST + (LARGEST >> 6) + 64
"""Bytes of the same where they cannot be compressed, with all that the codecs add."""
LARGEST_STORED: Final = 1 << 20
"""Bytes of a stored chunk that this node writes."""
SMALL: Final = 16
"""Bytes that are stored, because coding makes them no fewer: an acknowledgement, a PINGREQ."""
SHARE: Final = 256 << 10
"""Plain bytes that are decoded at once."""
LOOKED_AT: Final = 64 << 10
"""Plain bytes after which the sender looks whether coding has paid."""
PAYS: Final = 1.2
"""Plain bytes for a coded one, at least."""
FIRST_WAIT: Final = 4 << 20
"""Bytes that are stored after coding has not paid; they double each time that it does not pay again."""
LONGEST_WAIT: Final = 256 << 20
SYNC: Final = b"\0\0\xff\xff"
STORED: Final = 0
CODED: Final = 1
ANEW: Final = 2
DEFLATE: Final = "deflate"
ZSTD: Final = "zstd"


def malformed(text: str) -> MalformedPacket:
    return MalformedPacket(f"compressed link: {text}", clause="MQTT-4.13.1")


def codecs() -> tuple[str, ...]:
    """What this node can decode and code, the best first."""
    return (DEFLATE,) if zstandard is None else (ZSTD, DEFLATE)


class Contexts:
    """How many contexts the senders of a node have, and may have; counts what becomes of chunks."""

    def __init__(self, most: int, counters: Counters) -> None:
        self.most = most
        self.count = 0
        self.counters = counters

    def take(self) -> bool:
        if self.count >= self.most:
            self.counters["link_contexts_refused"] += 1
            return False
        self.count += 1
        return True

    def give_back(self) -> None:
        self.count -= 1


class Coder(Protocol):
    """The sender's context of a stream."""

    def code(self, plain: bytes) -> bytes:
        """So that the far end can decode all of it."""


class Decoder(Protocol):
    """The receiver's."""

    def decode(self, coded: bytes) -> bytes:
        """Answers :data:`LARGEST` bytes at most. Raises: MalformedPacket."""


class DeflateCoder:
    """Level 3 takes as long as level 1 for small messages and makes them smaller."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(3, zlib.DEFLATED, -15)

    def code(self, plain: bytes) -> bytes:
        coded = self._stream.compress(plain) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return coded[: -len(SYNC)]


class DeflateDecoder:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(-15)

    def decode(self, coded: bytes) -> bytes:
        try:
            plain = self._stream.decompress(coded + SYNC, LARGEST + 1)
        except zlib.error as error:
            raise malformed(str(error)) from None
        if len(plain) > LARGEST:
            raise malformed("a chunk is too large")
        return plain


class ZstdCoder:
    """The window of 32 KiB makes the context as small as that of deflate."""

    def __init__(self) -> None:
        parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=15, write_content_size=0)
        self._stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def code(self, plain: bytes) -> bytes:
        coded: bytes = self._stream.compress(plain) + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return coded


class ZstdDecoder:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST)
        self._stream: Any = decompressor.stream_writer(self, write_size=LARGEST)

    def write(self, part: bytes) -> int:
        """Called with each part that is decoded, so that no chunk takes more memory than it may."""
        self._size += len(part)
        if self._size > LARGEST:
            raise malformed("a chunk is too large")
        self._parts.append(part)
        return len(part)

    def decode(self, coded: bytes) -> bytes:
        self._parts, self._size = [], 0
        try:
            self._stream.write(coded)
        except zstandard.ZstdError as error:
            raise malformed(str(error)) from None
        return b"".join(self._parts)


def _coder(codec: str) -> Coder:
    return ZstdCoder() if codec == ZSTD else DeflateCoder()


def _decoder(codec: str) -> Decoder:
    return ZstdDecoder() if codec == ZSTD else DeflateDecoder()


class Compressor:
    """Makes chunks of what is written. A context costs about 256 KiB, from the first chunk that is coded."""

    __slots__ = (
        "_anew",
        "_codec",
        "_coder",
        "_contexts",
        "_looked_at",
        "_made",
        "_unpaid",
        "_wait",
    )

    def __init__(self, codec: str, contexts: Contexts) -> None:
        self._codec = codec
        self._contexts = contexts
        self._coder: Coder | None = None
        self._anew = False
        """The next coded chunk is the first of its context."""
        self._looked_at = 0
        """Plain bytes since coding was last judged."""
        self._made = 0
        """Bytes that were made of them."""
        self._wait = FIRST_WAIT
        self._unpaid = 0
        """Bytes that are still stored before coding is tried again."""

    def chunks(self, plain: bytes, code: bool = True) -> bytes:
        """All of ``plain``, which is not empty, as chunks. Without ``code`` it enters no context."""
        size = len(plain)
        if not code or size < SMALL or not self._try(size):
            return self._stored(plain)
        if size <= LARGEST:
            return self._coded(plain)
        return b"".join([self._coded(plain[at : at + LARGEST]) for at in range(0, size, LARGEST)])

    def end(self) -> None:
        """The stream ends, or goes on with another context."""
        if self._coder is not None:
            self._coder = None
            self._contexts.give_back()

    def _try(self, size: int) -> bool:
        """Whether there is a context, or room for one, and hope that it pays."""
        if self._unpaid > 0:
            self._unpaid -= size
            return False
        if self._coder is None:
            if not self._contexts.take():
                return False
            self._coder = _coder(self._codec)
            self._anew = True
        return True

    def _coded(self, plain: bytes) -> bytes:
        coder = self._coder
        if coder is None:  # an earlier piece has shown that it does not pay
            return self._stored(plain)
        coded = coder.code(plain)
        self._contexts.counters["link_chunks_coded"] += 1
        kind, self._anew = ANEW if self._anew else CODED, False
        self._looked_at += len(plain)
        self._made += len(coded)
        if self._looked_at >= LOOKED_AT:
            self._judge()
        return encode_varint(len(coded) << 2 | kind) + coded

    def _judge(self) -> None:
        if self._looked_at < PAYS * self._made:
            self._unpaid = self._wait
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self.end()
        else:
            self._wait = FIRST_WAIT
        self._looked_at = self._made = 0

    def _stored(self, plain: bytes) -> bytes:
        size = len(plain)
        if size <= LARGEST_STORED:
            self._contexts.counters["link_chunks_stored"] += 1
            return encode_varint(size << 2) + plain
        return b"".join(
            [self._stored(plain[at : at + LARGEST_STORED]) for at in range(0, size, LARGEST_STORED)]
        )


class Decompressor:
    """Takes chunks apart, however they were cut on their way.

    It keeps what was read at once and one incomplete chunk, whatever the far end sends.
    """

    __slots__ = ("_codec", "_decoder", "_rest", "_stored", "_tail")

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._decoder: Decoder | None = None
        self._tail = Tail()
        self._stored = 0
        """Bytes of a stored chunk that are still to come."""
        self._rest = b""

    def clear(self) -> None:
        self._decoder = None
        self._tail.clear()
        self._stored, self._rest = 0, b""

    @property
    def waits(self) -> bool:
        """There is more to decode than was decoded at once: ask for it with no further data."""
        return len(self._rest) > 0

    def plain(self, data: bytes) -> bytes:
        """What the chunks in ``data`` hold, or the first of it.

        Raises:
            MalformedPacket: no sender makes such a chunk.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        elif self._tail.missing:
            joined = self._tail.join(data)
            if joined is None:
                return b""
            data = joined
        parts: list[bytes] = []
        pos, end, room = 0, len(data), SHARE
        while pos < end:
            if self._stored:
                part = data[pos : pos + self._stored]
                self._stored -= len(part)
                pos += len(part)
                parts.append(part)
                continue
            if room <= 0:
                self._rest = data[pos:]
                break
            head = decode_varint(data, pos)
            if head is None:
                self._tail.keep(data[pos:], 1)
                break
            kind, length, begin = head[0] & 3, head[0] >> 2, head[1]
            if not length or kind > ANEW:
                raise malformed(f"a chunk of kind {kind} with {length} bytes")
            if kind == STORED:
                self._stored, pos = length, begin
                continue
            if length > LARGEST_CODED:
                raise malformed(f"a chunk of {length} bytes")
            if begin + length > end:
                self._tail.keep(data[pos:], begin + length - end)
                break
            pos = begin + length
            part = self._decoded(kind, data[begin:pos])
            room -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _decoded(self, kind: int, coded: bytes) -> bytes:
        if kind == ANEW:
            self._decoder = _decoder(self._codec)
        decoder = self._decoder
        if decoder is None:
            raise malformed("the first coded chunk goes on with a context")
        plain = decoder.decode(coded)
        if not plain:
            raise malformed("a chunk of nothing")
        return plain
