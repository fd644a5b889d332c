"""Finding out which MQTT version the local broker speaks.

A CONNECT of version 5 without properties: brokers of 3.1.1 answer that one with a refusal in a format
of theirs, while over properties some close without a word or keep silent. RabbitMQ closes without a
word in any case, as does whatever stands before a broker that is still starting; so it takes three
such closes to try 3.1.1, and when that is accepted one more attempt of version 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Role, Unreachable
from ildm.core.backoff import Backoff
from ildm.core.broker.own_ids import PROBE
from ildm.core.broker.refusals import own_session_refused, refused_in_every_version
from ildm.core.session import BaseSession
from ildm.mqtt import (
    CANNOT_SERVE,
    Connect,
    Disconnect,
    Framer,
    MqttError,
    PacketType,
    Version,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.broker.injection import Injector

REFUSED_VERSION = (0x01, 0x84)
SILENT_CLOSES = 3


class VersionProbe(BaseSession):
    """Connects as often as it takes, then tells the injector."""

    __slots__ = (
        "_absent",
        "_at_once",
        "_backoff",
        "_confirming",
        "_framer",
        "_outcome",
        "_silent",
        "_timer",
        "address",
        "injector",
        "stopped",
    )
    role = Role.INJECTION

    def __init__(self, injector: Injector) -> None:
        super().__init__(injector.parts.driver)
        self.injector = injector
        self.client_id = injector.ids.of(PROBE)  # that of a session proper would end it
        self.version = Version.V5
        broker = injector.parts.config.broker
        self._backoff = Backoff(self.driver.random, broker.reconnect_min, broker.reconnect_max)
        self._at_once = 0  # other addresses tried since the last pause
        self.address = injector.parts.brokers.current
        self._framer = Framer(1 << 20)
        self._timer: Any = None
        self._silent = 0
        self._confirming = False
        self._outcome: int | None = None
        self._absent = False  # nobody listened at the last attempt
        self.stopped = False

    def dial(self) -> None:
        self._timer = None
        parts = self.injector.parts
        if parts.brokers.current != self.address:  # somebody else, of whom nothing is known
            self.address = parts.brokers.current
            self.version = Version.V5
            self._silent = 0
            self._confirming = False
        self.driver.dial(self.address, self, parts.config.broker.connect_timeout)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._absent = False
        if self.stopped:
            self.abort()
            return
        self._framer = Framer(1 << 20)
        self._outcome = None
        parts = self.injector.parts
        self.client_id = self.injector.ids.of(PROBE)
        connect = Connect(
            client_id=self.client_id,
            version=self.version,
            clean_start=True,
            keep_alive=parts.config.broker.keep_alive,
            username=parts.config.broker.username,
            password=self.injector.password,
        )
        self.write(connect.encode())
        self._timer = self.driver.call_later(parts.config.broker.connect_timeout, self._no_answer)

    def _no_answer(self) -> None:
        self.injector.parts.brokers.failed(self.address)
        self.abort()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._framer.feed(data)
            if frames and self._outcome is None and frames[0][0] >> 4 == PacketType.CONNACK:
                outcome = connack_code(frames[0])
                if outcome == 0:
                    decode(frames[0], self.version)  # refusals come in forms of other versions
                    self.write(Disconnect().encode(self.version))
                self._outcome = outcome
        except MqttError as error:
            self.injector.parts.reach.broke_protocol(self, error)
        self.close()

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self.injector.parts.reach.missed(self.address, reason)
        self._absent = True
        self._again()

    def broker_is_there(self) -> None:
        """Somebody else has reached the broker: no longer wait for it."""
        if self._absent and self._timer is not None:
            self._timer.cancel()
            self.dial()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.stopped:
            return
        if self._outcome == 0:
            self._accepted()
        elif self._outcome in REFUSED_VERSION or (self._outcome is None and self._silence()):
            if self._confirming:
                self.injector.found_version(Version.V311)
                return
            # an explicit refusal of version 5 leaves no doubt about 3.1.1
            self._silent = 0 if self._outcome is not None else self._silent
            if self.version is Version.V5:
                self.version = Version.V311
                self.dial()
            else:
                self.version = Version.V5
                self.injector.parts.reach.found(refused_in_every_version(self._outcome))
                self._again()
        elif self._outcome is not None and self.injector.ids.refused(self.client_id, self._outcome):
            self.dial()
        else:
            if self._outcome is not None:
                reason = own_session_refused(self._outcome)
                self.injector.parts.reach.found(reason)
                if self._outcome in CANNOT_SERVE:
                    self.injector.parts.brokers.failed(self.address)
            self._again()

    def _silence(self) -> bool:
        """The broker has closed without a word; whether that is to be taken for a refusal."""
        self._silent += 1
        if self._silent < SILENT_CLOSES:
            self._backoff.reset()
        return self._confirming or self._silent >= SILENT_CLOSES

    def _accepted(self) -> None:
        if self.version is Version.V311 and self._silent:
            self._confirming = True
            self.version = Version.V5
            self.dial()
        else:
            self.injector.found_version(self.version)

    def _again(self) -> None:
        if self.stopped:
            return
        brokers = self.injector.parts.brokers
        pause = 0.0
        if brokers.current != self.address and self._at_once < len(brokers.addresses) - 1:
            self._at_once += 1
        else:
            self._at_once = 0
            pause = self._backoff.next()
        self._timer = self.driver.call_later(pause, self.dial)

    def stop(self) -> None:
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.abort()
