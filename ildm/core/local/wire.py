"""Both connections of a client, as the parts of its session use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ildm.core.local.partial import Partial
from ildm.mqtt import PingReq

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import Timer
    from ildm.core.local.ack_gate import GateScanner
    from ildm.core.local.parts import ClientParts
    from ildm.core.session import BaseSession
    from ildm.mqtt import MqttError

ANSWERS = 10.0
"""Seconds that a broker, which may be standing still, has to answer what a client had sent that is gone."""


class Owner(Protocol):
    """The session that the parts belong to, as far as they reach it through the wire."""

    def fail(self, error: MqttError) -> None:
        """The client has broken the protocol."""

    def go_on(self) -> None:
        """What waited behind a packet has its turn."""


class ClientWire:
    """Sends to the client and to the broker between two of the packets that are relayed, never amid one.

    The parts of a session hold this in the place of the session.

    Args:
        owner: ``client`` itself, but for tests.
    """

    __slots__ = (
        "_interjected",
        "_lingering",
        "_owner",
        "_parts",
        "_pinged",
        "answers",
        "beside",
        "broker",
        "client",
        "driver",
        "ended",
        "keep_alive",
        "partial",
        "pings",
        "relaying",
        "scanner",
        "version",
        "watching",
    )

    def __init__(self, parts: ClientParts, client: BaseSession, owner: Owner) -> None:
        self.driver = parts.driver
        self._parts = parts
        self._owner: Owner | None = owner
        self.client: BaseSession | None = client
        self.broker: BaseSession | None = None
        self.version = client.version
        self.answers = parts.answers
        self.keep_alive = 0
        """Seconds, as the broker counts them; 0: it does not."""
        self.ended = False
        """The client has said that it will send nothing more."""
        self.partial: Partial | None = None
        """The client's packet of which a part has come; None: each has come whole so far."""
        self.scanner: GateScanner | None = None
        """Knows where the broker's packets end."""
        self.watching = False
        """An acknowledgement may come that means something, or waits: chunks do not go on as they come."""
        self.relaying: list[bytes] | None = None
        """What of a broker's chunk passes, up to the acknowledgement that is looked at just now."""
        self.beside: bytearray | None = None
        """For the client, after the packet of the broker's that it has in part."""
        self.pings = 0
        """PINGREQs of the node's own that the broker has not answered."""
        self._pinged = 0.0
        self._interjected: list[bytes] | None = None
        self._lingering: tuple[Timer, Callable[[], None]] | None = None

    # the client ---------------------------------------------------------------------------------

    @property
    def session(self) -> BaseSession:
        """The client's session, for plugins."""
        assert self.client is not None
        return self.client

    @property
    def client_id(self) -> str:
        return "" if self.client is None else self.client.client_id

    @property
    def peer(self) -> str:
        return "" if self.client is None else self.client.peer

    @property
    def has_client(self) -> bool:
        """Whether the client's connection is there."""
        return self.client is not None and self.client.transport is not None

    def to_client(self, packet: bytes) -> None:
        """Send the client a packet beside the broker's stream, after one of the broker's it has in part.

        A client that makes the node answer and does not read is not read either.
        """
        if self.relaying is not None:
            # what is there ends with a packet, which the client may have in part
            self.relaying.append(packet)
            return
        client = self.client
        if self.beside or (self.scanner is not None and self.scanner.begun):
            if self.beside is None:
                self.beside = bytearray()
            self.beside += packet
            self.watching = True
            if len(self.beside) > self._parts.limits.write_buffer:
                self.pause("answers")
        elif client is not None:
            client.write(packet)
            if not client.writable:
                client.pause("answers")

    def send_beside(self) -> None:
        """The client has got the packet of the broker's that it had in part."""
        beside, self.beside = self.beside, None
        client = self.client
        if client is None:
            return
        if beside:
            client.write(bytes(beside))
        if client.writable:
            client.resume("answers")

    def pause(self, reason: object) -> None:
        """Read nothing more of the client until every reason is withdrawn."""
        if self.client is not None:
            self.client.pause(reason)

    def resume(self, reason: object) -> None:
        if self.client is not None:
            self.client.resume(reason)

    def fail(self, error: MqttError) -> None:
        """The client has broken the protocol."""
        if self._owner is not None:
            self._owner.fail(error)

    def go_on(self) -> None:
        """What waited behind a packet of the client's has its turn."""
        if self._owner is not None:
            self._owner.go_on()

    # the broker ---------------------------------------------------------------------------------

    @property
    def has_broker(self) -> bool:
        """Whether the client's broker session is established."""
        return self.broker is not None and self.broker.is_open

    @property
    def amid_packet(self) -> bool:
        """Whether the broker has a part of the packet that the client is sending."""
        return self.partial is not None and self.partial.relayed

    def begin_partial(self) -> Partial:
        """The client's packet, of which a part has come now."""
        if self.partial is None:
            self.partial = Partial(self._parts.partials)
        return self.partial

    def forget_partial(self) -> None:
        """The rest of the packet will not come, or does not count."""
        if self.partial is not None:
            self.partial.clear()

    def relay(self, data: bytes) -> None:
        """Send the broker what follows in the client's stream."""
        if self.broker is not None:
            self.broker.write(data)

    def to_broker(self, packet: bytes) -> None:
        """Send the broker a packet of the node's own, after the client's that is being relayed, if any."""
        if self.ended:
            return  # nothing more can be sent
        if self.amid_packet:
            if self._interjected is None:
                self._interjected = []
            self._interjected.append(packet)
        else:
            self.relay(packet)

    def between_packets(self) -> bytes:
        """What was kept until a packet of the client's is whole."""
        kept, self._interjected = self._interjected, None
        return b"" if kept is None else b"".join(kept)

    def ping(self) -> None:
        """Send a PINGREQ of the node's own, whose answer the client does not get."""
        if not self.ended and self.broker is not None:
            self.pings += 1
            self.watching = True
            self.to_broker(PingReq().encode(self.version))

    def kept_back(self) -> None:
        """The broker does not hear of what the client sends; it must not take it for gone (MQTT-3.1.2-22).

        With a third of the keep alive between two PINGREQ it always hears within one and a half times.
        """
        now = self.driver.now()
        if self.broker is not None and self.keep_alive and now - self._pinged >= self.keep_alive / 3:
            self._pinged = now
            self.ping()

    def linger(self, finished: Callable[[], None]) -> None:
        """The client sends nothing more: take the broker's answers to what it had sent, then say so."""
        if self.broker is not None:
            self.broker.resume("client")
        if self._lingering is not None:
            self._lingering[0].cancel()
        self._lingering = self.driver.call_later(ANSWERS, self.end_lingering), finished

    @property
    def lingers(self) -> bool:
        """Whether the broker's last answers are awaited."""
        return self._lingering is not None

    def end_lingering(self) -> None:
        """The broker has answered, or has had its time."""
        if self._lingering is not None:
            (timer, finished), self._lingering = self._lingering, None
            timer.cancel()
            finished()

    def cut(self) -> None:
        """Both connections have ended: let go of their sessions, and of what would lead back to them."""
        self.client = self.broker = self._owner = None
