"""The log of a node: structured events on standard error, for people or for machines.

A terminal gets coloured lines, everything else JSON, one object per line. What stands under a key
that names a secret is masked. The libraries' records (:mod:`logging`) take the same way.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from functools import lru_cache
from io import StringIO
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

from ildm.text import printable

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MASK = "********"
SECRET_KEYS = ("secret", "password", "passwd", "auth_data", "authentication_data", "credential")
"""A key that contains one of these, in any case, has its value masked."""

_threshold = LEVELS["info"]


def configure_logging(level: str = "info", format: Literal["auto", "console", "json"] = "auto") -> None:
    """Set the log up for this process; may be called again, and holds for loggers made before.

    ``auto`` is ``console`` where standard error is a terminal, else ``json``, which is also the
    format without any set-up.
    """
    set_log_level(level)
    if format == "auto":
        format = "console" if sys.stderr.isatty() else "json"
    _processors[:] = _console_processors() if format == "console" else _json_processors()
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, _Forward)]
    root.addHandler(_Forward())


def log_level() -> str:
    """The level as it is."""
    return next(name for name, number in LEVELS.items() if number == _threshold)


def set_log_level(level: str) -> None:
    """Change the level while running; holds for loggers made before, too.

    Raises:
        ValueError: not one of :data:`LEVELS`.
    """
    global _threshold  # noqa: PLW0603 - one log per process
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}; allowed: {', '.join(LEVELS)}")
    _threshold = LEVELS[level]
    # libraries' chatter below warning is of use to their authors only
    logging.getLogger().setLevel(max(_threshold, LEVELS["warning"]))


def is_logged(level: str) -> bool:
    """Whether lines of a level are written; asked before one is put together."""
    return LEVELS[level] >= _threshold


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose events carry ``logger=name``: ``get_logger("ildm").info("started", port=1883)``."""
    # not structlog.get_logger: its set-up belongs to the program that has a node in it
    wrapper = structlog.make_filtering_bound_logger(0)
    logger = structlog.wrap_logger(_StderrLogger(name), processors=_processors, wrapper_class=wrapper)
    return cast("FilteringBoundLogger", logger)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor: mask values under keys which name a secret, at any depth."""
    return {key: _masked(key, value) for key, value in event.items()}


@lru_cache(maxsize=1024)
def _names_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRET_KEYS)


def _masked(key: object, value: Any) -> Any:
    if isinstance(key, str) and _names_secret(key):
        # that there is none is no secret, and says much when one looks for a fault
        return value if value is None or isinstance(value, bool) else MASK
    if isinstance(value, Mapping):
        return {inner: _masked(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(None, item) for item in value]
    return value


def _below_threshold(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    level = {"exception": "error", "critical": "error", "warn": "warning"}.get(method, method)
    if LEVELS.get(level, LEVELS["error"]) < _threshold:
        raise structlog.DropEvent
    event["level"] = level
    event["logger"] = logger.name
    return event


def _in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What every line has comes first, so that lines can be compared by eye."""
    return {**{key: event.pop(key) for key in ("timestamp", "level", "logger", "event")}, **event}


def _escape_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {
        key: printable(value, keep="\n\t" if key == "exception" else "") if isinstance(value, str) else value
        for key, value in event.items()
    }


def _traceback(out: TextIO, error: ExcInfo) -> None:
    """A plain one, because the rich one would show local variables, and with them secrets."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(printable(text.getvalue(), keep="\n\t"))


class _StderrLogger:
    """Writes lines to whatever standard error is now.

    A reader of the log that has gone away must not stop the node: lines that cannot be written are
    counted, and the first one that can be says how many were lost.
    """

    lost = 0

    def __init__(self, name: str = "ildm") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        cls = type(self)
        try:
            if cls.lost:
                sys.stderr.write(f"({cls.lost} lines of the log were lost)\n")
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            cls.lost += 1
        else:
            cls.lost = 0

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _Forward(logging.Handler):
    """Hands the records of other libraries to our log."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
        fields: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        getattr(get_logger(record.name), level)(record.getMessage(), **fields)


def _console_processors() -> list[Processor]:
    return [
        _below_threshold,
        redact,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
        _escape_values,
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=_traceback, pad_event_to=28
        ),
    ]


_encode = json.JSONEncoder(ensure_ascii=True, default=str).encode


def _encoded(event: EventDict, **_: object) -> str:
    return _encode(event)


def _json_processors() -> list[Processor]:
    return [
        _below_threshold,
        redact,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _in_order,
        structlog.processors.JSONRenderer(serializer=_encoded),
    ]


_processors: list[Processor] = _json_processors()
"""Shared by all loggers and changed in place."""
