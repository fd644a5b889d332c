"""What an origin answers to a request for messages: those of its log, in pieces, and which are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.messages import milliseconds

if TYPE_CHECKING:
    from ildm_algorithms.exchange.log import Log

__all__ = ["send_late"]

LATE_BYTES = 32_768
"""Bytes in one piece; a larger message makes one of its own."""
WANT_BYTES = 262_144
"""Bytes sent at once in answer to one request."""

Send = Callable[[bool, list[int], dict[int, tuple[int, bytes]]], bool]
"""Gets whether a piece is the last, numbers of messages that are gone, ages in ms and messages by number;
answers False if the piece is too large for the link."""


def send_late(log: Log, numbers: Iterable[int], now: float, send: Send, count: Callable[[str], None]) -> None:
    """Send messages in the order of the request. Those beyond ``WANT_BYTES`` are to be requested again. Those
    that no link can carry count as gone."""
    gone: list[int] = []
    piece: dict[int, tuple[int, bytes]] = {}
    size = total = 0
    for number in numbers:
        entry = log.get(number)
        payload = None if entry is None else entry.aged(now)
        if entry is None or payload is None:
            gone.append(number)
            continue
        if piece and size + len(payload) > LATE_BYTES:
            if not send(False, [], piece):
                gone += piece
            piece, size = {}, 0
        if total and total + len(payload) > WANT_BYTES:
            break
        piece[number] = milliseconds(now - entry.at), payload
        size += len(payload)
        total += len(payload)
        count("late_sent")
    if not send(True, gone, piece):
        send(True, [*gone, *piece], {})
