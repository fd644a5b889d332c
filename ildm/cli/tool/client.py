"""Publishing and subscribing with paho, one thread, no reconnecting behind the user's back."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ildm.address import Address
from ildm.cli.tool.place import Place
from ildm.mqtt import IldmError
from ildm.text import json_text, printable

VERSIONS = {"3.1.1": mqtt.MQTTv311, "5": mqtt.MQTTv5}
KEEP_SESSION = 0xFFFFFFFF
"""Session expiry interval for "never" (MQTT 5, 3.1.2.11.2)."""
IN_FLIGHT = 1000


class ToolError(IldmError):
    """A broker that is not there, refuses, or goes away."""


class LostError(ToolError):
    """It is not there, or has gone: it may come back."""


UNAVAILABLE = ("Server unavailable", "Server busy", "Server shutting down")
"""Reasons of a refused connection that pass, in paho's words."""
TAKEN_OVER = "Session taken over"
"""Another client has this one's identifier: both would go on taking it from each other."""


@dataclass(frozen=True)
class Target:
    """Where and as whom to connect."""

    place: Place
    client_id: str = ""
    version: str = "3.1.1"
    clean: bool = True
    username: str | None = None
    password: str | None = None
    timeout: float = 10.0
    """Seconds to wait for each answer of the broker."""

    def __str__(self) -> str:
        return str(self.place)


