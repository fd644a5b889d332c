"""Compression between a link session and its connection, from behind CONNACK on.

Handshake, framing, queues and windows see plain MQTT. A connection without compression has nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ildm.core.link.chunks import DEFLATE, ZSTD, Compressor, Contexts, Decompressor

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport

FAR: Final = 0.020
"""Seconds of a round trip from which on `auto` compresses."""
MINUTE: Final = 60.0
CODECS: Final = frozenset((DEFLATE, ZSTD))
NONE: Final[frozenset[str]] = frozenset()


class Compression:
    """What compression of all links of a node has in common."""

    def __init__(self, config: LinkConfig, counters: Counters) -> None:
        self.config = config
        self.contexts = Contexts(config.compression_contexts, counters)

    def unnamed(self, encrypted: bool) -> frozenset[str]:
        """The codecs that this node does not name on a connection.

        On an encrypted one the lengths of what is compressed tell somebody who may publish what else crosses.
        """
        mode = self.config.compression
        if mode == "off" or (mode == "auto" and encrypted and not self.config.compression_encrypted):
            return CODECS
        return frozenset((ZSTD,)) if mode == "deflate" else NONE

    def codec(self, features: frozenset[str]) -> str | None:
        """The one of a connection, the same at both ends."""
        return ZSTD if ZSTD in features else DEFLATE if DEFLATE in features else None

    def pays(self, rtt: float | None) -> bool:
        """Whether bytes are dearer than processor time on a link."""
        return self.config.compression != "auto" or (rtt is not None and rtt >= FAR)


class LastMinute:
    """Plain and coded bytes of one to two minutes."""

    __slots__ = ("_before", "_began", "_now")

    def __init__(self, now: float) -> None:
        self._began = now
        self._now = [0, 0]
        self._before = [0, 0]

    def add(self, now: float, plain: int, coded: int) -> None:
        self._pass(now)
        self._now[0] += plain
        self._now[1] += coded

    def sums(self, now: float) -> tuple[int, int]:
        """Plain bytes, coded bytes."""
        self._pass(now)
        return self._before[0] + self._now[0], self._before[1] + self._now[1]

    def _pass(self, now: float) -> None:
        passed = now - self._began
        if passed >= MINUTE:
            self._before = self._now if passed < 2 * MINUTE else [0, 0]
            self._now = [0, 0]
            self._began = now


class Totals:
    """Bytes of a link, over all its connections."""

    __slots__ = ("coded_in", "coded_out", "plain_in", "plain_out")

    def __init__(self) -> None:
        self.plain_in = self.plain_out = self.coded_in = self.coded_out = 0


class CompressedTransport:
    """A connection that takes plain bytes; what comes by it goes through :meth:`plain`.

    Back-pressure is that of the connection: it counts the bytes that wait there, which are coded.

    Args:
        pays: whether to compress what is written now.
        go_on: asks for the rest of what has come, in a later turn.
    """

    __slots__ = (
        "_compressor",
        "_counters",
        "_decompressor",
        "_driver",
        "_go_on",
        "_last_minute",
        "_pays",
        "_reading",
        "_stores",
        "_transport",
        "_waits",
        "codec",
        "made",
        "totals",
    )

    def __init__(
        self,
        transport: Transport,
        codec: str,
        contexts: Contexts,
        driver: Driver,
        counters: Counters,
        pays: Callable[[], bool],
        go_on: Callable[[], None],
        reading: bool,
    ) -> None:
        self._transport = transport
        self.codec = codec
        self.made = 0
        """Bytes of all that was written, as they went over the connection."""
        self.totals = Totals()
        """Those of the link, once it is known."""
        self._compressor = Compressor(codec, contexts)
        self._decompressor = Decompressor(codec)
        self._driver = driver
        self._counters = counters
        self._last_minute = LastMinute(driver.now())
        self._pays = pays
        self._go_on = go_on
        self._reading = reading
        """The session takes what comes."""
        self._stores = False
        self._waits = False

    # sending ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not data:
            return
        coded = self._compressor.chunks(data, not self._stores and self._pays())
        self.made += len(coded)
        self.totals.plain_out += len(data)
        self.totals.coded_out += len(coded)
        self._count("out", len(data), len(coded))
        self._transport.write(coded)

    def store(self, stores: bool) -> None:
        """Whether what is written from now on enters no context."""
        self._stores = stores

    def _count(self, direction: str, plain: int, coded: int) -> None:
        self._counters[f"link_plain_bytes_{direction}"] += plain
        self._counters[f"link_coded_bytes_{direction}"] += coded
        self._last_minute.add(self._driver.now(), plain, coded)

    def last_minute(self) -> tuple[int, int]:
        """Plain and coded bytes of both directions."""
        return self._last_minute.sums(self._driver.now())

    def coded_bytes(self) -> int:
        return self.made

    def ratio(self) -> float:
        """Plain bytes for each coded one, of the last minute."""
        plain, coded = self.last_minute()
        return max(1.0, plain / coded) if coded else 1.0

    # receiving --------------------------------------------------------------------------------

    def plain(self, data: bytes) -> bytes:
        """The first of what has come; while there is more, nothing is read, and ``go_on`` is called.

        Raises:
            MalformedPacket: no neighbour sends that.
        """
        was = self._decompressor.waits
        plain = self._decompressor.plain(data)
        self.totals.plain_in += len(plain)
        self.totals.coded_in += len(data)
        self._count("in", len(plain), len(data))
        if self._decompressor.waits:
            if not was:
                self._transport.pause_reading()
            self._wait()
        elif was and self._reading:
            self._transport.resume_reading()
        return plain

    @property
    def waits(self) -> bool:
        """There is a rest of what has come."""
        return self._decompressor.waits

    def _wait(self) -> None:
        if self._reading and not self._waits:
            self._waits = True
            self._driver.in_turn(self._turn)

    def _turn(self) -> None:
        self._waits = False
        if self._reading and self._decompressor.waits:
            self._go_on()

    def pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if self._decompressor.waits:
            self._wait()
        else:
            self._transport.resume_reading()

    def drop(self) -> None:
        """The session takes nothing more: what comes is read and thrown away."""
        if self._decompressor.waits:
            self._decompressor.clear()
            self._transport.resume_reading()

    def end(self) -> None:
        """The connection is gone."""
        self._compressor.end()
        self._decompressor.clear()

    # the rest of a transport ------------------------------------------------------------------

    def write_eof(self) -> None:
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
