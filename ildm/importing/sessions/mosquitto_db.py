"""Sessions in the file that Mosquitto 2 keeps (``mosquitto.db``, version 6).

The file is a header and chunks, each with its kind and its length. Numbers stand in network byte order. Only
clients and subscriptions are read; other chunks are passed over by their length.

Mosquitto writes the file as it ends, on SIGUSR1, and each ``autosave_interval``. It does not write shared
subscriptions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ildm.importing.sessions.found import Found, read_file

MAX_BYTES = 1 << 30
MAGIC = b"\x00\xb5\x00mosquitto db"
VERSION = 6
CONFIGURATION, STORED, WAITING, RETAINED, SUBSCRIPTION, CLIENT = range(1, 7)
NEVER = 0xFFFFFFFF
"""Session expiry interval of a session that does not expire (MQTT 5, 3.1.2.11.2)."""

_HEADER = struct.Struct(">15sII")
"""Magic, a checksum that is always 0, version."""
_CHUNK = struct.Struct(">II")
_CLIENT = struct.Struct(">8xIHHHH4x")
"""Time of expiry in the byte order of the machine (it is not read), expiry interval, last packet identifier,
and three numbers of which the first is the length of the client identifier; then padding."""
_SUBSCRIPTION = struct.Struct(">IHHBB2x")
"""Subscription identifier, lengths of client identifier and filter, QoS, options."""


class _Chunk(NamedTuple):
    kind: int
    offset: int
    """Of its content in the file."""
    content: bytes

    @property
    def where(self) -> str:
        return f"offset {self.offset}"


def read_mosquitto(path: Path) -> Found:
    """The sessions of a file.

    Raises:
        SourceError: it is none, of another version, or damaged; nothing is taken then.
    """
    raw = read_file(path, MAX_BYTES)
    found = Found(str(path))
    ending: set[str] = set()
    subscriptions = []
    for chunk in _chunks(raw, found):
        if chunk.kind == CLIENT:
            _client(chunk, found, ending)
        elif chunk.kind == SUBSCRIPTION:
            subscriptions.append(chunk)
    for chunk in subscriptions:  # of all clients: the order of chunks means nothing
        _subscription(chunk, found, ending)
    return found


def _chunks(raw: bytes, found: Found) -> Iterator[_Chunk]:
    if len(raw) < _HEADER.size or not raw.startswith(MAGIC):
        raise found.wrong("offset 0", "no database file of Mosquitto")
    version = _HEADER.unpack_from(raw)[2]
    if version != VERSION:
        raise found.wrong(
            f"offset {_HEADER.size - 4}", f"version {version}; Mosquitto 2 writes version {VERSION}"
        )
    place = _HEADER.size
    while place < len(raw):
        if len(raw) - place < _CHUNK.size:
            raise found.wrong(f"offset {place}", "the file ends in a chunk")
        kind, length = _CHUNK.unpack_from(raw, place)
        if not CONFIGURATION <= kind <= CLIENT:
            raise found.wrong(f"offset {place}", f"chunk of unknown kind {kind}")
        start, place = place + _CHUNK.size, place + _CHUNK.size + length
        if place > len(raw):
            raise found.wrong(f"offset {start}", f"the file ends in a chunk of {length} bytes")
        if kind in (SUBSCRIPTION, CLIENT):
            yield _Chunk(kind, start, raw[start:place])


def _client(chunk: _Chunk, found: Found, ending: set[str]) -> None:
    if len(chunk.content) < _CLIENT.size:
        raise found.wrong(chunk.where, f"a client of {len(chunk.content)} bytes")
    expiry, _, id_length, _, user_length = _CLIENT.unpack_from(chunk.content)
    client_id, _ = _texts(chunk, found, _CLIENT.size, id_length, user_length)
    if expiry == 0:
        ending.add(client_id)
    else:
        found.session(chunk.where, client_id, None if expiry == NEVER else expiry)


def _subscription(chunk: _Chunk, found: Found, ending: set[str]) -> None:
    if len(chunk.content) < _SUBSCRIPTION.size:
        raise found.wrong(chunk.where, f"a subscription of {len(chunk.content)} bytes")
    _, id_length, filter_length, qos, _ = _SUBSCRIPTION.unpack_from(chunk.content)
    client_id, topic_filter = _texts(chunk, found, _SUBSCRIPTION.size, id_length, filter_length)
    if client_id not in ending:
        found.add(chunk.where, client_id, topic_filter, qos)


def _texts(chunk: _Chunk, found: Found, place: int, first: int, second: int) -> tuple[str, str]:
    """The two texts at the end of a chunk, by their lengths."""
    if place + first + second != len(chunk.content):
        raise found.wrong(
            chunk.where, f"texts of {first} and {second} bytes in {len(chunk.content) - place} bytes"
        )
    try:
        return (
            chunk.content[place : place + first].decode(),
            chunk.content[place + first : place + first + second].decode(),
        )
    except UnicodeDecodeError:
        raise found.wrong(chunk.where, "a name that is no UTF-8") from None
