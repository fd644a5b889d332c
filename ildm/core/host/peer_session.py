"""A session which a plugin has opened (createSession, thesis 5.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Role, SessionStatus, Source, Unreachable
from ildm.core.session import BaseSession
from ildm.mqtt import Framer, MqttError, Version, check_first_byte

if TYPE_CHECKING:
    from ildm.core.node import Node


class PeerSession(BaseSession):
    """Whole MQTT messages in both directions; what they mean is the plugin's affair."""

    __slots__ = ("_framer", "_given_up", "_of_plugin", "node")
    role = Role.PEER

    def __init__(self, node: Node, of_plugin: set[PeerSession]) -> None:
        """``of_plugin`` has the sessions of its plugin from their creation to their end."""
        super().__init__(node.driver)
        self._of_plugin = of_plugin
        of_plugin.add(self)
        self.node = node
        self.version = Version.V5
        self._framer = Framer(node.config.link.packet_size)
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
        transport.set_write_buffer_limits(high=self.node.config.limits.write_buffer)
        self.node.session_established(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                type = check_first_byte(frame[0], self.version)
                self.node.dispatch.arrived(Source.PEER, self, type, frame)
        except MqttError as error:
            self.node.dispatch.deliver()  # what came before the fault
            self.node.dispatch.call("on_recv_failure", self, error)
            self.close()
        self.node.dispatch.deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        self._of_plugin.discard(self)
        if self._given_up and self.status is SessionStatus.CLOSED:
            return
        expected = self.status is SessionStatus.TERMINATING
        super().connection_lost(exc)
        self.node.session_closed(self, None if expected else exc or ConnectionError("closed by the peer"))

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self._of_plugin.discard(self)
        super().dial_failed(reason)
        if not self._given_up:
            self.node.dispatch.call("on_tcp_down", self)
