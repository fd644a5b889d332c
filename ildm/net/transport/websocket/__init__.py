"""MQTT over WebSocket (MQTT 5 section 6, RFC 6455): the side of the server."""

from ildm.net.transport.websocket.connection import (
    FIXED_HEADER,
    WebSocket,
    WebSocketOptions,
    WebSocketRules,
)

__all__ = ["FIXED_HEADER", "WebSocket", "WebSocketOptions", "WebSocketRules"]
