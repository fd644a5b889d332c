"""Frames of WebSocket (RFC 6455, section 5), without a socket: bytes in, payload out.

The payload streams: what has come of a frame goes on at once, as packets of MQTT need not be aligned with
frames (MQTT-6.0.0-2). So a long frame takes no memory, and messages are not put together.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
LONGEST_CONTROL = 125
KEY = 4
"""Bytes of a mask."""
FIN, RSV, MASK = 0x80, 0x70, 0x80


class CloseCode(IntEnum):
    """Why a connection is closed (RFC 6455, 7.4.1)."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007
    TOO_BIG = 1009


SENT = frozenset((1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)))
"""Codes that may stand in a close frame: registered by IANA for it, or free for use (RFC 6455, 7.4)."""


class FrameError(Exception):
    """What the peer sends is no WebSocket, or none that carries MQTT."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole frame as a server sends it, unmasked."""
    size = len(payload)
    if size < 126:
        return bytes((FIN | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((FIN | opcode, 126, size >> 8, size & 0xFF)) + payload
    return bytes((FIN | opcode, 127)) + size.to_bytes(8, "big") + payload


def close_frame(code: int, text: str = "") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + text.encode()[: LONGEST_CONTROL - 2])


def unmasked(data: bytes, key: bytes, phase: int) -> bytes:
    """``data`` with the mask taken off; ``phase`` is how far into the key it begins, 0 to 3."""
    size = len(data)
    if phase:
        key = key[phase:] + key[:phase]
    # one addition of long numbers is a hundred times faster than a loop over bytes
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")


class FrameReader:
    """Takes what a client sends.

    Args:
        largest: bytes that the payload of one frame may have.
    """

    __slots__ = (
        "_control",
        "_key",
        "_largest",
        "_left",
        "_opcode",
        "_phase",
        "_rest",
        "_within",
        "closed",
        "ping",
    )

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rest = b""  # a header that is not whole
        self._opcode = BINARY
        self._left = 0  # of the payload of the frame that is under way
        self._key = b""
        self._phase = 0
        self._within = False  # a message of several frames
        self._control = bytearray()
        self.ping: bytes | None = None
        """The payload of the newest PING, for the caller to answer and to take away (RFC 6455, 5.5.3)."""
        self.closed: bytes | None = None
        """The payload of CLOSE; what comes behind it is ignored."""

    def state(self) -> list[Any]:
        """Where it is in a frame, of JSON's types, for :meth:`go_on`; neither PING nor CLOSE is part."""
        control = bytes(self._control)
        found = (self._rest, self._key, control)
        return [self._opcode, self._left, self._phase, self._within, *(each.hex() for each in found)]

    def go_on(self, state: list[Any]) -> None:
        """Be where another reader was. Raises: ValueError, TypeError: none can be there."""
        opcode, left, phase, within, *texts = state
        rest, key, control = map(bytes.fromhex, texts)
        if left and len(key) != KEY:
            raise ValueError("no mask of a WebSocket")
        self._opcode, self._left, self._phase, self._within = int(opcode), int(left), int(phase), bool(within)
        self._rest, self._key, self._control = rest, key, bytearray(control)

    def feed(self, data: bytes) -> bytes:
        """The payload of data frames in ``data``, and in what came before and was not whole.

        Raises:
            FrameError: nothing more is to be fed.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        found: list[bytes] = []
        while at < end and self.closed is None:
            if not self._left:
                head = self._head(data, at, end)
                if not head:
                    self._rest = data[at:]
                    break
                at += head
                if not self._left:
                    self._frame_ended()
                    continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            plain = unmasked(piece, self._key, self._phase)
            self._phase = (self._phase + len(piece)) & 3
            if self._opcode >= CLOSE:
                self._control += plain
            else:
                found.append(plain)
            if not self._left:
                self._frame_ended()
        return found[0] if len(found) == 1 else b"".join(found)

    def _head(self, data: bytes, at: int, end: int) -> int:
        """Take the header that begins at ``at``: its length, or 0 while it is not whole."""
        if end - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        opcode, size = first & 0x0F, second & 0x7F
        if first & RSV:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "reserved bits are set")
        if not second & MASK:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a client's frames are to be masked")
        if opcode >= CLOSE:
            if opcode > PONG or not first & FIN or size > LONGEST_CONTROL:
                raise FrameError(CloseCode.PROTOCOL_ERROR, "no control frame is like this")
        elif opcode == TEXT:
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "MQTT is in binary frames (MQTT-6.0.0-1)")
        elif opcode not in (CONTINUATION, BINARY) or (opcode == CONTINUATION) is not self._within:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "that frame cannot come now")
        length = 6
        if size >= 126:
            wide = 2 if size == 126 else 8
            length += wide
            if end - at < length:
                return 0
            size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
        elif end - at < length:
            return 0
        if size > self._largest:
            raise FrameError(CloseCode.TOO_BIG, f"frames have {self._largest} bytes at most")
        if opcode < CLOSE:
            self._within = not first & FIN
        self._opcode, self._left, self._phase = opcode, size, 0
        self._key = data[at + length - 4 : at + length]
        return length

    def _frame_ended(self) -> None:
        if self._opcode < CLOSE:
            return
        payload = bytes(self._control)
        self._control.clear()
        if self._opcode == PING:
            self.ping = payload
        elif self._opcode == CLOSE:
            _check_close(payload)
            self.closed = payload


def _check_close(payload: bytes) -> None:
    """Raises: FrameError: the payload of CLOSE is none (RFC 6455, 5.5.1, 7.4)."""
    if len(payload) == 1:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "half a code in a close frame")
    if payload and int.from_bytes(payload[:2], "big") not in SENT:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a code that no close frame may have")
    try:
        payload[2:].decode()
    except UnicodeDecodeError as error:
        raise FrameError(CloseCode.INVALID_DATA, "the reason of a close frame is not UTF-8") from error
