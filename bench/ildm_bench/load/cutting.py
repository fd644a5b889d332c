"""Where the control packets of a stream lie, without a copy of any: the fast twin of `ildm.mqtt.Framer`."""

from __future__ import annotations

from ildm.mqtt import MqttError
from ildm.mqtt.framing import decode_varint

LARGEST = 1 << 24
"""Bytes of the largest control packet that a target may send."""


def cut(data: bytes) -> tuple[list[int], list[int], str]:
    """Where the remaining part of each whole control packet begins, where it ends, and what is wrong.

    Packets lie one behind the other, so the end of one is the beginning of the next; the last end is how
    much of ``data`` was used. Behind a fault, which is no MQTT, nothing can be cut: "" if there is none.
    """
    bodies: list[int] = []
    ends: list[int] = []
    begin = 0
    last = len(data) - 1
    while begin < last:
        length = data[begin + 1]
        if length < 128:
            body = begin + 2
        elif begin + 1 < last and data[begin + 2] < 128:
            length = length & 127 | data[begin + 2] << 7
            body = begin + 3
        else:
            try:
                found = decode_varint(data, begin + 1)
            except MqttError as error:
                return bodies, ends, str(error)
            if found is None:
                break
            length, body = found
            if length > LARGEST:
                return bodies, ends, f"packet of {length} bytes, {LARGEST} allowed"
        begin = body + length
        if begin > last + 1:
            break
        bodies.append(body)
        ends.append(begin)
    return bodies, ends, ""
