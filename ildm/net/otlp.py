"""Traces of messages for a collector of OpenTelemetry: OTLP 1 over HTTP, as JSON.

A message is a trace, a node that it passes a span, the child of that of the node it came from. What a node
has sent, and what of that was acknowledged, are events of its span. The node that has been asked for the
trace tells of all others, on its own clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import ssl
from asyncio import sleep as pause
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from ildm.config import ConfigError
from ildm.log import get_logger
from ildm.regular import open_regular
from ildm.text import reason

if TYPE_CHECKING:
    from pathlib import Path

    from ildm.config import TraceConfig
    from ildm.core.counters import Counters

Row = dict[str, Any]

BATCH = 500
"""Spans of one request."""
ATTEMPTS = 5
"""Of each; a pause of a second is before the second one, and doubles."""
AGAIN = frozenset({429, 502, 503, 504})
"""Answers after which OTLP has a client try again."""
HEADERS = 64 << 10
"""Bytes of the file of headers."""
CONSUMER, PRODUCER = 5, 4
"""Kinds of spans: it came from elsewhere, or from a client here."""


def spans_of(message: Row) -> list[tuple[str, Row]]:
    """The spans of one message of :func:`ildm.net.watches.messages_of`, each with its node."""
    trace = secrets.token_hex(16)
    steps: dict[str, list[Row]] = {}
    for step in message["steps"]:
        steps.setdefault(step["node"], []).append(step)
    ids = {node: secrets.token_hex(8) for node in steps}
    found = []
    for node, own in steps.items():
        source = next((step["peer"] for step in own if step["what"] == "received" and step["peer"]), None)
        first = node == message["node"]
        parent = None if first else ids.get(source or message["node"])
        span: Row = {
            "traceId": trace,
            "spanId": ids[node],
            "name": f"{'publish' if first else 'deliver'} {own[0]['topic']}",
            "kind": PRODUCER if first else CONSUMER,
            "startTimeUnixNano": _nanoseconds(message, own[0]),
            "endTimeUnixNano": _nanoseconds(message, own[-1]),
            "attributes": [
                _attribute("messaging.system", "mqtt"),
                _attribute("messaging.destination.name", own[0]["topic"]),
                _attribute("messaging.message.body.size", message["size"]),
                _attribute("mqtt.qos", message["qos"]),
            ],
            "events": [
                {
                    "timeUnixNano": _nanoseconds(message, step),
                    "name": step["what"],
                    "attributes": [_attribute("peer", step["peer"] or _side(step["what"]))],
                }
                for step in own
            ],
        }
        if parent is not None:
            span["parentSpanId"] = parent
        found.append((node, span))
    return found


def _side(what: str) -> str:
    return "client" if what == "received" else "broker"


def _nanoseconds(message: Row, step: Row) -> str:
    """64-bit numbers are text in the JSON of protobuf."""
    return str(int((message["at"] + step["seconds"]) * 1_000_000) * 1000)


def _attribute(key: str, value: str | int) -> Row:
    kind = "stringValue" if isinstance(value, str) else "intValue"
    return {"key": key, "value": {kind: str(value)}}


def request_of(spans: list[tuple[str, Row]]) -> Row:
    """An ``ExportTraceServiceRequest``."""
    nodes: dict[str, list[Row]] = {}
    for node, span in spans:
        nodes.setdefault(node, []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [
                        _attribute("service.name", "ildm"),
                        _attribute("service.instance.id", node),
                    ]
                },
                "scopeSpans": [{"scope": {"name": "ildm"}, "spans": own}],
            }
            for node, own in nodes.items()
        ]
    }


def read_headers(path: Path | None) -> dict[str, str]:
    """Raises: ConfigError: the file cannot be read, or holds something else; its text is not shown."""
    if path is None:
        return {}
    try:
        with os.fdopen(open_regular(path), encoding="ascii") as file:
            text = file.read(HEADERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"trace.headers_file: {path} cannot be read: {reason(error)}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if len(text) > HEADERS or not colon or not name.strip() or not value.strip().isprintable():
            raise ConfigError(f"trace.headers_file: {path}, line {number}: expected NAME: VALUE")
        found[name.strip()] = value.strip()
    return found


def trusted(ca: Path | None) -> ssl.SSLContext | bool:
    """Who may be at the other end of https. Raises: ConfigError: the file cannot be used."""
    if ca is None:
        return True  # there is no https then
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"trace.ca: {ca} cannot be used: {reason(error)}") from error
    return context


class Collector(NamedTuple):
    """Who gets the spans."""

    url: str
    headers: dict[str, str]
    tls: ssl.SSLContext | bool
    queue: int
    """Spans that wait for it."""
    timeout: float
    """Seconds."""

    @classmethod
    def of(cls, config: TraceConfig) -> Collector | None:
        """None: nobody. Blocks.

        Raises:
            ConfigError: a file that the configuration names cannot be used.
        """
        if config.otlp is None:
            return None
        headers = read_headers(config.headers_file)
        return cls(config.otlp, headers, trusted(config.ca), config.queue, config.timeout)


class Exporter:
    """Sends spans in its own time; :meth:`stop` gives up what waits."""

    def __init__(self, collector: Collector, counters: Counters) -> None:
        self.collector = collector
        """Another one gets what waits, too."""
        self._counters = counters
        self._waiting: deque[tuple[str, Row]] = deque()
        self._under_way = 0  # spans of the request that is being made
        self._task: asyncio.Task[None] | None = None

    def export(self, messages: list[Row]) -> None:
        """Take the messages of a trace."""
        spans = [span for message in messages for span in spans_of(message)]
        room = max(0, self.collector.queue - len(self._waiting))
        self._waiting.extend(spans[:room])
        if len(spans) > room:
            self._counters["trace_spans_dropped"] += len(spans) - room
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name="otlp")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._counters["trace_spans_dropped"] += self._under_way + len(self._waiting)
        self._under_way = 0
        self._waiting.clear()

    async def _send_all(self) -> None:
        async with aiohttp.ClientSession() as http:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._under_way = len(batch)
                problem = await self._send(http, json.dumps(request_of(batch)).encode())
                self._under_way = 0
                if problem is None:
                    self._counters["trace_spans_exported"] += len(batch)
                else:
                    self._counters["trace_spans_refused"] += len(batch)
                    get_logger("ildm.otlp").warning("traces not exported", spans=len(batch), reason=problem)
        self._task = None

    async def _send(self, http: aiohttp.ClientSession, body: bytes) -> str | None:
        """Answers why it was not taken, in the end."""
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await pause(2.0 ** (attempt - 1))
            to = self.collector
            try:
                async with http.post(
                    to.url,
                    data=body,
                    headers={**to.headers, "Content-Type": "application/json"},
                    ssl=to.tls,
                    timeout=aiohttp.ClientTimeout(total=to.timeout),
                    allow_redirects=False,  # whom the headers are for stands in the configuration
                ) as response:
                    if response.status < 300:
                        return None
                    problem = f"status {response.status}"
                    if response.status not in AGAIN:
                        return problem
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                problem = type(error).__name__ if not str(error) else reason(error)
        return problem
