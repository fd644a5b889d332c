"""What the relay does with a frame, decided by its first byte alone."""

from __future__ import annotations

from enum import IntEnum

from ildm.core.frames import PUBLISH, PUBLISH_QOS_1
from ildm.mqtt import CLIENT_FIRST_BYTE, PacketType, Version


class Action(IntEnum):
    """One entry of a table of 256."""

    RELAY = 0
    """Nobody asked for it: it goes on with its neighbours in one slice."""
    COUNT = 1
    """A PUBLISH nobody asked for."""
    RUN = 2
    """A PUBLISH of QoS 0 or 1 which only needs a routing decision."""
    LOOK = 3
    """It means something to the node or a plugin."""
    ILLEGAL = 4
    """The standard does not allow it from a client."""


def client_actions(
    version: Version, *, routing: bool, looked_at: frozenset[PacketType], whole: bool = False
) -> bytes:
    """The table for frames from a local client.

    ``routing``: an algorithm routes PUBLISH messages, and with ``whole`` decides on each of them;
    ``looked_at``: types which plugins want.
    """
    table = bytearray(256)
    for first in range(256):
        type = first >> 4
        if not CLIENT_FIRST_BYTE[version][first] or type == PacketType.CONNECT:
            action = Action.ILLEGAL  # a second CONNECT is a protocol error (MQTT-3.1.0-2)
        elif type == PacketType.PUBLISH:
            if PacketType.PUBLISH in looked_at or whole:
                action = Action.LOOK
            elif not routing:
                action = Action.COUNT
            else:
                action = Action.RUN if first in (PUBLISH, PUBLISH_QOS_1) else Action.LOOK
        elif type in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.DISCONNECT) or (
            type == PacketType.PUBREL and (routing or PacketType.PUBLISH in looked_at)
        ):
            action = Action.LOOK
        else:
            action = Action.LOOK if type in looked_at else Action.RELAY
        table[first] = action
    return bytes(table)


def broker_wanted(looked_at: frozenset[PacketType]) -> bytes:
    """Which frames from the local broker are put together: a truth value for each first byte."""
    types = {PacketType.SUBACK, PacketType.UNSUBACK, *looked_at}
    return bytes(1 if first >> 4 in types else 0 for first in range(256))