class Connection:
    """A connection that was accepted. All methods raise :class:`ToolError` when it is lost."""

    def __init__(self, target: Target, on_message: Callable[[mqtt.MQTTMessage], bool] | None = None) -> None:
        """``on_message`` says whether to acknowledge: a message it declines is delivered again later."""
        self.target = target
        self._on_message = on_message
        self._failure: str | None = None
        self._final = False
        self._accepted = False
        self._acknowledged: dict[int, str | None] = {}
        self._client = client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=target.client_id,
            clean_session=target.clean if target.version != "5" else None,
            protocol=VERSIONS[target.version],
            transport=_transport(target.place.address),
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.max_inflight_messages_set(IN_FLIGHT)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published
        client.on_subscribe = self._subscribed
        client.on_message = self._arrived
        if target.place.tls is not None:
            client.tls_set_context(target.place.tls)
        if target.place.address.has_websocket:
            client.ws_set_options(path=target.place.path)
        if target.username is not None:
            client.username_pw_set(target.username, target.password)
        self._connect()

    def subscribe(self, filters: Iterable[str], qos: int) -> None:
        """Subscribe and wait for SUBACK."""
        wanted = list(filters)
        result, number = self._client.subscribe([(topic_filter, qos) for topic_filter in wanted])
        self._check(result)
        assert number is not None  # set on success
        self._until(lambda: number in self._acknowledged, "SUBACK")
        problem = self._acknowledged.pop(number)
        if problem is not None:
            # MQTT 3.1.1, 3.9.3: 0x80 is all that there is; paho has a name of MQTT 5 for it
            told = problem if self.target.version == "5" else "MQTT 3.1.1 cannot say why, -V 5 may"
            raise ToolError(f"{self.target}: subscription refused: {told}")

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> int:
        """Send, without waiting for the acknowledgement unless too many are missing; the packet's number."""
        self._until(lambda: len(self._acknowledged) < IN_FLIGHT, "PUBACK")
        try:
            info = self._client.publish(topic, payload, qos, retain)
        except ValueError as error:  # such as a payload that no packet can hold
            raise ToolError(str(error).lower().rstrip(".")) from error
        self._check(info.rc)
        if qos:
            self._acknowledged.setdefault(info.mid, "")
        self._flush()
        return info.mid

    def flush(self) -> None:
        """Wait until all that was published has been sent and, with QoS 1 and 2, acknowledged."""
        self._flush()
        self._until(lambda: not self._acknowledged, "acknowledgements")

    def step(self, seconds: float) -> None:
        """Work for at most so long, or until something has come."""
        self._check(self._client.loop(seconds))
        if self._failure is not None:
            raise self._error(self._failure)

    def close(self) -> None:
        """Say good-bye (DISCONNECT), so that no will is published."""
        self._client.on_disconnect = None
        self._client.disconnect()
        self._client.loop(0.01)

    def _connect(self) -> None:
        target = self.target
        properties = None
        extra: dict[str, Any] = {}
        if target.version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if not target.clean:
                properties.SessionExpiryInterval = KEEP_SESSION
            extra = {"clean_start": target.clean, "properties": properties}
        self._client.connect_timeout = target.timeout
        address = target.place.address
        try:
            # A unix socket has no port, but paho wants one.
            self._client.connect(address.host, address.port or 1, **extra)
        except (OSError, ValueError) as error:
            text = "host not found" if isinstance(error, socket.gaierror) else _reason(error)
            if isinstance(error, UnicodeError):
                text = "that is no host name"
            raise LostError(f"cannot connect to {target}: {text}") from error
        self._until(lambda: self._accepted, "CONNACK")

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + self.target.timeout
        while not reached():
            before = len(self._acknowledged)
            self.step(0.1)
            if len(self._acknowledged) < before:
                give_up = time.monotonic() + self.target.timeout
            if time.monotonic() > give_up:
                raise LostError(f"{self.target}: no {what} within {self.target.timeout:g} s")

    def _flush(self) -> None:
        while self._client.want_write():
            self.step(0.01)

    def _check(self, result: MQTTErrorCode) -> None:
        if result is not MQTTErrorCode.MQTT_ERR_SUCCESS:
            text = self._failure or mqtt.error_string(result).lower().rstrip(".")
            raise self._error(text)

    def _error(self, text: str) -> ToolError:
        return (ToolError if self._final else LostError)(f"{self.target}: {text}")

    def _connected(
        self, _client: object, _data: object, _flags: object, reason: ReasonCode, _properties: object
    ) -> None:
        self._accepted = not reason.is_failure
        if reason.is_failure:
            self._failure = f"connection refused: {reason}"
            self._final = str(reason) not in UNAVAILABLE

    def _disconnected(
        self,
        _client: object,
        _data: object,
        flags: mqtt.DisconnectFlags,
        reason: ReasonCode,
        _properties: object,
    ) -> None:
        if self._failure is None:
            # without a DISCONNECT the reason is one that paho has made up
            told = f": {reason}" if flags.is_disconnect_packet_from_server else ""
            self._failure = f"connection lost{told}"
            self._final = str(reason) == TAKEN_OVER

    def _published(
        self, _client: object, _data: object, number: int, reason: ReasonCode, _properties: object
    ) -> None:
        if self._acknowledged.pop(number, None) is not None and reason.is_failure:
            self._failure = f"message refused: {reason}"
            self._final = True

    def _subscribed(
        self, _client: object, _data: object, number: int, reasons: list[ReasonCode], properties: Properties
    ) -> None:
        refused = ", ".join(str(reason) for reason in reasons if reason.is_failure)
        text = getattr(properties, "ReasonString", "")  # MQTT 5, 3.9.2.1.2
        self._acknowledged[number] = (
            (f"{refused}: {printable(text)}" if text else refused) if refused else None
        )

    def _arrived(self, client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if self._on_message is not None and self._on_message(message):
            client.ack(message.mid, message.qos)


def _transport(address: Address) -> Literal["tcp", "websockets", "unix"]:
    if address.scheme == "unix":
        return "unix"
    return "websockets" if address.has_websocket else "tcp"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def write_message(message: mqtt.MQTTMessage, form: str) -> None:
    """Print a message as ``text`` (topic and payload), ``payload`` or ``json``.

    A terminal gets control characters as escapes, a pipe the bytes as they came.
    """
    out = sys.stdout
    if form == "json":
        line = json_text(_described(message)).encode()
    elif out.isatty():
        text = printable(message.payload.decode("utf-8", "backslashreplace"), keep="\t\n")
        line = (f"{printable(message.topic)} {text}" if form == "text" else text).encode()
    else:
        line = bytes(message.payload)
        if form == "text":
            line = message.topic.encode() + b" " + line
    out.buffer.write(line + b"\n")
    out.flush()


def _described(message: mqtt.MQTTMessage) -> dict[str, Any]:
    described: dict[str, Any] = {
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
    }
    try:
        described["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        described["payload_hex"] = message.payload.hex()
    properties: Any = message.properties
    if properties is not None and not properties.isEmpty():
        described["properties"] = properties.json()
    return described
