"""A local client whose packets pass through filters: what they reject is answered, what they defer waits.

While a decision is awaited nothing of the client is read beyond the chunk the packet came in, whose rest is
kept: what it sends stays in order, and its buffers are TCP's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ildm.core.local.publisher import Publisher
from ildm.core.plugin.filtering import Awaited, Rejected
from ildm.mqtt import MqttError, Property, PubAck, Publish, PubRec, Version, decode

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.node import Node
    from ildm.mqtt import Connect

ANY_SIZE = 0xFFFFFFFF
"""Bytes of a packet for a client that has set no maximum."""


class FilteredClient(Publisher):
    """The part of a client's session that asks the filters and carries out what they decide."""

    __slots__ = ("_after_rest", "_awaited", "_last_call", "_reason_room", "_rest", "_told_filtered")

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._awaited: Awaited[Any] | None = None
        self._rest = b""  # of a chunk of many packets: its turn comes when others have had theirs
        self._after_rest: Callable[[], None] | None = None
        self._last_call: Timer | None = None
        self._reason_room = 0
        """The largest packet with a reason string that it takes; 0: it wants none in its acknowledgements."""
        self._told_filtered: set[str] | None = None
        """What kinds of its packets the log has named as rejected."""

    @abstractmethod
    def _go_on(self) -> None:
        """A decision has been carried out: what waited behind the packet has its turn."""

    def takes_reasons(self, connect: Connect) -> None:
        """Note what the client allows in acknowledgements, as it has sent it (MQTT-3.1.2-29)."""
        properties = connect.properties
        if connect.version is Version.V5 and properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1):
            self._reason_room = int(properties.get(Property.MAXIMUM_PACKET_SIZE, ANY_SIZE))

    # decisions that wait ----------------------------------------------------------------------

    def _when_decided(self, answer: object, carry_out: Callable[[Any], bytes | None]) -> bytes | None:
        """Carry a decision out, now or when it has come; answers what is to be relayed now."""
        if not isinstance(answer, Awaited):
            return carry_out(answer)
        self._awaited = answer
        answer.then(partial(self._decided, carry_out))
        return None

    def _decided(self, carry_out: Callable[[Any], bytes | None], answer: object) -> None:
        self._awaited = None
        try:
            passed = carry_out(answer)
        except MqttError as error:
            self._rest = b""
            self.fail(error)
            passed = None
        if passed and self.paired is not None:
            self.paired.write(passed)
        self.node.dispatch.deliver()
        self._go_on()

    def _no_more_to_come(self) -> None:
        """The client has gone: what it has sent still counts, if that is decided in time."""
        if self.paired is None or not self.paired.is_open:
            self._stop_waiting()
        elif self._awaited is not None or self._rest:
            limit = self.node.config.limits.decision_timeout
            self._last_call = self.driver.call_later(limit, self._too_late)

    def broker_lost(self) -> None:
        """The connection with the broker has ended: nothing can be passed on any more."""
        waited = self._awaited is not None
        self._stop_waiting()
        self.close()
        if waited and self.transport is None:
            self._go_on()

    def _too_late(self) -> None:
        self._last_call = None
        if self._awaited is None:
            self._no_more_to_come()  # it is being dealt with
        else:
            self._stop_waiting()
            self._go_on()

    def _stop_waiting(self) -> None:
        """The session ends, and with it what is undecided."""
        if self._last_call is not None:
            self._last_call.cancel()
            self._last_call = None
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
            self._rest = b""
            self.node.counters["undecided"] += 1

    def _after(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is put off: the end of a client comes after what it has sent."""
        if self._rest or self._awaited is not None:
            self._after_rest = callback
        else:
            callback()

    # what is rejected -------------------------------------------------------------------------

    def _filtered(self, frame: bytes, answer: bytes | Rejected) -> bytes | None:
        """The filters have decided about a PUBLISH; answers what is to be relayed."""
        if isinstance(answer, Rejected):
            self._drop(frame, answer)
            return None
        return self._passed(answer)

    @abstractmethod
    def _passed(self, frame: bytes) -> bytes:
        """A PUBLISH goes to the broker."""

    def _drop(self, frame: bytes, rejected: Rejected) -> None:
        """Answer a message that a filter has dropped as the broker would have."""
        self.node.counters["filtered"] += 1
        packet = decode(frame, self.version)
        assert isinstance(packet, Publish)
        self._log_rejected("message", rejected, topic=packet.topic[:200])
        if packet.packet_id is None:
            return
        v5 = self.version is Version.V5
        code = int(rejected.reason) if v5 else 0
        acknowledgement = PubAck if packet.qos == 1 else PubRec
        self._answer(
            self.with_reason(acknowledgement(packet_id=packet.packet_id, reason_code=code), rejected.text)
        )
        if packet.qos == 2 and code < 0x80:  # a failure ends the handshake (MQTT-4.3.3-4)
            if self.dropped_qos2 is None:
                self.dropped_qos2 = set()
            self.dropped_qos2.add(packet.packet_id)

    def with_reason(self, packet: PubAck | PubRec, text: str) -> bytes:
        """The packet with a reason string, if the client takes it (MQTT-3.4.2-2, MQTT-3.5.2-2)."""
        if text and self._reason_room:
            packet.properties[Property.REASON_STRING] = text
            encoded = packet.encode(self.version)
            if len(encoded) <= self._reason_room:
                return encoded
            del packet.properties[Property.REASON_STRING]
        return packet.encode(self.version)

    def _log_rejected(self, kind: str, rejected: Rejected, **about: object) -> None:
        """One line for the first of a kind on each connection: there may be thousands a second."""
        if self._told_filtered is None:
            self._told_filtered = set()
        if kind in self._told_filtered:
            return
        self._told_filtered.add(kind)
        self.driver.log(
            "info",
            f"{kind} rejected",
            plugin=rejected.plugin,
            reason=f"0x{rejected.reason:02X}",
            text=rejected.text,
            client_id=self.client_id,
            peer=self.peer,
            **about,
        )
