"""Traces that pages have asked for: begun by one request, looked at by others."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.admin.view import AdminError

if TYPE_CHECKING:
    from ildm.admin.view import Row

KEPT = 32
"""Traces that are remembered, done or not."""
AT_ONCE = 4
TIMEOUT = 8.0
"""Seconds until one is given up."""
Ask = Callable[[str, Callable[["Row | AdminError"], None]], None]


class TooManyTracesError(Exception):
    """There are :data:`AT_ONCE` under way."""


class Traces:
    """``ask`` is :meth:`ildm.admin.view.NodeView.follow`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, topic: str) -> Row:
        """``id, topic, state`` (running, done, failed), ``result, error``.

        Raises:
            TooManyTracesError: try again later.
            AdminError: such a topic cannot be traced here.
        """
        if len(self._timers) >= AT_ONCE:
            raise TooManyTracesError
        number = secrets.token_hex(8)
        row: Row = {"id": number, "topic": topic, "state": "running", "result": None, "error": None}

        def done(answer: Row | AdminError) -> None:
            if row["state"] != "running":
                return  # it was given up
            if isinstance(answer, AdminError):
                row.update(state="failed", error=str(answer))
            else:
                row.update(state="done", result=answer)
            self._end(number)

        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(
            TIMEOUT, done, AdminError(f"no answer on {topic!r} within {TIMEOUT:g} s")
        )
        try:
            self._ask(topic, done)
        except AdminError:
            self._end(number)
            raise
        while len(self._rows) >= KEPT:
            self._rows.popitem(last=False)
        self._rows[number] = row
        return row

    def find(self, number: str) -> Row | None:
        return self._rows.get(number)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _end(self, number: str) -> None:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
