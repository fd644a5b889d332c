"""A short connection of the node's own to its broker, on which it finds something out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.api import Role, SessionStatus
from ildm.core.session import BaseSession
from ildm.mqtt import Connect, Framer, MqttError, Version

if TYPE_CHECKING:
    from ildm.core.broker.injection import Injector


class BrokerQuery(BaseSession):
    """It speaks as a client whose session ends with the connection, and has one timer.

    Args:
        packet_size: bytes of the largest packet it takes.
    """

    __slots__ = ("_framer", "_timer", "injector")
    role = Role.INJECTION

    def __init__(self, injector: Injector, client_id: str, version: Version, packet_size: int) -> None:
        super().__init__(injector.parts.driver)
        self.injector = injector
        self.client_id = client_id
        self.version = version
        self._framer = Framer(packet_size)
        self._timer: Any = None

    @abstractmethod
    def _packet(self, frame: bytes) -> None:
        """A packet has come.

        Raises:
            MqttError: it is none; the connection is then broken.
        """

    def _greet(self, keep_alive: int) -> None:
        broker = self.injector.parts.config.broker
        connect = Connect(
            client_id=self.client_id,
            version=self.version,
            clean_start=True,
            keep_alive=keep_alive,
            username=broker.username,
            password=self.injector.password,
        )
        self.write(connect.encode(self.version))

    def _set_timer(
        self, delay: float | None, callback: Callable[..., None] = lambda: None, *args: Any
    ) -> None:
        """In place of the one there was; None: no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay is None else self.driver.call_later(delay, callback, *args)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._set_timer(None)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                if self.status is SessionStatus.ESTABLISHED:
                    self._packet(frame)
        except MqttError as error:
            self.injector.parts.reach.broke_protocol(self, error)
            self.abort()
