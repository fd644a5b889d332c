"""Asking the broker once, after a start without state, how many sessions it has whose clients are away.

Mosquitto says so on a topic of ``$SYS``. Other brokers, and one that does not let the account read there, say
nothing; then nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.core.broker.broker_query import BrokerQuery
from ildm.core.broker.own_ids import OLDER
from ildm.mqtt import (
    Disconnect,
    PacketType,
    Publish,
    Subscribe,
    Subscription,
    Version,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.broker.injection import Injector

TOPIC = "$SYS/broker/clients/disconnected"
PATIENCE = 30.0
"""Seconds for the whole question; Mosquitto publishes these topics each ten."""
KEEP_ALIVE = 60


class OlderSessions(BrokerQuery):
    """A connection of its own, for one question."""

    __slots__ = ("_asked", "_stopped")

    def __init__(self, injector: Injector) -> None:
        version = injector.version or Version.V311
        packet_size = injector.parts.config.limits.packet_size
        super().__init__(injector, injector.ids.of(OLDER), version, packet_size)
        self._asked = False
        self._stopped = False

    def dial(self) -> None:
        parts = self.injector.parts
        self.driver.dial(parts.brokers.current, self, parts.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._stopped:
            self.abort()
            return
        self._greet(KEEP_ALIVE)
        self._set_timer(PATIENCE, self._end)

    def stop(self) -> None:
        self._stopped = True
        self._set_timer(None)
        self.abort()

    def _packet(self, frame: bytes) -> None:
        kind = frame[0] >> 4
        if kind == PacketType.CONNACK:
            if connack_code(frame) != 0:
                self.abort()
                return
            self._asked = True
            subscriptions = [Subscription(topic_filter=TOPIC, qos=0)]
            self.write(Subscribe(packet_id=1, subscriptions=subscriptions).encode(self.version))
        elif kind == PacketType.PUBLISH and self._asked:
            message = decode(frame, self.version)
            assert isinstance(message, Publish)
            self._answer(message.payload)
            self._end()

    def _answer(self, payload: bytes) -> None:
        if payload.isdigit() and len(payload) < 10 and int(payload):
            self.driver.log(
                "warning",
                "the broker has sessions whose clients are away: they get no topics of other sites before the"
                " clients are back",
                sessions=int(payload),
                remedy="ildm sessions import, or broker.adopt_sessions and a start without state",
            )

    def _end(self) -> None:
        self._set_timer(None)
        if self.is_open:
            self.write(Disconnect().encode(self.version))
        self.close()
