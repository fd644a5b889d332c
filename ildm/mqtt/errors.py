"""Errors. What the peer did wrong and what this program did wrong are different types.

The codec names the rule that was broken: ``clause`` is the id of a numbered conformance statement of
MQTT 5.0 (``MQTT-3.3.1-4``), or the number of the section where the standard numbers no statement
(``MQTT-2.2.2.2``). Rules that only 3.1.1 has, or numbers otherwise, end in `` (3.1.1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ildm.mqtt.constants import ReasonCode


class IldmError(Exception):
    """Root of every error this project raises on purpose."""


class LocalError(IldmError):
    """A state this program must never get into; what it was about has to end, nothing else."""


class EncodeError(IldmError, ValueError):
    """Our own mistake: a packet was asked for that the standard forbids."""

    def __init__(self, message: str, *, clause: str = "") -> None:
        super().__init__(f"{message} [{clause}]" if clause else message)
        self.clause = clause


class MqttError(IldmError):
    """The peer's mistake; the connection it came on must be closed (MQTT-4.13.1-1).

    Attributes:
        message: what is wrong, in words.
        clause: the rule that was broken, see the module's text.
        reason: what to tell the peer in CONNACK or DISCONNECT (MQTT 5, 4.13).
        frames: complete frames that came before the fault in the same ``Framer.feed``.
    """

    default_reason: ClassVar[ReasonCode] = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, message: str, *, clause: str, reason: ReasonCode | None = None) -> None:
        super().__init__(f"{message} [{clause}]")
        self.message = message
        self.clause = clause
        self.reason = self.default_reason if reason is None else reason
        self.frames: Sequence[bytes] = ()


class MalformedPacket(MqttError):  # noqa: N818
    """The packet cannot be parsed according to the standard (MQTT 5, 1.2)."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(MqttError):  # noqa: N818
    """The packet can be parsed but says what is not allowed, or not in this state (MQTT 5, 1.2)."""

    default_reason = ReasonCode.PROTOCOL_ERROR


class PacketTooLarge(MqttError):  # noqa: N818
    """The packet exceeds the maximum packet size of the receiver (MQTT-3.1.2-24, MQTT-3.2.2-15)."""

    default_reason = ReasonCode.PACKET_TOO_LARGE


class OverLimit(MqttError):  # noqa: N818
    """The packet is legal, but has more properties or filters than the receiver takes (4.13.2)."""

    default_reason = ReasonCode.QUOTA_EXCEEDED


class UnsupportedVersion(MqttError):  # noqa: N818
    """CONNECT has a protocol level that is not spoken here (MQTT-3.1.2-2).

    Attributes:
        level: the protocol level as sent, 0-255.
    """

    default_reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, message: str, *, level: int, clause: str = "MQTT-3.1.2-2") -> None:
        super().__init__(message, clause=clause)
        self.level = level
