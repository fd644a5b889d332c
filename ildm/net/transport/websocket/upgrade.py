"""How a connection becomes a WebSocket: the HTTP request and its answer (RFC 6455, section 4.2)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection

HEAD_LIMIT = 8192
"""Bytes of a request, from somebody who has not said anything yet."""
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""MQTT-6.0.0-4; clients of MQTT 3.1 know the latter alone."""
ONCE = ("host", "sec-websocket-key", "sec-websocket-version", "origin")
REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class UpgradeError(Exception):
    """The request is refused with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def response(self) -> bytes:
        body = f"{self}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status} {REASONS[self.status]}",
            "Connection: close",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
        ]
        if self.status == 426:
            lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        return "\r\n".join([*lines, "", ""]).encode() + body


def answer(head: bytes, path: str | None, origins: Collection[str] | None) -> bytes:
    """The response to a request that may become a WebSocket.

    Args:
        head: all up to the empty line.
        path: what it is to ask for; None: anything.
        origins: from which pages of the web it may come; None: from any.

    Raises:
        UpgradeError: it may not.
    """
    first, *rest = head.split(b"\r\n")
    asked = first.split(b" ")
    if (
        len(asked) != 3
        or asked[0] != b"GET"
        or not asked[2].startswith(b"HTTP/1.")
        or asked[2] == b"HTTP/1.0"
    ):
        raise UpgradeError(400, "expected GET and HTTP/1.1")
    headers = _headers(rest)
    if path is not None and asked[1].partition(b"?")[0] != path.encode():
        raise UpgradeError(404, "there is nothing at this path")
    if "host" not in headers:
        raise UpgradeError(400, "expected Host")
    if "websocket" not in _list(headers, "upgrade") or "upgrade" not in _list(headers, "connection"):
        raise UpgradeError(426, "this is for WebSocket alone")
    if headers.get("sec-websocket-version") != "13":
        raise UpgradeError(426, "expected version 13 of WebSocket")
    if origins is not None and "origin" in headers and headers["origin"].lower() not in origins:
        raise UpgradeError(403, "pages of this origin may not connect")
    key = headers.get("sec-websocket-key", "")
    try:
        whole = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        whole = False
    if not whole:
        raise UpgradeError(400, "expected 16 bytes as Sec-WebSocket-Key")
    offered = _list(headers, "sec-websocket-protocol")
    chosen = next((name for name in SUBPROTOCOLS if name in offered), None)
    if chosen is None:
        raise UpgradeError(400, "expected mqtt among Sec-WebSocket-Protocol (MQTT-6.0.0-3)")
    proof = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest())  # noqa: S324 - RFC 6455 has it so
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + proof,
        b"Sec-WebSocket-Protocol: " + chosen.encode(),
    ]
    return b"\r\n".join([*lines, b"", b""])


def _headers(lines: list[bytes]) -> dict[str, str]:
    """Names in small letters; what stands in several lines is joined (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\0" in line:
            raise UpgradeError(400, "that is no header")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        if key in headers:
            if key in ONCE:
                raise UpgradeError(400, f"{key} stands there twice")
            text = f"{headers[key]}, {text}"
        headers[key] = text
    return headers


def _list(headers: dict[str, str], name: str) -> list[str]:
    return [item.strip().lower() for item in headers.get(name, "").split(",")]
