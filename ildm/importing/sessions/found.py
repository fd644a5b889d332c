"""Sessions as they are found, checked and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ildm.core.local.session_import import MAX_FILTERS, MAX_SESSIONS
from ildm.mqtt import IldmError, MqttError, validate_topic_filter
from ildm.text import reason

MAX_NAME = 65535
"""Bytes of a client identifier (MQTT-1.5.4-1)."""


class SourceError(IldmError):
    """Sessions cannot be read; the text names the source and the place in it. None is used then."""


class Found:
    """Sessions by client identifier.

    Args:
        source: names it in errors.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._sessions: dict[str, tuple[dict[str, int], int | None]] = {}
        self._filters = 0

    def session(self, where: str, client_id: str, expiry: int | None = None) -> None:
        """A session, which ends ``expiry`` seconds after its client has gone, or never.

        Raises:
            SourceError: it cannot be one, or there are too many.
        """
        if not client_id or "\0" in client_id or len(client_id.encode(errors="replace")) > MAX_NAME:
            raise self.wrong(where, f"{client_id[:80]!r} is no client identifier")
        if client_id not in self._sessions:
            if len(self._sessions) >= MAX_SESSIONS:
                raise self.wrong(where, f"more than {MAX_SESSIONS:,} sessions; import them in parts, as CSV")
            self._sessions[client_id] = ({}, expiry)

    def add(self, where: str, client_id: str, topic_filter: str, qos: int) -> None:
        """A filter of a session; of two QoS of one filter the higher counts.

        Raises:
            SourceError: as :meth:`session`.
        """
        self.session(where, client_id)
        try:
            validate_topic_filter(topic_filter)
        except MqttError as error:
            raise self.wrong(where, f"filter {topic_filter[:80]!r}: {error}") from None
        if not 0 <= qos <= 2:
            raise self.wrong(where, f"QoS {qos}: expected 0, 1 or 2")
        filters, _ = self._sessions[client_id]
        if topic_filter not in filters:
            self._filters += 1
            if self._filters > MAX_FILTERS:
                raise self.wrong(where, f"more than {MAX_FILTERS:,} filters; import them in parts, as CSV")
        filters[topic_filter] = max(qos, filters.get(topic_filter, 0))

    def rows(self) -> list[dict[str, Any]]:
        """As the admin API takes them."""
        return [
            {"client_id": client_id, "filters": filters, "expiry": expiry}
            for client_id, (filters, expiry) in self._sessions.items()
        ]

    def wrong(self, where: str, text: str) -> SourceError:
        """What is wrong at a place, which is named."""
        return SourceError(f"{self.source}: {where}: {text}")


def read_file(path: Path, limit: int) -> bytes:
    """A whole file.

    Raises:
        SourceError: it cannot be read, or is longer than ``limit``.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read: {reason(error)}") from error
    if len(raw) > limit:
        raise SourceError(f"{path}: longer than {limit >> 20} MiB")
    return raw
