"""What is no HTTP, at the sockets that speak it: at ``debug`` in the log, where aiohttp writes an error.

Whoever reaches such a port can send it anything, as often as they like, and would fill the log.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

from ildm.log import get_logger


class _NotHttp(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        get_logger(record.name).debug("no HTTP", problem=error.message)
        return False


LOGGER = logging.getLogger("ildm.http")
"""For aiohttp's servers, as ``logger`` of an ``AppRunner``."""
LOGGER.addFilter(_NotHttp())
