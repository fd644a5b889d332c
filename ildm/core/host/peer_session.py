"""A session which a plugin has opened (createSession, thesis 5.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Role, SessionStatus, Source, Unreachable
from ildm.core.session import BaseSession
from ildm.mqtt import Framer, MqttError, Version, check_first_byte

if TYPE_CHECKING:
    from ildm.core.host.parts import HostParts


class PeerSession(BaseSession):
    """Whole MQTT messages in both directions; what they mean is the plugin's affair."""

    __slots__ = ("_framer", "_given_up", "_of_plugin", "_parts")
    role = Role.PEER

    def __init__(self, parts: HostParts, of_plugin: set[BaseSession]) -> None:
        """``of_plugin`` has the sessions of its plugin from their creation to their end."""
        super().__init__(parts.driver)
        self._of_plugin = of_plugin
        of_plugin.add(self)
        self._parts = parts
        self.version = Version.V5
        self._framer = Framer(parts.config.link.packet_size)
        self._given_up = False

    def close(self) -> None:
        """As of any session; one that is not established yet is never heard of again."""
        self._given_up = self.transport is None
        super().close()

    def connection_made(self, transport: Any) -> None:
        if self._given_up:
            transport.close()
            return
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self._parts.config.limits.write_buffer)
        self._parts.dispatch.session_established(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                type = check_first_byte(frame[0], self.version)
                self._parts.dispatch.arrived(Source.PEER, self, type, frame)
        except MqttError as error:
            self._parts.dispatch.deliver()  # what came before the fault
            self._parts.dispatch.call("on_recv_failure", self, error)
            self.close()
        self._parts.dispatch.deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        self._of_plugin.discard(self)
        if self._given_up and self.status is SessionStatus.CLOSED:
            return
        expected = self.status is SessionStatus.TERMINATING
        super().connection_lost(exc)
        self._parts.dispatch.session_closed(
            self, None if expected else exc or ConnectionError("closed by the peer")
        )

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self._of_plugin.discard(self)
        super().dial_failed(reason)
        if not self._given_up:
            self._parts.dispatch.call("on_tcp_down", self)
