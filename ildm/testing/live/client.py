"""A blocking MQTT client for tests: paho, with its callbacks turned into queues."""

from __future__ import annotations

import queue
import socket
import threading
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

_PATIENCE = 60.0
"""Seconds until a wait is given up: a bound for failures, never reached by a test that passes."""


UNKNOWN_FILTER = "a/filter/nobody/has"
"""What to unsubscribe from before the first SUBSCRIBE of a connection with Moquette.

Moquette 0.17 sends CONNACK and only then, in the session's thread, notes that the client is connected; on a
SUBSCRIBE that comes in between it hangs up ("SUBSCRIBE received on already closed connection" in its log: 11
of 15,000 on a busy CPU). It takes UNSUBSCRIBE all the same, and sends UNSUBACK from that thread: then it has
noted it (0 of 15,000).
"""


class RefusedError(Exception):
    """The broker refused the connection; `code` is paho's (MQTT 5) reason code, None without a CONNACK."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"connection refused: {code}")
        self.code = code


class PahoClient:
    """Connected on entry of the ``with`` block, disconnected on exit.

    Without `client_id` it gets one that nobody else has. `level` is the protocol level of CONNECT (3, 4, 5).
    `clean` is clean session (in MQTT 5 clean start, and a session that is not clean lasts an hour). `will` is
    topic, payload, QoS and retain. `login` is user name and password. `user_properties` go with CONNECT.

    Every wait has an end: what does not come within 20 s raises TimeoutError, queue.Empty or ConnectionError.
    """

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str = "",
        *,
        level: int = 4,
        clean: bool = True,
        will: tuple[str, bytes, int, bool] | None = None,
        login: tuple[str, str] | None = None,
        user_properties: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._address = address
        self._level = level
        self._clean = clean
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            # Moquette refuses an empty client id.
            client_id or uuid.uuid4().hex[:20],
            clean_session=None if level == 5 else clean,
            protocol=MQTTProtocolVersion(level),
            reconnect_on_failure=False,
        )
        if will is not None:
            topic, payload, qos, retain = will
            self._paho.will_set(topic, payload, qos, retain)
        if login is not None:
            self._paho.username_pw_set(*login)
        self._user_properties = user_properties
        self._reasons: dict[int, int] = {}
        self.session_present = False
        self.server_keep_alive: int | None = None
        self._answer: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._granted: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._settled = False
        self._messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self._down = threading.Event()
        self._paho.on_connect = self._on_connect
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_publish = self._on_publish
        self._paho.on_subscribe = self._on_subscribe
        self._paho.on_unsubscribe = self._on_unsubscribe
        self._paho.on_message = self._on_message

    def __enter__(self) -> Self:
        properties = self._properties(PacketTypes.CONNECT, self._user_properties)
        if self._level == 5:
            properties = properties or Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if not self._clean:
                properties.SessionExpiryInterval = 3600
        start = self._clean if self._level == 5 else paho.MQTT_CLEAN_START_FIRST_ONLY
        self._paho.connect(*self._address, clean_start=start, properties=properties)
        self._paho.loop_start()
        code = self._answer.get(timeout=_PATIENCE)
        if code != 0:
            self._paho.loop_stop()
            raise RefusedError(code)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(
        self, *filters: tuple[str, int], user_properties: Sequence[tuple[str, str]] = ()
    ) -> list[int]:
        """Pairs of filter and QoS; the return codes of the SUBACK, in the same order."""
        if not self._settled:
            self._settled = True
            self.unsubscribe(UNKNOWN_FILTER)
        self._paho.subscribe(
            list(filters), properties=self._properties(PacketTypes.SUBSCRIBE, user_properties)
        )
        return self._acknowledgement()

    def unsubscribe(self, *filters: str) -> None:
        """Returns when UNSUBACK has come."""
        self._paho.unsubscribe(list(filters))
        self._acknowledgement()

    def _acknowledgement(self) -> list[int]:
        codes = self._granted.get(timeout=_PATIENCE)
        if codes is None:
            raise ConnectionError("the connection has ended before SUBACK or UNSUBACK")
        return codes

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Returns when the message is sent (QoS 0) or the broker has taken it over (QoS 1, 2).

        The answer is the reason code of PUBACK (QoS 1, MQTT 5), else 0.
        """
        sent = self._paho.publish(topic, payload, qos, retain, properties)
        sent.wait_for_publish(_PATIENCE)
        if not sent.is_published():
            raise TimeoutError(f"no acknowledgement of {topic!r}")
        return self._reasons.pop(sent.mid, 0)

    def receive(self, timeout: float = _PATIENCE) -> paho.MQTTMessage:
        """The next message; raises queue.Empty when none comes."""
        return self._messages.get(timeout=timeout)

    def receive_until(self, payload: bytes) -> list[paho.MQTTMessage]:
        """All messages before the first with that payload: how a test sees what did *not* come."""
        messages = []
        while (message := self.receive()).payload != payload:
            messages.append(message)
        return messages

    def wait_down(self) -> None:
        """Return when the connection is gone; raises TimeoutError when it stays."""
        if not self._down.wait(_PATIENCE):
            raise TimeoutError("the connection stays up")

    def drop(self) -> None:
        """End the TCP connection without DISCONNECT, so that the will is published (MQTT-3.1.2-8)."""
        connection = self._paho.socket()
        assert isinstance(connection, socket.socket)
        connection.shutdown(socket.SHUT_RDWR)
        self.wait_down()
        self._paho.loop_stop()

    def close(self) -> None:
        """DISCONNECT, and end the thread."""
        self._paho.disconnect()
        self._paho.loop_stop()

    def _on_connect(self, _client: Any, _data: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        self.session_present = flags.session_present
        self.server_keep_alive = getattr(properties, "ServerKeepAlive", None)
        self._answer.put(code.value)

    def _on_disconnect(self, *_args: Any) -> None:
        self._answer.put(None)
        self._granted.put(None)
        self._down.set()

    def _properties(self, kind: int, pairs: Sequence[tuple[str, str]]) -> Properties | None:
        if not pairs:
            return None
        if self._level != 5:
            raise ValueError("user properties are of MQTT 5")
        properties = Properties(kind)  # type: ignore[no-untyped-call]
        properties.UserProperty = list(pairs)
        return properties

    def _on_publish(self, _client: Any, _data: Any, mid: int, code: ReasonCode, _props: Any) -> None:
        self._reasons[mid] = code.value

    def _on_subscribe(
        self, _client: Any, _data: Any, _mid: int, codes: Sequence[ReasonCode], _props: Any
    ) -> None:
        self._granted.put([code.value for code in codes])

    def _on_unsubscribe(self, *_args: Any) -> None:
        self._granted.put([])

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self._messages.put(message)
