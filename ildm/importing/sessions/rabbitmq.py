"""Sessions of RabbitMQ, by its management API: queues ``mqtt-subscription-CLIENTqosN`` and their bindings.

RabbitMQ replaces ``/`` and ``.`` of a filter by ``.``, and ``+`` by ``*``. So a ``.`` in a filter is read as
``/``, which is how RabbitMQ itself hands on such topics.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from ildm.importing.sessions.found import Found, SourceError
from ildm.text import printable, reason

MAX_BYTES = 256 << 20
"""Of an answer."""
TIMEOUT = 30.0
"""Seconds without a byte."""
QUEUE = re.compile(r"mqtt-subscription-(?P<client>.+)qos(?P<qos>[01])", re.DOTALL)


class _SameAddress(urllib.request.HTTPRedirectHandler):
    """The password goes to nobody else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_rabbitmq(url: str, vhost: str, user: str, password: str) -> Found:
    """The sessions at a management API, such as ``http://127.0.0.1:15672``.

    Raises:
        SourceError: it does not answer, or not as RabbitMQ does; nothing is taken then.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.username or parts.query:
        raise SourceError(f"{parts.hostname or url[:80]}: expected http://HOST:PORT, or https")
    found = Found(url)
    name = quote(vhost, safe="")
    queues = _answer(found, f"{url.rstrip('/')}/api/queues/{name}", user, password)
    sessions = _sessions(queues, found)
    for place, row in enumerate(_answer(found, f"{url.rstrip('/')}/api/bindings/{name}", user, password)):
        where = f"binding {place}"
        match = QUEUE.fullmatch(_field(row, "destination", str, found, where))
        if match is None or match["client"] not in sessions or not _field(row, "source", str, found, where):
            continue  # each queue is bound to the exchange without a name, too
        key = _field(row, "routing_key", str, found, where)
        found.add(where, match["client"], filter_of(key), int(match["qos"]))
    return found


def filter_of(key: str) -> str:
    """The filter of a routing key."""
    return "/".join("+" if level == "*" else level for level in key.split("."))


def _sessions(queues: list[Any], found: Found) -> set[str]:
    """Clients with a queue that outlives their connection."""
    clients = set()
    for place, row in enumerate(queues):
        where = f"queue {place}"
        match = QUEUE.fullmatch(_field(row, "name", str, found, where))
        if match is None or row.get("auto_delete") or row.get("exclusive"):
            continue
        expires = _field(row, "arguments", dict, found, where).get("x-expires")
        if expires is not None and (not isinstance(expires, int) or expires <= 0):
            raise found.wrong(where, "x-expires is no time")
        found.session(where, match["client"], None if expires is None else -(-expires // 1000))
        clients.add(match["client"])
    return clients


def _field(row: Any, name: str, kind: type, found: Found, where: str) -> Any:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, kind):
        raise found.wrong(where, f"no {name}: not RabbitMQ's management API")
    return value


def _answer(found: Found, url: str, user: str, password: str) -> list[Any]:
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {credentials}"})  # noqa: S310
    try:
        with urllib.request.build_opener(_SameAddress).open(request, timeout=TIMEOUT) as response:
            raw = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        hint = {401: "wrong user or password", 404: "no such virtual host"}.get(error.code, error.reason)
        raise found.wrong(urlsplit(url).path, f"status {error.code}: {printable(str(hint))}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        text = reason(cause) if isinstance(cause, Exception) else str(cause)
        raise found.wrong(urlsplit(url).path, f"no answer: {text}") from None
    if len(raw) > MAX_BYTES:
        raise found.wrong(urlsplit(url).path, f"an answer longer than {MAX_BYTES >> 20} MiB")
    try:
        rows = json.loads(raw)
    except ValueError as error:
        raise found.wrong(urlsplit(url).path, f"no JSON: {error}") from None
    if not isinstance(rows, list):
        raise found.wrong(urlsplit(url).path, "no list: not RabbitMQ's management API")
    return rows
